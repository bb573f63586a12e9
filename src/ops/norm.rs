//! Root-mean-square norm: `y = x / sqrt(mean(x²) + eps) · w`.

use serde::{Deserialize, Serialize};

use super::lanes::{elements, part_count, part_units, sum, vectorized};
use super::{Access, Args, Kernel, Signature, assign_or_add};
use crate::units::Flops;

/// Forward. `rstd[row] = 1 / sqrt(mean(x²) + eps)` is kept for backward.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RmsNorm {
    /// Rows (tokens).
    pub rows: u32,
    /// Elements of a row.
    pub dim: u32,
    /// Added to the mean square.
    pub eps: f32,
}

impl Kernel for RmsNorm {
    fn name(&self) -> &'static str {
        "rms_norm"
    }
    fn signature(&self) -> Signature {
        let len = u64::from(self.rows) * u64::from(self.dim);
        Signature::default()
            .input("x", len)
            .input("w", self.dim)
            .output("y", Access::Write, len)
            .output("rstd", Access::Write, self.rows)
    }
    fn flops(&self) -> Flops {
        Flops(4 * u64::from(self.rows) * u64::from(self.dim))
    }
    fn parts(&self) -> u32 {
        part_count(self.rows, self.dim)
    }
    fn run(&self, part: u32, args: &Args<'_>) {
        let dim = self.dim as usize;
        let rows = part_units(self.rows, self.dim, part);
        let (x, w) = (&args.f32(0)[elements(&rows, dim)], args.f32(1));
        let y = args.out(0, elements(&rows, dim));
        let rstds = args.out(1, rows);
        vectorized(
            #[inline(always)]
            || {
                for (i, rstd) in rstds.iter_mut().enumerate() {
                    let row = i * dim..(i + 1) * dim;
                    let (x, y) = (&x[row.clone()], &mut y[row]);
                    let mean_square = sum(
                        [x],
                        #[inline(always)]
                        |[x]| x * x,
                    ) / dim as f64;
                    *rstd = (1.0 / (mean_square + f64::from(self.eps)).sqrt()) as f32;
                    y.iter_mut().zip(x.iter().zip(w)).for_each(|(y, (x, w))| *y = x * *rstd * w);
                }
            },
        );
    }
}

/// `d_x = rstd · (d_y·w − x · rstd² · mean(d_y·w·x))`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RmsNormGradInput {
    /// Rows (tokens).
    pub rows: u32,
    /// Elements of a row.
    pub dim: u32,
    /// `d_x += …`: the residual stream adds.
    pub accumulate: bool,
}

impl Kernel for RmsNormGradInput {
    fn name(&self) -> &'static str {
        "rms_norm_grad_input"
    }
    fn signature(&self) -> Signature {
        let len = u64::from(self.rows) * u64::from(self.dim);
        Signature::default()
            .input("d_y", len)
            .input("x", len)
            .input("w", self.dim)
            .input("rstd", self.rows)
            .output("d_x", assign_or_add(self.accumulate), len)
    }
    fn flops(&self) -> Flops {
        Flops(8 * u64::from(self.rows) * u64::from(self.dim))
    }
    fn parts(&self) -> u32 {
        part_count(self.rows, self.dim)
    }
    fn run(&self, part: u32, args: &Args<'_>) {
        let dim = self.dim as usize;
        let rows = part_units(self.rows, self.dim, part);
        let all = elements(&rows, dim);
        let (d_y, x, w) = (&args.f32(0)[all.clone()], &args.f32(1)[all.clone()], args.f32(2));
        let rstds = &args.f32(3)[rows];
        let d_x = args.out(0, all);
        vectorized(
            #[inline(always)]
            || {
                for (i, &rstd) in rstds.iter().enumerate() {
                    let row = i * dim..(i + 1) * dim;
                    let (d_y, x, d_x) = (&d_y[row.clone()], &x[row.clone()], &mut d_x[row]);
                    let projection = sum(
                        [d_y, x, w],
                        #[inline(always)]
                        |[d_y, x, w]| d_y * w * x,
                    );
                    let rstd_wide = f64::from(rstd);
                    let along_x = (projection / dim as f64 * rstd_wide * rstd_wide) as f32;
                    let terms = d_y.iter().zip(x).zip(w);
                    let gradient = terms.map(|((d_y, x), w)| rstd * (d_y * w - x * along_x));
                    if self.accumulate {
                        d_x.iter_mut().zip(gradient).for_each(|(d_x, gradient)| *d_x += gradient);
                    } else {
                        d_x.iter_mut().zip(gradient).for_each(|(d_x, gradient)| *d_x = gradient);
                    }
                }
            },
        );
    }
}

