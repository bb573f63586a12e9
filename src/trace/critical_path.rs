//! The chain of instructions and messages that decides how long a step takes.
//!
//! From what ends last back to the start: each part begins when the last thing that it waited for
//! ended. Parts touch, so their lengths add up to the step on every clock. Making anything else
//! faster gains nothing.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::{Span, Trace};
use crate::mesh::Rank;
use crate::plan::order::Order;
use crate::plan::{Action, Plan};
use crate::units::Nanos;

/// The path, from the start of the step to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CriticalPath {
    /// Ascending; each starts where the one before it ends.
    pub parts: Vec<Part>,
}

/// A part of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Whose instruction it is; of a message the side from which the path was followed.
    pub rank: Rank,
    /// Its index in the rank's program.
    pub instr: u32,
    /// When.
    pub span: Span,
    /// What fills it.
    pub kind: PartKind,
}

/// What fills a part of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartKind {
    /// The instruction runs.
    Work,
    /// The message is under way.
    Message,
    /// All that the instruction waits for has ended, but it has not started: dispatch, or a turn
    /// on a shared device.
    Ready,
}

impl CriticalPath {
    /// Follows the path of a Trace back from its end.
    pub fn of(plan: &Plan, order: &Order, trace: &Trace) -> Self {
        let mut parts = Vec::new();
        let all = plan.mesh.ranks().flat_map(|rank| {
            (0..plan.programs[rank.index()].instrs.len() as u32).map(move |instr| (rank, instr))
        });
        let end = |&(rank, instr): &(Rank, u32)| trace.span(rank, instr as usize).end;
        let mut next = all.max_by_key(|at| (end(at), Reverse(at.0), at.1));
        let mut until = trace.end();
        while let Some((rank, instr)) = next {
            // Of equal ends the rank's own, then the later instruction.
            let last = before(order, (rank, instr)).max_by_key(|at| (end(at), at.0 == rank, at.1));
            // A measured message may start before all that a strict reading lets it wait for.
            let ready = last.as_ref().map_or(Nanos(0), end).min(until);
            let start = trace.span(rank, instr as usize).start.max(ready).min(until);
            let kind = match plan.programs[rank.index()].instrs[instr as usize].action {
                Action::Send { .. } | Action::Recv { .. } => PartKind::Message,
                Action::Launch { .. } | Action::Copy { .. } => PartKind::Work,
            };
            let spans = [(kind, start, until), (PartKind::Ready, ready, start)];
            let long = spans.into_iter().filter(|(_, start, end)| start < end);
            parts.extend(long.map(|(kind, start, end)| Part {
                rank,
                instr,
                span: Span { start, end },
                kind,
            }));
            (until, next) = (ready, last);
        }
        parts.reverse();
        Self { parts }
    }

    /// How long work of each rank is on the path.
    pub fn work_by_rank(&self) -> BTreeMap<Rank, Nanos> {
        let mut sums = BTreeMap::new();
        for part in self.parts.iter().filter(|part| part.kind == PartKind::Work) {
            *sums.entry(part.rank).or_default() += part.span.duration();
        }
        sums
    }

    /// How long parts of a kind are together.
    pub fn length_of(&self, kind: PartKind) -> Nanos {
        let parts = self.parts.iter().filter(|part| part.kind == kind);
        parts.map(|part| part.span.duration()).sum()
    }
}

/// All that an instruction waits for; of a message what either side waits for.
fn before(order: &Order, (rank, instr): (Rank, u32)) -> impl Iterator<Item = (Rank, u32)> {
    let sides = std::iter::once((rank, instr)).chain(order.peer[rank.index()][instr as usize]);
    sides.flat_map(|(rank, instr)| order.predecessors(rank, instr).map(move |p| (rank, p)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::order;
    use crate::plan::sample::{Sample, one_f_one_b, pipeline, unit_durations};
    use crate::sim::{Links, replay};
    use crate::trace::Clock;

    #[test]
    fn the_slow_stage_is_the_path_between_the_first_forward_and_the_last_backward() {
        let plan = pipeline(&one_f_one_b(4, 8));
        let order = order::derive(&plan);
        let graph = order::graph(&plan, &order);
        let durations = unit_durations(&plan, 10, &[1, 1, 2, 1]);
        let links = Links { latency: Nanos(3), bytes_per_sec: None };
        let trace = replay(&plan, &graph, &durations, &links, 0).unwrap();
        let path = CriticalPath::of(&plan, &order, &trace);
        let work = path.work_by_rank();
        // Eight microbatches of 20 + 40 on rank 2, but for one forward: it hides behind the first
        // pair on rank 3, which is on the path. Once down and back on ranks 0 and 1.
        assert_eq!(work[&Rank(2)], Nanos(8 * 60 - 20));
        assert_eq!([0, 1, 3].map(|rank| work[&Rank(rank)]), [Nanos(30); 3]);
        let messages = path.length_of(PartKind::Message);
        let all: Nanos = work.values().copied().sum();
        assert_eq!(all + messages, trace.end());
        assert!(messages >= Nanos(4 * 3), "{messages}");
        assert_eq!(path.length_of(PartKind::Ready), Nanos(0));
    }

    #[test]
    fn time_in_which_nothing_is_missing_belongs_to_the_path() {
        let mut sample = Sample::new(1);
        let x = sample.step(0, "x", 8);
        sample.fill(0, x);
        sample.fill(0, x);
        let span = |start, end| Span { start: Nanos(start), end: Nanos(end) };
        let spans = vec![vec![span(5, 10), span(14, 20)]];
        let trace = Trace { clock: Clock::Measured, step: 0, spans, paths: Vec::new() };
        let path = CriticalPath::of(&sample.plan, &order::derive(&sample.plan), &trace);
        let found: Vec<(PartKind, u64, u64)> =
            path.parts.iter().map(|part| (part.kind, part.span.start.0, part.span.end.0)).collect();
        let (ready, work) = (PartKind::Ready, PartKind::Work);
        assert_eq!(found, [(ready, 0, 5), (work, 5, 10), (ready, 10, 14), (work, 14, 20)]);
    }
}
