//! Loss: how training goes, with its target and what was held out; steps are counted from 1.

use shardlab::trace::draw::curve::{Branch, Frame, Range, Series, Target, draw};
use shardlab::trace::draw::scene::Area;

use super::Panel;
use super::picture::{empty, picture};
use crate::board::Board;
use crate::keys::Action;
use crate::run::{Run, State};
use crate::shown::{Command, Shared};
use crate::texts;

/// The panel; keeps the curve as it grows, and what its axis reaches over.
#[derive(Debug, Default)]
pub(super) struct Loss {
    series: Series,
    /// The same steps on one rank, where one trains beside.
    one_rank: Series,
    /// What was trained before and left behind, and how often that had happened.
    left: (u32, Vec<(String, Series)>),
    /// How many losses of the run are in the curves, and which branch they are of.
    taken: [usize; 2],
    branch: u32,
    range: Option<Range>,
    /// The step under the pointer, counted from 1.
    hover: Option<u64>,
}

impl Panel for Loss {
    fn name(&self) -> &'static str {
        "Loss"
    }

    fn about(&self) -> &'static str {
        "The loss of every step, smoothed, held-out, and its target; click a step to see it."
    }

    fn clear(&mut self) {
        *self = Self::default();
    }

    fn show(&mut self, board: &mut Board<'_>, area: Area, shared: &Shared<'_>) -> Vec<Command> {
        let run = shared.run;
        self.follow(run);
        let is_empty = self.series.points().is_empty() && self.left.1.is_empty();
        if is_empty && run.held_out().is_empty() {
            let held = matches!(run.state(), State::Held);
            let train = ("Train", "Begins to train (Space).", Command::Do(Action::PlayPause));
            let text = "The loss of every trained step stands here";
            return empty(board, area, text, held.then_some(train));
        }
        let marks = run.facts().and_then(|facts| facts.marks);
        let left = self.left.1.iter();
        let branches: Vec<_> = left.map(|(name, series)| Branch { series, name }).collect();
        let mut frame = Frame {
            series: &self.series,
            held_out: run.held_out(),
            target: marks.map(|marks| Target { value: marks.pairs, name: "letter pairs" }),
            shown: shared.step.map(|step| step.number() + 1),
            hover: self.hover,
            steps: shared.scenario().training.steps,
            reference: (!self.one_rank.points().is_empty()).then_some(&self.one_rank),
            branches: &branches,
            unit: texts::loss_unit(marks),
            range: Range { low: 0.0, high: 1.0 },
        };
        frame.range = Range::holding(frame.values(), self.range);
        self.range = Some(frame.range);
        let (layout, pointer) =
            picture(board, (area, "loss"), |sketch, area| draw(sketch, area, &frame));
        let step =
            pointer.at.and_then(|at| layout.step_at(at)).filter(|step| *step <= run.trained());
        if let Some(step) = step {
            board.hint(frame.sentence(step));
        }
        self.hover = step;
        match step.and_then(|step| step.checked_sub(1)) {
            Some(step) if pointer.clicked => vec![Command::SeekStep(step)],
            _ => Vec::new(),
        }
    }
}

impl Loss {
    /// Takes over what the run has learned since the last frame.
    fn follow(&mut self, run: &Run) {
        if run.branch() != self.branch {
            *self = Self { branch: run.branch(), range: self.range, ..Self::default() };
        }
        let (times, left) = run.left();
        if self.left.0 != times {
            let series =
                |of: &[(u64, f64)]| of.iter().map(|(step, loss)| (step + 1, *loss)).collect();
            let left = left.iter().map(|left| (left.name.clone(), series(&left.losses)));
            self.left = (times, left.collect());
        }
        let (losses, differences) = (run.losses(), run.differences());
        for (step, loss) in &losses[self.taken[0]..] {
            self.series.push(step + 1, *loss);
        }
        for (step, difference) in &differences[self.taken[1]..] {
            self.one_rank.push(step + 1, difference.loss);
        }
        self.taken = [losses.len(), differences.len()];
        if let State::NotFinite { step, .. } = run.state() {
            self.series.push(step + 1, f64::NAN);
        }
    }
}
