//! Goal: whatever a step is and whoever timed it, its times add up and its causes are what they say.
//! Method: drawn layouts with drawn durations, replayed over drawn links, and drawn clusters, predicted.

use shardlab::config::workload::{
    Precision, Recomputed, Sharding, Software, StepBatch, Transformer, Workload,
};
use shardlab::config::{Cluster, Layout, Model, ScheduleName, Split};
use shardlab::mesh::{Rank, RankOrder};
use shardlab::ops::Kernel as _;
use shardlab::plan::order::{self, Graph, Order};
use shardlab::plan::{Action, Plan};
use shardlab::planner::plan_step;
use shardlab::predict::{Conditions, predict};
use shardlab::sim::ladder::Ladder;
use shardlab::sim::{Links, Wires, replay};
use shardlab::trace::bubble::{bubble, formula_waiting_over_span};
use shardlab::trace::cause::Cause;
use shardlab::trace::critical_path::{CriticalPath, PartKind};
use shardlab::trace::idle::{RankTime, StepTime};
use shardlab::trace::{Clock, Trace};
use shardlab::units::Nanos;

use crate::cases::{model, sgd, spec};
use crate::layouts::{Draw, draw_spec};
use crate::property::seeds;

/// A drawn step that can be laid out again with other durations.
struct Drawn {
    plan: Plan,
    order: Order,
    graph: Graph,
    durations: Vec<Vec<Nanos>>,
    links: Links,
}

impl Drawn {
    fn new(seed: u64) -> Self {
        let plan = plan_step(&draw_spec(seed, 8)).unwrap();
        let order = order::derive(&plan);
        let graph = order::graph(&plan, &order);
        let mut draw = Draw(seed);
        let row =
            |count: usize, draw: &mut Draw| (0..count).map(|_| Nanos(draw.below(5_000))).collect();
        let durations =
            plan.programs.iter().map(|program| row(program.instrs.len(), &mut draw)).collect();
        let slow = Links { latency: Nanos(900), bytes_per_sec: Some(1e9) };
        let links = draw.of(&[Links::FREE, slow]);
        Self { plan, order, graph, durations, links }
    }

    fn run(&self, durations: &[Vec<Nanos>]) -> Trace {
        replay(&self.plan, &self.graph, durations, &self.links, 0).unwrap()
    }
}

/// Busy and idle time of every rank are its step, without a hole and without an overlap.
fn assert_adds_up(time: &StepTime, context: &str) {
    for RankTime { busy, idle, .. } in &time.ranks {
        let sum: Nanos = idle.iter().map(|idle| idle.span.duration()).sum();
        assert_eq!(*busy + sum, time.step, "{context}");
        assert!(idle.iter().all(|idle| idle.span.start < idle.span.end), "{context}");
        assert!(idle.windows(2).all(|pair| pair[0].span.end <= pair[1].span.start), "{context}");
        let last = idle.iter().rev().skip(1);
        assert!(last.clone().all(|idle| idle.cause != Cause::StepEnd), "{context}");
    }
}

#[test]
fn busy_and_causes_are_the_step_to_the_nanosecond_in_every_replay() {
    for seed in seeds(60) {
        let drawn = Drawn::new(seed);
        let trace = drawn.run(&drawn.durations);
        let time = StepTime::of(&drawn.plan, &drawn.order, &trace);
        assert_adds_up(&time, &format!("SHARDLAB_SEED={seed}"));
        for (rank, idle) in time
            .ranks
            .iter()
            .enumerate()
            .flat_map(|(r, time)| time.idle.iter().map(move |i| (r, i)))
        {
            let program = &drawn.plan.programs[rank].instrs;
            let ends = |wanted: &dyn Fn(&Action) -> bool| {
                let pairs = program.iter().zip(&trace.spans[rank]);
                pairs.into_iter().any(|(instr, span)| {
                    wanted(&instr.action) && span.end > idle.span.start && span.end <= idle.span.end
                })
            };
            // The cause is something that ended in the idle time; with a device of its own no rank
            // waits for a turn.
            let holds = match idle.cause {
                Cause::Message { from, .. } => {
                    ends(&|action| matches!(action, Action::Recv { from: f, .. } if *f == from))
                }
                Cause::Room { to, .. } => {
                    ends(&|action| matches!(action, Action::Send { to: t, .. } if *t == to))
                }
                Cause::Beside { .. } => {
                    ends(&|action| matches!(action, Action::Launch { .. } | Action::Copy { .. }))
                }
                Cause::Device => false,
                Cause::StepEnd => idle.span.end == time.step,
            };
            assert!(holds, "SHARDLAB_SEED={seed}: rank {rank} {idle:?}");
        }
    }
}

