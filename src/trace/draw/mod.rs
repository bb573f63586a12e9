//! The picture of a step as geometry: which block of time each rank spends on what.
//!
//! Pure functions from a Plan, its order and a Trace to sorted blocks; no colours, fonts or pixels
//! of any program. [`blocks()`] cuts a step into level-1 blocks, [`super::cause`] says what a rank
//! waits for, [`axis`] finds round numbers for a time axis, [`playback`] how slowly a step is shown.

pub mod axis;
pub mod export;
pub mod fonts;
pub mod minimap;
pub mod collective;
pub mod curve;
pub mod memory;
pub mod numbers;
pub mod playback;
pub mod scene;
pub mod scroll;
pub mod svg;
pub mod theme;
pub mod timeline;
pub mod wires;
mod blocks;
mod pen;
#[cfg(test)]
mod audit;
#[cfg(test)]
pub(crate) mod sketch;

pub use blocks::blocks;

use std::fmt;

use crate::mesh::Rank;
use crate::plan::{CollectiveKind, Origin, Phase};
use crate::trace::Span;
use crate::trace::cause::Cause;
use crate::units::Nanos;

/// What a rank spends a block of time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Work {
    /// Forward of a microbatch.
    Forward,
    /// Forward run again for backward.
    Recompute,
    /// Full backward of a microbatch.
    Backward,
    /// Input gradients of a microbatch alone.
    InputGrad,
    /// Weight gradients of a microbatch alone.
    WeightGrad,
    /// Gradients are summed, each rank keeps its piece.
    ReduceScatter,
    /// Gradients are summed, each rank keeps the whole.
    AllReduce,
    /// The global gradient norm.
    Norm,
    /// The optimizer.
    Optimizer,
    /// Weights are shared.
    WeightGather,
    /// Anything else: hand-written Plans.
    Other,
}

impl Work {
    /// All kinds in the order of a legend.
    pub const ALL: [Self; 11] = [
        Self::Forward,
        Self::Recompute,
        Self::Backward,
        Self::InputGrad,
        Self::WeightGrad,
        Self::ReduceScatter,
        Self::AllReduce,
        Self::Norm,
        Self::Optimizer,
        Self::WeightGather,
        Self::Other,
    ];

    /// What an instruction of this origin is part of.
    pub fn of(origin: Origin) -> Self {
        match origin.phase {
            Phase::Forward => Self::Forward,
            Phase::Recompute => Self::Recompute,
            Phase::Backward => Self::Backward,
            Phase::InputGrad => Self::InputGrad,
            Phase::WeightGrad => Self::WeightGrad,
            Phase::GradReduce => match origin.collective.map(|collective| collective.kind) {
                Some(CollectiveKind::ReduceScatter) => Self::ReduceScatter,
                _ => Self::AllReduce,
            },
            Phase::Norm => Self::Norm,
            Phase::Optimizer => Self::Optimizer,
            Phase::WeightGather => Self::WeightGather,
            Phase::Other => Self::Other,
        }
    }

    /// The letters that stand for it on a block and in a legend.
    pub const fn letters(self) -> &'static str {
        match self {
            Self::Forward => "F",
            Self::Recompute => "R",
            Self::Backward => "B",
            Self::InputGrad => "I",
            Self::WeightGrad => "W",
            Self::ReduceScatter => "RS",
            Self::AllReduce => "AR",
            Self::Norm => "N",
            Self::Optimizer => "O",
            Self::WeightGather => "AG",
            Self::Other => "+",
        }
    }

    /// What the letters mean, for a legend.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Recompute => "forward again",
            Self::Backward => "backward",
            Self::InputGrad => "input gradients",
            Self::WeightGrad => "weight gradients",
            Self::ReduceScatter | Self::AllReduce => "sum gradients",
            Self::Norm => "gradient norm",
            Self::Optimizer => "optimizer",
            Self::WeightGather => "share weights",
            Self::Other => "other work",
        }
    }

    /// Whether it works on one microbatch in one stage: a pass of the schedule.
    pub const fn is_pass(self) -> bool {
        matches!(
            self,
            Self::Forward | Self::Recompute | Self::Backward | Self::InputGrad | Self::WeightGrad
        )
    }
}

