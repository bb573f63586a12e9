//! Drives one device: encodes what is ready, submits, and ends what has run.
//!
//! A device runs its queue in order, so an instruction is encoded as soon as what it depends on
//! was encoded there or has ended elsewhere. A batch is cut after the messages that other
//! devices wait for, else it is as long as possible: with all ranks on one device a step is one
//! submit.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::ExecError;
use super::device::{Batch, Device, Download};
use super::options::Timing;
use super::step::Run;
use super::tasks::Kind;
use super::transport::message_view;
use crate::mesh::Rank;
use crate::plan::View;
use crate::units::Nanos;

/// How long a device thread sleeps between two looks at a batch while others may need it.
const POLL: Duration = Duration::from_micros(50);

/// A device with what its driver knows of it.
#[derive(Debug)]
pub(super) struct Cell {
    /// The device.
    pub(super) device: Box<dyn Device>,
    /// Tasks in the order of encoding, since the start of the step.
    log: Vec<u32>,
    /// How many of them are submitted.
    submitted_count: usize,
    /// Whether another device waits for something that is not submitted.
    is_awaited: bool,
    flights: VecDeque<Flight>,
    /// Downloads that are encoded and not yet finished, with their position in the log.
    downloads: VecDeque<(usize, Download)>,
    /// When the last batch was seen to end, on the step's clock.
    free_at: u64,
}

/// A submitted batch: tasks `first..end` of the log.
#[derive(Clone, Copy, Debug)]
struct Flight {
    batch: Batch,
    first: usize,
    end: usize,
    submitted_at: u64,
}

/// What [`Cell::advance`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Driven {
    /// Encoded a task.
    Encoded(u32),
    /// Ended the tasks of a batch.
    Ended,
    /// Nothing: a batch is running.
    InFlight,
    /// Nothing: the device waits for others.
    Idle,
}

impl Cell {
    /// A device that has not run anything.
    pub(super) fn new(device: Box<dyn Device>) -> Self {
        Self {
            device,
            log: Vec::new(),
            submitted_count: 0,
            is_awaited: false,
            flights: VecDeque::new(),
            downloads: VecDeque::new(),
            free_at: 0,
        }
    }

    /// Forgets the last step.
    pub(super) fn reset(&mut self, task_count: usize) {
        self.log.clear();
        self.log.reserve(task_count);
        self.submitted_count = 0;
        self.is_awaited = false;
        self.flights.clear();
        self.downloads.clear();
        self.free_at = 0;
    }

    /// Encodes one ready task of `set`, or else submits, or else ends a batch that has run.
    ///
    /// # Errors
    /// If the device fails or a batch takes longer than the time limit.
    pub(super) fn advance(&mut self, run: &Run, set: usize) -> Result<Driven, ExecError> {
        if let Some(task) = run.claim_device(set) {
            let leaves = matches!(run.tasks.list[task as usize].kind, Kind::Download { .. });
            // Messages that leave come first in the set: when another kind turns up, all that are
            // ready are encoded, and whoever waits for them should not wait for more.
            if self.is_awaited && !leaves {
                self.submit(run)?;
            }
            self.encode(run, task)?;
            if run.timing == Timing::Fenced {
                self.fence(run)?;
            }
            return Ok(Driven::Encoded(task));
        }
        self.submit(run)?;
        let Some(&flight) = self.flights.front() else {
            return Ok(Driven::Idle);
        };
        if self.device.is_done(flight.batch)? {
            self.end_first(run)?;
            return Ok(Driven::Ended);
        }
        let waited = Duration::from_nanos(run.clock.now() - flight.submitted_at);
        if waited > run.time_limit {
            return Err(ExecError::Device {
                device: self.device.info().name.clone(),
                why: format!(
                    "a batch of {} instructions did not end within {:?}",
                    flight.end - flight.first,
                    run.time_limit
                ),
                remedy: "Raise the time limit, or check the driver with `shardlab doctor`".into(),
            });
        }
        Ok(Driven::InFlight)
    }

