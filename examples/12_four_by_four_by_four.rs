//! Sixty-four ranks: 4 replicas × 4 slices × 4 stages. Each rank is in three groups of four, one for each
//! axis, and talks to nobody else: nine others of 63. The step is planned, checked and counted,
//! trained for two steps on this machine, and predicted on 64 GPUs that it does not have.

use std::collections::BTreeSet;
use std::error::Error;

use shardlab::config::workload::{
    Precision, Recomputed, Sharding, Software, StepBatch, Transformer, Workload,
};
use shardlab::config::{Cluster, Layout, Scenario, Split, Training};
use shardlab::mesh::{Axis, Rank};
use shardlab::plan::check::check;
use shardlab::predict::{Conditions, predict};
use shardlab::train::{Options, Session};

fn main() -> Result<(), Box<dyn Error>> {
    let layout = Layout { dp: 4, tp: 4, pp: 4, microbatches: 4, ..Layout::default() };
    let training = Training { batch: 16, seq: 16, steps: 2, ..Training::default() };
    let scenario = Scenario { layout, training, ..Scenario::quickstart() };
    let mut session = Session::start(scenario, Options::on_cpu())?;
    let plan = session.plan().clone();
    let mesh = plan.mesh;

    println!("axis       groups   of   stride   ranks of the first two");
    for axis in Axis::ALL {
        let groups: BTreeSet<Vec<Rank>> = mesh.ranks().map(|rank| mesh.group(rank, axis)).collect();
        let first: Vec<Vec<u32>> =
            groups.iter().take(2).map(|g| g.iter().map(|r| r.0).collect()).collect();
        let (count, of, stride) = (groups.len(), first[0].len(), first[0][1] - first[0][0]);
        println!("{:<10} {count:>6} {of:>4} {stride:>8}   {first:?}", axis.word());
    }
    let rank = Rank(21);
    let peers: BTreeSet<Rank> = Axis::ALL.iter().flat_map(|a| mesh.group(rank, *a)).collect();
    println!(
        "rank {rank} is {}: it shares a group with {} others",
        mesh.coord(rank),
        peers.len() - 1
    );

    let ledger = session.ledger();
    let faults = check(&plan).len();
    println!("\n{} instructions on {} ranks, {faults} faults", plan.instr_count(), mesh.size());
    let mut crossed = None;
    for _ in 0..2 {
        let report = session.step()?;
        println!("step {}   loss {:.4}", report.step, report.loss);
        crossed = Some(report.crossed);
    }
    let crossed = crossed.ok_or("no step was run")?;
    println!("\nsent a step   counted in the Plan   counted when it crossed");
    for axis in Axis::ALL {
        let [planned, real] = [ledger.bytes_on(axis).0, crossed.bytes_on(axis).0];
        println!("{:<12} {planned:>18} B {real:>23} B", axis.word());
    }

    let layout = &session.scenario().layout;
    let split = Split {
        sharding: Sharding::OptimizerState,
        sequence_parallel: true,
        ..Split::of(layout, 1)
    };
    let workload = Workload {
        model: Transformer::read("llama-3-8b")?,
        split,
        batch: StepBatch { seq: 4096, rows: 1, microbatches: 16 },
        recomputed: Recomputed::Nothing,
        precision: Precision::Half,
        software: Software { overlap_gradients: true, ..Software::default() },
    };
    let step = predict(&workload, &Cluster::preset("h100")?, &Conditions::default())?;
    println!("\nThe same mesh with Llama-3-8B on 64 H100, PREDICTED:");
    println!(
        "step {:.2} s, {:.0} TFLOP/s a GPU, waiting/span {:.1} %, exposed communication {:.2} s",
        step.step_seconds,
        step.tflops_per_gpu,
        100.0 * step.bubble.waiting_over_span,
        step.parts.exposed_comm
    );
    let classes = step.cluster_plan.classes.count();
    println!("{classes} classes of ranks that are alike: one of each was laid out, not 64 ranks.");
    println!(
        "\nNext: cargo run --release, which trains eight ranks on text and draws what they do"
    );
    Ok(())
}
