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
use super::alternate::{self, Backward, Visit, alternate};
use crate::shape::parts;

/// The schedule for `chunks` stages a position; with one it is 1F1B.
///
/// ```
/// use shardlab::planner::schedule::interleaved_1f1b::interleaved_1f1b;
/// let row = "1F0,1F1,3F0,3B0,3F1,3B1,1B0,1B1";
/// assert_eq!(interleaved_1f1b(2, 2, 2).to_string().lines().last(), Some(row));
/// ```
pub fn interleaved_1f1b(positions: u32, chunks: u32, microbatches: u32) -> Schedule {
    let sizes = [positions, chunks, microbatches];
    let row = |position: u32| {
        let Looped { forwards, backwards } = Looped::new(position, sizes);
        alternate(&forwards, &backwards, ahead(position, sizes), Backward::Whole)
    };
    Schedule { rows: (0..positions).map(row).collect() }
}

/// The most visits of its stages that a position keeps.
pub(super) fn most_kept(position: u32, sizes: [u32; 3]) -> u32 {
    let [_, chunks, microbatches] = sizes;
    alternate::most_kept(chunks * microbatches, ahead(position, sizes), Backward::Whole)
}

fn ahead(position: u32, sizes: [u32; 3]) -> u32 {
    let [positions, chunks, _] = sizes;
    // Each forward that runs ahead covers the way of a microbatch down and back up.
    let ways = if chunks == 1 { 1 } else { 2 };
    first_chunks(sizes) + ways * (positions - 1 - position)
}

/// The order in which a position visits its chunks.
pub(super) struct Looped {
    pub(super) forwards: Vec<Visit>,
    pub(super) backwards: Vec<Visit>,
}

impl Looped {
    pub(super) fn new(position: u32, [positions, chunks, microbatches]: [u32; 3]) -> Self {
        let groups = parts(microbatches, group_count(positions, microbatches));
        let stage = |chunk| position + chunk * positions;
        let (mut forwards, mut backwards) = (Vec::new(), Vec::new());
        for group in &groups {
            for chunk in 0..chunks {
                let up = chunks - 1 - chunk;
                forwards.extend(group.clone().map(|microbatch| (stage(chunk), microbatch)));
                backwards.extend(group.clone().map(|microbatch| (stage(up), microbatch)));
            }
        }
        Self { forwards, backwards }
    }
}

/// Forwards of the first group until its last chunk.
pub(super) fn first_chunks([positions, chunks, microbatches]: [u32; 3]) -> u32 {
    (chunks - 1) * microbatches.div_ceil(group_count(positions, microbatches))
}

fn group_count(positions: u32, microbatches: u32) -> u32 {
    (microbatches / positions).max(1)
}
