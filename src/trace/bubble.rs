//! Waiting: which share of a step a rank does nothing of a microbatch.
//!
//! Two ratios carry the name bubble in the literature; both are here under names of their own, and
//! their textbook formulas beside them. All of it is read from a Plan and a Trace of any clock. What
//! a rank waits for is answered by [`super::cause`] and added up by [`super::idle`].

use serde::{Deserialize, Serialize};

use super::cover::{length, union};
use super::{Clock, Span, Trace};
use crate::plan::{Instr, Lane, Phase, Plan};
use crate::units::Nanos;

/// How much of a step the ranks wait, between the first forward and the last backward.
///
/// A rank is busy while its Compute lane runs something of a microbatch: forward, recompute,
/// backward, input or weight gradients, and the additions of their collectives. All else inside
/// the span is waiting, also gradient reduction and the optimizer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bubble {
    /// Waiting of all ranks / (ranks · span): (p−1)/(m+p−1) for equal stages and free links.
    pub waiting_over_span: f64,
    /// Waiting of all ranks / what they were busy: (p−1)/m for equal stages and free links.
    pub waiting_over_ideal: f64,
    /// Share of the whole step, over all ranks, in which a Compute lane runs nothing at all.
    pub idle_of_step: f64,
    /// From the first forward to the last backward, over all ranks.
    pub span: Span,
    /// Each rank's part; index = rank.
    pub ranks: Vec<RankBubble>,
    /// Whose time it is.
    pub clock: Clock,
}

/// How much one rank waits inside the span of the step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankBubble {
    /// Time in which its Compute lane runs something of a microbatch.
    pub busy: Nanos,
    /// The rest of the span.
    pub waiting: Nanos,
}

/// Measures the waiting in a Trace of a Plan.
pub fn bubble(plan: &Plan, trace: &Trace) -> Bubble {
    weighted(plan, trace, &vec![1; plan.programs.len()])
}

/// The same where each rank of the Plan stands for `weights[rank]` ranks of a larger step.
///
/// # Panics
/// If there is not a weight for each rank.
pub fn weighted(plan: &Plan, trace: &Trace, weights: &[u32]) -> Bubble {
    assert_eq!(weights.len(), plan.programs.len(), "a weight for each rank");
    let all = |times: &mut dyn Iterator<Item = Nanos>| -> Nanos {
        times.zip(weights).map(|(time, weight)| time * u64::from(*weight)).sum()
    };
    let counted: Vec<Vec<Span>> = compute_spans(plan, trace, is_pass);
    let spans = || counted.iter().flatten();
    let span = Span {
        start: spans().map(|span| span.start).min().unwrap_or_default(),
        end: spans().map(|span| span.end).max().unwrap_or_default(),
    };
    let rank = |spans: &Vec<Span>| {
        let busy = length(&union(spans.clone()));
        RankBubble { busy, waiting: span.duration() - busy }
    };
    let ranks: Vec<RankBubble> = counted.iter().map(rank).collect();
    let busy = all(&mut ranks.iter().map(|rank| rank.busy));
    let waiting = all(&mut ranks.iter().map(|rank| rank.waiting));
    let at_all = compute_spans(plan, trace, |_| true).into_iter();
    let at_all = all(&mut at_all.map(|spans| length(&union(spans))));
    let step = all(&mut ranks.iter().map(|_| trace.end()));
    Bubble {
        waiting_over_span: ratio(waiting, busy + waiting),
        waiting_over_ideal: ratio(waiting, busy),
        idle_of_step: ratio(step - at_all, step),
        span,
        ranks,
        clock: trace.clock,
    }
}

/// The textbook share of the span that a pipeline of `p` equal stages waits with `m` microbatches.
pub fn formula_waiting_over_span(p: u32, m: u32) -> f64 {
    f64::from(p - 1) / f64::from(m + p - 1)
}

/// The textbook waiting of a pipeline of `p` equal stages with `m` microbatches, relative to its
/// work.
pub fn formula_waiting_over_ideal(p: u32, m: u32) -> f64 {
    f64::from(p - 1) / f64::from(m)
}

/// Whether an instruction is work of a microbatch.
fn is_pass(instr: &Instr) -> bool {
    let passes = matches!(
        instr.origin.phase,
        Phase::Forward | Phase::Recompute | Phase::Backward | Phase::InputGrad | Phase::WeightGrad
    );
    passes && instr.origin.microbatch.is_some()
}

