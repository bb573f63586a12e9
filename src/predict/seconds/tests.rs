//! Goal: a step that is run on clocks ends when the written one does. Method: both are done for drawn
//! layouts of every schedule, on nodes of odd sizes, with and without everything that software
//! switches.

use proptest::prelude::*;

use super::super::{Conditions, predict};
use super::*;
use crate::config::ScheduleName;
use crate::config::workload::{
    Fusion, Precision, Recomputed, Sharding, Software, Split, StepBatch, Transformer,
};
use crate::mesh::{Rank, RankOrder};
use crate::planner::cluster::classes::Classes;
use crate::planner::cluster::cluster_plan;
use crate::sim::Ordered;

/// A step and what it runs on.
#[derive(Clone, Debug)]
struct Drawn {
    workload: Workload,
    node: u32,
    knobs: Knobs,
    gb_per_sec: f64,
}

prop_compose! {
    fn split()(
        (tp, pp, dp, cp) in (prop::sample::select(vec![1u32, 2, 4]), 1u32..6, 1u32..4, 1u32..3),
        chunks in 2u32..4,
        schedule in prop::sample::select(ScheduleName::NAMED.to_vec()),
        sharding in prop::sample::select(vec![
            Sharding::Nothing, Sharding::OptimizerState, Sharding::Gradients, Sharding::Weights,
        ]),
        order in prop::sample::select(vec![RankOrder::TpDpPp, RankOrder::TpPpDp]),
        sequence_parallel in any::<bool>(),
    ) -> Split {
        let chunks = (1..=chunks).rev().find(|chunks| schedule.stages().allows(*chunks)).unwrap();
        Split { tp, pp, dp, cp, chunks, sharding, sequence_parallel, schedule, order }
    }
}

prop_compose! {
    fn drawn()(
        split in split(),
        layers in 15u64..22,
        (seq, microbatches) in (prop::sample::select(vec![256u64, 2048]), 1u32..14),
        recomputed in prop::sample::select(vec![
            Recomputed::Nothing, Recomputed::Attention, Recomputed::HalfOfProducts,
            Recomputed::Layers(0.5),
        ]),
        [gradients, weights, tensor, scatter, blocking, aware] in any::<[bool; 6]>(),
        node in prop::sample::select(vec![2u32, 3, 8, 12]),
        slow in prop::option::of((any::<u32>(), 1.1f64..3.0)),
        link in prop::option::of((any::<u32>(), any::<u32>(), 2.0f64..9.0)),
        gb_per_sec in prop::sample::select(vec![0.5f64, 25.0]),
    ) -> Drawn {
        let ranks = split.ranks();
        let slow_ranks = slow.map(|(rank, factor)| (Rank(rank % ranks), factor));
        let slow_links = link.map(|(a, b, factor)| (Rank(a % ranks), Rank(b % ranks), factor));
        let knobs = Knobs {
            slow_ranks: slow_ranks.into_iter().collect(),
            slow_links: slow_links.into_iter().collect(),
        };
        let model = Transformer::drawn(layers);
        let software = Software {
            rope: Some(Fusion::Eager),
            overlap_gradients: gradients,
            overlap_weights: weights,
            overlap_tensor: tensor,
            scatter_pipeline: scatter,
            blocking_pipeline: blocking,
            node_aware: aware,
            ..Software::default()
        };
        let batch = StepBatch { seq, rows: 1, microbatches };
        let precision = Precision::Half;
        let workload = Workload { model, split, batch, recomputed, precision, software };
        Drawn { workload, node, knobs, gb_per_sec }
    }
}

/// When the step ends on clocks, and when the written one does.
fn ends(drawn: &Drawn) -> (Nanos, Nanos) {
    let Drawn { workload, node, knobs, gb_per_sec } = drawn;
    let mut cluster = Cluster::preset("a100-80").unwrap();
    cluster.network.gb_per_sec = *gb_per_sec;
    let constants = Constants::default();
    let pricer = Pricer { cluster: &cluster, constants: &constants };
    let table = table(workload, workload.batch.microbatches);
    let topology = topology(workload, &table, *node, knobs);
    let places = Places::of(&topology);
    let prices = Prices::of(workload, &places, &table, pricer);
    let plan = cluster_plan(workload, &table, &topology, Classes::quotient(&topology));
    (run::end(&prices, &places, &table, &mut ()), Ordered::new(plan).end(&pricer).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]
    #[test]
    fn a_step_on_clocks_ends_when_the_written_one_does(drawn in drawn()) {
        let (on_clocks, written) = ends(&drawn);
        prop_assert_eq!(on_clocks, written);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn its_seconds_go_where_those_of_the_written_one_do(drawn in drawn()) {
        let Drawn { workload, node, knobs, .. } = &drawn;
        let mut cluster = Cluster::preset("h100").unwrap();
        cluster.node.gpus = *node;
        let constants = Constants::default();
        let table = table(workload, workload.batch.microbatches);
        let places = Places::of(&topology(workload, &table, *node, knobs));
        let pricer = Pricer { cluster: &cluster, constants: &constants };
        let conditions = Conditions { knobs: knobs.clone(), ..Conditions::default() };
        let written = predict(workload, &cluster, &conditions).unwrap();
        let parts = step_parts(workload, &table, &places, pricer).seconds();
        for (ours, written) in parts.into_iter().zip(written.parts.seconds()) {
            prop_assert!((ours - written).abs() < 1e-12, "{} {}", ours, written);
        }
    }
}
