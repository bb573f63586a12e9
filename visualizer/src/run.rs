//! A training run as the window knows it: what a driver has told so far.
//!
//! [`Run`] only takes events over and leaves commands; it never waits for training. The last steps
//! are kept whole, so that they can be shown again; of all others the loss stays.

use std::collections::VecDeque;
use std::sync::Arc;

use shardlab::config::Scenario;
use shardlab::exec::{Delays, NonFinite, Progress};
use shardlab::mesh::Rank;
use shardlab::sim;
use shardlab::trace::Trace;
use shardlab::trace::captured::Captured;
use shardlab::train::Options;
use shardlab::train::driver::{
    Begin, Beside, Difference, Driver, Event, Explained, Facts, Fork, Place, Setup, Stepped,
};
use shardlab::train::faults::{Fault, Unsent};
use shardlab::units::Bytes;

use crate::play::Steps;

/// Steps over which the replayed clock takes its medians.
pub(crate) const MEDIAN_OVER: usize = 16;
/// Steps that are kept whole at most, and how much their spans may take.
const KEPT_MOST: usize = 200;
const KEPT_BYTES: usize = 96 << 20;
/// Steps that a run which has trained all of its own goes on, when something is broken in it.
const STEPS_BROKEN: u64 = 24;

/// Curves of earlier runs and branches that are kept.
const KEPT_LEFT: usize = 2;

/// Losses of steps that were trained and are not of this run: of the run before it, or of those that
/// it went back over.
#[derive(Clone, Debug)]
pub struct Left {
    /// What they are of.
    pub name: String,
    /// `(step, loss)`.
    pub losses: Vec<(u64, f64)>,
}

/// How a run stands.
#[derive(Clone, Debug)]
pub enum State {
    /// It is being prepared; what is done just now.
    Starting(Progress),
    /// Steps follow one another.
    Training,
    /// It waits to be told to go on.
    Held,
    /// All steps are trained.
    Done,
    /// A step had a number that is not finite, and changed nothing.
    NotFinite {
        /// Which step, 0-based.
        step: u64,
        /// The first such number.
        first: Option<Box<NonFinite>>,
    },
    /// A step does not end.
    Hang {
        /// Which step, 0-based.
        step: u64,
        /// Who waits for what, one line a rank.
        report: Vec<String>,
        /// The messages that are never sent; none where ranks wait in a circle.
        unsent: Vec<Unsent>,
    },
    /// It cannot go on, or could not start.
    Failed(Explained),
}

impl State {
    /// Whether no step follows.
    pub fn has_failed(&self) -> bool {
        matches!(self, Self::NotFinite { .. } | Self::Hang { .. } | Self::Failed(_))
    }
}

/// A run and all that is known of it.
#[derive(Debug)]
pub struct Run {
    driver: Option<Driver>,
    scenario: Scenario,
    facts: Option<Arc<Facts>>,
    state: State,
    /// The last steps, ascending and without holes.
    traces: VecDeque<Arc<Trace>>,
    /// What a rank may hold.
    memory_cap: Option<Bytes>,
    /// Ranks and links that are slow on purpose.
    delays: Delays,
    /// The first step that ran as the run is now: with this Plan, and ranks and links as slow as now.
    same_since: u64,
    /// `(step, loss)` of all steps.
    losses: Vec<(u64, f64)>,
    /// What was left behind, the newest first, and how often that has happened.
    left: (u32, Vec<Left>),
    /// `(steps trained before, loss)` over the held-out text.
    held_out: Vec<(u64, f64)>,
    /// How far steps are from one rank that trains beside.
    differences: Vec<(u64, Difference)>,
    /// The branch of the last one.
    compared_in: u32,
    /// Steps that are trained beyond the last one for what was broken or mended to be seen, if none is
    /// left; and the branch in which that was asked for.
    owed: u64,
    owed_after: u32,
    /// Grows each time that the run goes back.
    branch: u32,
    /// The states that can be gone back to.
    forks: Vec<Fork>,
    /// The collective that was opened last.
    captured: Option<Arc<Captured>>,
    /// Why the CPU trains instead of what was asked for.
    fell_back: Option<Explained>,
    /// What was asked of the driver last.
    wants_to_train: bool,
}

