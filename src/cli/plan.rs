//! `shardlab plan`: what a step will do, without running it: schedule, bytes, memory, legality.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use serde::Serialize;
use serde_json::Value;

use super::args::PlanArgs;
use super::calibrated;
use super::output;
use super::picture;
use super::report::{self, BytesEntry, MemoryEntry};
use super::settings::Settings;
use super::text::titled;
use super::timetable;
use super::verify::layout_words;
use super::{Failure, Outcome};
use crate::config::{ConfigError, Layout, ScheduleName};
use crate::ledger::Ledger;
use crate::mesh::{Axis, Rank};
use crate::plan::{self, Plan, check, order};
use crate::planner::schedule::explain::Explanation;
use crate::planner::schedule::{Schedule, messages, named};
use crate::planner::{Purpose, StepSpec, plan_step};
use crate::predict::here::predict_plan;
use crate::trace::Badge;
use crate::train::check_memory;
use crate::units::Bytes;

/// Runs the command.
///
/// # Errors
/// If the layout cannot run.
pub fn run(args: &PlanArgs) -> Result<Outcome, Failure> {
    let settings = Settings::resolve(&args.run, |_| {})?;
    for note in &settings.notes {
        output::progress(format_args!("note: {note}"));
    }
    let scenario = settings.scenario;
    if let ScheduleName::File(path) = &scenario.layout.schedule {
        let waits = messages::waits(&std::fs::read_to_string(path).unwrap_or_default());
        if !waits.is_empty() {
            output::progress(format_args!(
                "note: the messages of {} would hang where sends wait for their receives: {}. Here \
                 they are planned anew",
                path.display(),
                waits.join("; ")
            ));
        }
    }
    if args.csv {
        // The schedule alone: a faulty file is printed as it was understood.
        output::print(&named::table(&scenario.layout)?.to_string())?;
        return Ok(Outcome::Success);
    }
    let spec = StepSpec {
        model: scenario.model.resolve()?,
        layout: scenario.layout.clone(),
        training: scenario.training.clone(),
        purpose: Purpose::Train,
        device_kinds: Vec::new(),
    };
    let plan = plan_step(&spec)?;
    if let Some(cap) = args.device_memory {
        check_memory(&plan, &spec, cap)?;
    }
    if args.text {
        output::print(&plan_text(&plan, args.rank)?)?;
        return Ok(Outcome::Success);
    }
    let schedule = named::table(&scenario.layout)?;
    let explanation = explained(&schedule);
    let predicted = args.predict.then(|| Predicted::of(&plan, args.calibration.as_ref()));
    let mut answer = Answer::of(&scenario.layout, &schedule, &explanation, &plan);
    if let Some(predicted) = predicted.transpose()? {
        answer.predict(predicted);
    }
    if let Some(path) = &args.svg {
        let title = format!("{}: {}", scenario.name, layout_words(&scenario.layout));
        picture::write(path, (&schedule, &explanation.times), &title)?;
    }
    if args.json {
        output::print_json(&answer)?;
    } else {
        let name = &scenario.name;
        let params = super::text::count(spec.model.parameter_count());
        let head = format!("{name}: {} · {params} params\n\n", layout_words(&scenario.layout));
        let terminal = output::terminal();
        let picture = timetable::draw(&schedule, &explanation.times, &terminal);
        let text = head + &answer.text(&picture, (&schedule, &explanation), &plan);
        output::print(&super::text::in_charset(&text, terminal.charset))?;
    }
    Ok(if answer.faults.is_empty() { Outcome::Success } else { Outcome::CheckFailed })
}

fn explained(schedule: &Schedule) -> Explanation {
    schedule.explain().expect("a planned schedule does not hang")
}

/// The whole Plan as text, or the lines of one rank.
fn plan_text(plan: &Plan, rank: Option<u32>) -> Result<String, ConfigError> {
    let text = plan::text::print(plan);
    let Some(rank) = rank else { return Ok(text) };
    let ranks = plan.mesh.size();
    if rank >= ranks {
        let remedy = format!("Use 0 to {}", ranks - 1);
        return Err(ConfigError::value("rank", format!("there are {ranks} ranks"), remedy));
    }
    // Buffers come with their pieces below them, programs with their instructions.
    let (buffer, program) = (format!("buffer {rank} "), format!("rank {rank}"));
    let mut keeps = true;
    let lines = text.lines().filter(|line| {
        if !line.starts_with(' ') {
            let of_rank = line.starts_with(&buffer) || *line == program;
            keeps = of_rank || line.starts_with("mesh") || line.starts_with("tensor");
        }
        keeps
    });
    Ok(lines.map(|line| format!("{line}\n")).collect())
}

