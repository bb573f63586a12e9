//! Causal grouped-query attention, fused: no `seq × seq` matrix is ever stored.
//!
//! The host kernels take a block of queries at a time against all their keys, in scratch memory of
//! the thread; heads are packed into padded panels first, see `panel.rs`.

mod backward;
mod forward;
mod head;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use super::lanes::{part_count, part_units, with_scratch};
use super::{Access, Args, Kernel, Signature};
use crate::units::Flops;
use backward::Backward;
use forward::Forward;

/// Sizes shared by forward and backward. A row of `qkv` is `[heads | kv_heads keys | kv_heads
/// values] × head_dim`. Local query head `h` reads local key head
/// `(first_head + h) / group − first_kv_head`: shards need not hold whole groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heads {
    /// Positions.
    pub seq: u32,
    /// Sequences; row = t * batch + i.
    pub batch: u32,
    /// Query heads of this rank.
    pub heads: u32,
    /// Key and value heads that this rank holds.
    pub kv_heads: u32,
    /// Elements of a head.
    pub head_dim: u32,
    /// Query heads that share a key head, in the whole model.
    pub group: u32,
    /// Global index of the first query head of this rank.
    pub first_head: u32,
    /// Global index of the first key head of this rank.
    pub first_kv_head: u32,
}

impl Heads {
    /// Elements of a row of `qkv`.
    pub fn qkv_width(&self) -> u32 {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }

    /// Elements of a row of the output.
    pub fn out_width(&self) -> u32 {
        self.heads * self.head_dim
    }

    /// The local key head of a local query head.
    pub fn kv_head(&self, head: u32) -> u32 {
        (self.first_head + head) / self.group - self.first_kv_head
    }

    /// Rows: `seq * batch`.
    pub fn rows(&self) -> u64 {
        u64::from(self.seq) * u64::from(self.batch)
    }

    /// Query–key pairs under the causal mask, over all heads and sequences.
    fn pairs(&self) -> u64 {
        let seq = u64::from(self.seq);
        seq * (seq + 1) / 2 * u64::from(self.batch) * u64::from(self.heads)
    }
}

/// `out = softmax(q·kᵀ / √head_dim, causal) · v`; `lse[row, head]` = log of the sum of exponentials of
/// the scaled scores, kept for backward (`FlashAttention`, arXiv:2205.14135).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attention {
    /// Sizes.
    pub heads: Heads,
}

impl Kernel for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }
    fn signature(&self) -> Signature {
        let (heads, rows) = (&self.heads, self.heads.rows());
        Signature::default()
            .input("qkv", rows * u64::from(heads.qkv_width()))
            .output("out", Access::Write, rows * u64::from(heads.out_width()))
            .output("lse", Access::Write, rows * u64::from(heads.heads))
    }
    fn flops(&self) -> Flops {
        Flops(self.heads.pairs() * (4 * u64::from(self.heads.head_dim) + 4))
    }
    /// Parts are pairs of sequence and query head.
    fn parts(&self) -> u32 {
        part_count(self.heads.batch * self.heads.heads, self.heads.unit_cost(1))
    }
    fn run(&self, part: u32, args: &Args<'_>) {
        let (heads, cost) = (&self.heads, self.heads.unit_cost(1));
        for unit in part_units(heads.batch * heads.heads, cost, part) {
            let (sequence, head) = (unit / heads.heads as usize, unit as u32 % heads.heads);
            with_scratch(heads.forward_scratch(), |scratch| {
                pulp::Arch::new().dispatch(Forward { heads, sequence, head, args, scratch });
            });
        }
    }
}

/// Gradient of queries, keys and values; probabilities are computed again from `lse`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttentionGrad {
    /// Sizes.
    pub heads: Heads,
}

impl Kernel for AttentionGrad {
    fn name(&self) -> &'static str {
        "attention_grad"
    }
    fn signature(&self) -> Signature {
        let (heads, rows) = (&self.heads, self.heads.rows());
        let (out, qkv) = (rows * u64::from(heads.out_width()), rows * u64::from(heads.qkv_width()));
        Signature::default()
            .input("qkv", qkv)
            .input("out", out)
            .input("lse", rows * u64::from(heads.heads))
            .input("d_out", out)
            .output("d_qkv", Access::Write, qkv)
    }
    fn flops(&self) -> Flops {
        Flops(self.heads.pairs() * (10 * u64::from(self.heads.head_dim) + 6))
    }
    /// Parts are pairs of sequence and key head, whose gradients are sums over query heads.
    fn parts(&self) -> u32 {
        let group = self.heads.heads.div_ceil(self.heads.kv_heads.max(1));
        part_count(self.heads.batch * self.heads.kv_heads, self.heads.unit_cost(3 * group))
    }
    fn run(&self, part: u32, args: &Args<'_>) {
        let heads = &self.heads;
        let cost = heads.unit_cost(3 * heads.heads.div_ceil(heads.kv_heads.max(1)));
        for unit in part_units(heads.batch * heads.kv_heads, cost, part) {
            let (sequence, kv_head) =
                (unit / heads.kv_heads as usize, unit as u32 % heads.kv_heads);
            with_scratch(heads.backward_scratch(), |scratch| {
                pulp::Arch::new().dispatch(Backward { heads, sequence, kv_head, args, scratch });
            });
        }
    }
}

/// Queries that are taken together.
const QUERIES: usize = 16;

impl Heads {
    /// Cost of a query head, in the unit of [`part_count`]; `passes` times that of forward.
    fn unit_cost(&self, passes: u32) -> u32 {
        (self.seq / 8).saturating_mul(self.seq).saturating_mul(self.head_dim).saturating_mul(passes)
    }
}
