//! The model: a Llama-style decoder by its sizes.

use serde::{Deserialize, Serialize};

/// Sizes of a Llama-style decoder: `RMSNorm`, rotary positions, grouped-query attention, `SwiGLU`.
/// Field names are those of a Hugging Face `config.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Tokens of the vocabulary (v).
    pub vocab_size: u32,
    /// Elements of the residual stream (d).
    pub hidden_size: u32,
    /// Columns of the gated feed-forward (f).
    pub intermediate_size: u32,
    /// Decoder layers.
    pub num_hidden_layers: u32,
    /// Query heads (h).
    pub num_attention_heads: u32,
    /// Key and value heads; divides the query heads.
    pub num_key_value_heads: u32,
    /// Elements of a head (k), even.
    pub head_dim: u32,
    /// Base of the rotary angles.
    pub rope_theta: f64,
    /// Added to the mean square in norms.
    pub rms_norm_eps: f32,
    /// Whether the output matrix is the embedding table.
    pub tie_word_embeddings: bool,
    /// Standard deviation of the initial weights.
    pub initializer_range: f32,
}
