//! Pipeline parallelism: each rank holds some layers, and microbatches follow one another through.
//! `GPipe` runs all forwards, then all backwards (arXiv:1811.06965); 1F1B runs the backward of a
//! microbatch as soon as it can (arXiv:2104.04473). Both wait the same share (p−1)/(m+p−1) of the
//! time, but 1F1B keeps fewer microbatches for their backward.

use std::error::Error;

use shardlab::config::{Layout, Scenario, ScheduleName, Training};
use shardlab::plan::{Held, Role};
use shardlab::planner::schedule::unit_time::{in_flight_peaks, unit_times};
use shardlab::planner::schedule::{Act, Pass, Schedule, gpipe::gpipe, one_f_one_b::one_f_one_b};
use shardlab::trace::bubble::{bubble, formula_waiting_over_span};
use shardlab::train::verify::checked_training;
use shardlab::train::{Options, Session};

const P: u32 = 4;
const M: u32 = 8;

/// Draws a schedule, a row for each rank, two columns for each unit of time.
fn draw(schedule: &Schedule) -> Option<f64> {
    let times = unit_times(schedule, |act| if act.pass == Pass::F { 1 } else { 2 })?;
    for (rank, spans) in times.rows.iter().enumerate() {
        let mut row = vec!["· ".to_owned(); times.span as usize];
        for (Act { pass, microbatch, .. }, span) in schedule.acts(rank).zip(spans) {
            row[span.start as usize] = format!("{pass:?}{microbatch}");
            row[span.start as usize + 1..span.end as usize].fill("──".into());
        }
        println!("  rank {rank}  {}", row.concat().trim_end());
    }
    Some(times.waiting_over_span())
}

fn main() -> Result<(), Box<dyn Error>> {
    println!(
        "{P} stages, {M} microbatches. A forward (F) takes one unit of time, a backward (B) two."
    );
    for (name, schedule) in [("GPipe", gpipe(P, M)), ("1F1B", one_f_one_b(P, M))] {
        println!("\n{name}");
        let waiting = draw(&schedule).ok_or("a built-in schedule cannot hang")?;
        let kept = in_flight_peaks(&schedule);
        println!(
            "  waits {:.1} % of the time; ranks keep at most {kept:?} microbatches",
            100.0 * waiting
        );
    }
    println!(
        "\nFormula for both: (p−1)/(m+p−1) = {:.1} %",
        100.0 * formula_waiting_over_span(P, M)
    );

    println!(
        "\nThe same two, trained for 8 steps; times replayed as if each rank had its own device:"
    );
    let mut weights = Vec::new();
    for schedule in [ScheduleName::GPipe, ScheduleName::OneFOneB] {
        let name = schedule.to_string();
        let scenario = Scenario {
            layout: Layout { pp: P, microbatches: M, schedule, ..Layout::default() },
            training: checked_training(&Training { batch: 8, seq: 64, ..Training::default() }),
            ..Scenario::quickstart()
        };
        let mut session = Session::start(scenario, Options::on_cpu())?;
        for _ in 0..8 {
            session.step()?;
        }
        let bubble = bubble(session.plan(), &session.replayed());
        println!("\n{name}: waits {:.1} %", 100.0 * bubble.waiting_over_span);
        for (rank, (costs, time)) in session.ledger().ranks.iter().zip(&bubble.ranks).enumerate() {
            let kept = costs.memory.at_peak[Role::Activations];
            println!(
                "  rank {rank}  busy {:>9}   waiting {:>9}   activations {kept:>9}",
                time.busy, time.waiting
            );
        }
        weights.push(session.tensors(Held::Weight)?);
    }
    println!(
        "\nReal stages are not equal (the last rank also has the head and the loss), and times vary:"
    );
    println!("ranks wait more than the formula says.");
    println!("Same weights to the last bit: {}.", weights[0] == weights[1]);
    println!("\nNext: cargo run --release --example 07_zero");
    Ok(())
}