/// Columns of a part of [`RmsNormGradWeight`].
const GRAD_COLUMNS: usize = 64;
/// Rows that are summed in single precision.
const GRAD_ROWS: usize = 32;

/// `d_w[j] = Σ_row d_y[row,j] · x[row,j] · rstd[row]`, summed in fixed blocks of rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RmsNormGradWeight {
    /// Rows (tokens).
    pub rows: u32,
    /// Elements of a row.
    pub dim: u32,
    /// `+=`: parameters accumulate.
    pub accumulate: bool,
}

impl Kernel for RmsNormGradWeight {
    fn name(&self) -> &'static str {
        "rms_norm_grad_weight"
    }
    fn signature(&self) -> Signature {
        let len = u64::from(self.rows) * u64::from(self.dim);
        Signature::default().input("d_y", len).input("x", len).input("rstd", self.rows).output(
            "d_w",
            assign_or_add(self.accumulate),
            self.dim,
        )
    }
    fn flops(&self) -> Flops {
        Flops(3 * u64::from(self.rows) * u64::from(self.dim))
    }
    /// Parts are ranges of columns.
    fn parts(&self) -> u32 {
        self.dim.div_ceil(GRAD_COLUMNS as u32).max(1)
    }
    fn run(&self, part: u32, args: &Args<'_>) {
        let dim = self.dim as usize;
        let start = part as usize * GRAD_COLUMNS;
        let columns = start..(start + GRAD_COLUMNS).min(dim);
        let (d_y, x, rstd) = (args.f32(0), args.f32(1), args.f32(2));
        let d_w = args.out(0, columns.clone());
        vectorized(
            #[inline(always)]
            || {
                let mut total = [0f64; GRAD_COLUMNS];
                for block in (0..rstd.len()).step_by(GRAD_ROWS) {
                    let mut sums = [0f32; GRAD_COLUMNS];
                    for row in block..rstd.len().min(block + GRAD_ROWS) {
                        let range = row * dim + columns.start..row * dim + columns.end;
                        let terms = d_y[range.clone()].iter().zip(&x[range]);
                        let rstd = rstd[row];
                        sums.iter_mut()
                            .zip(terms)
                            .for_each(|(sum, (d_y, x))| *sum += d_y * x * rstd);
                    }
                    total.iter_mut().zip(sums).for_each(|(total, sum)| *total += f64::from(sum));
                }
                for (d_w, total) in d_w.iter_mut().zip(total) {
                    *d_w = if self.accumulate { *d_w + total as f32 } else { total as f32 };
                }
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{Random, assert_close, dot, finite_differences, run, wide};

    const EPS: f32 = 1e-5;
    const SIZES: [(u32, u32); 5] = [(1, 1), (3, 5), (70, 33), (501, 130), (5, 3000)];

    /// `(y, rstd)` in double precision.
    fn reference(x: &[f64], w: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let rstd: Vec<f64> = x
            .chunks(w.len())
            .map(|row| 1.0 / (dot(row, row) / w.len() as f64 + f64::from(EPS)).sqrt())
            .collect();
        let y = (0..x.len()).map(|i| x[i] * rstd[i / w.len()] * w[i % w.len()]).collect();
        (y, rstd)
    }

    #[test]
    fn norm_equals_its_definition() {
        for (rows, dim) in SIZES {
            let mut random = Random::new(dim.into());
            let (x, w) = (random.floats(u64::from(rows * dim)), random.floats(dim.into()));
            let (y, rstd) = reference(&wide(&x), &wide(&w));
            let outputs = run(&RmsNorm { rows, dim, eps: EPS }, &[&x, &w], &[]);
            assert_close(&outputs[0], &y, 3e-7, "y");
            assert_close(&outputs[1], &rstd, 1e-7, "rstd");
        }
    }

    #[test]
    fn a_row_of_zeros_stays_finite() {
        let outputs = run(&RmsNorm { rows: 1, dim: 8, eps: EPS }, &[&[0.0; 8], &[1.0; 8]], &[]);
        assert_eq!(outputs[0], [0.0; 8]);
    }

    #[test]
    fn gradients_equal_finite_differences() {
        for (rows, dim) in [(1, 2), (2, 5), (3, 37)] {
            let mut random = Random::new(dim.into());
            let len = u64::from(rows * dim);
            let (x, w, d_y) = (random.floats(len), random.floats(dim.into()), random.floats(len));
            let (x_wide, w_wide, d_y_wide) = (wide(&x), wide(&w), wide(&d_y));
            let rstd: Vec<f32> =
                reference(&x_wide, &w_wide).1.iter().map(|&rstd| rstd as f32).collect();

            let expected =
                finite_differences(&x_wide, |x| dot(&reference(x, &w_wide).0, &d_y_wide));
            let op = RmsNormGradInput { rows, dim, accumulate: false };
            let d_x = run(&op, &[&d_y, &x, &w, &rstd], &[]);
            assert_close(&d_x[0], &expected, 1e-5, "d_x");

            let expected =
                finite_differences(&w_wide, |w| dot(&reference(&x_wide, w).0, &d_y_wide));
            let op = RmsNormGradWeight { rows, dim, accumulate: false };
            let d_w = run(&op, &[&d_y, &x, &rstd], &[]);
            assert_close(&d_w[0], &expected, 1e-5, "d_w");
        }
    }

    #[test]
    fn gradients_of_many_rows_equal_their_formulas() {
        for (rows, dim) in SIZES {
            let mut random = Random::new(u64::from(rows));
            let len = u64::from(rows * dim);
            let (x, w, d_y) = (random.floats(len), random.floats(dim.into()), random.floats(len));
            let rstd: Vec<f32> = (0..rows).map(|_| 1.5 + random.float()).collect();
            let (old_x, old_w) = (random.floats(len), random.floats(dim.into()));
            let dim_wide = dim as usize;

            let mut d_x = vec![0.0; x.len()];
            let mut d_w = vec![0.0; dim_wide];
            for row in 0..rows as usize {
                let rstd = f64::from(rstd[row]);
                let at = |i: usize| {
                    let place = row * dim_wide + i;
                    (f64::from(d_y[place]), f64::from(x[place]), f64::from(w[i]))
                };
                let mean = (0..dim_wide).map(|i| at(i).0 * at(i).1 * at(i).2).sum::<f64>()
                    / dim_wide as f64;
                for i in 0..dim_wide {
                    let (d_y, x, w) = at(i);
                    d_x[row * dim_wide + i] = rstd * (d_y * w - x * rstd * rstd * mean);
                    d_w[i] += d_y * x * rstd;
                }
            }
            for accumulate in [false, true] {
                let before: &[&[f32]] = if accumulate { &[&old_x] } else { &[] };
                let op = RmsNormGradInput { rows, dim, accumulate };
                let result = run(&op, &[&d_y, &x, &w, &rstd], before);
                let old = |old: &[f32], i: usize| if accumulate { f64::from(old[i]) } else { 0.0 };
                let expected: Vec<f64> =
                    d_x.iter().enumerate().map(|(i, d)| d + old(&old_x, i)).collect();
                assert_close(&result[0], &expected, 1e-6, "d_x");

                let before: &[&[f32]] = if accumulate { &[&old_w] } else { &[] };
                let op = RmsNormGradWeight { rows, dim, accumulate };
                let result = run(&op, &[&d_y, &x, &rstd], before);
                let expected: Vec<f64> =
                    d_w.iter().enumerate().map(|(i, d)| d + old(&old_w, i)).collect();
                assert_close(&result[0], &expected, 1e-6, "d_w");
            }
        }
    }
}
