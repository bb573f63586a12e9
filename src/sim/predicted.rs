//! Predicts a cluster Plan: prices its coarse ops and messages and lays them out with the one event
//! loop of `sim`.

use super::cost::{Pricer, nanos};
use super::{SimError, hang, lay_out};
use crate::ops::Op;
use crate::ops::coarse::{Coarse, CoarseKind};
use crate::plan::order::{self, Graph, Order};
use crate::plan::{Action, Instr};
use crate::planner::cluster::{ClusterPlan, Exchange};
use crate::random::unit;
use crate::trace::{Clock, Span, Trace};
use crate::units::Nanos;

/// Disturbances of the described speed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Whatif {
    /// Each op takes up to this share longer, drawn for each op of each class.
    pub jitter: f64,
    /// Seed of the draws.
    pub seed: u64,
}

/// A cluster Plan with its order, to be priced any number of times.
#[derive(Clone, Debug)]
pub struct Ordered {
    /// The Plan.
    pub cluster: ClusterPlan,
    /// What its instructions wait for.
    pub order: Order,
    graph: Graph,
}

impl Ordered {
    /// Derives the order of a Plan.
    pub fn new(cluster: ClusterPlan) -> Self {
        let order = order::derive(&cluster.plan);
        let graph = order::graph(&cluster.plan, &order);
        Self { cluster, order, graph }
    }

    /// When each op runs on a cluster.
    ///
    /// # Errors
    /// If the step would hang.
    pub fn predict(&self, pricer: &Pricer<'_>, whatif: Whatif) -> Result<Trace, SimError> {
        let spans = self.spans(pricer, whatif)?;
        let span = |node: &u32| spans[*node as usize];
        let rows = self.graph.node_of.iter();
        let spans = rows.map(|nodes| nodes.iter().map(span).collect()).collect();
        Ok(Trace { clock: Clock::Predicted, step: 0, spans, paths: Vec::new() })
    }

    /// When the last op ends.
    ///
    /// # Errors
    /// If the step would hang.
    pub fn end(&self, pricer: &Pricer<'_>) -> Result<Nanos, SimError> {
        let spans = self.spans(pricer, Whatif::default())?;
        Ok(spans.iter().map(|span| span.end).max().unwrap_or_default())
    }

    /// The span of each node of the step's graph.
    fn spans(&self, pricer: &Pricer<'_>, whatif: Whatif) -> Result<Vec<Span>, SimError> {
        let Self { cluster, graph, .. } = self;
        let prices = Prices::new(cluster, pricer);
        let durations: Vec<Nanos> =
            graph.nodes.iter().map(|node| prices.node(node, whatif)).collect();
        let spans = lay_out(graph, &durations);
        let whole: Option<Vec<Span>> = spans.iter().copied().collect();
        whole.ok_or_else(|| hang(&cluster.plan, graph, |node| spans[node as usize].is_some()))
    }
}

/// Seconds of all work and collectives of a cluster Plan.
struct Prices<'a> {
    cluster: &'a ClusterPlan,
    pricer: &'a Pricer<'a>,
    works: Vec<f64>,
    exchanges: Vec<f64>,
}

impl<'a> Prices<'a> {
    fn new(cluster: &'a ClusterPlan, pricer: &'a Pricer<'a>) -> Self {
        let works: Vec<f64> = cluster.works.iter().map(|work| pricer.work(work)).collect();
        let exchange = |exchange: &Exchange| {
            let of =
                |work: u32| (works[work as usize], pricer.flash_in(&cluster.works[work as usize]));
            let (work, flash) = exchange.after.map_or((0.0, 0.0), of);
            pricer.exchange(exchange, work, flash)
        };
        let exchanges =
            cluster.exchanges.iter().map(|list| list.iter().map(exchange).sum()).collect();
        Self { cluster, pricer, works, exchanges }
    }

