//! A schedule on paper as a timeline: a row a pipeline position, times in textbook units.
//!
//! `planner::schedule` says what runs in which order; here it is laid out, to be drawn as any step.

use std::ops::Range;
use std::sync::Arc;

use super::{Links, replay};
use crate::plan::{Action, Phase, order};
use crate::planner::schedule::explain::textbook as textbook_units;
use crate::planner::schedule::unit_time::{pairs_can_overlap, unit_times};
use crate::planner::schedule::{Act, Cell, Pass, Schedule, textbook};
use crate::trace::Span;
use crate::trace::draw::timeline::Timeline;
use crate::units::Nanos;

/// Length of a unit; any would do, since no picture shows it.
const UNIT: Nanos = Nanos(1_000);

/// The timeline of a schedule: a row a pipeline position, times in textbook units.
///
/// # Panics
/// If the schedule hangs: ask its `check` first.
pub fn timeline(schedule: &Schedule) -> Timeline {
    let plan = textbook::plan(schedule);
    let order = order::derive(&plan);
    let duration = |phase: Phase, action: &Action| {
        let pass = match phase {
            Phase::Backward => Pass::B,
            Phase::InputGrad => Pass::I,
            Phase::WeightGrad => Pass::W,
            _ => Pass::F,
        };
        match action {
            Action::Launch { .. } => UNIT * textbook_units(Act { stage: 0, pass, microbatch: 0 }),
            Action::Send { .. } | Action::Recv { .. } | Action::Copy { .. } => Nanos(0),
        }
    };
    let durations: Vec<Vec<Nanos>> = plan
        .programs
        .iter()
        .map(|p| p.instrs.iter().map(|i| duration(i.origin.phase, &i.action)).collect())
        .collect();
    let trace = replay(&plan, &order::graph(&plan, &order), &durations, &Links::FREE, 0)
        .expect("a planned schedule does not hang");
    let timeline = Timeline::new(Arc::new(plan), &order, Arc::new(trace), &[]);
    timeline.in_units(UNIT).with_pairs(pairs(schedule))
}

/// When passes run as pairs, by row.
fn pairs(schedule: &Schedule) -> Vec<Vec<Span>> {
    let times = unit_times(schedule, textbook_units).filter(|_| pairs_can_overlap(schedule));
    let Some(times) = times else { return Vec::new() };
    let rows = schedule.rows.iter().zip(&times.rows).map(|(cells, spans)| {
        let pairs = cells.iter().zip(spans).filter(|(cell, _)| matches!(cell, Cell::Pair(..)));
        let span = |range: &Range<u64>| Span { start: UNIT * range.start, end: UNIT * range.end };
        pairs.map(|(_, range)| span(range)).collect()
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh::Rank;
    use crate::planner::schedule::dual_pipe_v::dual_pipe_v;
    use crate::planner::schedule::{csv, gpipe::gpipe, one_f_one_b::one_f_one_b};
    use crate::trace::draw::{Block, Work};

    /// Three stages of a zero-bubble schedule: I and W apart.
    const SPLIT: &str = "\
        0F0,0F1,0F2,0I0,0W0,0I1,0W1,0I2,0W2\n\
        1F0,1F1,1I0,1F2,1I1,1I2,1W0,1W1,1W2\n\
        2F0,2I0,2F1,2I1,2F2,2I2,2W0,2W1,2W2\n";
    /// Two stages a position, in a V.
    const VEE: &str = "0F0,3F0,0F1,3B0,3F1,0B0,3B1,0B1\n1F0,2F0,1F1,2F1,2B0,1B0,2B1,1B1\n";

    #[test]
    fn the_picture_shows_every_pass_when_the_schedule_runs_it() {
        let [split, vee] = [SPLIT, VEE].map(|text| csv::parse(text).unwrap());
        let pairs = [dual_pipe_v(2, 6), dual_pipe_v(3, 8)];
        let single = [one_f_one_b(4, 8), gpipe(3, 5), one_f_one_b(1, 1), split, vee];
        for schedule in single.into_iter().chain(pairs) {
            let times = unit_times(&schedule, textbook_units).unwrap();
            let timeline = timeline(&schedule);
            assert_eq!(timeline.end().0, times.span * UNIT.0);
            for (row, spans) in times.rows.iter().enumerate() {
                let works = |block: &&Block| block.work().is_some();
                let blocks = timeline.blocks(Rank(row as u32)).iter().filter(works);
                let shown: Vec<(u64, u64)> =
                    blocks.clone().map(|b| (b.start.0 / UNIT.0, b.end.0 / UNIT.0)).collect();
                // The passes of a pair follow one another in the time of the pair.
                let cells = schedule.rows[row].iter().zip(spans);
                let expected: Vec<(u64, u64)> = cells
                    .flat_map(|(cell, span)| {
                        let mut start = span.start;
                        cell.acts().map(move |act| {
                            let from = start;
                            start += textbook_units(act);
                            (from, start)
                        })
                    })
                    .collect();
                let joined = timeline.pairs_of(Rank(row as u32)).len();
                let pairs = schedule.rows[row].iter().filter(|cell| cell.acts().count() == 2);
                assert_eq!(joined, pairs.count(), "row {row}");
                assert_eq!(shown, expected, "row {row}");
                for (block, act) in blocks.zip(schedule.acts(row)) {
                    let work = match act.pass {
                        Pass::F => Work::Forward,
                        Pass::B => Work::Backward,
                        Pass::I => Work::InputGrad,
                        Pass::W => Work::WeightGrad,
                    };
                    assert_eq!(block.work(), Some(work));
                    assert_eq!(
                        (block.stage, block.microbatch),
                        (Some(act.stage), Some(act.microbatch))
                    );
                }
            }
        }
    }

    #[test]
    fn waits_name_the_message_and_the_rank_that_sends_it() {
        let timeline = timeline(&one_f_one_b(4, 8));
        let now = |unit: u64| timeline.now(Nanos(UNIT.0 * unit));
        assert_eq!(
            now(5),
            "Rank 0 waits 6 units for B0 from rank 1 (pipeline), which waits too: rank 3 is computing B0. \
             2 more ranks wait."
        );
        assert_eq!(
            now(9),
            "Rank 0 waits 6 units for B0 from rank 1 (pipeline), which is computing B0."
        );
    }
}
