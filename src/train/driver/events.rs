//! What a driver tells, and the queue it tells it through.
//!
//! A slow receiver never holds training up: the queue keeps whole reports of the newest steps
//! only, and where even the summaries become many, it keeps every second one.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::explained::Explained;
use crate::config::{Model, Scenario};
use crate::data::Marks;
use crate::exec::{Delays, DeviceInfo, NonFinite, Progress};
use crate::ledger::Ledger;
use crate::mesh::Rank;
use crate::plan::order::{Graph, Order};
use crate::plan::{Plan, check};
use crate::trace::captured::Captured;
use crate::train::StepReport;
use crate::train::faults::Fault;

/// Whole reports that wait for the receiver; older steps are told as summaries.
pub const REPORTS_MAX: usize = 32;
/// Steps that wait for the receiver before every second summary goes.
const STEPS_MAX: usize = 1 << 16;

/// What happens to a run that a [`super::Driver`] drives. After `Done`, `NotFinite`, `Hang` and
/// `Failed` it is paused as well.
#[derive(Clone, Debug)]
pub enum Event {
    /// The run is being prepared.
    Starting(Progress),
    /// The run is ready for its first step.
    Ready(Arc<Facts>),
    /// A step has been trained.
    Step(Stepped),
    /// Loss over the held-out text.
    HeldOut {
        /// Steps that were trained before.
        trained: u64,
        /// The loss.
        loss: f64,
    },
    /// Steps follow one another.
    Playing,
    /// No step runs until one is asked for.
    Paused,
    /// All steps are trained; more can be asked for.
    Done {
        /// So many steps are in the weights.
        trained: u64,
    },
    /// A collective of a step has been opened; the step is told just before.
    Captured {
        /// Which step.
        step: u64,
        /// The collective and its numbers.
        captured: Arc<Captured>,
    },
    /// Ranks and links are as slow as this from the next step on, with those of faults.
    Delayed(Delays),
    /// The state at a step has been kept.
    Forked(Fork),
    /// The run stands at another state than before.
    WentBack {
        /// Where it stands now.
        to: Place,
        /// Number of the branch that its steps belong to from now on.
        branch: u32,
    },
    /// A step with a number that is not finite: it changed nothing.
    NotFinite {
        /// Which step.
        step: u64,
        /// The first such number in program order.
        first: Option<Box<NonFinite>>,
    },
    /// A step does not end: its ranks wait for one another. The weights may be half updated.
    Hang {
        /// Which step.
        step: u64,
        /// Who waits for what, one line a rank.
        report: Vec<String>,
    },
    /// A device failed, and the CPU trains instead.
    DeviceFellBack {
        /// What failed.
        why: Explained,
    },
    /// What was asked for could not be done.
    Failed(Explained),
    /// The thread of the run has ended; nothing follows.
    Stopped,
}

/// All that does not change from step to step.
#[derive(Clone, Debug)]
pub struct Facts {
    /// What is trained.
    pub scenario: Scenario,
    /// Its model.
    pub model: Model,
    /// The Plan of a step, as it runs.
    pub plan: Arc<Plan>,
    /// What every instruction waits for.
    pub order: Arc<Order>,
    /// The graph of the step.
    pub graph: Arc<Graph>,
    /// What the Plan costs.
    pub ledger: Ledger,
    /// The Plan without faults.
    pub original: Arc<Plan>,
    /// What is broken on purpose.
    pub faults: Vec<Fault>,
    /// The instructions of `original` that are changed or missing on purpose.
    pub fault_places: Vec<(Rank, u32)>,
    /// What the checker finds in the Plan; nothing: it is legal, though it may be wrong.
    pub checker: Vec<check::Fault>,
    /// The device of each rank.
    pub devices: Vec<DeviceInfo>,
    /// Slow ranks and links, with those of faults.
    pub delays: Delays,
    /// What was found out about devices, for people.
    pub notes: Vec<String>,
    /// Losses of models that know little, where the data are bytes.
    pub marks: Option<Marks>,
    /// The step that runs first, 0-based.
    pub next_step: u64,
}

