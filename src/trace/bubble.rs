//! Waiting: which share of a step a rank does nothing of a microbatch, and what it waits for.
//!
//! Two ratios carry the name bubble in the literature; both are here under names of their own, and
//! their textbook formulas beside them. All of it is read from a Plan and a Trace of any clock.

use serde::{Deserialize, Serialize};

use super::{Clock, Span, Trace};
use crate::mesh::Rank;
use crate::plan::order::Order;
use crate::plan::text::describe;
use crate::plan::{Action, CollectiveKind, Instr, Lane, Origin, Phase, Plan};
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
    let counted: Vec<Vec<Span>> = compute_spans(plan, trace, is_pass);
    let spans = || counted.iter().flatten();
    let span = Span {
        start: spans().map(|span| span.start).min().unwrap_or_default(),
        end: spans().map(|span| span.end).max().unwrap_or_default(),
    };
    let rank = |spans: &Vec<Span>| {
        let busy = covered(spans);
        RankBubble { busy, waiting: span.duration() - busy }
    };
    let ranks: Vec<RankBubble> = counted.iter().map(rank).collect();
    let busy: Nanos = ranks.iter().map(|rank| rank.busy).sum();
    let waiting: Nanos = ranks.iter().map(|rank| rank.waiting).sum();
    let at_all: Nanos = compute_spans(plan, trace, |_| true).iter().map(|s| covered(s)).sum();
    let step = trace.end() * ranks.len() as u64;
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

/// Time that is covered by spans of one lane, which are in order and may touch.
fn covered(spans: &[Span]) -> Nanos {
    let (mut sum, mut until) = (Nanos(0), Nanos(0));
    for span in spans {
        let start = span.start.max(until);
        if span.end > start {
            sum += span.end - start;
            until = span.end;
        }
    }
    sum
}

fn ratio(part: Nanos, whole: Nanos) -> f64 {
    if whole.0 == 0 { 0.0 } else { part.0 as f64 / whole.0 as f64 }
}

/// Why a rank does nothing at some moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The rank.
    pub rank: Rank,
    /// The instruction that its Compute lane runs next.
    pub next: u32,
    /// The waits that ended last, followed back: `next` waits for the first, that one for the
    /// second and so on. Only the last one may be running at the moment. Empty where `next` waits
    /// for nothing but a free core.
    pub chain: Vec<(Rank, u32)>,
    /// The first message of the chain: the sender and its send.
    pub message: Option<(Rank, u32)>,
    /// What the Compute lane of that sender runs at the moment.
    pub sender_runs: Option<u32>,
    /// Whether the message is on its way already.
    pub in_flight: bool,
}

/// What a rank waits for at a moment of a Trace. `None` if its Compute lane runs something then, or
/// has nothing left to run.
pub fn waits_at(
    plan: &Plan,
    order: &Order,
    trace: &Trace,
    rank: Rank,
    time: Nanos,
) -> Option<Waiting> {
    if running_at(plan, trace, rank, time).is_some() {
        return None;
    }
    let instrs = (0u32..).zip(&plan.programs[rank.index()].instrs);
    let mut compute = instrs.filter(|(_, instr)| instr.lane == Lane::Compute);
    let (next, _) = compute.find(|(index, _)| trace.span(rank, *index as usize).start > time)?;
    let span = |(rank, instr): (Rank, u32)| trace.span(rank, instr as usize);
    let mut chain = Vec::new();
    let mut at = (rank, next);
    while let Some(before) = last_wait(order, trace, at).filter(|before| span(*before).end > time) {
        chain.push(before);
        at = before;
        if span(before).start <= time {
            break;
        }
    }
    let send = |&(rank, instr): &(Rank, u32)| {
        let action = &plan.programs[rank.index()].instrs[instr as usize].action;
        match action {
            Action::Send { .. } => Some((rank, instr)),
            Action::Recv { .. } => order.peer[rank.index()][instr as usize],
            Action::Launch { .. } | Action::Copy { .. } => None,
        }
    };
    let message = chain.iter().find_map(send);
    let sender_runs = message.and_then(|(sender, _)| running_at(plan, trace, sender, time));
    let in_flight = message.is_some_and(|message| span(message).start <= time);
    Some(Waiting { rank, next, chain, message, sender_runs, in_flight })
}

/// The instruction that the Compute lane of a rank runs at a moment.
fn running_at(plan: &Plan, trace: &Trace, rank: Rank, time: Nanos) -> Option<u32> {
    let instrs = (0u32..).zip(&plan.programs[rank.index()].instrs);
    let mut compute = instrs.filter(|(_, instr)| instr.lane == Lane::Compute);
    let runs = |index: u32| {
        let span = trace.span(rank, index as usize);
        span.start <= time && time < span.end
    };
    compute.find(|(index, _)| runs(*index)).map(|(index, _)| index)
}

/// The direct predecessor of an instruction, or of either half of a message, that ended last; of
/// several the latest in its program.
fn last_wait(order: &Order, trace: &Trace, (rank, instr): (Rank, u32)) -> Option<(Rank, u32)> {
    let halves = std::iter::once((rank, instr)).chain(order.peer[rank.index()][instr as usize]);
    let before =
        halves.flat_map(|(rank, instr)| order.predecessors(rank, instr).map(move |p| (rank, p)));
    before.max_by_key(|(rank, instr)| (trace.span(*rank, *instr as usize).end, *instr))
}

