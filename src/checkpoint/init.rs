//! Initial weights: a function of (seed, tensor name, element), however the tensor is cut.
//!
//! Matrices are normal with the model's `initializer_range` as standard deviation, norms are ones.
//! Only integer operations and `+ − × ÷ √` of f64 are used, which IEEE 754 rounds exactly, so every
//! machine and every layout starts from the same bits.

use std::f64::consts::{LN_2, SQRT_2};

use super::pieces::{self, runs, tensor_cols};
use super::{Tensor, Tensors};
use crate::config::Model;
use crate::plan::{Held, LogicalTensor, Piece, Plan, View};
use crate::random::{draw, key};

/// The initial value of one element of a tensor; `std`: the model's `initializer_range`.
pub fn initial(seed: u64, tensor: &LogicalTensor, element: u64, std: f32) -> f32 {
    if is_norm(tensor) { 1.0 } else { normal(key(seed, &tensor.name), element, std) }
}

/// The initial values of a piece of a tensor, in the order of the piece.
pub fn fill(seed: u64, tensor: &LogicalTensor, piece: &Piece, std: f32) -> Vec<f32> {
    if is_norm(tensor) {
        return vec![1.0; piece.flat.len()];
    }
    let key = key(seed, &tensor.name);
    let mut values = Vec::with_capacity(piece.flat.len());
    for (part, first) in runs(piece, tensor_cols(&tensor.shape)) {
        let elements = (first as u64..).take(part.len());
        values.extend(elements.map(|element| normal(key, element, std)));
    }
    values
}

/// Writes the initial weights to all ranks of a Plan, owners and replicas alike.
pub fn initialize(plan: &Plan, seed: u64, std: f32, write: &mut dyn FnMut(View, &[f32])) {
    for held in pieces::held(plan, Held::Weight) {
        let tensor = &plan.tensors[held.piece.tensor as usize];
        write(held.view, &fill(seed, tensor, held.piece, std));
    }
}

/// The initial weights of a model, whole.
pub fn weights(seed: u64, model: &Model) -> Tensors {
    let whole = |(name, shape)| {
        let tensor = LogicalTensor { name, shape };
        let elements = 0..tensor.shape.len();
        let data = elements.map(|e| initial(seed, &tensor, e, model.initializer_range)).collect();
        (tensor.name, Tensor { shape: tensor.shape, data })
    };
    model.tensors().into_iter().map(whole).collect()
}

/// Tensors of one dimension scale a norm and start as ones.
fn is_norm(tensor: &LogicalTensor) -> bool {
    tensor.shape.0.len() < 2
}

