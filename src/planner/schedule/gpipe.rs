//! `GPipe`: all forwards, then all backwards.
//!
//! Huang et al., 2019 (arXiv:1811.06965). Simple, with the same bubble as 1F1B, but every position
//! keeps the activations of all microbatches.

use super::{Act, Cell, Pass, Schedule};

/// The schedule for one stage a position; both passes in ascending order of microbatches.
///
/// ```
/// use shardlab::planner::schedule::gpipe::gpipe;
/// assert_eq!(gpipe(2, 2).to_string(), "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n");
/// ```
pub fn gpipe(positions: u32, microbatches: u32) -> Schedule {
    let row = |stage| {
        let all = |pass| {
            (0..microbatches).map(move |microbatch| Cell::One(Act { stage, pass, microbatch }))
        };
        all(Pass::F).chain(all(Pass::B)).collect()
    };
    Schedule { rows: (0..positions).map(row).collect() }
}
