//! Numbers: what was counted, measured and replayed, beside what formulas say.

use shardlab::formulas;
use shardlab::mesh::Axis;
use shardlab::plan::Role;
use shardlab::trace::Trace;
use shardlab::trace::bubble::{Bubble, bubble};
use shardlab::trace::draw::numbers::{Frame, Row, Value, draw};
use shardlab::trace::draw::scene::Area;
use shardlab::units::Bytes;

use super::Panel;
use super::picture::{Prepared, before_first, picture};
use crate::board::{Board, Control};
use crate::shown::{Command, Shared, Step};
use crate::texts;

/// What a prediction for this machine is of.
const PREDICTED: &str = "PREDICTED is for this machine, where ranks take turns, as MEASURED.";

/// The panel; keeps which row is open and where the table begins.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    rows: Prepared<(bool, bool), Vec<Row>>,
    open: Option<usize>,
    hover: Option<usize>,
    first: usize,
    /// Turns of the wheel that have not yet made a row.
    turned: f32,
}

impl Panel for Numbers {
    fn name(&self) -> &'static str {
        "Numbers"
    }

    fn about(&self) -> &'static str {
        "Waiting, bytes and memory as they are, beside what formulas say; click a row to open it."
    }

    fn clear(&mut self) {
        *self = Self::default();
    }

    fn show(&mut self, board: &mut Board<'_>, area: Area, shared: &Shared<'_>) -> Vec<Command> {
        let Some(step) = shared.step else {
            return before_first(board, area, shared, "its numbers");
        };
        let measured = step.measured();
        let predicted = shared.predicted;
        let key = (measured.is_some(), predicted.is_some());
        let rows =
            self.rows.get(step, key, || rows(step, (measured.map(AsRef::as_ref), predicted)));
        let frame = Frame { open: self.open, hover: self.hover, first: self.first };
        let (layout, _) =
            picture(board, (area, "numbers"), |sketch, area| draw(sketch, area, rows, &frame));
        self.hover = None;
        for (line, index) in &layout.rows {
            let Some(row) = rows.get(*index) else { continue };
            let (id, text) = (format!("number {index}"), row.sentence());
            let response = board.interact(*line, Control::text(&id, "", &text));
            if response.hovered() || response.has_focus() {
                self.hover = Some(*index);
            }
            if response.clicked() {
                self.open = if self.open == Some(*index) { None } else { Some(*index) };
                if let Some(text) = row.copied() {
                    board.ctx().copy_text(text);
                }
            }
        }
        let wheel = match board.is_over(area) {
            true => board.ctx().input(|input| input.smooth_scroll_delta.y),
            false => 0.0,
        };
        self.scroll(wheel, layout.more_from.is_some());
        Vec::new()
    }
}

impl Numbers {
    fn scroll(&mut self, wheel: f32, has_more: bool) {
        const ROW: f32 = 24.0;
        self.turned = if wheel == 0.0 { 0.0 } else { self.turned - wheel };
        while self.turned >= ROW {
            self.turned -= ROW;
            self.first += usize::from(has_more);
        }
        while self.turned <= -ROW {
            self.turned += ROW;
            self.first = self.first.saturating_sub(1);
        }
    }
}

/// All rows of a step.
fn rows(step: &Step, (measured, predicted): (Option<&Trace>, Option<&Trace>)) -> Vec<Row> {
    let facts = &step.facts;
    let waits = |trace: Option<&Trace>| trace.map(|trace| bubble(&facts.plan, trace));
    let mut rows = waiting(step, [waits(measured), waits(predicted)]);
    rows.extend(speed(step, measured, predicted));
    let (model, scenario) = (&facts.model, &facts.scenario);
    let (layout, training) = (&scenario.layout, &scenario.training);
    for axis in Axis::ALL {
        let counted = Some(Value::Bytes(facts.ledger.bytes_on(axis)));
        let formula = Some(formulas::bytes(axis, model, layout, training));
        rows.push(Row { counted, formula, ..Row::new(format!("sent, {}", axis.word())) });
    }
    for role in Role::ALL {
        let held: Bytes = facts.ledger.ranks.iter().map(|rank| rank.memory.at_peak[role]).sum();
        let formula = formulas::memory(role, model, layout, training);
        let counted = Some(Value::Bytes(held));
        rows.push(Row {
            counted,
            formula,
            ..Row::new(format!("{role}, all ranks at their peaks"))
        });
    }
    let counted = Some(Value::Count(facts.ledger.instrs()));
    rows.push(Row { counted, ..Row::new("instructions") });
    rows
}

/// The two ratios that are called bubble, and idle time.
fn waiting(step: &Step, [measured, predicted]: [Option<Bubble>; 2]) -> Vec<Row> {
    let layout = &step.facts.scenario.layout;
    let has_formula = texts::formula(layout).is_some() && layout.pp > 1;
    let [span, ideal] = formulas::pipeline_waiting(layout.pp, layout.microbatches)
        .map(|formula| has_formula.then_some(formula));
    let share = |of: fn(&Bubble) -> f64| {
        let [measured, predicted] = [&measured, &predicted]
            .map(|bubble| bubble.as_ref().map(|bubble| Value::Share(of(bubble))));
        (measured, predicted, Some(Value::Share(of(&step.bubble))))
    };
    let row = |name: &str, (measured, predicted, replayed), formula, note: &str| Row {
        measured,
        predicted,
        replayed,
        formula,
        note: Some(note.into()),
        ..Row::new(name)
    };
    let rest = "The formula has equal stages, links that take no time, and one rank a stage.";
    vec![
        row("waiting/span", share(|bubble| bubble.waiting_over_span), span, rest),
        row("waiting/ideal", share(|bubble| bubble.waiting_over_ideal), ideal, rest),
        row(
            "idle of the step",
            share(|bubble| bubble.idle_of_step),
            None,
            "All of the step, also after the last backward.",
        ),
    ]
}

/// How long the step takes, and tokens a second.
fn speed(step: &Step, measured: Option<&Trace>, predicted: Option<&Trace>) -> [Row; 2] {
    let training = &step.facts.scenario.training;
    let tokens = f64::from(training.batch) * f64::from(training.seq);
    let ends = [measured.map(Trace::end), predicted.map(Trace::end), Some(step.timeline.end())];
    let [measured, predicted, replayed] = ends.map(|end| end.filter(|end| end.0 > 0));
    let rate = |end: shardlab::units::Nanos| Value::PerSecond(tokens / end.as_secs());
    [
        Row {
            measured: measured.map(Value::Time),
            predicted: predicted.map(Value::Time),
            replayed: replayed.map(Value::Time),
            note: predicted.map(|_| PREDICTED.into()),
            ..Row::new("length of the step")
        },
        Row {
            measured: measured.map(rate),
            predicted: predicted.map(rate),
            replayed: replayed.map(rate),
            ..Row::new("tokens")
        },
    ]
}
