//! Memory: the most that every rank holds in a step, by role and on one scale, and how the chosen
//! rank comes to it over the step.
//!
//! Bars and curve are of the step as it ran ([`crate::trace::held`]); the highest point of the curve
//! is the length of the bar, to the byte. The ticks below a bar are what the ledger counted for the
//! rank before anything ran, role by role. [`OverTime`] is prepared once for a rank of a step.

mod bars;
mod over_time;
#[cfg(test)]
mod tests;

pub use over_time::{Lifetime, OverTime};

use super::pen;
use super::scene::{Area, Point, Sketch};
use super::timeline::{Target, Timeline};
use crate::ledger::{ByRole, RankMemory};
use crate::mesh::Rank;
use crate::units::{Bytes, Nanos};

/// From this many ranks on, a pipeline position is one row.
const MOST_ROWS: usize = 16;

/// What is drawn.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The step: its ranks in order, and its length.
    pub timeline: &'a Timeline,
    /// What each rank holds in this step when it holds most; index = rank.
    pub held: &'a [ByRole],
    /// What was counted for each rank before; index = rank.
    pub counted: &'a [RankMemory],
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
    let held = frame.held.iter().map(ByRole::total);
    let counted = frame.counted.iter().map(|rank| rank.peak().max(rank.placed));
    held.chain(counted).chain(frame.cap).max().unwrap_or_default()
}

impl Frame<'_> {
    /// What lies under the pointer, in one sentence.
    pub fn sentence(&self, target: &Target) -> Option<String> {
        match *target {
            Target::Rank(rank) => self.of_rank(rank),
            Target::Position(position) => self.of_position(position),
            Target::Block { .. } | Target::Wait { .. } | Target::Link { .. } => None,
        }
    }

    /// `Rank 4 holds 3.2 MiB (predicted 3.2, placed 3.4): weights 0.5, …`; a role that is not as
    /// predicted says so.
    fn of_rank(&self, rank: Rank) -> Option<String> {
        let (held, counted) = (self.held.get(rank.index())?, self.counted.get(rank.index())?);
        let unit = pen::unit(held.total().max(counted.peak()));
        let number = |bytes: Bytes| pen::number(bytes, unit);
        let roles = held.iter().zip(counted.at_peak.iter());
        let roles = roles.filter_map(|((role, held), (_, predicted))| {
            let (held, predicted) = (number(held), number(predicted));
            let nothing = number(Bytes(0));
            match held == predicted {
                true if held == nothing => None,
                true => Some(format!("{role} {held}")),
                false => Some(format!("{role} {held} (predicted {predicted})")),
            }
        });
        let roles: Vec<String> = roles.collect();
        let (peak, placed) = (number(counted.peak()), number(counted.placed));
        let held = pen::sized(held.total(), unit);
        let roles = roles.join(", ");
        Some(format!("Rank {rank} holds {held} (predicted {peak}, placed {placed}): {roles}."))
    }

    fn of_position(&self, position: u32) -> Option<String> {
        let ranks: Vec<Rank> = self.timeline.position(position).collect();
        let held = || ranks.iter().filter_map(|rank| self.held.get(rank.index()));
        let (least, most) = (held().map(ByRole::total).min()?, held().map(ByRole::total).max()?);
        let predicted = ranks.iter().filter_map(|rank| self.counted.get(rank.index()));
        let predicted = predicted.map(RankMemory::peak).max()?;
        let unit = pen::unit(most.max(predicted));
        let (low, high) = (pen::sized(least, unit), pen::sized(most, unit));
        let (count, predicted) = (ranks.len(), pen::number(predicted, unit));
        let range = if least == most { format!("{high} each") } else { format!("{low} to {high}") };
        Some(format!(
            "{count} ranks at pipeline position {position} hold {range} (predicted {predicted})."
        ))
    }
}
