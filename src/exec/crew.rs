//! The threads of an executor: the workers of the host pool and one thread for each device.
//!
//! They are made once, sleep between steps and leave with the executor. The thread that calls
//! `run` is the first worker, so a pool of one worker has no thread at all.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use super::ExecError;
use super::drive::drive;
use super::host::worker::{panic_message, work};
use super::step::Run;

/// What a thread is for.
#[derive(Clone, Debug)]
enum Duty {
    /// Worker of the host pool; number 0 is the caller of `run`.
    Worker(usize),
    /// Drives a device.
    Device(usize),
}

/// The threads of an executor.
#[derive(Debug)]
pub(super) struct Crew {
    gate: Arc<Gate>,
    threads: Vec<JoinHandle<()>>,
}

/// Where threads wait for a step and report its end.
#[derive(Debug, Default)]
struct Gate {
    state: Mutex<GateState>,
    opened: Condvar,
    left: Condvar,
}

#[derive(Default)]
struct GateState {
    /// Counts steps.
    step: u64,
    run: Option<Arc<Run>>,
    /// Threads that are still at work.
    inside: usize,
    closed: bool,
}

impl fmt::Debug for GateState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GateState").field("step", &self.step).finish_non_exhaustive()
    }
}

impl Crew {
    /// Starts the threads of `worker_count` workers, less the caller, and of the named devices.
    pub(super) fn new(worker_count: usize, devices: &[String]) -> io::Result<Self> {
        let mut crew = Self { gate: Arc::default(), threads: Vec::new() };
        for worker in 1..worker_count {
            crew.spawn(format!("worker-{worker}"), Duty::Worker(worker))?;
        }
        for (device, name) in devices.iter().enumerate() {
            crew.spawn(format!("device-{name}"), Duty::Device(device))?;
        }
        Ok(crew)
    }

    /// Runs a step with all threads; the caller is worker 0. Returns when all have left.
    pub(super) fn run(&self, run: &Arc<Run>) {
        {
            let mut state = self.gate.lock();
            state.step += 1;
            state.run = Some(Arc::clone(run));
            state.inside = self.threads.len();
        }
        self.gate.opened.notify_all();
        on_duty(run, &Duty::Worker(0));
        let mut state = self.gate.lock();
        while state.inside > 0 {
            state = self.gate.left.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.run = None;
    }

    fn spawn(&mut self, name: String, duty: Duty) -> io::Result<()> {
        let gate = Arc::clone(&self.gate);
        // The operating system cuts long names, and one with a zero byte is none.
        let thread = Builder::new().name(name.replace('\0', " "));
        self.threads.push(thread.spawn(move || gate.serve(&duty))?);
        Ok(())
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.gate.lock().closed = true;
        self.gate.opened.notify_all();
        for thread in self.threads.drain(..) {
            // A thread catches every panic of a step; there is nothing left to report here.
            drop(thread.join());
        }
    }
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The life of a thread.
    fn serve(&self, duty: &Duty) {
        let mut last_step = 0;
        loop {
            let run = {
                let mut state = self.lock();
                while state.step == last_step && !state.closed {
                    state = self.opened.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                if state.closed {
                    return;
                }
                last_step = state.step;
                state.run.clone()
            };
            if let Some(run) = run {
                on_duty(&run, duty);
                // The executor changes a Run between steps: nobody may hold on to it.
                drop(run);
            }
            let mut state = self.lock();
            state.inside -= 1;
            if state.inside == 0 {
                self.left.notify_all();
            }
        }
    }
}

/// Does a thread's part of a step. A panic fails the step, never the thread.
fn on_duty(run: &Run, duty: &Duty) {
    let done = catch_unwind(AssertUnwindSafe(|| match *duty {
        Duty::Worker(worker) => work(run, worker),
        Duty::Device(device) => drive(run, device),
    }));
    if let Err(payload) = done {
        run.fail(ExecError::Device {
            device: match duty {
                Duty::Worker(_) => "the host pool".into(),
                Duty::Device(device) => format!("device {device}"),
            },
            why: format!("its thread panicked: {}", panic_message(payload.as_ref())),
            remedy: "This is a defect of the program, please report it".into(),
        });
    }
}
