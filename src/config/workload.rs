//! What a described cluster is asked to train: sizes of any GPT- or Llama-like model, how it is cut,
//! its batch, and how the software at hand runs a layer.
//!
//! Only predictions read this. What is trained here is `config::Model` and `config::Layout`; those
//! convert into a [`Workload`], published runs are described as one (`predict::published`).

use serde::{Deserialize, Serialize};

use super::{Layout, Model, Recompute, ScheduleName, ZeroStage};
use crate::mesh::{Mesh, RankOrder};

/// All that decides how long a step takes, except the cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Sizes of the model.
    pub model: Transformer,
    /// How it is cut.
    pub split: Split,
    /// What a step trains on.
    pub batch: StepBatch,
    /// What is computed again in backward.
    pub recomputed: Recomputed,
    /// Of matrix products.
    pub precision: Precision,
    /// How a layer is run.
    pub software: Software,
}

impl Workload {
    /// Tokens that one tensor-parallel group works on in a microbatch.
    pub fn tokens(&self) -> u64 {
        self.batch.rows * self.batch.seq / u64::from(self.split.cp)
    }

    /// Floating-point operations of a step by the usual convention of MFU: three forwards,
    /// attention over all positions before and after, nothing computed again, logits counted.
    pub fn model_flops(&self) -> f64 {
        let Transformer { layers, hidden, ffn, vocab, .. } = self.model;
        let [layers, d, f, v] = [layers, hidden, ffn, vocab].map(|size| size as f64);
        let (q, kv) = (self.model.query_width() as f64, self.model.key_width() as f64);
        let matrices = if self.model.gated { 3.0 } else { 2.0 };
        let layer =
            2.0 * (d * (q + 2.0 * kv) + q * d + matrices * d * f) + 4.0 * self.batch.seq as f64 * q;
        let rows = self.batch.rows * u64::from(self.batch.microbatches) * u64::from(self.split.dp);
        let tokens = (rows * self.batch.seq) as f64;
        3.0 * tokens * (layers * layer + 2.0 * d * v)
    }
}

/// Sizes of a decoder of the GPT or Llama family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transformer {
    /// Decoder layers.
    pub layers: u64,
    /// Elements of the residual stream.
    pub hidden: u64,
    /// Query heads.
    pub heads: u64,
    /// Key and value heads.
    pub kv_heads: u64,
    /// Elements of a head.
    pub head_dim: u64,
    /// Columns of the feed-forward.
    pub ffn: u64,
    /// Tokens of the vocabulary.
    pub vocab: u64,
    /// Two matrices into the feed-forward (`SwiGLU`) or one (`GELU`).
    #[serde(default)]
    pub gated: bool,
    /// Whether the output matrix is the embedding table.
    #[serde(default)]
    pub tied: bool,
}

impl Transformer {
    /// Columns of the queries.
    pub const fn query_width(&self) -> u64 {
        self.heads * self.head_dim
    }

    /// Columns of the keys.
    pub const fn key_width(&self) -> u64 {
        self.kv_heads * self.head_dim
    }

    /// Elements of the matrices of a layer.
    pub const fn layer_parameters(&self) -> u64 {
        let matrices = if self.gated { 3 } else { 2 };
        self.hidden * (2 * self.query_width() + 2 * self.key_width() + matrices * self.ffn)
    }

    /// Elements of the embedding table.
    pub const fn table_parameters(&self) -> u64 {
        self.vocab * self.hidden
    }

    /// All elements; norms are too few to count.
    pub const fn parameters(&self) -> u64 {
        let tables = if self.tied { 1 } else { 2 };
        self.layers * self.layer_parameters() + tables * self.table_parameters()
    }
}

impl From<&Model> for Transformer {
    fn from(model: &Model) -> Self {
        Self {
            layers: model.num_hidden_layers.into(),
            hidden: model.hidden_size.into(),
            heads: model.num_attention_heads.into(),
            kv_heads: model.num_key_value_heads.into(),
            head_dim: model.head_dim.into(),
            ffn: model.intermediate_size.into(),
            vocab: model.vocab_size.into(),
            gated: true,
            tied: model.tie_word_embeddings,
        }
    }
}

/// How a model is cut over ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// Tensor-parallel size.
    pub tp: u32,
    /// Pipeline positions.
    pub pp: u32,
    /// Data-parallel size.
    pub dp: u32,
    /// Ranks that share a sequence (context parallel); they hold the same weights.
    pub cp: u32,
    /// Stages of a pipeline position.
    pub chunks: u32,
    /// What the ranks that hold the same weights share out.
    pub sharding: Sharding,
    /// Whether norms and residuals are cut over the sequence too.
    pub sequence_parallel: bool,
    /// Order of forwards and backwards.
    pub schedule: ScheduleName,
    /// Which axis runs fastest through the rank numbers.
    pub order: RankOrder,
}

impl Split {
    /// Ranks that hold the same weights.
    pub const fn replicas(&self) -> u32 {
        self.dp * self.cp
    }

    /// Ranks altogether.
    pub const fn ranks(&self) -> u32 {
        self.tp * self.pp * self.dp * self.cp
    }

    /// Positions of the ranks; those that share a sequence are neighbours on the data axis.
    pub const fn mesh(&self) -> Mesh {
        Mesh { dp: self.replicas(), tp: self.tp, pp: self.pp, order: self.order }
    }
}

