//! Vocabulary-parallel cross entropy: each rank sees the logits of its slice of the vocabulary.
//!
//! Statistics of three floats a row are gathered over the slices and merged in slice order, so
//! no max-reduction is needed. Labels of −100 count nothing. Stable for logits of ±1e4.

use serde::{Deserialize, Serialize};

use super::{Access, Args, Kernel, Scalar, Signature, assign_or_add};
use crate::shape::DType;
use crate::units::Flops;

/// Per row `(max, Σ exp(logit − max), logit of the label)` of this slice; the third is zero where the
/// label lies elsewhere. `stats` is `[rows, 3]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossStats {
    /// Rows (tokens).
    pub rows: u32,
    /// First token of this slice of the logits.
    pub vocab_start: u32,
    /// Columns of the slice.
    pub vocab_len: u32,
}

impl Kernel for LossStats {
    fn name(&self) -> &'static str {
        "loss_stats"
    }
    fn signature(&self) -> Signature {
        Signature::default()
            .input("logits", u64::from(self.rows) * u64::from(self.vocab_len))
            .typed_input("labels", DType::I32, self.rows)
            .output("stats", Access::Write, 3 * u64::from(self.rows))
    }
    fn flops(&self) -> Flops {
        Flops(3 * u64::from(self.rows) * u64::from(self.vocab_len))
    }
    fn run(&self, _part: u32, _args: &Args<'_>) {
        unimplemented!()
    }
}

/// Merges `stats [slices, rows, 3]` into `merged [rows, 2]` = (max, Σ exp) over the whole vocabulary and
/// adds `max + ln Σ − target` of all rows whose label is not −100 to `loss_sum`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossMerge {
    /// Rows (tokens).
    pub rows: u32,
    /// Slices of the vocabulary, in rank order.
    pub slices: u32,
    /// `loss_sum += …`.
    pub accumulate: bool,
}

impl Kernel for LossMerge {
    fn name(&self) -> &'static str {
        "loss_merge"
    }
    fn signature(&self) -> Signature {
        let rows = u64::from(self.rows);
        Signature::default()
            .input("stats", 3 * rows * u64::from(self.slices))
            .typed_input("labels", DType::I32, self.rows)
            .output("merged", Access::Write, 2 * rows)
            .output("loss_sum", assign_or_add(self.accumulate), 1u32)
    }
    fn flops(&self) -> Flops {
        Flops(u64::from(self.rows) * (4 * u64::from(self.slices) + 3))
    }
    fn run(&self, _part: u32, _args: &Args<'_>) {
        unimplemented!()
    }
}

/// Turns logits into their gradient in place: `(exp(logit − max) / Σ − [column is the label]) ·
/// inverse_valid_labels`, zero for rows whose label is −100.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossGrad {
    /// Rows (tokens).
    pub rows: u32,
    /// First token of this slice of the logits.
    pub vocab_start: u32,
    /// Columns of the slice.
    pub vocab_len: u32,
}

impl Kernel for LossGrad {
    fn name(&self) -> &'static str {
        "loss_grad"
    }
    fn signature(&self) -> Signature {
        Signature::default()
            .input("merged", 2 * u64::from(self.rows))
            .typed_input("labels", DType::I32, self.rows)
            .input("scalars", Scalar::COUNT)
            .output("logits", Access::ReadWrite, u64::from(self.rows) * u64::from(self.vocab_len))
    }
    fn flops(&self) -> Flops {
        Flops(4 * u64::from(self.rows) * u64::from(self.vocab_len))
    }
    fn run(&self, _part: u32, _args: &Args<'_>) {
        unimplemented!()
    }
}
