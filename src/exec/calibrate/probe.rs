//! One kernel, copy or message, run many times on ranks of its own through the executor.
//!
//! Buffers are used in turn, as in a step: what an op touches was touched some megabytes ago, and is
//! by now out of the nearest caches, or of all.

use std::sync::Arc;

use crate::exec::{ExecError, ExecOptions, Executor, StepInput};
use crate::mesh::{Axis, Mesh, Rank, RankOrder};
use crate::ops::elementwise::Fill;
use crate::ops::reduction::SquaredNorm;
use crate::ops::{Kernel as _, Op};
use crate::plan::{
    Action, Arena, BufferDecl, BufferId, Instr, Lane, Life, Origin, Place, Plan, Program, Role,
    Tag, View,
};
use crate::predict::here::{DISTANCES, Sizes};
use crate::shape::DType;
use crate::trace::Trace;
use crate::units::{Bytes, Nanos};

/// Instructions of a rank at the most.
const INSTRS_MAX: u64 = 256;
/// What a run should last about, by a guess of operations and bytes a nanosecond.
const RUN_NANOS: f64 = 1.5e6;
const GUESS_PER_NANO: [f64; 2] = [30.0, 8.0];
/// Runs are repeated until they have lasted so long together, and at least `RUNS_MIN` times.
const ALL_NANOS: u64 = 6_000_000;
const RUNS_MIN: usize = 3;

/// Inputs of a Plan that reads none.
pub(super) const NOTHING: StepInput<'static> =
    StepInput { tokens: &[], labels: &[], seq: 0, lr: 0.0, bias_corrections: [1.0; 2] };

/// What is measured.
#[derive(Clone, Debug, PartialEq)]
pub enum Probe {
    /// A kernel.
    Launch(Op),
    /// A copy inside a rank.
    Copy {
        /// How much is copied.
        bytes: u32,
    },
    /// A message to the next rank.
    Message {
        /// How much is sent.
        bytes: u32,
    },
}

impl Probe {
    /// The sizes that decide how long it takes.
    pub(super) fn sizes(&self) -> Option<Sizes> {
        match self {
            Self::Launch(op) => Sizes::of(op),
            Self::Copy { bytes } => Some(Sizes::of_copy(Bytes(u64::from(*bytes)))),
            Self::Message { bytes } => Some(Sizes::of_message(Bytes(u64::from(*bytes)))),
        }
    }

    /// Its operations.
    pub(super) fn flops(&self) -> u64 {
        match self {
            Self::Launch(op) => op.flops().0,
            Self::Copy { .. } | Self::Message { .. } => 0,
        }
    }

    /// Lengths and types of its buffers: inputs, then outputs.
    fn slots(&self) -> Vec<(DType, u32)> {
        let len = |len: u64| u32::try_from(len).expect("a probe has fewer than 2^32 elements");
        match self {
            Self::Launch(op) => {
                let signature = op.signature();
                let outputs = signature.outputs.iter().map(|(slot, _)| slot);
                let slots = signature.inputs.iter().chain(outputs);
                slots.map(|slot| (slot.dtype, len(slot.len))).collect()
            }
            Self::Copy { bytes } | Self::Message { bytes } => vec![(DType::F32, bytes / 4); 2],
        }
    }

    /// Bytes of its arguments.
    fn bytes(&self) -> u64 {
        self.slots().iter().map(|(_, len)| u64::from(*len) * 4).sum()
    }

    /// Whether so many of it that fit a run touch more than `distance` bytes.
    pub(super) fn reaches(&self, distance: u32) -> bool {
        self.bytes() * INSTRS_MAX > u64::from(distance)
    }

    /// Nanoseconds of one, from its start to the start of the next, while each of `workers` workers
    /// runs the same: the lower quartile.
    ///
    /// # Errors
    /// If the machine gives no memory or no threads.
    pub fn nanos(&self, workers: u32) -> Result<f64, ExecError> {
        self.nanos_at(DISTANCES[0], workers)
    }

    /// The same where all ranks together touch `distance` bytes before they touch one again.
    pub(super) fn nanos_at(&self, distance: u32, workers: u32) -> Result<f64, ExecError> {
        let workers = workers.max(1);
        // A message needs two ranks.
        let ranks = if matches!(self, Self::Message { .. }) { workers.max(2) } else { workers };
        let bytes = self.bytes();
        let copies = u64::from(distance / ranks).div_ceil(bytes.max(1)).clamp(1, INSTRS_MAX);
        let [flops, moved] = GUESS_PER_NANO;
        let guess = self.flops() as f64 / flops + bytes as f64 / moved;
        let instrs = ((RUN_NANOS / guess.max(1.0)) as u64).clamp(copies, INSTRS_MAX);
        let mut scene = Scene::new(ranks);
        self.write(&mut scene, copies, instrs);
        let mut machine = Machine::new(scene.plan, workers)?;
        machine.run()?;
        let (mut taken, mut lasted) = (Vec::new(), Nanos(0));
        while taken.len() < RUNS_MIN || lasted.0 < ALL_NANOS {
            let trace = machine.run()?;
            lasted += trace.end();
            taken.push(self.periods(&trace));
        }
        Ok(lower_quartile(taken.concat()))
    }

