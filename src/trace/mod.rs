//! What happened when: spans over the instructions of a Plan, measured, replayed or predicted.
//!
//! A Trace never repeats what the Plan says: a span is two times for an instruction. All clocks
//! have the same form, so they lie on one timeline without any glue.

pub mod bubble;
pub mod idle;
pub mod critical_path;
pub mod occupancy;
pub mod rates;
pub mod cause;
pub mod captured;
pub mod held;
pub mod draw;
pub mod export;
pub(crate) mod cover;

use serde::{Deserialize, Serialize};

use crate::mesh::Rank;
use crate::units::Nanos;

/// Where the times of a Trace come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Clock {
    /// Wall clock of this run; virtual ranks on one device take turns.
    Measured,
    /// Measured durations laid out as if each rank had its own device.
    Replayed,
    /// Cost model of a described cluster, or of this machine's cores from kernels measured one by one.
    Predicted,
}

/// Where any number comes from: every one that is shown wears one of these words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Badge {
    /// Exact, the same on every machine.
    Counted,
    /// Wall clock of this run.
    Measured,
    /// Measured pieces, laid out as if every rank had its own device.
    Replayed,
    /// Cost model of a described cluster.
    Predicted,
    /// Textbook.
    Formula,
}

impl Badge {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Counted, Self::Measured, Self::Replayed, Self::Predicted, Self::Formula];

    /// The word as it is printed.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Counted => "COUNTED",
            Self::Measured => "MEASURED",
            Self::Replayed => "REPLAYED",
            Self::Predicted => "PREDICTED",
            Self::Formula => "FORMULA",
        }
    }
}

impl Badge {
    /// What the word means, in a few more.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Counted => "exact, the same on every machine",
            Self::Measured => "clock time of this run",
            Self::Replayed => "measured pieces, laid out as if every rank had its own device",
            Self::Predicted => "cost model of a described cluster or of this machine",
            Self::Formula => "textbook, F = 1 and B = 2",
        }
    }
}

impl From<Clock> for Badge {
    fn from(clock: Clock) -> Self {
        match clock {
            Clock::Measured => Self::Measured,
            Clock::Replayed => Self::Replayed,
            Clock::Predicted => Self::Predicted,
        }
    }
}

/// When one instruction ran, from the start of the step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Start.
    pub start: Nanos,
    /// End, never before the start.
    pub end: Nanos,
}

impl Span {
    /// How long it took.
    pub fn duration(self) -> Nanos {
        self.end - self.start
    }

    /// Whether they have time in common; an instant lies in what begins with it.
    pub fn touches(self, other: Self) -> bool {
        self.start < other.end && (self.end > other.start || self.start == other.start)
    }
}

/// How a message got to the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Path {
    /// One copy inside the memory of a device.
    Direct,
    /// Device → staging → host → device.
    Staged,
}

/// The spans of one step, `spans[rank][instruction]`. A send and its receive have the same span.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// Whose time it is.
    pub clock: Clock,
    /// Which step, 0-based.
    pub step: u64,
    /// `spans[rank][instruction index]`.
    pub spans: Vec<Vec<Span>>,
    /// `paths[from rank][to rank]` of the messages; empty where no executor ran.
    pub paths: Vec<Vec<Path>>,
}

impl Trace {
    /// The span of an instruction.
    pub fn span(&self, rank: Rank, instr: usize) -> Span {
        self.spans[rank.index()][instr]
    }

    /// When the last instruction ended.
    pub fn end(&self) -> Nanos {
        self.spans.iter().flatten().map(|span| span.end).max().unwrap_or_default()
    }
}
