//! Says who waits for what when a step hangs: one line for each rank that is stuck.
//!
//! Each line starts at the first unfinished instruction of a rank's Compute lane and follows what
//! it waits for, over ranks, to a message that nobody sends or back to where it has been.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::step::Run;
use crate::mesh::Rank;
use crate::plan::{Action, Lane, Phase};

/// Links of the chain that one line shows.
const CHAIN_MAX: usize = 8;

/// One line a stuck rank.
pub(super) fn report(run: &Run) -> Vec<String> {
    run.plan.mesh.ranks().filter_map(|rank| line(run, rank)).collect()
}

fn line(run: &Run, rank: Rank) -> Option<String> {
    let instrs = &run.plan.programs[rank.index()].instrs;
    let mut stuck = (0..instrs.len()).filter(|&index| !has_ended(run, rank, index as u32));
    let first = stuck.clone().find(|&index| instrs[index].lane == Lane::Compute);
    let mut at = (rank, first.or_else(|| stuck.next())? as u32);
    let mut text = format!("rank {rank} waits at {}", describe(run, at));
    let mut seen = BTreeSet::from([at]);
    for _ in 0..CHAIN_MAX {
        let cause = cause(run, at);
        let (joint, next) = match cause {
            Cause::Instr(instr) => (String::new(), (at.0, instr)),
            Cause::Half(other) => (String::new(), other),
            Cause::Nobody => {
                text.push_str(missing(run, at));
                return Some(text);
            }
        };
        text.push_str(&joint);
        let which = if seen.len() > 1 { ", which waits" } else { "" };
        // Writing to a String cannot fail.
        let _ = write!(text, "{which} for {}", subject(run, at, next));
        if !seen.insert(next) {
            text.push_str(", which was named before: a cycle");
            return Some(text);
        }
        at = next;
    }
    text.push_str(", and so on");
    Some(text)
}

/// What an unfinished instruction waits for.
enum Cause {
    /// An instruction of its own rank.
    Instr(u32),
    /// The other half of its message.
    Half((Rank, u32)),
    /// Its message has no other half.
    Nobody,
}

fn cause(run: &Run, (rank, instr): (Rank, u32)) -> Cause {
    let own = run.order.predecessors(rank, instr).find(|&before| !has_ended(run, rank, before));
    let peer = run.order.peer[rank.index()][instr as usize];
    match (own, peer) {
        // A half that is itself ready waits for the other one; a receive is asked for its sender
        // first, as that is what the reader wants to know.
        (None, Some(other)) => Cause::Half(other),
        (None, None) => Cause::Nobody,
        (Some(before), _) => Cause::Instr(before),
    }
}

/// `next`, named from where `at` stands.
fn subject(run: &Run, at: (Rank, u32), next: (Rank, u32)) -> String {
    let instr = &run.plan.programs[next.0.index()].instrs[next.1 as usize];
    match &instr.action {
        Action::Recv { from, tag, .. } => {
            format!("a message from rank {from} (tag {}) at rank {} #{}", tag.0, next.0, next.1)
        }
        Action::Send { to, tag, .. } => {
            format!("rank {} #{} to send to rank {to} (tag {})", next.0, next.1, tag.0)
        }
        Action::Launch { .. } | Action::Copy { .. } if at.0 == next.0 => describe(run, next),
        Action::Launch { .. } | Action::Copy { .. } => {
            format!("rank {} {}", next.0, describe(run, next))
        }
    }
}
