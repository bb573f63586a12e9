//! Optimizers with global-norm clipping inside.
//!
//! The clip factor is `min(1, clip_norm / (norm + 1e-6))` as in `torch.nn.utils.clip_grad_norm_`;
//! `clip_norm = 0` switches it off. If the squared norm is not finite nothing is touched: data
//! never branches a Plan.

use serde::{Deserialize, Serialize};

use super::{Access, Args, Kernel, Scalar, Signature};
use crate::units::Flops;

/// AdamW (arXiv:1711.05101) in the order of `torch.optim.AdamW`: `w *= 1 − lr·decay`, moments, then
/// `w −= lr / bias1 · m / (√v / √bias2 + eps)`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdamW {
    /// Elements.
    pub len: u32,
    /// Decay of the first moment.
    pub beta1: f32,
    /// Decay of the second moment.
    pub beta2: f32,
    /// Added to the root of the second moment.
    pub eps: f32,
    /// Decoupled decay; 0 for one-dimensional tensors.
    pub weight_decay: f32,
    /// Global norm limit; 0: off.
    pub clip_norm: f32,
}

impl Kernel for AdamW {
    fn name(&self) -> &'static str {
        "adamw"
    }
    fn signature(&self) -> Signature {
        Signature::default()
            .input("g", self.len)
            .input("squared_norm", 1u32)
            .input("scalars", Scalar::COUNT)
            .output("w", Access::ReadWrite, self.len)
            .output("m", Access::ReadWrite, self.len)
            .output("v", Access::ReadWrite, self.len)
    }
    fn flops(&self) -> Flops {
        Flops(14 * u64::from(self.len))
    }
    fn run(&self, _part: u32, _args: &Args<'_>) {
        unimplemented!()
    }
}

/// `w −= lr · clip · g`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sgd {
    /// Elements.
    pub len: u32,
    /// Global norm limit; 0: off.
    pub clip_norm: f32,
}

impl Kernel for Sgd {
    fn name(&self) -> &'static str {
        "sgd"
    }
    fn signature(&self) -> Signature {
        Signature::default()
            .input("g", self.len)
            .input("squared_norm", 1u32)
            .input("scalars", Scalar::COUNT)
            .output("w", Access::ReadWrite, self.len)
    }
    fn flops(&self) -> Flops {
        Flops(2 * u64::from(self.len))
    }
    fn run(&self, _part: u32, _args: &Args<'_>) {
        unimplemented!()
    }
}
