//! Interleaved zero bubble: interleaved 1F1B whose backwards are cut as in ZB-H1.
//!
//! Qi et al., 2023 (arXiv:2401.10241) on the chunks of Narayanan et al., 2021 (arXiv:2104.04473), as
//! torch.distributed.pipelining combines them. Because input gradients alone come back sooner, half
//! as many forwards need to run ahead; position `i` puts weight gradients off by `i` backwards.

use super::Schedule;
use super::alternate::{self, Backward, alternate};
use super::interleaved_1f1b::{Looped, first_chunks};

/// The schedule for `chunks` stages a position; with one it is ZB-H1.
///
/// ```
/// use shardlab::planner::schedule::{interleaved_zero_bubble::interleaved_zero_bubble, zb_h1};
/// assert_eq!(interleaved_zero_bubble(4, 1, 8), zb_h1::zb_h1(4, 8));
/// ```
pub fn interleaved_zero_bubble(positions: u32, chunks: u32, microbatches: u32) -> Schedule {
    let sizes = [positions, chunks, microbatches];
    let row = |position: u32| {
        let Looped { forwards, backwards } = Looped::new(position, sizes);
        alternate(&forwards, &backwards, ahead(position, sizes), backward(position))
    };
    Schedule { rows: (0..positions).map(row).collect() }
}

/// The most visits of its stages that a position keeps.
pub(super) fn most_kept(position: u32, sizes: [u32; 3]) -> u32 {
    let [_, chunks, microbatches] = sizes;
    alternate::most_kept(chunks * microbatches, ahead(position, sizes), backward(position))
}

fn ahead(position: u32, sizes: [u32; 3]) -> u32 {
    let [positions, ..] = sizes;
    first_chunks(sizes) + (positions - 1 - position)
}

const fn backward(position: u32) -> Backward {
    Backward::Split { delay: position as usize }
}
