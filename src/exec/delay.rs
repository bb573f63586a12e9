//! Faults on purpose at run time: tasks that are over, but do not count as ended before a while.
//!
//! No worker waits for them: they are in flight, and whoever has nothing better to do looks after
//! them. Without delays nothing here is touched.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Mutex, PoisonError};

use super::options::{Delays, RankDelay};
use super::tasks::{Kind, Tasks};
use crate::sim::Links;
use crate::units::Bytes;

/// The longest delay, an hour in nanoseconds: no wish makes the clock of a step overflow.
const DELAY_MAX: u64 = 3_600_000_000_000;

/// The delays of a loaded Plan, by rank and by link.
#[derive(Debug, Default)]
pub(super) struct DelayTable {
    any: bool,
    ranks: Vec<RankDelay>,
    links: Vec<Links>,
}

impl DelayTable {
    /// Looks the delays of all ranks and links of a Plan up.
    pub(super) fn new(delays: &Delays, tasks: &Tasks, rank_count: u32) -> Self {
        let rank = |rank| delays.ranks.get(&rank).copied().unwrap_or_default();
        let link = |from, to| delays.links.get(&(from, to)).copied().unwrap_or(Links::FREE);
        Self {
            any: !delays.ranks.is_empty() || !delays.links.is_empty(),
            ranks: (0..rank_count).map(|index| rank(crate::mesh::Rank(index))).collect(),
            links: tasks.links.iter().map(|&(from, to, _)| link(from, to)).collect(),
        }
    }

    /// Nanoseconds that a task which took `nanos` takes longer.
    pub(super) fn of(&self, tasks: &Tasks, task: u32, nanos: u64) -> u64 {
        if !self.any {
            return 0;
        }
        let task = &tasks.list[task as usize];
        let delay = match task.kind {
            Kind::Launch => {
                let RankDelay { factor, extra } = self.ranks[task.rank.index()];
                ((nanos as f64 * (factor - 1.0).max(0.0)) as u64).saturating_add(extra.0)
            }
            // A staged message is late on its first leg, and the second one waits for that.
            Kind::Message { link } | Kind::Stage { link } | Kind::Download { link } => {
                // The work of a message is to read and to write its bytes.
                self.links[link as usize].duration(Bytes(task.work / 2)).0
            }
            Kind::Copy | Kind::Upload { .. } | Kind::Deliver { .. } | Kind::Unmatched => 0,
        };
        delay.min(DELAY_MAX)
    }
}

/// Tasks in flight with the time at which they end.
#[derive(Debug)]
pub(super) struct Deferred {
    /// (time, task), the earliest first.
    heap: Mutex<BinaryHeap<Reverse<(u64, u32)>>>,
    /// The earliest time; `u64::MAX`: none.
    next: AtomicU64,
}

impl Default for Deferred {
    fn default() -> Self {
        Self { heap: Mutex::default(), next: AtomicU64::new(u64::MAX) }
    }
}

impl Deferred {
    /// `task` ends at `time`.
    pub(super) fn push(&self, time: u64, task: u32) {
        let mut heap = self.heap.lock().unwrap_or_else(PoisonError::into_inner);
        heap.push(Reverse((time, task)));
        self.publish(&heap);
    }

    /// A task whose time has come.
    pub(super) fn pop(&self, now: u64) -> Option<u32> {
        if self.next.load(SeqCst) > now {
            return None;
        }
        let mut heap = self.heap.lock().unwrap_or_else(PoisonError::into_inner);
        let due = matches!(heap.peek(), Some(Reverse((time, _))) if *time <= now);
        let task = if due { heap.pop().map(|Reverse((_, task))| task) } else { None };
        self.publish(&heap);
        task
    }

    /// When the next task ends.
    pub(super) fn next(&self) -> Option<u64> {
        Some(self.next.load(SeqCst)).filter(|&time| time != u64::MAX)
    }

    /// Forgets everything.
    pub(super) fn clear(&self) {
        let mut heap = self.heap.lock().unwrap_or_else(PoisonError::into_inner);
        heap.clear();
        self.publish(&heap);
    }

    fn publish(&self, heap: &BinaryHeap<Reverse<(u64, u32)>>) {
        let next = heap.peek().map_or(u64::MAX, |Reverse((time, _))| *time);
        self.next.store(next, SeqCst);
    }
}
