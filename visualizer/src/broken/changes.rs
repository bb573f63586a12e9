//! What can be done to a rank or a wire, and what can be broken at all: the entries of the menu and
//! of the palette.

use shardlab::mesh::{Axis, Rank};
use shardlab::trace::draw::timeline::Target;
use shardlab::train::driver::Facts;
use shardlab::train::faults::{Fault, places};
use shardlab::units::Nanos;

use super::{Broken, late};
use crate::shown::{Command, rank_of};

/// Something that can be done.
#[derive(Clone, Debug)]
pub struct Change {
    /// Its name.
    pub name: String,
    /// What is asked for.
    pub command: Command,
}

impl Change {
    fn breaks(name: String, fault: Fault) -> Self {
        Self { name, command: Command::Break(fault) }
    }
}

/// What can be done to a target of a picture.
pub fn changes(facts: &Facts, target: Target, broken: &Broken) -> Vec<Change> {
    let mut changes = match target {
        Target::Link { from, to, axis } => of_wire(facts, (from, to), axis),
        other => rank_of(other).map(|rank| of_rank(facts, rank, other)).unwrap_or_default(),
    };
    if !broken.is_empty() {
        changes.push(Change { name: "Mend everything".into(), command: Command::Mend(None) });
    }
    changes
}

fn of_rank(facts: &Facts, rank: Rank, target: Target) -> Vec<Change> {
    let plan = &facts.original;
    let slow = [2.0, 4.0].map(|factor| {
        Change::breaks(format!("Slow rank {rank} ×{factor}"), Fault::SlowRank { rank, factor })
    });
    let near = match target {
        Target::Block { instr, .. } => {
            let program = facts.plan.programs.get(rank.index());
            program.and_then(|program| program.instrs.get(instr as usize)).map(|i| i.origin)
        }
        Target::Wait { .. } | Target::Rank(_) | Target::Position(_) | Target::Link { .. } => None,
    };
    let poison = places::to_poison(plan, rank, near).map(|instr| {
        Change::breaks(format!("Poison rank {rank} with NaN"), Fault::Poison { rank, instr })
    });
    let skip = places::to_skip(plan, rank, None, None).map(|instr| {
        let name = format!("Skip a message of rank {rank}");
        Change::breaks(name, Fault::SkipMessage { rank, instr })
    });
    slow.into_iter().chain(poison).chain(skip).collect()
}

fn of_wire(facts: &Facts, (from, to): (Rank, Rank), axis: Axis) -> Vec<Change> {
    let slow = [1, 10].map(|millis| {
        let cost = late(Nanos(millis * 1_000_000));
        let name = format!("Slow wire {from} → {to}: each message {millis} ms late");
        Change::breaks(name, Fault::SlowLink { from, to, cost })
    });
    let skip = places::to_skip(&facts.original, from, Some(to), Some(axis)).map(|instr| {
        let name = format!("Skip a message from rank {from} to rank {to}");
        Change::breaks(name, Fault::SkipMessage { rank: from, instr })
    });
    slow.into_iter().chain(skip).collect()
}

/// What can be broken without a place, and what is broken and can be mended.
pub fn everywhere(broken: &Broken) -> Vec<Change> {
    let whole = Fault::MUSEUM.into_iter().filter(|fault| broken.like(*fault).is_none());
    let mut changes: Vec<Change> =
        whole.map(|fault| Change::breaks(format!("Break: {}", fault.name()), fault)).collect();
    changes.extend(broken.faults().iter().map(|fault| Change {
        name: format!("Mend: {}", fault.name()),
        command: Command::Mend(Some(*fault)),
    }));
    changes
}
