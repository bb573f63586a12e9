//! `shardlab search --here`: the fastest layouts of a scenario on this machine, and training with the
//! best one.

use serde_json::{Value, json};

use super::table::{LEGEND, Row, table};
use super::{PREDICTED, fates, front_lines, quoted, with_bar};
use crate::cli::args::{RunArgs, SearchArgs, TrainingArgs};
use crate::cli::clocks::Clocks;
use crate::cli::facts::summary_text;
use crate::cli::report::{Report, median_seconds};
use crate::cli::run::{self, Extras, Run};
use crate::cli::settings::Settings;
use crate::cli::text::{counted, in_charset, step_time};
use crate::cli::{Failure, Outcome, calibrated, output};
use crate::config::{ConfigError, Scenario};
use crate::exec::cores;
use crate::planner::{Purpose, StepSpec};
use crate::search::Cut;
use crate::search::here::{HereCandidate, HereFound, HereSearch};
use crate::trace::Badge;
use crate::train::{DeviceRequest, Options};

/// Runs the command.
///
/// # Errors
/// If the scenario makes no sense, the machine was not measured, no layout can be planned, or
/// training fails.
pub(super) fn run(args: &SearchArgs) -> Result<Outcome, Failure> {
    let settings = Settings::resolve(&run_args(args)?, |_| {})?;
    let calibration = calibrated::read(args.calibration.as_ref())?;
    let scenario = &settings.scenario;
    let ranks = args.ranks.unwrap_or_else(|| scenario.layout.mesh().size());
    if ranks == 0 {
        return Err(ConfigError::value("ranks", "is 0", "Give at least 1").into());
    }
    let spec = StepSpec {
        model: scenario.model.resolve()?,
        layout: scenario.layout.clone(),
        training: scenario.training.clone(),
        purpose: Purpose::Train,
        device_kinds: Vec::new(),
    };
    let search = HereSearch { spec: &spec, ranks, calibration: &calibration, threads: cores() };
    let found = with_bar(|tell| search.run(tell))?;
    let Some(best) = found.best.first() else {
        return if found.is_complete {
            Err(nothing_runs(scenario, ranks, &found).into())
        } else {
            Ok(Outcome::Interrupted)
        };
    };
    let answer = Answer {
        scenario,
        ranks,
        machine: &calibration.machine,
        workers: calibration.worker_count,
        found: &found,
        train: format!("shardlab train{} {}", said(args), flags(&best.cut, best)),
    };
    let trains = args.run && found.is_complete;
    match args.json {
        // One object: what was trained joins it.
        true if trains => return train_in_json(answer.json(), settings.clone(), best),
        true => output::print_json(&answer.json())?,
        false => output::print(&in_charset(&answer.text(), output::terminal().charset))?,
    }
    match (found.is_complete, args.run) {
        (false, _) => Ok(Outcome::Interrupted),
        (true, false) => Ok(Outcome::Success),
        (true, true) => train_in_words(settings.clone(), best),
    }
}

/// The flags that `train` knows too.
fn run_args(args: &SearchArgs) -> Result<RunArgs, ConfigError> {
    let model = args.model.as_deref();
    let training =
        TrainingArgs { steps: args.steps, ..TrainingArgs::of_words(model, args.batch, args.seq)? };
    Ok(RunArgs { scenario: args.scenario.clone(), training, ..RunArgs::default() })
}

/// Trains with the best layout on the cores that were measured.
fn train(settings: Settings, best: &HereCandidate, evaluate: Evaluate) -> Result<Run, Failure> {
    let scenario = Scenario { layout: best.layout.clone(), ..settings.scenario };
    let settings = Settings { scenario, ..settings };
    let options = Options { devices: DeviceRequest::cpu(), ..Options::default() };
    let session = run::open(settings, options, None)?;
    let extras = match evaluate {
        Evaluate::Yes => Extras { evaluate: true, marks: session.marks(), ..Extras::default() },
        Evaluate::No => Extras::default(),
    };
    run::train(session, extras)
}

/// Whether a held-out loss is told.
#[derive(Clone, Copy, Debug)]
enum Evaluate {
    Yes,
    No,
}

/// Trains and prints the search, joined by what `train --json` prints.
fn train_in_json(
    mut search: Value,
    settings: Settings,
    best: &HereCandidate,
) -> Result<Outcome, Failure> {
    let run = train(settings, best, Evaluate::No)?;
    let clocks = Clocks::of(&run);
    let predicted = Some(best.step_seconds);
    search["training"] = json!(Report::of(&run.session, &run.steps, clocks.as_ref(), predicted));
    output::print_json(&search)?;
    Ok(run.outcome())
}

