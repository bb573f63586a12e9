//! How the model is trained: steps, batch, optimizer.

use serde::{Deserialize, Serialize};

/// Training settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Training {
    /// Optimizer steps.
    pub steps: u64,
    /// Rows of a step over all data-parallel ranks.
    pub batch: u32,
    /// Tokens of a row.
    pub seq: u32,
    /// Peak learning rate.
    pub lr: f32,
    /// Steps of linear warm-up: `lr · min(1, (step+1)/warmup)`.
    pub warmup: u64,
    /// The cosine ends at `lr · lr_min_ratio` at the last step; 1 keeps the rate constant.
    pub lr_min_ratio: f32,
    /// Seed of weights and batches.
    pub seed: u64,
    /// Which optimizer.
    pub optimizer: OptimizerKind,
    /// `AdamW`: decay of the first moment.
    pub beta1: f32,
    /// `AdamW`: decay of the second moment.
    pub beta2: f32,
    /// `AdamW`: added to the root of the second moment.
    pub eps: f32,
    /// `AdamW`: decoupled weight decay on tensors of two dimensions.
    pub weight_decay: f32,
    /// Limit of the global gradient norm; 0: off.
    pub clip_norm: f32,
    /// Held-out loss every so many steps; 0: only at the start and the end.
    pub eval_every: u64,
}

impl Default for Training {
    fn default() -> Self {
        Self {
            steps: 200,
            batch: 32,
            seq: 128,
            lr: 3e-3,
            warmup: 20,
            lr_min_ratio: 0.1,
            seed: 1,
            optimizer: OptimizerKind::AdamW,
            beta1: 0.9,
            beta2: 0.95,
            eps: 1e-8,
            weight_decay: 0.1,
            clip_norm: 1.0,
            eval_every: 0,
        }
    }
}

/// The optimizers.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum OptimizerKind {
    /// `AdamW`, no decay on one-dimensional tensors.
    #[default]
    AdamW,
    /// Plain SGD: no momentum, no decay.
    Sgd,
}