impl Waiting {
    /// The reason in one sentence: `rank 0 waits for B2 from rank 4, which runs B2`.
    pub fn sentence(&self, plan: &Plan) -> String {
        let origin =
            |rank: Rank, instr: u32| plan.programs[rank.index()].instrs[instr as usize].origin;
        let rank = self.rank;
        let Some((sender, send)) = self.message else {
            return match self.chain.first() {
                Some(&(_, wait)) => {
                    let wait = describe(plan, rank, wait);
                    let wait = wait.trim_start_matches(&format!("rank {rank} "));
                    format!("rank {rank} waits for its own {wait}")
                }
                None => {
                    let next = short_name(origin(rank, self.next));
                    format!("rank {rank} could run {next}: its device is busy elsewhere")
                }
            };
        };
        let what = short_name(origin(sender, send));
        let state = match self.sender_runs {
            _ if self.in_flight => "which is on its way".into(),
            Some(runs) => format!("which runs {}", short_name(origin(sender, runs))),
            None => "which waits too".into(),
        };
        format!("rank {rank} waits for {what} from rank {sender}, {state}")
    }
}

/// What an instruction belongs to, in a few letters: `F3`, `B0`, `F3 all-reduce`, `optimizer`.
pub fn short_name(origin: Origin) -> String {
    let phase = match origin.phase {
        Phase::Forward => "F",
        Phase::Recompute => "R",
        Phase::Backward => "B",
        Phase::InputGrad => "I",
        Phase::WeightGrad => "W",
        Phase::GradReduce => "gradient reduction",
        Phase::Norm => "norm",
        Phase::Optimizer => "optimizer",
        Phase::WeightGather => "weight gather",
        Phase::Other => "other work",
    };
    let collective = match origin.collective.map(|collective| collective.kind) {
        Some(CollectiveKind::AllReduce) => " all-reduce",
        Some(CollectiveKind::ReduceScatter) => " reduce-scatter",
        Some(CollectiveKind::AllGather) => " all-gather",
        Some(CollectiveKind::Broadcast) => " broadcast",
        Some(CollectiveKind::PointToPoint) | None => "",
    };
    match origin.microbatch {
        Some(microbatch) => format!("{phase}{microbatch}{collective}"),
        None => format!("{phase}{collective}"),
    }
}

#[cfg(test)]
mod tests {
    //! Unit-time pipelines against the textbook, and one rank's idle moments told in words.
    use super::*;
    use crate::plan::order;
    use crate::plan::sample::{Pass, Sample, gpipe, one_f_one_b, pipeline, unit_durations};
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

    #[test]
    fn an_idle_rank_knows_for_whom_it_waits() {
        let plan = pipeline(&one_f_one_b(4, 4));
        let order = order::derive(&plan);
        let trace = run(&plan, &[1; 4]);
        // Rank 0: F0 F1 F2 F3, then nothing until B0 has come down from rank 3 (40..60) by way of
        // rank 2 (60..80) and rank 1 (80..100).
        let say = |rank, time| {
            let waiting = waits_at(&plan, &order, &trace, Rank(rank), Nanos(time))?;
            Some((waiting.sentence(&plan), waiting.chain.last().copied()))
        };
        let running = |rank: u32, time| {
            let instr = running_at(&plan, &trace, Rank(rank), Nanos(time)).unwrap();
            Some((Rank(rank), instr))
        };
        let expect = |rank, time, sentence: &str, from| {
            assert_eq!(say(rank, time), Some((sentence.into(), running(from, time))));
        };
        assert_eq!(say(0, 39), None);
        expect(0, 45, "rank 0 waits for B0 from rank 1, which waits too", 3);
        expect(0, 85, "rank 0 waits for B0 from rank 1, which runs B0", 1);
        expect(3, 0, "rank 3 waits for F0 from rank 2, which waits too", 0);
        expect(3, 25, "rank 3 waits for F0 from rank 2, which runs F0", 2);
        assert_eq!(say(0, trace.end().0), None);
    }

    #[test]
    fn a_message_on_its_way_and_a_busy_device_are_told_apart() {
        let plan = pipeline(&one_f_one_b(2, 1));
        let order = order::derive(&plan);
        let graph = order::graph(&plan, &order);
        let links = Links { latency: Nanos(100), bytes_per_sec: None };
        let mut trace =
            replay(&plan, &graph, &unit_durations(&plan, 10, &[1; 2]), &links, 0).unwrap();
        let say = |trace: &Trace, rank, time| {
            waits_at(&plan, &order, trace, rank, Nanos(time)).unwrap().sentence(&plan)
        };
        assert_eq!(
            say(&trace, Rank(1), 50),
            "rank 1 waits for F0 from rank 0, which is on its way"
        );
        // The message came at 110, but the forward of rank 1 started late.
        trace.spans[1][1].start = Nanos(118);
        assert_eq!(say(&trace, Rank(1), 115), "rank 1 could run F0: its device is busy elsewhere");
    }
}
