//! Small matrix products over scratch memory that is packed and padded: the inner loops of
//! attention, where operands fit into the nearest caches and a general product would spend its
//! time on preparation.
//!
//! Every element is summed in ascending order of the inner index, by fused multiply-adds where the
//! machine has them, so its bits do not depend on the width of vectors or on its neighbours.

use pulp::{Simd, WithSimd};

/// Panels are padded to a multiple of this many columns: one cache line.
pub(super) const COLUMNS: usize = 16;

/// Columns rounded up to whole cache lines.
pub(super) fn padded(columns: usize) -> usize {
    columns.next_multiple_of(COLUMNS)
}

/// A stride for `columns` padded columns: an odd number of cache lines, so that the lines of one
/// column fall into different sets of a cache.
pub(super) fn stride(columns: usize) -> usize {
    (columns.div_ceil(COLUMNS) | 1) * COLUMNS
}

/// The left operand: element `(i, l)` is `data[i * row + l * column]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left<'a> {
    /// Elements, from `(0, 0)`.
    pub data: &'a [f32],
    /// Elements from one row to the next.
    pub row: usize,
    /// Elements from one column to the next.
    pub column: usize,
}

/// The right operand, row-major.
#[derive(Clone, Copy, Debug)]
pub(super) struct Right<'a> {
    /// Elements, from `(0, 0)`.
    pub data: &'a [f32],
    /// Elements from one row to the next.
    pub stride: usize,
}

/// The result, row-major.
#[derive(Debug)]
pub(super) struct Out<'a> {
    /// Elements, from `(0, 0)`.
    pub data: &'a mut [f32],
    /// Elements from one row to the next.
    pub stride: usize,
    /// Whether the product is added to what is there.
    pub add: bool,
}

/// Sizes of `out[m, n] = left[m, k] · right[k, n]`; `n` is a multiple of the lanes
/// of a vector, which [`COLUMNS`] is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// Length of the sums.
    pub k: usize,
}

/// `out = left · right`, or `out += left · right`.
#[inline(always)]
pub(super) fn product<S: Simd>(
    simd: S,
    sizes: Sizes,
    left: Left<'_>,
    right: Right<'_>,
    out: Out<'_>,
) {
    // A function of its own, so that the registers belong to the inner loops alone.
    simd.vectorize(Product { sizes, left, right, out });
}

struct Product<'a> {
    sizes: Sizes,
    left: Left<'a>,
    right: Right<'a>,
    out: Out<'a>,
}

impl WithSimd for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        // The two layouts in use, each with its constant known to the inner loops.
        if self.left.row == 1 {
            let left = Left { row: 1, ..self.left };
            Self { left, ..self }.panels(simd);
        } else {
            let left = Left { column: 1, ..self.left };
            Self { left, ..self }.panels(simd);
        }
    }
}

impl Product<'_> {
    #[inline(always)]
    fn panels<S: Simd>(self, simd: S) {
        let Self { sizes, left, right, out } = self;
        debug_assert_eq!(sizes.n % S::F32_LANES, 0, "panels are padded");
        let wide = 2 * S::F32_LANES;
        let mut column = 0;
        while column < sizes.n {
            let right = Right { data: right.data.get(column..).unwrap_or_default(), ..right };
            let data = &mut out.data[column..];
            let out = Out { data, ..out };
            if sizes.n - column >= wide {
                panel::<S, 2>(simd, sizes, left, right, out);
                column += wide;
            } else {
                panel::<S, 1>(simd, sizes, left, right, out);
                column += S::F32_LANES;
            }
        }
    }
}

/// All rows of `V` vectors of columns.
#[inline(always)]
fn panel<S: Simd, const V: usize>(
    simd: S,
    sizes: Sizes,
    left: Left<'_>,
    right: Right<'_>,
    out: Out<'_>,
) {
    let mut row = 0;
    while row < sizes.m {
        let left = Left { data: &left.data[row * left.row..], ..left };
        let data = &mut out.data[row * out.stride..];
        let out = Out { data, ..out };
        row += match sizes.m - row {
            1 => tile::<S, 1, V>(simd, sizes.k, left, right, out),
            2 => tile::<S, 2, V>(simd, sizes.k, left, right, out),
            3 => tile::<S, 3, V>(simd, sizes.k, left, right, out),
            4 => tile::<S, 4, V>(simd, sizes.k, left, right, out),
            5 => tile::<S, 5, V>(simd, sizes.k, left, right, out),
            _ => tile::<S, 6, V>(simd, sizes.k, left, right, out),
        };
    }
}