impl Run {
    /// Starts a run on a thread of its own; `wake` is called when there is something new. It trains
    /// the `first` steps and holds, or all of the scenario. Where something is broken on purpose, one
    /// rank trains beside.
    pub fn start(
        scenario: Scenario,
        options: Options,
        first: Option<u64>,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let beside = beside(&options.faults);
        let mut run = Self::told(scenario.clone()).capped(options.exec.memory_cap);
        let begin = if first.is_some() { Begin::Paused } else { Begin::Playing };
        match Driver::start(Setup { begin, ..Setup::new(scenario, options) }, wake) {
            Ok(driver) => {
                if beside != Beside::Nothing {
                    driver.set_beside(beside);
                }
                if let Some(steps) = first {
                    driver.train_more(steps);
                }
                run.driver = Some(driver);
            }
            Err(error) => {
                run.state = State::Failed(Explained {
                    what: "training cannot start".into(),
                    why: error.to_string(),
                    remedy: "Close other programs and start again".into(),
                });
            }
        }
        run
    }

    /// A run that is told by whoever calls [`Run::absorb`]: recorded steps.
    pub fn told(scenario: Scenario) -> Self {
        Self {
            driver: None,
            scenario,
            facts: None,
            state: State::Starting(Progress::Planning),
            traces: VecDeque::new(),
            memory_cap: None,
            delays: Delays::default(),
            losses: Vec::new(),
            left: (0, Vec::new()),
            held_out: Vec::new(),
            differences: Vec::new(),
            compared_in: 0,
            owed: 0,
            owed_after: 0,
            branch: 0,
            forks: Vec::new(),
            captured: None,
            fell_back: None,
            same_since: 0,
            wants_to_train: true,
        }
    }

    /// The same, where a rank may hold so much.
    #[must_use]
    pub fn capped(self, memory_cap: Option<Bytes>) -> Self {
        Self { memory_cap, ..self }
    }

    /// What is trained.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// All that does not change from step to step; `None` until the run is ready.
    pub fn facts(&self) -> Option<&Arc<Facts>> {
        self.facts.as_ref()
    }

    /// What a rank may hold, if that is bounded.
    pub fn memory_cap(&self) -> Option<Bytes> {
        self.memory_cap
    }

    /// How it stands.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// `(step, loss)` of all steps.
    pub fn losses(&self) -> &[(u64, f64)] {
        &self.losses
    }

    /// `(steps trained before, loss)` over the held-out text.
    pub fn held_out(&self) -> &[(u64, f64)] {
        &self.held_out
    }

    /// How far steps are from one rank that trained beside: `(step, difference)`.
    pub fn differences(&self) -> &[(u64, Difference)] {
        &self.differences
    }

    /// How far the newest step is from one rank: its loss and the difference. `None` where no step
    /// was compared since the run has gone back or was broken.
    pub fn beside(&self) -> Option<(u64, f64, Difference)> {
        let (step, difference) = self.differences.last()?;
        let (newest, loss) = self.losses.last()?;
        (self.compared_in == self.branch && step == newest).then_some((*step, *loss, *difference))
    }

    /// Another number each time that the run has gone back: what was taken from it before may be
    /// gone.
    pub fn branch(&self) -> u32 {
        self.branch
    }

    /// Why the CPU trains instead of what was asked for.
    pub fn fell_back(&self) -> Option<&Explained> {
        self.fell_back.as_ref()
    }

    /// The numbers of the collective to which an instruction of a rank belongs, if it is the one
    /// that was opened last.
    pub fn captured(&self, at: (Rank, u32)) -> Option<&Arc<Captured>> {
        let origin =
            self.facts()?.plan.programs.get(at.0.index())?.instrs.get(at.1 as usize)?.origin;
        let is_same = |captured: &&Arc<Captured>| {
            captured.members.contains(&at.0)
                && (Some(captured.collective), Some(captured.axis))
                    == (origin.collective, origin.axis)
        };
        self.captured.as_ref().filter(is_same)
    }

    /// Steps that are trained.
    pub fn trained(&self) -> u64 {
        self.losses.last().map_or(0, |(step, _)| step + 1)
    }

    /// The steps that can be shown.
    pub fn steps(&self) -> Steps {
        Steps {
            oldest: self.traces.front().map_or(0, |trace| trace.step),
            newest: self.traces.back().map(|trace| trace.step),
        }
    }

    /// The first step that ran as the run is now.
    pub fn same_since(&self) -> u64 {
        self.same_since
    }

    /// A step as it was measured.
    pub fn measured(&self, step: u64) -> Option<&Arc<Trace>> {
        let first = self.traces.front()?.step;
        self.traces.get(usize::try_from(step.checked_sub(first)?).ok()?)
    }

