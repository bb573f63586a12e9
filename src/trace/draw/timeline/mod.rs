//! The timeline: when each rank of a step works on what, when it waits and for whom.
//!
//! A [`Timeline`] is prepared once for a step that is shown; [`draw`] paints a window of it, as a
//! pure function of the step, a [`Frame`] and a theme. What lies under a point is a [`Target`],
//! which [`Timeline::explain`] puts into words. Colours are in [`super::theme`], shapes in
//! [`super::scene`]; who paints them and what a click does is no business of this room.

mod arrows;
mod cells;
mod classes;
mod frame;
mod hit;
mod layout;
mod margins;
mod paint;
mod row;
mod sides;
mod stops;
mod target;
mod words;

pub use classes::Alike;
pub use frame::{Arrows, Frame, Legend, MemoryColumn};
pub use layout::{Layout, RankLines, RowBox, RowKind};
pub use margins::{Shows, draw_legend};
pub use paint::draw;
pub use stops::{Direction, Grain};
pub use target::{Level, Target};
pub use words::LONGEST;

use std::ops::Range;
use std::sync::Arc;

use self::margins::Kinds;
use self::row::RankRow;
use super::{Block, blocks};
use crate::ledger::ByRole;
use crate::mesh::Rank;
use crate::plan::order::Order;
use crate::plan::{Action, Plan};
use crate::trace::{Span, Trace};
use crate::units::{Bytes, Nanos};

/// A step, prepared for drawing: rows of blocks that are found by their time.
///
/// Every row covers `0..end()` without holes at every [`Level`], so what a rank works and what it
/// waits add up to the step.
#[derive(Debug)]
pub struct Timeline {
    plan: Arc<Plan>,
    trace: Arc<Trace>,
    end: Nanos,
    /// Index = rank.
    rows: Vec<RankRow>,
    /// Whether a position runs more than two stages.
    has_many_chunks: bool,
    /// Halves of messages, `[rank][half]`, ascending by instruction.
    halves: Vec<Vec<Half>>,
    /// Ranks from top to bottom: by pipeline position, then data, then tensor.
    top_down: Vec<Rank>,
    /// Index = rank; empty where nothing is known.
    memory: Vec<ByRole>,
    /// When a microbatch enters or leaves the pipeline, ascending.
    microbatches: Vec<Nanos>,
    /// Length of a unit where time is counted in units instead of seconds.
    unit: Option<Nanos>,
    /// What each rank stands for, index = rank; empty where each stands for itself.
    alike: Vec<Alike>,
    /// What a rank may hold at most.
    capacity: Option<Bytes>,
    /// Passes that run as one, `[rank][pair]`, ascending; empty where there are none.
    pairs: Vec<Vec<Span>>,
    /// What there is to be seen in it.
    kinds: Kinds,
}

/// One side of a message.
#[derive(Clone, Copy, Debug)]
struct Half {
    /// The send or receive.
    instr: u32,
    /// What made the message, or what waits for it first.
    work: Option<u32>,
    other: Rank,
    other_instr: u32,
}

impl Timeline {
    /// Prepares a step. `memory` is what is live at each rank's peak; empty to know nothing of it.
    ///
    /// # Panics
    /// If the Trace is not one of this Plan.
    pub fn new(plan: Arc<Plan>, order: &Order, trace: Arc<Trace>, memory: &[ByRole]) -> Self {
        let rows: Vec<RankRow> =
            blocks::rows(&plan, order, &trace).map(|row| RankRow::new(&plan, row)).collect();
        let mesh = plan.mesh;
        let mut top_down: Vec<Rank> = (0..rows.len() as u32).map(Rank).collect();
        top_down.sort_by_key(|&rank| {
            let at = mesh.coord(rank);
            (at.pp, at.dp, at.tp)
        });
        let stages = rows.iter().flat_map(|row| &row.blocks).filter_map(|block| block.stage);
        let has_many_chunks = stages.max().is_some_and(|last| last >= 2 * mesh.pp);
        let halves = halves(&plan, order);
        let microbatches = stops::microbatches(&rows);
        let kinds = (0..).map(Rank).zip(&rows).map(|(rank, row)| row.kinds(&plan, rank));
        let kinds = kinds.fold(Kinds::default(), Kinds::or);
        let (end, memory) = (trace.end(), memory.to_vec());
        Self {
            plan,
            trace,
            end,
            rows,
            has_many_chunks,
            halves,
            top_down,
            memory,
            microbatches,
            unit: None,
            alike: Vec::new(),
            capacity: None,
            pairs: Vec::new(),
            kinds,
        }
    }

    /// Counts time in units of this length: for schedules in which F = 1 and B = 2.
    #[must_use]
    pub fn in_units(mut self, unit: Nanos) -> Self {
        self.unit = Some(unit);
        self
    }

