//! Hugging Face `config.json` files of Llama models: read, refused in words, and written back.
//!
//! Both spellings of the rotary base are read: `rope_parameters.rope_theta` (transformers 5) and
//! `rope_theta`. Whatever would train another model than the file describes is refused, and all
//! such things are told at once; fields that do not change the arithmetic are ignored.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Map, Value};

use super::{ConfigError, Model};

impl Model {
    /// Reads `config.json` in a folder, or the file itself.
    ///
    /// # Errors
    /// If there is no such file, or for the reasons of [`Model::from_config_json`].
    pub fn read_config_json(path: &Path) -> Result<Self, ConfigError> {
        let is_named = path.is_file() || path.file_name().is_some_and(|name| name == "config.json");
        let file: PathBuf = if is_named { path.to_owned() } else { path.join("config.json") };
        let text = std::fs::read_to_string(&file).map_err(|source| ConfigError::File {
            remedy: format!(
                "Give a folder with a Hugging Face config.json, or a preset: {}",
                Self::PRESETS.join(", ")
            ),
            path: file.clone(),
            source,
        })?;
        Self::from_config_json(&text, &file.display().to_string())
    }

    /// Reads the text of a `config.json`; `file` names it in errors.
    ///
    /// # Errors
    /// If it is not JSON, if fields are missing or of another type, or if it describes a model that
    /// is not trained here; all faults.
    pub fn from_config_json(text: &str, file: &str) -> Result<Self, ConfigError> {
        let value: Value = serde_json::from_str(text).map_err(|error| {
            ConfigError::value(file, format!("is not JSON ({error})"), "Correct the file")
        })?;
        let Value::Object(fields) = value else {
            let why = "holds no JSON object";
            return Err(ConfigError::value(file, why, "Give a Hugging Face config.json"));
        };
        let mut config = ConfigJson { fields, file, faults: Vec::new() };
        config.refuse_other_models();
        let model = config.model();
        if config.faults.is_empty() {
            config.faults = model.check();
        }
        ConfigError::collect(config.faults)?;
        Ok(model)
    }

    /// The text of a `config.json` that transformers reads. `positions`: the longest row.
    ///
    /// # Panics
    /// Never: sizes and words are always JSON.
    pub fn to_config_json(&self, positions: u32) -> String {
        /// The fields in the order of the file.
        #[derive(Serialize)]
        struct Written<'a> {
            architectures: [&'static str; 1],
            model_type: &'static str,
            attention_bias: bool,
            attention_dropout: f32,
            hidden_act: &'static str,
            mlp_bias: bool,
            max_position_embeddings: u32,
            #[serde(flatten)]
            model: &'a Model,
            rope_parameters: Rope,
            torch_dtype: &'static str,
        }
        #[derive(Serialize)]
        struct Rope {
            rope_theta: f64,
            rope_type: &'static str,
        }
        let written = Written {
            architectures: ["LlamaForCausalLM"],
            model_type: "llama",
            attention_bias: false,
            attention_dropout: 0.0,
            hidden_act: "silu",
            mlp_bias: false,
            max_position_embeddings: positions,
            model: self,
            rope_parameters: Rope { rope_theta: self.rope_theta, rope_type: "default" },
            torch_dtype: "float32",
        };
        let text = serde_json::to_string_pretty(&written);
        text.expect("sizes and words are always JSON") + "\n"
    }
}

/// A `config.json` under examination.
struct ConfigJson<'a> {
    fields: Map<String, Value>,
    file: &'a str,
    faults: Vec<ConfigError>,
}

