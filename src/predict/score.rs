//! Predictions held against measured runs: errors by row, source and GPU, beside two baselines.
//!
//! An error is predicted/measured − 1. Rows that are not described count as 100 % in a second mean,
//! so that leaving out what is hard gains nothing. The baselines are given what a prediction is not:
//! one constant MFU for each (GPU, full recompute or not), and one for each source.

use std::collections::BTreeMap;

use serde::Serialize;

use super::published::{Run, Runs};
use super::{Prepared, memory, table};
use crate::sim::cost::Constants;

/// One row of the table.
#[derive(Clone, Debug, Serialize)]
pub struct ScoredRow {
    /// Its name.
    pub id: String,
    /// Where it was published.
    pub source: String,
    /// The GPU as printed.
    pub gpu: String,
    /// Whether it is fully specified and without doubt.
    pub core: bool,
    /// Predicted seconds; none if the row is not described.
    pub predicted_seconds: Option<f64>,
    /// Measured seconds.
    pub measured_seconds: Option<f64>,
    /// Predicted / measured − 1.
    pub error: Option<f64>,
    /// Why there is no prediction.
    pub skipped: Option<String>,
    /// What its source leaves in doubt; such rows are in no mean.
    pub flags: Vec<String>,
}

/// Means over some rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Mean of the absolute errors.
    pub mean_abs: f64,
    /// Their median.
    pub median_abs: f64,
    /// The largest.
    pub max_abs: f64,
    /// Mean of the errors: above 0, predictions are too slow.
    pub bias: f64,
    /// Rows with a prediction.
    pub count: usize,
    /// Rows without one.
    pub skipped: usize,
    /// Mean of the absolute errors if a row without a prediction counts as 100 %.
    pub mean_abs_skipped_as_one: f64,
    /// Mean over sources of their means.
    pub mean_abs_over_sources: f64,
}

/// Predicts all rows.
pub fn score(runs: &[Run], constants: &Constants) -> Vec<ScoredRow> {
    runs.iter().map(|run| scored(run, constants)).collect()
}

fn scored(run: &Run, constants: &Constants) -> ScoredRow {
    let (predicted_seconds, skipped) = match &run.described {
        Ok((workload, cluster)) => {
            (Some(Prepared::new(workload, cluster).seconds(constants)), None)
        }
        Err(why) => (None, Some(why.clone())),
    };
    let measured = Some(run.measured_seconds).filter(|seconds| seconds.is_finite());
    ScoredRow {
        id: run.id.clone(),
        source: run.source.clone(),
        gpu: run.gpu.clone(),
        core: run.core,
        error: predicted_seconds
            .zip(measured)
            .map(|(predicted, measured)| predicted / measured - 1.0),
        predicted_seconds,
        measured_seconds: measured,
        skipped,
        flags: run.flags.clone(),
    }
}

impl Summary {
    /// Of rows without doubt.
    pub fn of<'a>(rows: impl Iterator<Item = &'a ScoredRow> + Clone) -> Self {
        let counted = rows.filter(|row| row.flags.is_empty());
        let errors: Vec<f64> = counted.clone().filter_map(|row| row.error).collect();
        let skipped = counted.clone().count() - errors.len();
        let mut absolute: Vec<f64> = errors.iter().map(|error| error.abs()).collect();
        absolute.sort_by(f64::total_cmp);
        let mut sources: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for row in counted {
            if let Some(error) = row.error {
                sources.entry(&row.source).or_default().push(error.abs());
            }
        }
        let source_means: Vec<f64> = sources.values().map(|errors| mean(errors)).collect();
        let sum: f64 = absolute.iter().sum();
        Self {
            mean_abs: mean(&absolute),
            median_abs: median(&absolute),
            max_abs: absolute.last().copied().unwrap_or(0.0),
            bias: mean(&errors),
            count: errors.len(),
            skipped,
            mean_abs_skipped_as_one: (sum + skipped as f64)
                / (errors.len() + skipped).max(1) as f64,
            mean_abs_over_sources: mean(&source_means),
        }
    }
}

/// Absolute errors of one constant MFU for each (GPU, full recompute or not), taken from the other
/// sources: the row's own measurement is not in it. A GPU that no other source has takes the
/// constant of all GPUs.
pub fn constant_mfu(runs: &[&Run]) -> Vec<f64> {
    errors_of(runs, |run, other| {
        let same = run.gpu == other.gpu && run.full_recompute == other.full_recompute;
        (
            run.source != other.source && same,
            run.source != other.source && run.full_recompute == other.full_recompute,
        )
    })
}

/// Absolute errors of one constant MFU for each source, taken from all its rows: what a model that
/// knew nothing but the source would reach.
pub fn constant_of_source(runs: &[&Run]) -> Vec<f64> {
    errors_of(runs, |run, other| (run.source == other.source, run.source == other.source))
}

