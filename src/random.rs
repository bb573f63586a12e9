//! Random numbers without a state: the `n`-th number of a key is a function of both.
//!
//! This is `SplitMix64` (Steele, Lea, Flood 2014) read as a counter-based generator: integer
//! arithmetic only, so the same bits on every machine, in any order, on any number of threads. Not
//! for secrets.

/// The step of `SplitMix64`'s counter: 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A key for a purpose: every (seed, label) has its own sequence of numbers.
pub fn key(seed: u64, label: &str) -> u64 {
    // FNV-1a over the label, then mixed so that neighbouring seeds are far apart.
    let hash = label.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    mix(mix(seed.wrapping_add(GOLDEN)) ^ hash)
}

/// The `counter`-th number of a key, uniform over all 64-bit numbers.
pub fn draw(key: u64, counter: u64) -> u64 {
    mix(key.wrapping_add(GOLDEN.wrapping_mul(counter.wrapping_add(1))))
}

/// The `counter`-th number of a key, uniform in [0, 1).
pub fn unit(key: u64, counter: u64) -> f64 {
    (draw(key, counter) >> 11) as f64 / (1u64 << 53) as f64
}

/// Spreads each bit over all bits; a bijection.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_splitmix64() {
        // The first outputs of the published generator for the seeds 0 and 1234567.
        assert_eq!(draw(0, 0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(
            [0, 1, 2].map(|n| draw(1_234_567, n)),
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn seeds_and_labels_have_keys_of_their_own() {
        let keys = [key(1, "a"), key(1, "b"), key(2, "a"), key(2, "b"), key(1, ""), key(0, "a")];
        for (i, one) in keys.iter().enumerate() {
            assert!(!keys[..i].contains(one));
        }
    }
}
