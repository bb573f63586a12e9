//! Matrix products in the three forms that a linear layer needs.
//!
//! The host kernel packs blocks of B into panels that stay in the caches and reads A where it lies;
//! the arithmetic is in `panel.rs`. Every element is summed in the same blocks of the inner index
//! whatever the other sizes, so neither a cut of the rows or columns nor a thread changes its bits.

use std::ops::Range;

use pulp::{Simd, WithSimd};
use serde::{Deserialize, Serialize};

use super::lanes::with_scratch;
use super::panel::{Left, Out, Right, Sizes, product};
use super::{Args, Kernel, Signature, assign_or_add};
use crate::units::Flops;

/// Which operand is read transposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// `C[m,n] = A[m,k] · B[k,n]`: input gradient of a linear layer.
    Nn,
    /// `C[m,n] = A[m,k] · B[n,k]ᵀ`: forward of a linear layer (weights are `[out, in]`).
    Nt,
    /// `C[m,n] = A[k,m]ᵀ · B[k,n]`: weight gradient of a linear layer.
    Tn,
}

/// `C = A · B` in one of three forms, all row-major and contiguous.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Matmul {
    /// Which operand is transposed.
    pub form: Form,
    /// Rows of C.
    pub m: u32,
    /// Columns of C.
    pub n: u32,
    /// Length of the sums.
    pub k: u32,
    /// `C += …` instead of `C = …`.
    pub accumulate: bool,
}

impl Kernel for Matmul {
    fn name(&self) -> &'static str {
        match self.form {
            Form::Nn => "matmul_nn",
            Form::Nt => "matmul_nt",
            Form::Tn => "matmul_tn",
        }
    }
    fn signature(&self) -> Signature {
        let (m, n, k) = (u64::from(self.m), u64::from(self.n), u64::from(self.k));
        Signature::default().input("a", m * k).input("b", k * n).output(
            "c",
            assign_or_add(self.accumulate),
            m * n,
        )
    }
    fn flops(&self) -> Flops {
        Flops(2 * u64::from(self.m) * u64::from(self.n) * u64::from(self.k))
    }
    /// Parts are blocks of rows.
    fn parts(&self) -> u32 {
        self.m.div_ceil(self.rows_per_part()).max(1)
    }
    fn run(&self, part: u32, args: &Args<'_>) {
        let start = (part * self.rows_per_part()).min(self.m);
        let rows = self.rows_per_part().min(self.m - start) as usize;
        let [start, n, k] = [start, self.n, self.k].map(|x| x as usize);
        let c = args.out(0, start * n..(start + rows) * n);
        if k == 0 && !self.accumulate {
            c.fill(0.0);
        }
        if rows * n * k == 0 {
            return;
        }
        let a = match self.form {
            Form::Nn | Form::Nt => Left { data: &args.f32(0)[start * k..], row: k, column: 1 },
            Form::Tn => Left { data: &args.f32(0)[start..], row: 1, column: self.m as usize },
        };
        let b = Right { data: args.f32(1), stride: if self.form == Form::Nt { k } else { n } };
        with_scratch(INNER * (COLUMNS + PANEL) + ROWS * PANEL, |scratch| {
            let sizes = Sizes { m: rows, n, k };
            let (edge, packed) = scratch.split_at_mut(ROWS * PANEL);
            let product = Product { op: self, sizes, a, b, c, packed, edge };
            pulp::Arch::new().dispatch(product);
        });
    }
}

/// Least operations of a part.
const PART_FLOPS: u64 = 20_000_000;
/// Most parts of a product.
const PARTS: u64 = 8;

/// Terms of a sum that are added in registers; such sums are added up in C.
const INNER: usize = 256;
/// Columns of B that are packed at a time.
const COLUMNS: usize = 512;
/// Rows of A that are taken against all packed columns: they stay in the second cache.
const ROWS: usize = 192;
/// Widest panel: two of the widest vectors.
const PANEL: usize = 32;

impl Matmul {
    fn rows_per_part(&self) -> u32 {
        // Every part packs B again, for which a transposed B takes longer.
        let least_rows = if self.form == Form::Nt { 192 } else { 96 };
        let parts = (self.flops().0 / PART_FLOPS).clamp(1, PARTS) as u32;
        self.m.div_ceil(parts).next_multiple_of(6).max(least_rows)
    }
}

/// A block of rows of a product.
struct Product<'a> {
    op: &'a Matmul,
    sizes: Sizes,
    a: Left<'a>,
    b: Right<'a>,
    c: &'a mut [f32],
    packed: &'a mut [f32],
    edge: &'a mut [f32],
}

impl WithSimd for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        for inner in blocks(self.sizes.k, INNER) {
            for columns in blocks(self.sizes.n, COLUMNS) {
                self.pack(simd, &inner, &columns);
                for rows in blocks(self.sizes.m, ROWS) {
                    self.multiply(simd, &inner, &columns, &rows);
                }
            }
        }
    }
}

