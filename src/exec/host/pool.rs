//! What the workers of the host pool share: who sleeps, and ops that are open to idle workers.
//!
//! Sleeping and waking is the only place with locks, and only a sleeper's own. What may start
//! is not here but in the step's state.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The workers and device threads of one executor, as far as they know of one another.
#[derive(Debug)]
pub(in crate::exec) struct Pool {
    workers: Box<[Seat]>,
    devices: Box<[Bell]>,
    sleeper_count: AtomicUsize,
}

/// A worker's place in the pool.
#[derive(Debug, Default)]
#[repr(align(128))] // No two workers write to one cache line.
struct Seat {
    bell: Bell,
    open: OpenOp,
}

impl Pool {
    /// A pool of `worker_count` workers and `device_count` device threads, all awake.
    pub(in crate::exec) fn new(worker_count: usize, device_count: usize) -> Self {
        Self {
            workers: (0..worker_count).map(|_| Seat::default()).collect(),
            devices: (0..device_count).map(|_| Bell::default()).collect(),
            sleeper_count: AtomicUsize::new(0),
        }
    }

    /// Number of workers.
    pub(in crate::exec) fn worker_count(&self) -> usize {
        self.workers.len()
    }

    /// Puts a worker to sleep until it is woken or `limit` is over; not at all if `has_work` says
    /// so after the others were told of the sleep.
    pub(in crate::exec) fn sleep(
        &self,
        worker: usize,
        limit: Option<Duration>,
        has_work: impl FnOnce() -> bool,
    ) {
        self.sleeper_count.fetch_add(1, SeqCst);
        if self.workers[worker].bell.sleep(limit, has_work) {
            self.sleeper_count.fetch_sub(1, SeqCst);
        }
    }

    /// Wakes up to `count` sleeping workers.
    pub(in crate::exec) fn wake(&self, count: usize) {
        let mut left = count;
        for seat in &self.workers {
            if left == 0 || self.sleeper_count.load(SeqCst) == 0 {
                return;
            }
            if seat.bell.ring() {
                self.sleeper_count.fetch_sub(1, SeqCst);
                left -= 1;
            }
        }
    }

    /// Puts a device thread to sleep; as [`Pool::sleep`].
    pub(in crate::exec) fn sleep_device(
        &self,
        device: usize,
        limit: Option<Duration>,
        has_work: impl FnOnce() -> bool,
    ) {
        self.devices[device].sleep(limit, has_work);
    }

    /// Wakes a device thread if it sleeps.
    pub(in crate::exec) fn wake_device(&self, device: usize) {
        self.devices[device].ring();
    }

    /// Wakes everybody.
    pub(in crate::exec) fn wake_all(&self) {
        self.wake(usize::MAX);
        for bell in &self.devices {
            bell.ring();
        }
    }

    /// The op that a worker opens to the others.
    pub(in crate::exec) fn open_op(&self, worker: usize) -> &OpenOp {
        &self.workers[worker].open
    }

    /// The ops of all workers.
    pub(in crate::exec) fn open_ops(&self) -> impl Iterator<Item = &OpenOp> {
        self.workers.iter().map(|seat| &seat.open)
    }
}

/// Wakes one thread.
#[derive(Debug, Default)]
struct Bell {
    asleep: AtomicBool,
    rung: Mutex<bool>,
    wakes: Condvar,
}

impl Bell {
    /// Sleeps; returns whether the sleeper woke by itself, that is, nobody's `ring` counted it.
    fn sleep(&self, limit: Option<Duration>, has_work: impl FnOnce() -> bool) -> bool {
        self.asleep.store(true, SeqCst);
        // Whoever publishes work does so before it looks at `asleep`, and all of that is SeqCst:
        // one of the two sees the other.
        if !has_work() {
            let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
            match limit {
                None => {
                    while !*rung {
                        rung = self.wakes.wait(rung).unwrap_or_else(PoisonError::into_inner);
                    }
                }
                Some(limit) if !*rung => {
                    let woken = self.wakes.wait_timeout(rung, limit);
                    rung = woken.unwrap_or_else(PoisonError::into_inner).0;
                }
                Some(_) => {}
            }
            *rung = false;
        }
        self.asleep.swap(false, SeqCst)
    }

    /// Wakes the thread; whether it slept.
    fn ring(&self) -> bool {
        if !self.asleep.load(SeqCst) || !self.asleep.swap(false, SeqCst) {
            return false;
        }
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.wakes.notify_one();
        true
    }
}

/// An op whose parts any worker may run while its owner has it open.
///
/// The parts are those of the op, whoever runs them: the bits of the result do not depend on who
/// joins.
#[derive(Debug, Default)]
pub(in crate::exec) struct OpenOp {
    /// Task + 1 in the high half, next part in the low half; 0: nothing is open. One word, so a
    /// part is always claimed for the task that is open at that moment.
    next: AtomicU64,
    unfinished: AtomicU32,
}

impl OpenOp {
    /// Opens a task of `part_count` parts.
    pub(in crate::exec) fn open(&self, task: u32, part_count: u32) {
        self.unfinished.store(part_count, Relaxed);
        // SeqCst: a worker that goes to sleep sees it, or is seen by the `wake` that follows.
        self.next.store((u64::from(task) + 1) << 32, SeqCst);
    }

    /// Claims the next part: `(task, part)`. `part_count` tells the parts of a task.
    pub(in crate::exec) fn claim(&self, part_count: impl Fn(u32) -> u32) -> Option<(u32, u32)> {
        let mut next = self.next.load(Acquire);
        loop {
            let task = u32::try_from(next >> 32).ok()?.checked_sub(1)?;
            let part = next as u32;
            if part >= part_count(task) {
                return None;
            }
            match self.next.compare_exchange_weak(next, next + 1, AcqRel, Acquire) {
                Ok(_) => return Some((task, part)),
                Err(now) => next = now,
            }
        }
    }

    /// Whether a part may be left to claim.
    pub(in crate::exec) fn is_open(&self, part_count: impl Fn(u32) -> u32) -> bool {
        let next = self.next.load(SeqCst);
        next != 0 && (next as u32) < part_count((next >> 32) as u32 - 1)
    }

    /// A claimed part has ended.
    pub(in crate::exec) fn end_part(&self) {
        self.unfinished.fetch_sub(1, AcqRel);
    }

    /// Waits for the parts that others claimed, and closes the op.
    pub(in crate::exec) fn close(&self) {
        let mut spins = 0u32;
        while self.unfinished.load(Acquire) > 0 {
            spins += 1;
            if spins.is_multiple_of(256) {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
        self.next.store(0, Release);
    }
}
