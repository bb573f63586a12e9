//! `ZeRO` over four data-parallel ranks (arXiv:1910.02054): what each stage saves, and what it costs.
//! Stage 1 shards the optimizer's state, stage 2 also the gradients, stage 3 also the weights, which
//! are gathered when they are needed: memory falls, and bytes rise with the microbatches m.
//! The training stays the same, between 0 and 1 and between 2 and 3 to the last bit.

use std::error::Error;

use shardlab::config::{
    CollectiveChoice, Layout, Model, ModelSource, Scenario, Training, ZeroStage,
};
use shardlab::ledger::live;
use shardlab::mesh::Axis;
use shardlab::plan::{Held, Role};
use shardlab::train::{Options, Session};
use shardlab::units::Bytes;

const STAGES: [(ZeroStage, &str); 4] = [
    (ZeroStage::Zero0, "nothing"),
    (ZeroStage::Zero1, "optimizer"),
    (ZeroStage::Zero2, "+ gradients"),
    (ZeroStage::Zero3, "+ weights"),
];

fn scenario(zero: ZeroStage, microbatches: u32) -> Result<Scenario, Box<dyn Error>> {
    let collective = CollectiveChoice::Direct;
    Ok(Scenario {
        model: ModelSource::Sizes(Model { num_hidden_layers: 16, ..Model::preset("tiny")? }),
        layout: Layout {
            dp: 4,
            zero,
            microbatches,
            collective,
            bucket_bytes: 32 << 10,
            ..Layout::default()
        },
        // Clipping would scale by a norm whose sum depends on who holds what.
        training: Training { batch: 16, seq: 32, clip_norm: 0.0, ..Training::default() },
        ..Scenario::quickstart()
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    println!(
        "Four ranks, AdamW. The most that a rank holds of each kind, and bytes that cross in a step."
    );
    println!(
        "Ψ: bytes of all weights. The norm, 2(N−1)·4 B, is not counted in the multiples of Ψ."
    );
    for microbatches in [1, 4] {
        println!(
            "\nm = {microbatches}  ZeRO shards       weights   gradients   optimizer       crossed"
        );
        let mut trained = Vec::new();
        for (zero, shards) in STAGES {
            let mut session = Session::start(scenario(zero, microbatches)?, Options::on_cpu())?;
            session.step()?;
            let crossed = session.step()?.crossed.bytes_on(Axis::Dp).0;
            let psi = 4 * session.model().parameter_count();
            let times = (crossed - 6 * 4) as f64 / (3 * psi) as f64;
            let live = live(session.plan()).swap_remove(0);
            let most = |role| live.iter().map(|at| at[role]).max().unwrap_or(Bytes(0));
            let [w, g, o] = [Role::Weights, Role::Gradients, Role::Optimizer].map(most);
            println!(
                "       {zero:<4} {shards:<12}{w:>10}{g:>12}{o:>12}{crossed:>12} B = {times}·(N−1)·Ψ"
            );
            trained.push(session.tensors(Held::Weight)?);
        }
        let same =
            |a: usize, b: usize| if trained[a] == trained[b] { "equal" } else { "other bits" };
        println!(
            "       weights after 2 steps: 0 and 1 {}, 2 and 3 {}, 1 and 2 {}",
            same(0, 1),
            same(2, 3),
            same(1, 2)
        );
    }
    println!(
        "\nStages 2 and 3 add over the ranks after every microbatch: more bytes, and another order of"
    );
    println!("the same sum. Save memory, or save communication.");
    println!("\nNext: cargo run --release --example 08_all_at_once");
    Ok(())
}
