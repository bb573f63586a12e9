//! Where the playhead stops when a person steps through a step.

use super::Timeline;
use super::row::RankRow;
use super::target::Level;
use crate::units::Nanos;

/// How far one step of the playhead goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Grain {
    /// To where a block of any rank begins.
    Block,
    /// To where a microbatch enters or leaves the pipeline.
    Microbatch,
    /// To where an instruction or a wait of any rank begins.
    Instruction,
}

/// Which way the playhead goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Later.
    Forward,
    /// Earlier.
    Back,
}

impl Timeline {
    /// The next place to stop at, from any instant; the ends of the step are stops. From a stop,
    /// as many steps forward as back lead to the same instant, away from the ends.
    pub fn next_stop(&self, from: Nanos, grain: Grain, direction: Direction) -> Nanos {
        let level = match grain {
            Grain::Block => Level::Pass,
            Grain::Instruction => Level::Instr,
            Grain::Microbatch => {
                let stops = &self.microbatches;
                return match direction {
                    Direction::Forward => {
                        let next = stops.partition_point(|&stop| stop <= from);
                        stops.get(next).copied().unwrap_or(self.end)
                    }
                    Direction::Back => {
                        let next = stops.partition_point(|&stop| stop < from);
                        next.checked_sub(1).map_or(Nanos(0), |before| stops[before])
                    }
                };
            }
        };
        let rows = self.rows.iter().filter(|row| row.len(level) > 0);
        match direction {
            Direction::Forward => {
                let next = rows.map(|row| {
                    let index = row.index_at(level, from);
                    if index < row.len(level) { row.part(level, index).span.end } else { self.end }
                });
                next.min().unwrap_or(self.end)
            }
            Direction::Back => {
                let last = rows.map(|row| {
                    let index = row.index_at(level, Nanos(from.0.saturating_sub(1)));
                    row.part(level, index.min(row.len(level) - 1)).span.start
                });
                last.max().unwrap_or_default()
            }
        }
    }
}

/// When microbatches begin in any row, and when they have ended in all.
pub(super) fn microbatches(rows: &[RankRow]) -> Vec<Nanos> {
    let mut spans = std::collections::BTreeMap::new();
    for block in rows.iter().flat_map(|row| &row.blocks) {
        let Some(microbatch) = block.microbatch else { continue };
        let (start, end) = spans.entry(microbatch).or_insert((block.start, block.end));
        (*start, *end) = ((*start).min(block.start), (*end).max(block.end));
    }
    let mut stops: Vec<Nanos> = spans.into_values().flat_map(|(start, end)| [start, end]).collect();
    stops.sort_unstable();
    stops.dedup();
    stops
}