/// `R` rows of `V` vectors, held in registers over the whole sum; gives back `R`.
#[inline(always)]
fn tile<S: Simd, const R: usize, const V: usize>(
    simd: S,
    k: usize,
    left: Left<'_>,
    right: Right<'_>,
    out: Out<'_>,
) -> usize {
    let width = V * S::F32_LANES;
    let mut sums = [[simd.splat_f32s(0.0); V]; R];
    for l in 0..k {
        let (vectors, _) = S::as_simd_f32s(&right.data[l * right.stride..][..width]);
        let column = &left.data[l * left.column..][..(R - 1) * left.row + 1];
        for r in 0..R {
            let factor = simd.splat_f32s(column[r * left.row]);
            for v in 0..V {
                sums[r][v] = simd.mul_add_e_f32s(factor, vectors[v], sums[r][v]);
            }
        }
    }
    for (r, sums) in sums.iter().enumerate() {
        let (vectors, _) = S::as_mut_simd_f32s(&mut out.data[r * out.stride..][..width]);
        for v in 0..V {
            vectors[v] = if out.add { simd.add_f32s(vectors[v], sums[v]) } else { sums[v] };
        }
    }
    R
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{Random, assert_close, bits, wide};

    #[test]
    fn products_of_ragged_sizes_equal_the_definition() {
        for (m, n, k) in [(1, 16, 1), (4, 32, 9), (7, 48, 33), (13, 16, 0), (10, 80, 64)] {
            let mut random = Random::new((m * n + k) as u64);
            let n_stride = stride(n);
            let right = random.floats((k * n_stride) as u64);
            let old = random.floats((m * n_stride) as u64);
            for transposed in [false, true] {
                let left = random.floats((m * k + m) as u64);
                let (row, column) = if transposed { (1, m) } else { (k, 1) };
                for add in [false, true] {
                    let mut out = old.clone();
                    pulp::Arch::new().dispatch(Product {
                        sizes: Sizes { m, n, k },
                        left: Left { data: &left, row, column },
                        right: Right { data: &right, stride: n_stride },
                        out: Out { data: &mut out, stride: n_stride, add },
                    });
                    let mut expected = wide(&old);
                    for i in 0..m {
                        for j in 0..n {
                            let sum: f64 = (0..k)
                                .map(|l| {
                                    let a = left[i * row + l * column];
                                    f64::from(a) * f64::from(right[l * n_stride + j])
                                })
                                .sum();
                            let place = &mut expected[i * n_stride + j];
                            *place = sum + if add { *place } else { 0.0 };
                        }
                    }
                    assert_close(&out, &expected, 1e-6, "out");
                }
            }
        }
    }

    #[test]
    fn bits_of_an_element_do_not_depend_on_its_neighbours() {
        let mut random = Random::new(1);
        let (left, right) = (random.floats(9 * 20), random.floats(20 * 48));
        let rows = |start: usize, m: usize, column: usize, n: usize| {
            let mut out = vec![0.0; m * n];
            pulp::Arch::new().dispatch(Product {
                sizes: Sizes { m, n, k: 20 },
                left: Left { data: &left[start * 20..], row: 20, column: 1 },
                right: Right { data: &right[column..], stride: 48 },
                out: Out { data: &mut out, stride: n, add: false },
            });
            out
        };
        let whole = rows(0, 9, 0, 48);
        let part = rows(3, 2, 32, 16);
        assert_eq!(bits(&part[..16]), bits(&whole[3 * 48 + 32..4 * 48]));
        assert_eq!(bits(&part[16..]), bits(&whole[4 * 48 + 32..5 * 48]));
    }
}
