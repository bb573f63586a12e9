//! `shardlab simulate --runs FILE`: every measured row predicted, with errors by source and GPU and
//! beside the two baselines.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};

use super::super::args::SimulateArgs;
use super::super::{Failure, Outcome, output};
use crate::config::ConfigError;
use crate::predict::fit::{Lesson, fit, leave_one_source_out};
use crate::predict::published::{Run, Runs};
use crate::predict::score::{
    ScoredRow, Summary, constant_mfu, constant_of_source, feasibility, ranking, score, two_means,
};
use crate::sim::cost::Constants;
use crate::trace::Badge;

/// Rounds of a fit: the third moves no constant by more than a percent.
const ROUNDS: u32 = 3;

pub(super) fn run(file: &Path, args: &SimulateArgs) -> Result<Outcome, Failure> {
    let text = std::fs::read_to_string(file).map_err(|source| ConfigError::File {
        path: file.to_owned(),
        source,
        remedy: "Give a file of measured runs".into(),
    })?;
    let runs = Runs::parse(&text, &file.display().to_string())?;
    let constants = Constants::default();
    let rows = score(&runs.rows, &constants);
    let answer = Answer::of(&runs, &rows);
    let left_out = args.leave_one_out.then(|| left_out(&runs));
    if args.json {
        output::print_json(&answer.json(&rows, left_out.as_ref()))?;
    } else {
        output::print(&answer.text(&rows, left_out.as_ref()))?;
    }
    Ok(Outcome::Success)
}

/// Errors with constants that were fitted without the row's own source.
#[derive(Clone, Debug, Serialize)]
struct LeftOutErrors {
    mean_abs: f64,
    mean_abs_over_sources: f64,
    by_source: BTreeMap<String, f64>,
}

fn left_out(runs: &Runs) -> LeftOutErrors {
    let lessons = Lesson::of(&core(&runs.rows));
    let fitted = fit(&lessons, &Constants::default(), ROUNDS);
    let sources = leave_one_source_out(&lessons, &fitted);
    let mean = |errors: &[f64]| {
        errors.iter().map(|error| error.abs()).sum::<f64>() / errors.len().max(1) as f64
    };
    let all: Vec<f64> = sources.iter().flat_map(|left| left.errors.clone()).collect();
    let by_source: BTreeMap<String, f64> =
        sources.iter().map(|left| (left.source.clone(), mean(&left.errors))).collect();
    let means: Vec<f64> = by_source.values().copied().collect();
    LeftOutErrors { mean_abs: mean(&all), mean_abs_over_sources: mean(&means), by_source }
}

fn core(rows: &[Run]) -> Vec<&Run> {
    rows.iter().filter(|run| run.core && run.flags.is_empty()).collect()
}

/// Everything beside the rows themselves.
struct Answer {
    all: Summary,
    core: Summary,
    by_source: BTreeMap<String, Summary>,
    by_gpu: BTreeMap<String, Summary>,
    baselines: Vec<(&'static str, (f64, f64))>,
    ranking: crate::predict::score::Ranking,
    memory: crate::predict::score::Feasibility,
}

impl Answer {
    fn of(runs: &Runs, rows: &[ScoredRow]) -> Self {
        let by = |key: fn(&ScoredRow) -> &str| {
            let names: std::collections::BTreeSet<&str> = rows.iter().map(key).collect();
            let summary = |name: &str| Summary::of(rows.iter().filter(|row| key(row) == name));
            names.into_iter().map(|name| (name.to_owned(), summary(name))).collect()
        };
        let core = core(&runs.rows);
        let baselines = [
            ("constant MFU by GPU and recompute, of other sources", constant_mfu(&core)),
            ("each source's own constant MFU", constant_of_source(&core)),
        ];
        Self {
            all: Summary::of(rows.iter()),
            core: Summary::of(rows.iter().filter(|row| row.core)),
            by_source: by(|row| &row.source),
            by_gpu: by(|row| &row.gpu),
            baselines: baselines.map(|(name, errors)| (name, two_means(&core, &errors))).into(),
            ranking: ranking(&runs.rows, rows),
            memory: feasibility(runs),
        }
    }

