//! What the host kernels share: vector code, sums of fixed order, and the cut into parts.
//!
//! Rust never fuses or reorders floating-point arithmetic by itself, so a plain loop gives an element
//! the same bits wherever it lies in a vector. Sums run in a fixed number of lanes, which the compiler keeps
//! in registers, and the lanes are added in a fixed order.

use std::cell::RefCell;
use std::ops::Range;

/// Elements of work that are worth a part of their own: some 10 µs.
const PART: u32 = 1 << 15;

/// Elements between two sums in double precision.
const SUM_BLOCK: usize = 1024;

/// Lanes of a sum: four vectors of eight, so that additions do not wait for each other.
const LANES: usize = 32;

/// Lanes for rows so short that joining the lanes counts.
pub(super) const SHORT_LANES: usize = 16;

/// Runs `work`, whose loops are compiled for the widest vectors of the machine. `work` and all
/// that it calls must be `#[inline(always)]`.
#[inline(always)]
pub(super) fn vectorized<R>(work: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(work)
}

/// As [`vectorized`], for work that uses [`Fma`].
#[inline(always)]
pub(super) fn vectorized_fma<R>(work: impl FnOnce(Fma) -> R) -> R {
    struct Work<F>(F);
    impl<R, F: FnOnce(Fma) -> R> pulp::WithSimd for Work<F> {
        type Output = R;
        #[inline(always)]
        fn with_simd<S: pulp::Simd>(self, simd: S) -> R {
            self.0(Fma::of(simd))
        }
    }
    pulp::Arch::new().dispatch(Work(work))
}

/// Multiplies and adds, with one rounding where the machine has an instruction for that. A constant
/// once it is inlined, so that nothing branches on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fma {
    fused: bool,
}

impl Fma {
    /// What code compiled for `S` can do.
    #[inline(always)]
    pub(super) fn of<S: pulp::Simd>(_simd: S) -> Self {
        // The vector sets of both architectures hold the instruction; without it, `mul_add` is a
        // slow call.
        let has_instruction = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));
        Self { fused: !S::IS_SCALAR && has_instruction }
    }

    /// `a · b + c`.
    #[inline(always)]
    pub(super) fn mul_add(self, a: f32, b: f32, c: f32) -> f32 {
        if self.fused { a.mul_add(b, c) } else { a * b + c }
    }
}

/// Parts of `count` equal units of `size` elements each; a part holds at least one unit.
pub(super) fn part_count(count: u32, size: u32) -> u32 {
    count.div_ceil(units_per_part(size)).max(1)
}

/// Units of part `part` of [`part_count`].
pub(super) fn part_units(count: u32, size: u32, part: u32) -> Range<usize> {
    let per_part = u64::from(units_per_part(size));
    let start = (u64::from(part) * per_part).min(count.into());
    let end = (start + per_part).min(count.into());
    start as usize..end as usize
}

fn units_per_part(size: u32) -> u32 {
    (PART / size.max(1)).max(1)
}

/// Elements of `units` of `size` elements each.
#[inline(always)]
pub(super) fn elements(units: &Range<usize>, size: usize) -> Range<usize> {
    units.start * size..units.end * size
}

/// `Σ term(x_0[i], x_1[i], …)`, in lanes of f32 that are added up in f64 block by block: accurate to
/// 1e-7 of `Σ |term|` for any length.
#[inline(always)]
pub(super) fn sum<const N: usize>(x: [&[f32]; N], term: impl Fn([f32; N]) -> f32) -> f64 {
    let len = x[0].len();
    assert!(x.iter().all(|x| x.len() == len), "a sum needs equal lengths");
    let mut total = 0.0;
    for start in (0..len).step_by(SUM_BLOCK) {
        let blocks = x.map(|x| &x[start..len.min(start + SUM_BLOCK)]);
        let chunks = blocks.map(|x| x.as_chunks::<LANES>());
        let mut lanes = [0f32; LANES];
        for i in 0..chunks[0].0.len() {
            // Terms and additions in loops of their own: both are vectorized.
            let mut terms = [0f32; LANES];
            for (lane, value) in terms.iter_mut().enumerate() {
                *value = term(std::array::from_fn(|input| chunks[input].0[i][lane]));
            }
            lanes.iter_mut().zip(terms).for_each(|(lane, term)| *lane += term);
        }
        for lane in 0..chunks[0].1.len() {
            lanes[lane] += term(chunks.map(|(_, rest)| rest[lane]));
        }
        total += fold_lanes(lanes);
    }
    total
}

