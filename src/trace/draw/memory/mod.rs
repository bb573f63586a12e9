//! Memory: what every rank holds at its peak, by role and on one scale, and how the chosen rank
//! comes to it over the step.
//!
//! Peaks come from the ledger as they are; [`OverTime`] is prepared once for a rank of a step. What
//! is live follows the program: an instruction's memory counts when the Compute lane gets there, so
//! that the highest point of the curve is the peak of the bars, to the byte.

mod bars;
mod over_time;
#[cfg(test)]
mod tests;

pub use over_time::{Lifetime, OverTime};

use super::pen;
use super::scene::{Area, Point, Sketch};
use super::timeline::{Target, Timeline};
use crate::ledger::RankMemory;
use crate::mesh::Rank;
use crate::units::{Bytes, Nanos};

/// From this many ranks on, a pipeline position is one row.
const MOST_ROWS: usize = 16;

/// What is drawn.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The step: its ranks in order, and its length.
    pub timeline: &'a Timeline,
    /// What each rank holds; index = rank.
    pub ranks: &'a [RankMemory],
    /// What another Plan would place on each rank, to compare with; index = rank, or empty.
    pub predicted: &'a [Bytes],
    /// What a rank may hold.
    pub cap: Option<Bytes>,
    /// The chosen rank over the step.
    pub over_time: Option<&'a OverTime>,
    /// The instant that is being shown.
    pub playhead: Option<Nanos>,
    /// What is selected.
    pub selected: Option<Target>,
    /// What the pointer is on.
    pub hovered: Option<Target>,
}

/// Where things lie.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layout {
    /// The rows of the bars.
    pub rows: Vec<(Area, Target)>,
    /// The curve over the step, which is as wide as the step is long.
    pub curve: Option<Area>,
    /// How long the step is.
    pub end: Nanos,
}

impl Layout {
    /// The rank or position at a point.
    pub fn target_at(&self, at: Point) -> Option<Target> {
        self.rows.iter().find(|(area, _)| area.contains(at)).map(|(_, target)| *target)
    }

    /// The instant at a point of the curve.
    pub fn time_at(&self, at: Point) -> Option<Nanos> {
        let curve = self.curve.filter(|curve| curve.contains(at))?;
        let share = f64::from((at.x - curve.left) / curve.width);
        Some(Nanos((share * self.end.0 as f64) as u64))
    }
}

/// Draws bars, and beside them the curve where there is room for both.
pub fn draw(sketch: &mut Sketch<'_>, area: Area, frame: &Frame<'_>) -> Layout {
    let mut layout = Layout { end: frame.timeline.end(), ..Layout::default() };
    let (legend, area) = area.cut_top(sketch.line_of_text() + 4.0);
    bars::legend(sketch, legend, frame.cap);
    let beside = area.width >= 560.0 * sketch.zoom();
    let bars = match (frame.over_time, beside) {
        (Some(over_time), true) => {
            let (bars, rest) = area.cut_left((area.width * 0.46).round());
            let curve = rest.cut_left(20.0 * sketch.zoom()).1;
            layout.curve = over_time::draw(sketch, curve, over_time, frame);
            bars
        }
        _ => area,
    };
    layout.rows = bars::draw(sketch, bars, frame);
    layout
}

/// The largest amount that must have room on the common scale.
fn most(frame: &Frame<'_>) -> Bytes {
    let held = frame.ranks.iter().map(|rank| rank.peak().max(rank.placed));
    held.chain(frame.predicted.iter().copied()).chain(frame.cap).max().unwrap_or_default()
}

impl Frame<'_> {
    /// What lies under the pointer, in one sentence.
    pub fn sentence(&self, target: &Target) -> Option<String> {
        let of = |rank: Rank| self.ranks.get(rank.index());
        match *target {
            Target::Rank(rank) => {
                let memory = of(rank)?;
                let roles = memory.at_peak.iter().filter(|(_, bytes)| bytes.0 > 0);
                let unit = pen::unit(memory.peak());
                let roles: Vec<String> = roles
                    .map(|(role, bytes)| format!("{role} {}", pen::sized(bytes, unit)))
                    .collect();
                let (peak, placed) =
                    (pen::sized(memory.peak(), unit), pen::sized(memory.placed, unit));
                Some(format!(
                    "Rank {rank} holds {peak} at its peak: {}; placed {placed}.",
                    roles.join(", ")
                ))
            }
            Target::Position(position) => {
                let ranks: Vec<Rank> = self.timeline.position(position).collect();
                let peaks = || ranks.iter().filter_map(|rank| of(*rank)).map(RankMemory::peak);
                let (least, most) = (peaks().min()?, peaks().max()?);
                let unit = pen::unit(most);
                let (low, high) = (pen::sized(least, unit), pen::sized(most, unit));
                let count = ranks.len();
                Some(match least == most {
                    true => format!(
                        "{count} ranks at pipeline position {position} hold {high} each at their peak."
                    ),
                    false => format!(
                        "{count} ranks at pipeline position {position} hold {low} to {high} at their peak."
                    ),
                })
            }
            Target::Block { .. } | Target::Wait { .. } | Target::Link { .. } => None,
        }
    }
}
