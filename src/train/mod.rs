//! Training: a session plans a step once and runs it many times.
//!
//! [`Session`] is what the command, tests and examples drive: one step at a time, with everything
//! that the step tells. [`driver`] runs one on a thread of its own, for windows. [`devices`] turns a
//! request into devices, [`verify`] holds a layout against one rank or a reference case, [`faults`]
//! breaks things for show, [`generate`] writes text with what was trained.

mod capture;
pub mod devices;
pub mod driver;
pub mod faults;
mod fit;
pub mod generate;
pub mod session;
mod snapshot;
pub mod verify;

pub use devices::DeviceRequest;
pub use fit::check as check_memory;
pub use session::{Options, Session, StepReport};
pub use snapshot::Snapshot;

use crate::checkpoint::CheckpointError;
use crate::config::ConfigError;
use crate::data::DataError;
use crate::exec::{ExecError, NonFinite};
use crate::mesh::Rank;
use crate::planner::PlanError;
use crate::units::Bytes;

/// Why training could not start or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// A setting cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The layout cannot run.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The data cannot be used.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A checkpoint or a reference case cannot be used.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A device failed or has not enough memory.
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// A rank places more than it may.
    #[error(
        "rank {rank} needs {need}, but its device has {have}: the step does not fit. It keeps {kept}. {}",
        remedy(fits)
    )]
    Memory {
        /// The rank that needs most.
        rank: Rank,
        /// What it places.
        need: Bytes,
        /// What it may place.
        have: Bytes,
        /// Which microbatches of which stages it keeps at its peak, and the bytes of them.
        kept: String,
        /// Cuts that would fit, as flags.
        fits: Vec<String>,
    },
    /// No device fits the request.
    #[error("{request}: {why}. {remedy}")]
    Devices {
        /// What was asked for.
        request: String,
        /// Why there is none.
        why: String,
        /// What to do.
        remedy: String,
    },
    /// The loss or the gradient norm is not finite; nothing was updated.
    #[error(
        "step {step}: {}. Nothing was updated: lower the learning rate, or look at the data of this step",
        describe(.first.as_deref())
    )]
    NotFinite {
        /// Which step.
        step: u64,
        /// The first number that is not finite, in program order.
        first: Option<Box<NonFinite>>,
    },
}

fn remedy(fits: &[String]) -> String {
    if fits.is_empty() {
        return "Use fewer rows in a microbatch, a smaller model, or more memory".into();
    }
    format!("These cuts fit: {}", fits.join("; or "))
}

fn describe(first: Option<&NonFinite>) -> String {
    match first {
        Some(first) => format!("first non-finite number on {first}"),
        None => "the loss or the gradient norm is not finite".into(),
    }
}