impl ConfigJson<'_> {
    fn fault(&mut self, field: &str, why: impl Into<String>, remedy: impl Into<String>) {
        self.faults.push(ConfigError::value(format!("{}: {field}", self.file), why, remedy));
    }

    /// A field that is there and not null.
    fn field(&self, name: &str) -> Option<&Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    fn refuse_other_models(&mut self) {
        match self.field("model_type").cloned() {
            None => self.fault("model_type", "is missing", "Only \"llama\" is trained here"),
            Some(Value::String(kind)) if kind == "llama" => {}
            Some(other) => {
                let remedy = "Only \"llama\" is trained here: RMSNorm, RoPE, SwiGLU";
                self.fault("model_type", format!("{other} is another model"), remedy);
            }
        }
        for (name, value) in self.fields.clone() {
            let rate = value.as_f64().unwrap_or(0.0);
            if (name.contains("dropout") || name.ends_with("pdrop")) && rate != 0.0 {
                self.fault(
                    &name,
                    format!("is {rate}, but dropout does not exist here"),
                    "Set it to 0",
                );
            }
        }
        for name in ["attention_bias", "mlp_bias"] {
            if self.field(name).is_some_and(|value| value != &Value::Bool(false)) {
                let why = "asks for bias vectors, which are not trained here";
                self.fault(name, why, "Use a model without them");
            }
        }
        if let Some(act) = self.field("hidden_act").filter(|act| *act != "silu").cloned() {
            self.fault("hidden_act", format!("{act} is not trained here"), "Only \"silu\" is");
        }
        for name in ["rope_scaling", "rope_parameters"] {
            self.refuse_scaled_positions(name);
        }
        for name in ["sliding_window", "quantization_config"] {
            if self.field(name).is_some() {
                self.fault(name, "is not supported", "Use a plain Llama model without it");
            }
        }
    }

    fn refuse_scaled_positions(&mut self, name: &str) {
        let Some(value) = self.field(name).cloned() else { return };
        let Value::Object(rope) = value else {
            self.fault(name, "is not an object", "Correct the file");
            return;
        };
        // Old files say "type", newer ones "rope_type".
        let kind = rope.get("rope_type").or(rope.get("type"));
        if kind.is_some_and(|kind| kind != "default") || (kind.is_none() && name == "rope_scaling")
        {
            let why = format!("asks for scaled positions ({})", kind.unwrap_or(&Value::Null));
            self.fault(name, why, "Only rope_type \"default\" is trained here");
        }
        let factor = rope.get("partial_rotary_factor").and_then(Value::as_f64);
        if factor.is_some_and(|factor| factor != 1.0) {
            let field = format!("{name}.partial_rotary_factor");
            self.fault(&field, "turns only a part of each head", "Only 1.0 is trained here");
        }
    }

    /// The sizes; what cannot be read becomes a fault and zero.
    fn model(&mut self) -> Model {
        let hidden_size = self.required_size("hidden_size");
        let heads = self.required_size("num_attention_heads");
        let rope_theta = self.number("rope_theta", None);
        let rope_theta = match self.field("rope_parameters").and_then(|rope| rope.get("rope_theta"))
        {
            Some(theta) => theta.as_f64(),
            None => rope_theta,
        };
        Model {
            vocab_size: self.required_size("vocab_size"),
            hidden_size,
            intermediate_size: self.required_size("intermediate_size"),
            num_hidden_layers: self.required_size("num_hidden_layers"),
            num_attention_heads: heads,
            num_key_value_heads: self.size("num_key_value_heads").unwrap_or(heads),
            head_dim: self
                .size("head_dim")
                .unwrap_or_else(|| hidden_size.checked_div(heads).unwrap_or(0)),
            // The defaults of transformers' LlamaConfig.
            rope_theta: rope_theta.unwrap_or(10_000.0),
            rms_norm_eps: self.number("rms_norm_eps", Some(1e-6)).unwrap_or(0.0) as f32,
            initializer_range: self.number("initializer_range", Some(0.02)).unwrap_or(0.0) as f32,
            tie_word_embeddings: self.flag("tie_word_embeddings"),
        }
    }

    fn required_size(&mut self, name: &str) -> u32 {
        if self.field(name).is_none() {
            self.fault(name, "is missing", "Give the field in the file");
        }
        self.size(name).unwrap_or(0)
    }

    fn size(&mut self, name: &str) -> Option<u32> {
        let value = self.field(name)?.clone();
        let size = value.as_u64().and_then(|size| u32::try_from(size).ok());
        if size.is_none() {
            let why = format!("{value} is not a whole number below 2^32");
            self.fault(name, why, "Correct the file");
        }
        size
    }

    fn number(&mut self, name: &str, default: Option<f64>) -> Option<f64> {
        let Some(value) = self.field(name).cloned() else { return default };
        let number = value.as_f64();
        if number.is_none() {
            self.fault(name, format!("{value} is not a number"), "Correct the file");
        }
        number
    }

    fn flag(&mut self, name: &str) -> bool {
        let Some(value) = self.field(name).cloned() else { return false };
        value.as_bool().unwrap_or_else(|| {
            self.fault(name, format!("{value} is neither true nor false"), "Correct the file");
            false
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = include_str!("../../tests/golden/plain/config.json");

    fn read(text: &str) -> Result<Model, String> {
        Model::from_config_json(text, "config.json").map_err(|error| error.to_string())
    }

    /// The plain config with some fields set (`null` removes nothing, it is a null).
    fn read_with(changes: &[(&str, &str)]) -> Result<Model, String> {
        let mut fields: Map<String, Value> = serde_json::from_str(PLAIN).unwrap();
        for (name, value) in changes {
            fields.insert((*name).to_owned(), serde_json::from_str(value).unwrap());
        }
        read(&Value::Object(fields).to_string())
    }

    #[test]
    fn both_spellings_of_the_rotary_base_are_read() {
        assert_eq!(read(PLAIN).unwrap().rope_theta, 10_000.0);
        let old = read_with(&[("rope_parameters", "null"), ("rope_theta", "500000.0")]).unwrap();
        assert_eq!(old.rope_theta, 500_000.0);
        let new = r#"{"rope_theta": 250000, "rope_type": "default"}"#;
        assert_eq!(read_with(&[("rope_parameters", new)]).unwrap().rope_theta, 250_000.0);
    }

    #[test]
    fn left_out_fields_have_the_defaults_of_transformers() {
        let model = read(
            r#"{"model_type": "llama", "vocab_size": 32, "hidden_size": 24, "intermediate_size": 40,
                "num_hidden_layers": 1, "num_attention_heads": 4}"#,
        )
        .unwrap();
        assert_eq!((model.head_dim, model.num_key_value_heads), (6, 4));
        assert_eq!((model.rope_theta, model.rms_norm_eps), (10_000.0, 1e-6));
        assert_eq!((model.initializer_range, model.tie_word_embeddings), (0.02, false));
    }

    #[test]
    fn what_is_not_trained_is_refused_by_its_field() {
        let refusals = [
            ("attention_dropout", "0.1", "attention_dropout: is 0.1, but dropout does not exist"),
            ("attention_bias", "true", "attention_bias: asks for bias vectors"),
            ("mlp_bias", "true", "mlp_bias: asks for bias vectors"),
            ("hidden_act", "\"gelu\"", "hidden_act: \"gelu\" is not trained here"),
            ("model_type", "\"gpt2\"", "model_type: \"gpt2\" is another model"),
            ("rope_scaling", r#"{"type": "linear", "factor": 2}"#, "rope_scaling: asks for scaled"),
            ("rope_parameters", r#"{"rope_type": "llama3"}"#, "rope_parameters: asks for scaled"),
            ("vocab_size", "null", "vocab_size: is missing"),
            ("hidden_size", "\"64\"", "hidden_size: \"64\" is not a whole number"),
            ("head_dim", "15", "head_dim: 15 is odd"),
            ("rms_norm_eps", "\"small\"", "rms_norm_eps: \"small\" is not a number"),
        ];
        for (field, value, expected) in refusals {
            let error = read_with(&[(field, value)]).unwrap_err();
            assert!(error.contains(expected), "{expected} in\n{error}");
        }
        let both = read_with(&[("mlp_bias", "true"), ("attention_dropout", "0.5")]).unwrap_err();
        assert_eq!(both.lines().count(), 2, "{both}");
        assert!(read("{").unwrap_err().contains("is not JSON"));
    }

    #[test]
    fn null_scaling_and_zero_dropout_are_accepted() {
        read_with(&[("rope_scaling", "null"), ("resid_pdrop", "0.0")]).unwrap();
        read_with(&[("rope_scaling", r#"{"rope_type": "default"}"#)]).unwrap();
    }

    #[test]
    fn a_written_config_reads_back_equal() {
        for name in Model::PRESETS {
            let model = Model { rope_theta: 12_345.678, ..Model::preset(name).unwrap() };
            assert_eq!(read(&model.to_config_json(128)).unwrap(), model);
        }
        let text = Model::preset("tiny").unwrap().to_config_json(128);
        assert!(text.contains("\"rms_norm_eps\": 0.00001"), "{text}");
    }
}