fn normal(key: u64, element: u64, std: f32) -> f32 {
    // 53 random bits, moved by half a unit: never 0 and never 1.
    let uniform = ((draw(key, element) >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    (quantile(uniform) * f64::from(std)) as f32
}

/// The quantile function of the standard normal distribution for `0 < p < 1`: Acklam's rational
/// approximation (2003), relative error below 1.15e-9, far below the rounding to f32.
fn quantile(p: f64) -> f64 {
    const A: [f64; 6] = [
        -3.969683028665376e1,
        2.209460984245205e2,
        -2.759285104469687e2,
        1.38357751867269e2,
        -3.066479806614716e1,
        2.506628277459239,
    ];
    const B: [f64; 6] = [
        -5.447609879822406e1,
        1.615858368580409e2,
        -1.556989798598866e2,
        6.680131188771972e1,
        -1.328068155288572e1,
        1.0,
    ];
    const C: [f64; 6] = [
        -7.784894002430293e-3,
        -3.223964580411365e-1,
        -2.400758277161838,
        -2.549732539343734,
        4.374664141464968,
        2.938163982698783,
    ];
    const D: [f64; 5] =
        [7.784695709041462e-3, 3.224671290700398e-1, 2.445134137142996, 3.754408661907416, 1.0];
    const TAIL: f64 = 0.02425;
    let tail = |p: f64| {
        let q = (-2.0 * ln(p)).sqrt();
        polynomial(&C, q) / polynomial(&D, q)
    };
    if p < TAIL {
        tail(p)
    } else if p > 1.0 - TAIL {
        -tail(1.0 - p)
    } else {
        let q = p - 0.5;
        q * polynomial(&A, q * q) / polynomial(&B, q * q)
    }
}

/// A polynomial by its coefficients, highest power first.
fn polynomial(coefficients: &[f64], x: f64) -> f64 {
    coefficients.iter().fold(0.0, |sum, coefficient| sum * x + coefficient)
}

/// The natural logarithm of a normal number above 0. The system's `ln` may differ in the last bit
/// between machines; this one does not.
fn ln(x: f64) -> f64 {
    const MANTISSA: u64 = (1 << 52) - 1;
    let mut exponent = ((x.to_bits() >> 52) & 0x7ff) as i32 - 1023;
    let mut mantissa = f64::from_bits((x.to_bits() & MANTISSA) | 1f64.to_bits());
    if mantissa > SQRT_2 {
        mantissa *= 0.5;
        exponent += 1;
    }
    // ln m = 2 artanh s = 2 (s + s³/3 + s⁵/5 + …) with |s| < 0.172.
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let series = (0..12).rev().fold(0.0, |sum, i| sum * s * s + 1.0 / f64::from(2 * i + 1));
    f64::from(exponent) * LN_2 + 2.0 * s * series
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::Shape;

    fn tensor(name: &str, dims: &[u64]) -> LogicalTensor {
        LogicalTensor { name: name.into(), shape: Shape(dims.to_vec()) }
    }

    #[test]
    fn the_quantile_and_the_logarithm_have_known_values() {
        // Tables of the normal distribution.
        for (p, z) in [
            (0.5, 0.0),
            (0.975, 1.959_963_984_540_054),
            (0.84, 0.994_457_883_209_753),
            (0.001, -3.090_232_306_167_813_5),
            (1e-9, -5.997_807_015_007_687),
        ] {
            assert!((quantile(p) - z).abs() <= 1.2e-9 * z.abs(), "{p}: {}", quantile(p));
        }
        for x in [1e-300, 1e-16, 0.024, 0.5, 1.0, SQRT_2, 1.5, 2.0, 1e300] {
            assert!((ln(x) - x.ln()).abs() <= 4e-16 * x.ln().abs(), "{x}: {}", ln(x));
        }
    }

    #[test]
    fn matrices_are_normal_with_the_given_deviation_and_norms_are_ones() {
        let matrix = tensor("w", &[200, 100]);
        let values: Vec<f64> =
            (0..20_000).map(|element| f64::from(initial(1, &matrix, element, 0.5))).collect();
        let mean = values.iter().sum::<f64>() / 2e4;
        let moment = |power| values.iter().map(|x| (x / 0.5).powi(power)).sum::<f64>() / 2e4;
        assert!(mean.abs() < 0.5 * 4.0 / 2e4f64.sqrt(), "{mean}");
        assert!((moment(2) - 1.0).abs() < 0.04, "{}", moment(2)); // ±4σ of the estimate
        assert!((moment(4) - 3.0).abs() < 0.3, "{}", moment(4));
        let beyond_two = values.iter().filter(|x| x.abs() > 1.0).count() as f64 / 2e4;
        assert!((beyond_two - 0.0455).abs() < 0.006, "{beyond_two}");
        assert_eq!(initial(1, &tensor("norm", &[4]), 2, 0.5), 1.0);
    }

    #[test]
    fn the_bits_are_the_same_for_ever() {
        // A changed generator would silently change every experiment that names a seed.
        let name = "model.layers.0.mlp.up_proj.weight";
        let bits = [0, 1, 1000].map(|e| initial(1, &tensor(name, &[64, 64]), e, 0.02).to_bits());
        // Written by another program from the same definition.
        assert_eq!(bits, [1_007_184_102, 3_154_531_939, 999_241_496]);
    }

    #[test]
    fn seed_name_and_element_all_matter() {
        let value = |seed, name, element| initial(seed, &tensor(name, &[9, 9]), element, 1.0);
        assert_ne!(value(1, "a", 0), value(2, "a", 0));
        assert_ne!(value(1, "a", 0), value(1, "b", 0));
        assert_ne!(value(1, "a", 0), value(1, "a", 1));
    }

    proptest::proptest! {
        #[test]
        fn any_piece_of_a_tensor_has_the_values_of_the_whole(
            rows in 1u32..12, cols in 1u32..12, cut in proptest::array::uniform6(0u32..1000)
        ) {
            let tensor = tensor("w", &[rows.into(), cols.into()]);
            let range = |a: u32, b: u32, len: u32| {
                let (a, b) = (a % len, b % len);
                a.min(b)..a.max(b) + 1
            };
            let (rows, columns) = (range(cut[0], cut[1], rows), range(cut[2], cut[3], cols));
            let flat = range(cut[4], cut[5], (rows.len() * columns.len()) as u32);
            let piece = Piece {
                tensor: 0, held: Held::Weight, rows, cols: columns, flat, offset: 0, owned: true,
            };
            let expected: Vec<f32> = (0..piece.flat.len() as u32)
                .map(|i| initial(5, &tensor, piece.global_index(i, cols) as u64, 0.02))
                .collect();
            assert_eq!(fill(5, &tensor, &piece, 0.02), expected);
        }
    }
}
