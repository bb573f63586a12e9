//! Pipeline schedules: which rank runs which forward or backward, in which order.
//!
//! A schedule is a pure function (pipeline positions, chunks, microbatches) → [`Schedule`], a table
//! with one row a pipeline position, in the grammar of torch.distributed.pipelining: `2F5` is stage
//! 2, forward, microbatch 5.

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
