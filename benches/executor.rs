//! What an instruction costs the executor: Plans of thousands of empty ops, over eight ranks, with
//! and without messages, on the host and on a device that does nothing. Prints nanoseconds per
//! instruction, and how much a thousand steps allocate and keep.
//!
//! `cargo bench --no-default-features --bench executor`
#![expect(unsafe_code, reason = "an allocator that counts is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::Instant;

use shardlab::exec::device::{Batch, Device, DeviceInfo, DeviceKind, Download};
use shardlab::exec::{DeviceSlot, ExecError, ExecOptions, Executor, StepInput};
use shardlab::mesh::{Axis, Mesh, Rank, RankOrder};
use shardlab::ops::Op;
use shardlab::ops::elementwise::Fill;
use shardlab::plan::{
    Action, Arena, BufferDecl, BufferId, Instr, Lane, Life, Origin, Place, Plan, Program, Role,
    Tag, View,
};
use shardlab::shape::DType;
use shardlab::units::{Bytes, Nanos};

const RANKS: u32 = 8;
const INSTRS: u32 = 1_000;
/// Nanoseconds an instruction that the design allows on the host, and on a device less its driver.
const HOST_LIMIT: f64 = 2_000.0;
const DEVICE_LIMIT: f64 = 5_000.0;

/// Counts allocations and the bytes that are kept.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static KEPT: AtomicI64 = AtomicI64::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        KEPT.fetch_add(layout.size() as i64, Relaxed);
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        KEPT.fetch_sub(layout.size() as i64, Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(start, layout) }
    }
}

/// `INSTRS` instructions on each rank; every `message_every`-th is a message to the next rank.
fn plan(message_every: u32) -> Plan {
    let mesh = Mesh { dp: RANKS, tp: 1, pp: 1, order: RankOrder::TpDpPp };
    let mut buffers = Vec::new();
    for rank in mesh.ranks() {
        for (slot, label) in ["x", "sent", "received"].into_iter().enumerate() {
            buffers.push(BufferDecl {
                rank,
                label: label.into(),
                role: Role::Workspace,
                dtype: DType::F32,
                len: 1,
                life: Life::Step,
                place: Place { arena: Arena::Step, offset: slot as u64 * Place::ALIGN },
                pieces: Vec::new(),
            });
        }
    }
    let mut programs = vec![Program::default(); RANKS as usize];
    let view = |rank: Rank, slot| View { buffer: BufferId(3 * rank.0 + slot), offset: 0, len: 1 };
    for index in 0..INSTRS {
        for rank in mesh.ranks() {
            let mut push = |rank: Rank, lane, action| {
                let instr = Instr { lane, action, origin: Origin::default() };
                programs[rank.index()].instrs.push(instr);
            };
            let next = Rank((rank.0 + 1) % RANKS);
            if message_every > 0 && index % message_every == 0 {
                let (tag, hops) = (Tag(index.into()), 1);
                let send = Action::Send { view: view(rank, 1), to: next, tag, hops };
                push(rank, Lane::Out(Axis::Dp, next), send);
                let recv = Action::Recv { view: view(next, 2), from: rank, tag, hops };
                push(next, Lane::Posted, recv);
            } else {
                let op = Op::Fill(Fill { len: 1, value: 1.0 });
                let slot = if index % 3 == 0 && message_every > 0 { 1 } else { 0 };
                let outputs = vec![view(rank, slot)];
                push(rank, Lane::Compute, Action::Launch { op, inputs: Vec::new(), outputs });
            }
        }
    }
    Plan { mesh, tensors: Vec::new(), buffers, programs }
}

fn main() -> Result<(), ExecError> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let counts = if cores > 2 { vec![1, 2, cores] } else { vec![1, 2] };
    for (name, message_every) in [("fills alone", 0), ("a message in eight", 8)] {
        let plan = Arc::new(plan(message_every));
        for &threads in &counts {
            let executor = Executor::on_host(RANKS, with_threads(threads));
            time(&format!("host, {threads} threads, {name}"), executor, &plan, HOST_LIMIT)?;
        }
        for device_count in [1, 2] {
            let slots = (0..device_count).map(|_| DeviceSlot::Device(Box::new(Idle::new())));
            let placement = (0..RANKS as usize).map(|rank| rank % device_count).collect();
            let executor = Executor::new(slots.collect(), placement, with_threads(1))?;
            time(&format!("{device_count} devices, {name}"), executor, &plan, DEVICE_LIMIT)?;
        }
    }
    memory_is_flat()
}

