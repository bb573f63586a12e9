//! Root-mean-square norm: `y = x / sqrt(mean(x²) + eps) · w`.

use serde::{Deserialize, Serialize};

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
    fn run(&self, _part: u32, _args: &Args<'_>) {
        unimplemented!()
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
    fn run(&self, _part: u32, _args: &Args<'_>) {
        unimplemented!()
    }
}

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
    fn run(&self, _part: u32, _args: &Args<'_>) {
        unimplemented!()
    }
}
