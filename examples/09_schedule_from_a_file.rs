//! A pipeline schedule is a table: a row for each position, a cell for each pass. Yours can come from
//! a file, in the grammar of torch.distributed.pipelining. It is checked before anything runs,
//! explained, and trained like the built-in ones: the weights are the same to the last bit.

use std::error::Error;

use shardlab::config::{Layout, Scenario, ScheduleName, Training};
use shardlab::plan::Held;
use shardlab::planner::schedule::explain::Explanation;
use shardlab::planner::schedule::{csv, named::named};
use shardlab::train::verify::checked_training;
use shardlab::train::{Options, Session};

const P: u32 = 2;
const M: u32 = 4;

/// A table of one's own: 1F1B, but weight gradients (W) are put off to the end of each row.
const OWN: &str = "\
0F0,0F1,0I0,0F2,0I1,0F3,0I2,0I3,0W0,0W1,0W2,0W3,0REDUCE_GRAD
,1F0,1I0,1F1,1I1,1F2,1I2,1F3,1I3,1W0,1W1,1W2,1W3,1REDUCE_GRAD
";

fn explain(name: &str, explanation: &Explanation) {
    let Explanation { known, times, ideal, row_peaks, .. } = explanation;
    let known = known.as_ref().map_or("no known schedule".into(), ScheduleName::title);
    println!(
        "{name:<14} {known:<18} makespan {:>2} of {ideal} work, waiting/span {:>4.1} %, keeps {row_peaks:?}",
        times.span,
        100.0 * times.waiting_over_span()
    );
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("A file that cannot run is refused, and why:");
    let faulty = [
        ("a pass twice", "0F0,0F1,0B0,0B0\n1F0,1B0,1F1,1B1\n"),
        ("no row for a stage", "0F0,0F1,0B0,0B1\n2F0,2B0,2F1,2B1\n"),
        ("a circle", "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n"),
        ("no pass", "0F0,hello\n"),
    ];
    for (what, text) in faulty {
        let refused = csv::parse(text).map(|schedule| schedule.check(schedule.stage_count(), 2));
        let why = match refused {
            Ok(faults) => faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
            Err(error) => error.to_string(),
        };
        println!("  {what}: {why}");
    }

    println!("\nOne that can run is explained (F, I, W take 1 unit, B takes 2):");
    let own = csv::parse(OWN)?;
    assert!(own.check(P, M).is_empty() && own.check_activations(M).is_empty());
    explain("  own.csv", &own.explain().ok_or("it was checked")?);
    for name in [ScheduleName::OneFOneB, ScheduleName::ZbH1] {
        let table = named(&name, P, 1, M).ok_or("not a file")?;
        explain(&format!("  {name}"), &table.explain().ok_or("built in")?);
    }

    println!("\nAnd trained, three steps:");
    let file = std::env::temp_dir().join(format!("own-{}.csv", std::process::id()));
    std::fs::write(&file, OWN)?;
    let mut weights = Vec::new();
    for schedule in [ScheduleName::File(file.clone()), ScheduleName::OneFOneB] {
        let title = schedule.title().replace(&format!("-{}", std::process::id()), "");
        let scenario = Scenario {
            layout: Layout { pp: P, microbatches: M, schedule, ..Layout::default() },
            training: checked_training(&Training { batch: 8, seq: 32, ..Training::default() }),
            ..Scenario::quickstart()
        };
        let mut session = Session::start(scenario, Options::on_cpu())?;
        let losses = (0..3).map(|_| Ok(format!("{:.4}", session.step()?.loss)));
        let losses: Result<Vec<String>, Box<dyn Error>> = losses.collect();
        println!("  {title:<12} losses {}", losses?.join(", "));
        weights.push(session.tensors(Held::Weight)?);
    }
    std::fs::remove_file(file)?;
    println!("Same weights to the last bit: {}.", weights[0] == weights[1]);
    println!("\nNext: cargo run --release --example 10_bubble_against_microbatches");
    Ok(())
}
