//! What is wrong with a configuration, in three parts: what, why, what to do.
//!
//! Checks collect all faults of a configuration before they answer. Whether a layout can run is
//! not asked here: that is the planner's closed list of refusals.

use std::path::PathBuf;

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
    /// A file cannot be read.
    #[error("{}: cannot be read ({source}). {remedy}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
        /// What to do.
        remedy: String,
    },
    /// Several things are wrong, one a line.
    #[error("{}", lines(faults))]
    Many {
        /// All of them.
        faults: Vec<Self>,
    },
}

impl ConfigError {
    /// A value that cannot be used: which setting, why, what to do.
    pub fn value(
        what: impl Into<String>,
        why: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::Value { what: what.into(), why: why.into(), remedy: remedy.into() }
    }

    /// All faults as one error.
    ///
    /// # Errors
    /// If there is a fault.
    pub fn collect(mut faults: Vec<Self>) -> Result<(), Self> {
        match faults.len() {
            0 => Ok(()),
            1 => Err(faults.remove(0)),
            _ => Err(Self::Many { faults }),
        }
    }
}

fn lines(faults: &[ConfigError]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// The candidate that a person most likely meant by `word`, if one is close enough.
pub(super) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    candidates
        .into_iter()
        .map(|candidate| (edits(word, candidate), candidate))
        .filter(|(edits, candidate)| *edits <= 1 + word.len().min(candidate.len()) / 3)
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// Edit distance of two words, blind to case and to `-` against `_`.
fn edits(a: &str, b: &str) -> usize {
    let letters = |word: &str| word.to_lowercase().replace('_', "-").into_bytes();
    let (a, b) = (letters(a), letters(b));
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// Gives an enum of a setting its words for people: `FromStr`, `Display` and the list for help
/// texts, all from one table.
macro_rules! words {
    ($kind:ty, $setting:literal, [$($word:literal => $value:path),+ $(,)?]) => {
        impl $kind {
            /// The words by which people name the values, in the order in which help lists them.
            pub const WORDS: &'static [&'static str] = &[$($word),+];
        }
        impl std::str::FromStr for $kind {
            type Err = $crate::config::ConfigError;
            fn from_str(word: &str) -> Result<Self, Self::Err> {
                match word {
                    $($word => Ok($value),)+
                    _ => Err($crate::config::error::unknown_word($setting, word, Self::WORDS)),
                }
            }
        }
        impl std::fmt::Display for $kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(match self {
                    $($value => $word,)+
                })
            }
        }
    };
}
pub(super) use words;

/// The error for a word that is none of a setting's values.
pub(super) fn unknown_word(setting: &str, word: &str, words: &[&str]) -> ConfigError {
    let remedy = match nearest(word, words.iter().copied()) {
        Some(near) => format!("Did you mean `{near}`? Known: {}", words.join(", ")),
        None => format!("Use one of {}", words.join(", ")),
    };
    ConfigError::value(setting, format!("`{word}` is not known"), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_found_through_typing_errors_and_not_invented() {
        let words = ["microbatches", "dp", "rank-order", "recompute"];
        assert_eq!(nearest("microbatchs", words), Some("microbatches"));
        assert_eq!(nearest("rank_order", words), Some("rank-order"));
        assert_eq!(nearest("Recompote", words), Some("recompute"));
        assert_eq!(nearest("banana", words), None);
        assert_eq!(edits("kitten", "sitting"), 3);
    }
}
