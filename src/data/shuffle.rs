//! A seeded permutation that is computed element by element.
//!
//! Nothing is stored, so a batch of any step of any epoch costs the same and resuming needs no
//! more than the step. The method is a Feistel network over a domain of a power of four, walked
//! until it lands inside (Black & Rogaway 2002, "cycle walking").

use crate::random::draw;

/// A permutation of `0..len`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shuffle {
    key: u64,
    len: u64,
    half_bits: u32,
}

impl Shuffle {
    /// Rounds of the network: four give a good mixture, some more cost nothing.
    const ROUNDS: u64 = 6;

    /// The permutation of `0..len` that belongs to a key.
    pub fn new(key: u64, len: u64) -> Self {
        let bits = u64::BITS - len.saturating_sub(1).leading_zeros();
        Self { key, len, half_bits: bits.div_ceil(2).max(1) }
    }

    /// Where `index` goes.
    ///
    /// # Panics
    /// If `index` is not below the length.
    pub fn at(&self, index: u64) -> u64 {
        assert!(index < self.len, "element {index} of a permutation of {}", self.len);
        // A bijection of the domain that starts inside must come back inside; the domain is at most
        // four times as large as the length (or 4), so a few rounds of the walk are enough.
        let mut value = self.network(index);
        while value >= self.len {
            value = self.network(value);
        }
        value
    }

    /// A bijection of `0..4^half_bits`.
    fn network(&self, value: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for round in 0..Self::ROUNDS {
            let turned = left ^ (draw(self.key, (round << 32) | right) & mask);
            (left, right) = (right, turned);
        }
        (left << self.half_bits) | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_appears_exactly_once_for_any_length() {
        for len in (1..70).chain([255, 256, 257, 1000, 7005]) {
            let shuffle = Shuffle::new(7, len);
            let mut seen: Vec<u64> = (0..len).map(|index| shuffle.at(index)).collect();
            seen.sort_unstable();
            assert!(seen.iter().copied().eq(0..len), "{len}");
        }
    }

    #[test]
    fn keys_give_different_orders_and_an_order_is_not_nearly_sorted() {
        let order = |key| (0..1000).map(|i| Shuffle::new(key, 1000).at(i)).collect::<Vec<_>>();
        assert_ne!(order(1), order(2));
        for key in 0..4 {
            let order = order(key);
            let in_place = order.iter().zip(0..).filter(|(value, i)| **value == *i).count();
            let rising = order.windows(2).filter(|pair| pair[0] < pair[1]).count();
            assert!(in_place < 10, "{in_place} of 1000 in place"); // 1 expected
            assert!((450..550).contains(&rising), "{rising} of 999 rise"); // 499.5 ± 9 expected
        }
    }
}
