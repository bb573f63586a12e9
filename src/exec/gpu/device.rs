//! A device: one adapter with its queue, which encodes and runs the instructions of its ranks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::fault::Fault;
use super::kernels::KernelId;
use super::loaded::{Binder, LoadedPlan, Lowered, ReadyDispatch, lower_program, scratch_elements};
use super::lower::{Budget, KernelFamily};
use super::memory::{Allocator, RankMemory, buffer};
use super::open::{GpuOptions, Opened};
use super::pipelines::Pipelines;
use super::recording::Recording;
use super::self_test::SelfTest;
use super::staging::{CHUNK_BYTES, Direction, Ring};
use super::timing::Timer;
use crate::exec::device::{Batch, Device, DeviceInfo, Download};
use crate::exec::{ExecError, Progress};
use crate::mesh::Rank;
use crate::plan::{Plan, View};
use crate::units::{Bytes, Nanos};

/// Waiting longer than this for a batch is a failure.
const TIMEOUT: Duration = Duration::from_secs(300);
/// See [`GpuOptions::work_at_once`].
const WORK_AT_ONCE: u64 = 100_000_000_000;
/// Least elements of scratch.
const SCRATCH_ELEMENTS: u64 = 4096;
/// Plan index of the self test.
pub(super) const SELF_TEST_PLAN: usize = usize::MAX;

/// An adapter that runs ranks.
#[derive(Debug)]
pub struct GpuDevice {
    // The pass borrows the encoder without saying so: it is declared first to be dropped first.
    recording: Recording,
    plans: BTreeMap<usize, LoadedPlan>,
    scratch: wgpu::Buffer,
    pipelines: Pipelines,
    uploads: Ring,
    downloads: Ring,
    timer: Option<Timer>,
    submits: Submits,
    budget: Budget,
    options: GpuOptions,
    self_test: SelfTest,
    info: DeviceInfo,
    pub(super) fault: Fault,
    queue: wgpu::Queue,
    device: wgpu::Device,
    // Every device has its own: software adapters share their threads inside an instance.
    _instance: wgpu::Instance,
}

/// Batches on their way.
#[derive(Debug, Default)]
struct Submits {
    last: u64,
    /// The last batch known to have ended; written by wgpu's callback.
    done: Arc<AtomicU64>,
    running: VecDeque<(Batch, wgpu::SubmissionIndex)>,
}

impl GpuDevice {
    /// A device that was not tested yet.
    pub(super) fn untested(
        parts: Opened,
        (info, options): (DeviceInfo, GpuOptions),
        budget: Budget,
    ) -> Self {
        let Opened { instance, device, queue } = parts;
        let timed = device.features().contains(wgpu::Features::TIMESTAMP_QUERY);
        Self {
            recording: Recording::default(),
            plans: BTreeMap::new(),
            scratch: scratch(&device, SCRATCH_ELEMENTS),
            pipelines: Pipelines::new(&device),
            uploads: Ring::new(Direction::Upload),
            downloads: Ring::new(Direction::Download),
            timer: timed.then(|| Timer::new(&device, &queue)),
            submits: Submits::default(),
            budget,
            options,
            self_test: SelfTest::default(),
            fault: Fault::watch(&device, &info.name),
            info,
            queue,
            device,
            _instance: instance,
        }
    }

    /// Takes over what the self test found.
    pub(super) fn trust(&mut self, self_test: SelfTest, memory_cap: Option<Bytes>) {
        if !self_test.has_short_loops() {
            self.budget.trips = None;
        }
        self.self_test = self_test;
        self.options.memory_cap = memory_cap;
    }

    /// What the self test found.
    pub fn self_test(&self) -> &SelfTest {
        &self.self_test
    }

    /// Bytes of staging memory: the same after every equal step.
    pub fn staging_bytes(&self) -> Bytes {
        Bytes(self.uploads.bytes() + self.downloads.bytes())
    }

    /// Which kernels do the heavy work here.
    pub fn kernel_family(&self) -> KernelFamily {
        self.budget.family
    }

