//! Sizes of models that are predicted and not trained here: presets, short TOML files and the
//! `config.json` of Hugging Face models of the GPT and Llama families.

use std::path::Path;

use serde_json::Value;

use super::error::unknown_word;
use super::workload::Transformer;
use super::{ConfigError, Model};

/// The presets: name and text of their file.
const PRESETS: [(&str, &str); 9] = [
    ("gpt-22b", include_str!("../../assets/models/gpt-22b.toml")),
    ("gpt-175b", include_str!("../../assets/models/gpt-175b.toml")),
    ("gpt-530b", include_str!("../../assets/models/gpt-530b.toml")),
    ("gpt-1t", include_str!("../../assets/models/gpt-1t.toml")),
    ("llama-2-7b", include_str!("../../assets/models/llama-2-7b.toml")),
    ("llama-2-70b", include_str!("../../assets/models/llama-2-70b.toml")),
    ("llama-3-8b", include_str!("../../assets/models/llama-3-8b.toml")),
    ("llama-3-70b", include_str!("../../assets/models/llama-3-70b.toml")),
    ("llama-3-405b", include_str!("../../assets/models/llama-3-405b.toml")),
];

#[cfg(test)]
impl Transformer {
    /// A narrow model of so many layers, for tests that draw steps: tp 1, 2 and 4 cut its key heads.
    pub(crate) const fn drawn(layers: u64) -> Self {
        Self {
            layers,
            hidden: 1024,
            heads: 8,
            kv_heads: 4,
            head_dim: 128,
            ffn: 4096,
            vocab: 32_000,
            gated: true,
            tied: false,
        }
    }
}

impl Transformer {
    /// The names of the presets, in the order in which help lists them; those of models that are
    /// trained here are known too.
    pub fn presets() -> impl Iterator<Item = &'static str> {
        PRESETS.iter().map(|(name, _)| *name).chain(Model::PRESETS.iter().copied())
    }

    /// A preset, a TOML file with the sizes, a `config.json`, or a folder that holds one.
    ///
    /// # Errors
    /// If there is no such preset or file, or if it does not describe a model.
    pub fn read(word: &str) -> Result<Self, ConfigError> {
        if let Some((name, text)) = PRESETS.iter().find(|(name, _)| *name == word) {
            return Self::from_toml(text, name);
        }
        if Model::PRESETS.contains(&word) {
            return Ok(Self::from(&Model::preset(word)?));
        }
        let path = Path::new(word);
        if !path.exists() {
            let names: Vec<&str> = Self::presets().chain(["FILE.toml", "DIR"]).collect();
            return Err(unknown_word("model", word, &names));
        }
        let file = if path.is_dir() { path.join("config.json") } else { path.to_owned() };
        let text = std::fs::read_to_string(&file).map_err(|source| ConfigError::File {
            path: file.clone(),
            source,
            remedy: "Give a folder with a config.json, a TOML file, or a preset".into(),
        })?;
        let name = file.display().to_string();
        if file.extension().is_some_and(|end| end.eq_ignore_ascii_case("toml")) {
            Self::from_toml(&text, &name)
        } else {
            Self::from_config_json(&text, &name)
        }
    }

    fn from_toml(text: &str, file: &str) -> Result<Self, ConfigError> {
        let model: Self = toml::from_str(text).map_err(|error| {
            let why = format!("describes no model ({})", error.message());
            ConfigError::value(file, why, "Take a file of assets/models as a pattern")
        })?;
        model.checked(file)
    }

    /// Sizes alone: what a checkpoint's numbers mean does not change how long a step takes.
    fn from_config_json(text: &str, file: &str) -> Result<Self, ConfigError> {
        let value: Value = serde_json::from_str(text).map_err(|error| {
            ConfigError::value(file, format!("is not JSON ({error})"), "Correct the file")
        })?;
        let number =
            |names: &[&str]| names.iter().find_map(|name| value.get(name).and_then(Value::as_u64));
        let needed = |names: &[&str]| {
            number(names).ok_or_else(|| {
                let remedy = "Give a config.json of the GPT or Llama family";
                ConfigError::value(file, format!("has no {}", names.join(" or ")), remedy)
            })
        };
        let hidden = needed(&["hidden_size", "n_embd"])?;
        let heads = needed(&["num_attention_heads", "n_head"])?;
        let activation = ["hidden_act", "activation_function"];
        let activation = activation.iter().find_map(|name| value.get(name).and_then(Value::as_str));
        let model = Self {
            layers: needed(&["num_hidden_layers", "n_layer"])?,
            hidden,
            heads,
            kv_heads: number(&["num_key_value_heads"]).unwrap_or(heads),
            head_dim: number(&["head_dim"]).unwrap_or(hidden / heads.max(1)),
            ffn: number(&["intermediate_size", "n_inner"]).unwrap_or(4 * hidden),
            vocab: needed(&["vocab_size"])?,
            gated: matches!(activation, Some("silu" | "swish")),
            tied: value
                .get("tie_word_embeddings")
                .and_then(Value::as_bool)
                .unwrap_or_else(|| number(&["n_embd"]).is_some()),
        };
        model.checked(file)
    }

    fn checked(self, file: &str) -> Result<Self, ConfigError> {
        let sizes = [
            ("layers", self.layers),
            ("hidden", self.hidden),
            ("heads", self.heads),
            ("kv_heads", self.kv_heads),
            ("head_dim", self.head_dim),
            ("ffn", self.ffn),
            ("vocab", self.vocab),
        ];
        let empty = sizes.iter().filter(|(_, size)| *size == 0);
        let fault = |(what, _): &(&str, u64)| {
            ConfigError::value(format!("{file}: {what}"), "is 0", "Give at least 1")
        };
        ConfigError::collect(empty.map(fault).collect())?;
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_have_the_parameters_of_their_names() {
        let billions = |name| Transformer::read(name).unwrap().parameters() as f64 / 1e9;
        for (name, expected) in [
            ("gpt-175b", 174.6),
            ("gpt-530b", 529.6),
            ("llama-3-8b", 8.03),
            ("llama-3-405b", 405.8),
        ] {
            assert!((billions(name) / expected - 1.0).abs() < 0.005, "{name}: {}", billions(name));
        }
        assert!(Transformer::read("shakespeare").unwrap().gated);
    }

    #[test]
    fn both_families_of_config_json_are_read_and_a_missing_size_is_named() {
        let gpt2 = r#"{"n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257,
            "activation_function": "gelu_new"}"#;
        let model = Transformer::from_config_json(gpt2, "gpt2").unwrap();
        assert_eq!((model.ffn, model.gated, model.tied, model.head_dim), (3072, false, true, 64));
        let error = Transformer::from_config_json("{}", "here").unwrap_err().to_string();
        assert!(error.contains("here: has no hidden_size or n_embd"), "{error}");
        let error = Transformer::read("llama-3-80b").unwrap_err().to_string();
        assert!(error.contains("Did you mean `llama-3-8b`?"), "{error}");
    }
}
