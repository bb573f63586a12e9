//! Ops over the rows of a matrix: norms, embedding, rotary embedding, gated activation, loss. Long
//! matrices are cut between rows; sums over rows go on where they stopped.

use super::{Bound, KernelFamily, List, Refusal, chunks, of_rows};
use crate::exec::gpu::kernels::KernelId;
use crate::exec::gpu::params;
use crate::ops::{cross_entropy, embedding, norm, rope, swiglu};

/// Invocations along a row in kernels with one invocation a column.
const COLUMNS: u32 = 64;
/// Columns of a workgroup of `rms_norm_grad_weight`, and rows that it takes side by side.
const WEIGHT_COLUMNS: u32 = 32;
const WEIGHT_ROWS: u32 = 8;
/// Rows of tokens that are linked at once: every invocation looks at all of them.
const LINKED_ROWS: u32 = 16_384;

impl List<'_> {
    /// Workgroups over `width` columns.
    fn columns(&self, width: u32) -> Result<u32, Refusal> {
        let groups = width.div_ceil(COLUMNS);
        if groups <= self.budget.groups { Ok(groups) } else { Err(self.too_wide(width)) }
    }

    /// A kernel that gives each row to a workgroup, or its twin without barriers.
    fn by_row(&self, kernel: KernelId, subgroup: KernelId) -> KernelId {
        match self.budget.family {
            KernelFamily::Subgroup => subgroup,
            KernelFamily::Tiled | KernelFamily::Blocked => kernel,
        }
    }

    pub(super) fn embedding(
        &mut self,
        op: &embedding::Embedding,
        inputs: &[Bound],
        outputs: &[Bound],
    ) -> Result<(), Refusal> {
        let (most, columns) = (self.rows_that_fit(op.dim)?, self.columns(op.dim)?);
        let most_entries = (self.budget.elements / op.dim.max(1)).max(1);
        for rows in chunks(op.rows, most) {
            // A slice of the table that holds nothing still zeroes its rows.
            for entries in chunks(op.vocab_len.max(1), most_entries) {
                let entries = entries.start..entries.end.min(op.vocab_len);
                let params = params::Embedding {
                    rows: rows.len() as u32,
                    dim: op.dim,
                    vocab_start: op.vocab_start + entries.start,
                    vocab_len: entries.len() as u32,
                    keep: u32::from(entries.start > 0),
                    ..Default::default()
                };
                let bindings = [
                    inputs[0].slice(rows.clone()),
                    inputs[1].slice(of_rows(&entries, op.dim)),
                    outputs[0].slice(of_rows(&rows, op.dim)),
                ];
                self.push(KernelId::Embedding, params, bindings, [columns, params.rows, 1]);
            }
        }
        Ok(())
    }

    pub(super) fn embedding_grad(
        &mut self,
        op: &embedding::EmbeddingGrad,
        inputs: &[Bound],
        outputs: &[Bound],
    ) -> Result<(), Refusal> {
        if !op.accumulate {
            self.fill(outputs[0], op.vocab_len * op.dim, 0.0);
        }
        let most = self.rows_that_fit(op.dim)?.min(LINKED_ROWS);
        let columns = self.columns(op.dim)?;
        let most_entries = self.budget.elements / op.dim.max(1);
        for rows in chunks(op.rows, most) {
            let tokens = inputs[0].slice(rows.clone());
            let links = Bound::Scratch { start: 0, len: 2 * rows.len() as u32 };
            let params =
                params::Embedding { rows: rows.len() as u32, dim: op.dim, ..Default::default() };
            let groups = params.rows.div_ceil(COLUMNS);
            self.push(KernelId::EmbeddingLinks, params, [tokens, links], [groups, 1, 1]);
            for entries in chunks(op.vocab_len, most_entries) {
                let params = params::Embedding {
                    vocab_start: op.vocab_start + entries.start,
                    vocab_len: entries.len() as u32,
                    ..params
                };
                let bindings = [
                    tokens,
                    inputs[1].slice(of_rows(&rows, op.dim)),
                    outputs[0].slice(of_rows(&entries, op.dim)),
                    links,
                ];
                self.push(KernelId::EmbeddingGrad, params, bindings, [columns, params.rows, 1]);
            }
        }
        Ok(())
    }

    pub(super) fn rms_norm(
        &mut self,
        op: &norm::RmsNorm,
        inputs: &[Bound],
        outputs: &[Bound],
    ) -> Result<(), Refusal> {
        for rows in chunks(op.rows, self.rows_that_fit(op.dim)?) {
            let params = params::Norm {
                rows: rows.len() as u32,
                dim: op.dim,
                eps: op.eps,
                ..Default::default()
            };
            let [x, y] = [inputs[0], outputs[0]].map(|m| m.slice(of_rows(&rows, op.dim)));
            let bindings = [x, inputs[1], y, outputs[1].slice(rows)];
            let kernel = self.by_row(KernelId::RmsNorm, KernelId::RmsNormSubgroup);
            self.push(kernel, params, bindings, [params.rows, 1, 1]);
        }
        Ok(())
    }

    pub(super) fn rms_norm_grad_input(
        &mut self,
        op: &norm::RmsNormGradInput,
        inputs: &[Bound],
        outputs: &[Bound],
    ) -> Result<(), Refusal> {
        for rows in chunks(op.rows, self.rows_that_fit(op.dim)?) {
            let params = params::Norm {
                rows: rows.len() as u32,
                dim: op.dim,
                accumulate: op.accumulate.into(),
                ..Default::default()
            };
            let [d_y, x, d_x] =
                [inputs[0], inputs[1], outputs[0]].map(|m| m.slice(of_rows(&rows, op.dim)));
            let bindings = [d_y, x, inputs[2], inputs[3].slice(rows), d_x];
            let kernel =
                self.by_row(KernelId::RmsNormGradInput, KernelId::RmsNormGradInputSubgroup);
            self.push(kernel, params, bindings, [params.rows, 1, 1]);
        }
        Ok(())
    }

    pub(super) fn rms_norm_grad_weight(
        &mut self,
        op: &norm::RmsNormGradWeight,
        inputs: &[Bound],
        outputs: &[Bound],
    ) -> Result<(), Refusal> {
        if op.rows == 0 && !op.accumulate {
            self.fill(outputs[0], op.dim, 0.0);
        }
        let most = self.budget.elements / op.dim.max(1);
        if most == 0 {
            return Err(self.too_wide(op.dim));
        }
        let most = most.min(self.budget.trips.map_or(u32::MAX, |trips| trips * WEIGHT_ROWS / 2));
        for rows in chunks(op.rows, most) {
            let params = params::Norm {
                rows: rows.len() as u32,
                dim: op.dim,
                accumulate: u32::from(op.accumulate || rows.start > 0),
                ..Default::default()
            };
            let [d_y, x] = [inputs[0], inputs[1]].map(|m| m.slice(of_rows(&rows, op.dim)));
            let bindings = [d_y, x, inputs[2].slice(rows), outputs[0]];
            let groups = op.dim.div_ceil(WEIGHT_COLUMNS);
            self.push(KernelId::RmsNormGradWeight, params, bindings, [groups, 1, 1]);
        }
        Ok(())
    }

    pub(super) fn rope(
        &mut self,
        op: &rope::Rope,
        inputs: &[Bound],
        outputs: &[Bound],
    ) -> Result<(), Refusal> {
        self.must_fit("the rotary table", u64::from(op.seq) * u64::from(op.head_dim))?;
        let half = op.head_dim / 2;
        let columns = self.columns(op.heads * half)?;
        for rows in chunks(op.seq * op.batch, self.rows_that_fit(op.width)?) {
            let params = params::Rope {
                rows: rows.len() as u32,
                first_row: rows.start,
                batch: op.batch,
                heads: op.heads,
                half,
                width: op.width,
                direction: if op.inverse { -1.0 } else { 1.0 },
                ..Default::default()
            };
            let bindings = [inputs[0], outputs[0].slice(of_rows(&rows, op.width))];
            self.push(KernelId::Rope, params, bindings, [columns, params.rows, 1]);
        }
        Ok(())
    }

    pub(super) fn swiglu(
        &mut self,
        op: &swiglu::SwiGlu,
        inputs: &[Bound],
        outputs: &[Bound],
    ) -> Result<(), Refusal> {
        let columns = self.columns(op.ffn)?;
        for rows in chunks(op.rows, self.rows_that_fit(2 * op.ffn)?) {
            let params =
                params::SwiGlu { rows: rows.len() as u32, ffn: op.ffn, ..Default::default() };
            let bindings = [
                inputs[0].slice(of_rows(&rows, 2 * op.ffn)),
                outputs[0].slice(of_rows(&rows, op.ffn)),
            ];
            self.push(KernelId::SwiGlu, params, bindings, [columns, params.rows, 1]);
        }
        Ok(())
    }

    pub(super) fn swiglu_grad(
        &mut self,
        op: &swiglu::SwiGluGrad,
        inputs: &[Bound],
        outputs: &[Bound],
    ) -> Result<(), Refusal> {
        let columns = self.columns(op.ffn)?;
        for rows in chunks(op.rows, self.rows_that_fit(2 * op.ffn)?) {
            let params =
                params::SwiGlu { rows: rows.len() as u32, ffn: op.ffn, ..Default::default() };
            let bindings = [
                inputs[0].slice(of_rows(&rows, 2 * op.ffn)),
                inputs[1].slice(of_rows(&rows, op.ffn)),
                outputs[0].slice(of_rows(&rows, 2 * op.ffn)),
            ];
            self.push(KernelId::SwiGluGrad, params, bindings, [columns, params.rows, 1]);
        }
        Ok(())
    }

    pub(super) fn loss_stats(
        &mut self,
        op: &cross_entropy::LossStats,
        inputs: &[Bound],
        outputs: &[Bound],
    ) -> Result<(), Refusal> {
        for rows in chunks(op.rows, self.rows_that_fit(op.vocab_len.max(3))?) {
            let params = params::CrossEntropy {
                rows: rows.len() as u32,
                vocab_start: op.vocab_start,
                vocab_len: op.vocab_len,
                ..Default::default()
            };
            let bindings = [
                inputs[0].slice(of_rows(&rows, op.vocab_len)),
                inputs[1].slice(rows.clone()),
                outputs[0].slice(of_rows(&rows, 3)),
            ];
            let kernel = self.by_row(KernelId::LossStats, KernelId::LossStatsSubgroup);
            self.push(kernel, params, bindings, [params.rows, 1, 1]);
        }
        Ok(())
    }

    pub(super) fn loss_merge(
        &mut self,
        op: &cross_entropy::LossMerge,
        inputs: &[Bound],
        outputs: &[Bound],
    ) -> Result<(), Refusal> {
        let values = u64::from(op.rows) * u64::from(op.slices);
        self.must_fit("the statistics of the loss", 3 * values)?;
        let trips = u64::from(op.rows.div_ceil(COLUMNS)) * (2 * u64::from(op.slices) + 1);
        self.must_loop(trips, "merging the statistics of the loss")?;
        let params = params::CrossEntropy {
            rows: op.rows,
            slices: op.slices,
            accumulate: op.accumulate.into(),
            ..Default::default()
        };
        let bindings = [inputs[0], inputs[1], outputs[0], outputs[1]];
        self.push(KernelId::LossMerge, params, bindings, [1, 1, 1]);
        Ok(())
    }

    pub(super) fn loss_grad(
        &mut self,
        op: &cross_entropy::LossGrad,
        inputs: &[Bound],
        outputs: &[Bound],
    ) -> Result<(), Refusal> {
        for rows in chunks(op.rows, self.rows_that_fit(op.vocab_len.max(2))?) {
            let params = params::CrossEntropy {
                rows: rows.len() as u32,
                vocab_start: op.vocab_start,
                vocab_len: op.vocab_len,
                ..Default::default()
            };
            let bindings = [
                inputs[0].slice(of_rows(&rows, 2)),
                inputs[1].slice(rows.clone()),
                inputs[2],
                outputs[0].slice(of_rows(&rows, op.vocab_len)),
            ];
            let kernel = self.by_row(KernelId::LossGrad, KernelId::LossGradSubgroup);
            self.push(kernel, params, bindings, [params.rows, 1, 1]);
        }
        Ok(())
    }
}