    /// Writes `count` of it for each rank, over `copies` sets of buffers.
    pub(super) fn write(&self, scene: &mut Scene, copies: u64, count: u64) {
        let slots = self.slots();
        let ranks = scene.plan.mesh.ranks();
        let views: Vec<Vec<Vec<View>>> = ranks
            .map(|rank| {
                let set = |_| slots.iter().map(|slot| scene.buffer(rank, *slot)).collect();
                (0..copies).map(set).collect()
            })
            .collect();
        for (index, copy) in (0..count).zip((0..copies as usize).cycle()) {
            for rank in scene.plan.mesh.ranks() {
                let mine = &views[rank.index()][copy];
                match self {
                    Self::Launch(op) => {
                        let (inputs, outputs) = mine.split_at(op.signature().inputs.len());
                        scene.launch(rank, op, inputs, outputs);
                    }
                    Self::Copy { .. } => {
                        let action = Action::Copy { from: mine[0], to: mine[1] };
                        scene.push(rank, Lane::Compute, action);
                    }
                    Self::Message { .. } => {
                        let next = Rank((rank.0 + 1) % scene.plan.mesh.size());
                        let arrives = views[next.index()][copy][1];
                        scene.message(rank, mine[0], (next, arrives), index);
                    }
                }
            }
        }
    }

    /// From the start of each to the start of the next, on every rank; of the last its duration.
    fn periods(&self, trace: &Trace) -> Vec<f64> {
        let rows = trace.spans.iter();
        let period = |row: &Vec<crate::trace::Span>| {
            let mut row = row.clone();
            // Both halves of a message have one span, and worker and rank may be strangers.
            row.sort_unstable_by_key(|span| (span.start, span.end));
            row.dedup();
            let last = row.last().map(|span| span.duration().0);
            let starts = row.windows(2).map(|pair| pair[1].start.0 - pair[0].start.0);
            starts.chain(last).map(|nanos| nanos as f64).collect::<Vec<_>>()
        };
        rows.flat_map(period).collect()
    }
}

/// What an instruction takes that does nothing.
pub(super) fn nothing(workers: u32) -> Result<f64, ExecError> {
    Probe::Launch(Op::Fill(Fill { len: 0, value: 0.0 })).nanos(workers)
}

/// Nanoseconds until a worker without work takes some.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lateness {
    /// For how long it had nothing to do.
    pub(super) waited: f64,
    /// What a quarter of the times is below.
    pub(super) usual: f64,
    /// The least: on a machine with other work, what waking takes by itself.
    pub(super) soonest: f64,
}

/// From the end of an op of about `wait` to the start of a message that a second worker may take,
/// which had nothing to do for that long.
///
/// The first worker goes on with another such op: if the second one sleeps too long, it takes the
/// message itself after that.
pub(super) fn lateness(wait: Nanos) -> Result<Lateness, ExecError> {
    const ROUNDS: usize = 60;
    // What the op reads in that time, roughly.
    const BYTES_PER_NANO: u64 = 8;
    let len = (wait.0 * BYTES_PER_NANO / 4).max(1) as u32;
    let mut scene = Scene::new(2);
    let read = scene.buffer(Rank(0), (DType::F32, len));
    let arrives = scene.buffer(Rank(1), (DType::F32, 1));
    // Several, so that no op waits for the message of one before.
    let sums: Vec<View> = (0..8).map(|_| scene.buffer(Rank(0), (DType::F32, 1))).collect();
    // Nobody can help with it: it has one part.
    let op = Op::SquaredNorm(SquaredNorm { len, guard: false, accumulate: false });
    let mut places: Vec<[usize; 2]> = Vec::new();
    for round in 0..ROUNDS {
        let place = scene.plan.programs[0].instrs.len();
        scene.launch(Rank(0), &op, &[read], &[sums[round % sums.len()]]);
        // Behind this op, which the first worker takes because it is earlier in the program.
        if let Some([_, send]) = places.last_mut() {
            *send = place + 1;
            let sent = sums[(round - 1) % sums.len()];
            scene.message(Rank(0), sent, (Rank(1), arrives), round as u64);
        }
        places.push([place, 0]);
    }
    // Nothing follows the last one.
    places.pop();
    let mut machine = Machine::new(scene.plan, 2)?;
    machine.run()?;
    let trace = machine.run()?;
    let spans = &trace.spans[0];
    let took = places.iter().map(|[op, _]| spans[*op].duration().0 as f64);
    let late = places
        .iter()
        .map(|[op, send]| spans[*send].start.0.saturating_sub(spans[*op].end.0) as f64);
    let late: Vec<f64> = late.collect();
    let waited = lower_quartile(took.collect());
    let soonest = late.iter().copied().fold(f64::INFINITY, f64::min);
    Ok(Lateness { waited, usual: lower_quartile(late), soonest })
}

