//! Data parallelism: every rank has the whole model and reads other rows of the batch.
//! Before the step ends the ranks add up their gradients, so that all make the same update; each
//! gradient carries 1/labels of the whole batch already, so the sum is the mean.
//! Four ranks therefore train what one rank trains, for 2(N−1)·Ψ bytes a step.

use std::error::Error;
use std::sync::Arc;

use shardlab::checkpoint::pieces;
use shardlab::config::{Layout, ModelSource, Scenario, Training};
use shardlab::data::rows_by_rank;
use shardlab::exec::{ExecError, ExecOptions, Executor, PlanId, StepInput};
use shardlab::mesh::Axis;
use shardlab::plan::{Held, Phase, Plan};
use shardlab::train::verify::{against_one_rank, checked_training};
use shardlab::train::{DeviceRequest, Options, Session};

const WEIGHT: &str = "model.layers.0.mlp.down_proj.weight";

/// The Plan up to where each rank begins to sum gradients: the first part of a Plan is a Plan.
fn before_the_sum(plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    for program in &mut plan.programs {
        let sum = program.instrs.iter().position(|instr| instr.origin.phase == Phase::GradReduce);
        program.instrs.truncate(sum.unwrap_or(program.instrs.len()));
    }
    plan
}

/// The gradient of the first element of [`WEIGHT`], as it lies on each rank.
fn gradients(executor: &mut Executor, id: PlanId) -> Result<Vec<f32>, ExecError> {
    let plan = Arc::clone(executor.plan(id));
    let all = pieces::held(&plan, Held::Gradient);
    let ours = all.filter(|held| plan.tensors[held.piece.tensor as usize].name == WEIGHT);
    ours.map(|held| Ok(executor.read(id, held.view.slice(0..1))?[0])).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    // Plain SGD: a wrong gradient shows at once. No overlap: nothing is summed during backward.
    let small = Training { batch: 8, seq: 32, ..Training::default() };
    let scenario = Scenario {
        model: ModelSource::Preset("tiny".into()),
        layout: Layout { dp: 4, overlap: false, ..Layout::default() },
        training: Training { steps: 5, ..checked_training(&small) },
        ..Scenario::quickstart()
    };
    let mut session = Session::start(scenario.clone(), Options::on_cpu())?;
    let (plan, batch) = (Arc::clone(session.plan()), session.batches().batch(0));
    let psi = 4 * session.model().parameter_count();
    let (executor, whole) = session.executor();
    let cut = executor.load(Arc::new(before_the_sum(&plan)))?;
    let (tokens, labels, seq) = (&batch.tokens[..], &batch.labels[..], small.seq);
    let input = StepInput { tokens, labels, seq, ..StepInput::default() };
    executor.run(cut, 0, &input)?;
    let own = gradients(executor, cut)?;
    let crossed = executor.run(whole, 0, &input)?.crossed.bytes_on(Axis::Dp);
    let summed = gradients(executor, whole)?;

    println!("Four ranks, each with the whole model: Ψ = {psi} B of weights. They share 8 rows.\n");
    println!("The gradient of one weight, element [0, 0] of {WEIGHT}:");
    println!("rank   reads rows          its own gradient    after the sum");
    for (rank, rows) in rows_by_rank(plan.mesh, &batch).iter().enumerate() {
        let rows = format!("{rows:?}");
        println!("{rank:<6} {rows:<16} {:>19.9} {:>16.9}", own[rank], summed[rank]);
    }
    println!("sum                     {:>19.9}\n", own.iter().sum::<f32>());
    println!(
        "Bytes that crossed in the step, counted in the transport:              {}",
        crossed.0
    );
    println!(
        "Formula, 2(N−1)·Ψ for the gradients and 2(N−1)·4 for their norm:       {}\n",
        6 * psi + 6 * 4
    );

    let v = against_one_rank(&scenario, &DeviceRequest::cpu(), &ExecOptions::default())?;
    let verdict = if v.pass { "the same training" } else { "NOT the same training" };
    println!(
        "After {} steps of SGD, largest relative difference from one rank that reads all",
        v.steps
    );
    println!(
        "rows: loss {:.0e}, gradients {:.0e}, weights {:.0e}. That is {verdict}.",
        v.loss_rel_max, v.grad_rel_max, v.final_rel_max
    );
    println!("\nNext: cargo run --release --example 05_tensor_parallel");
    Ok(())
}