/// What a block shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// The rank works.
    Work(Work),
    /// The rank waits.
    Waiting(Cause),
}

/// A stretch of a rank's time at level 1: a cell of its schedule, a collective, or a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Whose time it is.
    pub rank: Rank,
    /// First instant.
    pub start: Nanos,
    /// First instant of the next block.
    pub end: Nanos,
    /// What is shown.
    pub kind: BlockKind,
    /// Of a pass, the microbatch.
    pub microbatch: Option<u32>,
    /// Of a pass, the stage.
    pub stage: Option<u32>,
    /// Waits inside the block, ascending and disjoint: they count as waiting.
    pub notches: Vec<Span>,
    /// Of a backward, where forward is run again inside it, ascending and disjoint.
    pub recompute: Vec<Span>,
}

impl Block {
    /// From its first to its last instant, waits inside it included.
    pub fn duration(&self) -> Nanos {
        self.end - self.start
    }

    /// How long the rank waits in it.
    pub fn waiting(&self) -> Nanos {
        match self.kind {
            BlockKind::Waiting(_) => self.duration(),
            BlockKind::Work(_) => self.notches.iter().map(|notch| notch.duration()).sum(),
        }
    }

    /// How long the rank works in it.
    pub fn busy(&self) -> Nanos {
        self.duration() - self.waiting()
    }

    /// What it works on; `None` for a wait.
    pub fn work(&self) -> Option<Work> {
        match self.kind {
            BlockKind::Work(work) => Some(work),
            BlockKind::Waiting(_) => None,
        }
    }

    /// What it waits for; `None` for work.
    pub fn cause(&self) -> Option<Cause> {
        match self.kind {
            BlockKind::Work(_) => None,
            BlockKind::Waiting(cause) => Some(cause),
        }
    }

    /// The block cut where forward is run again: what is done and when, without holes.
    pub fn pieces(&self) -> Vec<(BlockKind, Span)> {
        let mut pieces = Vec::with_capacity(2 * self.recompute.len() + 1);
        let mut at = self.start;
        for &again in &self.recompute {
            if at < again.start {
                pieces.push((self.kind, Span { start: at, end: again.start }));
            }
            pieces.push((BlockKind::Work(Work::Recompute), again));
            at = again.end;
        }
        if at < self.end {
            pieces.push((self.kind, Span { start: at, end: self.end }));
        }
        pieces
    }
}

/// Writes `F3`, `RS`, or `waiting`.
impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            BlockKind::Work(work) => f.write_str(&label(work, self.microbatch)),
            BlockKind::Waiting(_) => f.write_str("waiting"),
        }
    }
}

/// What stands on a block: `F3` for a pass of a microbatch, else the letters alone.
pub fn label(work: Work, microbatch: Option<u32>) -> String {
    match microbatch {
        Some(microbatch) if work.is_pass() => format!("{}{microbatch}", work.letters()),
        _ => work.letters().to_owned(),
    }
}

/// The block that covers an instant; the blocks of one rank, as [`blocks()`] gives them.
pub fn block_at(row: &[Block], time: Nanos) -> Option<&Block> {
    let index = row.partition_point(|block| block.end <= time);
    row.get(index).filter(|block| block.start <= time)
}

/// The shortest forward block of all ranks: what decides how slowly a step must be shown.
pub fn shortest_forward<'a>(blocks: impl IntoIterator<Item = &'a Block>) -> Option<Nanos> {
    let forwards = blocks.into_iter().filter(|b| b.kind == BlockKind::Work(Work::Forward));
    forwards.map(Block::duration).min()
}
