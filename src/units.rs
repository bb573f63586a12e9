//! Quantities with their units: bytes, floating-point operations, nanoseconds.
//!
//! Nothing here knows what is measured. Every number that leaves the library wears one of these
//! types or says its unit in its name. All of them fill a width: `{:>10}` makes a column.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul, Sub};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }
        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                self.0 += other.0;
            }
        }
        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }
        impl Mul<u64> for $name {
            type Output = Self;
            fn mul(self, times: u64) -> Self {
                Self(self.0 * times)
            }
        }
        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
                items.fold(Self(0), Add::add)
            }
        }
    };
}

quantity! {
    /// A number of bytes. Displays in binary units: `1.5 MiB`.
    Bytes
}
quantity! {
    /// Floating-point operations; a multiply-add counts two.
    Flops
}
quantity! {
    /// A time or a duration in nanoseconds.
    Nanos
}

impl Nanos {
    /// The duration in seconds.
    pub fn as_secs(self) -> f64 {
        self.0 as f64 * 1e-9
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u64); 5] = [
            ("PiB", 1 << 50),
            ("TiB", 1 << 40),
            ("GiB", 1 << 30),
            ("MiB", 1 << 20),
            ("KiB", 1 << 10),
        ];
        for (unit, size) in UNITS {
            if self.0 >= size {
                return f.pad(&format!("{:.1} {unit}", self.0 as f64 / size as f64));
            }
        }
        f.pad(&format!("{} B", self.0))
    }
}

impl FromStr for Bytes {
    type Err = String;

    /// Reads `1048576`, `512MiB`, `1.5GiB`, `2GB`.
    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let size: u64 = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "t" | "tib" => 1 << 40,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            _ => {
                return Err(format!(
                    "`{unit}` is no unit: use B, KiB, MiB, GiB, TiB, KB, MB, GB or TB"
                ));
            }
        };
        // Whole numbers stay exact however large they are.
        if let Ok(number) = number.parse::<u64>() {
            let total = number.checked_mul(size);
            return total.map(Bytes).ok_or_else(|| "more bytes than any memory has".to_owned());
        }
        match number.parse::<f64>() {
            Ok(number) => Ok(Self((number * size as f64) as u64)),
            Err(_) => Err("give a number and perhaps a unit, as in 1048576 or 512MiB".into()),
        }
    }
}

impl fmt::Display for Flops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, f64); 5] =
            [("PFLOP", 1e15), ("TFLOP", 1e12), ("GFLOP", 1e9), ("MFLOP", 1e6), ("KFLOP", 1e3)];
        let value = self.0 as f64;
        for (unit, size) in UNITS {
            if value >= size {
                return f.pad(&format!("{:.1} {unit}", value / size));
            }
        }
        f.pad(&format!("{} FLOP", self.0))
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&match self.0 {
            0..1_000 => format!("{} ns", self.0),
            1_000..1_000_000 => format!("{:.1} µs", self.0 as f64 / 1e3),
            1_000_000..1_000_000_000 => format!("{:.1} ms", self.0 as f64 / 1e6),
            _ => format!("{:.2} s", self.as_secs()),
        })
    }
}

impl FromStr for Nanos {
    type Err = String;

    /// Reads `12ms`, `1.5 s`, `800us`, `40ns`.
    fn from_str(text: &str) -> Result<Self, String> {
        let times = [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)];
        let nanos = with_unit(text, &times).map(|nanos| Self(nanos.round() as u64));
        nanos.ok_or_else(|| "give a number and a unit, as in 12ms: ns, us, ms or s".into())
    }
}

/// A number that is not negative with one of these units behind it, times what the unit stands for. A
/// unit that ends as another one does stands before it.
pub(crate) fn with_unit(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let number = |text: &str| {
        let value: f64 = text.trim().parse().ok()?;
        (value.is_finite() && value >= 0.0).then_some(value)
    };
    units.iter().find_map(|(unit, size)| Some(number(text.trim().strip_suffix(unit)?)? * size))
}

/// A whole number with its digits in groups of three: `20,100`.
pub fn grouped(number: impl Into<u64>) -> String {
    let digits = number.into().to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_with_and_without_units() {
        let cases = [
            ("0", 0),
            ("1048576", 1 << 20),
            ("512MiB", 512 << 20),
            ("512 mib", 512 << 20),
            ("1.5GiB", 3 << 29),
            ("2GB", 2_000_000_000),
            ("64k", 64 << 10),
            ("18446744073709551615", u64::MAX),
        ];
        for (text, expected) in cases {
            assert_eq!(text.parse::<Bytes>(), Ok(Bytes(expected)), "{text}");
        }
        for text in ["", "MiB", "5 apples", "-1", "1e9", "99999999999TiB"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn times_are_read_with_their_unit() {
        let cases = [("12ms", 12_000_000), ("1.5 s", 1_500_000_000), ("0us", 0), ("7µs", 7_000)];
        for (text, expected) in cases {
            assert_eq!(text.parse::<Nanos>(), Ok(Nanos(expected)), "{text}");
        }
        for text in ["", "ms", "5", "5 apples", "-1ms", "1.2.3s"] {
            assert!(text.parse::<Nanos>().is_err(), "{text}");
        }
    }

    #[test]
    fn quantities_display_with_their_unit() {
        assert_eq!(Bytes(512).to_string(), "512 B");
        assert_eq!(Bytes(1_572_864).to_string(), "1.5 MiB");
        assert_eq!(Flops(2_500_000).to_string(), "2.5 MFLOP");
        assert_eq!(Nanos(12_400_000).to_string(), "12.4 ms");
        assert_eq!(
            format!("{:>8}|{:<8}|{:>8}", Bytes(1536), Flops(7), Nanos(1_500)),
            " 1.5 KiB|7 FLOP  |  1.5 µs"
        );
    }
}
