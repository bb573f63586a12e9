//! What the difference of two steps is: in numbers, and what one sees in one sentence.

use shardlab::trace::Badge;
use shardlab::trace::draw::timeline::Target;
use shardlab::units::{Bytes, Nanos};

use super::{Choice, Compare, Half, Held};
use crate::run::Run;
use crate::shown::Sight;

/// Two steps, the one below against the one above.
#[derive(Clone, Copy, Debug)]
pub struct Difference<'a> {
    /// The step above.
    pub upper: &'a Held,
    /// The step below.
    pub lower: &'a Held,
}

/// A number of both, as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compared {
    /// What it is.
    pub name: &'static str,
    /// How much more it is below, with its sign.
    pub change: String,
    /// Above and below.
    pub both: String,
    /// Where the two come from.
    pub badges: [Badge; 2],
}

impl Compared {
    /// `MEASURED → REPLAYED`, or one word where both are the same.
    pub fn origin(&self) -> String {
        let [upper, lower] = self.badges;
        match upper == lower {
            true => upper.word().to_owned(),
            false => format!("{} → {}", upper.word(), lower.word()),
        }
    }

    /// All of it in one sentence.
    pub fn sentence(&self) -> String {
        format!("{}, above → below: {} ({}).", self.name, self.both, self.origin())
    }
}

impl Difference<'_> {
    /// Length of the step, waiting, the fullest rank's memory, and bytes between ranks.
    pub fn rows(&self) -> [Compared; 4] {
        let Self { upper, lower } = *self;
        let times = [upper.badge, lower.badge];
        let (long, short) = (upper.length(), lower.length());
        let percent = match long.0 {
            0 => String::new(),
            all => format!(", {} %", signed(100.0 * (short.0 as f64 / all as f64 - 1.0))),
        };
        let waits = [upper.waiting, lower.waiting].map(|share| 100.0 * share);
        let bytes = |name, (above, from): (Bytes, Badge), (below, to): (Bytes, Badge)| Compared {
            name,
            change: changed(above.0, below.0, |bytes| Bytes(bytes).to_string()),
            both: format!("{above} → {below}"),
            badges: [from, to],
        };
        [
            Compared {
                name: "Step",
                change: changed(long.0, short.0, |nanos| Nanos(nanos).to_string()),
                both: format!("{long} → {short}{percent}"),
                badges: times,
            },
            Compared {
                name: "Waiting",
                change: format!("{} points", signed(waits[1] - waits[0])),
                both: format!("{:.1} → {:.1} %", waits[0], waits[1]),
                badges: times,
            },
            bytes("Peak memory", upper.peak, lower.peak),
            bytes("Sent", upper.sent, lower.sent),
        ]
    }

    /// How much longer the one below is: `The lower is 3.10 times shorter`.
    fn ratio(&self) -> String {
        let [above, below] = [self.upper, self.lower].map(|held| held.length().0.max(1) as f64);
        let (factor, word) =
            if below >= above { (below / above, "longer") } else { (above / below, "shorter") };
        match factor {
            factor if factor < 1.005 => "Both are equally long".into(),
            factor if factor < 9.95 => format!("The lower is {factor:.2} times {word}"),
            factor => format!("The lower is {factor:.0} times {word}"),
        }
    }
}

/// A difference with its sign; `=` where there is none.
fn changed(above: u64, below: u64, text: impl Fn(u64) -> String) -> String {
    let sign = match below.cmp(&above) {
        std::cmp::Ordering::Less => "−",
        std::cmp::Ordering::Equal => return "=".into(),
        std::cmp::Ordering::Greater => "+",
    };
    format!("{sign}{}", text(above.abs_diff(below)))
}

fn signed(value: f64) -> String {
    let sign = if value < -0.05 {
        "−"
    } else if value < 0.05 {
        "±"
    } else {
        "+"
    };
    format!("{sign}{:.1}", value.abs())
}

impl Compare {
    /// What one sees, in one sentence.
    pub fn sentence(&self, run: &Run) -> String {
        let Some(both) = self.difference() else {
            return "Two steps, one above the other, on one time scale.".into();
        };
        let ratio = both.ratio();
        if let [Choice::Measured, Choice::Replayed] = Half::BOTH.map(|half| self.choice(half)) {
            let mut names: Vec<&str> = Vec::new();
            for device in run.facts().iter().flat_map(|facts| &facts.devices) {
                if !names.contains(&device.name.as_str()) {
                    names.push(&device.name);
                }
            }
            let ranks = both.upper.timeline.ranks().len();
            if ranks > names.len() {
                let devices = match names.len() {
                    1 => "1 device".into(),
                    count => format!("{count} devices"),
                };
                return format!(
                    "{ratio}. Above: {ranks} ranks take turns on {devices}. Below: the same work, \
                     each rank on its own."
                );
            }
        }
        // What is most worth reading comes first: where names are long, their ends go.
        format!("{ratio}. Above: {}. Below: {}.", both.upper.name, both.lower.name)
    }

    /// What is under the pointer in one of the two.
    pub(in crate::app) fn pointed_at(&self) -> Option<String> {
        let sentence = |half: Half| {
            let shown = self.half(half);
            Some(shown.held()?.timeline.explain(&shown.sight.hover?))
        };
        Half::BOTH.into_iter().find_map(sentence)
    }

    /// Where the times come from of what is under the pointer, else of what is chosen.
    pub(in crate::app) fn badge(&self) -> Option<Badge> {
        let of = |target: fn(&Sight) -> Option<Target>| {
            let halves = Half::BOTH.into_iter().filter(|half| target(self.sight(*half)).is_some());
            halves.filter_map(|half| self.held(half)).map(|held| held.badge).next()
        };
        of(|sight| sight.hover).or_else(|| of(|sight| sight.selection))
    }

    /// What is chosen: where it is in both, how long it takes above and below.
    pub(in crate::app) fn chosen(&self) -> Option<String> {
        let targets = Half::BOTH.map(|half| self.sight(half).selection);
        if let (Some(both), [Some(target), Some(_)]) = (self.difference(), targets) {
            let spans = [both.upper, both.lower].map(|held| held.timeline.span(&target));
            if let [Some((rank, above)), Some((_, below))] = spans {
                let [above, below] = [above, below].map(|span| span.duration());
                let from = Compared {
                    name: "",
                    change: String::new(),
                    both: String::new(),
                    badges: [both.upper.badge, both.lower.badge],
                };
                return Some(format!(
                    "This block of rank {rank}: {above} above, {below} below ({}).",
                    from.origin()
                ));
            }
        }
        let sentence = |half: Half| {
            let shown = self.half(half);
            Some(shown.held()?.timeline.explain(&shown.sight.selection?))
        };
        Half::BOTH.into_iter().find_map(sentence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_have_a_sign_and_nothing_is_none() {
        let bytes = |above, below| changed(above, below, |bytes| Bytes(bytes).to_string());
        assert_eq!(bytes(4 << 20, 5 << 20), "+1.0 MiB");
        assert_eq!(bytes(5 << 20, 4 << 20), "−1.0 MiB");
        assert_eq!(bytes(7, 7), "=");
        assert_eq!([signed(-12.26), signed(0.01), signed(3.0)], ["−12.3", "±0.0", "+3.0"]);
    }
}
