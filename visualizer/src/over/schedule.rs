//! A schedule from a file: drawn on paper, checked, explained, and offered to be trained.
//!
//! What is wrong with it is said here, all of it; what it is called, how much it waits and what it
//! keeps is the planner's explanation.

use std::path::{Path, PathBuf};

use shardlab::config::{Layout, Scenario, ScheduleName};
use shardlab::planner::schedule::csv;
use shardlab::planner::schedule::explain::Explanation;
use shardlab::planner::{Purpose, StepSpec, plan_step};
use shardlab::sim::textbook;
use shardlab::trace::Badge;
use shardlab::trace::draw::scene::{Area, Canvas, Sketch};
use shardlab::trace::draw::timeline::{Frame, MemoryColumn, Timeline, draw};
use shardlab::units::Nanos;

use crate::app::{Choice, Half};
use crate::board::{Board, Control, Style};
use crate::paint::Fonts;
use crate::shown::Command;

/// Height before scaling.
pub(super) const HEIGHT: f32 = 432.0;

/// A schedule that was opened.
#[derive(Debug)]
pub(super) struct Sheet {
    name: String,
    outcome: Result<Box<Checked>, Vec<String>>,
}

/// A schedule that can run.
#[derive(Debug)]
struct Checked {
    timeline: Timeline,
    lines: Vec<String>,
    /// A run with it, or why there is none.
    run: Result<Scenario, String>,
}

impl Sheet {
    /// Reads and checks a file, for the model that `scenario` trains.
    pub(super) fn open(path: &Path, scenario: &Scenario) -> Self {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Self { name, outcome: check(path, scenario).map(Box::new) }
    }

    pub(super) fn show(&self, board: &mut Board<'_>, area: Area) -> Vec<Command> {
        let look = board.look();
        let (heading, rest) = area.cut_top(look.gap(8));
        let title = format!("Schedule {}", self.name);
        board.write(heading, &title, Style::sized(look.heading()));
        match &self.outcome {
            Ok(checked) => checked.show(board, rest),
            Err(faults) => {
                let ink = look.theme.error;
                text(board, rest, faults, Style::default().ink(ink));
                Vec::new()
            }
        }
    }
}

impl Checked {
    fn show(&self, board: &mut Board<'_>, area: Area) -> Vec<Command> {
        let look = board.look();
        let (foot, rest) = area.cut_bottom(look.gap(9));
        let (picture, below) = rest.cut_top(rest.height * 0.6);
        let ctx = board.ctx().clone();
        let fonts = Fonts(&ctx);
        let canvas = Canvas { theme: &look.theme, measure: &fonts };
        let mut sketch = Sketch::new(canvas, picture);
        let frame = Frame {
            memory: MemoryColumn::Hidden,
            ..Frame::new(picture, (Nanos(0), self.timeline.end()), Badge::Formula)
        };
        draw(&mut sketch, &self.timeline, &frame);
        board.picture(&sketch.scene);
        text(board, below.cut_top(look.gap(2)).1, &self.lines, Style::default());
        let inner = foot.shrunk(0.0, look.gap(1) / 2.0);
        let (train, rest) = inner.cut_left(board.button_width("Train it"));
        let (compare, says) =
            rest.cut_left(look.gap(2)).1.cut_left(board.button_width("Compare it"));
        let run = match &self.run {
            Ok(run) => run,
            Err(why) => {
                text(
                    board,
                    inner,
                    std::slice::from_ref(why),
                    Style::default().ink(look.theme.error),
                );
                return Vec::new();
            }
        };
        let rows = format!("{} rows a step", run.training.batch);
        let style = Style::sized(look.small()).ink(look.theme.faint);
        board.write(says.cut_left(look.gap(3)).1, &rows, style);
        let hint = "Starts a new run of this model with the schedule.";
        if board.button(train, Control::text("train schedule", "Train it", hint)) {
            return vec![Command::Close, Command::Train(Box::new(run.clone()))];
        }
        let hint = "Lays a step with the schedule out below the shown one, without running it.";
        if board.button(compare, Control::text("compare schedule", "Compare it", hint)) {
            let choice = Choice::Layout(Box::new(run.layout.clone()));
            return vec![Command::Close, Command::Choose(Half::Lower, choice)];
        }
        Vec::new()
    }
}

/// Paragraphs below one another, as far as there is room.
fn text(board: &mut Board<'_>, area: Area, paragraphs: &[String], style: Style) {
    let look = board.look();
    let height = look.body() * 1.5;
    let mut rest = area;
    for paragraph in paragraphs {
        for line in board.lines(paragraph, look.body(), area.width) {
            if rest.height < height {
                return;
            }
            let (place, below) = rest.cut_top(height);
            rest = below;
            board.write(place, line, style);
        }
    }
}

