//! Compare: two steps, one above the other on one time scale, and what the difference is.
//!
//! Here is what is compared and what is looked at in it; `held` is a step that is compared, `lay`
//! plans one that has not run, `choice` is what can be chosen, `words` says what one sees, `draw`
//! lays it out and `act` is what keys do.

mod act;
mod choice;
mod draw;
mod held;
mod lay;
mod words;

use std::sync::Arc;

use eframe::egui;
use shardlab::trace::draw::playback::slow_motion;
use shardlab::trace::draw::scene::Area;
use shardlab::trace::draw::shortest_forward;
use shardlab::trace::draw::timeline::Target;
use shardlab::trace::{Span, Trace};
use shardlab::units::Nanos;

pub use self::choice::{Choice, Choices, Half};
pub use self::held::Held;
pub use self::words::{Compared, Difference};

pub(super) use self::choice::{offered, offers};

use self::lay::{Answer, Question};
use super::axis::SteadyAxis;
use super::timeline::TimelinePart;
use crate::latest::Latest;
use crate::play::OnScreen;
use crate::shown::{Command, Sight, Step};

/// Pins that are kept; of more the oldest goes.
const PINS_MOST: usize = 6;

/// Two steps and how they are looked at.
#[derive(Debug)]
pub struct Compare {
    halves: [Shown; 2],
    pins: Vec<(u32, Arc<Held>)>,
    next_pin: u32,
    axis: SteadyAxis,
}

/// What there is to be compared.
#[derive(Clone, Debug)]
pub(super) struct Given<'a> {
    /// The step on the screen.
    pub(super) step: Option<&'a Step>,
    /// The same on the clock of the run.
    pub(super) measured: Option<Arc<Trace>>,
    /// The same as it is predicted for this machine, or why it is not; `None` while it is asked for.
    pub(super) predicted: Option<Result<Arc<Trace>, String>>,
}

/// One of the two.
#[derive(Debug)]
struct Shown {
    choice: Choice,
    state: State,
    /// Whether a layout has been asked for.
    is_asked: bool,
    sight: Sight,
    part: TimelinePart,
    worker: Latest<Question, Answer>,
    /// Where its name stood in the last frame: the list of choices hangs there.
    heading: Area,
}

/// What there is to see of a choice.
#[derive(Debug)]
enum State {
    /// It is being planned.
    Planning,
    /// It is here.
    Ready(Arc<Held>),
    /// It cannot be shown, and why.
    Refused(String),
}

impl Shown {
    fn new(choice: Choice) -> Self {
        Self {
            choice,
            state: State::Planning,
            is_asked: false,
            sight: Sight::default(),
            part: TimelinePart::default(),
            worker: Latest::new(lay::lay),
            heading: Area::default(),
        }
    }

    fn held(&self) -> Option<&Arc<Held>> {
        match &self.state {
            State::Ready(held) => Some(held),
            State::Planning | State::Refused(_) => None,
        }
    }
}

impl Default for Compare {
    fn default() -> Self {
        let Choices { above, below } = Choices::default();
        let halves = [above, below].map(Shown::new);
        Self { halves, pins: Vec::new(), next_pin: 0, axis: SteadyAxis::default() }
    }
}

impl Compare {
    /// What a half shows.
    pub fn choice(&self, half: Half) -> &Choice {
        &self.half(half).choice
    }

    /// The step that a half shows, if it is here.
    pub fn held(&self, half: Half) -> Option<&Arc<Held>> {
        self.half(half).held()
    }

    /// Why a half shows nothing, if it cannot.
    pub fn refusal(&self, half: Half) -> Option<&str> {
        match &self.half(half).state {
            State::Refused(why) => Some(why),
            State::Planning | State::Ready(_) => None,
        }
    }

    /// What is chosen and pointed at in a half.
    pub fn sight(&self, half: Half) -> &Sight {
        &self.half(half).sight
    }

