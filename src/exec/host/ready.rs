//! The lock-free set of tasks that may start: one bit a task, the lowest is taken first.
//!
//! A bit is set once in a step, by whoever ended the last predecessor, and cleared once, by
//! whoever claims the task. A second level of bits says which words are worth a look.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

/// Tasks that may start, by their index in this set.
#[derive(Debug)]
pub(in crate::exec) struct ReadySet {
    /// Bit `i % 64` of word `i / 64`: task `i` may start.
    words: Box<[AtomicU64]>,
    /// Bit `w % 64` of word `w / 64`: word `w` may be non-zero. It is certainly set when it is.
    summary: Box<[AtomicU64]>,
}

impl ReadySet {
    /// An empty set for `count` tasks.
    pub(in crate::exec) fn new(count: usize) -> Self {
        let zeros = |bits: usize| (0..bits.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Self { words: zeros(count), summary: zeros(count.div_ceil(64)) }
    }

    /// Task `index` may start.
    pub(in crate::exec) fn insert(&self, index: u32) {
        let (word, bit) = place(index);
        self.words[word].fetch_or(bit, SeqCst);
        let (word, bit) = place(word as u32);
        // All orders are SeqCst: either this load sees that `lowest` cleared the bit, or `lowest`
        // looks at the word again after the task was inserted.
        if self.summary[word].load(SeqCst) & bit == 0 {
            self.summary[word].fetch_or(bit, SeqCst);
        }
    }

    /// The lowest task that may start, left in the set.
    pub(in crate::exec) fn lowest(&self) -> Option<u32> {
        for (index, summary) in self.summary.iter().enumerate() {
            loop {
                let bits = summary.load(SeqCst);
                if bits == 0 {
                    break;
                }
                let word = index * 64 + bits.trailing_zeros() as usize;
                let tasks = self.words[word].load(SeqCst);
                if tasks != 0 {
                    return Some(word as u32 * 64 + tasks.trailing_zeros());
                }
                let (_, bit) = place(word as u32);
                summary.fetch_and(!bit, SeqCst);
                // Somebody may have inserted between the load and the clearing.
                if self.words[word].load(SeqCst) != 0 {
                    summary.fetch_or(bit, SeqCst);
                }
            }
        }
        None
    }

    /// Takes `index` out; whether it was still there, that is, whether the caller owns it now.
    pub(in crate::exec) fn claim(&self, index: u32) -> bool {
        let (word, bit) = place(index);
        self.words[word].fetch_and(!bit, SeqCst) & bit != 0
    }

    /// Takes the lowest task.
    pub(in crate::exec) fn pop(&self) -> Option<u32> {
        loop {
            let index = self.lowest()?;
            if self.claim(index) {
                return Some(index);
            }
        }
    }

    /// Empties the set.
    pub(in crate::exec) fn clear(&self) {
        for word in self.words.iter().chain(&self.summary) {
            word.store(0, SeqCst);
        }
    }
}

/// The word of an index and its bit there.
fn place(index: u32) -> (usize, u64) {
    ((index / 64) as usize, 1 << (index % 64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn the_lowest_task_comes_first_over_words_and_summaries() {
        let set = ReadySet::new(10_000);
        for index in [9_999, 64, 5_000, 63, 4_096] {
            set.insert(index);
        }
        let order: Vec<u32> = std::iter::from_fn(|| set.pop()).collect();
        assert_eq!(order, [63, 64, 4_096, 5_000, 9_999]);
        assert_eq!(ReadySet::new(0).pop(), None);
    }

    #[test]
    fn every_task_is_claimed_exactly_once_by_competing_threads() {
        const COUNT: u32 = 20_000;
        let set = ReadySet::new(COUNT as usize);
        let claimed: Vec<AtomicU32> = (0..COUNT).map(|_| AtomicU32::new(0)).collect();
        let left = AtomicU32::new(COUNT);
        std::thread::scope(|scope| {
            for half in 0..2 {
                let set = &set;
                scope.spawn(move || (0..COUNT / 2).for_each(|i| set.insert(2 * i + half)));
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    while left.load(SeqCst) > 0 {
                        match set.pop() {
                            Some(index) => {
                                claimed[index as usize].fetch_add(1, SeqCst);
                                left.fetch_sub(1, SeqCst);
                            }
                            None => std::thread::yield_now(),
                        }
                    }
                });
            }
        });
        assert!(claimed.iter().all(|count| count.load(SeqCst) == 1));
    }
}
