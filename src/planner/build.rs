//! Writes the program of every rank by walking its row of the schedule.

use std::collections::BTreeMap;

use super::collective::{Algorithm, Seat, Style, choose};
use super::context::{Context, Unit};
use super::data_parallel::BucketState;
use super::model::{Deferred, StageSaved};
use super::program::{self, RankProgram};
use super::schedule::{Act, Cell, Pass};
use super::{PlanError, Purpose, StepSpec};
use crate::config::ZeroStage;
use crate::mesh::{Axis, Coord, Rank};
use crate::plan::{Action, Input, Lane, Life, Origin, Phase, Plan, Role, Scalar, View};
use crate::shape::DType;

/// What a message is about: the high bits of its tag. The same on both sides.
#[derive(Clone, Copy, Debug)]
pub(super) enum Message {
    HandForward,
    HandBackward,
    /// The n-th tensor-parallel collective of a unit and pass.
    Tensor(Pass, u32),
    ReduceGradient,
    /// The n-th segment of a shared range of a bucket.
    SumShared(u32),
    SumNorm,
    GatherWeights,
    ShareShared(u32),
    /// The n-th bucket of a unit, for forward or backward.
    GatherUnit(Pass, u32),
}

/// The id of a message or collective: unique in the step for a group of ranks.
pub(super) fn message_id(message: Message, unit: u32, microbatch: u32) -> u64 {
    let (kind, number) = match message {
        Message::HandForward => (0, 0),
        Message::HandBackward => (1, 0),
        Message::Tensor(Pass::F, number) => (2, number),
        Message::Tensor(Pass::B | Pass::I | Pass::W, number) => (3, number),
        Message::ReduceGradient => (4, 0),
        Message::SumShared(number) => (5, number),
        Message::SumNorm => (6, 0),
        Message::GatherWeights => (7, 0),
        Message::ShareShared(number) => (8, number),
        Message::GatherUnit(Pass::F, number) => (9, number),
        Message::GatherUnit(Pass::B | Pass::I | Pass::W, number) => (10, number),
    };
    assert!(
        number < 1 << 10 && unit < 1 << 10 && microbatch < 1 << 12,
        "no id for {message:?} of unit {unit}, microbatch {microbatch}"
    );
    kind << 32 | u64::from(number) << 22 | u64::from(unit) << 12 | u64::from(microbatch)
}

/// Instruction indices at which the parts of a pass start, and its end.
pub(super) type Passage = Vec<u32>;

/// Writes the program of one rank.
pub(super) struct RankWriter<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) at: Coord,
    pub(super) program: RankProgram,
    pub(super) states: Vec<BucketState>,
    /// Buckets whose reduction waits for the end of backward.
    pub(super) postponed: Vec<usize>,
    /// ZeRO 3: the two slots, and what lies in them: (unit, bucket, view).
    pub(super) slots: Option<[View; 2]>,
    pub(super) gather_count: usize,
    pub(super) gathered: Vec<(Unit, usize, View)>,
    pub(super) scalars: Option<View>,
    pub(super) rope_table: Option<View>,
    pub(super) loss_sum: Option<View>,
    pub(super) squared_norm: Option<View>,
    pub(super) has_loss: bool,
    /// Activations between two stages of this rank: (forward, stage, microbatch).
    pub(super) handed: BTreeMap<(bool, u32, u32), View>,
    /// The same where another rank handed them over, received before their pass.
    pub(super) posted: BTreeMap<(bool, u32, u32), View>,
    /// What forward kept for backward, by (stage, microbatch).
    pub(super) saved: BTreeMap<(u32, u32), StageSaved>,
    /// Weight gradients that wait for their W cell, by (stage, microbatch).
    pub(super) deferred: BTreeMap<(u32, u32), Vec<Deferred>>,
}

