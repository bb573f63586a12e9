//! ZB-V: two stages a position in a V, zero bubble in the memory of 1F1B.
//!
//! Qi et al., 2024 (arXiv:2405.15362), first as a schedule of Qi et al., 2023 (arXiv:2401.10241,
//! section 6). Because the last position hands a microbatch over to itself, its backward starts at
//! once, and all positions keep about the same: 2p activations of half a stage each.

use super::v_row::{Leg, VRow, schedule};
use super::{Pass, Schedule};

/// The schedule for two stages a position.
///
/// ```
/// use shardlab::planner::schedule::zb_v::zb_v;
/// assert_eq!(
///     zb_v(2, 2).to_string(),
///     "0F0,0F1,3F0,3I0,3W0,3F1,3I1,3W1,0I0,0W0,0I1,0W1\n\
///      1F0,2F0,1F1,2F1,2I0,2W0,1I0,1W0,2I1,2W1,1I1,1W1\n"
/// );
/// ```
pub fn zb_v(positions: u32, microbatches: u32) -> Schedule {
    // So many fill the pipeline; with fewer the same order holds, with holes.
    let filled = microbatches.max(2 * positions - 1);
    schedule(positions, microbatches, |position| {
        let mut row = VRow::new(position, positions);
        let backward = |row: &mut VRow, leg| {
            row.run(leg, Pass::I);
            row.run(leg, Pass::W);
        };
        // Down to the last position and back up to this one.
        for _ in 0..2 * (positions - position) - 1 {
            row.run(Leg::Down, Pass::F);
        }
        for _ in 0..position {
            row.run(Leg::Up, Pass::F);
            row.run(Leg::Down, Pass::F);
        }
        for _ in position..positions {
            row.run(Leg::Up, Pass::F);
            backward(&mut row, Leg::Up);
        }
        while row.forwards(Leg::Up) < filled {
            if row.forwards(Leg::Down) < filled {
                row.run(Leg::Down, Pass::F);
            }
            backward(&mut row, Leg::Down);
            row.run(Leg::Up, Pass::F);
            backward(&mut row, Leg::Up);
        }
        // The way back to the first position: weight gradients wait where others do.
        for _ in 0..position {
            row.run(Leg::Down, Pass::I);
            row.run(Leg::Up, Pass::I);
        }
        for _ in position..positions {
            row.run(Leg::Down, Pass::I);
            row.run(Leg::Down, Pass::W);
        }
        row.all_weights(Leg::Up);
        row.all_weights(Leg::Down);
        row
    })
}
