//! What ranks held while a step ran: every buffer of the step from the start of its first access to
//! the end of its last one, whatever lanes these are in.
//!
//! The ledger counts the same along the program, before anything runs: that is what a step should
//! hold. Where a message comes early or a sum runs beside the passes, it holds something else. Who
//! draws both is [`super::draw::memory`].

use super::{Span, Trace};
use crate::ledger::{ByRole, each_access};
use crate::mesh::Rank;
use crate::plan::{BufferId, Life, Plan};
use crate::units::Nanos;

/// The memory of a step that ran.
#[derive(Debug)]
pub struct Held<'a> {
    plan: &'a Plan,
    /// The buffers of each rank; index = rank.
    buffers: Vec<Vec<BufferId>>,
    /// From first to last access, by the rank of the buffer; index = buffer.
    lives: Vec<Option<Span>>,
}

/// What becomes of a buffer. At one instant places are left before they are taken again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    Leaves,
    Enters,
}

impl<'a> Held<'a> {
    /// Of a step of this Plan.
    ///
    /// # Panics
    /// If the Trace is not one of this Plan.
    pub fn of(plan: &'a Plan, trace: &Trace) -> Self {
        let mut lives: Vec<Option<Span>> = vec![None; plan.buffers.len()];
        let ranks = plan.programs.len();
        for rank in (0..ranks as u32).map(Rank) {
            each_access(plan, rank, |instr, buffer| {
                let span = trace.span(rank, instr as usize);
                let life = &mut lives[buffer.0 as usize];
                let Span { start, end } = life.unwrap_or(span);
                *life = Some(Span { start: start.min(span.start), end: end.max(span.end) });
            });
        }
        let mut buffers = vec![Vec::new(); ranks];
        for (id, decl) in (0..).map(BufferId).zip(&plan.buffers) {
            if let Some(buffers) = buffers.get_mut(decl.rank.index()) {
                buffers.push(id);
            }
        }
        Self { plan, buffers, lives }
    }

    /// What a rank holds from an instant on, ascending, from the start of the step. What persists,
    /// comes in or goes out is there all the time; what lives for no time is not held.
    pub fn over_time(&self, rank: Rank) -> Vec<(Nanos, ByRole)> {
        let mut now = ByRole::default();
        let mut changes: Vec<(Nanos, Change, BufferId)> = Vec::new();
        for &id in &self.buffers[rank.index()] {
            let decl = self.plan.buffer(id);
            match (decl.life, self.lives[id.0 as usize]) {
                (Life::Step, Some(life)) if life.start < life.end => {
                    changes.push((life.start, Change::Enters, id));
                    changes.push((life.end, Change::Leaves, id));
                }
                (Life::Step, _) => {}
                (Life::Persistent | Life::Input(_) | Life::Output(_), _) => now.enter(decl),
            }
        }
        changes.sort_unstable();
        let mut held = vec![(Nanos(0), now)];
        for (at, change, id) in changes {
            let decl = self.plan.buffer(id);
            match change {
                Change::Enters => now.enter(decl),
                Change::Leaves => now.leave(decl),
            }
            match held.last_mut() {
                Some(last) if last.0 == at => last.1 = now,
                _ => held.push((at, now)),
            }
        }
        held.dedup_by(|next, before| next.1 == before.1);
        held
    }

    /// What each rank holds when it holds most, the first time; index = rank.
    pub fn peaks(&self) -> Vec<ByRole> {
        let first_most = |most: ByRole, (_, now): (Nanos, ByRole)| {
            if now.total() > most.total() { now } else { most }
        };
        let ranks = (0..self.buffers.len() as u32).map(Rank);
        ranks
            .map(|rank| self.over_time(rank).into_iter().fold(ByRole::default(), first_most))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Ledger;
    use crate::mesh::{Mesh, RankOrder};
    use crate::trace::Clock;
    use crate::trace::draw::sketch::one_f_one_b;

    /// One instruction after the other, each as long as `long` says.
    fn in_program_order(plan: &Plan, long: impl Fn(usize) -> u64) -> Trace {
        let spans = plan.programs.iter().map(|program| {
            let mut now = Nanos(0);
            let one_after_another = |index| {
                let start = now;
                now += Nanos(long(index));
                Span { start, end: now }
            };
            (0..program.instrs.len()).map(one_after_another).collect()
        });
        Trace { clock: Clock::Measured, step: 0, spans: spans.collect(), paths: Vec::new() }
    }

    #[test]
    fn a_step_in_program_order_holds_what_the_ledger_counts_by_rank_and_role() {
        for (dp, tp, pp) in [(1, 1, 1), (2, 2, 2), (1, 2, 4)] {
            let plan = one_f_one_b(Mesh { dp, tp, pp, order: RankOrder::TpDpPp }, 6, 1000).plan;
            let counted: Vec<ByRole> =
                Ledger::of(&plan).ranks.iter().map(|rank| rank.memory.at_peak).collect();
            for long in [|_| 1, |index: usize| 1 + (index as u64 * 37) % 11] {
                let trace = in_program_order(&plan, long);
                assert_eq!(Held::of(&plan, &trace).peaks(), counted, "{dp} {tp} {pp}");
            }
        }
    }

    #[test]
    fn what_comes_early_is_held_for_longer() {
        let plan =
            one_f_one_b(Mesh { dp: 1, tp: 1, pp: 2, order: RankOrder::TpDpPp }, 4, 1000).plan;
        let usual = in_program_order(&plan, |_| 10);
        let program = &plan.programs[1].instrs;
        let receives =
            |instr: &crate::plan::Instr| matches!(instr.action, crate::plan::Action::Recv { .. });
        let last = program.iter().rposition(receives).expect("the second stage receives");
        let mut early = usual.clone();
        early.spans[1][last] = Span { start: Nanos(0), end: Nanos(5) };
        let at_start = |trace| Held::of(&plan, trace).over_time(Rank(1))[0].1.total();
        let Some(view) = program[last].action.writes().first() else { panic!("it has a place") };
        let message = plan.buffer(view.buffer).bytes();
        // The first instruction is the same receive in both, or one of its own.
        assert!(at_start(&early) >= at_start(&usual) + message);
    }

    #[test]
    fn no_rank_holds_more_than_it_was_given_place_for() {
        for (dp, tp, pp) in [(2, 2, 2), (1, 2, 4), (4, 1, 2)] {
            let sketch = one_f_one_b(Mesh { dp, tp, pp, order: RankOrder::TpDpPp }, 8, 1000);
            let (_, trace) = sketch.replay();
            let ledger = Ledger::of(&sketch.plan);
            let peaks = Held::of(&sketch.plan, &trace).peaks();
            for (rank, peak) in ledger.ranks.iter().zip(peaks) {
                assert!(peak.total() <= rank.memory.placed, "{peak:?} of {:?}", rank.memory);
            }
        }
    }
}
