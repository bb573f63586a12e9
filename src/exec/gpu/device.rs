//! A device: one adapter with its queue, which encodes and runs the instructions of its ranks.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::adapters::{Adapter, reopen};
use super::fault::{Fault, one_line};
use super::kernels::KernelId;
use super::loaded::{Binder, LoadedPlan, Lowered, ReadyDispatch, lower_program, scratch_elements};
use super::lower::{Budget, KernelFamily};
use super::memory::{Allocator, RankMemory, buffer};
use super::pipelines::Pipelines;
use super::self_test::{self, SelfTest};
use super::staging::{CHUNK_BYTES, Direction, Ring};
use super::timing::Timer;
use crate::exec::ExecError;
use crate::exec::device::{Batch, Device, DeviceInfo, DeviceKind, Download};
use crate::mesh::Rank;
use crate::plan::{Plan, View};
use crate::units::{Bytes, Nanos};

/// How a device is opened.
#[derive(Clone, Debug, Default)]
pub struct GpuOptions {
    /// Time every instruction, if the adapter can; each costs a little.
    pub timestamps: bool,
    /// Bytes that a rank may place.
    pub memory_cap: Option<Bytes>,
    /// Take only what plain WebGPU promises, whatever the adapter offers.
    pub portable_limits: bool,
    /// Take smaller bindings than the adapter offers.
    pub binding_bytes_max: Option<Bytes>,
    /// Which kernels do the heavy work; chosen by the kind of adapter if not said.
    pub family: Option<KernelFamily>,
    /// How long to wait for a batch before the device counts as hung; five minutes if not said.
    pub timeout: Option<Duration>,
}

/// Waiting longer than this for a batch is a failure.
const TIMEOUT: Duration = Duration::from_secs(300);
/// Trips of loops that every adapter runs, with a margin to the 65,535 of old software drivers.
pub(super) const SAFE_TRIPS: u32 = 60_000;
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

/// Commands that were encoded and not submitted.
#[derive(Debug, Default)]
struct Recording {
    pass: Option<wgpu::ComputePass<'static>>,
    /// The kernel that the pass is set to.
    kernel: Option<KernelId>,
    encoder: Option<wgpu::CommandEncoder>,
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
    /// Takes an adapter and tests it.
    ///
    /// # Errors
    /// If the adapter is unsuitable, cannot be had, or computes wrong numbers.
    pub fn open(adapter: &Adapter, options: GpuOptions) -> Result<Self, ExecError> {
        let refuse = |why: String, remedy: &str| ExecError::Device {
            device: adapter.info.name.clone(),
            why,
            remedy: remedy.to_owned(),
        };
        if let Some(why) = &adapter.unsuitable {
            return Err(refuse(format!("it cannot run ranks: {why}"), "Take another device"));
        }
        let family = choose_family(adapter, options.family)
            .map_err(|why| refuse(why, "Let the kernels be chosen"))?;
        let (instance, found) = reopen(adapter)?;
        let request = wgpu::DeviceDescriptor {
            label: Some("ranks"),
            required_features: features(&found, family, &options),
            required_limits: limits(&found, &options),
            memory_hints: wgpu::MemoryHints::MemoryUsage,
            ..Default::default()
        };
        let (device, queue) = pollster::block_on(found.request_device(&request))
            .map_err(|error| refuse(one_line(&error.to_string()), "Close other programs"))?;
        let fault = Fault::watch(&device, &adapter.info.name);
        let memory_cap = options.memory_cap;
        let timed = device.features().contains(wgpu::Features::TIMESTAMP_QUERY);
        let mut opened = Self {
            recording: Recording::default(),
            plans: BTreeMap::new(),
            scratch: scratch(&device, SCRATCH_ELEMENTS),
            pipelines: Pipelines::new(&device),
            uploads: Ring::new(Direction::Upload),
            downloads: Ring::new(Direction::Download),
            timer: timed.then(|| Timer::new(&device, &queue)),
            submits: Submits::default(),
            budget: budget(&device.limits(), family),
            // The self test is none of the ranks' memory.
            options: GpuOptions { memory_cap: None, ..options },
            self_test: SelfTest::default(),
            info: adapter.info.clone(),
            fault,
            queue,
            device,
            _instance: instance,
        };
        opened.self_test = self_test::run(&mut opened)?;
        if let Some(why) = opened.self_test.failure() {
            return Err(refuse(why, "Update the driver, or take another device"));
        }
        opened.options.memory_cap = memory_cap;
        if !opened.self_test.has_short_loops() {
            opened.budget.trips = None;
        }
        Ok(opened)
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
        let mut fresh = Vec::new();
        for dispatch in lowered.flatten().flatten() {
            if self.pipelines.build(dispatch.kernel, &self.fault)? {
                fresh.push(dispatch.kernel);
            }
        }
        Ok(fresh)
    }

