//! What the tests of the kernels share: random numbers, running an op in all its parts, and
//! comparisons against references in double precision.

use super::{Access, Args, Kernel};

/// A small generator of repeatable random numbers.
pub(super) struct Random(u64);

impl Random {
    /// A generator whose numbers follow from `seed`.
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5851_F42D_4C95_7F2D)
    }

    /// The next 32 bits (PCG, the multiplier of Knuth's MMIX).
    pub(super) fn bits(&mut self) -> u32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 ^ (self.0 >> 18)) >> 27) as u32
    }

    /// A number below `end`.
    pub(super) fn below(&mut self, end: u32) -> u32 {
        self.bits() % end
    }

    /// A float in [−1, 1).
    pub(super) fn float(&mut self) -> f32 {
        self.bits() as f32 / 2f32.powi(31) - 1.0
    }

    /// `len` floats in [−1, 1).
    pub(super) fn floats(&mut self, len: u64) -> Vec<f32> {
        (0..len).map(|_| self.float()).collect()
    }

    /// `len` integers in `start..end`, as they lie in a rank's memory.
    pub(super) fn integers(&mut self, len: u64, start: i32, end: i32) -> Vec<f32> {
        let span = (end - start) as u32;
        (0..len).map(|_| from_i32(start + self.below(span) as i32)).collect()
    }
}

/// An integer as it lies in memory of floats.
pub(super) fn from_i32(value: i32) -> f32 {
    f32::from_bits(value as u32)
}

/// The same bits as an integer.
pub(super) fn to_i32(value: f32) -> i32 {
    value.to_bits() as i32
}

/// Runs all parts of `op`. `before` holds the old contents of the outputs that are read and
/// written; the others start as NaN, so that an element that is not written shows. Holds the
/// signature's lengths, that no part writes an element that another writes differently, and that
/// the order of the parts changes no bit.
pub(super) fn run(op: &impl Kernel, inputs: &[&[f32]], before: &[&[f32]]) -> Vec<Vec<f32>> {
    let name = op.name();
    let signature = op.signature();
    assert_eq!(signature.inputs.len(), inputs.len(), "{name}: inputs");
    for (slot, input) in signature.inputs.iter().zip(inputs) {
        assert_eq!(slot.len, input.len() as u64, "{name}: length of {}", slot.name);
    }
    let mut before = before.iter();
    let start: Vec<Vec<f32>> = signature
        .outputs
        .iter()
        .map(|(slot, access)| match access {
            Access::Write => vec![f32::NAN; slot.len as usize],
            Access::ReadWrite => {
                let old = before.next().expect("old contents of every updated output").to_vec();
                assert_eq!(slot.len, old.len() as u64, "{name}: length of {}", slot.name);
                old
            }
        })
        .collect();
    assert_eq!(before.next(), None, "{name}: more old contents than updated outputs");

    let run_in_order = |parts: &mut dyn Iterator<Item = u32>| {
        let mut outputs = start.clone();
        let mut slices: Vec<&mut [f32]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
        Args::with(inputs, &mut slices, |args| parts.for_each(|part| op.run(part, args)));
        outputs
    };
    let outputs = run_in_order(&mut (0..op.parts()));
    let reversed = run_in_order(&mut (0..op.parts()).rev());
    for (a, b) in outputs.iter().zip(&reversed) {
        assert_eq!(bits(a), bits(b), "{name}: the order of its parts shows");
    }
    outputs
}

/// Bit patterns, for comparisons that tell −0 from 0 and NaN from NaN.
pub(super) fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// Asserts `max |x − reference| ≤ tolerance · max |reference|`.
pub(super) fn assert_close(x: &[f32], reference: &[f64], tolerance: f64, what: &str) {
    assert_eq!(x.len(), reference.len(), "{what}: length");
    let largest = reference.iter().fold(0.0, |a: f64, b| a.max(b.abs()));
    for (i, (&x, &expected)) in x.iter().zip(reference).enumerate() {
        let error = (f64::from(x) - expected).abs();
        assert!(
            error <= tolerance * largest,
            "{what}[{i}]: {x} for {expected}, off by {error:e}, largest {largest}"
        );
    }
}

/// The same numbers in double precision.
pub(super) fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().copied().map(f64::from).collect()
}

/// Gradient of `loss` at `x` by central differences, for references in double precision.
pub(super) fn finite_differences(x: &[f64], loss: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    const STEP: f64 = 1e-5;
    let mut x = x.to_vec();
    (0..x.len())
        .map(|i| {
            let old = x[i];
            x[i] = old + STEP;
            let above = loss(&x);
            x[i] = old - STEP;
            let below = loss(&x);
            x[i] = old;
            (above - below) / (2.0 * STEP)
        })
        .collect()
}

/// `Σ a · b`: turns any output into one number whose gradient is known.
pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
