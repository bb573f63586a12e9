//! When a rank takes what another stage hands over: at the cell that it runs when the sender is done.
//!
//! A message needs a place from the moment it is sent to the moment it is used. Written only at its
//! use, a receive could find its place taken until after a later message: two ranks would wait for
//! each other, or every message would need memory of its own. So the schedule is run on paper, and a
//! receive stands before the first cell that ends after the sender's, however much later it is used.
//!
//! Nothing can go round in a circle then, neither read from top to bottom nor with places reused: who
//! waits before a cell waits for a cell that ends earlier on paper, and what lay in the place of a
//! message was used by cells that end no later than the sender's.

use std::collections::BTreeMap;

use super::schedule::explain::textbook;
use super::schedule::unit_time::unit_times;
use super::schedule::{Act, Pass, Schedule};

/// Passes whose messages are received before each cell, earlier than at the pass itself:
/// `[row][cell]`.
pub(super) type Postings = Vec<Vec<Vec<Act>>>;

/// Where to receive early in a checked schedule.
pub(super) fn postings(schedule: &Schedule) -> Postings {
    let times = unit_times(schedule, textbook).expect("a checked schedule does not hang").rows;
    let mut places: BTreeMap<(bool, u32, u32), (usize, usize)> = BTreeMap::new();
    for (row, cells) in schedule.rows.iter().enumerate() {
        for (at, cell) in cells.iter().enumerate() {
            let sends = cell.acts().filter(|act| act.pass != Pass::W);
            places.extend(sends.map(|act| (key(act, act.stage), (row, at))));
        }
    }
    let last = schedule.stage_count().saturating_sub(1);
    let mut postings: Postings =
        schedule.rows.iter().map(|cells| vec![Vec::new(); cells.len()]).collect();
    for (row, cells) in schedule.rows.iter().enumerate() {
        for (at, act) in cells.iter().enumerate().flat_map(|(at, c)| c.acts().map(move |a| (at, a)))
        {
            let from = match act.pass {
                Pass::F => act.stage.checked_sub(1),
                Pass::B | Pass::I => (act.stage < last).then_some(act.stage + 1),
                Pass::W => None,
            };
            let sender = from.and_then(|from| places.get(&key(act, from)));
            let Some(&(other, sent)) = sender.filter(|(other, _)| *other != row) else { continue };
            let first = times[row].partition_point(|cell| cell.end <= times[other][sent].end);
            if first < at {
                postings[row][first].push(act);
            }
        }
    }
    postings
}

/// What a pass hands over: whether forward, by which stage, of which microbatch.
fn key(act: Act, stage: u32) -> (bool, u32, u32) {
    (act.pass == Pass::F, stage, act.microbatch)
}