/// A state that can be gone back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fork {
    /// Its number, from 0.
    pub id: u32,
    /// The step that follows it, 0-based.
    pub step: u64,
    /// The branch that it was taken from.
    pub branch: u32,
}

/// Where a run can stand besides where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Before the first step.
    Start,
    /// A fork, by its number.
    Fork(u32),
    /// Where it is.
    Here,
}

/// A trained step.
#[derive(Clone, Debug)]
pub struct Stepped {
    /// Its numbers.
    pub summary: StepSummary,
    /// All that it tells; only of the newest steps, if the receiver is slow.
    pub report: Option<Arc<StepReport>>,
}

/// The numbers of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepSummary {
    /// Which step, 0-based.
    pub step: u64,
    /// Number of the branch: it grows each time that the run goes back.
    pub branch: u32,
    /// Mean loss before the update.
    pub loss: f64,
    /// Global gradient norm before clipping.
    pub grad_norm: f64,
    /// Learning rate.
    pub lr: f32,
    /// From the first instruction to the end of the last.
    pub seconds: f64,
    /// The same and all that is done around it.
    pub wall_seconds: f64,
    /// Bytes that crossed between ranks.
    pub bytes: u64,
    /// How far the step is from one rank's, if one rank trains beside.
    pub difference: Option<Difference>,
}

/// How far a run is from one rank that trains on the same batches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// Loss of the one rank.
    pub loss: f64,
    /// Largest relative difference of a weight after the step: max|Δ| / max|reference| of a tensor.
    pub weights: f64,
    /// The tensor that differs most: its index in [`Plan::tensors`].
    pub tensor: Option<u32>,
}

/// Where events wait for their receiver.
pub(super) struct Queue {
    state: Mutex<State>,
    arrived: Condvar,
    wake: Arc<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct State {
    events: VecDeque<Event>,
    /// Number of the first event in the queue, counted from the start of the run.
    first: u64,
    /// Numbers of the steps in the queue that still have a report.
    with_report: VecDeque<u64>,
    steps: usize,
    is_closed: bool,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("events", &self.lock().events.len()).finish_non_exhaustive()
    }
}

impl Queue {
    pub(super) fn new(wake: Arc<dyn Fn() + Send + Sync>) -> Self {
        Self { state: Mutex::default(), arrived: Condvar::new(), wake }
    }

    /// Tells an event and wakes the receiver; never waits for it.
    pub(super) fn push(&self, event: Event) {
        self.lock().push(event);
        self.arrived.notify_all();
        (self.wake)();
    }

    /// The next event, if there is one.
    pub(super) fn pop(&self) -> Option<Event> {
        self.lock().pop()
    }

