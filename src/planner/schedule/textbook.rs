//! A schedule as a Plan of one line a pass: what a textbook draws, for readers of Plans.
//!
//! It trains nothing. Every pass adds two numbers, and every stage boundary is a message, so that
//! order, waits and causes are those of the schedule and of nothing else. A pair of passes begins
//! when both can run and hands over what both made when both have ended.

use std::collections::BTreeMap;

use super::unit_time::pairs_can_overlap;
use super::{Act, Cell, Pass, Schedule};
use crate::mesh::{Axis, Mesh, Rank, RankOrder};
use crate::ops::Op;
use crate::ops::elementwise::{Add, Fill};
use crate::plan::{
    Action, Arena, BufferDecl, BufferId, Instr, Lane, Life, Origin, Place, Plan, Program, Role,
    Tag, View,
};
use crate::shape::DType;

/// What passes hand over: of a microbatch, what a stage made in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Made {
    microbatch: u32,
    stage: u32,
    direction: Direction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Direction {
    Forward,
    Backward,
}

/// A Plan with one rank a pipeline position that runs the passes of a schedule.
///
/// ```
/// use shardlab::planner::schedule::{one_f_one_b::one_f_one_b, textbook};
/// use shardlab::plan::check;
/// let plan = textbook::plan(&one_f_one_b(4, 8));
/// assert!(check::check(&plan).is_empty());
/// ```
pub fn plan(schedule: &Schedule) -> Plan {
    let positions = schedule.rows.len() as u32;
    let mesh = Mesh { dp: 1, tp: 1, pp: positions, order: RankOrder::TpDpPp };
    let programs = vec![Program::default(); schedule.rows.len()];
    let mut writer = Writer {
        plan: Plan { mesh, tensors: Vec::new(), buffers: Vec::new(), programs },
        places: BTreeMap::new(),
        schedule,
        last: schedule.stage_count().saturating_sub(1),
    };
    let pairs = pairs_can_overlap(schedule);
    for (rank, row) in (0..).map(Rank).zip(&schedule.rows) {
        for cell in row {
            match *cell {
                Cell::Pair(first, second) if pairs => writer.pair(rank, [first, second]),
                Cell::One(_) | Cell::Pair(..) => cell.acts().for_each(|act| writer.pass(rank, act)),
            }
        }
    }
    writer.plan
}

struct Writer<'a> {
    plan: Plan,
    places: BTreeMap<(Rank, Made), View>,
    schedule: &'a Schedule,
    last: u32,
}

