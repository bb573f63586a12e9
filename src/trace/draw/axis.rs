//! Round numbers for a time axis: where it ends, where its ticks stand, and how they read.
//!
//! An axis does not follow the length of each step, which would make every block dance: it ends at
//! a round number that holds the longest of the last steps.

use crate::units::Nanos;

/// Ends of axes between 1 and 10 and the distance of their ticks, in tenths.
#[rustfmt::skip]
const ROUND: [(u64, u64); 16] = [
    (10, 2), (12, 4), (15, 5), (18, 6), (20, 5), (24, 8), (30, 10), (36, 12), (40, 10),
    (45, 15), (50, 10), (60, 20), (75, 25), (80, 20), (90, 30), (100, 20),
];

/// A time axis from 0 to a round number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeAxis {
    /// Where it ends: at least as long as what it must hold.
    pub end: Nanos,
    /// Distance between ticks; divides the end.
    pub tick: Nanos,
}

impl TimeAxis {
    /// The shortest round axis that holds `longest`.
    ///
    /// ```
    /// use shardlab::trace::draw::axis::TimeAxis;
    /// use shardlab::units::Nanos;
    /// let axis = TimeAxis::holding(Nanos(167_000_000));
    /// assert_eq!(axis.labels().map(|(_, text)| text).collect::<Vec<_>>(),
    ///            ["0 ms", "60", "120", "180"]);
    /// ```
    pub fn holding(longest: Nanos) -> Self {
        // Ten nanoseconds at least, so that tenths are whole.
        let mut scale = 1;
        loop {
            for (end, tick) in ROUND {
                if longest.0 <= end.saturating_mul(scale) || scale > u64::MAX / 1000 {
                    let [end, tick] = [end, tick].map(|tenths| Nanos(tenths.saturating_mul(scale)));
                    return Self { end, tick };
                }
            }
            scale *= 10;
        }
    }

    /// The ticks with what stands at them; the first one names the unit.
    pub fn labels(self) -> impl Iterator<Item = (Nanos, String)> {
        let (unit, size) = match self.end.0 {
            0..=1_000 => ("ns", 1),
            1_001..=1_000_000 => ("µs", 1_000),
            1_000_001..=10_000_000_000 => ("ms", 1_000_000),
            _ => ("s", 1_000_000_000),
        };
        (0..=self.end.0 / self.tick.0).map(move |number| {
            let at = number * self.tick.0;
            let text = match number {
                0 => format!("0 {unit}"),
                _ => format!("{}", at as f64 / size as f64),
            };
            (Nanos(at), text)
        })
    }
}

/// Round instants in a window of time, at most `most` of them, with what stands at them; the first
/// one names the unit. Where time is counted in units, `unit` is the length of one.
pub fn ticks(
    (start, end): (Nanos, Nanos),
    most: usize,
    unit: Option<Nanos>,
) -> Vec<(Nanos, String)> {
    let (name, size) = match (unit, end.0) {
        (Some(unit), _) => ("units", unit.0.max(1)),
        (None, 0..=1_000) => ("ns", 1),
        (None, 1_001..=1_000_000) => ("µs", 1_000),
        (None, 1_000_001..=10_000_000_000) => ("ms", 1_000_000),
        (None, _) => ("s", 1_000_000_000),
    };
    let long = end.0.saturating_sub(start.0);
    let needed = long.div_ceil(most.max(1) as u64).max(1);
    // Decimal parts or multiples of the unit that is written.
    let mut scale = size;
    while scale >= 10 && scale >= needed && scale.is_multiple_of(10) {
        scale /= 10;
    }
    let step = loop {
        let round = [1, 2, 5].map(|times: u64| scale.saturating_mul(times));
        match round.into_iter().find(|step| *step >= needed) {
            Some(step) => break step,
            None => scale = scale.saturating_mul(10),
        }
    };
    let decimals = (0..12).find(|power| (step * 10_u64.pow(*power)).is_multiple_of(size));
    let decimals = decimals.unwrap_or(0) as usize;
    (start.0.div_ceil(step)..=end.0 / step)
        .enumerate()
        .map(|(index, number)| {
            let at = number * step;
            let figure = format!("{:.decimals$}", at as f64 / size as f64);
            (Nanos(at), if index == 0 { format!("{figure} {name}") } else { figure })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_holds_its_step_wastes_little_and_ends_on_a_tick() {
        for step in (1..400).map(|i: u64| i * i * i * 997) {
            let axis = TimeAxis::holding(Nanos(step));
            assert!(axis.end.0 >= step, "{axis:?} holds {step}");
            assert!(step < 10 || axis.end.0 * 100 <= step * 134, "{axis:?} for {step}");
            assert_eq!(axis.end.0 % axis.tick.0, 0);
            assert!((2..=5).contains(&(axis.end.0 / axis.tick.0)));
            assert!(axis.labels().all(|(_, text)| text.chars().count() <= 5), "{axis:?}");
        }
    }

    #[test]
    fn ticks_are_round_few_and_inside_their_window() {
        let text = |window: (u64, u64), most, unit: Option<u64>| {
            let window = (Nanos(window.0), Nanos(window.1));
            let ticks = ticks(window, most, unit.map(Nanos));
            assert!(ticks.len() <= most + 1, "{ticks:?}");
            assert!(ticks.iter().all(|(at, _)| (window.0..=window.1).contains(at)));
            ticks.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(text((0, 180_000_000), 9, None), "0 ms 20 40 60 80 100 120 140 160 180");
        assert_eq!(text((0, 180_000_000), 4, None), "0 ms 50 100 150");
        assert_eq!(text((120_300_000, 120_650_000), 4, None), "120.3 ms 120.4 120.5 120.6");
        assert_eq!(text((5, 9), 8, None), "5 ns 6 7 8 9");
        assert_eq!(text((0, 18_000), 9, Some(1_000)), "0 units 2 4 6 8 10 12 14 16 18");
        for length in (1..60).map(|i: u64| i * i * i * i * 1_009) {
            for most in 1..20 {
                let found = ticks((Nanos(length / 3), Nanos(length)), most, None);
                assert!(found.len() <= most + 1, "{length} {most}: {found:?}");
            }
        }
    }

    #[test]
    fn labels_name_the_unit_once() {
        let labels = |nanos| {
            let labels: Vec<String> =
                TimeAxis::holding(Nanos(nanos)).labels().map(|label| label.1).collect();
            labels.join(" ")
        };
        assert_eq!(labels(180_000_000), "0 ms 60 120 180");
        assert_eq!(labels(180_000_001), "0 ms 50 100 150 200");
        assert_eq!(labels(2_900_000), "0 ms 1 2 3");
        assert_eq!(labels(1_500_000), "0 ms 0.5 1 1.5");
        assert_eq!(labels(730_000), "0 µs 250 500 750");
        assert_eq!(labels(14_000_000_000), "0 s 5 10 15");
        assert_eq!(labels(0), "0 ns 2 4 6 8 10");
    }
}
