//! DualPipe-V: two stages a position in a V; a forward and a backward share the device.
//!
//! DeepSeek-AI, 2024 (`DualPipe`: arXiv:2412.19437, section 3.2.1), cut in half to a V by Qi et al.,
//! 2025, so that no weights are held twice. In the middle of the step each forward is paired with a
//! backward of another microbatch: while one waits for its messages, the other computes.

use super::v_row::{Leg, VRow, schedule};
use super::{Pass, Schedule};

/// The schedule for two stages a position.
///
/// ```
/// use shardlab::planner::schedule::dual_pipe_v::dual_pipe_v;
/// let row = "0F0,0F1,0F2,3F0,3I0,3W0,3F1,(0F3;3B1)OVERLAP_F_B,(3F2;0B0)OVERLAP_F_B,3B2,\
///            (3F3;0B1)OVERLAP_F_B,3B3,0I2,0W2,0I3,0W3";
/// assert_eq!(dual_pipe_v(2, 4).to_string().lines().next(), Some(row));
/// ```
pub fn dual_pipe_v(positions: u32, microbatches: u32) -> Schedule {
    // So many fill the pipeline; with fewer the same order holds, with holes and fewer pairs.
    let filled = microbatches.max(2 * positions);
    schedule(positions, microbatches, |position| {
        let mut row = VRow::new(position, positions);
        let behind = positions - 1 - position;
        for _ in 0..2 * behind {
            row.run(Leg::Down, Pass::F);
        }
        for _ in 0..=position {
            row.run(Leg::Down, Pass::F);
            row.run(Leg::Up, Pass::F);
        }
        for _ in 0..behind {
            row.run(Leg::Up, Pass::I);
            row.oldest_weights();
            row.run(Leg::Up, Pass::F);
        }
        for round in 0..=filled - 2 * positions + position {
            if round == 0 && behind == 0 {
                // The last position does not wait for the pair here: its backward is due at once.
                row.run(Leg::Down, Pass::F);
                row.run(Leg::Up, Pass::B);
            } else {
                row.pair(Leg::Down, Leg::Up);
            }
            row.pair(Leg::Up, Leg::Down);
        }
        for _ in 0..behind {
            row.run(Leg::Up, Pass::B);
            row.pair(Leg::Up, Leg::Down);
        }
        // No forwards are left: the second half of these backwards puts its weight gradients off.
        for backward in 0..2 * (position + 1) {
            let leg = if backward % 2 == 0 { Leg::Up } else { Leg::Down };
            row.run(leg, if backward <= position { Pass::B } else { Pass::I });
        }
        for _ in 0..behind {
            row.oldest_weights();
            row.run(Leg::Down, Pass::I);
        }
        for _ in 0..=position {
            row.oldest_weights();
        }
        row
    })
}