/// The object that `plan --json` prints.
#[derive(Debug, Serialize)]
struct Answer {
    layout: Value,
    /// Cells of each pipeline position.
    schedule: Vec<Vec<String>>,
    /// The named schedule with these cells.
    known: Option<String>,
    /// From the first cell to the last in units: F 1, B 2, I 1, W 1.
    makespan: u64,
    /// The work of the busiest position in the same units.
    ideal: u64,
    bubble: Ratios,
    /// Textbook ratios of equal stages; `None` where none is known to be exact.
    formula: Option<Ratios>,
    /// Microbatches that each position has run forward but not backward, at the most: of all its
    /// stages together.
    in_flight_peaks: Vec<u32>,
    /// The same by stage.
    stage_peaks: Vec<u32>,
    bytes_per_step: BytesEntry,
    memory: Vec<MemoryEntry>,
    instructions: u64,
    /// Nodes of the step's graph: launches, copies and messages.
    nodes: usize,
    faults: Vec<String>,
    /// The step on this machine's cores, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    predicted: Option<Predicted>,
    badges: BTreeMap<&'static str, Badge>,
}

/// The step on a machine's cores.
#[derive(Clone, Debug, Serialize)]
struct Predicted {
    machine: String,
    workers: u32,
    step_seconds: f64,
}

impl Predicted {
    fn of(plan: &Plan, file: Option<&PathBuf>) -> Result<Self, Failure> {
        let calibration = calibrated::read(file)?;
        let step_seconds = predict_plan(plan, &calibration)?.end().as_secs();
        let (machine, workers) = (calibration.machine, calibration.worker_count);
        Ok(Self { machine, workers, step_seconds })
    }
}

/// The two ratios that are called bubble.
#[derive(Clone, Copy, Debug, Serialize)]
struct Ratios {
    waiting_over_span: f64,
    waiting_over_ideal: f64,
}

impl Answer {
    fn of(layout: &Layout, schedule: &Schedule, explanation: &Explanation, plan: &Plan) -> Self {
        let ledger = Ledger::of(plan);
        let Explanation { known, times, ideal, formula, row_peaks, stage_peaks } = explanation;
        let badges = [
            ("makespan", Badge::Formula),
            ("ideal", Badge::Formula),
            ("bubble", Badge::Formula),
            ("formula", Badge::Formula),
            ("in_flight_peaks", Badge::Counted),
            ("stage_peaks", Badge::Counted),
            ("bytes_per_step", Badge::Counted),
            ("memory", Badge::Counted),
            ("instructions", Badge::Counted),
        ];
        let cells = |row: &Vec<_>| row.iter().map(ToString::to_string).collect();
        Self {
            layout: report::layout_json(layout),
            schedule: schedule.rows.iter().map(cells).collect(),
            known: known.as_ref().map(ToString::to_string),
            makespan: times.span,
            ideal: *ideal,
            bubble: Ratios {
                waiting_over_span: times.waiting_over_span(),
                waiting_over_ideal: times.waiting_over_ideal(),
            },
            formula: formula.map(|formula| Ratios {
                waiting_over_span: formula.waiting_over_span(),
                waiting_over_ideal: formula.waiting_over_ideal(),
            }),
            in_flight_peaks: row_peaks.clone(),
            stage_peaks: stage_peaks.clone(),
            bytes_per_step: BytesEntry::of(&report::planned_crossings(&ledger), ledger.ranks.len()),
            memory: MemoryEntry::of(&ledger),
            instructions: ledger.instrs(),
            nodes: order::graph(plan, &order::derive(plan)).len(),
            faults: check::check(plan).iter().map(ToString::to_string).collect(),
            predicted: None,
            badges: badges.into(),
        }
    }

    fn predict(&mut self, predicted: Predicted) {
        self.predicted = Some(predicted);
        self.badges.insert("predicted", Badge::Predicted);
    }

