//! Which schedule waits least, and what does it keep? Every schedule on four positions, run on paper.
//! The first table is the share of the step that ranks wait, against the number of microbatches. More
//! of them help all schedules. Chunks, cut backwards and a V help at once, each at its price.

use std::error::Error;

use shardlab::config::ScheduleName;
use shardlab::config::schedule::Stages;
use shardlab::planner::schedule::explain::Explanation;
use shardlab::planner::schedule::named::named;

const P: u32 = 4;
const MICROBATCHES: [u32; 6] = [2, 4, 8, 16, 32, 64];

fn chunks(name: &ScheduleName) -> u32 {
    if name.stages() == Stages::One { 1 } else { 2 }
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("{P} positions; a forward takes 1 unit of time, a backward 2, half a backward 1.");
    println!(
        "Waiting/span in per cent; *: too few microbatches to fill the pipeline and for the formula.\n"
    );
    let heads: Vec<String> = MICROBATCHES.iter().map(|m| format!("{m:>7}")).collect();
    println!("{:<24}{}   formula", "microbatches", heads.concat());
    let mut memory = Vec::new();
    for name in ScheduleName::NAMED {
        let mut row = format!("{:<24}", name.title());
        let mut words = "";
        for m in MICROBATCHES {
            let table = named(&name, P, chunks(&name), m).ok_or("not a file")?;
            let explained = table.explain().ok_or("a built-in schedule cannot hang")?;
            let Explanation { times, formula, row_peaks, .. } = explained;
            let share = times.waiting_over_span();
            row += &format!("{:>6.1}{}", 100.0 * share, if formula.is_some() { " " } else { "*" });
            words = formula.map_or(words, |formula| formula.over_span);
            if m == 16 {
                memory.push((name.clone(), row_peaks, times.waiting_inside()));
            }
        }
        println!("{row}   {words}");
    }

    println!("\nWhat it costs, with 16 microbatches:");
    println!("{:<24}  kept at most, in stages of a microbatch   boundaries   holes", "");
    for (name, peaks, holes) in memory {
        let stages = P * chunks(&name);
        // Where a V turns, a position hands over to itself.
        let boundaries = stages - 1 - u32::from(name.stages() == Stages::V);
        let part = if stages > P { "of half the size" } else { "" };
        println!(
            "{:<24}  {:<18} {part:<22} {boundaries:>10} {holes:>7}",
            name.title(),
            format!("{peaks:?}")
        );
    }
    println!("\nHoles are units of waiting inside rows: without them, ranks are only shifted.");
    println!("\nNext: cargo run --release --example 11_same_step_on_three_clusters");
    Ok(())
}