/// `0..total` in blocks of `size`, the last one smaller.
#[inline(always)]
fn blocks(total: usize, size: usize) -> impl Iterator<Item = Range<usize>> {
    (0..total).step_by(size).map(move |start| start..total.min(start + size))
}

impl Product<'_> {
    /// Packs a block of B into panels of two vectors' width.
    #[inline(always)]
    fn pack<S: Simd>(&mut self, simd: S, inner: &Range<usize>, columns: &Range<usize>) {
        let width = 2 * S::F32_LANES;
        assert!(width <= PANEL, "vectors of {} lanes", S::F32_LANES);
        let panels = self.packed.chunks_exact_mut(inner.len() * width);
        for (panel, columns) in panels.zip(panels_of(columns, width)) {
            match self.op.form {
                Form::Nn | Form::Tn => {
                    let start = inner.start * self.b.stride + columns.start;
                    let b = Right { data: &self.b.data[start..], ..self.b };
                    pack_rows(simd, b, columns.len(), panel);
                }
                Form::Nt => {
                    let start = columns.start * self.b.stride + inner.start;
                    let b = Right { data: &self.b.data[start..], ..self.b };
                    pack_columns(b, columns.len(), panel, width);
                }
            }
        }
    }

    /// Adds the product of a block of A and the packed block of B to C.
    #[inline(always)]
    fn multiply<S: Simd>(
        &mut self,
        simd: S,
        inner: &Range<usize>,
        columns: &Range<usize>,
        rows: &Range<usize>,
    ) {
        let width = 2 * S::F32_LANES;
        let n = self.sizes.n;
        let add = self.op.accumulate || inner.start > 0;
        let sizes = Sizes { m: rows.len(), n: width, k: inner.len() };
        let a_start = rows.start * self.a.row + inner.start * self.a.column;
        let a = Left { data: &self.a.data[a_start..], ..self.a };
        let panels = self.packed.chunks_exact(inner.len() * width);
        for (panel, columns) in panels.zip(panels_of(columns, width)) {
            let panel = Right { data: panel, stride: width };
            let c = &mut self.c[rows.start * n + columns.start..];
            if columns.len() == width {
                product(simd, sizes, a, panel, Out { data: c, stride: n, add });
                continue;
            }
            // The last panel is wider than what is left of C.
            let edge = &mut self.edge[..rows.len() * width];
            product(simd, sizes, a, panel, Out { data: &mut *edge, stride: width, add: false });
            for (c, edge) in c.chunks_mut(n).zip(edge.chunks_exact(width)) {
                let sums = c.iter_mut().zip(&edge[..columns.len()]);
                sums.for_each(|(c, x)| *c = if add { *c + x } else { *x });
            }
        }
    }
}

/// The columns of each panel.
#[inline(always)]
fn panels_of(columns: &Range<usize>, width: usize) -> impl Iterator<Item = Range<usize>> {
    let start = columns.start;
    blocks(columns.len(), width).map(move |panel| start + panel.start..start + panel.end)
}

/// Packs the first `columns` columns of `b`, padded by zeros to the width of the panel.
#[inline(always)]
fn pack_rows<S: Simd>(_simd: S, b: Right<'_>, columns: usize, panel: &mut [f32]) {
    let width = 2 * S::F32_LANES;
    for (row, b) in panel.chunks_exact_mut(width).zip(b.data.chunks(b.stride)) {
        if columns == width {
            let (to, from) = (S::as_mut_simd_f32s(row).0, S::as_simd_f32s(&b[..width]).0);
            (to[0], to[1]) = (from[0], from[1]);
        } else {
            row[..columns].copy_from_slice(&b[..columns]);
            row[columns..].fill(0.0);
        }
    }
}