    fn text(
        &self,
        picture: &[String],
        (schedule, explanation): (&Schedule, &Explanation),
        plan: &Plan,
    ) -> String {
        let mut lines = vec![titled("Schedule, B = 2 units, F, I and W 1", Badge::Formula)];
        lines.extend_from_slice(picture);
        lines.extend(self.explained(explanation));
        lines.push(String::new());
        lines.extend(self.positions(plan, schedule));
        lines.push(String::new());
        lines.extend(self.bytes(plan));
        lines.push(String::new());
        lines.extend(memory_table(&self.memory));
        lines.push(String::new());
        lines.push(titled(
            &format!("{} instructions on {} ranks", self.instructions, plan.mesh.size()),
            Badge::Counted,
        ));
        let (nodes, faults) = (self.nodes, &self.faults);
        lines.push(match faults.as_slice() {
            [] => format!("  cannot hang: {nodes} nodes, 0 faults"),
            _ => format!("  faulty: {nodes} nodes, {} faults", faults.len()),
        });
        lines.extend(faults.iter().map(|fault| format!("  {fault}")));
        if let Some(Predicted { machine, workers, step_seconds }) = &self.predicted {
            let cores = if *workers == 1 { "core" } else { "cores" };
            lines.push(String::new());
            lines.push(titled(
                &format!("A step on {workers} {cores} of {machine}"),
                Badge::Predicted,
            ));
            lines.push(format!("  {}", super::text::step_time(*step_seconds)));
        }
        lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
    }

    /// Which schedule it is, how long it takes on paper, and what the textbook says.
    fn explained(&self, explanation: &Explanation) -> Vec<String> {
        let percent = |ratio: f64| format!("{:.1} %", ratio * 100.0);
        let Explanation { known, times, formula, .. } = explanation;
        let known = known.as_ref().map(ScheduleName::title);
        let Ratios { waiting_over_span, waiting_over_ideal } = self.bubble;
        let mut lines = vec![
            format!("  this is {}", known.as_deref().unwrap_or("none of the known schedules")),
            format!(
                "  makespan {}, waiting/span {}, waiting/ideal {}",
                self.makespan,
                percent(waiting_over_span),
                percent(waiting_over_ideal)
            ),
        ];
        lines.extend(formula.map(|formula| {
            format!(
                "  formula {} = {}, {} = {}",
                formula.over_span,
                percent(formula.waiting_over_span()),
                formula.over_ideal,
                percent(formula.waiting_over_ideal())
            )
        }));
        let inside = times.waiting_inside();
        lines.push(format!(
            "  work of the busiest position {}; holes inside rows {inside}, of {} waiting",
            self.ideal, times.waiting
        ));
        lines
    }

    /// What each pipeline position holds, and how many microbatches it keeps at the most.
    fn positions(&self, plan: &Plan, schedule: &Schedule) -> Vec<String> {
        let mut lines = vec![titled("Pipeline positions", Badge::Counted)];
        for (position, peak) in (0..).zip(&self.in_flight_peaks) {
            let held = holds(plan, position);
            let kept = if *peak == 1 { "microbatch" } else { "microbatches" };
            let stages =
                (0..schedule.stage_count()).filter(|s| schedule.owner(*s) == Some(position));
            let each: Vec<String> = stages
                .map(|stage| format!("stage {stage} {}", self.stage_peaks[stage as usize]))
                .collect();
            let each =
                if each.len() > 1 { format!(" ({})", each.join(", ")) } else { String::new() };
            lines.push(format!("  p{position:<3} keeps {peak} {kept} at most{each}; {held}"));
        }
        lines
    }

    fn bytes(&self, plan: &Plan) -> Vec<String> {
        let BytesEntry { by_axis, by_rank, total } = &self.bytes_per_step;
        let axes = Axis::ALL.map(|axis| format!("{} {}", axis.word(), Bytes(by_axis[&axis])));
        let mut lines = vec![titled("Sent per step", Badge::Counted)];
        lines.push(format!("  {}   all {}", axes.join("   "), Bytes(*total)));
        // Ranks whose bytes read the same stand together, as in the table of memory.
        let each = by_rank.iter().map(|bytes| Bytes(*bytes).to_string());
        let each: Vec<(Rank, String)> = plan.mesh.ranks().zip(each).collect();
        for (ranks, bytes) in groups(&each) {
            lines.push(format!("  {ranks:<14} {bytes} each"));
        }
        lines
    }
}

