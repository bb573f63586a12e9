//! A scenario: everything that a run needs, in one TOML file.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Layout, Model, Training};

/// Everything that a run needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Scenario {
    /// A name for people.
    pub name: String,
    /// The model's sizes.
    pub model: Model,
    /// The parallel layout.
    #[serde(default)]
    pub layout: Layout,
    /// Training settings.
    #[serde(default)]
    pub training: Training,
    /// What is trained on.
    #[serde(default)]
    pub data: Data,
}

/// What is trained on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Data {
    /// The Shakespeare text that is built into the program, bytes as tokens.
    #[default]
    Shakespeare,
    /// A text file (bytes as tokens) or a token file.
    File(PathBuf),
}

/// What is wrong with a configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A value cannot be used.
    #[error("{what}: {why}. {remedy}")]
    Value {
        /// Which setting.
        what: String,
        /// Why it cannot be used.
        why: String,
        /// What to do.
        remedy: String,
    },
}
