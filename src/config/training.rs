//! How the model is trained: steps, batch, optimizer, and the learning rate of each step.
//!
//! What the data is and how it is cut into rows is the business of `data`.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

use super::ConfigError;
use super::error::words;

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

impl Training {
    /// Learning rate of a step (from 0): linear warm-up, then a cosine from `lr` down to
    /// `lr · lr_min_ratio` at the last step. Computed in f64, rounded once.
    pub fn lr_at(&self, step: u64) -> f32 {
        let lr = f64::from(self.lr);
        if step + 1 < self.warmup {
            return (lr * (step + 1) as f64 / self.warmup as f64) as f32;
        }
        // The step whose rate is `lr`: the last of the warm-up.
        let peak = self.warmup.max(1) - 1;
        let last = self.steps.max(1) - 1;
        let progress = if last > peak { (step - peak) as f64 / (last - peak) as f64 } else { 0.0 };
        let fall = 0.5 * (1.0 - (PI * progress.min(1.0)).cos());
        (lr * (1.0 - (1.0 - f64::from(self.lr_min_ratio)) * fall)) as f32
    }

    /// `AdamW`'s `1 − β1^t` and `1 − β2^t` of a step (from 0; `t = step + 1`). Computed in f64
    /// from the same f32 decays that the optimizer multiplies with.
    pub fn bias_corrections(&self, step: u64) -> [f32; 2] {
        [self.beta1, self.beta2].map(|beta| (1.0 - power(f64::from(beta), step + 1)) as f32)
    }

    /// What is wrong with single values; all faults.
    pub fn check(&self) -> Vec<ConfigError> {
        let mut faults = Vec::new();
        let mut fault = |what: &str, why: String, remedy: &str| {
            faults.push(ConfigError::value(what, why, remedy));
        };
        let sizes = [("steps", self.steps), ("batch", self.batch.into()), ("seq", self.seq.into())];
        for (name, size) in sizes {
            if size == 0 {
                fault(name, "is 0".into(), "Give at least 1");
            }
        }
        if i64::try_from(self.seed).is_err() {
            let why = format!("{} is more than a scenario file can hold", self.seed);
            fault("seed", why, "Use a number up to 9223372036854775807");
        }
        let non_negative = [
            ("lr", self.lr, "Use a rate such as 0.003"),
            ("weight-decay", self.weight_decay, "Use 0 for no decay, or a value such as 0.1"),
            ("clip-norm", self.clip_norm, "Use 0 for no clipping, or a limit such as 1.0"),
        ];
        for (name, value, remedy) in non_negative {
            if !value.is_finite() || value < 0.0 {
                fault(name, format!("{value} is not a finite number of at least 0"), remedy);
            }
        }
        if !(0.0..=1.0).contains(&self.lr_min_ratio) {
            let why = format!("{} is not between 0 and 1", self.lr_min_ratio);
            fault("lr-min-ratio", why, "Use 1 for a constant rate, or a value such as 0.1");
        }
        for (name, beta) in [("beta1", self.beta1), ("beta2", self.beta2)] {
            if !(0.0..1.0).contains(&beta) {
                let why = format!("{beta} is not in [0, 1)");
                fault(name, why, "Use a value such as 0.9 or 0.95");
            }
        }
        if !self.eps.is_finite() || self.eps <= 0.0 {
            fault("eps", format!("{} is not a number above 0", self.eps), "Use 1e-8");
        }
        faults
    }
}

/// `base^exponent` by squaring: only multiplications, so the same bits on every machine.
fn power(mut base: f64, mut exponent: u64) -> f64 {
    let mut result = 1.0;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    result
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

words!(OptimizerKind, "optimizer", ["adamw" => Self::AdamW, "sgd" => Self::Sgd]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_warms_up_linearly_then_falls_as_a_cosine_to_its_least_at_the_last_step() {
        let training =
            Training { steps: 21, warmup: 5, lr: 1.0, lr_min_ratio: 0.1, ..Training::default() };
        let rates: Vec<f32> = (0..21).map(|step| training.lr_at(step)).collect();
        assert_eq!(rates[..5], [0.2, 0.4, 0.6, 0.8, 1.0]);
        assert_eq!(rates[12], 0.55); // half way between the peak and the end
        assert_eq!(rates[20], 0.1);
        assert!(rates[4..].is_sorted_by(|a, b| a > b), "{rates:?}");
        assert_eq!(training.lr_at(1_000), 0.1);
    }

    #[test]
    fn a_ratio_of_one_keeps_the_rate_to_the_bit_and_no_warm_up_starts_at_the_peak() {
        let training = Training { lr: 0.002, lr_min_ratio: 1.0, warmup: 2, ..Training::default() };
        assert_eq!(
            [0, 1, 2, 100, 199].map(|step| training.lr_at(step)),
            [0.001, 0.002, 0.002, 0.002, 0.002]
        );
        let training = Training { lr: 0.5, warmup: 0, steps: 1, ..Training::default() };
        assert_eq!(training.lr_at(0), 0.5);
        // A warm-up longer than the run never divides by nothing.
        let training = Training { lr: 1.0, warmup: 10, steps: 4, ..Training::default() };
        assert_eq!(training.lr_at(3), 0.4);
    }

    #[test]
    fn bias_corrections_are_one_minus_the_decays_to_the_step() {
        let training = Training { beta1: 0.5, beta2: 0.75, ..Training::default() };
        assert_eq!(training.bias_corrections(0), [0.5, 0.25]);
        assert_eq!(training.bias_corrections(1), [0.75, 0.4375]);
        assert_eq!(training.bias_corrections(1 << 40), [1.0, 1.0]);
    }

    #[test]
    fn values_that_make_no_sense_are_all_told() {
        let training = Training {
            batch: 0,
            lr: f32::NAN,
            beta2: 1.0,
            eps: 0.0,
            lr_min_ratio: 2.0,
            clip_norm: -1.0,
            seed: u64::MAX,
            ..Training::default()
        };
        let text = ConfigError::collect(training.check()).unwrap_err().to_string();
        let names = [
            "seed: ",
            "batch: ",
            "lr: NaN",
            "beta2: 1",
            "eps: 0",
            "lr-min-ratio: 2",
            "clip-norm: -1",
        ];
        for name in names {
            assert!(text.contains(name), "{name} in\n{text}");
        }
        assert!(Training::default().check().is_empty());
    }

    #[test]
    fn optimizers_have_the_same_words_in_flags_and_toml() {
        for word in OptimizerKind::WORDS {
            let kind: OptimizerKind = word.parse().unwrap();
            assert_eq!(toml::Value::try_from(kind).unwrap().as_str(), Some(*word));
            assert_eq!(kind.to_string(), *word);
        }
    }
}