    /// Destroys the adapter's device, as a crash of its driver would: every later call fails.
    pub fn destroy(&mut self) {
        self.device.destroy();
    }

    pub(super) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Loads lowered programs: memory, kernels, bindings.
    pub(super) fn load_lowered(
        &mut self,
        plan_index: usize,
        plan: &Plan,
        lowered: Vec<(Rank, Lowered)>,
    ) -> Result<(), ExecError> {
        self.fault.check()?;
        self.plans.remove(&plan_index);
        let mut ranks: Vec<(Rank, RankMemory, Lowered)> = Vec::new();
        for (rank, lowered) in lowered {
            let loaded: Vec<&RankMemory> =
                self.plans.values().filter_map(|plan| plan.memory(rank)).collect();
            let allocator = Allocator {
                device: &self.device,
                fault: &self.fault,
                name: &self.info.name,
                cap: self.options.memory_cap,
            };
            ranks.push((rank, allocator.rank(plan, rank, &loaded)?, lowered));
        }
        let elements = ranks.iter().map(|(_, _, lowered)| scratch_elements(lowered)).max();
        self.make_scratch(elements.unwrap_or(0))?;
        let fresh = self.build_kernels(ranks.iter().map(|(_, _, lowered)| lowered))?;
        let binder = Binder {
            device: &self.device,
            queue: &self.queue,
            pipelines: &self.pipelines,
            scratch: &self.scratch,
            fault: &self.fault,
        };
        let loaded = LoadedPlan::bind(plan, ranks, &binder)?;
        let warm_ups: Vec<ReadyDispatch> =
            fresh.into_iter().map(|kernel| binder.warm_up(kernel)).collect();
        for dispatch in &warm_ups {
            self.recording.dispatch(&self.device, dispatch);
        }
        self.plans.insert(plan_index, loaded);
        let batch = self.submit()?;
        self.wait(batch)
    }

    /// Hands what is encoded to the queue.
    fn flush(&mut self) -> Option<wgpu::SubmissionIndex> {
        let mut encoder = self.recording.take()?;
        if let Some(timer) = &mut self.timer {
            timer.before_submit(&mut encoder);
        }
        self.uploads.before_submit();
        let index = self.queue.submit([encoder.finish()]);
        // Asked for before the work is known to be done, so that buffers are mapped by then.
        self.uploads.after_submit();
        self.downloads.after_submit();
        Some(index)
    }

    pub(super) fn unload(&mut self, plan_index: usize) {
        self.plans.remove(&plan_index);
    }

    /// Plans loaded before keep the scratch that they were bound to.
    fn make_scratch(&mut self, elements: u64) -> Result<(), ExecError> {
        if 4 * elements <= self.scratch.size() {
            return Ok(());
        }
        let most = 4 * u64::from(self.budget.elements);
        if most < 4 * elements {
            return Err(self.fault.error(
                format!("an op needs {} of scratch in one binding", Bytes(4 * elements)),
                "Use smaller microbatches, or take another device",
            ));
        }
        self.scratch = scratch(&self.device, elements);
        Ok(())
    }

    /// Compiles what the programs need; which kernels are new.
    fn build_kernels<'a>(
        &mut self,
        lowered: impl Iterator<Item = &'a Lowered>,
    ) -> Result<Vec<KernelId>, ExecError> {
        let needed: BTreeSet<KernelId> =
            lowered.flatten().flatten().map(|dispatch| dispatch.kernel).collect();
        let fresh: Vec<KernelId> =
            needed.into_iter().filter(|&kernel| !self.pipelines.is_built(kernel)).collect();
        for (done, &kernel) in fresh.iter().enumerate() {
            let (device, of) = (self.info.name.clone(), fresh.len());
            self.options.watcher.tell(Progress::Compiling { device, done, of });
            self.pipelines.build(kernel, &self.fault)?;
        }
        Ok(fresh)
    }

    /// Lets wgpu run its callbacks.
    fn poll(&self, wait: wgpu::PollType) -> Result<(), ExecError> {
        let polled = self.device.poll(wait);
        self.fault.check()?;
        match polled {
            Ok(_) => Ok(()),
            Err(wgpu::PollError::Timeout) => Err(self.fault.error(
                format!("no answer within {} s", self.timeout().as_secs()),
                "Use smaller microbatches, or restart the machine if the driver hangs",
            )),
            Err(error) => Err(self.fault.failed(error.to_string())),
        }
    }

    fn timeout(&self) -> Duration {
        self.options.timeout.unwrap_or(TIMEOUT)
    }
}

