//! Goal: faults that people reported of other trainers do not exist here. Method: each case of
//! `tests/CASES.md` as a test of its whole kind, on small models.
//!
//! Equality is tested with plain SGD, learning rate 1 and no clipping, on gradients and weights:
//! Adam and clipping hide a wrong scale.

mod bytes;
mod faults;
mod gradients;
mod pipelines;
mod predictions;
pub(crate) mod sessions;

use shardlab::config::{Layout, Model, OptimizerKind, Training};
use shardlab::planner::{Purpose, StepSpec};

use crate::layouts::unsplit;
use crate::machine::{Trained, difference, train};

/// Two layers, four heads.
pub(crate) fn model() -> Model {
    Model {
        vocab_size: 31,
        hidden_size: 16,
        intermediate_size: 24,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: 4,
        head_dim: 4,
        rope_theta: 10_000.0,
        rms_norm_eps: 1e-5,
        tie_word_embeddings: false,
        initializer_range: 0.2,
    }
}

/// Nothing here hides a wrong scale.
pub(crate) fn sgd(batch: u32, seq: u32) -> Training {
    Training {
        batch,
        seq,
        steps: 2,
        lr: 1.0,
        warmup: 0,
        optimizer: OptimizerKind::Sgd,
        clip_norm: 0.0,
        ..Training::default()
    }
}

pub(crate) fn spec(model: Model, layout: Layout, training: Training) -> StepSpec {
    StepSpec { model, layout, training, purpose: Purpose::Train, device_kinds: Vec::new() }
}

/// Losses, norms, gradients and weights of two runs are within 1e-5 of each other.
#[track_caller]
pub(crate) fn assert_close(one: &Trained, other: &Trained, context: &str) {
    for (a, b) in one.scalars.iter().zip(&other.scalars) {
        assert!((a - b).abs() <= 1e-5 * a.abs(), "{a} is not {b}; {context}");
    }
    let (gradient, name) = difference(&one.gradients, &other.gradients);
    assert!(gradient <= 1e-5, "gradient of {name} is off by {gradient:e}; {context}");
    let (weight, name) = difference(&one.weights, &other.weights);
    assert!(weight <= 1e-5, "{name} is off by {weight:e}; {context}");
}

/// The layout trains like one rank with the whole batch, and all copies stay equal.
#[track_caller]
pub(crate) fn assert_trains_like_one_rank(spec: &StepSpec, seed: u64) -> Trained {
    let many = train(spec, seed);
    assert_close(&train(&unsplit(spec), seed), &many, &format!("{:?}", spec.layout));
    many
}
