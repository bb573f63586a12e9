//! What is trained on: tokens from a text or a token file, and the batches of every step.
//!
//! A [`Dataset`] is a list of tokens, its last tenth held out; [`Batches`] cuts it into rows and
//! says which rows are whose. Which rank reads which rows of a batch is [`rows_by_rank`]'s answer;
//! the Plan's input buffers say the same.

pub mod shuffle;
mod batches;
mod file;

pub use batches::{Batch, Batches, rows_by_rank};

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::config::Data;

/// Tokens in a row, with a name for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dataset {
    name: String,
    /// Little-endian tokens.
    bytes: Cow<'static, [u8]>,
    width: Width,
}

/// Bytes of a stored token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Width {
    U8 = 1,
    U16 = 2,
    U32 = 4,
}

impl Dataset {
    /// The Shakespeare text that is built into the program: plays, 996 363 bytes.
    pub fn shakespeare() -> Self {
        let text = include_bytes!("../../assets/corpus/shakespeare.txt");
        Self { name: "shakespeare".into(), bytes: Cow::Borrowed(text), width: Width::U8 }
    }

    /// The data of a scenario.
    ///
    /// # Errors
    /// As [`Dataset::read`].
    pub fn open(data: &Data) -> Result<Self, DataError> {
        match data {
            Data::Shakespeare => Ok(Self::shakespeare()),
            Data::File(path) => Self::read(path),
        }
    }

    /// Reads a file: `.safetensors` (one tensor, or the one named `tokens`), `.u16` or `.u32` (raw
    /// little-endian tokens), anything else as text, whose bytes are the tokens.
    ///
    /// # Errors
    /// If the file cannot be read or is not what its extension says.
    pub fn read(path: &Path) -> Result<Self, DataError> {
        file::read(path)
    }

    /// The bytes of a text as tokens.
    pub fn from_text(name: impl Into<String>, text: impl Into<Vec<u8>>) -> Self {
        Self { name: name.into(), bytes: Cow::Owned(text.into()), width: Width::U8 }
    }

    /// Tokens from memory.
    pub fn from_tokens(name: impl Into<String>, tokens: &[u32]) -> Self {
        let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
        Self { name: name.into(), bytes: Cow::Owned(bytes), width: Width::U32 }
    }

    /// A name for people: a path, or what is built in.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of tokens.
    pub fn len(&self) -> u64 {
        (self.bytes.len() / self.width as usize) as u64
    }

    /// Whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tokens of a range of positions.
    ///
    /// # Panics
    /// If the range reaches past the end.
    pub fn tokens(&self, range: Range<u64>) -> impl Iterator<Item = u32> {
        let width = self.width as usize;
        let bytes = &self.bytes[range.start as usize * width..range.end as usize * width];
        bytes
            .chunks_exact(width)
            .map(|token| token.iter().rev().fold(0, |value, byte| (value << 8) | u32::from(*byte)))
    }

    /// Positions that are trained on: all but the last tenth.
    pub fn trained(&self) -> Range<u64> {
        0..self.len() - self.len() / 10
    }

    /// Positions that are held out: the last tenth.
    pub fn held_out(&self) -> Range<u64> {
        self.trained().end..self.len()
    }

    /// Checks that every token is one of a vocabulary.
    ///
    /// # Errors
    /// With the first token that is not, and its position in the file.
    pub fn check_vocabulary(&self, vocab_size: u32) -> Result<(), DataError> {
        let mut tokens = (0..).zip(self.tokens(0..self.len()));
        match tokens.find(|(_, token)| *token >= vocab_size) {
            None => Ok(()),
            Some((position, token)) => Err(DataError::Vocabulary {
                name: self.name.clone(),
                token,
                position,
                byte: position * self.width as u64,
                vocab_size,
            }),
        }
    }

    /// Entropy of a token in nats: the loss of a model that only knows how frequent each one is.
    pub fn byte_entropy(&self) -> f64 {
        entropy(self.tokens(0..self.len()))
    }

    /// Entropy of a token given the one before it, in nats: the loss of the best model that sees
    /// one token. A transformer that gets below it has learned to look further back.
    pub fn pair_entropy(&self) -> f64 {
        let tokens = || self.tokens(0..self.len());
        let firsts = tokens().take((self.len() as usize).saturating_sub(1));
        entropy(tokens().zip(tokens().skip(1))) - entropy(firsts)
    }
}

