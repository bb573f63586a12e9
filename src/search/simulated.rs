//! The best of what was simulated: the fastest, and the front of time and memory.

use super::front::{Front, Point};
use super::{BEST, SLOWEST};

/// The best of what was simulated.
#[derive(Clone, Debug, Default)]
pub(super) struct Simulated {
    /// The fastest, in order.
    pub(super) best: Vec<Point>,
    front: Front,
}

impl Simulated {
    pub(super) fn insert(&mut self, point: Point) {
        let at = self.best.partition_point(|other| *other < point);
        self.best.insert(at, point);
        self.best.truncate(BEST);
        self.front.insert(point);
    }

    /// Whether a layout that takes at least so many seconds is neither among the best nor on the
    /// front.
    pub(super) fn rules_out(&self, least: Point) -> bool {
        let is_slower = self.best.get(BEST - 1).is_some_and(|last| least.seconds > last.seconds);
        is_slower && (self.is_too_slow(&least) || self.front.beats(least.seconds, least.memory))
    }

    fn is_too_slow(&self, point: &Point) -> bool {
        self.best.first().is_some_and(|first| point.seconds > SLOWEST * first.seconds)
    }

    /// The front, as far as anybody pays for it.
    pub(super) fn front(&self) -> impl Iterator<Item = &Point> {
        self.front.points().iter().filter(|point| !self.is_too_slow(point))
    }
}