/// The tensors of a pipeline position in a few words: `embedding, layers 0–1`.
fn holds(plan: &Plan, position: u32) -> String {
    let rank = plan.mesh.ranks().find(|rank| plan.mesh.coord(*rank).pp == position);
    let buffers = rank.into_iter().flat_map(|rank| plan.buffers_of(rank));
    let pieces = buffers.flat_map(|(_, decl)| &decl.pieces);
    let (mut layers, mut others) = (Vec::new(), Vec::new());
    for piece in pieces {
        let name = &plan.tensors[piece.tensor as usize].name;
        let layer = name.strip_prefix("model.layers.").and_then(|rest| rest.split('.').next());
        match layer.and_then(|layer| layer.parse::<u32>().ok()) {
            Some(layer) => layers.push(layer),
            None => others.push(name.clone()),
        }
    }
    layers.sort_unstable();
    layers.dedup();
    let mut parts = Vec::new();
    if others.iter().any(|name| name.contains("embed_tokens")) {
        parts.push("embedding".to_owned());
    }
    if !layers.is_empty() {
        let word = if layers.len() == 1 { "layer" } else { "layers" };
        parts.push(format!("{word} {}", ranges(&layers)));
    }
    if others.iter().any(|name| name == "model.norm.weight") {
        parts.push("head".to_owned());
    }
    parts.join(", ")
}

/// Items with equal values together, in the order of the first: `ranks 0–3`.
fn groups<T: PartialEq>(items: &[(Rank, T)]) -> Vec<(String, &T)> {
    let mut found: Vec<(Vec<u32>, &T)> = Vec::new();
    for (rank, value) in items {
        match found.iter_mut().find(|(_, other)| *other == value) {
            Some((ranks, _)) => ranks.push(rank.0),
            None => found.push((vec![rank.0], value)),
        }
    }
    let named = |(ranks, value): (Vec<u32>, _)| {
        let word = if ranks.len() == 1 { "rank" } else { "ranks" };
        (format!("{word} {}", ranges(&ranks)), value)
    };
    found.into_iter().map(named).collect()
}

/// Ascending numbers as ranges: `0–3, 6`.
fn ranges(numbers: &[u32]) -> String {
    let mut text = String::new();
    let mut rest = numbers;
    while let Some((&first, _)) = rest.split_first() {
        let run = rest.iter().zip(first..).take_while(|(number, next)| **number == *next).count();
        let comma = if text.is_empty() { "" } else { ", " };
        match run {
            1 => write!(text, "{comma}{first}"),
            _ => write!(text, "{comma}{first}–{}", rest[run - 1]),
        }
        .expect("a String takes everything");
        rest = &rest[run..];
    }
    text
}

/// Memory by role at the moment of the peak, of ranks that are equal as shown.
fn memory_table(memory: &[MemoryEntry]) -> Vec<String> {
    let most = memory.iter().map(|entry| entry.placed).max().unwrap_or_default();
    let (unit, size) = match most.0 {
        0..1_048_576 => ("KiB", 1u64 << 10),
        1_048_576..1_073_741_824 => ("MiB", 1 << 20),
        _ => ("GiB", 1 << 30),
    };
    let rows: Vec<(Rank, [String; 7])> = memory
        .iter()
        .map(|entry| {
            let values = [
                entry.weights,
                entry.gradients,
                entry.optimizer,
                entry.activations,
                entry.workspace,
                entry.peak,
                entry.placed,
            ];
            (entry.rank, values.map(|bytes| format!("{:.1}", bytes.0 as f64 / size as f64)))
        })
        .collect();
    let names = ["weights", "gradients", "optimizer", "activations", "workspace", "peak", "placed"];
    let line = |first: &str, words: &[String; 7]| {
        let cells = names.iter().zip(words).map(|(name, word)| {
            let width = name.len().max(5) + 2;
            format!("{word:>width$}")
        });
        format!("{first:<14}{}", cells.collect::<String>())
    };
    let mut lines = vec![titled(&format!("Memory at the live peak, {unit}"), Badge::Counted)];
    lines.push(line("", &names.map(str::to_owned)));
    lines.extend(groups(&rows).iter().map(|(ranks, row)| line(&format!("  {ranks}"), row)));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_ranks_stand_together() {
        let items: Vec<(Rank, u32)> =
            [7, 7, 7, 1, 7, 1].into_iter().zip(0..).map(|(v, r)| (Rank(r), v)).collect();
        let named: Vec<String> =
            groups(&items).into_iter().map(|(ranks, value)| format!("{ranks}: {value}")).collect();
        assert_eq!(named, ["ranks 0–2, 4: 7", "ranks 3, 5: 1"]);
        assert_eq!(ranges(&[4]), "4");
    }
}
