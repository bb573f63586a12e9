//! Small hand-written Plans for tests: a builder, and a pipeline of any schedule.
//!
//! Only compiled for tests. The planner is not used, so that the readers are tested on their own.

use super::{
    Action, Arena, BufferDecl, BufferId, Held, Input, Instr, Lane, Life, LogicalTensor, Origin,
    Phase, Piece, Place, Plan, Program, Role, Tag, View,
};
use proptest::prelude::{Strategy, any};

use crate::mesh::{Axis, Mesh, Rank, RankOrder};
use crate::ops::elementwise::Add;
use crate::ops::optimizer::Sgd;
use crate::ops::reduction::{SquaredNorm, SumRanks};
use crate::ops::{Op, Scalar};
use crate::shape::{DType, Shape};
use crate::units::Nanos;

/// A Plan under construction: ranks along the pipeline axis, every buffer in a place of its own.
pub(crate) struct Sample {
    pub(crate) plan: Plan,
    /// The origin that new instructions get.
    pub(crate) origin: Origin,
}

impl Sample {
    pub(crate) fn new(ranks: u32) -> Self {
        let mesh = Mesh { dp: 1, tp: 1, pp: ranks, order: RankOrder::TpDpPp };
        let programs = vec![Program::default(); ranks as usize];
        let plan = Plan { mesh, tensors: Vec::new(), buffers: Vec::new(), programs };
        Self { plan, origin: Origin::default() }
    }

    /// A float buffer of the step.
    pub(crate) fn step(&mut self, rank: u32, label: &str, len: u32) -> View {
        self.declare(rank, label, Role::Activations, Life::Step, len)
    }

    /// A float buffer of any life, behind all others of its arena.
    pub(crate) fn declare(
        &mut self,
        rank: u32,
        label: &str,
        role: Role,
        life: Life,
        len: u32,
    ) -> View {
        let arena = match life {
            Life::Persistent => Arena::Persistent,
            Life::Input(_) | Life::Output(_) => Arena::Io,
            Life::Step => Arena::Step,
        };
        let ends = self.plan.buffers.iter().filter(|b| b.rank.0 == rank && b.place.arena == arena);
        let end = ends.map(|b| b.place.offset + b.bytes().0).max().unwrap_or(0);
        let place = Place { arena, offset: end.next_multiple_of(Place::ALIGN) };
        let buffer = BufferId(u32::try_from(self.plan.buffers.len()).unwrap());
        self.plan.buffers.push(BufferDecl {
            rank: Rank(rank),
            label: label.into(),
            role,
            dtype: DType::F32,
            len,
            life,
            place,
            pieces: Vec::new(),
        });
        View { buffer, offset: 0, len }
    }

    /// A persistent weight that is the whole of a new tensor.
    pub(crate) fn weight(&mut self, rank: u32, label: &str, len: u32) -> View {
        let view = self.declare(rank, label, Role::Weights, Life::Persistent, len);
        let tensor = u32::try_from(self.plan.tensors.len()).unwrap();
        let shape = Shape(vec![len.into()]);
        self.plan.tensors.push(LogicalTensor { name: format!("model.{label}.r{rank}"), shape });
        self.plan.buffers[view.buffer.0 as usize].pieces.push(Piece {
            tensor,
            held: Held::Weight,
            rows: 0..len,
            cols: 0..1,
            flat: 0..len,
            offset: 0,
            owned: true,
        });
        view
    }

    pub(crate) fn push(&mut self, rank: u32, lane: Lane, action: Action) -> u32 {
        let instrs = &mut self.plan.programs[rank as usize].instrs;
        instrs.push(Instr { lane, action, origin: self.origin });
        u32::try_from(instrs.len() - 1).unwrap()
    }

    pub(crate) fn launch(&mut self, rank: u32, op: Op, inputs: &[View], outputs: &[View]) -> u32 {
        let (inputs, outputs) = (inputs.to_vec(), outputs.to_vec());
        self.push(rank, Lane::Compute, Action::Launch { op, inputs, outputs })
    }

