//! Goal: predictions count what real steps do. Method: one model as a cluster Plan and as a Plan that
//! runs, and one step cut in many ways.

use shardlab::config::workload::{
    Precision, Recomputed, Sharding, Software, StepBatch, Transformer, Workload,
};
use shardlab::config::{Cluster, Layout, Model, ScheduleName, Split};
use shardlab::ledger::Ledger;
use shardlab::mesh::{Axis, RankOrder};
use shardlab::planner::plan_step;
use shardlab::predict::{Conditions, predict};

use super::{model, sgd, spec};

fn split([dp, tp, pp]: [u32; 3], chunks: u32, schedule: ScheduleName) -> Split {
    Split {
        tp,
        pp,
        dp,
        cp: 1,
        chunks,
        sharding: Sharding::OptimizerState,
        sequence_parallel: tp > 1,
        schedule,
        order: RankOrder::TpDpPp,
    }
}

fn workload(model: Transformer, split: Split, batch: StepBatch) -> Workload {
    let (recomputed, precision) = (Recomputed::Nothing, Precision::Half);
    Workload { model, split, batch, recomputed, precision, software: Software::default() }
}

#[test]
fn predicted_pipeline_bytes_are_those_of_a_real_plan() {
    let small = Model { num_hidden_layers: 7, ..model() };
    let sizes = Transformer {
        layers: 7,
        hidden: small.hidden_size.into(),
        heads: 4,
        kv_heads: 4,
        head_dim: 4,
        ffn: small.intermediate_size.into(),
        vocab: small.vocab_size.into(),
        gated: true,
        tied: false,
    };
    let (seq, microbatches) = (8, 4);
    for (schedule, chunks) in [
        (ScheduleName::GPipe, 1),
        (ScheduleName::OneFOneB, 1),
        (ScheduleName::Interleaved1F1B, 2),
        (ScheduleName::ZbV, 2),
    ] {
        for cut in [[1, 1, 2], [1, 1, 4], [2, 1, 2], [1, 2, 2], [2, 2, 4]] {
            let [dp, tp, pp] = cut;
            let layout = Layout {
                dp,
                tp,
                pp,
                chunks,
                microbatches,
                schedule: schedule.clone(),
                sequence_parallel: tp > 1,
                ..Layout::default()
            };
            let real =
                plan_step(&spec(small.clone(), layout, sgd(dp * microbatches, seq))).unwrap();
            // The squared norm, 4 bytes, is summed along every line of positions.
            let norm = u64::from(dp * tp * 2 * (pp - 1) * 4);
            let batch = StepBatch { seq: seq.into(), rows: 1, microbatches };
            let workload = workload(sizes, split(cut, chunks, schedule.clone()), batch);
            let cluster = Cluster::preset("h100").unwrap();
            let predicted = predict(&workload, &cluster, &Conditions::default()).unwrap();
            // Predicted in 16 bits, run in 32.
            assert_eq!(
                2.0 * predicted.bytes[&Axis::Pp],
                (Ledger::of(&real).bytes_on(Axis::Pp).0 - norm) as f64,
                "{schedule} {cut:?}"
            );
        }
    }
}

#[test]
fn model_flops_are_the_same_for_every_cut_and_utilisation_stays_below_one() {
    let rows = 32;
    let cluster = Cluster::preset("h100").unwrap();
    let mut flops = Vec::new();
    for [dp, tp, pp] in [[1, 1, 1], [8, 1, 1], [1, 8, 1], [1, 1, 8], [2, 2, 2], [1, 2, 4]] {
        let batch = StepBatch { seq: 4096, rows: 1, microbatches: rows / dp };
        let model = Transformer::read("llama-3-8b").unwrap();
        let split = split([dp, tp, pp], 1, ScheduleName::OneFOneB);
        for recomputed in [Recomputed::Nothing, Recomputed::Layers(1.0)] {
            let base = workload(model, split.clone(), batch);
            let workload = Workload { recomputed, ..base };
            let step = predict(&workload, &cluster, &Conditions::default()).unwrap();
            // All devices, all of the time, and what the model needs: not what is run again.
            let ranks = f64::from(dp * tp * pp);
            let whole = step.mfu * cluster.gpu.tflops_16bit * 1e12 * ranks * step.step_seconds;
            assert!((whole / workload.model_flops() - 1.0).abs() < 1e-9);
            assert!(0.0 < step.mfu && step.mfu < 1.0, "{dp} {tp} {pp}: {}", step.mfu);
            flops.push(workload.model_flops());
        }
    }
    assert!(flops.iter().all(|count| (count / flops[0] - 1.0).abs() < 1e-12), "{flops:?}");
}