impl<'a> RankWriter<'a> {
    fn new(context: &'a Context<'a>, rank: Rank) -> Self {
        Self {
            context,
            at: context.mesh.coord(rank),
            program: RankProgram::new(rank),
            states: Vec::new(),
            postponed: Vec::new(),
            slots: None,
            gather_count: 0,
            gathered: Vec::new(),
            scalars: None,
            rope_table: None,
            loss_sum: None,
            squared_norm: None,
            has_loss: false,
            handed: BTreeMap::new(),
            posted: BTreeMap::new(),
            saved: BTreeMap::new(),
            deferred: BTreeMap::new(),
        }
    }

    /// Writes the whole program.
    fn write(mut self) -> RankProgram {
        let trains = self.context.spec.purpose == Purpose::Train;
        self.declare_persistent();
        self.declare_inputs();
        self.declare_outputs(trains);
        self.declare_slots();
        if trains {
            self.declare_gradients();
        }
        let mut acts_left: Vec<Act> = self.context.schedule.acts(self.at.pp as usize).collect();
        acts_left.reverse();
        let position = self.at.pp as usize;
        for (at, cell) in self.context.schedule.rows[position].iter().enumerate() {
            let start = self.program.len();
            self.program.cell_starts.push(start);
            for &act in &self.context.postings[position][at] {
                self.program.origin = origin(act);
                self.post(act);
            }
            let passes: Vec<Passage> = cell
                .acts()
                .map(|act| {
                    acts_left.pop();
                    self.write_pass(act, &acts_left)
                })
                .collect();
            if let [one, other] = passes.as_slice() {
                if self.overlaps(*cell) {
                    self.program.interleave(one, other);
                }
                self.program.hand_over_last(one[0]);
            }
        }
        self.program.origin = Origin::default();
        if trains {
            self.finish_gradients();
            self.global_norm();
            self.update_weights();
        }
        self.program
    }

    /// Writes one pass; `later` are those that follow it on this rank. Returns where its parts start,
    /// and its end.
    fn write_pass(&mut self, act: Act, later: &[Act]) -> Passage {
        self.program.part_starts = vec![self.program.len()];
        self.program.origin = origin(act);
        let writes_weight_gradients = |pass| matches!(pass, Pass::B | Pass::W);
        let last = !later
            .iter()
            .any(|later| later.stage == act.stage && writes_weight_gradients(later.pass));
        match act.pass {
            Pass::F => self.forward_stage(act),
            Pass::B | Pass::I => self.backward_stage(act, last),
            Pass::W => self.weight_gradients_of_stage(act, last),
        }
        let mut bounds = std::mem::take(&mut self.program.part_starts);
        bounds.push(self.program.len());
        bounds
    }

    /// Whether the passes of a cell are written part by part in turn: a forward and a backward that
    /// share nothing but weights. Under ZeRO 3 they share the two slots of gathered weights, so they
    /// run one after the other.
    fn overlaps(&self, cell: Cell) -> bool {
        let forwards = cell.acts().filter(|act| act.pass == Pass::F).count();
        forwards == 1 && self.context.zero != ZeroStage::Zero3
    }

    /// Declares the step's scalars and what the units of this rank read.
    fn declare_inputs(&mut self) {
        let mut declare = |label: String, dtype, len, input| {
            self.program.declare(label, Role::Workspace, dtype, len, Life::Input(input))
        };
        let scalars = declare("scalars".into(), DType::F32, Scalar::COUNT, Input::Scalars);
        self.scalars = Some(scalars);
        let (model, seq) = (self.context.model(), self.context.spec.training.seq);
        let head = self.context.head();
        if self.my_units().iter().any(|&unit| unit != 0 && unit != head) {
            let head_dim = model.head_dim;
            let input = Input::RopeTable { seq, head_dim, theta_bits: model.rope_theta.to_bits() };
            let len = seq * head_dim;
            let view = self.program.declare(
                "rope_table",
                Role::Workspace,
                DType::F32,
                len,
                Life::Input(input),
            );
            self.rope_table = Some(view);
        }
    }

