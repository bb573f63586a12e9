//! The life of a driver's thread: takes commands between steps, trains, tells what happened.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};

use super::events::{Event, Facts, Fork, Place, Queue, StepSummary, Stepped};
use super::explained::Explained;
use super::reference::Reference;
use super::{Begin, Beside, Command, HeldOut, Setup};
use crate::exec::{Clock, ExecError, Watcher};
use crate::mesh::Rank;
use crate::plan::check;
use crate::train::faults::{self, Fault};
use crate::train::snapshot::Snapshot;
use crate::train::{DeviceRequest, Session, StepReport, TrainError};
use crate::units::Nanos;

/// What the thread does when no command is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Going {
    /// Sleeps.
    Paused,
    /// Runs steps.
    On,
}

/// A run and all that is known of it.
#[derive(Debug)]
struct Run {
    session: Session,
    start: Arc<Snapshot>,
    reference: Option<Reference>,
    /// A step ended half way: nothing runs before the state is replaced.
    is_broken: bool,
}

/// The thread's own.
#[derive(Debug)]
pub(super) struct Worker {
    setup: Setup,
    commands: Receiver<Command>,
    queue: Arc<Queue>,
    stops: Arc<AtomicBool>,
    run: Option<Run>,
    going: Going,
    /// Steps that are to be trained.
    until: u64,
    forks: Vec<(Fork, Arc<Snapshot>)>,
    branch: u32,
    beside: Beside,
    /// Steps after which the last held-out loss was measured.
    held_out: Option<u64>,
}

impl Worker {
    pub(super) fn new(
        mut setup: Setup,
        commands: Receiver<Command>,
        queue: Arc<Queue>,
        stops: Arc<AtomicBool>,
    ) -> Self {
        let told = Arc::clone(&queue);
        setup.options.exec.watcher =
            Watcher::new(move |progress| told.push(Event::Starting(progress)));
        let going = if setup.begin == Begin::Playing { Going::On } else { Going::Paused };
        Self {
            until: setup.scenario.training.steps,
            setup,
            commands,
            queue,
            stops,
            run: None,
            going,
            forks: Vec::new(),
            branch: 0,
            beside: Beside::Nothing,
            held_out: None,
        }
    }

    /// Lives until the driver is stopped or dropped.
    pub(super) fn live(mut self) {
        if let Err(error) = self.open().and_then(|()| self.hold_out()) {
            self.failed(&error);
        }
        while !self.stops.load(Ordering::Relaxed) {
            let command = if self.wants_to_step() {
                match self.commands.try_recv() {
                    Ok(command) => Some(command),
                    Err(TryRecvError::Empty) => None,
                    Err(TryRecvError::Disconnected) => return,
                }
            } else {
                match self.commands.recv() {
                    Ok(command) => Some(command),
                    Err(_) => return,
                }
            };
            let done = match command {
                Some(command) => self.obey(command),
                None => self.advance(),
            };
            if let Err(error) = done {
                self.failed(&error);
            }
        }
    }

    fn tell(&self, event: Event) {
        self.queue.push(event);
    }

    fn failed(&mut self, error: &TrainError) {
        self.going = Going::Paused;
        self.tell(Event::Failed(Explained::of(error)));
    }

    fn wants_to_step(&self) -> bool {
        self.going != Going::Paused && self.run.as_ref().is_some_and(|run| !run.is_broken)
    }

    /// Opens the session, on the CPU if what was asked for fails.
    fn open(&mut self) -> Result<(), TrainError> {
        self.run = None;
        let session = match self.session() {
            Err(error) if self.falls_back(&error) => {
                self.tell(Event::DeviceFellBack { why: Explained::of(&error) });
                self.setup.options.devices = DeviceRequest::cpu();
                self.session()?
            }
            other => other?,
        };
        self.ready(session)
    }

    fn session(&self) -> Result<Session, TrainError> {
        let (scenario, options) = (self.setup.scenario.clone(), self.setup.options.clone());
        match &self.setup.checkpoint {
            Some(checkpoint) => Session::resume(checkpoint, scenario, options),
            None => Session::start(scenario, options),
        }
    }

    /// Whether an error is one of devices that the CPU does not have.
    fn falls_back(&self, error: &TrainError) -> bool {
        let of_device = matches!(
            error,
            TrainError::Exec(ExecError::Device { .. }) | TrainError::Devices { .. }
        );
        of_device && self.setup.options.devices != DeviceRequest::cpu()
    }

