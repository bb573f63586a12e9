//! Equal GPUs, different wires: one training step of a 7B model on 32 H100, predicted for three ways to
//! join them, cut in three ways. Tensor parallel talks in every layer and wants fast links; data
//! parallel talks once a step; a pipeline sends little and waits instead. So the best cut is a
//! property of the wires, not of the GPU.

use std::error::Error;

use shardlab::config::cluster::{Network, NodeLinks};
use shardlab::config::workload::{
    Precision, Recomputed, Sharding, Software, StepBatch, Transformer, Workload,
};
use shardlab::config::{Cluster, ScheduleName, Split};
use shardlab::mesh::RankOrder;
use shardlab::predict::{Conditions, predict};

const GPUS: u32 = 32;
/// Rows of a step over all ranks.
const ROWS: u32 = 128;

/// H100 with other wires: ranks of a node with their bandwidth and latency, and the network.
fn joined(
    name: &str,
    node: (u32, f64, f64),
    network: (f64, f64),
) -> Result<Cluster, Box<dyn Error>> {
    let (gpus, gb_per_sec, latency_us) = node;
    let node = NodeLinks { gpus, gb_per_sec, latency_us };
    let (gb_per_sec, latency_us) = network;
    let network = Network { gb_per_sec, latency_us, measured: false };
    Ok(Cluster { name: name.into(), node, network, ..Cluster::preset("h100")? })
}

fn cut(tp: u32, pp: u32) -> Result<Workload, Box<dyn Error>> {
    let dp = GPUS / tp / pp;
    let split = Split {
        tp,
        pp,
        dp,
        cp: 1,
        chunks: 1,
        sharding: Sharding::OptimizerState,
        sequence_parallel: tp > 1,
        schedule: ScheduleName::OneFOneB,
        order: RankOrder::TpDpPp,
    };
    Ok(Workload {
        model: Transformer::read("llama-2-7b")?,
        split,
        batch: StepBatch { seq: 4096, rows: 1, microbatches: ROWS / dp },
        recomputed: Recomputed::Attention,
        precision: Precision::Half,
        software: Software { overlap_gradients: true, ..Software::default() },
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let clusters = [
        joined("NVLink and fast network", (8, 370.0, 3.4), (50.0, 14.0))?,
        joined("PCIe and fast network", (8, 24.0, 5.7), (50.0, 14.0))?,
        joined("Ethernet alone", (1, 1.2, 30.0), (1.2, 30.0))?,
    ];
    println!(
        "Llama-2-7B on {GPUS} H100, {ROWS} rows of 4096 tokens a step. All numbers are PREDICTED."
    );
    for cluster in &clusters {
        println!("\n{}", cluster.name);
        let mut best = None;
        for (tp, pp) in [(8, 1), (1, 1), (1, 8)] {
            let workload = cut(tp, pp)?;
            let step = predict(&workload, cluster, &Conditions::default())?;
            let name = format!("dp {:<2} tp {tp} pp {pp}", GPUS / tp / pp);
            println!(
                "  {name:<16} step {:>7.2} s  {:>4.0} TFLOP/s a GPU  exposed {:>6.2} s  waiting/span {:>4.1} %",
                step.step_seconds,
                step.tflops_per_gpu,
                step.parts.exposed_comm,
                100.0 * step.bubble.waiting_over_span
            );
            if best.as_ref().is_none_or(|(least, _)| step.step_seconds < *least) {
                best = Some((step.step_seconds, name));
            }
        }
        let (_, name) = best.ok_or("three cuts were predicted")?;
        println!("  best: {name}");
    }
    println!(
        "\nThe arithmetic is the same everywhere. Slower wires cost most where a cut talks most."
    );
    println!("\nNext: cargo run --release --example 12_four_by_four_by_four");
    Ok(())
}