    /// Units of this rank, in ascending order.
    pub(super) fn my_units(&self) -> Vec<Unit> {
        let stages = self.context.stages.iter().zip(&self.context.owners);
        stages
            .filter(|(_, owner)| **owner == self.at.pp)
            .flat_map(|(units, _)| units.clone())
            .collect()
    }

    /// This rank's seat on an axis.
    pub(super) fn seat(&self, axis: Axis) -> Seat {
        let seat = Seat::of(self.context.mesh, self.program.rank, axis);
        let node_size = self.context.spec.layout.node_size;
        let node = node_size.and_then(|size| members_of_node(&seat.ranks, size));
        Seat { node, ..seat }
    }

    fn style(&self, seat: &Seat, data: View, lane: Lane, id: u64) -> Style {
        let layout = &self.context.spec.layout;
        let bytes = u64::from(data.len) * DType::F32.size();
        let chunk_len = (layout.chunk_bytes / DType::F32.size()).clamp(1, u64::from(u32::MAX));
        Style {
            algorithm: choose(layout.collective, bytes, seat.ranks.len(), seat.node),
            lane,
            chunk_len: u32::try_from(chunk_len).expect("clamped"),
            id,
        }
    }

    /// How tensor-parallel collectives run.
    pub(super) fn tp_style(&self, seat: &Seat, data: View, id: u64) -> Style {
        self.style(seat, data, Lane::Compute, id)
    }

    /// How gradient and weight collectives run.
    pub(super) fn dp_style(&self, seat: &Seat, data: View, id: u64) -> Style {
        self.style(seat, data, self.dp_lane(), id)
    }

    /// Where the additions of gradient collectives run.
    pub(super) fn dp_lane(&self) -> Lane {
        if self.context.spec.layout.overlap { Lane::Reduce } else { Lane::Compute }
    }

    /// How the step's scalars are summed: always in rank order.
    pub(super) fn scalar_style(&self, id: u64) -> Style {
        Style { algorithm: Algorithm::Direct, lane: Lane::Compute, chunk_len: 1, id }
    }

    /// Runs `write` with the origin's phase set.
    pub(super) fn in_phase(&mut self, phase: Phase, write: impl FnOnce(&mut Self)) {
        let origin = self.program.origin;
        self.program.origin.phase = phase;
        write(self);
        self.program.origin = origin;
    }

    /// Appends a copy on the Compute lane; empty views are not copied.
    pub(super) fn copy(&mut self, from: View, to: View) {
        self.copy_on(Lane::Compute, from, to);
    }

    /// Appends a copy; empty views are not copied.
    pub(super) fn copy_on(&mut self, lane: Lane, from: View, to: View) {
        if from.len > 0 {
            self.program.push(lane, Action::Copy { from, to });
        }
    }
}

/// What the instructions of a pass are for.
fn origin(act: Act) -> Origin {
    let (stage, microbatch) = (Some(act.stage), Some(act.microbatch));
    Origin { phase: act.pass.phase(), stage, microbatch, ..Origin::default() }
}

/// How many consecutive ranks of a group share a node of `size` ranks, if all nodes hold as many.
fn members_of_node(ranks: &[Rank], size: u32) -> Option<u32> {
    let node = |rank: &Rank| rank.0 / size;
    let count = ranks.iter().take_while(|rank| node(rank) == node(&ranks[0])).count();
    let even = ranks.len().is_multiple_of(count)
        && ranks.chunks(count).all(|chunk| chunk.iter().all(|rank| node(rank) == node(&chunk[0])));
    (even && 1 < count && count < ranks.len()).then(|| u32::try_from(count).expect("few"))
}

/// Compiles a step.
pub(super) fn plan_step(spec: &StepSpec) -> Result<Plan, PlanError> {
    let context = Context::new(spec)?;
    let programs = context.mesh.ranks().map(|rank| RankWriter::new(&context, rank).write());
    Ok(program::join(context.mesh, context.tensors.clone(), programs.collect()))
}
