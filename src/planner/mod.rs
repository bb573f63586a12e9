//! Compiles what is wanted into a Plan: the only place that decides.
//!
//! Every rank's program is written by walking the schedule of its pipeline position, symmetrically
//! on all ranks (as in MPI): [`model`] lays the layers out as ops, [`tensor_parallel`],
//! [`pipeline_parallel`] and [`data_parallel`] add the communication of their axis,
//! [`collective`] unfolds collectives into messages, [`schedule`] orders the microbatches,
//! [`memory`] places the buffers.

pub mod cluster;
pub mod collective;
pub mod data_parallel;
pub mod memory;
pub mod model;
pub mod pipeline_parallel;
pub mod schedule;
pub mod tensor_parallel;

pub mod program;
mod build;
mod context;
mod posting;
mod refuse;

use crate::config::schedule::Stages;
use crate::config::{Layout, Model, ScheduleName, Training};
use crate::plan::Plan;

/// All that decides a Plan.
#[derive(Clone, Debug, PartialEq)]
pub struct StepSpec {
    /// Sizes of the model.
    pub model: Model,
    /// How it is cut.
    pub layout: Layout,
    /// Batch, sequence and optimizer; learning rate and seed do not matter here.
    pub training: Training,
    /// Train, or only measure the loss.
    pub purpose: Purpose,
    /// Kind of device of each rank (any numbering); replicas on different kinds are not updated
    /// twice but shared by one of them. Empty: all of one kind.
    pub device_kinds: Vec<u32>,
}

/// What a Plan is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// Forward, backward, optimizer.
    #[default]
    Train,
    /// Forward only: the loss of a batch.
    Evaluate,
}

/// Compiles a step.
///
/// # Errors
/// A [`PlanError`] from the closed list of refusals if the layout cannot run.
pub fn plan_step(spec: &StepSpec) -> Result<Plan, PlanError> {
    build::plan_step(spec)
}

/// Why a layout cannot run: the closed list of refusals. Whatever is not on it runs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A size is zero.
    #[error("{what} is 0, but there must be at least one. Use 1 to leave this axis uncut")]
    Zero {
        /// Which size.
        what: &'static str,
    },
    /// Attention heads do not divide.
    #[error("{heads} heads cannot be split over {tp} tensor ranks. Use {}", one_of(fits))]
    Heads {
        /// Query heads of the model.
        heads: u32,
        /// Tensor-parallel size.
        tp: u32,
        /// Sizes that divide the heads.
        fits: Vec<String>,
    },
    /// A dimension has fewer elements than there are tensor ranks.
    #[error(
        "{size} {what} cannot be split over {tp} tensor ranks: each needs at least one. Use {size} at most"
    )]
    TooNarrow {
        /// Which dimension.
        what: &'static str,
        /// Its size.
        size: u32,
        /// Tensor-parallel size.
        tp: u32,
    },
    /// More microbatches than rows.
    #[error(
        "batch {batch} over dp {dp} leaves {rows} rows on a data-parallel rank, too few for \
         {microbatches} microbatches. Use a batch of at least {}, or fewer microbatches or ranks",
        u64::from(*dp) * u64::from(*microbatches)
    )]
    TooFewRows {
        /// Rows of a step.
        batch: u32,
        /// Data-parallel size.
        dp: u32,
        /// Rows of the rank with the fewest.
        rows: u32,
        /// Microbatches of a rank.
        microbatches: u32,
    },
    /// More stages than units of the model.
    #[error(
        "{stages} stages need {stages} units, but the model has {units} (embedding, {} layers, \
         head). Use fewer pipeline positions or chunks",
        units - 2
    )]
    TooManyStages {
        /// pp · chunks.
        stages: u32,
        /// layers + 2.
        units: u32,
    },
    /// A schedule that places another number of stages on a position.
    #[error("schedule {schedule} {}", chunks_refused(schedule, *chunks))]
    Chunks {
        /// The schedule.
        schedule: ScheduleName,
        /// Stages a position.
        chunks: u32,
    },
    /// Given stage sizes do not fit.
    #[error(
        "stage sizes {given:?} do not cut {units} units into {stages} stages of at least one unit. Give {stages} sizes that add up to {units}"
    )]
    StageUnits {
        /// What was given.
        given: Vec<u32>,
        /// Stages of the layout.
        stages: u32,
        /// layers + 2.
        units: u32,
    },
    /// A schedule file cannot be read.
    #[error(
        "schedule {path}: {why}. Use a table of cells like 0F0,0F1,0B0, one row a pipeline position"
    )]
    ScheduleFile {
        /// The file.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// A schedule has another number of rows than there are pipeline positions.
    #[error(
        "the schedule has {rows} rows, but there are {positions} pipeline positions. Use pp {rows}"
    )]
    ScheduleRows {
        /// Rows of the table.
        rows: usize,
        /// Pipeline-parallel size.
        positions: u32,
    },
    /// A schedule is incomplete or hangs.
    #[error("the schedule cannot run: {}. Mend these cells", faults.join("; "))]
    Schedule {
        /// All faults.
        faults: Vec<String>,
    },
    /// Hierarchical collectives without nodes.
    #[error(
        "hierarchical collectives need to know how many ranks a node has. Give a node size, or use ring, tree or direct"
    )]
    NoNodeSize,
    /// More than one Plan can number.
    #[error("{count} {what} are more than {most}, the most that one Plan numbers. Use fewer")]
    TooMany {
        /// What there are too many of.
        what: &'static str,
        /// How many.
        count: u32,
        /// The limit.
        most: u32,
    },
    /// A tensor is larger than a view can address.
    #[error(
        "{what} of one rank has {elements} elements, more than 4,294,967,295. Use a larger tp, or fewer rows in a microbatch"
    )]
    TooLarge {
        /// Which tensor.
        what: &'static str,
        /// Its elements.
        elements: u64,
    },
}

fn chunks_refused(schedule: &ScheduleName, chunks: u32) -> String {
    let asked = match chunks {
        1 => "1 chunk is asked for".to_owned(),
        _ => format!("{chunks} chunks are asked for"),
    };
    if schedule.stages() == Stages::V {
        return format!("has two stages a pipeline position, in a V, but {asked}. Use chunks 2");
    }
    let takes = |name: &&ScheduleName| name.stages().allows(chunks);
    let names: Vec<String> =
        ScheduleName::NAMED.iter().filter(takes).map(ToString::to_string).collect();
    format!(
        "has one stage a pipeline position, but {asked}. Use chunks 1, {}, or a schedule file",
        names.join(", ")
    )
}

fn one_of(choices: &[String]) -> String {
    match choices {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}
