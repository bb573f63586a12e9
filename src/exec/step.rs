//! The state of a running step: what is ready, what is outstanding, what has ended and when.
//!
//! Whoever ends a task counts down its successors and publishes those that reach zero. One
//! number tells when a step is over: tasks that are ready, running or in flight. When it falls
//! to zero everything has run, or what is left waits for itself: a hang is known at once.

use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::ExecError;
use super::clock::Clock;
use super::delay::{Deferred, DelayTable};
use super::drive::Cell;
use super::host::memory::Bindings;
use super::host::pool::Pool;
use super::host::ready::ReadySet;
use super::options::{ExecOptions, Timing};
use super::tasks::Tasks;
use crate::mesh::Rank;
use crate::plan::order::Order;
use crate::plan::{Action, Plan, Program};
use crate::trace::Span;
use crate::units::Nanos;

/// What a task's counter holds once it has ended.
const ENDED: u32 = u32::MAX;

/// A loaded Plan with all that its steps need; threads share it while a step runs.
#[derive(Debug)]
pub(super) struct Run {
    /// The Plan.
    pub(super) plan: Arc<Plan>,
    /// Its number: what devices know it by.
    pub(super) plan_index: usize,
    /// What every instruction waits for.
    pub(super) order: Order,
    /// What is scheduled.
    pub(super) tasks: Tasks,
    /// The host memory that each task touches.
    pub(super) bindings: Bindings,
    /// Who works.
    pub(super) pool: Arc<Pool>,
    /// The devices of the executor.
    pub(super) cells: Vec<Arc<Mutex<Cell>>>,
    /// How devices are timed.
    pub(super) timing: Timing,
    /// How long a batch may take.
    pub(super) time_limit: Duration,
    /// The clock of this step.
    pub(super) clock: Clock,
    delays: DelayTable,
    deferred: Deferred,
    /// Predecessors that each task still waits for, or [`ENDED`].
    counters: Box<[AtomicU32]>,
    sets: Box<[ReadySet]>,
    outstanding: AtomicUsize,
    over: AtomicBool,
    failure: Mutex<Option<ExecError>>,
    spans: Box<[[AtomicU64; 2]]>,
    crossed: Box<[AtomicU64]>,
}

impl Run {
    /// Prepares the steps of a Plan.
    pub(super) fn new(plan: Arc<Plan>, plan_index: usize, order: Order, parts: RunParts) -> Self {
        let RunParts { tasks, bindings, pool, cells, options } = parts;
        let count = tasks.list.len();
        let zeros = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
        Self {
            plan_index,
            order,
            bindings,
            pool,
            cells,
            timing: options.timing,
            time_limit: options.time_limit.unwrap_or(Duration::from_secs(300)),
            clock: Clock::start(),
            delays: DelayTable::new(&options.delays, &tasks, plan.mesh.size()),
            plan,
            deferred: Deferred::default(),
            counters: (0..count).map(|_| AtomicU32::new(0)).collect(),
            sets: (0..tasks.set_starts.len() - 1)
                .map(|set| ReadySet::new(tasks.set(set).len()))
                .collect(),
            outstanding: AtomicUsize::new(0),
            over: AtomicBool::new(true),
            failure: Mutex::new(None),
            spans: (0..count).map(|_| Default::default()).collect(),
            crossed: zeros(tasks.links.len()),
            tasks,
        }
    }

    /// Looks new delays up; they count from the next step on.
    pub(super) fn set_delays(&mut self, options: &ExecOptions) {
        self.delays = DelayTable::new(&options.delays, &self.tasks, self.plan.mesh.size());
    }

    /// Forgets the last step and starts the clock of the next one. Allocates nothing.
    pub(super) fn reset(&mut self) {
        *self.failure.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
        self.deferred.clear();
        for (counter, &indegree) in self.counters.iter().zip(&self.tasks.indegree) {
            counter.store(indegree, Relaxed);
        }
        for bytes in &self.crossed {
            bytes.store(0, Relaxed);
        }
        for set in &self.sets {
            set.clear();
        }
        self.outstanding.store(self.tasks.roots.len(), Relaxed);
        self.over.store(self.tasks.roots.is_empty(), SeqCst);
        self.clock = Clock::start();
        for &task in &self.tasks.roots {
            let set = self.tasks.list[task as usize].set as usize;
            self.sets[set].insert(task - self.tasks.set_starts[set]);
        }
    }

