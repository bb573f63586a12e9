//! Weights and optimizer state outside of the ranks: initial values, files, reference cases.
//!
//! All of it speaks of logical tensors, whole and by Hugging Face name. [`pieces`] is the only way
//! between those and the buffers of ranks, so a checkpoint written by one layout is read by any
//! other. What a step does with the weights is not known here.

pub mod files;
pub mod golden;
pub mod init;
pub mod pieces;
pub mod weights;

pub use files::{Checkpoint, State};
pub use golden::Golden;

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::config::ConfigError;
use crate::shape::Shape;

/// A logical tensor with its values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tensor {
    /// Sizes of the whole tensor.
    pub shape: Shape,
    /// All elements, row-major.
    pub data: Vec<f32>,
}

/// Logical tensors by name.
pub type Tensors = BTreeMap<String, Tensor>;

/// Why weights or state cannot be read, written or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The system refuses a file or folder.
    #[error("{}: {what} ({source}). {remedy}", path.display())]
    File {
        /// Which file or folder.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
        /// What to do.
        remedy: String,
    },
    /// A file or folder holds something else than it should.
    #[error("{}: {why}. {remedy}", path.display())]
    Format {
        /// Which file or folder.
        path: PathBuf,
        /// What is wrong.
        why: String,
        /// What to do.
        remedy: String,
    },
    /// Tensors do not fit the model.
    #[error("{source_name}: {why}. {remedy}")]
    Tensors {
        /// Where they come from.
        source_name: String,
        /// Which ones, and how they differ.
        why: String,
        /// What to do.
        remedy: String,
    },
    /// The settings inside are wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// How tensors differ from the ones that are needed; `None` if they have all names and shapes.
/// Tensors beyond those are not looked at.
fn misfit<'a>(
    tensors: &Tensors,
    needed: impl Iterator<Item = (&'a str, &'a Shape)>,
) -> Option<String> {
    let (mut missing, mut differing) = (Vec::new(), Vec::new());
    for (name, shape) in needed {
        match tensors.get(name) {
            None => missing.push(name.to_owned()),
            Some(tensor) if tensor.shape != *shape => {
                differing.push(format!("{name} is {}, not {shape}", tensor.shape));
            }
            Some(_) => {}
        }
    }
    let mut faults = Vec::new();
    if !missing.is_empty() {
        faults.push(format!("missing {}", first_few(&missing)));
    }
    if !differing.is_empty() {
        faults.push(first_few(&differing));
    }
    (!faults.is_empty()).then(|| faults.join("; "))
}

/// The first few of a list that may be long.
fn first_few(names: &[String]) -> String {
    const SHOWN: usize = 4;
    let shown = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