/// Losses of models that know little, in nats a byte: the marks of a loss curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Marks {
    /// Of one that knows how frequent each byte is.
    pub bytes: f64,
    /// Of one that also sees the byte before: what must be beaten.
    pub pairs: f64,
}

impl Marks {
    /// Tokens up to which counting pairs takes no time that anybody notices.
    const TOKENS_MAX: u64 = 1 << 23;

    /// Counts the data of a model with this vocabulary, if they are bytes.
    pub fn of(data: &Dataset, vocab_size: u32) -> Option<Self> {
        let counted = vocab_size <= 256 && data.len() <= Self::TOKENS_MAX;
        counted.then(|| Self { bytes: data.byte_entropy(), pairs: data.pair_entropy() })
    }
}

/// Entropy in nats of the items' frequencies.
fn entropy<T: Ord>(items: impl Iterator<Item = T>) -> f64 {
    let mut counts = BTreeMap::<T, u64>::new();
    for item in items {
        *counts.entry(item).or_default() += 1;
    }
    let total = counts.values().sum::<u64>() as f64;
    counts.values().map(|&count| count as f64 / total).map(|share| -share * share.ln()).sum()
}

/// Why data cannot be trained on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// A file cannot be read.
    #[error(
        "{}: cannot be read ({source}). Give a text file (bytes become tokens), .u16 or .u32 (raw little-endian tokens), or .safetensors",
        path.display()
    )]
    File {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file is not what its extension says.
    #[error("{}: {why}. {remedy}", path.display())]
    Format {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        why: String,
        /// What to do.
        remedy: String,
    },
    /// Not one row fits.
    #[error(
        "{name}: {trained} tokens to train on (of {tokens}; the last tenth is held out) hold no row of seq {seq} + 1. Use a longer file or a smaller --seq"
    )]
    TooShort {
        /// Which data.
        name: String,
        /// Tokens to train on.
        trained: u64,
        /// All tokens.
        tokens: u64,
        /// Tokens of a row.
        seq: u32,
    },
    /// A token is not in the model's vocabulary.
    #[error(
        "{name}: token {token} at position {position} (byte {byte}) is not below the vocabulary of {vocab_size}. Use a model with a larger vocab_size, or data made for this one"
    )]
    Vocabulary {
        /// Which data.
        name: String,
        /// The token.
        token: u32,
        /// Its position, in tokens from 0.
        position: u64,
        /// Its position in bytes of the token list.
        byte: u64,
        /// Tokens of the vocabulary.
        vocab_size: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shakespeare_has_the_entropies_that_make_the_marks_of_the_loss_curve() {
        let text = Dataset::shakespeare();
        assert_eq!(text.len(), 996_363);
        assert!((text.byte_entropy() - 3.304).abs() < 1e-3, "{}", text.byte_entropy());
        assert!((text.pair_entropy() - 2.490).abs() < 1e-3, "{}", text.pair_entropy());
    }

    #[test]
    fn entropies_of_texts_that_can_be_done_by_hand() {
        let coin = Dataset::from_text("coin", "abab");
        assert!((coin.byte_entropy() - 2f64.ln()).abs() < 1e-12);
        // After an a comes b and after a b comes a.
        assert!(coin.pair_entropy().abs() < 1e-12);
        assert_eq!(Dataset::from_text("none", "").byte_entropy(), 0.0);
    }

    #[test]
    fn a_token_outside_the_vocabulary_is_refused_with_its_place() {
        let data = Dataset::from_tokens("mine.u32", &[1, 70_000, 299, 300]);
        assert!(data.check_vocabulary(70_001).is_ok());
        let error = data.check_vocabulary(300).unwrap_err().to_string();
        assert!(error.contains("token 70000 at position 1 (byte 4) is not below"), "{error}");
        let error = Dataset::shakespeare().check_vocabulary(100).unwrap_err().to_string();
        assert!(error.contains("vocabulary of 100"), "{error}");
    }

    #[test]
    fn the_last_tenth_is_held_out() {
        let data = Dataset::from_text("x", vec![0; 109]);
        assert_eq!((data.trained(), data.held_out()), (0..99, 99..109));
    }
}