    fn plan(&self, plan_index: usize) -> &LoadedPlan {
        self.plans.get(&plan_index).unwrap_or_else(|| panic!("Plan {plan_index} is not loaded"))
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

impl Recording {
    fn dispatch(&mut self, device: &wgpu::Device, ready: &ReadyDispatch) {
        if self.pass.is_none() {
            self.begin(device, None);
        }
        let pass = self.pass.as_mut().expect("begun above");
        if self.kernel != Some(ready.kernel) {
            pass.set_pipeline(&ready.pipeline);
            self.kernel = Some(ready.kernel);
        }
        pass.set_bind_group(0, &ready.bind_group, &[]);
        let [x, y, z] = ready.groups;
        pass.dispatch_workgroups(x, y, z);
    }

    fn begin(
        &mut self,
        device: &wgpu::Device,
        timestamps: Option<wgpu::ComputePassTimestampWrites<'_>>,
    ) {
        self.end();
        let descriptor = wgpu::ComputePassDescriptor { label: None, timestamp_writes: timestamps };
        let pass = self.encoder(device).begin_compute_pass(&descriptor).forget_lifetime();
        self.pass = Some(pass);
    }

    /// Ends the pass: copies stand between passes.
    fn end(&mut self) {
        self.pass = None;
        self.kernel = None;
    }

    fn encoder(&mut self, device: &wgpu::Device) -> &mut wgpu::CommandEncoder {
        self.encoder.get_or_insert_with(|| {
            device.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: None })
        })
    }

    fn copy(
        &mut self,
        device: &wgpu::Device,
        (from, from_offset): (&wgpu::Buffer, u64),
        (to, to_offset): (&wgpu::Buffer, u64),
        bytes: u64,
    ) {
        self.end();
        if bytes > 0 {
            self.encoder(device).copy_buffer_to_buffer(from, from_offset, to, to_offset, bytes);
        }
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
        let plan = self.plans.get(&plan_index);
        let plan = plan.unwrap_or_else(|| panic!("Plan {plan_index} is not loaded"));
        if let Some(timer) = &mut self.timer {
            self.recording.begin(&self.device, Some(timer.next(rank, instr)));
        }
        for ready in plan.dispatches(rank, instr) {
            self.recording.dispatch(&self.device, ready);
        }
        if self.timer.is_some() {
            self.recording.end();
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
        let plan = self.plans.get(&plan_index);
        let plan = plan.unwrap_or_else(|| panic!("Plan {plan_index} is not loaded"));
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
        let plan = self.plans.get(&plan_index);
        let plan = plan.unwrap_or_else(|| panic!("Plan {plan_index} is not loaded"));
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
        let plan = self.plans.get(&plan_index);
        let plan = plan.unwrap_or_else(|| panic!("Plan {plan_index} is not loaded"));
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
        self.recording.end();
        let Some(mut encoder) = self.recording.encoder.take() else {
            return Ok(Batch(self.submits.last));
        };
        if let Some(timer) = &self.timer {
            timer.before_submit(&mut encoder);
        }
        self.uploads.before_submit();
        let index = self.queue.submit([encoder.finish()]);
        self.submits.last += 1;
        let (number, done) = (self.submits.last, Arc::clone(&self.submits.done));
        // Asked for before the work is known to be done, so that buffers are mapped by then.
        self.uploads.after_submit();
        self.downloads.after_submit();
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
        let (_, _, bytes) = self.plan(plan_index).locate(rank, view);
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

/// By the kind of adapter, or as asked.
fn choose_family(adapter: &Adapter, asked: Option<KernelFamily>) -> Result<KernelFamily, String> {
    let eight = adapter.limits.subgroup_sizes == Some((8, 8));
    match asked {
        Some(KernelFamily::Subgroup) if !eight => {
            Err("the subgroup kernels need subgroups of exactly eight".to_owned())
        }
        Some(family) => Ok(family),
        None if adapter.info.kind != DeviceKind::Software => Ok(KernelFamily::Tiled),
        None if eight => Ok(KernelFamily::Subgroup),
        None => Ok(KernelFamily::Blocked),
    }
}

fn features(adapter: &wgpu::Adapter, family: KernelFamily, options: &GpuOptions) -> wgpu::Features {
    let mut features = wgpu::Features::empty();
    if family == KernelFamily::Subgroup {
        features |= wgpu::Features::SUBGROUP;
    }
    if options.timestamps {
        features |= adapter.features() & wgpu::Features::TIMESTAMP_QUERY;
    }
    features
}

fn limits(adapter: &wgpu::Adapter, options: &GpuOptions) -> wgpu::Limits {
    let offered = adapter.limits();
    let mut limits = if options.portable_limits {
        // The fallback is for adapters that offer less, which were refused before.
        wgpu::Limits::default().using_resolution(offered)
    } else {
        offered
    };
    if let Some(most) = options.binding_bytes_max {
        let clamped = limits.max_storage_buffer_binding_size.min(most.0);
        limits.max_storage_buffer_binding_size = clamped;
    }
    limits
}

fn budget(limits: &wgpu::Limits, family: KernelFamily) -> Budget {
    // A view may start anywhere, so its binding is longer by up to one alignment.
    let alignment = u64::from(limits.min_storage_buffer_offset_alignment);
    let bytes = limits.max_storage_buffer_binding_size.min(limits.max_buffer_size) - alignment;
    Budget {
        elements: u32::try_from(bytes / 4).unwrap_or(u32::MAX),
        groups: limits.max_compute_workgroups_per_dimension,
        trips: Some(SAFE_TRIPS),
        family,
    }
}
