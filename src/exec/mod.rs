//! Runs Plans: the interpreter, its devices, and the Trace of what happened.
//!
//! The only room that looks at a clock. Ranks live on the host pool or on a [`Device`]; a message
//! between two ranks of one device is one copy, any other goes through host memory.
//!
//! [`Executor`] is the front door (`executor`, `load`). `tasks` numbers what is scheduled, `step`
//! knows what is ready and what has ended, `host` works on the machine's cores, `drive` feeds a
//! device, `crew` holds the threads of both. `in_order` runs a step for somebody who looks on, `hang`
//! and `diagnose` explain one that went wrong. [`calibrate`] measures what kernels take.

pub mod calibrate;
pub mod device;
mod clock;
mod crew;
mod delay;
mod diagnose;
mod drive;
mod executor;
mod hang;
mod host;
mod in_order;
mod io;
mod load;
mod options;
mod progress;
mod step;
mod tasks;
mod transport;
mod validate;

#[cfg(test)]
mod tests;

#[cfg(feature = "gpu")]
pub mod gpu;

pub use clock::Clock;
pub use device::{Device, DeviceInfo, DeviceKind};
pub use diagnose::NonFinite;
pub use executor::{Advance, DeviceSlot, Executor, PlanId};
pub use in_order::Look;
pub use load::need;
pub use options::{Delays, ExecOptions, RankDelay, Timing, cores};
pub use progress::{Progress, Watcher};

use crate::mesh::{Axis, Rank};
use crate::trace::Trace;
use crate::units::Bytes;

/// What the host brings to a step; by default nothing, as for a Plan without inputs.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepInput<'a> {
    /// Tokens of the global batch, `[batch, seq]` row-major.
    pub tokens: &'a [i32],
    /// Labels, `[batch, seq]`; −100 is ignored.
    pub labels: &'a [i32],
    /// Tokens of a row.
    pub seq: u32,
    /// Learning rate of the step.
    pub lr: f32,
    /// `1 − β1^t` and `1 − β2^t`.
    pub bias_corrections: [f32; 2],
}

/// What a step gives back.
#[derive(Clone, Debug)]
pub struct StepOutput {
    /// Mean loss over the labels that are not −100, before the update.
    pub loss: f64,
    /// Global gradient norm before clipping; 0 for an evaluation.
    pub grad_norm: f64,
    /// When every instruction ran.
    pub trace: Trace,
    /// Bytes that crossed between ranks, counted where they crossed.
    pub crossed: Crossed,
    /// Instructions that ran.
    pub instructions: u64,
}

/// Bytes that crossed between ranks in a step, counted by the transport.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Crossed {
    /// `(from, to, axis, bytes)`, sorted; one entry for each pair and axis that was used.
    pub links: Vec<(Rank, Rank, Axis, u64)>,
}

impl Crossed {
    /// All of them.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.links.iter().map(|(.., bytes)| bytes).sum())
    }

    /// Those of one axis.
    pub fn bytes_on(&self, axis: Axis) -> Bytes {
        let links = self.links.iter().filter(|(_, _, on, _)| *on == axis);
        Bytes(links.map(|(.., bytes)| bytes).sum())
    }
}

/// Why a Plan could not be loaded or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecError {
    /// The device ran out of what the Plan places.
    #[error(
        "rank {rank} needs {need} on {device}, which has {have}. Use more ranks, a higher ZeRO stage, recompute, or fewer rows in a microbatch"
    )]
    Memory {
        /// Which rank.
        rank: Rank,
        /// Name of the device.
        device: String,
        /// What the Plan places.
        need: Bytes,
        /// The cap.
        have: Bytes,
    },
    /// Nothing is ready, running or in flight, and the step is not over.
    #[error("the step hangs: {}", waiting.join("; "))]
    Hang {
        /// Who waits for what, one line a rank.
        waiting: Vec<String>,
    },
    /// A device refused or failed.
    #[error("{device}: {why}. {remedy}")]
    Device {
        /// Name of the device.
        device: String,
        /// What went wrong.
        why: String,
        /// What to do.
        remedy: String,
    },
    /// The Plan holds an op that has no kernel.
    #[error(
        "rank {rank}, instruction {instr}: {op} has no kernel; this Plan can only be simulated"
    )]
    NoKernel {
        /// Which rank.
        rank: Rank,
        /// Which instruction.
        instr: usize,
        /// Name of the op.
        op: String,
    },
    /// The instructions of a Plan do not fit its buffers.
    #[error("this Plan cannot run: {}. Plan the step again", first_of(faults))]
    Plan {
        /// What is wrong, with rank and instruction.
        faults: Vec<String>,
    },
    /// What was asked for does not fit the Plan or the devices.
    #[error("{what}: {why}. {remedy}")]
    Input {
        /// What was brought or asked for.
        what: String,
        /// Why it does not fit.
        why: String,
        /// What to do.
        remedy: String,
    },
    /// A kernel panicked; its rank's memory is half written.
    #[error(
        "rank {rank}, instruction {instr}: {op} panicked: {message}. Load a checkpoint before the next step"
    )]
    Panic {
        /// Which rank.
        rank: Rank,
        /// Which instruction.
        instr: usize,
        /// Name of the op.
        op: String,
        /// The text of the panic.
        message: String,
    },
}

/// The first faults in words, and how many there are more.
fn first_of(faults: &[String]) -> String {
    const SHOWN: usize = 20;
    let more = faults.len().saturating_sub(SHOWN);
    let shown = faults[..faults.len() - more].join("; ");
    if more == 0 { shown } else { format!("{shown}; and {more} more") }
}
