//! A schedule as a Plan of one line a pass: what a textbook draws, for readers of Plans.
//!
//! It trains nothing. Every pass adds two numbers, and every stage boundary is a message, so that
//! order, waits and causes are those of the schedule and of nothing else.

use std::collections::BTreeMap;

use super::{Act, Pass, Schedule};
use crate::mesh::{Axis, Mesh, Rank, RankOrder};
use crate::ops::Op;
use crate::ops::elementwise::{Add, Fill};
use crate::plan::{
    Action, Arena, BufferDecl, BufferId, Instr, Lane, Life, Origin, Phase, Place, Plan, Program,
    Role, Tag, View,
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
    for row in 0..schedule.rows.len() {
        for act in schedule.acts(row) {
            writer.pass(Rank(row as u32), act);
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
        let Act { stage, pass, microbatch } = act;
        let made = |stage, direction| Made { microbatch, stage, direction };
        let forward = |stage| made(stage, Direction::Forward);
        let backward = |stage| made(stage, Direction::Backward);
        let above = (stage < self.last).then(|| stage + 1);
        let (inputs, output) = match pass {
            Pass::F => (vec![stage.checked_sub(1).map(forward)], Some(forward(stage))),
            Pass::B | Pass::I => {
                (vec![Some(forward(stage)), above.map(backward)], Some(backward(stage)))
            }
            Pass::W => (vec![Some(forward(stage)), Some(backward(stage))], None),
        };
        let inputs: Vec<View> =
            inputs.into_iter().flatten().map(|made| self.input(rank, made)).collect();
        let phase = pass.phase();
        let written = match output {
            Some(output) => self.place(rank, output),
            // Weight gradients stay where they are made: nobody waits for them.
            None => self.buffer(rank, format!("d_w.m{microbatch}.s{stage}")),
        };
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
        self.push(rank, Lane::Compute, action, origin(phase, act));
        let next = match pass {
            Pass::F => above,
            Pass::B | Pass::I => stage.checked_sub(1),
            Pass::W => None,
        };
        let owner = next.and_then(|next| self.schedule.owner(next)).map(Rank);
        if let (Some(output), Some(to)) = (output, owner.filter(|to| *to != rank)) {
            let action = Action::Send { view: written, to, tag: tag(output), hops: 1 };
            self.push(rank, Lane::Out(Axis::Pp, to), action, origin(phase, act));
        }
    }

    /// Where a rank finds what another stage made; received first if another rank made it.
    fn input(&mut self, rank: Rank, made: Made) -> View {
        let is_new = !self.places.contains_key(&(rank, made));
        let view = self.place(rank, made);
        let owner = self.schedule.owner(made.stage).map(Rank);
        if let Some(from) = owner.filter(|from| is_new && *from != rank) {
            let (pass, phase) = match made.direction {
                Direction::Forward => (Pass::F, Phase::Forward),
                Direction::Backward => self.backward_of(from, made),
            };
            let act = Act { stage: made.stage, pass, microbatch: made.microbatch };
            let action = Action::Recv { view, from, tag: tag(made), hops: 1 };
            self.push(rank, Lane::Posted, action, origin(phase, act));
        }
        view
    }

    /// Whether a stage's input gradients come from a whole backward or alone.
    fn backward_of(&self, rank: Rank, made: Made) -> (Pass, Phase) {
        let whole = Act { stage: made.stage, pass: Pass::B, microbatch: made.microbatch };
        match self.schedule.acts(rank.index()).any(|act| act == whole) {
            true => (Pass::B, Phase::Backward),
            false => (Pass::I, Phase::InputGrad),
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
fn origin(phase: Phase, act: Act) -> Origin {
    let (stage, microbatch) = (Some(act.stage), Some(act.microbatch));
    Origin { phase, stage, microbatch, axis: Some(Axis::Pp), ..Origin::default() }
}

fn tag(made: Made) -> Tag {
    let direction = u64::from(made.direction == Direction::Backward);
    Tag(u64::from(made.microbatch) << 32 | u64::from(made.stage) << 1 | direction)
}