    /// Whether nothing is left that could run: the step is done, hangs, or has failed.
    pub(super) fn is_over(&self) -> bool {
        // SeqCst: a thread that goes to sleep looks here last, see `Bell`.
        self.over.load(SeqCst)
    }

    /// Takes a ready task of a host rank: of `last_set` if it has one, else the earliest.
    pub(super) fn claim_host(&self, last_set: &mut usize) -> Option<u32> {
        loop {
            let (set, index) = match self.sets[*last_set].lowest() {
                Some(index) => (*last_set, index),
                None => {
                    let host = self.sets[..self.tasks.host_set_count].iter().enumerate();
                    let lowest = host.filter_map(|(set, ready)| Some((ready.lowest()?, set)));
                    let (index, set) = lowest.min()?;
                    (set, index)
                }
            };
            if self.sets[set].claim(index) {
                *last_set = set;
                return Some(self.tasks.set_starts[set] + index);
            }
        }
    }

    /// Whether a host task is ready.
    pub(super) fn has_host_task(&self) -> bool {
        self.sets[..self.tasks.host_set_count].iter().any(|set| set.lowest().is_some())
    }

    /// Takes the first ready task of a device's set.
    pub(super) fn claim_device(&self, set: usize) -> Option<u32> {
        self.sets[set].pop().map(|index| self.tasks.set_starts[set] + index)
    }

    /// The first ready task of a set, left there.
    pub(super) fn peek(&self, set: usize) -> Option<u32> {
        self.sets[set].lowest().map(|index| self.tasks.set_starts[set] + index)
    }

    /// Takes a task that [`Run::peek`] showed, where nobody else takes any.
    pub(super) fn claim(&self, task: u32) {
        let set = self.tasks.list[task as usize].set as usize;
        let was_there = self.sets[set].claim(task - self.tasks.set_starts[set]);
        assert!(was_there, "somebody else took task {task}");
    }

    /// Parts of a task's kernel.
    pub(super) fn part_count(&self, task: u32) -> u32 {
        self.tasks.list[task as usize].part_count
    }

    /// A device has encoded a task: what follows in the same queue may be encoded.
    pub(super) fn encoded(&self, task: u32) {
        for &next in self.tasks.after_encoded(task) {
            if self.counters[next as usize].fetch_sub(1, AcqRel) == 1 {
                self.outstanding.fetch_add(1, Relaxed);
                self.publish(next);
            }
        }
    }

    /// A task has run from `start` to `end`; it ends now, or later if it is delayed on purpose.
    /// The caller will take `takes` tasks itself, so that many sleepers need not be woken.
    pub(super) fn close(&self, task: u32, start: u64, end: u64, takes: usize) {
        self.settle(task, (start, end), self.delay(task, end - start), takes);
    }

    /// As [`Run::close`], with a given delay.
    pub(super) fn settle(&self, task: u32, (start, end): (u64, u64), delay: u64, takes: usize) {
        let [from, to] = &self.spans[task as usize];
        from.store(start, Relaxed);
        to.store(end + delay, Relaxed);
        if delay == 0 {
            self.end(task, takes);
        } else {
            self.deferred.push(end + delay, task);
            // Somebody who has nothing to do looks after it.
            self.pool.wake(1);
        }
    }

    /// What a task that took `nanos` is delayed by on purpose.
    pub(super) fn delay(&self, task: u32, nanos: u64) -> u64 {
        self.delays.of(&self.tasks, task, nanos)
    }

    /// Ends the tasks whose delay is over; whether there was one.
    pub(super) fn end_due(&self) -> bool {
        let mut any = false;
        if self.deferred.next().is_some() {
            while let Some(task) = self.deferred.pop(self.clock.now()) {
                self.end(task, 0);
                any = true;
            }
        }
        any
    }

    /// How long nothing is due; `None` if nothing is delayed.
    pub(super) fn until_due(&self) -> Option<Duration> {
        let nanos = self.deferred.next()?.saturating_sub(self.clock.now());
        Some(Duration::from_nanos(nanos.max(1)))
    }

