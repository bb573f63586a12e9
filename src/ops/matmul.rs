//! Matrix products in the three forms that a linear layer needs.
//!
//! One of the few files with unsafe code: the `gemm` crate takes pointers and strides. A large
//! product is cut into blocks of rows by its sizes alone, and every block is a product of its own,
//! so the bits do not depend on which thread runs it.
#![expect(unsafe_code, reason = "the gemm crate takes pointers")]

use serde::{Deserialize, Serialize};

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
    fn parts(&self) -> u32 {
        self.m.div_ceil(self.rows_per_part()).max(1)
    }
    fn run(&self, part: u32, args: &Args<'_>) {
        let start = (part * self.rows_per_part()).min(self.m);
        let rows = self.rows_per_part().min(self.m - start) as usize;
        let [start, m, n, k] = [start, self.m, self.n, self.k].map(|x| x as usize);
        let (a, b) = (args.f32(0), args.f32(1));
        assert_eq!((a.len(), b.len()), (m * k, k * n), "matmul: lengths of the operands");
        let c = args.out(0, start * n..(start + rows) * n);
        if k == 0 {
            // Nothing to read, and the start of a block would lie outside of the operand.
            if !self.accumulate {
                c.fill(0.0);
            }
            return;
        }
        // Strides (column, row), and where the block starts in A.
        let (a_start, a_strides, b_strides) = match self.form {
            Form::Nn => (start * k, (1, k), (1, n)),
            Form::Nt => (start * k, (1, k), (k, 1)),
            Form::Tn => (start, (m, 1), (1, n)),
        };
        // SAFETY: C is a whole block of `rows × n` elements that nobody else touches. The last
        // element of A that is read is (start + rows − 1) · row + (k − 1) · column, which is below
        // m · k in each form; B is read whole. The lengths are asserted above.
        unsafe {
            gemm::gemm(
                rows,
                n,
                k,
                c.as_mut_ptr(),
                1,
                n as isize,
                self.accumulate,
                a[a_start..].as_ptr(),
                a_strides.0 as isize,
                a_strides.1 as isize,
                b.as_ptr(),
                b_strides.0 as isize,
                b_strides.1 as isize,
                1.0f32,
                1.0f32,
                false,
                false,
                false,
                gemm::Parallelism::None,
            );
        }
    }
}

/// A part takes at least this many operations, so that packing B again is small beside them.
const PART_FLOPS: u64 = 20_000_000;
/// Most parts of a product.
const PARTS: u64 = 8;
/// Rows of a part are a multiple of this.
const PART_ROWS: u32 = 64;

impl Matmul {
    fn rows_per_part(&self) -> u32 {
        let parts = (self.flops().0 / PART_FLOPS).clamp(1, PARTS) as u32;
        self.m.div_ceil(parts).next_multiple_of(PART_ROWS).max(PART_ROWS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{Random, assert_close, run};

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
        for (m, n, k) in [(3, 5, 7), (17, 33, 65), (64, 16, 96), (100, 70, 129), (9, 300, 40)] {
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
    fn a_large_product_is_cut_into_blocks_of_rows() {
        assert_equals_reference(333, 200, 310);
        let op = Matmul { form: Form::Nt, m: 333, n: 200, k: 310, accumulate: false };
        assert_eq!(op.parts(), 2);
        assert_eq!(Matmul { m: 4096, n: 512, k: 512, ..op.clone() }.parts(), 8);
        assert_eq!(Matmul { m: 64, n: 512, k: 512, ..op.clone() }.parts(), 1);
        assert_eq!(Matmul { m: 0, n: 512, k: 512, ..op }.parts(), 1);
    }
}
