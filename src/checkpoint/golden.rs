//! Reference cases: training runs of another program, to be held against ours.
//!
//! A case is a folder with a model, its initial weights, batches, settings, and the losses,
//! gradients and final weights that the other program got from them in float64.
//! `tests/golden/README.md` describes the files.

use std::path::Path;

use safetensors::Dtype;
use serde::Deserialize;

use super::weights::{load_weights, parse, read_file, read_tensors};
use super::{CheckpointError, Tensors};
use crate::config::{Model, OptimizerKind, Training};

/// A reference case.
#[derive(Clone, Debug, PartialEq)]
pub struct Golden {
    /// Name of the folder.
    pub name: String,
    /// Sizes of the model.
    pub model: Model,
    /// Settings; `steps`, `batch` and `seq` are those of the batches.
    pub training: Training,
    /// Initial weights.
    pub weights: Tensors,
    /// What is trained on and what comes out, step by step.
    pub steps: Vec<GoldenStep>,
    /// Gradients of step 0, before clipping.
    pub gradients: Tensors,
    /// Weights after the last step.
    pub final_weights: Tensors,
    /// How far the other program's own float32 run is from its float64 run.
    pub float32_distance: Float32Distance,
}

/// One step of a reference case.
#[derive(Clone, Debug, PartialEq)]
pub struct GoldenStep {
    /// `[batch, seq]` row-major.
    pub tokens: Vec<i32>,
    /// `[batch, seq]`, already moved by one; −100 is ignored.
    pub labels: Vec<i32>,
    /// Loss before the update.
    pub loss: f64,
    /// Global gradient norm before clipping.
    pub grad_norm: f64,
    /// Learning rate.
    pub lr: f64,
}

/// Relative distances of a float32 run from the float64 run.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Float32Distance {
    /// Of the losses.
    pub loss: f64,
    /// Of the gradient norms.
    pub grad_norm: f64,
    /// Of the gradients of step 0.
    pub grad: f64,
    /// Of the weights after the last step.
    pub r#final: f64,
}

impl Golden {
    /// Reads a reference case.
    ///
    /// # Errors
    /// If a file is missing, damaged, or does not fit the others.
    pub fn read(folder: &Path) -> Result<Self, CheckpointError> {
        let model = Model::read_config_json(&folder.join("config.json"))?;
        let weights = load_weights(&folder.join("model.safetensors"), &model)?;
        let batches = read_batches(&folder.join("batch.safetensors"))?;
        let expected_path = folder.join("expected.json");
        let expected: Expected = read_json(&expected_path)?;
        let [steps, batch, seq] = batches.dims;
        if expected.steps.len() != steps {
            let why = format!("has {} steps, batch.safetensors {steps}", expected.steps.len());
            return Err(mismatch(&expected_path, why));
        }
        let train: TrainJson = read_json(&folder.join("train.json"))?;
        let chunk = batch * seq;
        let step = |(i, expected): (usize, &ExpectedStep)| GoldenStep {
            tokens: batches.tokens[i * chunk..(i + 1) * chunk].to_vec(),
            labels: batches.labels[i * chunk..(i + 1) * chunk].to_vec(),
            loss: expected.loss,
            grad_norm: expected.grad_norm,
            lr: expected.lr,
        };
        let tensors_path = folder.join("expected.safetensors");
        let tensors = read_tensors(&tensors_path)?;
        let own = |prefix| -> Result<Tensors, CheckpointError> {
            let own = tensors.iter().filter_map(|(name, tensor)| {
                Some((name.strip_prefix(prefix)?.to_owned(), tensor.clone()))
            });
            super::weights::fit(own.collect(), &model, &tensors_path)
        };
        Ok(Self {
            name: folder.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            training: train.training([steps, batch, seq]),
            steps: expected.steps.iter().enumerate().map(step).collect(),
            gradients: own("grad.")?,
            final_weights: own("final.")?,
            float32_distance: expected.float32_distance,
            model,
            weights,
        })
    }
}

/// `expected.json`.
#[derive(Deserialize)]
struct Expected {
    steps: Vec<ExpectedStep>,
    float32_distance: Float32Distance,
}

#[derive(Deserialize)]
struct ExpectedStep {
    loss: f64,
    grad_norm: f64,
    lr: f64,
}

/// `train.json`.
#[derive(Deserialize)]
struct TrainJson {
    optimizer: OptimizerKind,
    lr: f32,
    clip_norm: f32,
    warmup_steps: u64,
    betas: Option<[f32; 2]>,
    eps: Option<f32>,
    #[serde(default)]
    weight_decay: f32,
}