impl Device for GpuDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn load(&mut self, plan_index: usize, plan: &Plan, ranks: &[Rank]) -> Result<(), ExecError> {
        let lowered: Result<Vec<(Rank, Lowered)>, ExecError> = ranks
            .iter()
            .map(|&rank| Ok((rank, lower_program(plan, rank, &self.budget, &self.fault)?)))
            .collect();
        self.load_lowered(plan_index, plan, lowered?)
    }

    fn encode(&mut self, plan_index: usize, rank: Rank, instr: usize) -> Result<(), ExecError> {
        self.fault.check()?;
        let plan = loaded(&self.plans, plan_index);
        if let Some(timer) = &mut self.timer {
            self.recording.begin(&self.device, Some(timer.next(rank, instr)));
        }
        for ready in plan.dispatches(rank, instr) {
            self.recording.dispatch(&self.device, ready);
        }
        if self.timer.is_some() {
            self.recording.end();
        }
        self.recording.work += plan.work(rank, instr);
        if self.recording.work > self.options.work_at_once.unwrap_or(WORK_AT_ONCE) {
            self.flush();
            self.recording.has_flushed = true;
        }
        Ok(())
    }

    fn encode_message(
        &mut self,
        plan_index: usize,
        (from_rank, from): (Rank, View),
        (to_rank, to): (Rank, View),
    ) -> Result<(), ExecError> {
        self.fault.check()?;
        let plan = loaded(&self.plans, plan_index);
        let (from, from_offset, bytes) = plan.locate(from_rank, from);
        let (to, to_offset, to_bytes) = plan.locate(to_rank, to);
        assert_eq!(bytes, to_bytes, "both sides of a message have one size");
        self.recording.copy(&self.device, (from, from_offset), (to, to_offset), bytes);
        Ok(())
    }

    fn encode_download(
        &mut self,
        plan_index: usize,
        rank: Rank,
        view: View,
    ) -> Result<Download, ExecError> {
        self.fault.check()?;
        let plan = loaded(&self.plans, plan_index);
        let (from, offset, bytes) = plan.locate(rank, view);
        let slot = self.downloads.take(&self.device, bytes);
        let to = self.downloads.buffer(slot);
        self.recording.copy(&self.device, (from, offset), (to, 0), bytes);
        // Even an empty download has a submit to wait for.
        self.recording.encoder(&self.device);
        Ok(Download(slot))
    }

    fn encode_upload(
        &mut self,
        plan_index: usize,
        rank: Rank,
        view: View,
        bytes: &[u8],
    ) -> Result<(), ExecError> {
        self.fault.check()?;
        let plan = loaded(&self.plans, plan_index);
        let (to, offset, len) = plan.locate(rank, view);
        assert_eq!(len, bytes.len() as u64, "an upload fills its view");
        if bytes.is_empty() {
            return Ok(());
        }
        let slot = self.uploads.take(&self.device, len);
        self.uploads.fill(slot, bytes, &self.fault)?;
        self.recording.copy(&self.device, (self.uploads.buffer(slot), 0), (to, offset), len);
        Ok(())
    }

    fn submit(&mut self) -> Result<Batch, ExecError> {
        self.fault.check()?;
        if self.recording.is_empty() {
            return Ok(Batch(self.submits.last));
        }
        self.recording.has_flushed = false;
        self.recording.encoder(&self.device);
        let index = self.flush().expect("there is an encoder");
        self.submits.last += 1;
        let (number, done) = (self.submits.last, Arc::clone(&self.submits.done));
        let batch = Batch(number);
        if let Some(timer) = &mut self.timer {
            timer.after_submit(batch);
        }
        self.queue.on_submitted_work_done(move || {
            done.fetch_max(number, Ordering::AcqRel);
        });
        self.submits.running.push_back((batch, index));
        self.fault.check()?;
        Ok(batch)
    }

    fn is_done(&mut self, batch: Batch) -> Result<bool, ExecError> {
        self.poll(wgpu::PollType::Poll)?;
        let done = Batch(self.submits.done.load(Ordering::Acquire));
        while self.submits.running.front().is_some_and(|(batch, _)| *batch <= done) {
            self.submits.running.pop_front();
        }
        Ok(batch <= done)
    }

    fn wait(&mut self, batch: Batch) -> Result<(), ExecError> {
        assert!(batch.0 <= self.submits.last, "{batch:?} was never submitted");
        while !self.is_done(batch)? {
            let running = self.submits.running.iter().find(|(running, _)| *running == batch);
            let (_, index) = running.expect("a batch runs until it is done");
            self.poll(wgpu::PollType::Wait {
                submission_index: Some(index.clone()),
                timeout: Some(self.timeout()),
            })?;
        }
        Ok(())
    }

    fn finish_download(
        &mut self,
        Download(slot): Download,
        into: &mut [u8],
    ) -> Result<(), ExecError> {
        self.fault.check()?;
        while !self.downloads.has_arrived(slot, &self.fault)? {
            self.poll(wgpu::PollType::Wait {
                submission_index: None,
                timeout: Some(self.timeout()),
            })?;
        }
        self.downloads.read(slot, into, &self.fault)
    }

    fn timings(&mut self, batch: Batch) -> Vec<(Rank, usize, Nanos, Nanos)> {
        self.timer.as_mut().map_or_else(Vec::new, |timer| timer.times(batch))
    }

    fn read(&mut self, plan_index: usize, rank: Rank, view: View) -> Result<Vec<u8>, ExecError> {
        let (_, _, bytes) = loaded(&self.plans, plan_index).locate(rank, view);
        let mut into = vec![0; bytes as usize];
        for (part, into) in parts(view, bytes).zip(into.chunks_mut(CHUNK_BYTES as usize)) {
            let download = self.encode_download(plan_index, rank, part)?;
            let batch = self.submit()?;
            self.wait(batch)?;
            self.finish_download(download, into)?;
        }
        Ok(into)
    }

    fn write(
        &mut self,
        plan_index: usize,
        rank: Rank,
        view: View,
        bytes: &[u8],
    ) -> Result<(), ExecError> {
        let pieces = bytes.chunks(CHUNK_BYTES as usize);
        for (part, bytes) in parts(view, bytes.len() as u64).zip(pieces) {
            self.encode_upload(plan_index, rank, part, bytes)?;
            let batch = self.submit()?;
            self.wait(batch)?;
        }
        Ok(())
    }

    fn allocated(&self, rank: Rank) -> Bytes {
        RankMemory::allocated(self.plans.values().filter_map(|plan| plan.memory(rank)))
    }
}

fn loaded(plans: &BTreeMap<usize, LoadedPlan>, plan_index: usize) -> &LoadedPlan {
    plans.get(&plan_index).unwrap_or_else(|| panic!("Plan {plan_index} is not loaded"))
}

/// The parts of a view of `bytes` bytes that are staged at once.
fn parts(view: View, bytes: u64) -> impl Iterator<Item = View> {
    let most = (CHUNK_BYTES * u64::from(view.len) / bytes.max(1)).max(1) as u32;
    (0..view.len.div_ceil(most)).map(move |index| {
        let start = index * most;
        view.slice(start..view.len.min(start.saturating_add(most)))
    })
}

fn scratch(device: &wgpu::Device, elements: u64) -> wgpu::Buffer {
    buffer(device, "scratch", 4 * elements, wgpu::BufferUsages::STORAGE)
}
