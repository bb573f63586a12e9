//! A training run on a thread of its own: commands go in, events come out.
//!
//! [`Driver`] is what a window or any other program drives a run with. Its methods only leave a
//! command and return; what comes of it is told as an [`Event`]. The thread trains one step at a
//! time, takes commands between steps, and sleeps when it is paused. Dropping the driver ends
//! the run after the step that is running, at most.
//!
//! `worker` is the life of the thread, `events` the queue that a slow receiver cannot stop,
//! `reference` one rank that trains beside, `priority` keeps the machine's windows responsive.

mod events;
mod explained;
mod priority;
mod reference;
mod worker;

#[cfg(test)]
mod tests;

pub use events::{Difference, Event, Facts, Fork, Place, REPORTS_MAX, StepSummary, Stepped};
pub use explained::Explained;
pub use priority::lower_priority;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use self::events::Queue;
use self::worker::Worker;
use super::Options;
use super::faults::Fault;
use crate::checkpoint::Checkpoint;
use crate::config::Scenario;
use crate::exec::Delays;
use crate::mesh::Rank;

/// What a run starts from.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What is trained.
    pub scenario: Scenario,
    /// Devices, workers, data.
    pub options: Options,
    /// Goes on from here instead of from initial weights.
    pub checkpoint: Option<Arc<Checkpoint>>,
    /// Whether steps follow one another at once.
    pub begin: Begin,
    /// Whether held-out losses are measured: before the first step, every `eval_every` steps, and
    /// at the end.
    pub held_out: HeldOut,
}

impl Setup {
    /// Trains a scenario at once, with held-out losses.
    pub fn new(scenario: Scenario, options: Options) -> Self {
        Self {
            scenario,
            options,
            checkpoint: None,
            begin: Begin::Playing,
            held_out: HeldOut::Measured,
        }
    }
}

/// How a run begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// With its first step.
    Playing,
    /// With a pause before it.
    Paused,
}

/// Whether held-out losses are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldOut {
    /// They are.
    Measured,
    /// They are not.
    Skipped,
}

/// What trains beside the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Nothing.
    Nothing,
    /// One rank on the CPU, on the same batches, from the state in which the run stands.
    OneRank,
}

/// What a run is told to do.
#[derive(Clone, Debug)]
pub(super) enum Command {
    Play,
    Pause,
    Step,
    TrainMore(u64),
    Fork,
    GoBack(Place),
    Capture(Rank, u32),
    Delay(Delays),
    Break(Vec<Fault>, Place),
    Beside(Beside),
}

/// A run on a thread of its own.
pub struct Driver {
    commands: Option<Sender<Command>>,
    queue: Arc<Queue>,
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl Driver {
    /// Starts a run. `wake` is called after every event, from the run's thread: it should do no
    /// more than ask for a repaint.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn start(
        setup: Setup,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self, std::io::Error> {
        let queue = Arc::new(Queue::new(Arc::new(wake)));
        let stops = Arc::new(AtomicBool::new(false));
        let (commands, orders) = channel();
        let worker = Worker::new(setup, orders, Arc::clone(&queue), Arc::clone(&stops));
        let told = Arc::clone(&queue);
        let life = move || {
            lower_priority();
            if catch_unwind(AssertUnwindSafe(|| worker.live())).is_err() {
                told.push(Event::Failed(Explained {
                    what: "the run".into(),
                    why: "its thread panicked".into(),
                    remedy: "This is a defect of the program, please report it".into(),
                }));
            }
            told.push(Event::Stopped);
        };
        let thread = std::thread::Builder::new().name("driver".into()).spawn(life)?;
        Ok(Self { commands: Some(commands), queue, stops, thread: Some(thread) })
    }

    /// The next event, if there is one.
    pub fn next_event(&self) -> Option<Event> {
        self.queue.pop()
    }

    /// The next event; waits for it so long. `None` at once after [`Event::Stopped`].
    pub fn wait_event(&self, limit: Duration) -> Option<Event> {
        self.queue.wait(limit)
    }

    /// Runs steps until told otherwise, or until all are trained.
    pub fn play(&self) {
        self.tell(Command::Play);
    }

    /// Stops after the step that is running. A paused run costs no time of any core.
    pub fn pause(&self) {
        self.tell(Command::Pause);
    }

    /// Runs one step and pauses, also beyond the last one.
    pub fn step(&self) {
        self.tell(Command::Step);
    }

    /// Runs `steps` more steps than are trained.
    pub fn train_more(&self, steps: u64) {
        self.tell(Command::TrainMore(steps));
    }

    /// Keeps the state between two steps: [`Event::Forked`] says under which number.
    pub fn fork(&self) {
        self.tell(Command::Fork);
    }

    /// Goes on from another state, as a branch of its own, and pauses there. The same steps from
    /// the same state give the same bits.
    pub fn go_back(&self, to: Place) {
        self.tell(Command::GoBack(to));
    }

    /// Runs one step that captures the collective to which an instruction of the Plan belongs, and
    /// goes on as before: [`Event::Captured`].
    pub fn capture(&self, rank: Rank, instr: u32) {
        self.tell(Command::Capture(rank, instr));
    }

    /// Slows ranks or links, from the next step on.
    pub fn set_delays(&self, delays: Delays) {
        self.tell(Command::Delay(delays));
    }

    /// Breaks things on purpose, or nothing: the run is opened anew with these faults in the state
    /// that `from` names, and pauses there as a branch of its own. [`Event::Ready`] says what the
    /// checker finds.
    pub fn set_faults(&self, faults: Vec<Fault>, from: Place) {
        self.tell(Command::Break(faults, from));
    }

    /// Lets one rank train beside, or nothing.
    pub fn set_beside(&self, beside: Beside) {
        self.tell(Command::Beside(beside));
    }

    /// Ends the run after the step that is running. Its last event is [`Event::Stopped`].
    pub fn stop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
        // A sleeping thread wakes up when nobody can send any more.
        self.commands = None;
    }

    fn tell(&self, command: Command) {
        if let Some(commands) = &self.commands {
            // A run that is over does nothing any more; its last event has said so.
            commands.send(command).ok();
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            // It catches its panics and has told them.
            thread.join().ok();
        }
    }
}