/// Spans of the wanted instructions of every Compute lane.
fn compute_spans(plan: &Plan, trace: &Trace, wanted: fn(&Instr) -> bool) -> Vec<Vec<Span>> {
    let rank_spans = |(program, spans): (&crate::plan::Program, &Vec<Span>)| {
        let instrs = program.instrs.iter().zip(spans);
        let wanted = instrs.filter(|(instr, _)| instr.lane == Lane::Compute && wanted(instr));
        wanted.map(|(_, span)| *span).collect()
    };
    plan.programs.iter().zip(&trace.spans).map(rank_spans).collect()
}

fn ratio(part: Nanos, whole: Nanos) -> f64 {
    if whole.0 == 0 { 0.0 } else { part.0 as f64 / whole.0 as f64 }
}

#[cfg(test)]
mod tests {
    //! Unit-time pipelines against the textbook.
    use super::*;
    use crate::plan::sample::{Pass, Sample, gpipe, one_f_one_b, pipeline, unit_durations};
    use crate::plan::{Origin, order};
    use crate::sim::{Links, replay};

    fn run(plan: &Plan, stages: &[u64]) -> Trace {
        let graph = order::graph(plan, &order::derive(plan));
        replay(plan, &graph, &unit_durations(plan, 10, stages), &Links::FREE, 0).unwrap()
    }

    fn bubble_of(rows: &[Vec<Pass>], stages: &[u64]) -> Bubble {
        let plan = pipeline(rows);
        bubble(&plan, &run(&plan, stages))
    }

    #[test]
    fn unit_time_pipelines_wait_exactly_as_the_textbook_says() {
        for (p, m) in [(2, 4), (4, 4), (4, 8), (4, 16), (8, 8), (8, 16)] {
            for rows in [gpipe(p, m), one_f_one_b(p, m)] {
                let found = bubble_of(&rows, &[1; 8]);
                let waiting: Nanos = found.ranks.iter().map(|rank| rank.waiting).sum();
                let [p64, m64] = [u64::from(p), u64::from(m)];
                assert_eq!(found.span.duration(), Nanos(30 * (m64 + p64 - 1)));
                assert_eq!(waiting * (m64 + p64 - 1), found.span.duration() * p64 * (p64 - 1));
                assert_eq!(found.waiting_over_span, formula_waiting_over_span(p, m));
                assert_eq!(found.waiting_over_ideal, formula_waiting_over_ideal(p, m));
                // The optimizer takes no time here, so the span is the step.
                assert_eq!(found.idle_of_step, found.waiting_over_span);
            }
        }
    }

    #[test]
    fn one_slow_stage_makes_the_others_wait() {
        let found = bubble_of(&one_f_one_b(4, 8), &[1, 1, 2, 1]);
        assert_eq!(found.span.duration(), Nanos(550));
        let waiting = found.ranks.iter().map(|rank| rank.waiting.0).collect::<Vec<_>>();
        assert_eq!(waiting, [310, 310, 70, 310]);
        assert!((found.waiting_over_span - 1000.0 / 2200.0).abs() < 1e-12);
    }

    #[test]
    fn other_work_inside_the_span_is_waiting_but_not_idle() {
        let mut sample = Sample::new(1);
        let x = sample.step(0, "x", 8);
        for (phase, microbatch) in [
            (Phase::Forward, Some(0)),
            (Phase::GradReduce, None),
            (Phase::Backward, Some(0)),
            (Phase::Optimizer, None),
        ] {
            sample.origin = Origin { phase, microbatch, ..Origin::default() };
            sample.fill(0, x);
        }
        let graph = order::graph(&sample.plan, &order::derive(&sample.plan));
        let durations = vec![[10, 5, 20, 15].map(Nanos).to_vec()];
        let trace = replay(&sample.plan, &graph, &durations, &Links::FREE, 0).unwrap();
        let found = bubble(&sample.plan, &trace);
        assert_eq!(found.span, Span { start: Nanos(0), end: Nanos(35) });
        assert_eq!(found.ranks, [RankBubble { busy: Nanos(30), waiting: Nanos(5) }]);
        assert_eq!(found.idle_of_step, 0.0);
    }

    #[test]
    fn a_plan_that_does_nothing_has_no_bubble() {
        let found = bubble_of(&[vec![]], &[1]);
        assert_eq!((found.waiting_over_span, found.waiting_over_ideal), (0.0, 0.0));
    }
}
