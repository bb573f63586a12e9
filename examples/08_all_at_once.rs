//! All three axes at once: eight ranks as 2 replicas × 2 slices × 2 stages, trained on real text.
//! Each rank reads half the rows, holds half the heads of half the layers, and an eighth of the
//! optimizer's state. The step is the step of one rank: the sums are the same, only elsewhere.

use std::collections::BTreeSet;
use std::error::Error;

use shardlab::checkpoint::pieces;
use shardlab::config::{Scenario, Training};
use shardlab::data::rows_by_rank;
use shardlab::exec::ExecOptions;
use shardlab::mesh::{Axis, Rank};
use shardlab::plan::{Held, Plan};
use shardlab::trace::bubble::{bubble, formula_waiting_over_span};
use shardlab::train::verify::{against_one_rank, checked_training};
use shardlab::train::{DeviceRequest, Options, Session, StepReport};

/// The layers of which a rank holds weights, as the pieces of its buffers say.
fn layers(plan: &Plan, rank: Rank) -> String {
    let held = pieces::held(plan, Held::Weight).filter(|held| held.decl.rank == rank);
    let names = held.map(|held| plan.tensors[held.piece.tensor as usize].name.as_str());
    let numbers = names.filter_map(|name| name.strip_prefix("model.layers.")?.split('.').next());
    numbers.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(", ")
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut scenario = Scenario::quickstart();
    scenario.training = Training { batch: 16, seq: 48, steps: 21, warmup: 4, ..scenario.training };
    let mut session = Session::start(scenario.clone(), Options::on_cpu())?;
    let (plan, ledger) = (session.plan().clone(), session.ledger());
    let rows = rows_by_rank(plan.mesh, &session.batches().batch(0));
    println!("rank   replica   slice   stage   layers   rows of the batch        most memory");
    for (rank, rows) in plan.mesh.ranks().zip(rows) {
        let (at, memory) = (plan.mesh.coord(rank), ledger.ranks[rank.index()].memory.peak());
        let rows = format!("{}: {}, {}, …", rows.len(), rows[0], rows[1]);
        let layers = layers(&plan, rank);
        println!(
            "{rank:<6} {:<9} {:<7} {:<7} {layers:<8} {rows:<20} {memory:>15}",
            at.dp, at.tp, at.pp
        );
    }
    println!();
    let mut crossed = None;
    for _ in 0..scenario.training.steps {
        let StepReport { step, loss, crossed: bytes, .. } = session.step()?;
        if step % 4 == 0 {
            println!("step {step:>2}   loss {loss:.3}   {}", "█".repeat((8.0 * loss) as usize));
        }
        crossed = Some(bytes);
    }
    let crossed = crossed.ok_or("no step was run")?;
    println!("\nBytes of the last step  counted when they crossed   counted in the Plan");
    for axis in Axis::ALL {
        println!(
            "{:<10} {:>31} B {:>19} B",
            axis.word(),
            crossed.bytes_on(axis).0,
            ledger.bytes_on(axis).0
        );
    }
    let waiting = bubble(&plan, &session.replayed()).waiting_over_span;
    let formula = formula_waiting_over_span(plan.mesh.pp, scenario.layout.microbatches);
    println!(
        "\nWaiting {:.1} % of the time (replayed), formula for equal stages {:.1} %.",
        100.0 * waiting,
        100.0 * formula
    );
    let checked = Scenario { training: checked_training(&scenario.training), ..scenario };
    let v = against_one_rank(&checked, &DeviceRequest::cpu(), &ExecOptions::default())?;
    let verdict = if v.pass { "the same training" } else { "NOT the same training" };
    println!(
        "Against one rank: losses differ by {:.0e}, weights by {:.0e}: {verdict}.",
        v.loss_rel_max, v.final_rel_max
    );
    println!("\nNext: cargo run --release --example 09_schedule_from_a_file");
    Ok(())
}