    /// `c = a + b`
    pub(crate) fn add(&mut self, rank: u32, a: View, b: View, c: View) -> u32 {
        self.launch(rank, Op::Add(Add { len: c.len }), &[a, b], &[c])
    }

    pub(crate) fn fill(&mut self, rank: u32, view: View) -> u32 {
        let op = Op::Fill(crate::ops::elementwise::Fill { len: view.len, value: 1.0 });
        self.launch(rank, op, &[], &[view])
    }

    pub(crate) fn send(&mut self, rank: u32, view: View, to: u32, tag: u64) -> u32 {
        let action = Action::Send { view, to: Rank(to), tag: Tag(tag), hops: 1 };
        self.push(rank, Lane::Out(Axis::Pp, Rank(to)), action)
    }

    pub(crate) fn recv(&mut self, rank: u32, view: View, from: u32, tag: u64) -> u32 {
        let action = Action::Recv { view, from: Rank(from), tag: Tag(tag), hops: 1 };
        self.push(rank, Lane::Posted, action)
    }
}

/// A pass of a pipeline: forward or backward of a microbatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    F(u32),
    B(u32),
}

/// The rows of `GPipe`: all forwards, then all backwards.
pub(crate) fn gpipe(p: u32, m: u32) -> Vec<Vec<Pass>> {
    (0..p).map(|_| (0..m).map(Pass::F).chain((0..m).map(Pass::B)).collect()).collect()
}

/// The rows of 1F1B: stage `s` runs `p − 1 − s` forwards, then one forward and one backward in
/// turn.
pub(crate) fn one_f_one_b(p: u32, m: u32) -> Vec<Vec<Pass>> {
    let row = |stage: u32| {
        let warm = (p - 1 - stage).min(m);
        let mut row: Vec<Pass> = (0..warm).map(Pass::F).collect();
        for i in 0..m {
            row.extend((i + warm < m).then_some(Pass::F(i + warm)));
            row.push(Pass::B(i));
        }
        row
    };
    (0..p).map(row).collect()
}

/// Elements of an activation of [`pipeline`].
pub(crate) const WIDTH: u32 = 64;

/// One stage a rank; a forward and a backward are one Add each, then gradients are summed into an
/// accumulator, and SGD at the end. Tags are `2·microbatch`, for gradients `2·microbatch + 1`.
pub(crate) fn pipeline(rows: &[Vec<Pass>]) -> Plan {
    let p = u32::try_from(rows.len()).unwrap();
    let mut sample = Sample::new(p);
    for (rank, row) in (0..p).zip(rows) {
        let w = sample.weight(rank, "w", WIDTH);
        let d_w = sample.declare(rank, "d_w", Role::Gradients, Life::Step, WIDTH);
        let mut accumulate = false;
        let mut kept = vec![w; row.len()];
        for &pass in row {
            let (phase, microbatch) = match pass {
                Pass::F(microbatch) => (Phase::Forward, microbatch),
                Pass::B(microbatch) => (Phase::Backward, microbatch),
            };
            sample.origin = Origin {
                phase,
                stage: Some(rank),
                microbatch: Some(microbatch),
                ..Origin::default()
            };
            let name = |what: &str| format!("{what}.m{microbatch}");
            let (next, tag) = match pass {
                Pass::F(_) => ((rank + 1 < p).then_some(rank + 1), u64::from(2 * microbatch)),
                Pass::B(_) => (rank.checked_sub(1), u64::from(2 * microbatch + 1)),
            };
            let (input, output) = match pass {
                Pass::F(_) => ("x", "y"),
                Pass::B(_) => ("d_y", "d_x"),
            };
            let last = match pass {
                Pass::F(_) => rank.checked_sub(1),
                Pass::B(_) => (rank + 1 < p).then_some(rank + 1),
            };
            let from = match last {
                Some(last) => {
                    let view = sample.step(rank, &name(input), WIDTH);
                    sample.recv(rank, view, last, tag);
                    view
                }
                None => w,
            };
            let to = sample.step(rank, &name(output), WIDTH);
            let stash = if phase == Phase::Forward { w } else { kept[microbatch as usize] };
            sample.add(rank, from, stash, to);
            if let Some(next) = next {
                sample.send(rank, to, next, tag);
            }
            match pass {
                Pass::F(_) => kept[microbatch as usize] = to,
                Pass::B(_) => {
                    let op = SumRanks { ranks: 1, own: None, len: WIDTH, accumulate };
                    sample.launch(rank, Op::SumRanks(op), &[to], &[d_w]);
                    accumulate = true;
                }
            }
        }
        optimizer(&mut sample, rank, w, d_w);
    }
    sample.plan
}

