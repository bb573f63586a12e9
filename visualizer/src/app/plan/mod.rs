//! Plan: a step on a cluster that one does not have, predicted while its sliders are moved.
//!
//! Here is what is wished and what has come of it; `wish` is the question, `foresee` answers it
//! beside the window, `draw` lays the workspace out.

mod draw;
mod foresee;
mod pareto;
mod wish;

use eframe::egui;
use shardlab::config::Scenario;
use shardlab::search::{Candidate, Cut};
use shardlab::trace::Span;
use shardlab::trace::draw::axis::TimeAxis;
use shardlab::trace::draw::timeline::{Arrows, LONGEST, Target};
use shardlab::units::{Nanos, grouped};

pub use self::foresee::Foreseen;
pub use self::wish::{Control, Refusal, Wish};

use self::foresee::{Answer, Question};
use self::pareto::Pareto;
use super::timeline::TimelinePart;
use crate::latest::Latest;
use crate::play::Direction;
use crate::shown::{Command, Sight};

/// What is wished, and what would come of it.
#[derive(Debug)]
pub struct Planning {
    wish: Wish,
    faults: Vec<Refusal>,
    /// The control that keys change.
    control: Control,
    worker: Latest<Question, Answer>,
    /// What was asked last.
    asked: Option<Wish>,
    answer: Option<Answer>,
    /// Why nothing can be asked.
    trouble: Option<String>,
    pareto: Pareto,
    axis: TimeAxis,
    sight: Sight,
    part: TimelinePart,
    /// How far the controls are scrolled, in points.
    scroll: f32,
    /// Whether the chosen control is brought into sight with the next frame.
    reveals: Reveal,
}

/// Whether something is brought into sight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reveal {
    No,
    Next,
}

impl Default for Planning {
    fn default() -> Self {
        Self {
            wish: Wish::default(),
            faults: Vec::new(),
            control: Control::Model,
            worker: Latest::new(foresee::foresee),
            asked: None,
            answer: None,
            trouble: None,
            pareto: Pareto::default(),
            axis: TimeAxis::holding(Nanos(0)),
            sight: Sight::default(),
            part: TimelinePart::default(),
            scroll: 0.0,
            reveals: Reveal::No,
        }
    }
}

impl Planning {
    /// What is wished.
    pub fn wish(&self) -> &Wish {
        &self.wish
    }

    /// What cannot be of it.
    pub fn faults(&self) -> &[Refusal] {
        &self.faults
    }

    /// The control that keys change.
    pub fn control(&self) -> Control {
        self.control
    }

    /// The predicted step, of this wish or of one before it; `None` where there is none.
    pub fn foreseen(&self) -> Option<&Foreseen> {
        let answer = self.answer.as_ref().filter(|_| self.faults.is_empty())?;
        answer.outcome.as_ref().ok()
    }

    /// The same cut of the model that is trained here.
    ///
    /// # Errors
    /// Why it cannot be trained.
    pub fn here(&self) -> Result<&Scenario, &str> {
        match &self.answer {
            Some(answer) if answer.wish == self.wish => match &answer.here {
                Ok(scenario) => Ok(scenario),
                Err(why) => Err(why),
            },
            _ => Err("The step is still being predicted"),
        }
    }

    /// Whether a prediction is under way.
    pub fn is_busy(&self) -> bool {
        self.worker.is_busy() || self.pareto.is_busy()
    }

    /// Whether the step is being predicted, whatever else is searched meanwhile.
    pub fn is_predicting(&self) -> bool {
        self.worker.is_busy()
    }

    /// The layouts that no other one beats in both time and memory, the fastest first; none while
    /// they are searched.
    pub fn front(&self) -> &[Candidate] {
        self.pareto.front()
    }

    /// Wishes what was kept.
    pub(super) fn wish_for(&mut self, wish: Wish) {
        self.faults = wish.faults();
        self.wish = wish;
    }

    /// Wishes a layout of the front.
    pub(super) fn take_cut(&mut self, cut: &Cut) {
        self.wish.take(cut);
        self.faults = self.wish.faults();
    }

    /// The next layout of the front, or the one before.
    pub(super) fn walk_front(&mut self, direction: Direction) -> Option<Cut> {
        let cut = self.pareto.next(self.wish.cut().as_ref(), direction)?;
        self.take_cut(&cut);
        Some(cut)
    }

    /// Where the time axis ends.
    pub fn end(&self) -> Nanos {
        self.axis.end
    }

    /// What is chosen and pointed at in the predicted timeline.
    pub fn sight(&self) -> &Sight {
        &self.sight
    }

    /// The instant under the pointer.
    pub(super) fn under_pointer(&self) -> Option<Nanos> {
        self.part.under_pointer()
    }

    /// Another wish.
    pub(super) fn set(&mut self, control: Control, setting: usize) {
        self.control = control;
        self.wish.set(control, setting);
        self.faults = self.wish.faults();
    }

    /// Keys change this control from now on.
    pub(super) fn choose(&mut self, control: Control) {
        self.control = control;
    }

    /// The control below, or above.
    pub(super) fn choose_next(&mut self, direction: Direction) {
        let at = Control::ALL.iter().position(|control| *control == self.control);
        let at = moved(at.unwrap_or_default(), 1, direction);
        self.control = Control::ALL[at.min(Control::ALL.len() - 1)];
        self.reveals = Reveal::Next;
    }

    /// The chosen control, some settings on or back.
    pub(super) fn turn(&mut self, by: usize, direction: Direction) {
        let setting = moved(self.wish.setting(self.control), by, direction);
        self.set(self.control, setting);
        self.reveals = Reveal::Next;
    }

