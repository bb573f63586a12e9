//! 1F1B: one forward, one backward, as soon as the pipeline is full.
//!
//! Harlap et al., 2018 (`PipeDream`, arXiv:1806.03377), flushed at the end of a step as in
//! Narayanan et al., 2021 (arXiv:2104.04473). Position `i` of `p` keeps the activations of at most
//! `p − i` microbatches.

use super::Schedule;
use super::alternate::{Backward, alternate, through};

/// The schedule for one stage a position.
///
/// ```
/// use shardlab::planner::schedule::one_f_one_b::one_f_one_b;
/// assert_eq!(one_f_one_b(2, 3).to_string(), "0F0,0F1,0B0,0F2,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n");
/// ```
pub fn one_f_one_b(positions: u32, microbatches: u32) -> Schedule {
    let row = |stage: u32| {
        let visits = through(stage, microbatches);
        alternate(&visits, &visits, positions - 1 - stage, Backward::Whole)
    };
    Schedule { rows: (0..positions).map(row).collect() }
}