    /// A step laid out as if every rank had its own device, by the medians of the steps up to it.
    pub fn replayed(&self, step: u64) -> Option<Trace> {
        let facts = self.facts.as_ref()?;
        let recent = self.recent(step);
        let recent: Vec<&Trace> = recent.iter().map(AsRef::as_ref).collect();
        recent.last()?;
        let wires = sim::Wires::free().with_slow(&self.delays.links);
        Some(sim::replay_medians(&facts.plan, &facts.graph, &recent, &wires))
    }

    /// A step and those before it whose medians are taken, as they were measured; none if the step
    /// is no longer known.
    pub fn recent(&self, step: u64) -> Vec<Arc<Trace>> {
        let first = self.traces.front().map_or(0, |trace| trace.step);
        let index = step.checked_sub(first).and_then(|index| usize::try_from(index).ok());
        let Some(index) = index.filter(|index| *index < self.traces.len()) else {
            return Vec::new();
        };
        let from = (index + 1).saturating_sub(MEDIAN_OVER);
        // Medians are of steps of one kind: not of those before a rank became slow.
        let kind = |step: u64| step >= self.same_since;
        let recent = self.traces.range(from..=index);
        recent.filter(|trace| kind(trace.step) == kind(step)).cloned().collect()
    }

    /// Takes over what has been told since the last call; whether there was anything.
    pub fn listen(&mut self) -> bool {
        let events: Vec<Event> = match &self.driver {
            Some(driver) => std::iter::from_fn(|| driver.next_event()).collect(),
            None => Vec::new(),
        };
        let any = !events.is_empty();
        for event in events {
            self.absorb(event);
        }
        any
    }

    /// Takes over one event.
    pub fn absorb(&mut self, event: Event) {
        match event {
            Event::Starting(progress) => self.state = State::Starting(progress),
            Event::Ready(facts) => {
                self.scenario = facts.scenario.clone();
                self.delays = facts.delays.clone();
                self.facts = Some(facts);
                self.traces.clear();
                self.captured = None;
                self.changed();
            }
            Event::Step(step) => self.stepped(step),
            Event::HeldOut { trained, loss } => self.held_out.push((trained, loss)),
            Event::Playing => self.state = State::Training,
            Event::Paused => {
                // A pause that follows a failure does not make it well.
                if matches!(self.state, State::Starting(_) | State::Training | State::Done) {
                    self.state = State::Held;
                }
            }
            Event::Done { .. } if self.owed > 0 => {
                if let Some(driver) = &self.driver {
                    driver.train_more(std::mem::take(&mut self.owed));
                }
            }
            Event::Done { trained } => {
                // Fewer steps than the scenario has were asked for.
                let all = trained >= self.scenario.training.steps;
                self.state = if all { State::Done } else { State::Held };
            }
            Event::NotFinite { step, first } => self.state = State::NotFinite { step, first },
            Event::Hang { step, report } => {
                let facts = self.facts.as_ref();
                let unsent =
                    facts.map(|facts| Unsent::all(&facts.plan, &facts.order, &facts.graph));
                self.state = State::Hang { step, report, unsent: unsent.unwrap_or_default() };
            }
            Event::DeviceFellBack { why } => self.fell_back = Some(why),
            // What failed first is why all that follows fails.
            Event::Failed(_) if matches!(self.state, State::Failed(_)) => {}
            Event::Failed(why) => self.state = State::Failed(why),
            Event::WentBack { to, branch } => {
                self.branch = branch;
                match to {
                    Place::Start => self.forget_from(0),
                    Place::Fork(id) => {
                        let fork = self.forks.iter().find(|fork| fork.id == id);
                        self.forget_from(fork.map_or(0, |fork| fork.step));
                    }
                    Place::Here => {}
                }
                self.state = State::Held;
            }
            Event::Delayed(delays) => {
                self.delays = delays;
                self.changed();
            }
            Event::Captured { captured, .. } => self.captured = Some(captured),
            Event::Forked(fork) => self.forks.push(fork),
            Event::Stopped => {}
        }
    }

    /// Steps that follow run in another way than those before.
    fn changed(&mut self) {
        self.same_since = self.losses.last().map_or(0, |(step, _)| step + 1);
    }

    /// What was left behind, the newest first, and how often that has happened.
    pub fn left(&self) -> (u32, &[Left]) {
        (self.left.0, &self.left.1)
    }

    /// What is left behind with this run, if another one goes on instead of it.
    pub fn leave(mut self, name: String) -> Vec<Left> {
        let losses = std::mem::take(&mut self.losses);
        self.keep_left(Left { name, losses });
        self.left.1
    }

