//! How slowly a step is shown: a target for the eye, not a factor.
//!
//! A shown step lasts about six seconds whatever it took, at a speed that is a power of two. Time
//! comes in from outside; nothing here looks at a clock.

use std::fmt;

use crate::units::Nanos;

/// How long a shown step should last.
const TARGET: Nanos = Nanos(6_000_000_000);
/// How long a shown step may last at most when short blocks ask for more.
const LONGEST: Nanos = Nanos(30_000_000_000);
/// How long a forward must be seen to be read.
const SHORTEST_BLOCK: Nanos = Nanos(200_000_000);
/// How long a shown step stands still at its end.
pub const PAUSE: Nanos = Nanos(500_000_000);

/// The speed at which a step is shown: two to this power, from 1/4096 to 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Speed(i8);

impl Speed {
    /// The slowest one, 1/4096.
    pub const MIN: Self = Self(-12);
    /// The fastest one, 16.
    pub const MAX: Self = Self(4);
    /// As fast as it ran.
    pub const REAL: Self = Self(0);

    /// Two to `power`, kept in the range.
    pub fn new(power: i8) -> Self {
        Self(power).clamp(Self::MIN, Self::MAX)
    }

    /// The exponent of two.
    pub const fn power(self) -> i8 {
        self.0
    }

    /// How long `time` lasts when it is shown at this speed.
    pub fn shown(self, time: Nanos) -> Nanos {
        match self.0 {
            power @ 0.. => Nanos(time.0 >> power),
            power => Nanos(time.0.saturating_mul(1 << -power)),
        }
    }

    /// How much of a step has been shown after `elapsed`.
    pub fn played(self, elapsed: Nanos) -> Nanos {
        match self.0 {
            power @ 0.. => Nanos(elapsed.0.saturating_mul(1 << power)),
            power => Nanos(elapsed.0 >> -power),
        }
    }
}

/// Writes `1/32`, `1` or `16`.
impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            power @ 0.. => write!(f, "{}", 1 << power),
            power => write!(f, "1/{}", 1 << -power),
        }
    }
}

/// The speed at which a step of this length is best seen.
///
/// The power of two at which it lasts nearest to 6 s; where its shortest forward would be seen for
/// less than 0.2 s, slower, as long as the step lasts at most 30 s.
///
/// ```
/// use shardlab::trace::draw::playback::slow_motion;
/// use shardlab::units::Nanos;
/// let speed = slow_motion(Nanos(150_000_000), Nanos(10_000_000));
/// assert_eq!(speed.to_string(), "1/32");
/// ```
pub fn slow_motion(step: Nanos, shortest_forward: Nanos) -> Speed {
    let ratio = step.0.max(1) as f64 / TARGET.0 as f64;
    // Nearest on the scale on which halving and doubling are equally far.
    let mut speed = Speed::new(ratio.log2().round().clamp(-100.0, 100.0) as i8);
    while speed > Speed::MIN && speed.shown(shortest_forward) < SHORTEST_BLOCK {
        let slower = Speed(speed.0 - 1);
        if slower.shown(step) > LONGEST {
            break;
        }
        speed = slower;
    }
    speed
}

/// Where the sweep stands `elapsed` after a step of length `step` began to be shown; `None` when
/// the step and the pause at its end are over and the next one should be shown.
pub fn sweep(speed: Speed, step: Nanos, elapsed: Nanos) -> Option<Nanos> {
    let at = speed.played(elapsed).min(step);
    (elapsed.0 < speed.shown(step).0.saturating_add(PAUSE.0)).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn label(step_nanos: u64, forward_nanos: u64) -> String {
        slow_motion(Nanos(step_nanos), Nanos(forward_nanos)).to_string()
    }

    #[test]
    fn a_shown_step_lasts_about_six_seconds() {
        assert_eq!(label(50 * MS, 5 * MS), "1/128");
        assert_eq!(label(150 * MS, 10 * MS), "1/32");
        assert_eq!(label(500 * MS, 40 * MS), "1/16");
        assert_eq!(label(3 * MS, MS / 2), "1/2048");
        assert_eq!(label(6_000 * MS, 500 * MS), "1");
        assert_eq!(label(60_000 * MS, 5_000 * MS), "8");
        for step in (1..2_000).map(|i: u64| i * i * 20_011) {
            let speed = slow_motion(Nanos(step), Nanos(step));
            let seconds = speed.shown(Nanos(step)).as_secs();
            let at_range_end = speed == Speed::MIN || speed == Speed::MAX;
            assert!(at_range_end || (4.2..8.6).contains(&seconds), "{step} ns: {speed}, {seconds}");
        }
    }

    #[test]
    fn the_range_ends_at_a_4096th_and_at_16() {
        assert_eq!(label(1, 1), "1/4096");
        assert_eq!(label(0, 0), "1/4096");
        assert_eq!(label(3_600_000 * MS, 100_000 * MS), "16");
    }

    #[test]
    fn short_forwards_slow_the_step_but_never_beyond_thirty_seconds() {
        // 150 ms at 1/32: a forward of 4 ms is seen for 0.128 s; at 1/64 for 0.256 s.
        assert_eq!(label(150 * MS, 4 * MS), "1/64");
        // A forward of 1 ms would need 1/256, and then the step 38 s: 1/128 is as far as it goes.
        assert_eq!(label(150 * MS, MS), "1/128");
        assert!(slow_motion(Nanos(150 * MS), Nanos(1)).shown(Nanos(150 * MS)) <= LONGEST);
    }

    #[test]
    fn the_sweep_runs_to_the_end_stands_still_and_ends() {
        let (speed, step) = (Speed::new(-5), Nanos(100 * MS));
        let at = |elapsed_ms| sweep(speed, step, Nanos(elapsed_ms * MS));
        assert_eq!(at(0), Some(Nanos(0)));
        assert_eq!(at(1_600), Some(Nanos(50 * MS)));
        assert_eq!(at(3_200), Some(step));
        assert_eq!(at(3_699), Some(step));
        assert_eq!(at(3_700), None);
    }
}