/// Trains, and holds the prediction against what was measured.
fn train_in_words(settings: Settings, best: &HereCandidate) -> Result<Outcome, Failure> {
    let run = train(settings, best, Evaluate::Yes)?;
    let clocks = Clocks::of(&run);
    output::print(&summary_text(&run, clocks.as_ref(), None, Vec::new()))?;
    if let Some(measured) = median_seconds(&run.steps) {
        let predicted = best.step_seconds;
        output::print(&format!(
            "a step of the best: {}  {PREDICTED} · {}  {} (median of {})\n",
            step_time(predicted),
            step_time(measured),
            Badge::Measured.word(),
            run.steps.len()
        ))?;
    }
    Ok(run.outcome())
}

fn nothing_runs(scenario: &Scenario, ranks: u32, found: &HereFound) -> ConfigError {
    let most = found.refused.iter().max_by_key(|refused| refused.count);
    let example = most.map_or("", |refused| &refused.example);
    let count = found.counts.refused;
    let why = format!("all {count} layouts are refused, most as in: {example}");
    let remedy = "Use another number of --ranks, or a --batch that has more divisors";
    ConfigError::value(format!("{} on {}", scenario.name, counted(ranks, "rank")), why, remedy)
}

/// The scenario and the flags that were said, with a blank before each.
fn said(args: &SearchArgs) -> String {
    let scenario = args.scenario.as_ref().map(|path| quoted(&path.display().to_string()));
    let flags = [
        ("model", args.model.as_deref().map(quoted)),
        ("batch", args.batch.map(|batch| batch.to_string())),
        ("seq", args.seq.map(|seq| seq.to_string())),
        ("steps", args.steps.map(|steps| steps.to_string())),
    ];
    let mut words: String = scenario.map(|word| format!(" {word}")).unwrap_or_default();
    for (name, value) in flags {
        if let Some(value) = value {
            words += &format!(" --{name} {value}");
        }
    }
    words
}

/// The flags of `shardlab train` that ask for a layout.
fn flags(cut: &Cut, candidate: &HereCandidate) -> String {
    let Cut { tp, pp, dp, chunks, zero, recompute, schedule, .. } = cut;
    let sequence = if cut.sequence_parallel { "on" } else { "off" };
    let microbatches = candidate.layout.microbatches;
    format!(
        "--dp {dp} --tp {tp} --pp {pp} --chunks {chunks} --schedule {schedule} --zero {zero} \
         --microbatches {microbatches} --recompute {recompute} --sequence-parallel {sequence}"
    )
}

/// What is printed.
struct Answer<'a> {
    scenario: &'a Scenario,
    ranks: u32,
    machine: &'a str,
    workers: u32,
    found: &'a HereFound,
    train: String,
}

impl Answer<'_> {
    fn json(&self) -> Value {
        let HereFound { best, front, counts, refused, is_complete } = self.found;
        json!({
            "scenario": self.scenario.name,
            "ranks": self.ranks,
            "machine": self.machine,
            "workers": self.workers,
            "counts": counts,
            "refused": refused,
            "best": best,
            "front": front,
            "train": self.train,
            "complete": is_complete,
            "badges": {
                "counts": Badge::Counted,
                "step_seconds": Badge::Predicted,
                "memory_bytes": Badge::Counted,
            },
        })
    }

    fn text(&self) -> String {
        let Self { scenario, ranks, machine, workers, found, train } = self;
        let name = &scenario.name;
        let mut lines = vec![
            format!(
                "{name} on {} of this machine: {machine}, {}",
                counted(*ranks, "rank"),
                counted(*workers, "worker")
            ),
            String::new(),
            fates(&found.counts),
        ];
        let refusal = |count: u64, example: &str| format!("  {count:>9}  {example}");
        let refused = found.refused.iter();
        lines.extend(refused.map(|refused| refusal(refused.count, &refused.example)));
        lines.push(String::new());
        if !found.is_complete {
            lines.push("interrupted: the best so far".into());
        }
        let (count, badge) = (found.best.len(), Badge::Counted.word());
        lines.push(format!("the {count} fastest: memory of a rank {badge}, step  {PREDICTED}"));
        lines.push(LEGEND.into());
        lines.extend(table(&found.best));
        lines.push(String::new());
        lines.extend(front_lines(&found.front));
        lines.push(String::new());
        lines.push(format!("train the best: {train}"));
        lines.join("\n") + "\n"
    }
}

impl<'a> From<&'a HereCandidate> for Row<'a> {
    fn from(candidate: &'a HereCandidate) -> Self {
        let HereCandidate { cut, step_seconds, memory_bytes, .. } = candidate;
        Self { cut, seconds: *step_seconds, memory: memory_bytes.to_string(), mfu: None }
    }
}
