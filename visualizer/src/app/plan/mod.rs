//! Plan: a step on a cluster that one does not have, predicted while its sliders are moved.
//!
//! Here is what is wished and what has come of it; `wish` is the question, `foresee` answers it
//! beside the window, `here` says whether it can be trained, `pareto` what is better, `draw` lays the
//! workspace out, and `controls` its left side.

mod controls;
mod draw;
mod foresee;
mod here;
mod pareto;
mod wish;

use std::io;

use eframe::egui;
use shardlab::config::Scenario;
use shardlab::search::{Candidate, Cut};
use shardlab::trace::Span;
use shardlab::trace::draw::axis::TimeAxis;
use shardlab::trace::draw::timeline::{Arrows, Target};
use shardlab::units::{Nanos, grouped};

pub use self::foresee::Foreseen;
pub use self::wish::{Control, Refusal, Wish};

use self::foresee::Answer;
use self::here::Here;
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
    /// The nearest wish that can be, where this one cannot.
    way_out: Option<Wish>,
    /// The control that keys change.
    control: Control,
    worker: Latest<Wish, Answer>,
    answer: Option<Answer>,
    /// Why nothing can be asked.
    trouble: Option<String>,
    here: Here,
    pareto: Pareto,
    axis: TimeAxis,
    sight: Sight,
    part: TimelinePart,
    /// How far the controls are scrolled, in points.
    scroll: f32,
    /// Whether the chosen control is brought into sight with the next frame.
    reveals: Reveal,
}

/// Whether what is wished still changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    Changing,
    Settled,
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
            way_out: None,
            control: Control::Model,
            worker: Latest::new(foresee::foresee),
            answer: None,
            trouble: None,
            here: Here::default(),
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

    /// The predicted step of this wish; `None` where there is none, or none yet.
    pub fn foreseen(&self) -> Option<&Foreseen> {
        self.answer.as_ref().filter(|_| self.is_answered())?.outcome.as_ref().ok()
    }

    /// The step of what was wished before, while that of this wish is predicted.
    pub fn before(&self) -> Option<&Foreseen> {
        let is_asked = self.faults.is_empty() && !self.is_answered();
        self.answer.as_ref().filter(|_| is_asked)?.outcome.as_ref().ok()
    }

    /// Whether it is known what comes of this wish.
    fn is_answered(&self) -> bool {
        self.faults.is_empty() && self.answer.as_ref().is_some_and(|of| of.wish == self.wish)
    }

    /// The same cut of the model that is trained here.
    ///
    /// # Errors
    /// Why it cannot be trained.
    pub fn here(&self) -> Result<&Scenario, String> {
        match (self.faults.first(), self.wish.layout()) {
            (Some(fault), _) => Err(format!("{}: {}", fault.at.name(), fault.why)),
            (None, Some(_)) if self.wish.context > 1 => {
                Err("Ranks that share sequences are only predicted".into())
            }
            (None, Some(layout)) => self.here.scenario(&layout),
            (None, None) => Err("The step is still being predicted".into()),
        }
    }

    /// How many of the best layouts there are to choose from.
    ///
    /// # Errors
    /// Why there is none.
    pub fn best(&self) -> Result<usize, String> {
        self.pareto.offers().map_err(|why| match (why, self.faults.first()) {
            (Some(why), _) => why,
            (None, Some(fault)) => fault.sentence(),
            (None, None) => "The best layouts of these GPUs are still searched.".into(),
        })
    }

    /// Whether a prediction is under way.
    pub fn is_busy(&self) -> bool {
        self.worker.is_busy() || self.here.is_busy() || self.pareto.is_busy()
    }

    /// Whether the step is being predicted, whatever else is searched meanwhile.
    pub fn is_predicting(&self) -> bool {
        self.worker.is_busy() || self.here.is_busy()
    }

    /// The layouts that no other one beats in both time and memory, the fastest first; none while
    /// they are searched.
    pub fn front(&self) -> &[Candidate] {
        self.pareto.front()
    }

    /// Wishes what was kept.
    pub(super) fn wish_for(&mut self, wish: Wish) {
        self.wish = wish;
        self.look_at_wish();
    }

    /// Wishes a layout of the front.
    pub(super) fn take_cut(&mut self, cut: &Cut) {
        self.wish.take(cut);
        self.look_at_wish();
    }

    /// The next layout of the front, or the one before.
    ///
    /// # Errors
    /// Why there is none, as a sentence.
    pub(super) fn walk_front(&mut self, direction: Direction) -> Result<(), String> {
        self.best()?;
        if let Some(cut) = self.pareto.next(self.wish.cut().as_ref(), direction) {
            self.take_cut(&cut);
        }
        Ok(())
    }

    /// Wishes the nearest that can be, where this cannot.
    pub(super) fn mend(&mut self) {
        if let Some(wish) = self.way_out.take() {
            self.wish_for(wish);
        }
    }

    /// What cannot be of a wish that has changed, and how it could.
    fn look_at_wish(&mut self) {
        self.faults = self.wish.faults();
        self.way_out = self.wish.mended().filter(|_| !self.faults.is_empty());
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
        self.look_at_wish();
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
        if let Err(error) = self.ask_and_listen(ctx, scenario) {
            self.trouble = Some(error.to_string());
        }
    }

    fn ask_and_listen(&mut self, ctx: &egui::Context, scenario: &Scenario) -> io::Result<()> {
        let is_open = self.faults.is_empty() && !self.is_answered();
        let wanted = is_open.then(|| self.wish.clone());
        if self.worker.follow(ctx, wanted)? {
            self.trouble = None;
        }
        if let Some(answer) = self.worker.answer(ctx)? {
            self.take(answer);
        }
        // Of what is still changed nothing else is asked; of what cannot be there is nothing to
        // predict, but other cuts of it may well be.
        let is_settled = self.is_answered();
        let layout = self.wish.layout().filter(|_| is_settled && self.wish.context == 1);
        self.here.follow(ctx, (layout, scenario))?;
        let settled = is_settled || !self.faults.is_empty();
        let pace = if settled { Pace::Settled } else { Pace::Changing };
        self.pareto.follow(ctx, (&self.wish, pace))
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
            return fault.sentence();
        }
        if let Some(why) = &self.trouble {
            return format!("Nothing can be predicted: {why}.");
        }
        let answer = self.answer.as_ref().filter(|_| self.is_answered());
        match answer.map(|answer| &answer.outcome) {
            None => {
                let rest = if self.before().is_some() { " Grey: what was before." } else { "" };
                format!("Predicting {} …{rest}", self.wish.name())
            }
            Some(Err(why)) => format!("No step can be predicted: {why}."),
            Some(Ok(foreseen)) if !foreseen.fits() => format!(
                "The fullest stage needs {} of {}: cut more, shard more (ZeRO) or recompute.",
                foreseen.held.peak.0, foreseen.usable
            ),
            Some(Ok(_)) => "A row is a stage of equal ranks; this plan does not run. ↑ ↓ choose a \
                            control, ← → change it."
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
