//! Attention: its tensors are bound whole, because a sequence is spread over all rows.

use super::{Bound, KernelFamily, List, Refusal};
use crate::exec::gpu::kernels::KernelId;
use crate::exec::gpu::params;
use crate::ops::attention::{Attention, AttentionGrad, Heads};

/// Positions of a tile: what a workgroup walks at a time.
const TILE: u32 = 32;

/// The kernels of a family.
struct Kernels {
    forward: KernelId,
    grad_query: KernelId,
    grad_key_value: KernelId,
    /// Positions that a workgroup owns.
    owned: u32,
}

impl KernelFamily {
    fn attention(self) -> Kernels {
        match self {
            Self::Tiled | Self::Blocked => Kernels {
                forward: KernelId::Attention,
                grad_query: KernelId::AttentionGradQuery,
                grad_key_value: KernelId::AttentionGradKeyValue,
                owned: 32,
            },
            Self::Subgroup => Kernels {
                forward: KernelId::AttentionSubgroup,
                grad_query: KernelId::AttentionGradQuerySubgroup,
                grad_key_value: KernelId::AttentionGradKeyValueSubgroup,
                owned: 8,
            },
        }
    }
}

impl List<'_> {
    pub(super) fn attention(
        &mut self,
        op: &Attention,
        inputs: &[Bound],
        outputs: &[Bound],
    ) -> Result<(), Refusal> {
        let heads = &op.heads;
        self.check(heads)?;
        // Of a tile: reading and multiplying for the scores, softmax, the same for the values.
        let blocks = u64::from(heads.head_dim.div_ceil(TILE));
        self.must_loop(tiles(heads) * (128 * blocks + 64), "attention")?;
        if is_empty(heads) {
            return Ok(());
        }
        let kernels = self.budget.family.attention();
        let groups = [heads.seq.div_ceil(kernels.owned), heads.heads, heads.batch];
        let bindings = [inputs[0], outputs[0], outputs[1]];
        self.push(kernels.forward, params(heads), bindings, groups);
        Ok(())
    }

    pub(super) fn attention_grad(
        &mut self,
        op: &AttentionGrad,
        inputs: &[Bound],
        outputs: &[Bound],
    ) -> Result<(), Refusal> {
        let heads = &op.heads;
        self.check(heads)?;
        let blocks = u64::from(heads.head_dim.div_ceil(TILE));
        self.must_loop(tiles(heads) * (256 * blocks + 32), "the gradient of attention")?;
        let rows = heads.seq * heads.batch;
        if rows == 0 || heads.head_dim == 0 {
            return Ok(());
        }
        let delta = Bound::Scratch { start: 0, len: rows * heads.heads };
        let bindings = [inputs[0], inputs[1], inputs[2], inputs[3], outputs[0], delta];
        let kernels = self.budget.family.attention();
        let tiles = heads.seq.div_ceil(kernels.owned);
        if heads.heads > 0 {
            for index in 0..rows.div_ceil(self.budget.groups) {
                let first_row = index * self.budget.groups;
                let count = self.budget.groups.min(rows - first_row);
                let params = params::Attention { first_row, ..params(heads) };
                let groups = [heads.heads.div_ceil(64), count, 1];
                self.push(KernelId::AttentionGradDelta, params, bindings, groups);
            }
            let groups = [tiles, heads.heads, heads.batch];
            self.push(kernels.grad_query, params(heads), bindings, groups);
        }
        // One dispatch for each query head of a group, so that no loop gets too long.
        let groups = [tiles, heads.kv_heads, heads.batch];
        for member in 0..members(heads).max(1) {
            let params = params::Attention { member, ..params(heads) };
            self.push(kernels.grad_key_value, params, bindings, groups);
        }
        Ok(())
    }

    fn check(&self, heads: &Heads) -> Result<(), Refusal> {
        let width = heads.qkv_width().max(heads.out_width());
        self.must_fit("a tensor of attention", heads.rows() * u64::from(width))?;
        let owned = self.budget.family.attention().owned;
        let counts = [heads.seq.div_ceil(owned), heads.heads, heads.kv_heads, heads.batch];
        let most = counts.into_iter().max().unwrap_or(0);
        if most > self.budget.groups {
            return Err(Refusal::Limit(format!(
                "attention over {most} tiles, heads or sequences needs more than {} workgroups a \
                 dimension (max_compute_workgroups_per_dimension)",
                self.budget.groups
            )));
        }
        Ok(())
    }
}

fn is_empty(heads: &Heads) -> bool {
    heads.rows() * u64::from(heads.out_width()) == 0
}

fn tiles(heads: &Heads) -> u64 {
    u64::from(heads.seq.div_ceil(TILE))
}

/// Most query heads of this rank that read one key head.
fn members(heads: &Heads) -> u32 {
    let mut counts = vec![0u32; heads.kv_heads as usize];
    (0..heads.heads).for_each(|head| counts[heads.kv_head(head) as usize] += 1);
    counts.into_iter().max().unwrap_or(0)
}

fn params(heads: &Heads) -> params::Attention {
    params::Attention {
        seq: heads.seq,
        batch: heads.batch,
        heads: heads.heads,
        kv_heads: heads.kv_heads,
        head_dim: heads.head_dim,
        group: heads.group,
        first_head: heads.first_head,
        first_kv_head: heads.first_kv_head,
        scale: (1.0 / f64::from(heads.head_dim).sqrt()) as f32,
        ..Default::default()
    }
}