    fn node(&self, node: &order::Node, whatif: Whatif) -> Nanos {
        let class = node.rank.index();
        let Instr { action, .. } = &self.cluster.plan.programs[class].instrs[node.instr as usize];
        let seconds = match action {
            Action::Launch { op: Op::Coarse(op), .. } => {
                let draw = u64::from(node.rank.0) << 32 | u64::from(node.instr);
                let jitter = whatif.jitter * unit(whatif.seed, draw);
                self.op(op, class) * (1.0 + jitter)
            }
            Action::Send { view, to, .. } | Action::Recv { view, from: to, .. } => {
                // Messages of one element are waits, not bytes.
                let far = self.cluster.links.get(&(node.rank.0, to.0));
                match (view.len, far) {
                    (1, _) | (_, None) => 0.0,
                    (_, Some(&(far, slow))) => {
                        let bytes = self.cluster.plan.view_bytes(*view).0 as f64;
                        self.pricer.message(bytes, far, slow)
                    }
                }
            }
            // Nothing else is ever written into a cluster Plan.
            Action::Launch { .. } | Action::Copy { .. } => 0.0,
        };
        Nanos(nanos(seconds))
    }

    fn op(&self, op: &Coarse, class: usize) -> f64 {
        let pieces = f64::from(op.pieces);
        match op.kind {
            CoarseKind::Forward
            | CoarseKind::Backward
            | CoarseKind::InputGrad
            | CoarseKind::WeightGrad
            | CoarseKind::Update => {
                let work = self.works[op.work as usize] / pieces * self.cluster.slowness[class];
                let beside = op.beside.map_or(0.0, |with| self.exchanges[with as usize] / pieces);
                self.pricer.beside(work, beside)
            }
            CoarseKind::LayerCollectives
            | CoarseKind::ReduceGradients
            | CoarseKind::GatherWeights => {
                let list = &self.cluster.exchanges[op.work as usize];
                self.pricer.piece(list, self.exchanges[op.work as usize], pieces)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! The quotient is held against the full simulation, rank by rank and op by op.
    use super::*;
    use crate::config::workload::{
        Fusion, Precision, Recomputed, Sharding, Software, Split, StepBatch, Transformer, Workload,
    };
    use crate::config::{Cluster, ScheduleName};
    use crate::mesh::{Rank, RankOrder};
    use crate::plan::check::check;
    use crate::planner::cluster::classes::{Classes, Knobs};
    use crate::planner::cluster::{cluster_plan, topology};
    use crate::planner::schedule::named::named;
    use crate::sim::cost::Constants;
    use crate::trace::bubble::{Bubble, weighted};
    use proptest::prelude::*;

    /// A cluster and a step on it, with or without something slow.
    #[derive(Clone, Debug)]
    struct Drawn {
        workload: Workload,
        node: u32,
        knobs: Knobs,
    }

    fn workload(split: Split, layers: u64, microbatches: u32) -> Workload {
        Workload {
            model: Transformer::drawn(layers),
            split,
            batch: StepBatch { seq: 2048, rows: 1, microbatches },
            recomputed: Recomputed::Nothing,
            precision: Precision::Half,
            software: Software { rope: Some(Fusion::Eager), ..Software::default() },
        }
    }

    prop_compose! {
        fn drawn()(
            tp in prop::sample::select(vec![1u32, 2, 4]),
            pp in 1u32..5,
            dp in 1u32..4,
            cp in 1u32..3,
            chunks in 1u32..3,
            sharding in prop::sample::select(vec![
                Sharding::Nothing, Sharding::OptimizerState, Sharding::Gradients, Sharding::Weights,
            ]),
            order in prop::sample::select(vec![RankOrder::TpDpPp, RankOrder::TpPpDp]),
            node in prop::sample::select(vec![2u32, 3, 8, 12]),
            layers in 8u64..14,
            microbatches in 1u32..6,
            (overlap, blocking) in any::<(bool, bool)>(),
            slow in prop::option::of((any::<u32>(), 1.1f64..3.0)),
            link in prop::option::of((any::<u32>(), any::<u32>(), 2.0f64..9.0)),
        ) -> Drawn {
            let schedule =
                if chunks > 1 { ScheduleName::Interleaved1F1B } else { ScheduleName::OneFOneB };
            let split = Split {
                tp, pp, dp, cp, chunks, sharding, sequence_parallel: tp > 1, schedule, order,
            };
            let ranks = split.ranks();
            let mut workload = workload(split, layers, microbatches);
            workload.software.overlap_gradients = overlap;
            workload.software.blocking_pipeline = blocking;
            let slow_ranks = slow.map(|(rank, factor)| (Rank(rank % ranks), factor));
            let slow_links =
                link.map(|(a, b, factor)| (Rank(a % ranks), Rank(b % ranks), factor));
            let knobs = Knobs {
                slow_ranks: slow_ranks.into_iter().collect(),
                slow_links: slow_links.into_iter().collect(),
            };
            Drawn { workload, node, knobs }
        }
    }

    /// The spans of every launch of every program, the classes of the ranks, and how much all ranks
    /// wait.
    fn spans(drawn: &Drawn, quotient: bool) -> (Vec<Vec<Span>>, Classes, Bubble) {
        let Drawn { workload, node, knobs } = drawn;
        let split = &workload.split;
        let table =
            named(&split.schedule, split.pp, split.chunks, workload.batch.microbatches).unwrap();
        let topology = topology(workload, &table, *node, knobs);
        let classes = if quotient {
            Classes::quotient(&topology)
        } else {
            Classes::singletons(topology.mesh)
        };
        let plan = cluster_plan(workload, &table, &topology, classes);
        assert_eq!(check(&plan.plan), []);
        let (cluster, constants) = (Cluster::preset("a100-80").unwrap(), Constants::default());
        let pricer = Pricer { cluster: &cluster, constants: &constants };
        let ordered = Ordered::new(plan);
        let trace = ordered.predict(&pricer, Whatif::default()).unwrap();
        let rows = ordered.cluster.plan.programs.iter().zip(&trace.spans);
        let launches = rows.map(|(program, spans)| {
            let pairs = program.instrs.iter().zip(spans);
            let launch =
                |(instr, _): &(&Instr, &Span)| matches!(instr.action, Action::Launch { .. });
            pairs.filter(launch).map(|(_, span)| *span).collect()
        });
        let launches = launches.collect();
        let ClusterPlan { plan, classes, .. } = ordered.cluster;
        let waiting = weighted(&plan, &trace, &classes.sizes);
        (launches, classes, waiting)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn one_rank_of_each_class_ends_every_op_when_all_its_members_do(drawn in drawn()) {
            prop_assume!(drawn.workload.split.ranks() <= 64);
            let (few, classes, waiting) = spans(&drawn, true);
            let (all, _, of_all) = spans(&drawn, false);
            let shares = |of: &Bubble| {
                [of.waiting_over_span, of.waiting_over_ideal, of.idle_of_step]
            };
            prop_assert_eq!(shares(&waiting), shares(&of_all));
            for (rank, spans) in all.iter().enumerate() {
                prop_assert_eq!(spans, &few[classes.of[rank] as usize], "rank {}", rank);
            }
        }
    }

    #[test]
    fn a_slow_rank_slows_all_and_sets_ranks_apart() {
        let split = Split {
            tp: 2,
            pp: 2,
            dp: 2,
            cp: 1,
            chunks: 1,
            sharding: Sharding::OptimizerState,
            sequence_parallel: true,
            schedule: ScheduleName::OneFOneB,
            order: RankOrder::TpDpPp,
        };
        let even = Drawn { workload: workload(split, 8, 4), node: 8, knobs: Knobs::default() };
        let slow = Knobs { slow_ranks: vec![(Rank(0), 2.0)], ..Knobs::default() };
        let end = |drawn: &Drawn| {
            let (spans, classes, _) = spans(drawn, true);
            (spans.iter().flatten().map(|span| span.end).max().unwrap(), classes.count())
        };
        let (fast, classes) = end(&even);
        assert_eq!(classes, 2);
        let (late, more) = end(&Drawn { knobs: slow, ..even });
        assert!(late.0 > fast.0 * 5 / 4, "{late} after {fast}");
        assert_eq!(more, 8, "no two ranks are alike beside a slow one in two of everything");
    }
}
