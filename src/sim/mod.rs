//! Times a Plan without running it: a discrete-event loop over the step's graph.
//!
//! [`replay`] lays measured durations out as if every rank had a device of its own and stated
//! links, [`lay_out_on`] lays them out where ranks share workers. The loops know no kernels and no
//! model; who predicts gives them predicted durations.

pub mod cost;
pub mod ladder;
pub mod pieces;
mod predicted;
pub mod textbook;
mod wires;
mod workers;

pub use predicted::{Ordered, Whatif};
pub use wires::Wires;
pub use workers::{Work, Workers, lay_out_on};

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde::{Deserialize, Serialize};

use crate::mesh::Rank;
use crate::plan::check::cycle;
use crate::plan::order::{self, Graph};
use crate::plan::{Action, Plan};
use crate::trace::{Clock, Span, Trace};
use crate::units::{Bytes, Nanos};

/// What a message costs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Links {
    /// Time until the first byte arrives.
    pub latency: Nanos,
    /// Bandwidth of each link; `None`: unlimited.
    pub bytes_per_sec: Option<f64>,
}

impl Links {
    /// Messages take no time.
    pub const FREE: Self = Self { latency: Nanos(0), bytes_per_sec: None };

    /// How long a message takes, rounded to the nearest nanosecond.
    pub fn duration(&self, bytes: Bytes) -> Nanos {
        let transfer = match self.bytes_per_sec {
            Some(bytes_per_sec) => (bytes.0 as f64 / bytes_per_sec * 1e9).round() as u64,
            None => 0,
        };
        Nanos(self.latency.0.saturating_add(transfer))
    }
}

/// Why a step cannot be timed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// The durations are not those of the Plan.
    #[error(
        "rank {rank} has {expected} instructions, but {found} durations were given. \
         Measure this Plan, or replay the one that was measured"
    )]
    Durations {
        /// Which rank.
        rank: Rank,
        /// Instructions of the rank.
        expected: usize,
        /// Durations that were given for it.
        found: usize,
    },
    /// The step would hang.
    #[error("the step hangs: {}", waiting.join("; "))]
    Hang {
        /// Who waits for what: the shortest cycle if there is one, else one line a rank.
        waiting: Vec<String>,
    },
}

/// Lays the durations of a step's instructions, `durations[rank][instruction]`, out as if each rank
/// had its own device: lanes of a rank run side by side, messages take what `links` says and not
/// what was measured.
///
/// # Errors
/// If the Plan hangs, or if the durations are not one for each instruction.
pub fn replay(
    plan: &Plan,
    graph: &Graph,
    durations: &[Vec<Nanos>],
    links: &Links,
    step: u64,
) -> Result<Trace, SimError> {
    replay_on(plan, graph, durations, |_, _, bytes| links.duration(bytes), step)
}

/// As [`replay`], over links that depend on who sends to whom.
///
/// # Errors
/// As [`replay`].
pub fn replay_over(
    plan: &Plan,
    graph: &Graph,
    durations: &[Vec<Nanos>],
    wires: &Wires,
    step: u64,
) -> Result<Trace, SimError> {
    replay_on(plan, graph, durations, |from, to, bytes| wires.duration(from, to, bytes), step)
}

/// As [`replay`], with what a message from one rank to another costs.
fn replay_on(
    plan: &Plan,
    graph: &Graph,
    durations: &[Vec<Nanos>],
    message: impl Fn(Rank, Rank, Bytes) -> Nanos,
    step: u64,
) -> Result<Trace, SimError> {
    for (rank, program) in (0..).map(Rank).zip(&plan.programs) {
        let (expected, found) =
            (program.instrs.len(), durations.get(rank.index()).map_or(0, Vec::len));
        if expected != found {
            return Err(SimError::Durations { rank, expected, found });
        }
    }
    let duration = |node: &order::Node| match plan.programs[node.rank.index()].instrs
        [node.instr as usize]
        .action
    {
        Action::Send { view, to, hops, .. } => {
            message(node.rank, to, plan.view_bytes(view)) * u64::from(hops)
        }
        Action::Recv { view, from, hops, .. } => {
            message(from, node.rank, plan.view_bytes(view)) * u64::from(hops)
        }
        Action::Launch { .. } | Action::Copy { .. } => {
            durations[node.rank.index()][node.instr as usize]
        }
    };
    let durations: Vec<Nanos> = graph.nodes.iter().map(duration).collect();
    let spans = lay_out(graph, &durations);
    if spans.iter().any(Option::is_none) {
        return Err(hang(plan, graph, |node| spans[node as usize].is_some()));
    }
    let span = |node: &u32| spans[*node as usize].unwrap_or_default();
    let spans = graph.node_of.iter().map(|nodes| nodes.iter().map(span).collect()).collect();
    Ok(Trace { clock: Clock::Replayed, step, spans, paths: Vec::new() })
}

