//! Says who waits for what when a step hangs: one line for each rank that is stuck.
//!
//! Each line starts at the first unfinished instruction of a rank's Compute lane and follows what
//! it waits for, over ranks, to a message that nobody sends or back to where it has been.

use std::collections::BTreeSet;

use super::step::Run;
use crate::mesh::Rank;
use crate::plan::{Action, Lane, Origin, Phase};

/// Moves along the chain that one line shows.
const MOVES_MAX: usize = 12;

/// An instruction: (rank, index).
type At = (Rank, u32);

/// One line a stuck rank.
pub(super) fn report(run: &Run) -> Vec<String> {
    run.plan.mesh.ranks().filter_map(|rank| line(run, rank)).collect()
}

fn line(run: &Run, rank: Rank) -> Option<String> {
    let instrs = (0u32..).zip(&run.plan.programs[rank.index()].instrs);
    let mut stuck = instrs.filter(|&(index, _)| !has_ended(run, (rank, index)));
    let compute = stuck.clone().find(|(_, instr)| instr.lane == Lane::Compute);
    let (first, _) = compute.or_else(|| stuck.next())?;
    let mut at = (rank, first);
    let mut text = format!("rank {rank} waits at #{first} {}", describe(run, at));
    let mut seen = BTreeSet::from([at]);
    for _ in 0..MOVES_MAX {
        let (words, next) = match cause(run, at) {
            Cause::Own(before) => {
                let before = (at.0, before);
                let which = if seen.len() > 1 { ", which waits" } else { "" };
                (format!("{which} for {}", subject(run, rank, before)), before)
            }
            Cause::OtherHalf(other) => (String::new(), other),
            Cause::Nobody(never) => return Some(text + ", which is never " + never),
        };
        text.push_str(&words);
        if !seen.insert(next) {
            return Some(text + ": a cycle");
        }
        at = next;
    }
    Some(text + ", and so on")
}

/// What an unfinished instruction waits for.
enum Cause {
    /// An instruction of its own rank.
    Own(u32),
    /// The other half of its message.
    OtherHalf(At),
    /// A half that does not exist, and what is never done to the message.
    Nobody(&'static str),
}

fn cause(run: &Run, at: At) -> Cause {
    let own = first_unfinished(run, at);
    let peer = run.order.peer[at.0.index()][at.1 as usize];
    match (&run.plan.programs[at.0.index()].instrs[at.1 as usize].action, own, peer) {
        (Action::Recv { .. }, _, None) => Cause::Nobody("sent"),
        // Who waits for a message wants to know first why it is not sent.
        (Action::Recv { .. }, _, Some(send)) if first_unfinished(run, send).is_some() => {
            Cause::OtherHalf(send)
        }
        (_, Some(before), _) => Cause::Own(before),
        (_, None, Some(other)) => Cause::OtherHalf(other),
        (_, None, None) => Cause::Nobody("received"),
    }
}

/// The first predecessor in the same rank that has not ended.
fn first_unfinished(run: &Run, (rank, instr): At) -> Option<u32> {
    run.order.predecessors(rank, instr).find(|&before| !has_ended(run, (rank, before)))
}

fn has_ended(run: &Run, (rank, instr): At) -> bool {
    run.has_ended(run.tasks.of_instr[rank.index()][instr as usize])
}

/// An instruction as the object of a wait in the line of rank `line`.
fn subject(run: &Run, line: Rank, at: At) -> String {
    let (rank, index) = at;
    let of_rank = if rank == line { String::new() } else { format!(" of rank {rank}") };
    match run.plan.programs[rank.index()].instrs[index as usize].action {
        Action::Recv { from, tag, .. } => format!("a message from rank {from} (tag {})", tag.0),
        Action::Send { to, tag, .. } => {
            format!("the message to rank {to} (tag {}) at #{index}{of_rank}", tag.0)
        }
        Action::Launch { .. } | Action::Copy { .. } => {
            format!("#{index} {}{of_rank}", describe(run, at))
        }
    }
}

/// What an instruction is: `add (backward m2)`.
fn describe(run: &Run, (rank, index): At) -> String {
    let instr = &run.plan.programs[rank.index()].instrs[index as usize];
    let what = match &instr.action {
        Action::Launch { op, .. } => op.to_string(),
        Action::Copy { .. } => "copy".into(),
        Action::Send { to, tag, .. } => format!("to send to rank {to} (tag {})", tag.0),
        Action::Recv { from, tag, .. } => format!("for a message from rank {from} (tag {})", tag.0),
    };
    match origin(&instr.origin) {
        Some(why) => format!("{what} ({why})"),
        None => what,
    }
}

/// The words of an origin, `backward m2`; `None` in a hand-written Plan.
fn origin(origin: &Origin) -> Option<String> {
    let phase = match origin.phase {
        Phase::Forward => "forward",
        Phase::Recompute => "recompute",
        Phase::Backward => "backward",
        Phase::InputGrad => "input gradient",
        Phase::WeightGrad => "weight gradient",
        Phase::GradReduce => "gradient reduction",
        Phase::Norm => "norm",
        Phase::Optimizer => "optimizer",
        Phase::WeightGather => "weight gather",
        Phase::Other => return None,
    };
    let microbatch = origin.microbatch.map_or_else(String::new, |m| format!(" m{m}"));
    let layer = origin.layer.map_or_else(String::new, |l| format!(" layer {l}"));
    Some(format!("{phase}{microbatch}{layer}"))
}