fn check(path: &Path, scenario: &Scenario) -> Result<Checked, Vec<String>> {
    let unreadable = |error: std::io::Error| vec![format!("{}: {error}", path.display())];
    let file = std::fs::read_to_string(path).map_err(unreadable)?;
    let lines = |error: csv::CsvError| error.0.iter().map(ToString::to_string).collect::<Vec<_>>();
    let table = csv::parse(&file).map_err(lines)?;
    // Numbers from a file may be anything: one that leaves others out is a slip.
    let (stages, microbatches) = (table.meant_stage_count(), table.meant_microbatch_count());
    if stages == 0 {
        return Err(vec![
            "The file has no cells like 0F0 and 0B0, one row a pipeline position".into(),
        ]);
    }
    let faults = table.check(stages, microbatches);
    if !faults.is_empty() {
        return Err(faults.iter().map(ToString::to_string).collect());
    }
    let explanation =
        table.explain().ok_or_else(|| vec!["Its rows wait for one another".to_owned()])?;
    let positions = table.rows.len() as u32;
    let (timeline, lines) =
        (textbook::timeline(&table), explained(&explanation, positions, microbatches));
    let run = run(path.to_owned(), (positions, stages, microbatches), scenario);
    Ok(Checked { timeline, lines, run })
}

/// What there is to say about it.
fn explained(explanation: &Explanation, positions: u32, microbatches: u32) -> Vec<String> {
    let Explanation { known, times, formula, row_peaks, .. } = explanation;
    let known = known.as_ref().map_or("none of the known schedules".into(), ScheduleName::title);
    let waits = 100.0 * times.waiting_over_span();
    let formula = formula.map_or(String::new(), |formula| format!(" = {}", formula.over_span));
    let most = row_peaks.iter().max().copied().unwrap_or_default();
    let row = row_peaks.iter().position(|kept| *kept == most).unwrap_or_default();
    vec![
        format!("This is {known}: {positions} positions, {microbatches} microbatches."),
        format!("It takes {} units and waits {waits:.1} %{formula} of them (FORMULA).", times.span),
        format!("Position {row} keeps the most: activations of {most} microbatches at once."),
    ]
}

/// The scenario with the schedule; its batch is as large as the microbatches need.
fn run(
    path: PathBuf,
    (positions, stages, microbatches): (u32, u32, u32),
    scenario: &Scenario,
) -> Result<Scenario, String> {
    let path = std::path::absolute(&path).unwrap_or(path);
    let mut run = scenario.clone();
    run.layout = Layout {
        pp: positions,
        chunks: stages.div_ceil(positions),
        microbatches,
        schedule: ScheduleName::File(path),
        stage_units: None,
        ..scenario.layout.clone()
    };
    run.training.batch = run.training.batch.max(run.layout.dp.saturating_mul(microbatches));
    let spec = StepSpec {
        model: run.model.resolve().map_err(|error| error.to_string())?,
        layout: run.layout.clone(),
        training: run.training.clone(),
        purpose: Purpose::Evaluate,
        device_kinds: Vec::new(),
    };
    match plan_step(&spec) {
        Ok(_) => Ok(run),
        Err(error) => Err(format!("The model here cannot run it: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets;

    fn open(text: &str) -> Result<Box<Checked>, Vec<String>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.csv");
        std::fs::write(&path, text).unwrap();
        Sheet::open(&path, &presets::quickstart()).outcome
    }

    #[test]
    fn a_known_schedule_is_named_with_its_waiting_and_what_it_keeps() {
        let checked = open("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n").unwrap();
        assert_eq!(
            checked.lines,
            [
                "This is 1F1B: 2 positions, 2 microbatches.",
                "It takes 9 units and waits 33.3 % = (p−1)/(m+p−1) of them (FORMULA).",
                "Position 0 keeps the most: activations of 2 microbatches at once.",
            ]
        );
        let run = checked.run.unwrap();
        assert_eq!((run.layout.pp, run.layout.chunks, run.layout.microbatches), (2, 1, 2));
    }

    #[test]
    fn all_faults_are_told() {
        let faults = open("0F0,0B0\n1F0,1B0,1F1\n").unwrap_err();
        assert!(faults.iter().any(|fault| fault.contains("stage 0")), "{faults:?}");
        assert!(faults.iter().any(|fault| fault.contains("stage 1")), "{faults:?}");
        let cells = open("0F0,0X0,what\n").unwrap_err();
        assert_eq!(cells.len(), 2, "{cells:?}");
        assert!(cells[0].contains("`0X0` is not an action"), "{cells:?}");
        // A huge number is a fault and not a huge table.
        assert!(!open("4000000000F0,0B0\n").unwrap_err().is_empty());
        assert!(!open("\n").unwrap_err().is_empty());
    }

    #[test]
    fn more_positions_than_the_model_has_units_are_refused_in_words() {
        let rows: Vec<String> = (0..9).map(|stage| format!("{stage}F0,{stage}B0")).collect();
        let checked = open(&rows.join("\n")).unwrap();
        assert!(checked.run.unwrap_err().contains("stages need"), "it is refused");
    }
}