const NOTHING: StepInput<'static> =
    StepInput { tokens: &[], labels: &[], seq: 0, lr: 0.0, bias_corrections: [1.0; 2] };

fn with_threads(threads: usize) -> ExecOptions {
    ExecOptions { threads: Some(threads), ..ExecOptions::default() }
}

/// Runs a Plan two hundred times and prints what an instruction took.
fn time(name: &str, mut executor: Executor, plan: &Arc<Plan>, limit: f64) -> Result<(), ExecError> {
    const STEPS: u64 = 200;
    let id = executor.load(Arc::clone(plan))?;
    for step in 0..20 {
        executor.run(id, step, &NOTHING)?;
    }
    let (mut best, mut total) = (f64::MAX, 0.0);
    for step in 0..STEPS {
        let start = Instant::now();
        executor.run(id, step, &NOTHING)?;
        let nanos = start.elapsed().as_nanos() as f64 / plan.instr_count() as f64;
        best = best.min(nanos);
        total += nanos;
    }
    let mean = total / STEPS as f64;
    let verdict = if mean <= limit { "within" } else { "ABOVE" };
    println!("{name}: {mean:.0} ns an instruction, {best:.0} at best ({verdict} {limit:.0})");
    Ok(())
}

/// A device that does nothing, at once.
#[derive(Debug)]
struct Idle {
    info: DeviceInfo,
    batch: u64,
}

impl Idle {
    fn new() -> Self {
        let [name, api, driver] = ["idle", "none", "none"].map(String::from);
        Self { info: DeviceInfo { name, kind: DeviceKind::Software, api, driver }, batch: 0 }
    }
}

impl Device for Idle {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
    fn load(&mut self, _: usize, _: &Plan, _: &[Rank]) -> Result<(), ExecError> {
        Ok(())
    }
    fn encode(&mut self, _: usize, _: Rank, _: usize) -> Result<(), ExecError> {
        Ok(())
    }
    fn encode_message(
        &mut self,
        _: usize,
        _: (Rank, View),
        _: (Rank, View),
    ) -> Result<(), ExecError> {
        Ok(())
    }
    fn encode_download(&mut self, _: usize, _: Rank, _: View) -> Result<Download, ExecError> {
        Ok(Download(0))
    }
    fn encode_upload(&mut self, _: usize, _: Rank, _: View, _: &[u8]) -> Result<(), ExecError> {
        Ok(())
    }
    fn submit(&mut self) -> Result<Batch, ExecError> {
        self.batch += 1;
        Ok(Batch(self.batch))
    }
    fn is_done(&mut self, _: Batch) -> Result<bool, ExecError> {
        Ok(true)
    }
    fn wait(&mut self, _: Batch) -> Result<(), ExecError> {
        Ok(())
    }
    fn finish_download(&mut self, _: Download, _: &mut [u8]) -> Result<(), ExecError> {
        Ok(())
    }
    fn timings(&mut self, _: Batch) -> Vec<(Rank, usize, Nanos, Nanos)> {
        Vec::new()
    }
    fn read(&mut self, _: usize, _: Rank, view: View) -> Result<Vec<u8>, ExecError> {
        Ok(vec![0; 4 * view.len as usize])
    }
    fn write(&mut self, _: usize, _: Rank, _: View, _: &[u8]) -> Result<(), ExecError> {
        Ok(())
    }
    fn allocated(&self, _: Rank) -> Bytes {
        Bytes(0)
    }
}

/// A thousand steps: allocations of a step, and bytes that are kept after all of them.
fn memory_is_flat() -> Result<(), ExecError> {
    let mut executor = Executor::on_host(RANKS, with_threads(2));
    let id = executor.load(Arc::new(plan(8)))?;
    executor.run(id, 0, &NOTHING)?;
    let (kept, allocations) = (KEPT.load(Relaxed), ALLOCATIONS.load(Relaxed));
    for step in 1..=1_000 {
        executor.run(id, step, &NOTHING)?;
    }
    let kept = KEPT.load(Relaxed) - kept;
    let allocations = (ALLOCATIONS.load(Relaxed) - allocations) as f64 / 1_000.0;
    println!(
        "1000 steps keep {kept} bytes more; {allocations:.0} allocations a step, all for its output"
    );
    assert!(kept.abs() < 4_096, "memory grows: {kept} bytes in a thousand steps");
    assert!(allocations < 50.0, "a step allocates as if by instruction: {allocations}");
    Ok(())
}
