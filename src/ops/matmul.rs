//! Matrix products in the three forms that a linear layer needs.

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
    fn run(&self, _part: u32, _args: &Args<'_>) {
        unimplemented!()
    }
}
