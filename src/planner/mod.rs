//! Compiles what is wanted into a Plan: the only place that decides.
//!
//! Every rank's program is written by walking the schedule of its pipeline position, symmetrically
//! on all ranks (as in MPI): [`model`] lays the layers out as ops, [`tensor_parallel`],
//! [`pipeline_parallel`] and [`data_parallel`] add the communication of their axis,
//! [`collective`] unfolds collectives into messages, [`schedule`] orders the microbatches,
//! [`memory`] places the buffers.

pub mod collective;
pub mod data_parallel;
pub mod memory;
pub mod model;
pub mod pipeline_parallel;
pub mod schedule;
pub mod tensor_parallel;

pub mod program;
mod build;

use crate::config::{Layout, Model, Training};
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

/// Why a layout cannot run: the closed list of refusals.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {}