/// The sum of all lanes, halves onto halves.
#[inline(always)]
fn fold_lanes(lanes: [f32; LANES]) -> f64 {
    let mut wide = lanes.map(f64::from);
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            wide[lane] += wide[lane + half];
        }
        half /= 2;
    }
    wide[0]
}

/// The largest number; NaN is passed over, `-inf` if there is none.
#[inline(always)]
pub(super) fn max(x: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut lanes = [f32::NEG_INFINITY; SHORT_LANES];
    let (chunks, rest) = x.as_chunks::<SHORT_LANES>();
    for chunk in chunks {
        for lane in 0..SHORT_LANES {
            lanes[lane] = larger(lanes[lane], chunk[lane]);
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        *lane = larger(*lane, x);
    }
    fold_short(lanes, larger)
}

/// All lanes, halves onto halves.
#[inline(always)]
pub(super) fn fold_short(mut lanes: [f32; SHORT_LANES], join: impl Fn(f32, f32) -> f32) -> f32 {
    let mut half = SHORT_LANES / 2;
    while half > 0 {
        for lane in 0..half {
            lanes[lane] = join(lanes[lane], lanes[lane + half]);
        }
        half /= 2;
    }
    lanes[0]
}

/// Runs `work` with scratch memory of this thread: `len` elements of any contents, aligned to a
/// cache line. The memory is kept, so that a steady step allocates nothing. Not to be nested.
pub(super) fn with_scratch<R>(len: usize, work: impl FnOnce(&mut [f32]) -> R) -> R {
    const LINE: usize = 64 / size_of::<f32>();
    thread_local! {
        static SCRATCH: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
    }
    SCRATCH.with_borrow_mut(|memory| {
        if memory.len() < len + LINE {
            memory.resize(len + LINE, 0.0);
        }
        // Alignment is for speed alone, so an offset that is not known may be anything.
        let start = memory.as_ptr().align_offset(64).min(LINE);
        work(&mut memory[start..start + len])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_every_unit_once() {
        for (count, size) in [(0, 1), (1, 1), (PART, 1), (PART + 1, 1), (1000, 100), (7, 1 << 20)] {
            let parts = part_count(count, size);
            let covered: Vec<usize> =
                (0..parts).flat_map(|part| part_units(count, size, part)).collect();
            assert!(covered.into_iter().eq(0..count as usize), "{count} units of {size}");
        }
    }

    #[test]
    fn sums_of_any_length_are_accurate() {
        for len in [0, 1, 31, 32, 33, 1023, 1024, 1025, 5000] {
            let x: Vec<f32> = (0..len).map(|i| (i as f32 * 0.37).sin()).collect();
            let exact: f64 = x.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
            let sum = vectorized(|| sum([&x], |[x]| x * x));
            assert!((sum - exact).abs() <= 1e-7 * exact, "length {len}: {sum} for {exact}");
        }
    }

    #[test]
    fn maximum_passes_over_nan() {
        assert_eq!(max(&[]), f32::NEG_INFINITY);
        let mut x = vec![-3.0f32; 77];
        x[40] = f32::NAN;
        x[76] = -1.0;
        assert_eq!(max(&x), -1.0);
    }

    #[test]
    fn scratch_is_aligned_and_kept() {
        let first = with_scratch(100, |memory| (memory.as_ptr(), memory.len()));
        let again = with_scratch(100, |memory| (memory.as_ptr(), memory.len()));
        assert_eq!(first, again);
        assert_eq!((first.0.align_offset(64), first.1), (0, 100));
    }
}