    /// Submits what is encoded, waits for all that is in flight and ends it.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn fence(&mut self, run: &Run) -> Result<(), ExecError> {
        self.submit(run)?;
        while let Some(flight) = self.flights.front() {
            self.device.wait(flight.batch)?;
            self.end_first(run)?;
        }
        Ok(())
    }

    /// Leaves the device idle after a step that was given up; nothing is ended.
    pub(super) fn drain(&mut self, run: &Run) {
        if self.try_drain(run).is_err() {
            // The device is lost, and what was under way with it.
            self.submitted_count = self.log.len();
            self.flights.clear();
            self.downloads.clear();
        }
    }

    fn try_drain(&mut self, run: &Run) -> Result<(), ExecError> {
        self.submit(run)?;
        while let Some(flight) = self.flights.pop_front() {
            self.device.wait(flight.batch)?;
        }
        while let Some((position, download)) = self.downloads.pop_front() {
            let task = self.log[position];
            run.bindings.fill(task, |bytes| self.device.finish_download(download, bytes))?;
        }
        Ok(())
    }

    /// Encodes a claimed task.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn encode(&mut self, run: &Run, task: u32) -> Result<(), ExecError> {
        let at = run.tasks.list[task as usize];
        let (plan, rank, instr) = (run.plan_index, at.rank, at.instr);
        match (at.kind, message_view(&run.plan, rank, instr)) {
            (Kind::Launch | Kind::Copy, _) => self.device.encode(plan, rank, instr as usize)?,
            (Kind::Message { link }, Some(view)) => {
                let (to, arrives) = receiver(run, rank, instr);
                self.device.encode_message(plan, (rank, view), (to, arrives))?;
                run.count(link, run.plan.view_bytes(view).0);
            }
            (Kind::Download { .. }, Some(view)) => {
                let download = self.device.encode_download(plan, rank, view)?;
                self.downloads.push_back((self.log.len(), download));
                self.is_awaited = true;
            }
            (Kind::Upload { link }, Some(view)) => {
                let bytes = run.bindings.source(task);
                self.device.encode_upload(plan, rank, view, bytes)?;
                run.count(link, bytes.len() as u64);
            }
            (kind, _) => unreachable!("{kind:?} never becomes ready on a device"),
        }
        self.log.push(task);
        run.encoded(task);
        Ok(())
    }

    fn submit(&mut self, run: &Run) -> Result<(), ExecError> {
        let (first, end) = (self.submitted_count, self.log.len());
        if first < end {
            let submitted_at = run.clock.now();
            let batch = self.device.submit()?;
            self.flights.push_back(Flight { batch, first, end, submitted_at });
            self.submitted_count = end;
            self.is_awaited = false;
        }
        Ok(())
    }

    /// Ends the tasks of the oldest batch, which has run.
    fn end_first(&mut self, run: &Run) -> Result<(), ExecError> {
        let flight = self.flights.pop_front().expect("a batch is in flight");
        let mut seen_at = run.clock.now();
        while let Some(&(position, download)) = self.downloads.front() {
            if position >= flight.end {
                break;
            }
            let task = self.log[position];
            run.bindings.fill(task, |bytes| self.device.finish_download(download, bytes))?;
            self.downloads.pop_front();
        }
        let timings = self.device.timings(flight.batch);
        let start = self.free_at.max(flight.submitted_at).min(seen_at);
        let mut spans = BatchSpans::new(run, &self.log[flight.first..flight.end], &timings)
            .between(start, seen_at);
        let mut shift = 0;
        for &task in &self.log[flight.first..flight.end] {
            let (from, to) = spans.next(run, task);
            let (from, to) = (from + shift, to + shift);
            if matches!(run.tasks.list[task as usize].kind, Kind::Download { .. }) {
                run.close(task, from, to, 0);
                continue;
            }
            // A slow rank keeps its device busy, as a slow kernel would.
            let delay = run.delay(task, to - from);
            if delay > 0 {
                std::thread::sleep(Duration::from_nanos(delay));
                shift += delay;
                seen_at = run.clock.now();
            }
            run.settle(task, (from, to + delay), 0, 0);
        }
        self.free_at = seen_at.max(start + shift);
        Ok(())
    }
}