    fn ready(&mut self, mut session: Session) -> Result<(), TrainError> {
        let start = Arc::new(session.snapshot()?);
        let facts = Facts {
            scenario: session.scenario().clone(),
            model: session.model().clone(),
            plan: Arc::clone(session.plan()),
            order: Arc::clone(session.order()),
            graph: Arc::clone(session.graph()),
            ledger: session.ledger(),
            original: Arc::clone(session.original()),
            faults: session.faults().to_vec(),
            fault_places: session.fault_places().to_vec(),
            checker: check::check(session.plan()),
            devices: session.devices(),
            delays: session.delays().clone(),
            notes: session.notes().to_vec(),
            marks: session.marks(),
            next_step: session.next_step(),
        };
        self.run = Some(Run { session, start, reference: None, is_broken: false });
        self.tell(Event::Ready(Arc::new(facts)));
        self.refer()?;
        self.tell(if self.going == Going::Paused { Event::Paused } else { Event::Playing });
        Ok(())
    }

    fn obey(&mut self, command: Command) -> Result<(), TrainError> {
        match command {
            Command::Play => {
                if self.begins() {
                    self.going = Going::On;
                }
            }
            Command::Pause => {
                self.going = Going::Paused;
                self.tell(Event::Paused);
            }
            Command::Step => {
                self.going = Going::Paused;
                if self.begins() {
                    let trained = self.trained();
                    self.until = self.until.max(trained + 1);
                    self.advance()?;
                    if self.trained() > trained {
                        self.tell(Event::Paused);
                    }
                }
            }
            Command::TrainMore(steps) => {
                if self.begins() {
                    self.until = self.trained().saturating_add(steps);
                    self.going = Going::On;
                }
            }
            Command::Capture(rank, instr) => self.capture((rank, instr))?,
            Command::Fork => self.fork()?,
            Command::GoBack(to) => self.go_back(to)?,
            Command::Break(faults, from) => self.break_on_purpose(faults, from)?,
            Command::Delay(delays) => {
                if let Some(run) = &mut self.run {
                    run.session.set_delays(&delays);
                    let delays = run.session.delays().clone();
                    self.tell(Event::Delayed(delays));
                }
                self.setup.options.exec.delays = delays;
            }
            Command::Beside(beside) => {
                self.beside = beside;
                self.refer()?;
            }
        }
        Ok(())
    }

    fn trained(&self) -> u64 {
        self.run.as_ref().map_or(0, |run| run.session.next_step())
    }

    /// Whether a step can run; tells it.
    fn begins(&self) -> bool {
        let begins = self.run.as_ref().is_some_and(|run| !run.is_broken);
        self.tell(if begins {
            Event::Playing
        } else {
            Event::Failed(Explained {
                what: "the next step".into(),
                why: "the last one did not end, or the run did not start".into(),
                remedy: "Go back to the start or to a fork".into(),
            })
        });
        begins
    }

    /// Keeps the state. A broken one is no state to go back to.
    fn fork(&mut self) -> Result<(), TrainError> {
        let Some(run) = self.run.as_mut().filter(|run| !run.is_broken) else { return Ok(()) };
        let snapshot = Arc::new(run.session.snapshot()?);
        let id = self.forks.len() as u32;
        let fork = Fork { id, step: snapshot.step(), branch: self.branch };
        self.forks.push((fork, snapshot));
        self.tell(Event::Forked(fork));
        Ok(())
    }

    fn go_back(&mut self, to: Place) -> Result<(), TrainError> {
        self.going = Going::Paused;
        if self.run.is_none() {
            return self.open();
        }
        let Some(run) = &mut self.run else { return Ok(()) };
        let state = match to {
            Place::Here => None,
            Place::Start => Some(Arc::clone(&run.start)),
            Place::Fork(id) => match self.forks.get(id as usize) {
                Some((_, snapshot)) => Some(Arc::clone(snapshot)),
                None => {
                    self.tell(Event::Failed(Explained {
                        what: format!("fork {id}"),
                        why: "there is no such fork".into(),
                        remedy: "Go back to one that was told".into(),
                    }));
                    return Ok(());
                }
            },
        };
        if let Some(state) = state {
            run.session.restore(&state)?;
            run.is_broken = false;
        }
        self.branch += 1;
        self.held_out = None;
        self.until = self.setup.scenario.training.steps.max(self.trained());
        self.tell(Event::WentBack { to, branch: self.branch });
        self.refer()?;
        self.tell(Event::Paused);
        Ok(())
    }

    /// Opens the run anew with other faults, in a state that it has been in; a broken state is none.
    fn break_on_purpose(&mut self, faults: Vec<Fault>, from: Place) -> Result<(), TrainError> {
        let mut here = None;
        if let Some(run) = &mut self.run {
            // What cannot be planted leaves the run as it is.
            faults::plant(run.session.original(), &faults)?;
            here = if run.is_broken { None } else { Some(run.session.snapshot()?) };
        }
        self.going = Going::Paused;
        self.setup.options.faults = faults;
        self.open()?;
        if let (Some(run), Some(here)) = (&mut self.run, here) {
            run.session.restore(&here)?;
        }
        self.go_back(from)
    }

