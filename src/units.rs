//! Quantities with their units: bytes, floating-point operations, nanoseconds.
//!
//! Nothing here knows what is measured. Every number that leaves the library wears one of these
//! types or says its unit in its name. All of them fill a width: `{:>10}` makes a column.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul, Sub};

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
        const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        for (unit, size) in UNITS {
            if self.0 >= size {
                return f.pad(&format!("{:.1} {unit}", self.0 as f64 / size as f64));
            }
        }
        f.pad(&format!("{} B", self.0))
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

#[cfg(test)]
mod tests {
    use super::*;

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
