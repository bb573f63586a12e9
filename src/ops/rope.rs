//! Rotary position embedding (RoFormer, arXiv:2104.09864) in the half-split form of Hugging Face Llama.

use serde::{Deserialize, Serialize};

use super::{Access, Args, Kernel, Signature};
use crate::units::Flops;

/// Rotates the pairs `(i, i + head_dim/2)` of each head by the angle of its position, in place.
/// The table is [`crate::plan::Input::RopeTable`]: `[seq, head_dim/2, 2]` of (cos, sin).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rope {
    /// Positions.
    pub seq: u32,
    /// Sequences; row = t * batch + i.
    pub batch: u32,
    /// Rotated heads at the start of a row: query heads, then key heads.
    pub heads: u32,
    /// Elements of a head, even.
    pub head_dim: u32,
    /// Elements of a row; those after the rotated heads (values) stay.
    pub width: u32,
    /// Rotate back: what backward does to the gradients of q and k.
    pub inverse: bool,
}

impl Kernel for Rope {
    fn name(&self) -> &'static str {
        "rope"
    }
    fn signature(&self) -> Signature {
        let rows = u64::from(self.seq) * u64::from(self.batch);
        Signature::default().input("table", u64::from(self.seq) * u64::from(self.head_dim)).output(
            "qkv",
            Access::ReadWrite,
            rows * u64::from(self.width),
        )
    }
    fn flops(&self) -> Flops {
        Flops(
            3 * u64::from(self.seq) * u64::from(self.batch) * u64::from(self.heads * self.head_dim),
        )
    }
    fn run(&self, _part: u32, _args: &Args<'_>) {
        unimplemented!()
    }
}