/// The event loop: when each node of a graph runs if it starts as soon as all that it waits for has
/// ended. Nodes that wait for themselves or for a message that nobody sends never run.
pub fn lay_out(graph: &Graph, durations: &[Nanos]) -> Vec<Option<Span>> {
    let mut spans: Vec<Option<Span>> = vec![None; graph.len()];
    let mut left = graph.indegree.clone();
    // Ends of running nodes; ties go by node, so that the order of events is always the same.
    let mut events: BinaryHeap<Reverse<(Nanos, u32)>> = BinaryHeap::new();
    let mut start = |node: u32, now: Nanos, events: &mut BinaryHeap<_>| {
        let end = now + durations[node as usize];
        spans[node as usize] = Some(Span { start: now, end });
        events.push(Reverse((end, node)));
    };
    for (node, _) in (0u32..).zip(&left).filter(|(_, left)| **left == 0) {
        start(node, Nanos(0), &mut events);
    }
    while let Some(Reverse((now, node))) = events.pop() {
        for &next in graph.successors(node) {
            left[next as usize] -= 1;
            if left[next as usize] == 0 {
                start(next, now, &mut events);
            }
        }
    }
    spans
}

/// The most messages of a step that wait for one another: its latency in hops.
pub fn hops(plan: &Plan) -> u64 {
    let graph = order::graph(plan, &order::derive(plan));
    let takes = |node: &order::Node| Nanos(node.receive.is_some().into());
    let spans = lay_out(&graph, &graph.nodes.iter().map(takes).collect::<Vec<_>>());
    spans.iter().flatten().map(|span| span.end.0).max().unwrap_or(0)
}

pub(crate) fn hang(plan: &Plan, graph: &Graph, ended: impl Fn(u32) -> bool) -> SimError {
    let order = order::derive(plan);
    let waiting = match cycle::shortest(graph) {
        Some(nodes) => cycle::explain(plan, &order, graph, &nodes),
        None => cycle::who_waits(plan, &order, graph, ended),
    };
    SimError::Hang { waiting }
}

/// The last of several measured steps of one Plan, laid out as if every rank had its own device
/// with these links: every instruction takes the median of its durations.
///
/// # Panics
/// As [`median_durations`], and if the Plan hangs, which one that has run does not.
pub fn replay_medians(plan: &Plan, graph: &Graph, traces: &[&Trace], wires: &Wires) -> Trace {
    let durations = median_durations(traces);
    let last = traces.last().expect("a median needs a Trace");
    replay_over(plan, graph, &durations, wires, last.step)
        .expect("a Plan that has run does not hang")
}

/// The median duration of every instruction over several steps of one Plan, `[rank][instruction]`;
/// of an even number the mean of the two in the middle.
///
/// # Panics
/// If the Traces are not of the same Plan, or none is given.
pub fn median_durations(traces: &[&Trace]) -> Vec<Vec<Nanos>> {
    let (first, rest) = traces.split_first().expect("a median needs a Trace");
    let shape = |trace: &Trace| trace.spans.iter().map(Vec::len).collect::<Vec<_>>();
    assert!(rest.iter().all(|trace| shape(trace) == shape(first)), "Traces of different Plans");
    let median = |rank: usize, instr: usize| {
        let mut nanos: Vec<u64> =
            traces.iter().map(|trace| trace.spans[rank][instr].duration().0).collect();
        nanos.sort_unstable();
        let (low, high) = (nanos[(nanos.len() - 1) / 2], nanos[nanos.len() / 2]);
        Nanos(low + (high - low) / 2)
    };
    let rows = first.spans.iter().enumerate();
    rows.map(|(rank, row)| (0..row.len()).map(|instr| median(rank, instr)).collect()).collect()
}

#[cfg(test)]
mod tests {
    //! Pipelines of unit times against the textbook, and any times against the longest path.
    use super::*;
    use crate::plan::sample::{Pass, Sample, WIDTH, gpipe, one_f_one_b, pipeline, unit_durations};
    use proptest::prelude::*;

    fn run(plan: &Plan, durations: &[Vec<Nanos>], links: &Links) -> Trace {
        let graph = order::graph(plan, &order::derive(plan));
        replay(plan, &graph, durations, links, 0).unwrap()
    }

    fn makespan(rows: &[Vec<Pass>], stages: &[u64]) -> u64 {
        let plan = pipeline(rows);
        run(&plan, &unit_durations(&plan, 1, stages), &Links::FREE).end().0
    }

    #[test]
    fn gpipe_and_1f1b_take_three_times_m_plus_p_minus_one() {
        for (p, m) in [(2, 4), (4, 4), (4, 8), (4, 16), (8, 8), (8, 16)] {
            let expected = u64::from(3 * (m + p - 1));
            assert_eq!(makespan(&gpipe(p, m), &[1; 8]), expected, "GPipe {p} {m}");
            assert_eq!(makespan(&one_f_one_b(p, m), &[1; 8]), expected, "1F1B {p} {m}");
        }
    }

    #[test]
    fn the_slowest_stage_rules() {
        assert_eq!(makespan(&one_f_one_b(4, 8), &[1, 1, 2, 1]), 55);
    }