/// What ranks with the same weights share out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sharding {
    /// Nothing: one all-reduce of gradients a step.
    Nothing,
    /// Optimizer state: a reduce-scatter and an all-gather a step (`ZeRO` 1, distributed optimizer).
    OptimizerState,
    /// Gradients too: every layer is reduced as soon as its backward is done, weights are gathered
    /// for forward and kept for backward (FSDP's `SHARD_GRAD_OP`).
    Gradients,
    /// Weights too: every layer is gathered for forward and again for backward (`ZeRO` 3, FSDP).
    Weights,
}

impl From<ZeroStage> for Sharding {
    fn from(stage: ZeroStage) -> Self {
        match stage {
            ZeroStage::Zero0 => Self::Nothing,
            ZeroStage::Zero1 => Self::OptimizerState,
            ZeroStage::Zero2 => Self::Gradients,
            ZeroStage::Zero3 => Self::Weights,
        }
    }
}

/// What a step trains on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepBatch {
    /// Tokens of a row.
    pub seq: u64,
    /// Rows of a microbatch.
    pub rows: u64,
    /// Microbatches of a data-parallel rank.
    pub microbatches: u32,
}

/// What is computed again in backward instead of kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Recomputed {
    /// Nothing.
    Nothing,
    /// The core of attention: scores, softmax, sums (arXiv:2205.05198).
    Attention,
    /// Every other matrix product and all that is cheap (torchtitan's "selective op").
    HalfOfProducts,
    /// This share of the layers whole, from their inputs.
    Layers(f64),
}

impl From<Recompute> for Recomputed {
    fn from(what: Recompute) -> Self {
        match what {
            Recompute::None => Self::Nothing,
            Recompute::Selective => Self::Attention,
            Recompute::Full => Self::Layers(1.0),
        }
    }
}

/// Element type of matrix products; activations have 16 bits in all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// 16-bit floats of either kind.
    Half,
    /// 8-bit floats.
    Fp8,
}

/// How the core of attention is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionKernel {
    /// Batched products, with all scores in memory.
    Unfused(Softmax),
    /// `FlashAttention` (arXiv:2205.14135), also its Triton version.
    Flash1,
    /// `FlashAttention`-2 (arXiv:2307.08691).
    Flash2,
    /// cuDNN and `FlashAttention`-3 (arXiv:2407.08608), written for each architecture.
    Tuned,
}

/// How scores become weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Softmax {
    /// Scale, mask and softmax in one kernel.
    Fused,
    /// One kernel each, partly in 32 bits.
    Eager,
}

/// How a pointwise chain is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fusion {
    /// One kernel.
    Fused,
    /// One kernel, between two changes of type.
    Cast,
    /// One kernel an operation.
    Eager,
}

/// How the training software runs a layer: what decides kernels and bytes but no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Software {
    /// Core of attention.
    pub attention: AttentionKernel,
    /// Whether attention's backward forgoes atomics for equal bits.
    pub deterministic: bool,
    /// Norms.
    pub norm: Fusion,
    /// Activation function of the feed-forward.
    pub activation: Fusion,
    /// Rotary positions; `None`: positions are not rotary.
    pub rope: Option<Fusion>,
    /// Whether a compiler joins the kernels of a layer.
    pub compiled: bool,
    /// Bytes of a gradient in reductions.
    pub gradient_bytes: u64,
    /// Bytes moved to add a microbatch's weight gradient to the sum; 0: inside the product.
    pub accumulate_bytes: u64,
    /// Whether gradients are reduced while backward runs.
    pub overlap_gradients: bool,
    /// Whether weights are gathered while forward runs.
    pub overlap_weights: bool,
    /// Whether tensor-parallel collectives are cut into chunks that run beside products.
    pub overlap_tensor: bool,
    /// Whether a tensor-parallel group hands a stage's output over in parts, each rank its own.
    pub scatter_pipeline: bool,
    /// Whether a rank computes nothing while it hands a stage's output over.
    pub blocking_pipeline: bool,
    /// Whether the loss is computed on slices of the vocabulary.
    pub sliced_loss: bool,
    /// Whether collectives over all ranks use the fast links inside nodes.
    pub node_aware: bool,
}

impl Default for Software {
    /// A current, well-fused trainer.
    fn default() -> Self {
        Self {
            attention: AttentionKernel::Tuned,
            deterministic: false,
            norm: Fusion::Fused,
            activation: Fusion::Fused,
            rope: Some(Fusion::Fused),
            compiled: false,
            gradient_bytes: 4,
            accumulate_bytes: 0,
            overlap_gradients: true,
            overlap_weights: true,
            overlap_tensor: false,
            scatter_pipeline: true,
            blocking_pipeline: false,
            sliced_loss: true,
            node_aware: true,
        }
    }
}

impl Split {
    /// The cut of a layout of this program, with `cp` ranks a sequence.
    pub fn of(layout: &Layout, cp: u32) -> Self {
        Self {
            tp: layout.tp,
            pp: layout.pp,
            dp: layout.dp,
            cp,
            chunks: layout.chunks,
            sharding: layout.zero.into(),
            sequence_parallel: layout.sequence_parallel,
            schedule: layout.schedule.clone(),
            order: layout.rank_order,
        }
    }
}