    /// Ends a task: successors that waited only for it become ready.
    fn end(&self, task: u32, takes: usize) {
        self.counters[task as usize].store(ENDED, Relaxed);
        let mut host_count = 0;
        // The last successor inherits this task's place among the outstanding ones, so the number
        // cannot reach zero before all are published.
        let mut heir = None;
        for &next in self.tasks.after_ended(task) {
            if self.counters[next as usize].fetch_sub(1, AcqRel) != 1 {
                continue;
            }
            if let Some(ready) = heir.replace(next) {
                self.outstanding.fetch_add(1, Relaxed);
                host_count += self.publish(ready);
            }
        }
        match heir {
            Some(ready) => host_count += self.publish(ready),
            None if self.outstanding.fetch_sub(1, AcqRel) == 1 => self.finish(),
            None => {}
        }
        if host_count > takes {
            self.pool.wake(host_count - takes);
        }
    }

    /// A task may start. Returns 1 for a host task, whose worker the caller wakes.
    fn publish(&self, task: u32) -> usize {
        let set = self.tasks.list[task as usize].set as usize;
        self.sets[set].insert(task - self.tasks.set_starts[set]);
        match set.checked_sub(self.tasks.host_set_count) {
            None => 1,
            Some(device) => {
                self.pool.wake_device(self.tasks.devices[device]);
                0
            }
        }
    }

    /// Nothing is outstanding, or the step has failed.
    fn finish(&self) {
        self.over.store(true, SeqCst);
        self.pool.wake_all();
    }

    /// Ends the step with an error; the first one counts.
    pub(super) fn fail(&self, error: ExecError) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.finish();
    }

    /// The error of the step, once.
    pub(super) fn take_failure(&self) -> Option<ExecError> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Whether a task has ended.
    pub(super) fn has_ended(&self, task: u32) -> bool {
        self.counters[task as usize].load(Relaxed) == ENDED
    }

    /// Whether the step was ended by an error.
    pub(super) fn has_failed(&self) -> bool {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Whether all tasks have ended.
    pub(super) fn has_all_ended(&self) -> bool {
        self.counters.iter().all(|counter| counter.load(Relaxed) == ENDED)
    }

    /// `bytes` went over a link.
    pub(super) fn count(&self, link: u32, bytes: u64) {
        self.crossed[link as usize].fetch_add(bytes, Relaxed);
    }

    /// Bytes that went over a link in this step.
    pub(super) fn crossed(&self, link: usize) -> u64 {
        self.crossed[link].load(Relaxed)
    }

    /// How many instructions have ended.
    pub(super) fn ended_count(&self) -> u64 {
        let tasks = self.tasks.of_instr.iter().flatten();
        tasks.filter(|&&task| self.has_ended(task)).count() as u64
    }

    /// The spans of all instructions, `[rank][instruction]`. Both halves of a message have the
    /// span of the whole way.
    pub(super) fn spans(&self) -> Vec<Vec<Span>> {
        let rank = |(rank, program): (Rank, &Program)| {
            let instrs = program.instrs.iter().enumerate();
            instrs.map(|(index, instr)| self.span(rank, index, &instr.action)).collect()
        };
        self.plan.mesh.ranks().zip(&self.plan.programs).map(rank).collect()
    }

    fn span(&self, rank: Rank, index: usize, action: &Action) -> Span {
        let own = self.tasks.of_instr[rank.index()][index];
        let other = self.order.peer[rank.index()][index]
            .map_or(own, |(peer, other)| self.tasks.of_instr[peer.index()][other as usize]);
        let (first, last) = match action {
            Action::Recv { .. } => (other, own),
            Action::Send { .. } => (own, other),
            Action::Launch { .. } | Action::Copy { .. } => (own, own),
        };
        let start = Nanos(self.spans[first as usize][0].load(Relaxed));
        let end = Nanos(self.spans[last as usize][1].load(Relaxed));
        Span { start, end: end.max(start) }
    }
}

/// What a [`Run`] is made of.
#[derive(Debug)]
pub(super) struct RunParts {
    pub(super) tasks: Tasks,
    pub(super) bindings: Bindings,
    pub(super) pool: Arc<Pool>,
    pub(super) cells: Vec<Arc<Mutex<Cell>>>,
    pub(super) options: ExecOptions,
}