    #[test]
    fn messages_take_latency_and_bandwidth() {
        let plan = pipeline(&one_f_one_b(2, 1));
        // 256 bytes at 1 GB/s are 256 ns; one message each way.
        let links = Links { latency: Nanos(1000), bytes_per_sec: Some(1e9) };
        assert_eq!(links.duration(Bytes(u64::from(WIDTH) * 4)), Nanos(1256));
        let trace = run(&plan, &unit_durations(&plan, 10, &[1; 2]), &links);
        assert_eq!(trace.end(), Nanos(2 * (10 + 20) + 2 * 1256));
        assert_eq!(trace.clock, Clock::Replayed);
        let [send, recv] = [trace.spans[0][1], trace.spans[1][0]];
        assert_eq!(send, recv);
        assert_eq!(send, Span { start: Nanos(10), end: Nanos(1266) });
    }

    #[test]
    fn hops_are_the_messages_that_wait_for_one_another() {
        let hops_of = |p, m| hops(&pipeline(&one_f_one_b(p, m)));
        // Down the pipeline and back.
        assert_eq!([hops_of(1, 3), hops_of(2, 1), hops_of(4, 1)], [0, 2, 6]);
        // The third forward waits for the first gradient, so two round trips lie in a row.
        assert_eq!(hops_of(2, 3), 4);
    }

    #[test]
    fn a_hang_is_an_error_that_tells_the_cycle() {
        let mut sample = Sample::new(2);
        for (me, other) in [(0, 1), (1, 0)] {
            let x = sample.step(me, "x", 8);
            sample.send(me, x, other, me.into());
            sample.recv(me, x, other, other.into());
        }
        let graph = order::graph(&sample.plan, &order::derive(&sample.plan));
        let durations = vec![vec![Nanos(1); 2]; 2];
        let error = replay(&sample.plan, &graph, &durations, &Links::FREE, 0).unwrap_err();
        let SimError::Hang { waiting } = error else { panic!("{error}") };
        assert_eq!(waiting.len(), 2);
        assert!(waiting[0].starts_with("rank 0 #1 recv x from rank 1"), "{waiting:?}");
    }

    #[test]
    fn a_missing_message_is_an_error_that_names_it() {
        let mut plan = pipeline(&one_f_one_b(2, 1));
        let sends = |action: &Action| matches!(action, Action::Send { .. });
        plan.programs[0].instrs.retain(|line| !sends(&line.action));
        let graph = order::graph(&plan, &order::derive(&plan));
        let durations = unit_durations(&plan, 1, &[1; 2]);
        let error = replay(&plan, &graph, &durations, &Links::FREE, 0).unwrap_err().to_string();
        assert!(error.contains("waits: rank 0 has no send for it"), "{error}");
        assert!(error.contains("rank 0 #1 recv"), "both ranks are told: {error}");
        let short = replay(&plan, &graph, &durations[..1], &Links::FREE, 0).unwrap_err();
        assert_eq!(short, SimError::Durations { rank: Rank(1), expected: 7, found: 0 });
    }

    #[test]
    fn medians_are_taken_instruction_by_instruction() {
        let trace = |nanos: [u64; 2]| Trace {
            clock: Clock::Measured,
            step: 0,
            spans: vec![nanos.map(|n| Span { start: Nanos(5), end: Nanos(5 + n) }).to_vec()],
            paths: Vec::new(),
        };
        let traces = [[1, 7], [9, 3], [2, 5]].map(trace);
        let [a, b, c] = &traces;
        assert_eq!(median_durations(&[a, b, c]), [[Nanos(2), Nanos(5)]]);
        assert_eq!(median_durations(&[a, b]), [[Nanos(5), Nanos(5)]]);
    }

    /// When a node ends, by the definition: the longest path to it.
    fn longest(graph: &Graph, durations: &[Nanos]) -> Vec<Nanos> {
        let mut ends: Vec<Nanos> = durations.to_vec();
        // Relaxed as often as there are nodes: more than any path is long.
        for _ in 0..graph.len() {
            for node in 0..u32::try_from(graph.len()).unwrap() {
                for &next in graph.successors(node) {
                    let end = ends[node as usize] + durations[next as usize];
                    ends[next as usize] = ends[next as usize].max(end);
                }
            }
        }
        ends
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn every_node_ends_at_the_end_of_its_longest_path_and_twice_the_same(
            p in 1u32..4, m in 1u32..4, seed in proptest::collection::vec(0u64..50, 64),
        ) {
            let plan = pipeline(&one_f_one_b(p, m));
            let graph = order::graph(&plan, &order::derive(&plan));
            let durations: Vec<Nanos> =
                (0..graph.len()).map(|node| Nanos(seed[node % seed.len()])).collect();
            let spans = lay_out(&graph, &durations);
            let ends: Vec<Nanos> = spans.iter().map(|span| span.unwrap().end).collect();
            prop_assert_eq!(ends, longest(&graph, &durations));
            prop_assert_eq!(lay_out(&graph, &durations), spans);
        }
    }
}
