//! Matrix products: each operand is cut between its rows until it fits into a binding.

use std::ops::Range;

use super::{Bound, KernelFamily, List, Refusal, chunks};
use crate::exec::gpu::kernels::KernelId;
use crate::exec::gpu::params;
use crate::ops::matmul::{Form, Matmul};

/// A row-major matrix of rows of `width`, and the part of it that a dispatch reads.
struct Window {
    rows: Range<u32>,
    columns: Range<u32>,
    width: u32,
}

impl Window {
    /// From the first to the last element of the part.
    fn of(&self, matrix: Bound) -> Bound {
        let start = self.rows.start * self.width + self.columns.start;
        matrix.slice(start..(self.rows.end - 1) * self.width + self.columns.end)
    }
}

impl KernelFamily {
    /// The kernel, and rows and columns of C that a workgroup takes.
    fn matmul(self) -> (KernelId, u32, u32) {
        match self {
            Self::Tiled => (KernelId::MatmulTiled, 64, 64),
            Self::Blocked => (KernelId::MatmulBlocked, 8, 64),
            Self::Subgroup => (KernelId::MatmulSubgroup, 16, 32),
        }
    }
}

impl List<'_> {
    pub(super) fn matmul(
        &mut self,
        op: &Matmul,
        inputs: &[Bound],
        outputs: &[Bound],
    ) -> Result<(), Refusal> {
        let (m, n, k) = (op.m, op.n, op.k);
        if m == 0 || n == 0 || k == 0 {
            if !op.accumulate {
                self.fill(outputs[0], m * n, 0.0);
            }
            return Ok(());
        }
        let (kernel, group_rows, group_columns) = self.budget.family.matmul();
        // How many of m, n and k fit: each is the rows of some operands.
        let rows = |width: u32| {
            let rows = self.budget.elements / width;
            if rows == 0 { Err(self.too_wide(width)) } else { Ok(rows) }
        };
        let (mut most_m, mut most_n, mut most_k) = (rows(n)?, u32::MAX, u32::MAX);
        match op.form {
            Form::Nn => (most_m, most_k) = (most_m.min(rows(k)?), rows(n)?),
            Form::Nt => (most_m, most_n) = (most_m.min(rows(k)?), rows(k)?),
            Form::Tn => most_k = rows(m)?.min(rows(n)?),
        }
        most_m = most_m.min(self.budget.groups.saturating_mul(group_rows));
        most_n = most_n.min(self.budget.groups.saturating_mul(group_columns));
        // A tile's loop runs twice a k: once to read, once to multiply.
        most_k = most_k.min(self.budget.trips.map_or(u32::MAX, |trips| trips / 2));

        for ks in chunks(k, most_k) {
            for is in chunks(m, most_m) {
                for js in chunks(n, most_n) {
                    let (rows, columns) = (is.clone(), js.clone());
                    let c = Window { rows, columns, width: n }.of(outputs[0]);
                    let (a, b) = windows(op, &is, &js, &ks);
                    let groups = [
                        (js.len() as u32).div_ceil(group_columns),
                        (is.len() as u32).div_ceil(group_rows),
                        1,
                    ];
                    let [is, js] = [is.len() as u32, js.len() as u32];
                    let accumulate = op.accumulate || ks.start > 0;
                    let params = params(op, is, js, ks.len() as u32, accumulate);
                    self.push(kernel, params, [a.of(inputs[0]), b.of(inputs[1]), c], groups);
                }
            }
        }
        Ok(())
    }
}

/// The parts of A and B for rows `is`, columns `js` and the products `ks`.
fn windows(op: &Matmul, is: &Range<u32>, js: &Range<u32>, ks: &Range<u32>) -> (Window, Window) {
    let window = |rows: &Range<u32>, columns: &Range<u32>, width| Window {
        rows: rows.clone(),
        columns: columns.clone(),
        width,
    };
    let a = match op.form {
        Form::Nn | Form::Nt => window(is, ks, op.k),
        Form::Tn => window(ks, is, op.m),
    };
    let b = match op.form {
        Form::Nn | Form::Tn => window(ks, js, op.n),
        Form::Nt => window(js, ks, op.k),
    };
    (a, b)
}

/// A form is nothing but strides.
fn params(op: &Matmul, m: u32, n: u32, k: u32, accumulate: bool) -> params::Matmul {
    let (a_i, a_k) = if op.form == Form::Tn { (1, op.m) } else { (op.k, 1) };
    let (b_k, b_j) = if op.form == Form::Nt { (1, op.k) } else { (op.n, 1) };
    let accumulate = accumulate.into();
    params::Matmul { m, n, k, accumulate, a_i, a_k, b_k, b_j, c_i: op.n, ..Default::default() }
}
