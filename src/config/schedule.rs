//! Pipeline schedules by name: the words, and how many stages a position each of them places.
//!
//! What a schedule looks like is the planner's business: see `planner::schedule`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::ConfigError;
use super::error::unknown_word;

/// A pipeline schedule by name or file; a word that ends in `.csv` is a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ScheduleName {
    /// All forwards, then all backwards (arXiv:1811.06965).
    GPipe,
    /// One forward, one backward (arXiv:1806.03377, 2104.04473).
    #[default]
    OneFOneB,
    /// 1F1B with several stages a position in a loop (arXiv:2104.04473).
    Interleaved1F1B,
    /// Breadth first through several stages a position in a loop (arXiv:2211.05953).
    LoopedBfs,
    /// Zero bubble in the memory of 1F1B (arXiv:2401.10241).
    ZbH1,
    /// Zero bubble in twice the memory (arXiv:2401.10241).
    ZbH2,
    /// Zero bubble on several stages a position in a loop (arXiv:2401.10241).
    InterleavedZeroBubble,
    /// Zero bubble on two stages a position in a V (arXiv:2405.15362).
    ZbV,
    /// Pairs of a forward and a backward on two stages a position in a V (arXiv:2412.19437).
    DualPipeV,
    /// A table in the CSV grammar of torch.distributed.pipelining.
    File(PathBuf),
}

/// How a schedule places stages on pipeline positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stages {
    /// One stage a position.
    One,
    /// Any number a position, in a loop: position `i` of `p` holds `i, i + p, i + 2p, …`.
    Loop,
    /// Two a position, in a V: position `i` of `p` holds `i` and `2p − 1 − i`.
    V,
    /// As its file says.
    Given,
}

impl Stages {
    /// Whether so many stages a position can be placed.
    pub fn allows(self, chunks: u32) -> bool {
        match self {
            Self::One => chunks == 1,
            Self::V => chunks == 2,
            Self::Loop | Self::Given => chunks > 0,
        }
    }

    /// How many stages a position get that had `chunks` and are not asked for: a loop of one would
    /// be no loop.
    pub fn usual(self, chunks: u32) -> u32 {
        match self {
            Self::One => 1,
            Self::V => 2,
            Self::Loop => chunks.max(2),
            Self::Given => chunks,
        }
    }
}

impl ScheduleName {
    /// The named schedules, in the order in which help lists them.
    pub const NAMED: [Self; 9] = [
        Self::GPipe,
        Self::OneFOneB,
        Self::Interleaved1F1B,
        Self::LoopedBfs,
        Self::ZbH1,
        Self::ZbH2,
        Self::InterleavedZeroBubble,
        Self::ZbV,
        Self::DualPipeV,
    ];

    /// Their words, in the same order.
    pub const WORDS: &'static [&'static str] = &[
        "gpipe",
        "1f1b",
        "interleaved-1f1b",
        "looped-bfs",
        "zb-h1",
        "zb-h2",
        "interleaved-zero-bubble",
        "zb-v",
        "dualpipe-v",
    ];

    /// How papers write the name; a file by its own.
    pub fn title(&self) -> String {
        match self {
            Self::GPipe => "GPipe".into(),
            Self::OneFOneB => "1F1B".into(),
            Self::Interleaved1F1B => "interleaved 1F1B".into(),
            Self::LoopedBfs => "looped BFS".into(),
            Self::ZbH1 => "ZB-H1".into(),
            Self::ZbH2 => "ZB-H2".into(),
            Self::InterleavedZeroBubble => "interleaved zero bubble".into(),
            Self::ZbV => "ZB-V".into(),
            Self::DualPipeV => "DualPipe-V".into(),
            Self::File(path) => {
                path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
            }
        }
    }

    /// How the schedule places its stages.
    pub fn stages(&self) -> Stages {
        match self {
            Self::GPipe | Self::OneFOneB | Self::ZbH1 | Self::ZbH2 => Stages::One,
            Self::Interleaved1F1B | Self::LoopedBfs | Self::InterleavedZeroBubble => Stages::Loop,
            Self::ZbV | Self::DualPipeV => Stages::V,
            Self::File(_) => Stages::Given,
        }
    }
}

impl FromStr for ScheduleName {
    type Err = ConfigError;
    fn from_str(word: &str) -> Result<Self, ConfigError> {
        if word.to_ascii_lowercase().ends_with(".csv") {
            return Ok(Self::File(word.into()));
        }
        // `DualPipeV`, `zbv` and `looped_bfs` are not mistaken for anything else.
        let letters = |word: &str| word.to_ascii_lowercase().replace(['-', '_', ' '], "");
        let wanted = letters(word);
        let found = Self::WORDS.iter().position(|known| letters(known) == wanted);
        found.map(|index| Self::NAMED[index].clone()).ok_or_else(|| {
            let known: Vec<_> = Self::WORDS.iter().copied().chain(["FILE.csv"]).collect();
            unknown_word("schedule", word, &known)
        })
    }
}

impl fmt::Display for ScheduleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::File(path) = self {
            return path.display().fmt(f);
        }
        let index = Self::NAMED.iter().position(|named| named == self);
        f.pad(Self::WORDS[index.expect("all but files are named")])
    }
}

impl TryFrom<String> for ScheduleName {
    type Error = ConfigError;
    fn try_from(word: String) -> Result<Self, ConfigError> {
        word.parse()
    }
}

impl From<ScheduleName> for String {
    fn from(name: ScheduleName) -> Self {
        name.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_papers_and_programs_write_them() {
        for (index, word) in ScheduleName::WORDS.iter().enumerate() {
            let name: ScheduleName = word.parse().unwrap();
            assert_eq!(name, ScheduleName::NAMED[index]);
            assert_eq!(name.to_string(), *word);
            assert_eq!(name.title().parse::<ScheduleName>().unwrap(), name, "{word}");
        }
        for (word, name) in [
            ("DualPipeV", ScheduleName::DualPipeV),
            ("Interleaved1F1B", ScheduleName::Interleaved1F1B),
            ("InterleavedZeroBubble", ScheduleName::InterleavedZeroBubble),
            ("LoopedBFS", ScheduleName::LoopedBfs),
            ("zbv", ScheduleName::ZbV),
        ] {
            assert_eq!(word.parse::<ScheduleName>().unwrap(), name);
        }
        assert_eq!("a/zb.CSV".parse::<ScheduleName>().unwrap().title(), "zb.CSV");
    }

    #[test]
    fn a_schedule_places_only_the_chunks_it_knows() {
        let allowed = |name: ScheduleName| (0..4).map(move |chunks| name.stages().allows(chunks));
        let count = |name| allowed(name).filter(|allows| *allows).count();
        assert_eq!(ScheduleName::NAMED.map(count), [1, 1, 3, 3, 1, 1, 3, 1, 1]);
    }
}
