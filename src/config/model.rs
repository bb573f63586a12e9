//! The model: a Llama-style decoder by its sizes, where they come from, and its tensors.
//!
//! The list of tensors is the one order and naming of weights in the project: Plans, checkpoints
//! and initial weights follow it. `config.json` files are read in `hugging_face`.

use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::ConfigError;
use super::error::unknown_word;
use crate::shape::Shape;

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

impl Model {
    /// The names of the presets, in the order in which help lists them.
    pub const PRESETS: &'static [&'static str] = &["shakespeare", "tiny", "bench"];

    /// The sizes of a preset; all of them read bytes as tokens.
    ///
    /// # Errors
    /// If the name is unknown, with all names.
    pub fn preset(name: &str) -> Result<Self, ConfigError> {
        let sizes = |hidden_size, layers, kv_heads, ffn| Self {
            vocab_size: 256,
            hidden_size,
            intermediate_size: ffn,
            num_hidden_layers: layers,
            num_attention_heads: 8,
            num_key_value_heads: kv_heads,
            head_dim: hidden_size / 8,
            rope_theta: 10_000.0,
            rms_norm_eps: 1e-5,
            tie_word_embeddings: false,
            initializer_range: 0.06,
        };
        match name {
            // Heads, kv heads, ffn and vocabulary divide by tp 1, 2 and 4.
            "shakespeare" => Ok(sizes(128, 4, 4, 352)),
            "tiny" => Ok(sizes(32, 2, 4, 64)),
            "bench" => Ok(sizes(256, 4, 8, 704)),
            _ => Err(unknown_word("model preset", name, Self::PRESETS)),
        }
    }

    /// All weights by Hugging Face name and shape, in the order of the computation.
    /// Matrices are `[out, in]`.
    pub fn tensors(&self) -> Vec<(String, Shape)> {
        let [v, d, f] = [self.vocab_size, self.hidden_size, self.intermediate_size].map(u64::from);
        let k = u64::from(self.head_dim);
        let [q_out, kv_out] =
            [self.num_attention_heads, self.num_key_value_heads].map(|heads| u64::from(heads) * k);
        let matrix = |rows, cols| Shape(vec![rows, cols]);
        let mut tensors = vec![("model.embed_tokens.weight".to_owned(), matrix(v, d))];
        for layer in 0..self.num_hidden_layers {
            tensors.extend(
                [
                    ("input_layernorm", Shape(vec![d])),
                    ("self_attn.q_proj", matrix(q_out, d)),
                    ("self_attn.k_proj", matrix(kv_out, d)),
                    ("self_attn.v_proj", matrix(kv_out, d)),
                    ("self_attn.o_proj", matrix(d, q_out)),
                    ("post_attention_layernorm", Shape(vec![d])),
                    ("mlp.gate_proj", matrix(f, d)),
                    ("mlp.up_proj", matrix(f, d)),
                    ("mlp.down_proj", matrix(d, f)),
                ]
                .map(|(name, shape)| (format!("model.layers.{layer}.{name}.weight"), shape)),
            );
        }
        tensors.push(("model.norm.weight".to_owned(), Shape(vec![d])));
        if !self.tie_word_embeddings {
            tensors.push(("lm_head.weight".to_owned(), matrix(v, d)));
        }
        tensors
    }

    /// Number of trained parameters; a tied matrix counts once.
    pub fn parameter_count(&self) -> u64 {
        self.tensors().iter().map(|(_, shape)| shape.len()).sum()
    }

    /// What is wrong with the sizes; all faults.
    pub fn check(&self) -> Vec<ConfigError> {
        let mut faults = Vec::new();
        let mut fault = |what: &str, why: String, remedy: &str| {
            faults.push(ConfigError::value(what, why, remedy));
        };
        let sizes = [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("intermediate_size", self.intermediate_size),
            ("num_hidden_layers", self.num_hidden_layers),
            ("num_attention_heads", self.num_attention_heads),
            ("num_key_value_heads", self.num_key_value_heads),
            ("head_dim", self.head_dim),
        ];
        for (name, size) in sizes {
            if size == 0 {
                fault(name, "is 0".into(), "Give at least 1");
            }
        }
        if !self.head_dim.is_multiple_of(2) {
            let why = format!("{} is odd, but rotary positions turn pairs", self.head_dim);
            fault("head_dim", why, "Use an even head size");
        }
        let (heads, kv_heads) = (self.num_attention_heads, self.num_key_value_heads);
        if kv_heads > 0 && !heads.is_multiple_of(kv_heads) {
            let why = format!("{heads} query heads cannot share {kv_heads} equally");
            fault("num_key_value_heads", why, "Use a divisor of num_attention_heads");
        }
        if !self.rope_theta.is_finite() || self.rope_theta <= 0.0 {
            let why = format!("{} is not a number above 0", self.rope_theta);
            fault("rope_theta", why, "Use a base such as 10000");
        }
        if !self.rms_norm_eps.is_finite() || self.rms_norm_eps < 0.0 {
            let why = format!("{} is not a number of at least 0", self.rms_norm_eps);
            fault("rms_norm_eps", why, "Use a value such as 1e-5");
        }
        if !self.initializer_range.is_finite() || self.initializer_range < 0.0 {
            let why = format!("{} is not a number of at least 0", self.initializer_range);
            fault("initializer_range", why, "Use a value such as 0.02");
        }
        // Only the largest layer can be too large, and all layers are alike.
        let first_layer = Self { num_hidden_layers: self.num_hidden_layers.min(1), ..self.clone() };
        for (name, shape) in first_layer.tensors() {
            let elements = shape.0.iter().try_fold(1u64, |product, dim| product.checked_mul(*dim));
            if elements.is_none_or(|elements| elements > u64::from(u32::MAX)) {
                let why = format!("{shape} has more than {} elements", u32::MAX);
                fault(&name, why, "Use a smaller vocabulary, hidden or intermediate size");
            }
        }
        faults
    }
}

