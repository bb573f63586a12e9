//! Tensor parallelism (Megatron-LM, arXiv:1909.08053): which slice of each matrix a rank holds,
//! and the collectives that put the slices together.
//!
//! Matrices are cut column-parallel (rows of a `[out, in]` weight: qkv, gate, up, table, head), then
//! row-parallel (its columns: o, down). With sequence parallel (arXiv:2205.05198) norms and
//! residuals are cut over the sequence, and each all-reduce becomes an all-gather and a
//! reduce-scatter of the same bytes.

use std::ops::Range;

use super::build::RankWriter;
use super::collective::{self, Into, Seat};
use super::context::{Context, Unit};
use crate::mesh::Axis;
use crate::ops::attention::Heads;
use crate::plan::{Role, View};
use crate::shape::{DType, part};

/// The weights of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Weight {
    InputNorm,
    PostNorm,
    FinalNorm,
    Q,
    K,
    V,
    O,
    Gate,
    Up,
    Down,
    Table,
    Output,
}

impl Weight {
    /// Norm weights are whole on every tensor-parallel rank and have one dimension.
    pub(super) const fn is_norm(self) -> bool {
        matches!(self, Self::InputNorm | Self::PostNorm | Self::FinalNorm)
    }
}

/// A rank's slice of one logical tensor.
#[derive(Clone, Debug)]
pub(super) struct Shard {
    pub(super) weight: Weight,
    pub(super) tensor: u32,
    pub(super) rows: Range<u32>,
    pub(super) cols: Range<u32>,
}

impl Shard {
    pub(super) fn len(&self) -> u64 {
        u64::from(self.rows.end - self.rows.start) * u64::from(self.cols.end - self.cols.start)
    }
}

/// Query heads of a tensor-parallel rank.
pub(super) fn query_heads(context: &Context<'_>, tp: u32) -> Range<u32> {
    part(context.model().num_attention_heads, context.mesh.tp, tp)
}

/// Key heads of a tensor-parallel rank: all that its query heads read. Where there are fewer key
/// heads than ranks, or groups are cut, neighbours hold copies and their gradients are summed.
pub(super) fn key_heads(context: &Context<'_>, tp: u32) -> Range<u32> {
    let group = context.model().num_attention_heads / context.model().num_key_value_heads;
    let heads = query_heads(context, tp);
    heads.start / group..(heads.end - 1) / group + 1
}

/// Tensor-parallel ranks that hold a key head.
pub(super) fn key_head_holders(context: &Context<'_>, kv_head: u32) -> Vec<u32> {
    (0..context.mesh.tp).filter(|&tp| key_heads(context, tp).contains(&kv_head)).collect()
}

/// The slices that a tensor-parallel rank holds of a unit's weights, in storage order: norms
/// first; q, k, v and gate, up are neighbours, so that each is one matrix product.
pub(super) fn shards(context: &Context<'_>, unit: Unit, tp: u32) -> Vec<Shard> {
    let (model, mesh) = (context.model(), context.mesh);
    let d = 0..model.hidden_size;
    let vocab = part(model.vocab_size, mesh.tp, tp);
    let shard = |weight, name: &str, rows: &Range<u32>, cols: &Range<u32>| Shard {
        weight,
        tensor: context.tensor(name),
        rows: rows.clone(),
        cols: cols.clone(),
    };
    if unit == 0 {
        return vec![shard(Weight::Table, "model.embed_tokens.weight", &vocab, &d)];
    }
    if unit == context.head() {
        let output = if model.tie_word_embeddings {
            shard(Weight::Table, "model.embed_tokens.weight", &vocab, &d)
        } else {
            shard(Weight::Output, "lm_head.weight", &vocab, &d)
        };
        return vec![shard(Weight::FinalNorm, "model.norm.weight", &d, &(0..1)), output];
    }
    let elements = |heads: Range<u32>| heads.start * model.head_dim..heads.end * model.head_dim;
    let q = elements(query_heads(context, tp));
    let kv = elements(key_heads(context, tp));
    let f = part(model.intermediate_size, mesh.tp, tp);
    let layer = |weight, name: &str, rows: &Range<u32>, cols: &Range<u32>| {
        shard(weight, &format!("model.layers.{}.{name}.weight", unit - 1), rows, cols)
    };
    vec![
        layer(Weight::InputNorm, "input_layernorm", &d, &(0..1)),
        layer(Weight::PostNorm, "post_attention_layernorm", &d, &(0..1)),
        layer(Weight::Q, "self_attn.q_proj", &q, &d),
        layer(Weight::K, "self_attn.k_proj", &kv, &d),
        layer(Weight::V, "self_attn.v_proj", &kv, &d),
        layer(Weight::O, "self_attn.o_proj", &d, &q),
        layer(Weight::Gate, "mlp.gate_proj", &f, &d),
        layer(Weight::Up, "mlp.up_proj", &f, &d),
        layer(Weight::Down, "mlp.down_proj", &d, &f),
    ]
}