    /// The next event; waits for it so long. `None` at once where nothing follows.
    pub(super) fn wait(&self, limit: Duration) -> Option<Event> {
        let empty = |state: &mut State| state.events.is_empty() && !state.is_closed;
        let waited = self.arrived.wait_timeout_while(self.lock(), limit, empty);
        waited.unwrap_or_else(PoisonError::into_inner).0.pop()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn push(&mut self, event: Event) {
        let number = self.first + self.events.len() as u64;
        self.is_closed |= matches!(event, Event::Stopped);
        if let Event::Step(step) = &event {
            self.steps += 1;
            if step.report.is_some() {
                self.with_report.push_back(number);
            }
        }
        self.events.push_back(event);
        if self.with_report.len() > REPORTS_MAX
            && let Some(oldest) = self.with_report.pop_front()
            && let Some(Event::Step(step)) = self.events.get_mut((oldest - self.first) as usize)
        {
            step.report = None;
        }
        if self.steps > STEPS_MAX {
            self.thin_out();
        }
    }

    fn pop(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        if self.with_report.front() == Some(&self.first) {
            self.with_report.pop_front();
        }
        self.first += 1;
        self.steps -= usize::from(matches!(event, Event::Step(_)));
        Some(event)
    }

    /// Drops every second summary.
    fn thin_out(&mut self) {
        let is_summary =
            |event: &Event| matches!(event, Event::Step(step) if step.report.is_none());
        let mut keeps = false;
        self.events.retain(|event| {
            keeps = !is_summary(event) || !keeps;
            keeps
        });
        self.steps = self.events.iter().filter(|event| matches!(event, Event::Step(_))).count();
        let numbered = (self.first..).zip(&self.events);
        let with_report =
            numbered.filter(|(_, event)| matches!(event, Event::Step(s) if s.report.is_some()));
        self.with_report = with_report.map(|(number, _)| number).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::Crossed;
    use crate::trace::{Clock, Trace};

    fn step(number: u64) -> Event {
        let trace =
            Trace { clock: Clock::Measured, step: number, spans: Vec::new(), paths: Vec::new() };
        let report = StepReport {
            step: number,
            loss: 1.0,
            grad_norm: 1.0,
            lr: 0.1,
            seconds: 1.0,
            trace: Arc::new(trace),
            crossed: Crossed::default(),
            instructions: 1,
        };
        let summary = StepSummary {
            step: number,
            branch: 0,
            loss: 1.0,
            grad_norm: 1.0,
            lr: 0.1,
            seconds: 1.0,
            wall_seconds: 1.0,
            bytes: 0,
            difference: None,
        };
        Event::Step(Stepped { summary, report: Some(Arc::new(report)) })
    }

    fn drain(queue: &Queue) -> Vec<(u64, bool)> {
        let events = std::iter::from_fn(|| queue.pop());
        let steps = events.filter_map(|event| match event {
            Event::Step(step) => Some((step.summary.step, step.report.is_some())),
            _ => None,
        });
        steps.collect()
    }

    #[test]
    fn a_slow_receiver_gets_whole_reports_of_the_newest_steps_and_summaries_of_the_others() {
        let queue = Queue::new(Arc::new(|| {}));
        queue.push(Event::Playing);
        for number in 0..100 {
            queue.push(step(number));
            if number == 10 {
                queue.push(Event::Paused);
            }
        }
        assert!(matches!(queue.pop(), Some(Event::Playing)));
        let steps = drain(&queue);
        let first_whole = 100 - REPORTS_MAX as u64;
        assert!(steps.into_iter().eq((0..100).map(|number| (number, number >= first_whole))));
        // What the receiver has taken does not count.
        queue.push(step(100));
        assert_eq!(drain(&queue), [(100, true)]);
    }

    #[test]
    fn a_receiver_that_has_gone_to_sleep_costs_bounded_memory_and_loses_no_news() {
        let queue = Queue::new(Arc::new(|| {}));
        queue.push(Event::Playing);
        let many = 5 * STEPS_MAX as u64;
        for number in 0..many {
            queue.push(step(number));
        }
        queue.push(Event::Paused);
        assert!(queue.lock().events.len() <= STEPS_MAX + 3);
        assert!(matches!(queue.pop(), Some(Event::Playing)));
        let steps = drain(&queue);
        assert!(steps.is_sorted() && steps.len() > STEPS_MAX / 3, "{}", steps.len());
        assert_eq!(steps.iter().filter(|(_, whole)| *whole).count(), REPORTS_MAX);
        assert_eq!(steps.last(), Some(&(many - 1, true)));
    }

    #[test]
    fn nothing_follows_the_end() {
        let queue = Queue::new(Arc::new(|| {}));
        queue.push(Event::Stopped);
        assert!(matches!(queue.wait(Duration::MAX), Some(Event::Stopped)));
        assert!(queue.wait(Duration::MAX).is_none());
    }
}
