//! The loss over the steps: raw and smoothed, with its target, held-out points, branches and the
//! distance from one unsplit rank.
//!
//! A [`Series`] grows as training goes on and knows its smoothed values; [`draw`] is a pure function
//! of series, a [`Range`] and the size. The range of the axis comes in and goes out
//! ([`Range::holding`]), so that it follows the data without trembling.

mod paint;
#[cfg(test)]
mod tests;

pub use paint::draw;

use super::scene::{Area, Point};

/// How much of the smoothed value is the one before.
const SMOOTHING: f64 = 0.8;

/// Losses of ascending steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    points: Vec<Sample>,
    mean: f64,
    /// What the weights of all finite values so far add up to.
    weight: f64,
}

/// One value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Which step, 0-based.
    pub step: u64,
    /// The value; perhaps not finite.
    pub value: f64,
    /// Smoothed over the finite values up to here; not finite before the first of them.
    pub smoothed: f64,
}

impl Series {
    /// Appends a value. A step that is not after the last one is another branch's: it is left out.
    pub fn push(&mut self, step: u64, value: f64) {
        if self.points.last().is_some_and(|last| last.step >= step) {
            return;
        }
        if value.is_finite() {
            self.mean = SMOOTHING * self.mean + (1.0 - SMOOTHING) * value;
            self.weight = SMOOTHING * self.weight + (1.0 - SMOOTHING);
        }
        let smoothed = if self.weight > 0.0 { self.mean / self.weight } else { f64::NAN };
        self.points.push(Sample { step, value, smoothed });
    }

    /// The values, ascending by step.
    pub fn points(&self) -> &[Sample] {
        &self.points
    }

    /// The value of a step.
    pub fn at(&self, step: u64) -> Option<Sample> {
        let index = self.points.binary_search_by_key(&step, |point| point.step).ok()?;
        Some(self.points[index])
    }

    /// The finite values.
    fn finite(&self) -> impl Iterator<Item = f64> {
        self.points.iter().map(|point| point.value).filter(|value| value.is_finite())
    }
}

impl FromIterator<(u64, f64)> for Series {
    fn from_iter<T: IntoIterator<Item = (u64, f64)>>(values: T) -> Self {
        let mut series = Self::default();
        for (step, value) in values {
            series.push(step, value);
        }
        series
    }
}

/// What the axis of values reaches over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

impl Range {
    /// The range for some values, given the one that was shown before: it grows at once to a round
    /// number, and shrinks only when the values fill less than a third of it. Values that are not
    /// finite do not count; without any, the range is the one before.
    pub fn holding(values: impl IntoIterator<Item = f64>, before: Option<Self>) -> Self {
        let empty = Self { low: f64::INFINITY, high: f64::NEG_INFINITY };
        let finite = values.into_iter().filter(|value| value.is_finite());
        let data = finite
            .fold(empty, |all, value| Self { low: all.low.min(value), high: all.high.max(value) });
        if data.low > data.high {
            return before.unwrap_or(Self { low: 0.0, high: 1.0 });
        }
        let held = before.filter(|range| {
            let fits = range.low <= data.low && data.high <= range.high;
            fits && data.high - data.low >= (range.high - range.low) / 3.0
        });
        held.unwrap_or_else(|| {
            // Small changes are not blown up to the whole height.
            let span = (data.high - data.low).max(1e-9 + 0.2 * data.high.abs());
            // Where it grew it will grow on: room for that, so that it does not move again at once.
            let grew = |is_out: fn(Self, Self) -> bool| before.is_some_and(|old| is_out(old, data));
            let room = |grew: bool| if grew { 0.4 * span } else { 0.02 * span };
            let (down, up) =
                (grew(|old, new| new.low < old.low), grew(|old, new| new.high > old.high));
            let step = super::pen::tick(span, 4);
            let low = ((data.low - room(down)) / step).floor() * step;
            // A loss is never below 0: no room is shown there.
            let low = if data.low >= 0.0 { low.max(0.0) } else { low };
            Self { low, high: ((data.high + room(up)) / step).ceil() * step }
        })
    }
}

/// A line of values at which something is reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target<'a> {
    /// Where.
    pub value: f64,
    /// What it is: `letter pairs`.
    pub name: &'a str,
}

/// A run that went on from an earlier step of another one.
#[derive(Clone, Copy, Debug)]
pub struct Branch<'a> {
    /// Its losses.
    pub series: &'a Series,
    /// Its name for the legend: `without the fault`.
    pub name: &'a str,
}

/// All that the plot shows.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The losses of the run.
    pub series: &'a Series,
    /// Losses over the held-out text, by the number of steps trained before.
    pub held_out: &'a [(u64, f64)],
    /// What should be reached.
    pub target: Option<Target<'a>>,
    /// The step that the other panels show.
    pub shown: Option<u64>,
    /// The step under the pointer.
    pub hover: Option<u64>,
    /// How many steps the run will have.
    pub steps: u64,
    /// The same training on one unsplit rank.
    pub reference: Option<&'a Series>,
    /// Other branches.
    pub branches: &'a [Branch<'a>],
    /// What a loss is counted in: `nats per byte`.
    pub unit: &'a str,
    /// What the axis of values reaches over.
    pub range: Range,
}

impl Frame<'_> {
    /// Everything finite that the axis of values should hold.
    pub fn values(&self) -> impl Iterator<Item = f64> {
        let reference = self.reference.into_iter().flat_map(Series::finite);
        let branches = self.branches.iter().flat_map(|branch| branch.series.finite());
        let held_out = self.held_out.iter().map(|(_, loss)| *loss);
        let target = self.target.iter().map(|target| target.value);
        self.series.finite().chain(reference).chain(branches).chain(held_out).chain(target)
    }

    /// The values at a step in one sentence.
    pub fn sentence(&self, step: u64) -> String {
        let mut parts = Vec::new();
        if let Some(point) = self.series.at(step) {
            parts.push(match point.value.is_finite() {
                true => format!("loss {:.3}, smoothed {:.3}", point.value, point.smoothed),
                false => "loss is not finite".into(),
            });
        }
        if let Some(reference) = self.reference.and_then(|reference| reference.at(step)) {
            parts.push(format!("one rank {:.3}", reference.value));
            if let Some(delta) = self.delta(step) {
                parts.push(format!("|Δ| {delta:.1e}").replace('-', "−"));
            }
        }
        for branch in self.branches {
            if let Some(point) = branch.series.at(step) {
                parts.push(format!("{} {:.3}", branch.name, point.value));
            }
        }
        if let Some((_, loss)) = self.held_out.iter().find(|(at, _)| *at == step) {
            parts.push(format!("held-out {loss:.3}"));
        }
        format!("Step {step}: {}.", parts.join(", "))
    }

    /// How far the run is from one rank at a step.
    fn delta(&self, step: u64) -> Option<f64> {
        let (own, reference) = (self.series.at(step)?, self.reference?.at(step)?);
        Some((own.value - reference.value).abs())
    }
}

/// Where the plot lies.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Layout {
    /// The plot of losses.
    pub plot: Area,
    /// The strip of |Δ|; empty without a reference.
    pub strip: Area,
    /// The steps at the left and right edges.
    pub steps: (u64, u64),
}

impl Layout {
    /// The step at a point of the plot or its strip.
    pub fn step_at(&self, at: Point) -> Option<u64> {
        let inside = self.plot.contains(at) || self.strip.contains(at);
        let (first, last) = self.steps;
        let share = f64::from((at.x - self.plot.left) / self.plot.width);
        inside.then(|| first + (share * (last - first) as f64).round() as u64)
    }
}
