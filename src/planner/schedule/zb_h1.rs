//! ZB-H1: weight gradients fill the holes of 1F1B, in the memory of 1F1B.
//!
//! Qi et al., 2023 (arXiv:2401.10241, section 2.1). A backward is cut into its input gradient (I),
//! which the position before waits for, and its weight gradient (W), which nobody waits for. I runs
//! as early as in 1F1B, or earlier; position `i` puts W off by `i` backwards, so that all positions
//! keep the activations of p microbatches. The paper's B is I here, and B is both.

use super::Schedule;
use super::alternate::{Backward, alternate, through};

/// The schedule for one stage a position.
///
/// ```
/// use shardlab::planner::schedule::zb_h1::zb_h1;
/// assert_eq!(zb_h1(2, 2).to_string(), "0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1I0,1F1,1I1,1W0,1W1\n");
/// ```
pub fn zb_h1(positions: u32, microbatches: u32) -> Schedule {
    let row = |stage: u32| {
        let visits = through(stage, microbatches);
        let backward = Backward::Split { delay: stage as usize };
        alternate(&visits, &visits, positions - 1 - stage, backward)
    };
    Schedule { rows: (0..positions).map(row).collect() }
}