fn optimizer(sample: &mut Sample, rank: u32, w: View, d_w: View) {
    let scalars = Life::Input(Input::Scalars);
    let scalars = sample.declare(rank, "scalars", Role::Workspace, scalars, Scalar::COUNT);
    let norm = sample.declare(rank, "norm", Role::Workspace, Life::Step, 1);
    sample.origin = Origin { phase: Phase::Optimizer, stage: Some(rank), ..Origin::default() };
    let op = SquaredNorm { len: WIDTH, guard: false, accumulate: false };
    sample.launch(rank, Op::SquaredNorm(op), &[d_w], &[norm]);
    let op = Op::Sgd(Sgd { len: WIDTH, clip_norm: 0.0 });
    sample.launch(rank, op, &[d_w, norm, scalars], &[w]);
}

/// Durations of [`pipeline`]: a forward takes `unit · stages[rank]`, a backward twice that, all
/// else nothing.
pub(crate) fn unit_durations(plan: &Plan, unit: u64, stages: &[u64]) -> Vec<Vec<Nanos>> {
    let duration = |rank: usize, instr: &Instr| match (&instr.action, instr.origin.phase) {
        (Action::Launch { op: Op::Add(_), .. }, Phase::Forward) => Nanos(unit * stages[rank]),
        (Action::Launch { op: Op::Add(_), .. }, Phase::Backward) => Nanos(2 * unit * stages[rank]),
        _ => Nanos(0),
    };
    let rows = plan.programs.iter().enumerate();
    rows.map(|(rank, program)| program.instrs.iter().map(|i| duration(rank, i)).collect()).collect()
}

/// Any program of rank 0 over four buffers, two of which share bytes; sound only by chance.
pub(crate) fn random_program() -> impl Strategy<Value = Plan> {
    let view = (0u32..4, 0u32..16, 0u32..8);
    let action = (0usize..6, view.clone(), proptest::collection::vec(view, 0..3), any::<bool>());
    proptest::collection::vec(action, 1..60).prop_map(|actions| {
        let mut sample = Sample::new(3);
        // Four buffers; the second and third lie partly in each other's bytes.
        for (index, offset) in [0, 256, 288, 640].into_iter().enumerate() {
            sample.step(0, &format!("b{index}"), 24);
            sample.plan.buffers[index].place = Place { arena: Arena::Step, offset };
        }
        for (kind, out, inputs, accumulate) in actions {
            let view = |(buffer, offset, len)| View { buffer: BufferId(buffer), offset, len };
            let len = out.2;
            let op = Op::SumRanks(SumRanks { ranks: 2, own: None, len, accumulate });
            let inputs = inputs.into_iter().map(view).collect();
            let launch = Action::Launch { op, inputs, outputs: vec![view(out)] };
            let out = view(out);
            match kind {
                0 | 1 => drop(sample.push(0, Lane::Compute, launch)),
                2 => drop(sample.push(0, Lane::Reduce, launch)),
                3 => drop(sample.send(0, out, 1, 0)),
                4 => drop(sample.send(0, out, 2, 0)),
                _ => drop(sample.recv(0, out, 1, 0)),
            }
        }
        sample.plan
    })
}
