//! ZB-H2: no position waits between its first and its last pass, at twice the memory of 1F1B.
//!
//! Qi et al., 2023 (arXiv:2401.10241, section 2.2). Position `i` of `p` runs 2(p−i)−1 forwards
//! before its first backward, which fills the time until that comes back, and puts weight gradients
//! off by 2i backwards, which fills the end. With 2p−1 microbatches or more and equal passes the rows
//! have no hole; they are only shifted against one another by the way of the first microbatch. All
//! positions keep the activations of 2p−1 microbatches.

use super::Schedule;
use super::alternate::{self, Backward, alternate, through};

/// The schedule for one stage a position.
///
/// ```
/// use shardlab::planner::schedule::zb_h2::zb_h2;
/// let row = "0F0,0F1,0F2,0I0,0W0,0I1,0W1,0I2,0W2";
/// assert_eq!(zb_h2(2, 3).to_string().lines().next(), Some(row));
/// ```
pub fn zb_h2(positions: u32, microbatches: u32) -> Schedule {
    let row = |stage: u32| {
        let visits = through(stage, microbatches);
        alternate(&visits, &visits, ahead(stage, positions), backward(stage))
    };
    Schedule { rows: (0..positions).map(row).collect() }
}

/// The most microbatches that a position keeps.
pub(super) fn most_kept(position: u32, positions: u32, microbatches: u32) -> u32 {
    alternate::most_kept(microbatches, ahead(position, positions), backward(position))
}

const fn ahead(position: u32, positions: u32) -> u32 {
    2 * (positions - 1 - position)
}

const fn backward(position: u32) -> Backward {
    Backward::Split { delay: 2 * position as usize }
}