    fn json(&self, rows: &[ScoredRow], left_out: Option<&LeftOutErrors>) -> Value {
        let baseline = |(name, (rows, sources)): &(&str, (f64, f64))| json!({ "name": name, "mean_abs": rows, "mean_abs_over_sources": sources });
        json!({
            "rows": rows,
            "summary": self.all,
            "core": self.core,
            "by_source": self.by_source,
            "by_gpu": self.by_gpu,
            "baselines_on_core": self.baselines.iter().map(baseline).collect::<Vec<_>>(),
            "ranking": self.ranking,
            "memory": self.memory,
            "leave_one_source_out": left_out,
            "badges": { "predicted_seconds": Badge::Predicted, "measured_seconds": Badge::Measured },
        })
    }

    fn text(&self, rows: &[ScoredRow], left_out: Option<&LeftOutErrors>) -> String {
        let mut lines =
            vec![format!("{:<52}{:>12}{:>12}{:>9}", "row", "PREDICTED", "MEASURED", "error")];
        lines.extend(rows.iter().map(line));
        lines.push(String::new());
        let head = |title: &str| {
            format!(
                "{title:<52}{:>6}{:>9}{:>9}{:>9}{:>9}{:>9}",
                "rows", "mean", "median", "worst", "bias", "skipped"
            )
        };
        let summary = |name: &str, of: &Summary| {
            let errors = [of.mean_abs, of.median_abs, of.max_abs].map(percent);
            let errors = errors.into_iter().chain([signed(of.bias)]);
            // Nothing has no error.
            let errors = errors.map(|error| if of.count == 0 { "-".into() } else { error });
            let cells: String = errors.map(|error| format!("{error:>9}")).collect();
            format!("{:<52}{:>6}{cells}{:>9}", cut(name, 51), of.count, of.skipped)
        };
        lines.push(head("errors, predicted over measured"));
        lines.push(summary("all rows without a doubt", &self.all));
        lines.push(summary("core: fully specified, in 16 bits", &self.core));
        for (title, table) in [("by source", &self.by_source), ("by GPU", &self.by_gpu)] {
            lines.push(String::new());
            lines.push(head(title));
            lines.extend(table.iter().map(|(name, of)| summary(name, of)));
        }
        lines.push(String::new());
        lines.push(format!(
            "{:<60}{:>12}{:>14}",
            "core rows, mean error", "over rows", "over sources"
        ));
        let two = |name: &str, rows: f64, sources: f64| {
            format!("{name:<60}{:>12}{:>14}", percent(rows), percent(sources))
        };
        let core = &self.core;
        lines.push(two("prediction", core.mean_abs, core.mean_abs_over_sources));
        if let Some(left) = left_out {
            let name = "prediction, constants fitted without the source";
            lines.push(two(name, left.mean_abs, left.mean_abs_over_sources));
        }
        for (name, (rows, sources)) in &self.baselines {
            lines.push(two(name, *rows, *sources));
        }
        let skipped = percent(self.all.mean_abs_skipped_as_one);
        lines.push(format!("all rows, if one without a prediction counts 100 %: {skipped}"));
        let rank = &self.ranking;
        lines.push(format!(
            "ranking within {} groups of one model, batch and cluster: Kendall {:.2}, fastest found in {}",
            rank.groups, rank.correlation, rank.best_found
        ));
        let memory = &self.memory;
        lines.push(format!(
            "memory: {} of {} that ran are told to fit, {} of {} that did not are told not to",
            memory.ran_right, memory.ran, memory.out_right, memory.out
        ));
        lines.join("\n") + "\n"
    }
}

fn line(row: &ScoredRow) -> String {
    let seconds = |value: Option<f64>| value.map_or_else(|| "-".into(), |s| format!("{s:.3} s"));
    let end = match (&row.skipped, row.error) {
        (Some(why), _) => format!("  skipped: {why}"),
        (None, Some(error)) => format!("{:>9}", signed(error)),
        (None, None) => "        -".into(),
    };
    let doubt = if row.flags.is_empty() { "" } else { "  doubtful, in no mean" };
    format!(
        "{:<52}{:>12}{:>12}{end}{doubt}",
        cut(&row.id, 51),
        seconds(row.predicted_seconds),
        seconds(row.measured_seconds)
    )
}

/// The middle gives way: names of runs differ at their ends.
fn cut(text: &str, width: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        return text.to_owned();
    }
    let (head, tail) = ((width - 1) / 2, width / 2);
    let end: String = text.chars().skip(count - tail).collect();
    text.chars().take(head).collect::<String>() + "…" + &end
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn signed(share: f64) -> String {
    format!("{:+.1} %", 100.0 * share)
}
