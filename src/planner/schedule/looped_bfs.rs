//! Looped BFS: all microbatches through one chunk before the next, breadth first.
//!
//! Lamy-Poirier, 2023 (arXiv:2211.05953). Position `i` of `p` holds the stages `i, i + p, …`. The
//! bubble of interleaved 1F1B, but all activations are kept; in exchange the weights of a chunk are
//! needed only once forward and once backward, which suits sharded weights.
//!
//! Backwards run from the last microbatch to the first, so weight gradients are added in another
//! order than by the other schedules: equal up to rounding, not to the last bit.

use super::{Act, Cell, Pass, Schedule};

/// The schedule for `chunks` stages a position.
///
/// ```
/// use shardlab::planner::schedule::looped_bfs::looped_bfs;
/// let row = "0F0,0F1,2F0,2F1,2B1,2B0,0B1,0B0";
/// assert_eq!(looped_bfs(2, 2, 2).to_string().lines().next(), Some(row));
/// ```
pub fn looped_bfs(positions: u32, chunks: u32, microbatches: u32) -> Schedule {
    let row = |position: u32| {
        let visits: Vec<(u32, u32)> = (0..chunks)
            .flat_map(|chunk| (0..microbatches).map(move |m| (position + chunk * positions, m)))
            .collect();
        let cell = |pass| {
            move |&(stage, microbatch): &(u32, u32)| Cell::One(Act { stage, pass, microbatch })
        };
        let forwards = visits.iter().map(cell(Pass::F));
        forwards.chain(visits.iter().rev().map(cell(Pass::B))).collect()
    };
    Schedule { rows: (0..positions).map(row).collect() }
}