/// Errors of the median MFU of the rows that `teaches` gives a row: first choice, else second.
fn errors_of(runs: &[&Run], teaches: impl Fn(&Run, &Run) -> (bool, bool)) -> Vec<f64> {
    let error = |run: &&Run| {
        let own = run.mfu?;
        let of = |second: bool| {
            let mut known: Vec<f64> = runs
                .iter()
                .filter(|other| {
                    let (one, two) = teaches(run, other);
                    if second { two } else { one }
                })
                .filter_map(|other| other.mfu)
                .collect();
            known.sort_by(f64::total_cmp);
            known
        };
        let first = of(false);
        let known = if first.is_empty() { of(true) } else { first };
        // Time is inverse to MFU: predicted / measured = own / constant.
        (!known.is_empty()).then(|| (own / median(&known) - 1.0).abs())
    };
    runs.iter().filter_map(error).collect()
}

/// Means of absolute errors over rows and over sources.
pub fn two_means(runs: &[&Run], errors: &[f64]) -> (f64, f64) {
    let mut sources: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (run, error) in runs.iter().zip(errors) {
        sources.entry(&run.source).or_default().push(*error);
    }
    let means: Vec<f64> = sources.values().map(|errors| mean(errors)).collect();
    (mean(errors), mean(&means))
}

/// How predictions rank layouts of the same model and batch on the same cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Ranking {
    /// Groups of at least three rows with different times.
    pub groups: usize,
    /// Mean over groups of Kendall's rank correlation: 1 if all pairs are ordered as measured.
    pub correlation: f64,
    /// Groups whose predicted fastest layout is the measured one.
    pub best_found: usize,
}

/// Ranks within groups.
pub fn ranking(runs: &[Run], rows: &[ScoredRow]) -> Ranking {
    let mut groups: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for (run, row) in runs.iter().zip(rows) {
        if let (Some(predicted), true) = (row.predicted_seconds, row.flags.is_empty()) {
            groups.entry(&run.group).or_default().push((predicted, run.measured_seconds));
        }
    }
    let mut correlations = Vec::new();
    let mut best_found = 0;
    for pairs in groups.values().filter(|pairs| pairs.len() >= 3) {
        let (mut agree, mut all) = (0.0, 0.0);
        for (i, a) in pairs.iter().enumerate() {
            for b in &pairs[..i] {
                let order = (a.0 - b.0) * (a.1 - b.1);
                if order != 0.0 {
                    agree += order.signum();
                    all += 1.0;
                }
            }
        }
        if all > 0.0 {
            correlations.push(agree / all);
            let least = |by: fn(&(f64, f64)) -> f64| {
                pairs.iter().map(by).enumerate().min_by(|a, b| a.1.total_cmp(&b.1)).map(|(i, _)| i)
            };
            best_found += usize::from(least(|pair| pair.0) == least(|pair| pair.1));
        }
    }
    Ranking { groups: correlations.len(), correlation: mean(&correlations), best_found }
}

/// Whether what fits in memory is told apart from what does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Feasibility {
    /// Layouts that ran, of the sources that also tell which did not.
    pub ran: usize,
    /// Of these, predicted to fit.
    pub ran_right: usize,
    /// Layouts that ran out of memory.
    pub out: usize,
    /// Of these, predicted not to fit.
    pub out_right: usize,
}

impl Feasibility {
    /// The share that is right, over all.
    pub fn accuracy(&self) -> f64 {
        (self.ran_right + self.out_right) as f64 / (self.ran + self.out).max(1) as f64
    }
}

/// Predicts what fits, of layouts that ran out of memory and of those that ran in the same places.
pub fn feasibility(runs: &Runs) -> Feasibility {
    // Sources that print failures print their successes under another name.
    let places = ["Aleph Alpha", "BigScience tr11", "BLOOM"];
    let tells = |run: &&Run| places.iter().any(|place| run.source.starts_with(place));
    let fits = |run: &Run| {
        let (workload, cluster) = run.described.as_ref().ok()?;
        let table = table(workload, workload.batch.microbatches);
        Some(memory::fits(&memory::positions(workload, &table), cluster.gpu.memory_gb))
    };
    let ran: Vec<bool> = runs.rows.iter().filter(tells).filter_map(fits).collect();
    let out: Vec<bool> = runs.out_of_memory.iter().filter_map(fits).collect();
    Feasibility {
        ran: ran.len(),
        ran_right: ran.iter().filter(|fits| **fits).count(),
        out: out.len(),
        out_right: out.iter().filter(|fits| !**fits).count(),
    }
}

fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// The median of sorted values; of an even number the mean of the two in the middle.
fn median(sorted: &[f64]) -> f64 {
    match sorted.len() {
        0 => 0.0,
        n => f64::midpoint(sorted[(n - 1) / 2], sorted[n / 2]),
    }
}
