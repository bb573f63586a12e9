//! Gated activation (arXiv:2002.05202): a row of `gate_up` is `[gate | up]`, `act = silu(gate) · up`.

use serde::{Deserialize, Serialize};

use super::{Access, Args, Kernel, Signature};
use crate::units::Flops;

/// Forward.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SwiGlu {
    /// Rows (tokens).
    pub rows: u32,
    /// Columns of this rank.
    pub ffn: u32,
}

impl Kernel for SwiGlu {
    fn name(&self) -> &'static str {
        "swiglu"
    }
    fn signature(&self) -> Signature {
        let len = u64::from(self.rows) * u64::from(self.ffn);
        Signature::default().input("gate_up", 2 * len).output("act", Access::Write, len)
    }
    fn flops(&self) -> Flops {
        Flops(5 * u64::from(self.rows) * u64::from(self.ffn))
    }
    fn run(&self, _part: u32, _args: &Args<'_>) {
        unimplemented!()
    }
}

/// Gradient of gate and up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SwiGluGrad {
    /// Rows (tokens).
    pub rows: u32,
    /// Columns of this rank.
    pub ffn: u32,
}

impl Kernel for SwiGluGrad {
    fn name(&self) -> &'static str {
        "swiglu_grad"
    }
    fn signature(&self) -> Signature {
        let len = u64::from(self.rows) * u64::from(self.ffn);
        Signature::default().input("gate_up", 2 * len).input("d_act", len).output(
            "d_gate_up",
            Access::Write,
            2 * len,
        )
    }
    fn flops(&self) -> Flops {
        Flops(9 * u64::from(self.rows) * u64::from(self.ffn))
    }
    fn run(&self, _part: u32, _args: &Args<'_>) {
        unimplemented!()
    }
}
