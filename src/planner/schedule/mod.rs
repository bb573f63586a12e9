//! Pipeline schedules: which rank runs which forward or backward, in which order.
//!
//! A schedule is a pure function (pipeline positions, chunks, microbatches) → [`Schedule`], a table
//! with one row a pipeline position, in the grammar of torch.distributed.pipelining: `2F5` is stage
//! 2, forward, microbatch 5. Each function lives in a file named after it; [`named`](mod@named)
//! lists them. Tables also come from files ([`csv`]); [`Schedule::check`] says what is wrong with
//! one, [`unit_time`] runs one on paper, [`Schedule::explain`] tells what it is.

pub mod gpipe;
pub mod one_f_one_b;
pub mod interleaved_1f1b;
pub mod looped_bfs;
pub mod zb_h1;
pub mod zb_h2;
pub mod interleaved_zero_bubble;
pub mod zb_v;
pub mod dual_pipe_v;
mod alternate;
mod v_row;

pub mod named;
pub mod csv;
pub mod check;
pub mod messages;
pub mod unit_time;
pub mod textbook;
pub mod explain;

#[cfg(test)]
mod tests;

pub use check::ScheduleFault;

use serde::{Deserialize, Serialize};

use crate::plan::Phase;

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

impl Pass {
    /// The phase in which its instructions run, or begin.
    pub fn phase(self) -> Phase {
        match self {
            Self::F => Phase::Forward,
            Self::B => Phase::Backward,
            Self::I => Phase::InputGrad,
            Self::W => Phase::WeightGrad,
        }
    }
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

    /// The pipeline position of each stage: the last row that runs it.
    pub fn owners(&self) -> Vec<u32> {
        let mut owners = vec![0; self.stage_count() as usize];
        for row in 0..self.rows.len() {
            for act in self.acts(row) {
                owners[act.stage as usize] = row as u32;
            }
        }
        owners
    }

    /// The passes of a row, in order.
    pub fn acts(&self, row: usize) -> impl Iterator<Item = Act> {
        self.rows[row].iter().flat_map(|cell| cell.acts())
    }

    /// The schedule with the passes of every pair one after the other.
    pub fn in_turn(&self) -> Self {
        let single = |row| self.acts(row).map(Cell::One).collect();
        Self { rows: (0..self.rows.len()).map(single).collect() }
    }
}