/// What a quarter of some values is below: whatever else a machine does only adds to a time.
pub(super) fn lower_quartile(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 4).copied().unwrap_or_default()
}

/// A Plan of measured instructions while it is written.
pub(super) struct Scene {
    pub(super) plan: Plan,
    ends: Vec<u64>,
}

impl Scene {
    pub(super) fn new(ranks: u32) -> Self {
        let mesh = Mesh { dp: ranks, tp: 1, pp: 1, order: RankOrder::TpDpPp };
        let programs = vec![Program::default(); ranks as usize];
        let plan = Plan { mesh, tensors: Vec::new(), buffers: Vec::new(), programs };
        Self { plan, ends: vec![0; ranks as usize] }
    }

    /// For an executor that has loaded `other`: all its Plans keep the same buffers between steps.
    pub(super) fn beside(other: &Plan) -> Self {
        let mut scene = Self::new(other.mesh.size());
        let kept = other.buffers.iter().filter(|decl| decl.life == Life::Persistent);
        scene.plan.buffers = kept.cloned().collect();
        scene.plan.tensors.clone_from(&other.tensors);
        scene.plan.mesh = other.mesh;
        scene
    }

    /// A buffer behind all others of its rank.
    fn buffer(&mut self, rank: Rank, (dtype, len): (DType, u32)) -> View {
        let buffer = BufferId(self.plan.buffers.len() as u32);
        let end = &mut self.ends[rank.index()];
        let place = Place { arena: Arena::Step, offset: *end };
        *end += (u64::from(len) * dtype.size()).next_multiple_of(Place::ALIGN);
        self.plan.buffers.push(BufferDecl {
            rank,
            label: format!("measured{}", buffer.0),
            role: Role::Workspace,
            dtype,
            len,
            life: Life::Step,
            place,
            pieces: Vec::new(),
        });
        View { buffer, offset: 0, len }
    }

    fn push(&mut self, rank: Rank, lane: Lane, action: Action) {
        let instr = Instr { lane, action, origin: Origin::default() };
        self.plan.programs[rank.index()].instrs.push(instr);
    }

    fn launch(&mut self, rank: Rank, op: &Op, inputs: &[View], outputs: &[View]) {
        let (inputs, outputs) = (inputs.to_vec(), outputs.to_vec());
        self.push(rank, Lane::Compute, Action::Launch { op: op.clone(), inputs, outputs });
    }

    fn message(&mut self, from: Rank, sent: View, (to, arrives): (Rank, View), number: u64) {
        let (tag, hops) = (Tag(number), 1);
        let send = Action::Send { view: sent, to, tag, hops };
        self.push(from, Lane::Out(Axis::Dp, to), send);
        self.push(to, Lane::Posted, Action::Recv { view: arrives, from, tag, hops });
    }
}

/// An executor with a Plan of measured instructions.
struct Machine {
    executor: Executor,
    id: crate::exec::PlanId,
    step: u64,
}

impl Machine {
    fn new(plan: Plan, workers: u32) -> Result<Self, ExecError> {
        let options = ExecOptions { threads: Some(workers as usize), ..ExecOptions::default() };
        let plan = Arc::new(plan);
        let mut executor = Executor::on_host(plan.mesh.size(), options);
        let id = executor.load(Arc::clone(&plan))?;
        for (buffer, decl) in (0..).map(BufferId).zip(&plan.buffers) {
            if decl.dtype == DType::I32 {
                // Tokens and labels fall unevenly over a table. A write takes bits as they are.
                let token = |i: u32| f32::from_bits(i.wrapping_mul(2_654_435_761) >> 26);
                let tokens: Vec<f32> = (0..decl.len).map(token).collect();
                executor.write(id, View { buffer, offset: 0, len: decl.len }, &tokens)?;
            }
        }
        Ok(Self { executor, id, step: 0 })
    }

    fn run(&mut self) -> Result<Trace, ExecError> {
        self.step += 1;
        Ok(self.executor.run(self.id, self.step, &NOTHING)?.trace)
    }
}