/// Lays the tasks of a batch out on the step's clock, in the order of encoding.
struct BatchSpans<'a> {
    timed: std::iter::Peekable<std::slice::Iter<'a, (Rank, usize, Nanos, Nanos)>>,
    /// Start and end of the whole batch by its own clock.
    window: Option<(u64, u64)>,
    total_work: u64,
    /// Step clock minus device clock.
    origin: i128,
    nanos_per_work: f64,
    /// End of the task before.
    at: u64,
}

impl<'a> BatchSpans<'a> {
    fn new(run: &Run, tasks: &[u32], timings: &'a [(Rank, usize, Nanos, Nanos)]) -> Self {
        let window = timings.iter().map(|t| t.2.0).min().zip(timings.iter().map(|t| t.3.0).max());
        let total_work = tasks.iter().map(|&task| run.tasks.list[task as usize].work).sum();
        let timed = timings.iter().peekable();
        Self { timed, window, total_work, origin: 0, nanos_per_work: 0.0, at: 0 }
    }

    /// The batch ran between these times of the step's clock.
    fn between(mut self, start: u64, seen_at: u64) -> Self {
        // The origin of the device's clock is not known: its last end is when the batch was seen
        // to have ended, unless that would put its first start before the submit.
        if let Some((first, last)) = self.window {
            let latest = i128::from(seen_at) - i128::from(last);
            self.origin = latest.max(i128::from(start) - i128::from(first));
        }
        self.nanos_per_work = (seen_at - start) as f64 / self.total_work.max(1) as f64;
        self.at = start;
        self
    }

    /// The span of the next task.
    fn next(&mut self, run: &Run, task: u32) -> (u64, u64) {
        let task = &run.tasks.list[task as usize];
        let own = self.timed.next_if(|t| t.0 == task.rank && t.1 == task.instr as usize);
        let place = |nanos: Nanos| u64::try_from(i128::from(nanos.0) + self.origin).unwrap_or(0);
        let span = match own {
            Some(&(_, _, from, to)) => (place(from).max(self.at), place(to).max(self.at)),
            // A copy between timed instructions: it ended before the next one started.
            None if self.window.is_some() => {
                let next = self.timed.peek().map_or(self.at, |next| place(next.2));
                (self.at, next.max(self.at))
            }
            None => (self.at, self.at + (task.work as f64 * self.nanos_per_work) as u64),
        };
        self.at = span.1;
        span
    }
}

/// Where a send of a joined message arrives.
fn receiver(run: &Run, rank: Rank, instr: u32) -> (Rank, View) {
    let (to, recv) =
        run.order.peer[rank.index()][instr as usize].expect("a joined message has two halves");
    (to, message_view(&run.plan, to, recv).expect("the other half of a send is a receive"))
}

/// The thread of a device: drives it until the step is over.
pub(super) fn drive(run: &Run, device: usize) {
    let Some(set) = run.tasks.device_set(device) else { return };
    let mut cell = lock(&run.cells[device]);
    let is_alone = run.tasks.host_set_count == 0 && run.tasks.devices.len() == 1;
    while !run.is_over() {
        if let Err(error) = drive_once(run, &mut cell, set, (device, is_alone)) {
            run.fail(error);
        }
        run.end_due();
    }
    cell.drain(run);
}

fn drive_once(
    run: &Run,
    cell: &mut Cell,
    set: usize,
    (device, is_alone): (usize, bool),
) -> Result<(), ExecError> {
    let has_work = || run.is_over() || run.peek(set).is_some();
    match cell.advance(run, set)? {
        Driven::Encoded(_) | Driven::Ended => {}
        Driven::InFlight if is_alone => cell.fence(run)?,
        Driven::InFlight => {
            let limit = run.until_due().map_or(POLL, |due| due.min(POLL));
            run.pool.sleep_device(device, Some(limit), has_work);
        }
        Driven::Idle => run.pool.sleep_device(device, run.until_due(), has_work),
    }
    Ok(())
}

/// Locks a device; a panic in an earlier step does not matter, as the next one starts afresh.
pub(super) fn lock(cell: &Mutex<Cell>) -> std::sync::MutexGuard<'_, Cell> {
    cell.lock().unwrap_or_else(PoisonError::into_inner)
}