    /// Takes over what another run has left behind.
    pub fn follow(&mut self, left: Vec<Left>) {
        self.left = (self.left.0 + 1, left);
    }

    fn keep_left(&mut self, left: Left) {
        if left.losses.len() > 1 {
            // Two of one name could not be told apart.
            self.left.1.retain(|other| other.name != left.name);
            self.left.1.insert(0, left);
            self.left.1.truncate(KEPT_LEFT);
            self.left.0 += 1;
        }
    }

    /// Forgets a step and all that follow it: they will be trained again, in another way.
    fn forget_from(&mut self, step: u64) {
        let gone = self.losses.iter().filter(|(known, _)| known + 1 >= step).copied().collect();
        self.keep_left(Left { name: "before going back".into(), losses: gone });
        self.losses.retain(|(known, _)| *known < step);
        self.differences.retain(|(known, _)| *known < step);
        self.held_out.retain(|(trained, _)| *trained <= step && step > 0);
        self.traces.retain(|trace| trace.step < step);
    }

    fn stepped(&mut self, Stepped { summary, report }: Stepped) {
        self.losses.push((summary.step, summary.loss));
        if summary.branch > self.owed_after {
            self.owed = 0;
        }
        if let Some(difference) = summary.difference {
            self.differences.push((summary.step, difference));
            self.compared_in = summary.branch;
        }
        let Some(report) = report else {
            // Older steps than this one are known no more without a hole.
            self.traces.clear();
            return;
        };
        let spans: usize = report.trace.spans.iter().map(Vec::len).sum();
        let bytes = (spans * size_of::<shardlab::trace::Span>()).max(1);
        let most = (KEPT_BYTES / bytes).clamp(MEDIAN_OVER + 1, KEPT_MOST);
        while self.traces.len() >= most {
            self.traces.pop_front();
        }
        self.traces.push_back(Arc::clone(&report.trace));
    }

    /// Lets training go on or hold, if that is not what it does already.
    pub fn let_train(&mut self, goes_on: bool) {
        if self.wants_to_train == goes_on {
            return;
        }
        self.wants_to_train = goes_on;
        let Some(driver) = &self.driver else { return };
        match (goes_on, &self.state) {
            (true, State::Held) => driver.play(),
            (false, State::Starting(_) | State::Training) => driver.pause(),
            _ => {}
        }
    }

    /// Trains one more step and holds.
    pub fn train_one(&self) {
        if let Some(driver) = &self.driver {
            driver.step();
        }
    }

    /// Opens a collective in the step that runs next.
    pub fn capture(&self, at: (Rank, u32)) {
        if let Some(driver) = &self.driver {
            driver.capture(at.0, at.1);
        }
    }

    /// Breaks these things and nothing else, with one rank beside, in the run as it stands; after a
    /// step that does not end, as it stood before. It goes on at once.
    pub fn set_faults(&mut self, faults: Vec<Fault>) {
        self.wants_to_train = true;
        let Some(driver) = &self.driver else { return };
        // A step that does not end leaves weights half updated: then the run goes back to here.
        if faults.iter().any(|fault| matches!(fault, Fault::SkipMessage { .. })) {
            driver.fork();
        }
        let beside = beside(&faults);
        driver.set_faults(faults, self.before_failing());
        driver.set_beside(beside);
        driver.play();
        (self.owed, self.owed_after) = (STEPS_BROKEN, self.branch);
        self.state = State::Starting(Progress::Planning);
    }

    /// Goes back to before the step that failed, and holds there.
    pub fn step_back(&mut self) {
        if let (Some(driver), State::NotFinite { .. } | State::Hang { .. }) =
            (&self.driver, &self.state)
        {
            self.wants_to_train = false;
            driver.go_back(self.before_failing());
            (self.owed, self.owed_after) = (STEPS_BROKEN, self.branch);
        }
    }

    /// The newest state without a step that failed: of one that changed nothing, where the run
    /// stands.
    fn before_failing(&self) -> Place {
        match (&self.state, self.forks.last()) {
            (State::Hang { .. }, Some(fork)) => Place::Fork(fork.id),
            (State::Hang { .. }, None) => Place::Start,
            _ => Place::Here,
        }
    }

    /// Trains so many more steps.
    pub fn train_more(&mut self, steps: u64) {
        self.wants_to_train = true;
        if let Some(driver) = &self.driver {
            driver.train_more(steps);
        }
    }
}

/// What trains beside a run with these faults.
fn beside(faults: &[Fault]) -> Beside {
    if faults.is_empty() { Beside::Nothing } else { Beside::OneRank }
}
