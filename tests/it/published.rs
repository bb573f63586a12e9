//! Goal: predictions hold against steps that others measured and published. Method: predicts every
//! row of a copy of the data, with the constants as they are and with constants fitted without the
//! row's own source, and holds the errors beside a constant MFU.

use std::fs;

use shardlab::predict::fit::{Lesson, leave_one_source_out};
use shardlab::predict::published::{Run, Runs};
use shardlab::predict::score::{Summary, constant_mfu, feasibility, score, two_means};
use shardlab::sim::cost::Constants;

fn runs() -> Runs {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/published/runs.json");
    Runs::parse(&fs::read_to_string(file).unwrap(), file).unwrap()
}

fn core(runs: &Runs) -> Vec<&Run> {
    runs.rows.iter().filter(|run| run.core && run.flags.is_empty()).collect()
}

#[test]
fn published_steps_are_predicted_within_the_stated_errors() {
    let runs = runs();
    let rows = score(&runs.rows, &Constants::default());
    let core = Summary::of(rows.iter().filter(|row| row.core));
    assert!(core.skipped * 100 <= 15 * (core.count + core.skipped), "{core:?}");
    assert!(core.mean_abs < 0.065 && core.median_abs < 0.048, "{core:?}");
    assert!(core.mean_abs_over_sources < 0.075, "{core:?}");
    // No row is left out without a reason.
    for row in &rows {
        assert!(row.predicted_seconds.is_some() != row.skipped.is_some(), "{}", row.id);
    }
}

#[test]
fn constants_fitted_without_a_source_predict_it_twice_as_well_as_a_constant_mfu() {
    let runs = runs();
    let core = core(&runs);
    let left = leave_one_source_out(&Lesson::of(&core), &Constants::default());
    let errors: Vec<f64> = left.iter().flat_map(|left| &left.errors).map(|e| e.abs()).collect();
    let rows = errors.iter().sum::<f64>() / errors.len() as f64;
    let mean = |errors: &[f64]| errors.iter().map(|e| e.abs()).sum::<f64>() / errors.len() as f64;
    let sources = left.iter().map(|left| mean(&left.errors)).sum::<f64>() / left.len() as f64;
    let (constant_rows, constant_sources) = two_means(&core, &constant_mfu(&core));
    assert!(rows < 0.5 * constant_rows, "{rows} against {constant_rows}");
    assert!(sources < 0.5 * constant_sources, "{sources} against {constant_sources}");
}

#[test]
fn what_ran_out_of_memory_is_told_from_what_ran() {
    let memory = feasibility(&runs());
    assert!(memory.ran > 250 && memory.out > 300, "{memory:?}");
    assert!(memory.ran_right * 10 >= 9 * memory.ran, "{memory:?}");
    assert!(memory.out_right * 10 >= 9 * memory.out, "{memory:?}");
}
