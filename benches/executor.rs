//! What an instruction costs the executor on the host: Plans of thousands of empty ops, over
//! eight ranks, with and without messages. Prints nanoseconds per instruction, and how much a
//! thousand steps allocate and keep.
//!
//! `cargo bench --no-default-features --bench executor`
#![expect(unsafe_code, reason = "an allocator that counts is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::Instant;

use shardlab::exec::{ExecError, ExecOptions, Executor, StepInput};
use shardlab::mesh::{Axis, Mesh, Rank, RankOrder};
use shardlab::ops::Op;
use shardlab::ops::elementwise::Fill;
use shardlab::plan::{
    Action, Arena, BufferDecl, BufferId, Instr, Lane, Life, Origin, Place, Plan, Program, Role,
    Tag, View,
};
use shardlab::shape::DType;

const RANKS: u32 = 8;
const INSTRS: u32 = 1_000;
const LIMIT_NANOS: f64 = 2_000.0;

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
    let input = StepInput { tokens: &[], labels: &[], seq: 0, lr: 0.0, bias_corrections: [1.0; 2] };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut slowest = 0f64;
    for (name, message_every) in [("fills alone", 0), ("a message in eight", 8)] {
        let plan = Arc::new(plan(message_every));
        for threads in if cores > 2 { vec![1, 2, cores] } else { vec![1, 2] } {
            let options = ExecOptions { threads: Some(threads), ..ExecOptions::default() };
            let mut executor = Executor::on_host(RANKS, options);
            let id = executor.load(Arc::clone(&plan))?;
            for step in 0..20 {
                executor.run(id, step, &input)?;
            }
            let (mut best, mut total) = (f64::MAX, 0.0);
            for step in 0..200 {
                let start = Instant::now();
                executor.run(id, step, &input)?;
                let nanos = start.elapsed().as_nanos() as f64;
                best = best.min(nanos);
                total += nanos;
            }
            let count = plan.instr_count() as f64;
            let mean = total / 200.0 / count;
            println!(
                "{name}, {threads} threads: {mean:.0} ns an instruction, {:.0} at best, {count} \
                 instructions a step",
                best / count
            );
            slowest = slowest.max(mean);
        }
    }
    memory_is_flat(&input)?;
    let verdict = if slowest <= LIMIT_NANOS { "within" } else { "ABOVE" };
    println!("{slowest:.0} ns at worst: {verdict} the limit of {LIMIT_NANOS:.0}");
    Ok(())
}

/// A thousand steps: allocations of a step, and bytes that are kept after all of them.
fn memory_is_flat(input: &StepInput<'_>) -> Result<(), ExecError> {
    let options = ExecOptions { threads: Some(2), ..ExecOptions::default() };
    let mut executor = Executor::on_host(RANKS, options);
    let id = executor.load(Arc::new(plan(8)))?;
    executor.run(id, 0, input)?;
    let (kept, allocations) = (KEPT.load(Relaxed), ALLOCATIONS.load(Relaxed));
    for step in 1..=1_000 {
        executor.run(id, step, input)?;
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