impl Writer<'_> {
    fn pass(&mut self, rank: Rank, act: Act) {
        let inputs = self.inputs(rank, act);
        let written = self.output(rank, act);
        self.launch(rank, act, inputs, written);
        self.hand_over(rank, act, written);
    }

    /// Two passes of which the first waits for what the second needs too, and nobody gets anything
    /// before both have ended. The copies that see to it take no time.
    fn pair(&mut self, rank: Rank, acts: [Act; 2]) {
        let inputs = acts.map(|act| self.inputs(rank, act));
        for &from in &inputs[1] {
            let to = self.buffer(rank, format!("gate{}", self.plan.buffers.len()));
            self.push(rank, Lane::Compute, Action::Copy { from, to }, origin(acts[1]));
        }
        let made = [0, 1].map(|index: usize| {
            let view = self.buffer(rank, format!("made{}", self.plan.buffers.len()));
            self.launch(rank, acts[index], inputs[index].clone(), view);
            view
        });
        let outputs = [0, 1].map(|index: usize| {
            let to = self.output(rank, acts[index]);
            let copy = Action::Copy { from: made[index], to };
            self.push(rank, Lane::Compute, copy, origin(acts[index]));
            to
        });
        acts.into_iter().zip(outputs).for_each(|(act, written)| self.hand_over(rank, act, written));
    }

    /// What a pass reads; received first if another rank made it.
    fn inputs(&mut self, rank: Rank, act: Act) -> Vec<View> {
        let Act { stage, pass, microbatch } = act;
        let forward = |stage| Made { microbatch, stage, direction: Direction::Forward };
        let backward = |stage| Made { microbatch, stage, direction: Direction::Backward };
        let above = (stage < self.last).then(|| backward(stage + 1));
        let inputs = match pass {
            Pass::F => vec![stage.checked_sub(1).map(forward)],
            Pass::B | Pass::I => vec![Some(forward(stage)), above],
            Pass::W => vec![Some(forward(stage)), Some(backward(stage))],
        };
        inputs.into_iter().flatten().map(|made| self.input(rank, made)).collect()
    }

    /// Where a pass writes. Weight gradients stay where they are made: nobody waits for them.
    fn output(&mut self, rank: Rank, act: Act) -> View {
        match made(act) {
            Some(made) => self.place(rank, made),
            None => self.buffer(rank, format!("d_w.m{}.s{}", act.microbatch, act.stage)),
        }
    }

    fn launch(&mut self, rank: Rank, act: Act, inputs: Vec<View>, written: View) {
        let op = match inputs.as_slice() {
            [] => Op::Fill(Fill { len: 1, value: 0.0 }),
            _ => Op::Add(Add { len: 1 }),
        };
        let inputs = match inputs.as_slice() {
            [] => Vec::new(),
            [one] => vec![*one, *one],
            _ => inputs,
        };
        let action = Action::Launch { op, inputs, outputs: vec![written] };
        self.push(rank, Lane::Compute, action, origin(act));
    }

    /// Sends what a pass made to the rank of the stage that comes next.
    fn hand_over(&mut self, rank: Rank, act: Act, view: View) {
        let next = match act.pass {
            Pass::F => (act.stage < self.last).then(|| act.stage + 1),
            Pass::B | Pass::I => act.stage.checked_sub(1),
            Pass::W => None,
        };
        let owner = next.and_then(|next| self.schedule.owner(next)).map(Rank);
        if let (Some(made), Some(to)) = (made(act), owner.filter(|to| *to != rank)) {
            let action = Action::Send { view, to, tag: tag(made), hops: 1 };
            self.push(rank, Lane::Out(Axis::Pp, to), action, origin(act));
        }
    }

    /// Where a rank finds what another stage made; received first if another rank made it.
    fn input(&mut self, rank: Rank, made: Made) -> View {
        let is_new = !self.places.contains_key(&(rank, made));
        let view = self.place(rank, made);
        let owner = self.schedule.owner(made.stage).map(Rank);
        if let Some(from) = owner.filter(|from| is_new && *from != rank) {
            let pass = match made.direction {
                Direction::Forward => Pass::F,
                Direction::Backward => self.backward_of(from, made),
            };
            let act = Act { stage: made.stage, pass, microbatch: made.microbatch };
            let action = Action::Recv { view, from, tag: tag(made), hops: 1 };
            self.push(rank, Lane::Posted, action, origin(act));
        }
        view
    }

    /// Whether a stage's input gradients come from a whole backward or alone.
    fn backward_of(&self, rank: Rank, made: Made) -> Pass {
        let whole = Act { stage: made.stage, pass: Pass::B, microbatch: made.microbatch };
        match self.schedule.acts(rank.index()).any(|act| act == whole) {
            true => Pass::B,
            false => Pass::I,
        }
    }

    fn place(&mut self, rank: Rank, made: Made) -> View {
        if let Some(view) = self.places.get(&(rank, made)) {
            return *view;
        }
        let letter = match made.direction {
            Direction::Forward => "y",
            Direction::Backward => "d_y",
        };
        let view = self.buffer(rank, format!("{letter}.m{}.s{}", made.microbatch, made.stage));
        self.places.insert((rank, made), view);
        view
    }

    fn buffer(&mut self, rank: Rank, label: String) -> View {
        let index = self.plan.buffers.len() as u32;
        let place = Place { arena: Arena::Step, offset: u64::from(index) * Place::ALIGN };
        self.plan.buffers.push(BufferDecl {
            rank,
            label,
            role: Role::Activations,
            dtype: DType::F32,
            len: 1,
            life: Life::Step,
            place,
            pieces: Vec::new(),
        });
        View { buffer: BufferId(index), offset: 0, len: 1 }
    }

    fn push(&mut self, rank: Rank, lane: Lane, action: Action, origin: Origin) {
        self.plan.programs[rank.index()].instrs.push(Instr { lane, action, origin });
    }
}

/// Messages and passes belong to the axis of the pipeline alike: whoever draws them asks for it.
fn origin(act: Act) -> Origin {
    let phase = act.pass.phase();
    let (stage, microbatch) = (Some(act.stage), Some(act.microbatch));
    Origin { phase, stage, microbatch, axis: Some(Axis::Pp), ..Origin::default() }
}

/// What a pass hands over.
fn made(act: Act) -> Option<Made> {
    let direction = match act.pass {
        Pass::F => Direction::Forward,
        Pass::B | Pass::I => Direction::Backward,
        Pass::W => return None,
    };
    Some(Made { microbatch: act.microbatch, stage: act.stage, direction })
}

fn tag(made: Made) -> Tag {
    let direction = u64::from(made.direction == Direction::Backward);
    Tag(u64::from(made.microbatch) << 32 | u64::from(made.stage) << 1 | direction)
}