    /// The difference of the two, once both are here.
    pub fn difference(&self) -> Option<Difference<'_>> {
        let [upper, lower] = Half::BOTH.map(|half| self.held(half));
        Some(Difference { upper: upper?, lower: lower? })
    }

    /// Where the common time axis ends.
    pub fn end(&self) -> Nanos {
        self.axis.axis().end
    }

    /// Whether something is being planned.
    pub fn is_busy(&self) -> bool {
        self.halves.iter().any(|half| half.worker.is_busy())
    }

    /// What was pinned: number and name, the newest first.
    pub fn pins(&self) -> Vec<(u32, String)> {
        self.pins.iter().rev().map(|(id, held)| (*id, held.name.clone())).collect()
    }

    fn half(&self, half: Half) -> &Shown {
        &self.halves[usize::from(half == Half::Lower)]
    }

    fn half_mut(&mut self, half: Half) -> &mut Shown {
        &mut self.halves[usize::from(half == Half::Lower)]
    }

    /// Where the name of a half stood in the last frame.
    pub(super) fn heading(&self, half: Half) -> Area {
        self.half(half).heading
    }

    /// Keeps a step, to be held against others.
    pub(super) fn pin(&mut self, held: Arc<Held>) {
        if self.pins.len() == PINS_MOST {
            self.pins.remove(0);
        }
        self.pins.push((self.next_pin, held));
        self.next_pin += 1;
    }

    /// Keeps what the pins hold and forgets the run: another one begins.
    pub(super) fn clear(&mut self) {
        let pins = std::mem::take(&mut self.pins);
        *self = Self { pins, next_pin: self.next_pin, ..Self::default() };
    }

    /// Shows something else in a half.
    pub(super) fn choose(
        &mut self,
        ctx: &egui::Context,
        (half, choice): (Half, Choice),
        given: &Given<'_>,
    ) {
        let pinned = |id: &u32| self.pins.iter().find(|(known, _)| known == id);
        let state = match &choice {
            Choice::Pinned(id) => match pinned(id) {
                Some((_, held)) => State::Ready(Arc::clone(held)),
                None => State::Refused("This pin is no longer kept. Choose another one".into()),
            },
            Choice::Measured | Choice::Replayed | Choice::Predicted | Choice::Layout(_) => {
                State::Planning
            }
        };
        let part = std::mem::take(&mut self.half_mut(half).part);
        *self.half_mut(half) = Shown { state, part, ..Shown::new(choice) };
        self.window(None);
        self.axis = SteadyAxis::default();
        self.lay_out(ctx, given.step);
        self.follow(given);
    }

    /// Asks for the layouts that are chosen, once there is a step whose times they can take.
    pub(super) fn lay_out(&mut self, ctx: &egui::Context, step: Option<&Step>) {
        let Some(Step { facts, recent, .. }) = step else { return };
        for shown in &mut self.halves {
            let Choice::Layout(layout) = &shown.choice else { continue };
            if std::mem::replace(&mut shown.is_asked, true) {
                continue;
            }
            let (facts, recent) = (Arc::clone(facts), recent.clone());
            let question = Question { layout: (**layout).clone(), facts, recent };
            if question.recent.is_empty() {
                shown.state = State::Refused("No step is known whose times it could take".into());
            } else if let Err(error) = shown.worker.ask(ctx, question) {
                shown.state = State::Refused(format!("It cannot be planned: {error}"));
            }
        }
    }

    /// What both halves show, as it is kept. Pins go with the window: in their place stands what a
    /// half shows at first.
    pub(super) fn choices(&self) -> Choices {
        let usual = Choices::default();
        let kept = |half: Half, usual: Choice| match self.choice(half) {
            Choice::Pinned(_) => usual,
            choice => choice.clone(),
        };
        Choices { above: kept(Half::Upper, usual.above), below: kept(Half::Lower, usual.below) }
    }

    /// Shows what was kept.
    pub(super) fn restore(&mut self, choices: Choices) {
        self.halves = [choices.above, choices.below].map(Shown::new);
    }

    /// The two change places.
    pub(super) fn swap(&mut self) {
        let [upper, lower] = &mut self.halves;
        std::mem::swap(upper, lower);
    }

    /// Takes over what was planned; whether there was anything.
    pub(super) fn listen(&mut self, ctx: &egui::Context) -> bool {
        let mut any = false;
        for shown in &mut self.halves {
            let answer = match shown.worker.answer(ctx) {
                Ok(answer) => answer,
                Err(error) => {
                    shown.state = State::Refused(format!("It cannot be planned: {error}"));
                    None
                }
            };
            let Some(Answer { layout, held }) = answer else { continue };
            if matches!(&shown.choice, Choice::Layout(wanted) if **wanted == layout) {
                shown.state = held.map_or_else(State::Refused, State::Ready);
                any = true;
            }
        }
        if any {
            self.hold_axis();
        }
        any
    }

    /// The step on the screen has changed, or what is compared.
    pub(super) fn follow(&mut self, given: &Given<'_>) {
        let Some(step) = given.step else { return };
        for shown in &mut self.halves {
            let held = match shown.choice {
                Choice::Measured => {
                    given.measured.as_ref().map(|trace| Held::measured(&step.facts, trace))
                }
                Choice::Replayed => Some(Held::replayed(step)),
                Choice::Predicted => match &given.predicted {
                    Some(Ok(trace)) => Some(Held::predicted(&step.facts, trace)),
                    Some(Err(why)) => {
                        shown.state = State::Refused(why.clone());
                        continue;
                    }
                    None => {
                        shown.state = State::Planning;
                        continue;
                    }
                },
                Choice::Pinned(_) | Choice::Layout(_) => continue,
            };
            shown.state = match held {
                Some(held) => State::Ready(Arc::new(held)),
                None => State::Refused("The measured times of this step are no longer kept".into()),
            };
        }
        self.hold_axis();
    }

    fn hold_axis(&mut self) {
        let longest = Half::BOTH.into_iter().filter_map(|half| self.held(half));
        if let Some(longest) = longest.map(|held| held.length()).max() {
            self.axis.hold(longest);
        }
    }

    /// What playback must know: the longer of the two is played.
    pub(super) fn on_screen(&self, step: u64) -> Option<OnScreen> {
        let helds: Vec<&Arc<Held>> =
            Half::BOTH.into_iter().filter_map(|half| self.held(half)).collect();
        let length = helds.iter().map(|held| held.length()).max()?;
        let shortest = helds.iter().filter_map(|held| {
            let ranks = held.timeline.ranks().iter();
            shortest_forward(ranks.flat_map(|rank| held.timeline.blocks(*rank)))
        });
        let slow_motion = slow_motion(length, shortest.min().unwrap_or(length));
        Some(OnScreen { step, length, slow_motion })
    }

    /// The part of the time that is as wide as both timelines.
    fn window(&mut self, window: Option<Span>) {
        self.halves.iter_mut().for_each(|shown| shown.sight.window = window);
    }

    /// Whether a block of one half is found in the other.
    fn has_one_plan(&self) -> bool {
        self.difference().is_some_and(|both| both.upper.has_plan_of(both.lower))
    }

    /// Changes how a half is looked at; both, where the rows of one are those of the other.
    fn each(&mut self, half: Half, mut change: impl FnMut(&mut Sight)) {
        let both = self.has_one_plan();
        let is_meant = |other: &Half| both || *other == half;
        for half in Half::BOTH.into_iter().filter(is_meant) {
            change(&mut self.half_mut(half).sight);
        }
    }

    /// What was asked for in one of the two timelines. `None`: it is done.
    pub(super) fn obey(&mut self, half: Half, command: Command) -> Option<Command> {
        let both = self.has_one_plan();
        let other = |target: Option<Target>| if both { target } else { None };
        match command {
            Command::Hover(target) => {
                self.half_mut(half).sight.hover = target;
                self.half_mut(half.other()).sight.hover = other(target);
            }
            Command::Select(target) => {
                self.half_mut(half).sight.selection = target;
                self.half_mut(half.other()).sight.selection = other(target);
            }
            Command::Window(span) => self.window(span),
            Command::Mark(span) => {
                self.halves.iter_mut().for_each(|shown| shown.sight.marked = span);
            }
            Command::Unfold(position) => self.each(half, |sight| sight.unfold(position)),
            Command::Scroll(points) => {
                self.each(half, |sight| (sight.scroll, sight.reveal) = (points, None));
            }
            // Nothing is broken in a picture of the past.
            Command::Menu(..) => {}
            other => return Some(other),
        }
        None
    }
}