    /// Puts the one rank beside into the state of the run, or sends it away.
    fn refer(&mut self) -> Result<(), TrainError> {
        let Some(run) = self.run.as_mut().filter(|run| !run.is_broken) else { return Ok(()) };
        run.reference = match self.beside {
            Beside::Nothing => None,
            Beside::OneRank => {
                let state = run.session.checkpoint()?;
                let dataset = self.setup.options.dataset.clone();
                Some(Reference::start(&self.setup.scenario, dataset, &state)?)
            }
        };
        Ok(())
    }

    /// Runs one step, if one is left.
    fn advance(&mut self) -> Result<(), TrainError> {
        let Some(run) = &mut self.run else { return Ok(()) };
        let step = run.session.next_step();
        if step >= self.until {
            self.going = Going::Paused;
            self.tell(Event::Done { trained: step });
            return Ok(());
        }
        let clock = Clock::start();
        let stepped = run.session.step();
        if !self.after(stepped, clock)? {
            return Ok(());
        }
        let trained = step + 1;
        let eval_every = self.setup.scenario.training.eval_every;
        if trained == self.until || (eval_every > 0 && trained.is_multiple_of(eval_every)) {
            self.hold_out()?;
        }
        Ok(())
    }

    /// Tells what became of a step; whether it was trained.
    fn after(
        &mut self,
        stepped: Result<StepReport, TrainError>,
        clock: Clock,
    ) -> Result<bool, TrainError> {
        let step = self.trained();
        match stepped {
            Ok(report) => {
                self.stepped(report, clock);
                return Ok(true);
            }
            Err(TrainError::NotFinite { step, first }) => {
                self.going = Going::Paused;
                self.tell(Event::NotFinite { step, first });
            }
            Err(TrainError::Exec(ExecError::Hang { waiting })) => {
                if let Some(run) = &mut self.run {
                    run.is_broken = true;
                }
                self.going = Going::Paused;
                self.tell(Event::Hang { step, report: waiting });
            }
            // What was asked for does not fit; nothing has run.
            Err(error @ TrainError::Exec(ExecError::Input { .. })) => return Err(error),
            Err(error) => self.lost(error)?,
        }
        Ok(false)
    }

    /// Runs one step that captures a collective, and goes on as before.
    fn capture(&mut self, at: (Rank, u32)) -> Result<(), TrainError> {
        if !self.begins() {
            return Ok(());
        }
        let was = self.going;
        let Some(run) = &mut self.run else { return Ok(()) };
        let clock = Clock::start();
        let mut found = None;
        let stepped = run.session.step_capturing(at).map(|(report, captured)| {
            found = Some(captured);
            report
        });
        if self.after(stepped, clock)? {
            self.until = self.until.max(self.trained());
            let step = self.trained() - 1;
            if let Some(captured) = found.map(Arc::new) {
                self.tell(Event::Captured { step, captured });
            }
            if was == Going::Paused {
                self.tell(Event::Paused);
            }
        }
        Ok(())
    }

    fn stepped(&mut self, report: StepReport, clock: Clock) {
        let Some(run) = &mut self.run else { return };
        let wall_seconds = Nanos(clock.now()).as_secs();
        let difference = match &mut run.reference {
            Some(reference) => match reference.follow(&mut run.session) {
                Ok(difference) => Some(difference),
                Err(error) => {
                    // The run itself is well.
                    run.reference = None;
                    self.tell(Event::Failed(Explained::of(&error)));
                    None
                }
            },
            None => None,
        };
        let summary = StepSummary {
            step: report.step,
            branch: self.branch,
            loss: report.loss,
            grad_norm: report.grad_norm,
            lr: report.lr,
            seconds: report.seconds,
            wall_seconds,
            bytes: report.crossed.bytes().0,
            difference,
        };
        self.tell(Event::Step(Stepped { summary, report: Some(Arc::new(report)) }));
    }

    /// A device is gone, and with it the state: the CPU goes on from the newest fork, else from the
    /// start.
    fn lost(&mut self, error: TrainError) -> Result<(), TrainError> {
        if let Some(run) = &mut self.run {
            run.is_broken = true;
        }
        if !self.falls_back(&error) {
            return Err(error);
        }
        self.going = Going::Paused;
        self.setup.options.devices = DeviceRequest::cpu();
        self.tell(Event::DeviceFellBack { why: Explained::of(&error) });
        self.open()?;
        match self.forks.last() {
            Some((fork, _)) => {
                let id = fork.id;
                self.go_back(Place::Fork(id))
            }
            None => self.go_back(Place::Start),
        }
    }

    /// Measures the held-out loss, once for each state.
    fn hold_out(&mut self) -> Result<(), TrainError> {
        let trained = self.trained();
        let Some(run) = self.run.as_mut() else { return Ok(()) };
        if self.setup.held_out == HeldOut::Skipped || self.held_out == Some(trained) {
            return Ok(());
        }
        self.held_out = Some(trained);
        let goes_on = || !self.stops.load(Ordering::Relaxed);
        if let Some(loss) = run.session.held_out_loss_while(goes_on)? {
            self.tell(Event::HeldOut { trained, loss });
        }
        Ok(())
    }
}