/// Where the model's sizes come from. In a scenario: `model.preset = "NAME"`,
/// `model.dir = "PATH"`, or a table `[model.sizes]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ModelSource {
    /// A preset by name.
    Preset(String),
    /// A folder with a Hugging Face `config.json`, and weights to start from if there are any.
    Dir(PathBuf),
    /// The sizes themselves.
    Sizes(Model),
}

impl ModelSource {
    /// The sizes, checked.
    ///
    /// # Errors
    /// If the preset is unknown, the folder cannot be read or describes a model that is not
    /// trained here, or if the sizes make no model.
    pub fn resolve(&self) -> Result<Model, ConfigError> {
        let model = match self {
            Self::Preset(name) => Model::preset(name)?,
            Self::Dir(dir) => Model::read_config_json(dir)?,
            Self::Sizes(model) => model.clone(),
        };
        ConfigError::collect(model.check())?;
        Ok(model)
    }
}

/// Reads `--model PRESET|DIR`: whatever is no preset is a folder.
impl FromStr for ModelSource {
    type Err = Infallible;
    fn from_str(word: &str) -> Result<Self, Infallible> {
        Ok(if Model::PRESETS.contains(&word) {
            Self::Preset(word.to_owned())
        } else {
            Self::Dir(word.into())
        })
    }
}

impl fmt::Display for ModelSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Preset(name) => f.pad(name),
            Self::Dir(dir) => dir.display().fmt(f),
            Self::Sizes(model) => write!(
                f,
                "{} layers of {}, vocabulary {}",
                model.num_hidden_layers, model.hidden_size, model.vocab_size
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_divide_by_the_tensor_parallel_sizes_and_have_the_stated_size() {
        for name in Model::PRESETS {
            let model = Model::preset(name).unwrap();
            assert!(model.check().is_empty(), "{name}");
            let cut = [
                model.num_attention_heads,
                model.num_key_value_heads,
                model.intermediate_size,
                model.vocab_size,
            ];
            assert!(cut.iter().all(|size| size.is_multiple_of(4)), "{name}: {cut:?}");
        }
        assert_eq!(Model::preset("shakespeare").unwrap().parameter_count(), 803_968);
        let error = Model::preset("shakespear").unwrap_err().to_string();
        assert!(error.contains("Did you mean `shakespeare`?"), "{error}");
        assert!(error.contains("tiny, bench"), "{error}");
    }

    #[test]
    fn tied_embeddings_count_once_and_have_no_head_of_their_own() {
        let model = Model::preset("tiny").unwrap();
        let tied = Model { tie_word_embeddings: true, ..model.clone() };
        assert_eq!(model.parameter_count() - tied.parameter_count(), 256 * 32);
        assert!(tied.tensors().iter().all(|(name, _)| name != "lm_head.weight"));
        assert_eq!(model.tensors().len(), 2 * 9 + 3);
    }

    #[test]
    fn sizes_that_make_no_model_are_all_told() {
        let model = Model {
            head_dim: 7,
            num_key_value_heads: 3,
            vocab_size: 0,
            rope_theta: 0.0,
            ..Model::preset("tiny").unwrap()
        };
        let text = ConfigError::collect(model.check()).unwrap_err().to_string();
        for part in
            ["vocab_size: is 0", "7 is odd", "8 query heads cannot share 3", "rope_theta: 0"]
        {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        let model = Model { vocab_size: 1 << 31, ..Model::preset("tiny").unwrap() };
        let text = ConfigError::collect(model.check()).unwrap_err().to_string();
        assert!(text.contains("lm_head.weight: [2147483648, 32] has more than"), "{text}");
    }

    #[test]
    fn a_word_is_a_preset_or_else_a_folder() {
        let source = |word: &str| word.parse::<ModelSource>().unwrap();
        assert_eq!(source("tiny"), ModelSource::Preset("tiny".into()));
        assert_eq!(source("models/mine"), ModelSource::Dir("models/mine".into()));
        let error = source("shakespear").resolve().unwrap_err().to_string();
        assert!(error.contains("shakespeare, tiny, bench"), "{error}");
    }
}
