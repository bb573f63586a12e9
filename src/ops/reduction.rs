//! Sums: over ranks in rank order, and of squares.

use serde::{Deserialize, Serialize};

use super::{Args, Kernel, Signature, assign_or_add};
use crate::units::Flops;

/// `out = x_0 + x_1 + … + x_{n−1}`, each element added in rank order from the left: the same bits on
/// whichever rank and however the tensor was cut.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SumRanks {
    /// How many tensors are added.
    pub ranks: u32,
    /// The output holds the tensor of this position already and is updated in place; the inputs are
    /// the others in order. `None`: all tensors are inputs.
    pub own: Option<u32>,
    /// Elements of each.
    pub len: u32,
    /// `out += Σ` (the sum is formed first); only with `own: None`.
    pub accumulate: bool,
}

impl Kernel for SumRanks {
    fn name(&self) -> &'static str {
        "sum_ranks"
    }
    fn signature(&self) -> Signature {
        let count = if self.own.is_some() { self.ranks - 1 } else { self.ranks };
        let access = assign_or_add(self.accumulate || self.own.is_some());
        (0..count)
            .fold(Signature::default(), |signature, _| signature.input("x", self.len))
            .output("sum", access, self.len)
    }
    fn flops(&self) -> Flops {
        Flops(u64::from(self.ranks - 1 + u32::from(self.accumulate)) * u64::from(self.len))
    }
    fn run(&self, _part: u32, _args: &Args<'_>) {
        unimplemented!()
    }
}

/// Sum of squares, in fixed blocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SquaredNorm {
    /// Elements.
    pub len: u32,
    /// A second input, one float; `sum += 0 · guard`, so that a loss that is not finite makes the
    /// norm not finite.
    pub guard: bool,
    /// `sum += …`.
    pub accumulate: bool,
}

impl Kernel for SquaredNorm {
    fn name(&self) -> &'static str {
        "squared_norm"
    }
    fn signature(&self) -> Signature {
        let signature = Signature::default().input("x", self.len);
        let signature = if self.guard { signature.input("guard", 1u32) } else { signature };
        signature.output("sum", assign_or_add(self.accumulate), 1u32)
    }
    fn flops(&self) -> Flops {
        Flops(2 * u64::from(self.len))
    }
    fn run(&self, _part: u32, _args: &Args<'_>) {
        unimplemented!()
    }
}