#[test]
fn the_critical_path_is_as_long_as_the_step_and_nothing_beside_it_matters() {
    for seed in seeds(60) {
        let drawn = Drawn::new(seed);
        let trace = drawn.run(&drawn.durations);
        let path = CriticalPath::of(&drawn.plan, &drawn.order, &trace);
        let context = format!("SHARDLAB_SEED={seed}");
        let mut at = Nanos(0);
        for part in &path.parts {
            assert_eq!(part.span.start, at, "{context}: {part:?}");
            assert_ne!(part.kind, PartKind::Ready, "{context}: {part:?}");
            assert_eq!(part.span, trace.span(part.rank, part.instr as usize), "{context}");
            at = part.span.end;
        }
        assert_eq!(at, trace.end(), "{context}");
        let on_path = |rank: usize, instr: usize| {
            path.parts.iter().any(|p| (p.rank.index(), p.instr as usize) == (rank, instr))
        };
        // All that is not on it takes no time at all: the step stays as long.
        let mut durations = drawn.durations.clone();
        for (rank, row) in durations.iter_mut().enumerate() {
            for (instr, nanos) in row.iter_mut().enumerate() {
                *nanos = if on_path(rank, instr) { *nanos } else { Nanos(0) };
            }
        }
        assert_eq!(drawn.run(&durations).end(), trace.end(), "{context}");
        // Whatever is on it makes the step longer by as much as it takes longer.
        let work: Vec<_> = path.parts.iter().filter(|part| part.kind == PartKind::Work).collect();
        let picked = work[Draw(seed).below(work.len() as u64) as usize];
        let mut durations = drawn.durations.clone();
        durations[picked.rank.index()][picked.instr as usize] += Nanos(777);
        assert_eq!(drawn.run(&durations).end(), trace.end() + Nanos(777), "{context}: {picked:?}");
    }
}

#[test]
fn busy_and_causes_are_the_step_in_predictions_of_drawn_clusters() {
    for seed in seeds(40) {
        let mut draw = Draw(seed);
        let chunks = draw.of(&[1, 2]);
        let schedule =
            if chunks > 1 { ScheduleName::Interleaved1F1B } else { ScheduleName::OneFOneB };
        let split = Split {
            tp: draw.of(&[1, 2, 4]),
            pp: draw.of(&[1, 2, 4]),
            dp: draw.of(&[1, 2, 3]),
            cp: 1,
            chunks,
            sharding: draw.of(&[Sharding::OptimizerState, Sharding::Gradients, Sharding::Weights]),
            sequence_parallel: draw.below(2) == 0,
            schedule,
            order: RankOrder::TpDpPp,
        };
        let workload = Workload {
            model: Transformer::read("llama-3-8b").unwrap(),
            split,
            batch: StepBatch { seq: 2048, rows: 1, microbatches: draw.of(&[1, 4, 6]) },
            recomputed: Recomputed::Nothing,
            precision: Precision::Half,
            software: Software { overlap_gradients: draw.below(2) == 0, ..Software::default() },
        };
        let cluster = Cluster::preset(draw.of(&["h100", "rtx4090"])).unwrap();
        let prediction = predict(&workload, &cluster, &Conditions::default()).unwrap();
        let context = format!("SHARDLAB_SEED={seed}: {:?}", workload.split);
        assert_eq!(prediction.time.clock, Clock::Predicted);
        assert_adds_up(&prediction.time, &context);
        let plan = &prediction.cluster_plan.plan;
        let path = CriticalPath::of(plan, &prediction.order, &prediction.trace);
        let sum: Nanos = path.parts.iter().map(|part| part.span.duration()).sum();
        assert_eq!(sum, prediction.trace.end(), "{context}");
        for rank in &prediction.time.ranks {
            assert!(rank.messages.exposed <= prediction.time.step - rank.busy, "{context}");
            assert!(rank.messages.hidden <= rank.busy, "{context}");
        }
    }
}

#[test]
fn eight_equal_layers_on_four_positions_wait_as_the_textbook_says_and_the_rest_has_names() {
    // Every op takes as long as its operations and bytes say; layers outweigh embedding and head.
    let layers = |hidden_size| Model {
        num_hidden_layers: 8,
        hidden_size,
        intermediate_size: 3 * hidden_size,
        head_dim: hidden_size / 4,
        ..model()
    };
    let layout = Layout { pp: 4, microbatches: 16, ..Layout::default() };
    let training = sgd(16, 64);
    let plan = plan_step(&spec(layers(64), layout, training)).unwrap();
    let graph = order::graph(&plan, &order::derive(&plan));
    let nanos = |action: &Action| match action {
        Action::Launch { op, .. } => op.flops().0 / 200 + 50,
        Action::Copy { .. } | Action::Send { .. } | Action::Recv { .. } => 20,
    };
    let durations: Vec<Vec<Nanos>> = plan
        .programs
        .iter()
        .map(|program| program.instrs.iter().map(|i| Nanos(nanos(&i.action))).collect())
        .collect();
    let trace = replay(&plan, &graph, &durations, &Links::FREE, 0).unwrap();
    let formula = formula_waiting_over_span(4, 16);
    let replayed = bubble(&plan, &trace).waiting_over_span;
    assert!((replayed - formula).abs() < 0.03, "{replayed} is not {formula}");
    // What is left is named, and the names add up.
    let pcie = Wires::read("pcie").unwrap();
    let ladder = Ladder::of(&plan, &graph, &[&trace], &pcie);
    assert!((ladder.equal_stages - formula).abs() < 0.002, "{ladder:?}");
    assert_eq!(ladder.own_times, replayed);
    let [stages, times, messages, dispatch] = ladder.parts();
    assert!(stages.abs() > 0.001 && times.abs() < 0.002 && messages > 0.01, "{ladder:?}");
    assert!((stages + times + messages + dispatch + ladder.equal_stages - replayed).abs() < 1e-12);
    // The last position has the head: its passes take longest, and the path lies there.
    let path = CriticalPath::of(&plan, &order::derive(&plan), &trace);
    let work = path.work_by_rank();
    let most = work.iter().max_by_key(|(_, nanos)| **nanos).map(|(rank, _)| *rank);
    let time = StepTime::of(&plan, &order::derive(&plan), &trace);
    let busiest = (0..4).map(Rank).max_by_key(|rank| time.ranks[rank.index()].busy);
    assert_eq!(most, busiest);
}
