//! Pipeline schedules: which rank runs which forward or backward, in which order.
//!
//! A schedule is a pure function (pipeline positions, chunks, microbatches) → [`Schedule`], a table
//! with one row a pipeline position, in the grammar of torch.distributed.pipelining: `2F5` is stage
//! 2, forward, microbatch 5. Tables also come from files ([`csv`]); [`Schedule::check`] explains
//! what is wrong with one, [`unit_time`] runs one on paper.

pub mod gpipe;
pub mod one_f_one_b;
pub mod csv;
pub mod check;
pub mod unit_time;
pub mod textbook;

#[cfg(test)]
mod tests;

pub use check::ScheduleFault;

use serde::{Deserialize, Serialize};

/// What a cell does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Pass {
    /// Forward.
    F,
    /// Full backward: input gradients, then weight gradients.
    B,
    /// Input gradients alone.
    I,
    /// Weight gradients alone.
    W,
}

/// One pass of one microbatch through one stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Act {
    /// Stage of the model.
    pub stage: u32,
    /// What is done.
    pub pass: Pass,
    /// Microbatch.
    pub microbatch: u32,
}

/// One cell of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Cell {
    /// One pass.
    One(Act),
    /// Two passes that may overlap: `(0F7;7B3)OVERLAP_F_B`.
    Pair(Act, Act),
}

/// The table of a schedule: `rows[pipeline position]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Schedule {
    /// Cells of each pipeline position, in order.
    pub rows: Vec<Vec<Cell>>,
}

impl Cell {
    /// Its passes, in order.
    pub fn acts(self) -> impl Iterator<Item = Act> {
        let (first, second) = match self {
            Self::One(act) => (act, None),
            Self::Pair(first, second) => (first, Some(second)),
        };
        std::iter::once(first).chain(second)
    }
}

impl Schedule {
    /// Number of stages: one more than the highest that any row runs.
    pub fn stage_count(&self) -> u32 {
        let stages = self.rows.iter().flatten().flat_map(|cell| cell.acts()).map(|act| act.stage);
        stages.max().map_or(0, |highest| highest.saturating_add(1))
    }

    /// The first row that runs a stage.
    pub fn owner(&self, stage: u32) -> Option<u32> {
        let runs = |row: &usize| self.acts(*row).any(|act| act.stage == stage);
        (0..self.rows.len()).find(runs).map(|row| row as u32)
    }

    /// The passes of a row, in order.
    pub fn acts(&self, row: usize) -> impl Iterator<Item = Act> {
        self.rows[row].iter().flat_map(|cell| cell.acts())
    }
}
