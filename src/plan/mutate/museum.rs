//! Famous bugs of distributed training as functions from a Plan to a Plan: every one runs to the
//! end, and every one trains something else.
//!
//! Their places are found by what the instructions say of themselves ([`Origin`], their op, the
//! pieces of their buffers), never by counting; so each fits any layout in which the bug can exist
//! at all.

use std::collections::BTreeSet;

use super::super::{Action, Collective, Held, Instr, Origin, Phase, Plan, View};
use crate::mesh::{Axis, Rank};
use crate::ops::Op;
use crate::ops::elementwise::Scale;

/// A Plan that is wrong in one known way at one or many places.
#[derive(Clone, Debug, PartialEq)]
pub struct Bug {
    /// The wrong Plan.
    pub plan: Plan,
    /// The instructions of the *original* Plan that are changed or missing.
    pub places: Vec<(Rank, u32)>,
}

/// Multiplies the gradient of every loss: what becomes of a sum that is divided by too little, or
/// not at all. `None` if the Plan has no loss.
pub fn scale_loss_gradients(plan: &Plan, factor: f32) -> Option<Bug> {
    rewrite(plan, |_, instr| match &instr.action {
        Action::Launch { op: Op::LossGrad(_), outputs, .. } => {
            let scaled = outputs.iter().map(|&view| {
                let op = Op::Scale(Scale { len: view.len, factor });
                let action = Action::Launch { op, inputs: Vec::new(), outputs: vec![view] };
                Instr { action, ..instr.clone() }
            });
            Some(std::iter::once(instr.clone()).chain(scaled).collect())
        }
        Action::Launch { .. } | Action::Send { .. } | Action::Recv { .. } | Action::Copy { .. } => {
            None
        }
    })
}

/// Leaves the two gradients of a tied table as they are: the embedding's and the head's are never
/// added. `None` if no table is tied.
pub fn keep_tied_gradients_apart(plan: &Plan) -> Option<Bug> {
    // Only a table that two stages hold is summed over stages; on one rank one addition does it,
    // which is no part of a collective.
    let is_tied = |origin: Origin| {
        origin.phase == Phase::GradReduce
            && (origin.axis == Some(Axis::Pp) || origin.collective.is_none())
    };
    rewrite(plan, |_, instr| is_tied(instr.origin).then(Vec::new))
}

/// Leaves the gradients of norms as they are under sequence parallel: each tensor-parallel rank
/// keeps those of its own positions. `None` if they are whole already.
pub fn keep_norm_gradients_apart(plan: &Plan) -> Option<Bug> {
    // Ids of collectives are unique within a pipeline position.
    let key = |rank: Rank, origin: Origin| -> Option<(u32, Collective)> {
        let sums = origin.phase == Phase::GradReduce && origin.axis == Some(Axis::Tp);
        origin.collective.filter(|_| sums).map(|collective| (plan.mesh.coord(rank).pp, collective))
    };
    let mut norms = BTreeSet::new();
    for (rank, instr) in lines(plan) {
        let Some(key) = key(rank, instr.origin) else { continue };
        let reads = instr.action.reads();
        let mut views = instr.action.writes().iter().chain(&reads);
        if views.any(|view| holds_gradient_of_vector(plan, *view)) {
            norms.insert(key);
        }
    }
    rewrite(plan, |rank, instr| {
        let dropped = key(rank, instr.origin).is_some_and(|key| norms.contains(&key));
        dropped.then(Vec::new)
    })
}

/// Whether a view covers a part of the gradient of a tensor of one dimension.
fn holds_gradient_of_vector(plan: &Plan, view: View) -> bool {
    let pieces = plan.buffer(view.buffer).pieces.iter();
    let mut gradients = pieces.filter(|piece| piece.held == Held::Gradient);
    gradients.any(|piece| {
        let end = piece.offset + (piece.flat.end - piece.flat.start);
        let overlaps = piece.offset < view.offset + view.len && view.offset < end;
        overlaps && plan.tensors[piece.tensor as usize].shape.0.len() == 1
    })
}

fn lines(plan: &Plan) -> impl Iterator<Item = (Rank, &Instr)> {
    let ranks = (0..).map(Rank).zip(&plan.programs);
    ranks.flat_map(|(rank, program)| program.instrs.iter().map(move |instr| (rank, instr)))
}

/// The Plan with some instructions replaced; `None` if none is.
fn rewrite(plan: &Plan, replacement: impl Fn(Rank, &Instr) -> Option<Vec<Instr>>) -> Option<Bug> {
    let mut places = Vec::new();
    let mut wrong = plan.clone();
    for (rank, program) in (0..).map(Rank).zip(&mut wrong.programs) {
        let old = std::mem::take(&mut program.instrs);
        for (index, instr) in (0..).zip(old) {
            match replacement(rank, &instr) {
                Some(others) => {
                    places.push((rank, index));
                    program.instrs.extend(others);
                }
                None => program.instrs.push(instr),
            }
        }
    }
    (!places.is_empty()).then_some(Bug { plan: wrong, places })
}
