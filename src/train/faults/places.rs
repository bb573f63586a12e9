//! Where a fault falls that names an instruction: what a person points at, found in the Plan without
//! faults.

use crate::mesh::{Axis, Rank};
use crate::plan::{Action, Instr, Origin, Phase, Plan};
use crate::shape::DType;
use crate::trace::draw::Work;

/// The launch of a rank whose output is overwritten: the first one of the work that `near` names,
/// else one in the middle of the rank's forward. `None` if the rank computes nothing.
pub fn to_poison(plan: &Plan, rank: Rank, near: Option<Origin>) -> Option<u32> {
    let launches: Vec<(u32, Origin)> = (0..)
        .zip(&plan.programs.get(rank.index())?.instrs)
        .filter(|(_, instr)| Work::of(instr.origin).is_pass() && writes_floats(plan, instr))
        .map(|(index, instr)| (index, instr.origin))
        .collect();
    let pass = |origin: Origin| (origin.phase, origin.stage, origin.microbatch);
    let same = near.and_then(|near| {
        let exact = launches.iter().find(|(_, origin)| *origin == near);
        exact.or_else(|| launches.iter().find(|(_, origin)| pass(*origin) == pass(near)))
    });
    let forward: Vec<u32> = launches
        .iter()
        .filter(|(_, origin)| origin.phase == Phase::Forward)
        .map(|(index, _)| *index)
        .collect();
    let middle = || forward.get(forward.len() / 2).copied();
    same.map(|(index, _)| *index).or_else(middle)
}

/// A message that a rank skips: the first one that it sends to `to` (to anybody) for `axis` (for
/// any). Of data-parallel ones, the first that sums gradients.
pub fn to_skip(plan: &Plan, rank: Rank, to: Option<Rank>, axis: Option<Axis>) -> Option<u32> {
    let instrs = &plan.programs.get(rank.index())?.instrs;
    let is_wanted = |instr: &Instr| match instr.action {
        Action::Send { to: peer, .. } => {
            to.is_none_or(|to| to == peer) && (axis.is_none() || instr.origin.axis == axis)
        }
        Action::Recv { .. } | Action::Launch { .. } | Action::Copy { .. } => false,
    };
    let sends = || (0..).zip(instrs).filter(|(_, instr)| is_wanted(instr));
    let sums = |(_, instr): &(u32, &Instr)| {
        instr.origin.phase == Phase::GradReduce && instr.origin.axis == Some(Axis::Dp)
    };
    sends().find(sums).or_else(|| sends().next()).map(|(index, _)| index)
}

/// All links that carry messages, by sender and receiver.
pub fn links(plan: &Plan) -> Vec<(Rank, Rank)> {
    let mut links = Vec::new();
    for (rank, program) in (0..).map(Rank).zip(&plan.programs) {
        for instr in &program.instrs {
            if let Action::Send { to, .. } = instr.action {
                links.push((rank, to));
            }
        }
    }
    links.sort_unstable();
    links.dedup();
    links
}

/// The axes for which a rank sends.
pub fn axes(plan: &Plan, rank: Rank) -> Vec<Axis> {
    Axis::ALL.into_iter().filter(|axis| to_skip(plan, rank, None, Some(*axis)).is_some()).collect()
}

fn writes_floats(plan: &Plan, instr: &Instr) -> bool {
    match &instr.action {
        Action::Launch { outputs, .. } => {
            outputs.iter().any(|view| view.len > 0 && plan.buffer(view.buffer).dtype == DType::F32)
        }
        Action::Send { .. } | Action::Recv { .. } | Action::Copy { .. } => false,
    }
}