/// As [`pack_rows`], of a transposed matrix: a column of the panel is a row of `b`.
#[inline(always)]
fn pack_columns(b: Right<'_>, columns: usize, panel: &mut [f32], width: usize) {
    const TOGETHER: usize = 8;
    let depth = panel.len() / width;
    let column_of = |column: usize| &b.data[column * b.stride..][..depth];
    let whole = columns / TOGETHER * TOGETHER;
    for column in (0..whole).step_by(TOGETHER) {
        let from: [&[f32]; TOGETHER] = std::array::from_fn(|i| column_of(column + i));
        for (l, row) in panel.chunks_exact_mut(width).enumerate() {
            for (x, from) in row[column..column + TOGETHER].iter_mut().zip(from) {
                *x = from[l];
            }
        }
    }
    for column in whole..columns {
        let rows = panel.chunks_exact_mut(width).zip(column_of(column));
        rows.for_each(|(row, x)| row[column] = *x);
    }
    panel.chunks_exact_mut(width).for_each(|row| row[columns..].fill(0.0));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{Random, assert_close, bits, run};

    fn reference(op: &Matmul, a: &[f32], b: &[f32], old: &[f32]) -> Vec<f64> {
        let [m, n, k] = [op.m, op.n, op.k].map(|x| x as usize);
        (0..m * n)
            .map(|place| {
                let (i, j) = (place / n, place % n);
                let product = |l: usize| {
                    let (a, b) = match op.form {
                        Form::Nn => (a[i * k + l], b[l * n + j]),
                        Form::Nt => (a[i * k + l], b[j * k + l]),
                        Form::Tn => (a[l * m + i], b[l * n + j]),
                    };
                    f64::from(a) * f64::from(b)
                };
                let sum: f64 = (0..k).map(product).sum();
                sum + if op.accumulate { f64::from(old[place]) } else { 0.0 }
            })
            .collect()
    }

    fn assert_equals_reference(m: u32, n: u32, k: u32) {
        let mut random = Random::new(u64::from(m * 7 + n * 3 + k));
        let signature = Matmul { form: Form::Nn, m, n, k, accumulate: false }.signature();
        let (a, b) =
            (random.floats(signature.inputs[0].len), random.floats(signature.inputs[1].len));
        let old = random.floats(signature.outputs[0].0.len);
        for form in [Form::Nn, Form::Nt, Form::Tn] {
            for accumulate in [false, true] {
                let op = Matmul { form, m, n, k, accumulate };
                let before: &[&[f32]] = if accumulate { &[&old] } else { &[] };
                let c = run(&op, &[&a, &b], before);
                let expected = reference(&op, &a, &b, &old);
                assert_close(&c[0], &expected, 1e-6, &format!("{} {m}×{n}×{k}", op.name()));
            }
        }
    }

    #[test]
    fn products_of_ragged_sizes_equal_the_definition() {
        for (m, n, k) in [(3, 5, 7), (17, 33, 65), (64, 16, 96), (200, 70, 259), (9, 600, 40)] {
            assert_equals_reference(m, n, k);
        }
    }

    #[test]
    fn vectors_outer_products_and_nothing_are_products_too() {
        for (m, n, k) in [(1, 1, 1), (1, 40, 30), (40, 1, 30), (20, 30, 1), (20, 30, 2), (1, 1, 99)]
        {
            assert_equals_reference(m, n, k);
        }
        for (m, n, k) in [(0, 3, 2), (3, 0, 2), (5, 4, 0)] {
            assert_equals_reference(m, n, k);
        }
    }

    #[test]
    fn bits_do_not_depend_on_how_rows_and_columns_are_cut() {
        let (m, n, k) = (203, 90, 600);
        let mut random = Random::new(1);
        let (a, b) = (random.floats(u64::from(m * k)), random.floats(u64::from(n * k)));
        let product = |m, n, a: &[f32], b: &[f32]| {
            run(&Matmul { form: Form::Nt, m, n, k, accumulate: false }, &[a, b], &[]).remove(0)
        };
        let whole = product(m, n, &a, &b);
        for start in [0, 1, 97, 202] {
            let rows = product(m - start, n, &a[(start * k) as usize..], &b);
            assert_eq!(bits(&rows), bits(&whole[(start * n) as usize..]));
        }
        for (start, end) in [(0, 1), (13, 45), (64, 90)] {
            let columns = product(m, end - start, &a, &b[(start * k) as usize..(end * k) as usize]);
            let expected = whole.chunks(n as usize);
            let expected: Vec<f32> =
                expected.flat_map(|row| &row[start as usize..end as usize]).copied().collect();
            assert_eq!(bits(&columns), bits(&expected));
        }
    }

    #[test]
    fn the_three_forms_give_the_same_bits() {
        let (m, n, k) = (40, 50, 300);
        let mut random = Random::new(2);
        let (a, b) = (random.floats(u64::from(m * k)), random.floats(u64::from(k * n)));
        let transposed = |x: &[f32], columns: u32| -> Vec<f32> {
            let columns = columns as usize;
            (0..columns).flat_map(|j| x.iter().skip(j).step_by(columns)).copied().collect()
        };
        let product = |form, a: &[f32], b: &[f32]| {
            bits(&run(&Matmul { form, m, n, k, accumulate: false }, &[a, b], &[])[0])
        };
        let expected = product(Form::Nn, &a, &b);
        assert_eq!(product(Form::Nt, &a, &transposed(&b, n)), expected);
        assert_eq!(product(Form::Tn, &transposed(&a, k), &b), expected);
    }

    #[test]
    fn a_large_product_is_cut_into_blocks_of_rows() {
        assert_equals_reference(333, 200, 310);
        let op = Matmul { form: Form::Tn, m: 333, n: 200, k: 310, accumulate: false };
        assert_eq!(op.parts(), 2);
        assert_eq!(Matmul { m: 4096, n: 512, k: 512, ..op.clone() }.parts(), 8);
        assert_eq!(Matmul { m: 64, n: 512, k: 512, ..op.clone() }.parts(), 1);
        assert_eq!(Matmul { m: 0, n: 512, k: 512, ..op }.parts(), 1);
    }
}
