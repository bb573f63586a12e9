//! Interleaved 1F1B: several stages a position, placed in a loop, shrink the bubble.
//!
//! Narayanan et al., 2021 (arXiv:2104.04473, section 2.2). Position `i` of `p` holds the stages
//! `i, i + p, i + 2p, …`, its *chunks*. Microbatches go in groups of `p`: a group passes through one
//! chunk, then through the next. Waiting/ideal falls from (p−1)/m to (p−1)/(v·m) with `v` chunks;
//! more activations are kept and v times as many messages cross.
//!
//! Where the microbatches do not divide by the positions there are ⌊m/p⌋ groups of p or more (one of
//! m if m < p), the first ones larger: a group of fewer than p would leave holes in the middle.

use super::Schedule;
use super::alternate::{Backward, Visit, alternate};
use crate::shape::parts;

/// The schedule for `chunks` stages a position; with one it is 1F1B.
///
/// ```
/// use shardlab::planner::schedule::interleaved_1f1b::interleaved_1f1b;
/// let row = "1F0,1F1,3F0,3B0,3F1,3B1,1B0,1B1";
/// assert_eq!(interleaved_1f1b(2, 2, 2).to_string().lines().last(), Some(row));
/// ```
pub fn interleaved_1f1b(positions: u32, chunks: u32, microbatches: u32) -> Schedule {
    // Each forward that runs ahead covers the way of a microbatch down and back up.
    let ways = if chunks == 1 { 1 } else { 2 };
    let row = |position: u32| {
        let Looped { forwards, backwards, first_chunks } =
            Looped::new(position, [positions, chunks, microbatches]);
        let ahead = first_chunks + ways * (positions - 1 - position);
        alternate(&forwards, &backwards, ahead, Backward::Whole)
    };
    Schedule { rows: (0..positions).map(row).collect() }
}

/// The order in which a position visits its chunks.
pub(super) struct Looped {
    pub(super) forwards: Vec<Visit>,
    pub(super) backwards: Vec<Visit>,
    /// Forwards of the first group until its last chunk.
    pub(super) first_chunks: u32,
}

impl Looped {
    pub(super) fn new(position: u32, [positions, chunks, microbatches]: [u32; 3]) -> Self {
        let groups = parts(microbatches, (microbatches / positions).max(1));
        let stage = |chunk| position + chunk * positions;
        let (mut forwards, mut backwards) = (Vec::new(), Vec::new());
        for group in &groups {
            for chunk in 0..chunks {
                let up = chunks - 1 - chunk;
                forwards.extend(group.clone().map(|microbatch| (stage(chunk), microbatch)));
                backwards.extend(group.clone().map(|microbatch| (stage(up), microbatch)));
            }
        }
        let largest = groups.first().map_or(0, |group| group.end - group.start);
        Self { forwards, backwards, first_chunks: (chunks - 1) * largest }
    }
}
