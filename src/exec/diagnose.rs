//! Diagnose mode: runs a step in program order and looks at everything that launches write.
//!
//! It is run with the batch of a step whose loss or norm was not finite, and names the first
//! launch that wrote such a number.

use std::fmt;
use std::ops::ControlFlow;

use super::executor::{Executor, PlanId};
use super::{ExecError, StepInput};
use crate::mesh::Rank;
use crate::plan::{Action, Origin, Plan, Role, View};
use crate::shape::DType;

/// The first number of a step that is not finite.
#[derive(Clone, Debug, PartialEq)]
pub struct NonFinite {
    /// Which rank.
    pub rank: Rank,
    /// Which instruction of it.
    pub instr: usize,
    /// Name of its op.
    pub op: String,
    /// Why the instruction is there: stage, layer, microbatch, phase.
    pub origin: Origin,
    /// Label of the buffer that holds the number.
    pub buffer: String,
    /// What the buffer holds.
    pub role: Role,
    /// Index of the element in the buffer.
    pub element: u32,
    /// NaN or an infinity.
    pub value: f32,
    /// The logical tensor that the element is a part of, by its Hugging Face name.
    pub tensor: Option<String>,
    /// The op read it and did not write it: the number was there before, in a weight or an input.
    pub was_read: bool,
}

impl NonFinite {
    /// What holds the number, in words: `the gradient of lm_head.weight`, or the label of the buffer
    /// where that is no part of a logical tensor.
    pub fn held_by(&self) -> String {
        let Some(tensor) = &self.tensor else { return self.buffer.clone() };
        match self.role {
            Role::Gradients => format!("the gradient of {tensor}"),
            Role::Optimizer => format!("the optimizer state of {tensor}"),
            Role::Weights | Role::Activations | Role::Workspace => tensor.clone(),
        }
    }
}

impl fmt::Display for NonFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, instr, op, buffer, element, value, .. } = self;
        write!(f, "rank {rank}")?;
        if let Some(stage) = self.origin.stage {
            write!(f, ", stage {stage}")?;
        }
        if let Some(layer) = self.origin.layer {
            write!(f, ", layer {layer}")?;
        }
        if let Some(microbatch) = self.origin.microbatch {
            write!(f, ", microbatch {microbatch}")?;
        }
        let did = if self.was_read { "reads" } else { "writes" };
        write!(f, ": {op} (#{instr}) {did} {value} in {buffer}[{element}]")?;
        match &self.tensor {
            Some(_) => write!(f, ", of {}", self.held_by()),
            None => Ok(()),
        }
    }
}

impl Executor {
    /// Runs a step in program order until a launch writes a float that is not finite. `None`: the
    /// whole step ran, as [`Executor::run`] would have.
    ///
    /// # Errors
    /// As [`Executor::run`].
    pub fn diagnose(
        &mut self,
        id: PlanId,
        step: u64,
        input: &StepInput<'_>,
    ) -> Result<Option<NonFinite>, ExecError> {
        let mut found = None;
        self.run_in_order(id, step, input, &mut |executor, (rank, instr)| {
            found = executor.inspect(id, rank, instr as usize)?;
            Ok(if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(found)
    }

    /// Looks at what a launch wrote; if that is not finite, at what it read as well.
    fn inspect(
        &self,
        id: PlanId,
        rank: Rank,
        index: usize,
    ) -> Result<Option<NonFinite>, ExecError> {
        let plan = self.plan(id);
        let instr = &plan.programs[rank.index()].instrs[index];
        let Action::Launch { op, inputs, outputs } = &instr.action else { return Ok(None) };
        // Over a slice of nothing an op writes its neutral element: −∞ for a maximum.
        if inputs.iter().any(|view| view.len == 0) {
            return Ok(None);
        }
        let Some(written) = self.first_in(id, outputs)? else { return Ok(None) };
        let read = self.first_in(id, inputs)?;
        let was_read = read.is_some();
        let (view, element, value) = read.unwrap_or(written);
        let element = view.offset + element;
        Ok(Some(NonFinite {
            rank,
            instr: index,
            op: op.to_string(),
            origin: instr.origin,
            buffer: plan.buffer(view.buffer).label.clone(),
            role: plan.buffer(view.buffer).role,
            element,
            value,
            tensor: tensor(plan, view, element),
            was_read,
        }))
    }

    /// The first float of `views` that is not finite: its view, its index there and its value.
    fn first_in(&self, id: PlanId, views: &[View]) -> Result<Option<(View, u32, f32)>, ExecError> {
        for &view in views {
            if self.plan(id).buffer(view.buffer).dtype != DType::F32 {
                continue;
            }
            let bytes = self.read_bytes(id, view)?;
            let floats = bytes.as_chunks::<4>().0.iter().map(|&word| f32::from_ne_bytes(word));
            if let Some((index, value)) = (0..).zip(floats).find(|(_, value)| !value.is_finite()) {
                return Ok(Some((view, index, value)));
            }
        }
        Ok(None)
    }
}

/// The logical tensor that an element of a buffer is a part of.
fn tensor(plan: &Plan, view: View, element: u32) -> Option<String> {
    let pieces = &plan.buffer(view.buffer).pieces;
    let piece = pieces.iter().find(|piece| {
        let len = piece.flat.end - piece.flat.start;
        (piece.offset..piece.offset + len).contains(&element)
    })?;
    plan.tensors.get(piece.tensor as usize).map(|tensor| tensor.name.clone())
}