/// Sizes of attention on a tensor-parallel rank.
pub(super) fn heads(context: &Context<'_>, tp: u32, batch: u32) -> Heads {
    let model = context.model();
    let (query, key) = (query_heads(context, tp), key_heads(context, tp));
    Heads {
        seq: context.spec.training.seq,
        batch,
        heads: query.end - query.start,
        kv_heads: key.end - key.start,
        head_dim: model.head_dim,
        group: model.num_attention_heads / model.num_key_value_heads,
        first_head: query.start,
        first_kv_head: key.start,
    }
}

impl RankWriter<'_> {
    /// This rank's seat in its tensor-parallel group.
    pub(super) fn tp_seat(&self) -> Seat {
        self.seat(Axis::Tp)
    }

    /// The pieces of a `[seq, batch, d]` activation that the tensor-parallel ranks hold under
    /// sequence parallel.
    fn sequence_pieces(&self, batch: u32) -> Vec<Range<u32>> {
        let width = batch * self.context.model().hidden_size;
        (0..self.context.mesh.tp)
            .map(|tp| self.context.positions(tp))
            .map(|positions| positions.start * width..positions.end * width)
            .collect()
    }

    /// The part of a whole `[seq, batch, d]` activation that this rank's norms and residuals work
    /// on: all of it without sequence parallel.
    pub(super) fn local_part(&self, whole: View, batch: u32) -> View {
        if self.context.sequence_parallel {
            whole.slice(self.sequence_pieces(batch)[self.at.tp as usize].clone())
        } else {
            whole
        }
    }

    /// g of sequence parallel: `whole` holds this rank's part and becomes whole. Nothing to do
    /// without sequence parallel.
    pub(super) fn gather_sequence(&mut self, whole: View, batch: u32, id: u64) {
        if self.context.sequence_parallel {
            let seat = self.tp_seat();
            let style = self.tp_style(&seat, whole, id);
            let pieces = self.sequence_pieces(batch);
            collective::all_gather(&mut self.program, &seat, style, whole, &pieces);
        }
    }

    /// Puts partial results together: all-reduce, or reduce-scatter under sequence parallel.
    /// Returns the part that this rank goes on with.
    pub(super) fn sum_partials(&mut self, partial: View, batch: u32, id: u64) -> View {
        if self.context.mesh.tp > 1 {
            let seat = self.tp_seat();
            let style = self.tp_style(&seat, partial, id);
            if self.context.sequence_parallel {
                let (pieces, into) = (self.sequence_pieces(batch), Into::Place);
                let program = &mut self.program;
                collective::reduce_scatter(program, &seat, style, partial, &pieces, into);
            } else {
                let pieces = crate::shape::parts(partial.len, self.context.mesh.tp);
                collective::all_reduce(&mut self.program, &seat, style, partial, &pieces);
            }
        }
        self.local_part(partial, batch)
    }

    /// A whole copy of the activation gradient `part`, for weight gradients and row-parallel input
    /// gradients: the view itself without sequence parallel.
    pub(super) fn whole_gradient(&mut self, part: View, batch: u32, label: &str, id: u64) -> View {
        if !self.context.sequence_parallel {
            return part;
        }
        let len = self.context.spec.training.seq * batch * self.context.model().hidden_size;
        let whole = self.program.buffer(label, Role::Activations, DType::F32, len);
        let mine = self.local_part(whole, batch);
        self.copy(part, mine);
        self.gather_sequence(whole, batch, id);
        whole
    }
}
