//! The Pareto front of time and memory: layouts that no other beats in both.

/// A layout by what it takes; `index` breaks ties.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) seconds: f64,
    pub(super) memory: f64,
    pub(super) index: u32,
}

impl Eq for Point {}

impl Ord for Point {
    /// Faster first; then smaller; then earlier.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let memory = self.memory.total_cmp(&other.memory);
        self.seconds.total_cmp(&other.seconds).then(memory).then(self.index.cmp(&other.index))
    }
}

impl PartialOrd for Point {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Points that none of those seen so far beats, fastest first: times rise and memory falls.
#[derive(Clone, Debug, Default)]
pub(super) struct Front {
    points: Vec<Point>,
}

impl Front {
    pub(super) fn points(&self) -> &[Point] {
        &self.points
    }

    /// Takes a point in; of equal ones the earlier.
    pub(super) fn insert(&mut self, point: Point) {
        let at = self.points.partition_point(|other| *other < point);
        // Of all points before it the last one takes the least memory.
        if at > 0 && self.points[at - 1].memory <= point.memory {
            return;
        }
        let beaten = |other: &&Point| other.memory >= point.memory;
        let end = at + self.points[at..].iter().take_while(beaten).count();
        self.points.splice(at..end, [point]);
    }

    /// Whether some point beats every layout of this memory that takes at least so many seconds.
    pub(super) fn beats(&self, seconds: f64, memory: f64) -> bool {
        let within = self.points.partition_point(|point| point.seconds <= seconds);
        let Some(least) = within.checked_sub(1).map(|last| self.points[last]) else { return false };
        least.memory < memory || (least.memory <= memory && least.seconds < seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// By the definition: nothing else is at least as good in both.
    fn by_definition(points: &[Point]) -> Vec<Point> {
        let beats = |a: &Point, b: &Point| {
            let good = a.seconds <= b.seconds && a.memory <= b.memory;
            let equal = a.seconds == b.seconds && a.memory == b.memory;
            good && (!equal || a.index < b.index)
        };
        let is_on = |point: &&Point| !points.iter().any(|other| beats(other, point));
        let mut front: Vec<Point> = points.iter().filter(is_on).copied().collect();
        front.sort();
        front
    }

    proptest! {
        #[test]
        fn the_front_is_what_nothing_beats_in_whatever_order_points_come(
            drawn in proptest::collection::vec((0u8..12, 0u8..12), 1..40),
            (seconds, memory) in (0u8..12, 0u8..12),
        ) {
            let point = |(index, (seconds, memory)): (usize, &(u8, u8))| Point {
                seconds: (*seconds).into(),
                memory: (*memory).into(),
                index: index as u32,
            };
            let points: Vec<Point> = drawn.iter().enumerate().map(point).collect();
            let mut front = Front::default();
            points.iter().rev().for_each(|point| front.insert(*point));
            prop_assert_eq!(front.points(), by_definition(&points));
            // What is said to be beaten changes nothing, even with the lowest index.
            let (seconds, memory) = (f64::from(seconds), f64::from(memory));
            if front.beats(seconds, memory) {
                let before = front.clone();
                front.insert(Point { seconds, memory, index: 0 });
                prop_assert_eq!(front.points(), before.points());
            }
        }
    }
}
