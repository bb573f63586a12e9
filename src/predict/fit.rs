//! Fits the cost model's constants to measured steps, all sources or all but one.
//!
//! The logarithm of predicted over measured is made small, by Gauss-Newton on the logarithms of the
//! constants with weights that make large errors count by their size and not by their square. Half
//! of the weight is spread over rows, half over sources. A guess holds constants in place that the
//! rows say nothing about.

use std::collections::{BTreeMap, BTreeSet};

use super::Prepared;
use super::published::Run;
use crate::sim::cost::Constants;

/// Errors beyond this share count linearly.
const LINEAR_BEYOND: f64 = 0.03;
/// How far a constant may be from its guess, as a factor e^±this, at the price of a mean row.
const GUESS_SPREAD: f64 = 0.3;
/// Step of the differences, as a share of a constant.
const STEP: f64 = 0.01;

/// Physical guesses before any run is looked at: round numbers.
pub const GUESS: Constants = Constants {
    ampere: 0.95,
    hopper: 0.85,
    blackwell: 0.70,
    memory: 0.65,
    attention: 0.95,
    network: 0.75,
    step_seconds: 0.05,
    straggler: 0.003,
    norm_passes: 60.0,
    rope_passes: 20.0,
    tensor_skew: 0.01,
    kernel_gap: 4.0e-6,
};

/// The constants fitted without each source in turn, and the errors on that source's rows.
#[derive(Clone, Debug)]
pub struct LeftOut {
    /// The source that was left out.
    pub source: String,
    /// Constants of the others.
    pub constants: Constants,
    /// Errors, predicted / measured − 1, on its rows.
    pub errors: Vec<f64>,
}

/// Fits the constants to runs, starting at `start`.
pub fn fit(lessons: &[Lesson<'_>], start: &Constants, rounds: u32) -> Constants {
    let mut constants = *start;
    for _ in 0..rounds {
        let slopes = Slopes::at(lessons, &constants);
        constants = slopes.fitted(&constants, |_| true);
    }
    constants
}

/// Leaves each source out, fits to the others, and predicts the one left out. `fitted`: a fit to
/// all, whose slopes are used.
pub fn leave_one_source_out(lessons: &[Lesson<'_>], fitted: &Constants) -> Vec<LeftOut> {
    let slopes = Slopes::at(lessons, fitted);
    let sources: BTreeSet<&str> = lessons.iter().map(|lesson| &*lesson.run.source).collect();
    let without = |source: &&str| {
        let constants = slopes.fitted(fitted, |run| run.source != *source);
        let own = lessons.iter().filter(|lesson| lesson.run.source == *source);
        let errors = own.map(|lesson| lesson.residual(&constants).exp() - 1.0).collect();
        LeftOut { source: (*source).to_owned(), constants, errors }
    };
    sources.iter().map(without).collect()
}

/// A run that can be fitted to.
#[derive(Debug)]
pub struct Lesson<'a> {
    run: &'a Run,
    prepared: Prepared,
}

impl<'a> Lesson<'a> {
    /// The runs that are described.
    pub fn of(runs: &[&'a Run]) -> Vec<Self> {
        let lesson = |run: &&'a Run| {
            let (workload, cluster) = run.described.as_ref().ok()?;
            Some(Self { run, prepared: Prepared::new(workload, cluster) })
        };
        runs.iter().filter_map(lesson).collect()
    }

    /// Logarithm of predicted over measured.
    fn residual(&self, constants: &Constants) -> f64 {
        (self.prepared.seconds(constants) / self.run.measured_seconds).ln()
    }
}

/// Residuals of all rows and how each constant moves them.
struct Slopes<'a> {
    rows: Vec<(&'a Run, f64, Vec<f64>)>,
}

impl<'a> Slopes<'a> {
    fn at(lessons: &[Lesson<'a>], constants: &Constants) -> Self {
        let moved: Vec<Constants> = Constants::FITTED
            .iter()
            .map(|(_, at)| {
                let mut moved = *constants;
                *at(&mut moved) *= 1.0 + STEP;
                moved
            })
            .collect();
        let row = |lesson: &Lesson<'a>| {
            let here = lesson.residual(constants);
            let slope = |moved: &Constants| (lesson.residual(moved) - here) / (1.0 + STEP).ln();
            (lesson.run, here, moved.iter().map(slope).collect())
        };
        Self { rows: lessons.iter().map(row).collect() }
    }

    /// The constants at which the rows that `teach` are best met.
    fn fitted(&self, constants: &Constants, teach: impl Fn(&Run) -> bool) -> Constants {
        let rows: Vec<_> = self.rows.iter().filter(|(run, ..)| teach(run)).collect();
        let mut sources: BTreeMap<&str, f64> = BTreeMap::new();
        for (run, ..) in &rows {
            *sources.entry(&run.source).or_default() += 1.0;
        }
        let (count, source_count) = (rows.len() as f64, sources.len() as f64);
        let weight = |run: &Run| 0.5 + 0.5 * count / (source_count * sources[&*run.source]);
        let guess: Vec<f64> = Constants::FITTED
            .iter()
            .map(|(_, at)| (*at(&mut GUESS.clone()) / *at(&mut constants.clone())).ln())
            .collect();
        let n = guess.len();
        let mut moved = vec![0.0; n];
        for _ in 0..20 {
            let mut matrix = vec![vec![0.0; n + 1]; n];
            for (run, here, slopes) in &rows {
                let error: f64 = here + dot(slopes, &moved);
                let weight = weight(run) / error.abs().max(LINEAR_BEYOND);
                for i in 0..n {
                    for j in 0..n {
                        matrix[i][j] += weight * slopes[i] * slopes[j];
                    }
                    matrix[i][n] -= weight * slopes[i] * here;
                }
            }
            for i in 0..n {
                let hold = 1.0 / (GUESS_SPREAD * GUESS_SPREAD);
                matrix[i][i] += hold;
                matrix[i][n] += hold * guess[i];
            }
            moved = solve(matrix);
        }
        let mut fitted = *constants;
        for ((_, at), by) in Constants::FITTED.iter().zip(moved) {
            *at(&mut fitted) *= by.clamp(-1.0, 1.0).exp();
        }
        fitted
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Solves a symmetric, positive system by elimination; the right side is the last column.
fn solve(mut matrix: Vec<Vec<f64>>) -> Vec<f64> {
    let n = matrix.len();
    for column in 0..n {
        for row in column + 1..n {
            let factor = matrix[row][column] / matrix[column][column];
            let (above, below) = matrix.split_at_mut(row);
            for (value, pivot) in below[0].iter_mut().zip(&above[column]).skip(column) {
                *value -= factor * pivot;
            }
        }
    }
    let mut solution = vec![0.0; n];
    for row in (0..n).rev() {
        let known: f64 = (row + 1..n).map(|column| matrix[row][column] * solution[column]).sum();
        solution[row] = (matrix[row][n] - known) / matrix[row][row];
    }
    solution
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elimination_solves_a_positive_system() {
        let solution = solve(vec![vec![4.0, 1.0, 9.0], vec![1.0, 3.0, 5.0]]);
        assert!((solution[0] - 2.0).abs() < 1e-12 && (solution[1] - 1.0).abs() < 1e-12);
    }
}