impl TrainJson {
    fn training(&self, [steps, batch, seq]: [usize; 3]) -> Training {
        let usual = Training::default();
        let [beta1, beta2] = self.betas.unwrap_or([usual.beta1, usual.beta2]);
        Training {
            steps: steps as u64,
            batch: batch as u32,
            seq: seq as u32,
            lr: self.lr,
            warmup: self.warmup_steps,
            lr_min_ratio: 1.0,
            optimizer: self.optimizer,
            beta1,
            beta2,
            eps: self.eps.unwrap_or(usual.eps),
            weight_decay: self.weight_decay,
            clip_norm: self.clip_norm,
            ..usual
        }
    }
}

/// `batch.safetensors`.
struct BatchFile {
    /// Steps, batch, seq.
    dims: [usize; 3],
    tokens: Vec<i32>,
    labels: Vec<i32>,
}

fn read_batches(path: &Path) -> Result<BatchFile, CheckpointError> {
    let bytes = read_file(path)?;
    let file = parse(path, &bytes)?;
    let read = |name| -> Result<([usize; 3], Vec<i32>), CheckpointError> {
        let view = file.tensor(name).map_err(|error| mismatch(path, error.to_string()))?;
        let dims = <[usize; 3]>::try_from(view.shape());
        match (view.dtype(), dims) {
            (Dtype::I32, Ok(dims)) => {
                let values = view.data().as_chunks::<4>().0.iter().map(|b| i32::from_le_bytes(*b));
                Ok((dims, values.collect()))
            }
            (dtype, _) => {
                let why =
                    format!("{name} is {dtype:?} {:?}, not I32 [steps, batch, seq]", view.shape());
                Err(mismatch(path, why))
            }
        }
    };
    let ((dims, tokens), (label_dims, labels)) = (read("tokens")?, read("labels")?);
    if dims != label_dims {
        return Err(mismatch(path, format!("tokens are {dims:?}, labels {label_dims:?}")));
    }
    Ok(BatchFile { dims, tokens, labels })
}

fn read_json<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T, CheckpointError> {
    serde_json::from_slice(&read_file(path)?).map_err(|error| mismatch(path, error.to_string()))
}

fn mismatch(path: &Path, why: String) -> CheckpointError {
    let remedy = "Give the folder of a reference case".into();
    CheckpointError::Format { path: path.to_owned(), why, remedy }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CASES: [&str; 5] = ["gqa-tied", "masked", "plain", "sgd-tied-masked", "uneven"];

    fn folder(case: &str) -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(case)
    }

    #[test]
    fn every_case_is_read_and_its_parts_fit_one_another() {
        for case in CASES {
            let golden = Golden::read(&folder(case)).unwrap();
            assert_eq!(golden.name, case);
            assert!(golden.training.check().is_empty());
            assert_eq!(golden.steps.len() as u64, golden.training.steps);
            let count = golden.model.tensors().len();
            assert_eq!(golden.weights.len(), count);
            assert_eq!((golden.gradients.len(), golden.final_weights.len()), (count, count));
            for step in &golden.steps {
                let len = (golden.training.batch * golden.training.seq) as usize;
                assert_eq!((step.tokens.len(), step.labels.len()), (len, len));
                let vocab = 0..golden.model.vocab_size as i32;
                assert!(step.tokens.iter().all(|token| vocab.contains(token)));
                assert!(step.labels.iter().all(|label| *label == -100 || vocab.contains(label)));
            }
        }
    }

    #[test]
    fn the_gradients_have_the_norm_of_step_0() {
        for case in CASES {
            let golden = Golden::read(&folder(case)).unwrap();
            let gradients = golden.gradients.values().flat_map(|tensor| &tensor.data);
            let norm = gradients.map(|g| f64::from(*g).powi(2)).sum::<f64>().sqrt();
            let expected = golden.steps[0].grad_norm;
            assert!((norm / expected - 1.0).abs() < 1e-6, "{case}: {norm}, not {expected}");
        }
    }

    #[test]
    fn our_learning_rate_is_the_references_to_the_bit() {
        for case in CASES {
            let golden = Golden::read(&folder(case)).unwrap();
            for (index, step) in (0..).zip(&golden.steps) {
                assert_eq!(golden.training.lr_at(index), step.lr as f32, "{case}, step {index}");
            }
        }
    }

    #[test]
    fn sgd_cases_clip_and_decay_nothing() {
        let golden = Golden::read(&folder("sgd-tied-masked")).unwrap();
        let Training { optimizer, clip_norm, weight_decay, warmup, .. } = golden.training;
        assert_eq!((optimizer, clip_norm, weight_decay, warmup), (OptimizerKind::Sgd, 0.0, 0.0, 0));
        assert!(golden.model.tie_word_embeddings);
    }

    #[test]
    fn a_folder_that_is_no_case_is_refused_with_its_file() {
        let error = Golden::read(Path::new("tests/golden")).unwrap_err().to_string();
        assert!(error.contains("config.json: cannot be read"), "{error}");
    }
}
