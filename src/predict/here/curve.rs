//! Measured durations of one kernel over a grid of sizes, and what lies between them.

use serde::{Deserialize, Serialize};

/// Nanoseconds of one unit of a kernel's work at every point of a grid.
///
/// Between points the logarithm of the time is linear in the logarithms of the sizes: exact for
/// any product of powers. Beyond the grid a unit takes as long as at its edge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Curve {
    /// The sizes along each axis, ascending.
    pub axes: Vec<Vec<f64>>,
    /// While no other worker works; the last axis runs fastest.
    pub alone: Vec<f64>,
    /// While all workers do the same.
    pub crowded: Vec<f64>,
}

impl Curve {
    /// What is wrong with it, if anything.
    pub fn fault(&self) -> Option<&'static str> {
        let points: usize = self.axes.iter().map(Vec::len).product();
        let positive =
            |values: &[f64]| values.iter().all(|value| *value > 0.0 && value.is_finite());
        let ascends = |axis: &Vec<f64>| axis.windows(2).all(|pair| pair[0] < pair[1]);
        if self.axes.iter().any(Vec::is_empty) || self.alone.len() != points {
            Some("has not one time for each point of its axes")
        } else if self.crowded.len() != points {
            Some("has not one crowded time for each point of its axes")
        } else if !self.axes.iter().all(|axis| positive(axis) && ascends(axis)) {
            Some("has an axis that does not ascend")
        } else if !(positive(&self.alone) && positive(&self.crowded)) {
            Some("has a time that is not above 0")
        } else {
            None
        }
    }

    /// `[alone, crowded]` nanoseconds of a unit at `sizes`; `None` if there are more or fewer sizes
    /// than axes.
    pub fn at(&self, sizes: &[f64]) -> Option<[f64; 2]> {
        if sizes.len() != self.axes.len() {
            return None;
        }
        // The corners of the cell around the point, each with its share.
        let mut corners = vec![(0, 1.0)];
        for (axis, size) in self.axes.iter().zip(sizes) {
            let (low, share) = place(axis, *size);
            let next = |(index, weight): (usize, f64)| {
                let low = index * axis.len() + low;
                let high = (low + 1).min((index + 1) * axis.len() - 1);
                [(low, weight * (1.0 - share)), (high, weight * share)]
            };
            corners = corners.into_iter().flat_map(next).collect();
        }
        let mean = |values: &[f64]| {
            let logs = corners.iter().map(|&(index, weight)| weight * values[index].ln());
            logs.sum::<f64>().exp()
        };
        Some([mean(&self.alone), mean(&self.crowded)])
    }
}

/// The last point of an axis that is not above `size`, and how far `size` is on the way to the next.
fn place(axis: &[f64], size: f64) -> (usize, f64) {
    let low = axis.partition_point(|point| *point <= size).saturating_sub(1);
    match axis.get(low + 1) {
        Some(high) if size > axis[low] => (low, (size / axis[low]).ln() / (high / axis[low]).ln()),
        _ => (low, 0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(axes: &[&[f64]], time: impl Fn(&[f64]) -> f64) -> Curve {
        let mut points = vec![Vec::new()];
        for axis in axes {
            let longer = |point: Vec<f64>| axis.iter().map(move |x| [&point[..], &[*x]].concat());
            points = points.into_iter().flat_map(longer).collect();
        }
        let alone: Vec<f64> = points.iter().map(|point| time(point)).collect();
        let crowded = alone.iter().map(|time| 2.0 * time).collect();
        Curve { axes: axes.iter().map(|axis| axis.to_vec()).collect(), alone, crowded }
    }

    #[test]
    fn products_of_powers_are_exact_between_points_and_flat_beyond() {
        let power = |at: &[f64]| 3.0 * at[0].powf(-0.5) * at[1].powf(0.25);
        let curve = curve(&[&[1.0, 10.0, 1000.0], &[4.0, 64.0]], power);
        for at in [[1.0, 4.0], [10.0, 64.0], [2.5, 9.0], [700.0, 63.0], [10.0, 5.0]] {
            let [alone, crowded] = curve.at(&at).unwrap();
            assert!((alone / power(&at) - 1.0).abs() < 1e-12, "{at:?}: {alone}");
            assert!((crowded / alone - 2.0).abs() < 1e-12);
        }
        let edge = |at| curve.at(at).unwrap()[0];
        assert_eq!(edge(&[5000.0, 1.0]), edge(&[1000.0, 4.0]));
        assert_eq!(edge(&[0.1, 100.0]), edge(&[1.0, 64.0]));
        assert_eq!(curve.at(&[1.0]), None);
    }

    #[test]
    fn a_curve_that_makes_no_sense_says_so() {
        let good = curve(&[&[1.0, 2.0]], |at| at[0]);
        assert_eq!(good.fault(), None);
        let short = Curve { alone: vec![1.0], ..good.clone() };
        let crowded = Curve { crowded: vec![1.0], ..good.clone() };
        let falling = Curve { axes: vec![vec![2.0, 1.0]], ..good.clone() };
        let nothing = Curve { alone: vec![0.0, 1.0], ..good.clone() };
        let empty = Curve { axes: vec![Vec::new()], alone: vec![], crowded: vec![] };
        for broken in [short, crowded, falling, nothing, empty] {
            assert!(broken.fault().is_some(), "{broken:?}");
        }
    }
}