    /// Joins passes that run as one by a bar below them: of each rank, ascending.
    #[must_use]
    pub fn with_pairs(mut self, pairs: Vec<Vec<Span>>) -> Self {
        self.kinds.pairs = pairs.iter().any(|pairs| !pairs.is_empty());
        self.pairs = pairs;
        self
    }

    /// The Plan whose step it is.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// The times of the step.
    pub fn trace(&self) -> &Arc<Trace> {
        &self.trace
    }

    /// The length of the step.
    pub fn end(&self) -> Nanos {
        self.end
    }

    /// Length of a unit where time is counted in units instead of seconds.
    pub fn unit(&self) -> Option<Nanos> {
        self.unit
    }

    /// The level-1 blocks of a rank, ascending.
    pub fn blocks(&self, rank: Rank) -> &[Block] {
        &self.rows[rank.index()].blocks
    }

    /// Ranks from top to bottom.
    pub fn ranks(&self) -> &[Rank] {
        &self.top_down
    }

    /// What is live at the peak of a rank.
    pub fn memory(&self, rank: Rank) -> Option<&ByRole> {
        self.memory.get(rank.index())
    }

    /// The largest peak of all ranks.
    pub fn largest_peak(&self) -> Bytes {
        self.memory.iter().map(ByRole::total).max().unwrap_or_default()
    }

    /// How many blocks there are at a level, over all ranks.
    pub fn count(&self, level: Level) -> usize {
        self.rows.iter().map(|row| row.len(level)).sum()
    }

    /// When a rank has done its last work.
    pub fn done(&self, rank: Rank) -> Nanos {
        let row = &self.rows[rank.index()];
        row.blocks.iter().rev().find(|block| block.work().is_some()).map_or(Nanos(0), |b| b.end)
    }

    fn row(&self, rank: Rank) -> &RankRow {
        &self.rows[rank.index()]
    }

    /// The ranks of a pipeline position, from top to bottom.
    pub fn position(&self, position: u32) -> impl Iterator<Item = Rank> + '_ {
        let range = self.position_range(position);
        self.top_down[range].iter().copied()
    }

    fn position_range(&self, position: u32) -> Range<usize> {
        let of = |rank: &Rank| self.position_of(*rank);
        let start = self.top_down.partition_point(|rank| of(rank) < position);
        let end = self.top_down.partition_point(|rank| of(rank) <= position);
        start..end
    }

    /// The rank of a pipeline position that ends last; of equal ones the first.
    pub fn slowest(&self, position: u32) -> Option<Rank> {
        let mut slowest: Option<(Nanos, Rank)> = None;
        for rank in self.position(position) {
            let done = self.done(rank);
            if slowest.is_none_or(|(latest, _)| done > latest) {
                slowest = Some((done, rank));
            }
        }
        slowest.map(|(_, rank)| rank)
    }

    /// Passes of a rank that run as one, ascending.
    pub fn pairs_of(&self, rank: Rank) -> &[Span] {
        self.pairs.get(rank.index()).map_or(&[], Vec::as_slice)
    }

    /// Whether a position runs more than one stage.
    fn has_chunks(&self) -> bool {
        self.rows.iter().any(|row| row.has_chunks)
    }

    /// When an instruction ran.
    fn span_of(&self, rank: Rank, instr: u32) -> Span {
        self.trace.span(rank, instr as usize)
    }
}

/// The two sides of every message, with what made it and what waits for it.
fn halves(plan: &Plan, order: &Order) -> Vec<Vec<Half>> {
    let of_rank = |(rank, program): (Rank, &crate::plan::Program)| {
        let mut found: Vec<Half> = Vec::new();
        // The first line that waits for a receive; lines are met in order.
        let mut consumer = vec![None; program.instrs.len()];
        for (index, line) in (0u32..).zip(&program.instrs) {
            for before in order.predecessors(rank, index) {
                consumer[before as usize].get_or_insert(index);
            }
            if let Some((other, other_instr)) = order.peer[rank.index()][index as usize] {
                let producer = || {
                    order.predecessors(rank, index).filter(|p| {
                        let action = &program.instrs[*p as usize].action;
                        matches!(
                            action,
                            Action::Launch { .. } | Action::Copy { .. } | Action::Recv { .. }
                        )
                    })
                };
                let work = match line.action {
                    Action::Send { .. } => producer().max(),
                    _ => None,
                };
                found.push(Half { instr: index, work, other, other_instr });
            }
        }
        for half in &mut found {
            if matches!(program.instrs[half.instr as usize].action, Action::Recv { .. }) {
                half.work = consumer[half.instr as usize];
            }
        }
        found
    };
    (0..).map(Rank).zip(&plan.programs).map(of_rank).collect()
}

#[cfg(test)]
mod tests;
