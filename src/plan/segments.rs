//! A map from byte ranges of an arena to whatever a reader of the Plan keeps about them.
//!
//! Covers all of `0..u64::MAX`; a segment reaches from its key to the next key. Ranges are split
//! on demand, so each answer is exact to the byte.

use std::collections::BTreeMap;
use std::ops::Range;

/// The map. `T` is cloned where a range is split.
#[derive(Clone, Debug)]
pub(crate) struct Segments<T> {
    from: BTreeMap<u64, T>,
}

impl<T: Clone + Default> Default for Segments<T> {
    fn default() -> Self {
        Self { from: BTreeMap::from([(0, T::default())]) }
    }
}

impl<T: Clone> Segments<T> {
    /// The segments of a range that is not empty, split so that they cover exactly that range.
    pub(crate) fn in_range(&mut self, bytes: Range<u64>) -> impl Iterator<Item = (u64, &mut T)> {
        self.split(bytes.start);
        self.split(bytes.end);
        self.from.range_mut(bytes).map(|(start, state)| (*start, state))
    }

    /// Makes a range that is not empty one segment.
    pub(crate) fn replace(&mut self, bytes: Range<u64>, state: T) {
        let starts: Vec<u64> = self.in_range(bytes.clone()).map(|(start, _)| start).collect();
        for start in starts {
            self.from.remove(&start);
        }
        self.from.insert(bytes.start, state);
    }

    /// Makes a segment start at `at`.
    fn split(&mut self, at: u64) {
        let (&start, state) = self.from.range(..=at).next_back().expect("a segment starts at 0");
        if start < at {
            let state = state.clone();
            self.from.insert(at, state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_split_and_join_to_the_byte() {
        let mut map: Segments<u32> = Segments::default();
        map.replace(4..8, 1);
        map.replace(6..10, 2);
        let seen = |map: &mut Segments<u32>, range| -> Vec<(u64, u32)> {
            map.in_range(range).map(|(start, state)| (start, *state)).collect()
        };
        assert_eq!(seen(&mut map, 0..12), [(0, 0), (4, 1), (6, 2), (10, 0)]);
        assert_eq!(seen(&mut map, 5..7), [(5, 1), (6, 2)]);
        map.replace(0..12, 3);
        assert_eq!(seen(&mut map, 0..13), [(0, 3), (12, 0)]);
    }
}
