//! A step as files for other programs: Chrome/Kineto/Perfetto JSON, CSV, JSONL.
//!
//! [`Recording`] is the file that a run writes and everything is exported from: the Plan with its
//! Traces. [`kineto`] is for trace viewers and analysers, [`rows`] says what stands in a line of
//! [`csv`] and [`jsonl`]. All of them are pure functions of a Plan and a Trace.

pub mod csv;
pub mod jsonl;
pub mod kineto;
pub mod rows;

use serde::{Deserialize, Serialize};

use super::{Clock, Trace};
use crate::mesh::Rank;
use crate::plan::{Plan, text};

/// A step with its Plan, as `train --trace` writes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    /// Version of this form: [`Recording::SCHEMA`].
    pub schema: u32,
    /// What was trained, for people.
    pub name: String,
    /// The device of each rank, for people.
    pub devices: Vec<String>,
    /// What each instruction is, in words, `[rank][instruction]`: for people, never read back.
    #[serde(skip_deserializing)]
    pub instructions: Vec<Vec<String>>,
    /// The step as the clock of the run saw it.
    pub measured: Option<Trace>,
    /// The same laid out as if every rank had its own device.
    pub replayed: Option<Trace>,
    /// What ran.
    pub plan: Plan,
}

impl Recording {
    /// The version that this program writes and reads.
    pub const SCHEMA: u32 = 1;

    /// A recording without Traces.
    pub fn of(name: impl Into<String>, devices: Vec<String>, plan: &Plan) -> Self {
        let rank = |(rank, count): (Rank, u32)| {
            (0..count).map(|instr| text::describe(plan, rank, instr)).collect()
        };
        let counts = plan.programs.iter().map(|program| program.instrs.len() as u32);
        Self {
            schema: Self::SCHEMA,
            name: name.into(),
            devices,
            instructions: plan.mesh.ranks().zip(counts).map(rank).collect(),
            measured: None,
            replayed: None,
            plan: plan.clone(),
        }
    }

    /// The Trace of a clock; a predicted one stands in no recording.
    pub fn trace(&self, clock: Clock) -> Option<&Trace> {
        match clock {
            Clock::Measured => self.measured.as_ref(),
            Clock::Replayed => self.replayed.as_ref(),
            Clock::Predicted => None,
        }
    }

    /// What is wrong with a recording that was read; `None` if its parts fit.
    pub fn fault(&self) -> Option<String> {
        if self.schema != Self::SCHEMA {
            return Some(format!("it has schema {}, not {}", self.schema, Self::SCHEMA));
        }
        let counts = self.plan.programs.iter().map(|program| program.instrs.len());
        let fits = |trace: &Trace| trace.spans.iter().map(Vec::len).eq(counts.clone());
        let traces = self.measured.iter().chain(&self.replayed);
        let all_fit = { traces }.all(fits);
        let is_whole = self.plan.mesh.size() as usize == self.plan.programs.len();
        (!(all_fit && is_whole)).then(|| "its Trace is not one of its Plan".into())
    }
}
