//! Tensor parallelism: every rank holds a slice of each matrix, and all work on the same tokens.
//! A layer costs two all-reduces forward and two backward (Megatron-LM, arXiv:1909.08053), counted
//! here in the Plan; sequence parallelism turns each into an all-gather and a reduce-scatter.
//! Those move the same bytes, and norms and residuals are kept only once (arXiv:2205.05198).

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;

use shardlab::checkpoint::pieces;
use shardlab::config::{Layout, Model, ModelSource, Scenario, Training};
use shardlab::mesh::{Axis, Rank};
use shardlab::plan::{Held, Plan, Role};
use shardlab::train::verify::checked_training;
use shardlab::train::{Options, Session};

/// Rows (outputs) of a weight that a rank holds, counted in heads or whatever has `unit` rows.
fn rows(plan: &Plan, rank: Rank, weight: &str, unit: u32) -> String {
    let named = |tensor: u32| plan.tensors[tensor as usize].name.contains(weight);
    let mut held = pieces::held(plan, Held::Weight);
    let found = held.find(|held| held.decl.rank == rank && named(held.piece.tensor));
    let rows = found.map_or(0..0, |held| held.piece.rows.clone());
    let (first, last) = (rows.start / unit, rows.end / unit - 1);
    if first == last { first.to_string() } else { format!("{first} to {last}") }
}

/// The collectives of layer 1 on rank 0, counted by phase and kind.
fn collectives(plan: &Plan) -> String {
    let origins = plan.programs[0].instrs.iter().map(|instr| instr.origin);
    let tensor = origins.filter(|o| o.layer == Some(1) && o.axis == Some(Axis::Tp));
    let each: BTreeSet<_> =
        tensor.filter_map(|o| o.collective.map(|c| (c.id, o.phase, c.kind))).collect();
    let mut counts = BTreeMap::new();
    for (_, phase, kind) in each {
        *counts.entry((phase, kind)).or_insert(0) += 1;
    }
    let words = counts.iter().map(|((phase, kind), count)| format!("{phase:?} {count} {kind}"));
    words.collect::<Vec<_>>().join(", ")
}

fn main() -> Result<(), Box<dyn Error>> {
    let model = Model::preset("tiny")?;
    let training = Training { batch: 8, seq: 64, ..checked_training(&Training::default()) };
    let start = |tp, sequence_parallel| -> Result<Session, Box<dyn Error>> {
        let scenario = Scenario {
            model: ModelSource::Sizes(model.clone()),
            layout: Layout { tp, sequence_parallel, ..Layout::default() },
            training: training.clone(),
            ..Scenario::quickstart()
        };
        Ok(Session::start(scenario, Options::on_cpu())?)
    };
    let mut sessions = [
        ("one rank", start(1, false)?),
        ("tensor", start(4, false)?),
        ("sequence", start(4, true)?),
    ];
    println!("What each of four ranks holds of a model with 8 query heads and 4 key heads:");
    println!("rank   query heads   key heads   ffn columns   tokens of the vocabulary");
    let plan = sessions[1].1.plan();
    for rank in plan.mesh.ranks() {
        let heads = ["q_proj", "k_proj"].map(|weight| rows(plan, rank, weight, model.head_dim));
        let [ffn, vocabulary] = ["gate_proj", "embed"].map(|weight| rows(plan, rank, weight, 1));
        println!("{rank:<6} {:<13} {:<11} {ffn:<13} {vocabulary}", heads[0], heads[1]);
    }
    println!("\nCollectives of a layer, for each microbatch:");
    for (name, session) in &sessions[1..] {
        println!("{name:<10} {}", collectives(session.plan()));
    }
    println!("\nrank 0 holds   weights   activations   all ranks send   loss of step 2");
    for (name, session) in &mut sessions {
        session.step()?;
        let step = session.step()?;
        let memory = session.ledger().ranks[0].memory.at_peak;
        let (weights, activations) = (memory[Role::Weights], memory[Role::Activations]);
        let crossed = step.crossed.bytes_on(Axis::Tp).0;
        println!("{name:<10}{weights:>12}{activations:>14} {crossed:>14} B {:>16.6}", step.loss);
    }
    let [tokens, d, layers] = [8 * 64, model.hidden_size, model.num_hidden_layers];
    let all_reduces = 4 * layers + 2;
    println!(
        "\n{all_reduces} all-reduces (4 a layer, embedding, head) of {tokens} × {d} floats: {} B;",
        all_reduces * 6 * tokens * d * 4
    );
    println!(
        "the rest are 3 floats a token for the loss, the norm, and gradients of norm weights."
    );
    println!("\nNext: cargo run --release --example 06_pipeline_parallel");
    Ok(())
}