    /// Asks for the wish if that has not been done, and takes over what has come of the last one.
    pub(super) fn follow(&mut self, ctx: &egui::Context, scenario: &Scenario) {
        if self.faults.is_empty() && self.asked.as_ref() != Some(&self.wish) {
            self.asked = Some(self.wish.clone());
            let question = Question { wish: self.wish.clone(), scenario: scenario.clone() };
            self.trouble = self.worker.ask(ctx, question).err().map(|error| error.to_string());
        }
        match self.worker.answer(ctx) {
            Ok(Some(answer)) => self.take(answer),
            Ok(None) => {}
            Err(error) => self.trouble = Some(error.to_string()),
        }
        // Of what is still changed nothing is searched.
        let settled = self.answer.as_ref().map(|answer| &answer.wish);
        let settled = settled.filter(|wish| **wish == self.wish);
        if let Err(error) = self.pareto.follow(ctx, settled) {
            self.trouble = Some(error.to_string());
        }
    }

    fn take(&mut self, answer: Answer) {
        if let Ok(foreseen) = &answer.outcome {
            let end = foreseen.length();
            // A step that is a little shorter is seen to be shorter.
            if end > self.axis.end || end * 2 < self.axis.end {
                self.axis = TimeAxis::holding(end);
                self.sight.window = None;
            }
            let plan = foreseen.held.timeline.plan();
            let fits = |target: &Target| target.fits(plan);
            self.sight.selection = self.sight.selection.filter(fits);
            self.sight.hover = self.sight.hover.filter(fits);
        }
        self.answer = Some(answer);
    }

    /// Another run: what can be trained here is asked again.
    pub(super) fn forget_run(&mut self) {
        self.asked = None;
    }

    /// Which dependencies are drawn.
    pub(super) fn arrows(&mut self, arrows: Arrows) {
        self.sight.arrows = arrows;
    }

    /// Another part of the time in sight.
    pub(super) fn see(&mut self, window: Option<Span>) {
        self.sight.window = window;
    }

    /// The axis as short as the step allows.
    pub(super) fn shrink(&mut self) {
        if let Some(foreseen) = self.foreseen() {
            self.axis = TimeAxis::holding(foreseen.length());
        }
    }

    /// The time of what is chosen.
    pub(super) fn section(&self) -> Option<Span> {
        let target = self.sight.selection?;
        Some(self.foreseen()?.held.timeline.span(&target)?.1)
    }

    /// Clears the top-most thing alone.
    pub(super) fn escape(&mut self) {
        if self.sight.selection.is_some() {
            self.sight.selection = None;
        } else {
            self.sight.window = None;
        }
    }

    /// What was asked for in the timeline. `None`: it is done.
    pub(super) fn obey(&mut self, command: Command) -> Option<Command> {
        match command {
            Command::Hover(target) => self.sight.hover = target,
            Command::Select(target) => self.sight.selection = target,
            Command::Window(span) => self.see(span),
            Command::Unfold(position) => self.sight.unfold(position),
            Command::Scroll(points) => (self.sight.scroll, self.sight.reveal) = (points, None),
            // Nothing runs here that could be broken, repeated or put at an instant.
            Command::Menu(..) | Command::Mark(_) | Command::Seek(_) => {}
            other => return Some(other),
        }
        None
    }

    /// What is under the pointer in the timeline.
    pub(super) fn pointed_at(&self) -> Option<String> {
        Some(self.foreseen()?.held.timeline.explain(&self.sight.hover?))
    }

    /// What is chosen in the timeline.
    pub(super) fn chosen(&self) -> Option<String> {
        Some(self.foreseen()?.held.timeline.explain(&self.sight.selection?))
    }

    /// What the prediction is of: `1,024 GPUs of h100`.
    pub(super) fn machine(&self) -> String {
        format!("{} GPUs of {}", grouped(self.wish.gpus), self.wish.cluster)
    }

    /// What one sees, in one sentence.
    pub fn sentence(&self) -> String {
        if let Some(fault) = self.faults.first() {
            let whole = format!("{}: {}.", fault.at.name(), fault.why);
            // What to do stands at the control as well.
            let why = fault.why.split(". ").next().unwrap_or_default();
            let is_long = whole.chars().count() > LONGEST;
            return if is_long { format!("{}: {why}.", fault.at.name()) } else { whole };
        }
        if let Some(why) = &self.trouble {
            return format!("Nothing can be predicted: {why}.");
        }
        match self.answer.as_ref().map(|answer| &answer.outcome) {
            None => "The step is being predicted …".into(),
            Some(Err(why)) => format!("No step can be predicted: {why}."),
            Some(Ok(foreseen)) if !foreseen.fits() => format!(
                "The fullest stage needs {} of {}: cut more, shard more (ZeRO) or recompute.",
                foreseen.held.peak.0, foreseen.usable
            ),
            Some(Ok(_)) => "A row is a stage of equal ranks; nothing runs. ↑ ↓ choose a control, \
                            ← → change it."
                .into(),
        }
    }

    /// The step in words, with its numbers.
    pub(super) fn description(&self) -> Option<String> {
        let foreseen = self.foreseen()?;
        let step = Nanos((foreseen.step_seconds * 1e9) as u64);
        Some(format!(
            "{}: a step takes {step}, MFU {:.1} %, ranks wait {:.1} % (PREDICTED).",
            foreseen.held.name,
            100.0 * foreseen.mfu,
            100.0 * foreseen.held.waiting
        ))
    }
}

fn moved(at: usize, by: usize, direction: Direction) -> usize {
    match direction {
        Direction::Forward => at + by,
        Direction::Back => at.saturating_sub(by),
    }
}
