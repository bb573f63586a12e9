//! The vocabulary-parallel embedding table: rank r holds the rows `vocab_start..` of it.

use serde::{Deserialize, Serialize};

use super::{Access, Args, Kernel, Signature, assign_or_add};
use crate::shape::DType;
use crate::units::Flops;

/// `x[row] = table[token - vocab_start]`, zero where the token lies in another slice: the sum over the
/// slices is the embedding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Embedding {
    /// Rows (tokens).
    pub rows: u32,
    /// Elements of a row.
    pub dim: u32,
    /// First token of this slice of the table.
    pub vocab_start: u32,
    /// Number of tokens of the slice.
    pub vocab_len: u32,
}

impl Kernel for Embedding {
    fn name(&self) -> &'static str {
        "embedding"
    }
    fn signature(&self) -> Signature {
        let table = u64::from(self.vocab_len) * u64::from(self.dim);
        Signature::default()
            .typed_input("tokens", DType::I32, self.rows)
            .input("table", table)
            .output("x", Access::Write, u64::from(self.rows) * u64::from(self.dim))
    }
    fn flops(&self) -> Flops {
        Flops(0)
    }
    fn run(&self, _part: u32, _args: &Args<'_>) {
        unimplemented!()
    }
}

/// `d_table[token - vocab_start] += d_x[row]`, rows in ascending order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EmbeddingGrad {
    /// Rows (tokens).
    pub rows: u32,
    /// Elements of a row.
    pub dim: u32,
    /// First token of this slice of the table.
    pub vocab_start: u32,
    /// Number of tokens of the slice.
    pub vocab_len: u32,
    /// `+=`; otherwise the whole table gradient is assigned (zero where no token fell).
    pub accumulate: bool,
}

impl Kernel for EmbeddingGrad {
    fn name(&self) -> &'static str {
        "embedding_grad"
    }
    fn signature(&self) -> Signature {
        let table = u64::from(self.vocab_len) * u64::from(self.dim);
        Signature::default()
            .typed_input("tokens", DType::I32, self.rows)
            .input("d_x", u64::from(self.rows) * u64::from(self.dim))
            .output("d_table", assign_or_add(self.accumulate), table)
    }
    fn flops(&self) -> Flops {
        Flops(u64::from(self.rows) * u64::from(self.dim))
    }
    fn run(&self, _part: u32, _args: &Args<'_>) {
        unimplemented!()
    }
}
