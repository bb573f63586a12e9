//! What must hold of a Plan before its memory is touched.
//!
//! [`crate::plan::check`] finds the faults; this says which of them would reach outside a buffer
//! or mix two up, and adds what only an executor asks. A Plan that waits for itself, or reads
//! what nobody wrote, passes: it may be run on purpose, and its hang is reported.

use super::io;
use crate::mesh::Rank;
use crate::ops::{Access, Kernel, Slot};
use crate::plan::check::{FaultKind, check};
use crate::plan::{Action, Life, Place, Plan};
use crate::shape::DType;

/// All reasons why the memory of this Plan cannot be handed to its instructions.
pub(super) fn faults(plan: &Plan) -> Vec<String> {
    let faults = buffer_faults(plan);
    if !faults.is_empty() {
        // `check` takes for granted that every buffer has a rank and an end.
        return faults;
    }
    let faults = check(plan).into_iter().filter(|fault| !may_run(&fault.kind));
    let faults = faults.map(|fault| fault.to_string());
    faults
        .chain(messages_to_itself(plan))
        .chain(plan.buffers.iter().filter_map(io::input_fault))
        .collect()
}

/// Whether a Plan with such a fault may run, to be wrong or to hang before everybody's eyes.
fn may_run(kind: &FaultKind) -> bool {
    match kind {
        FaultKind::UnmatchedSend { .. }
        | FaultKind::UnmatchedRecv { .. }
        | FaultKind::ReadBeforeWrite { .. }
        | FaultKind::ReadOverwritten { .. }
        | FaultKind::PieceOutside { .. }
        | FaultKind::OwnedTwice { .. }
        | FaultKind::NotOwned { .. }
        | FaultKind::Cycle { .. } => true,
        FaultKind::ProgramCount { .. }
        | FaultKind::NoSuchBuffer { .. }
        | FaultKind::ForeignBuffer { .. }
        | FaultKind::OutsideBuffer { .. }
        | FaultKind::ArgumentCount { .. }
        | FaultKind::ArgumentLength { .. }
        | FaultKind::ArgumentType { .. }
        | FaultKind::ArgumentOverlap { .. }
        | FaultKind::CopyMismatch { .. }
        | FaultKind::WrongLane { .. }
        | FaultKind::Hops { .. }
        | FaultKind::NoSuchRank { .. }
        | FaultKind::MessageMismatch { .. }
        | FaultKind::Misplaced { .. }
        | FaultKind::BuffersOverlap { .. } => false,
    }
}

fn buffer_faults(plan: &Plan) -> Vec<String> {
    let mut faults = Vec::new();
    for decl in &plan.buffers {
        let (rank, label, offset) = (decl.rank, &decl.label, decl.place.offset);
        if rank.0 >= plan.mesh.size() {
            faults.push(format!("buffer {label} belongs to rank {rank}, which does not exist"));
        }
        if offset.checked_add(decl.bytes().0).is_none() {
            faults.push(format!("rank {rank}: buffer {label} cannot lie at {offset}"));
        }
        if matches!(decl.life, Life::Output(_)) && (decl.len == 0 || decl.dtype != DType::F32) {
            faults.push(format!("rank {rank}: output {label} does not hold a float"));
        }
    }
    faults
}

fn messages_to_itself(plan: &Plan) -> impl Iterator<Item = String> {
    plan.mesh.ranks().zip(&plan.programs).flat_map(|(rank, program)| {
        let instrs = program.instrs.iter().enumerate();
        instrs.filter_map(move |(index, instr)| match instr.action {
            Action::Send { to: peer, .. } | Action::Recv { from: peer, .. } if peer == rank => {
                Some(format!("rank {rank} #{index} exchanges a message with itself; use a copy"))
            }
            _ => None,
        })
    })
}

/// The first launch whose op has no kernel: those on 16-bit floats are for predictions.
pub(super) fn without_kernel(plan: &Plan) -> Option<(Rank, usize, String)> {
    let is_wide = |slot: &Slot| slot.dtype.size() == 4;
    plan.mesh.ranks().zip(&plan.programs).find_map(|(rank, program)| {
        program.instrs.iter().enumerate().find_map(|(index, instr)| {
            let Action::Launch { op, .. } = &instr.action else { return None };
            let signature = op.signature();
            let outputs = signature.outputs.iter().map(|(slot, _): &(Slot, Access)| slot);
            let runs = signature.inputs.iter().chain(outputs).all(is_wide);
            (!runs).then(|| (rank, index, op.to_string()))
        })
    })
}

/// Differences between the persistent buffers of two Plans of one run.
pub(super) fn persistent_faults(first: &Plan, plan: &Plan) -> Vec<String> {
    if first.mesh.size() != plan.mesh.size() {
        return vec![format!(
            "{} ranks, the first Plan has {}",
            plan.mesh.size(),
            first.mesh.size()
        )];
    }
    let mut faults = Vec::new();
    for rank in plan.mesh.ranks() {
        let list = |plan: &Plan| {
            let decls = plan.buffers_of(rank).filter(|(_, decl)| decl.life == Life::Persistent);
            let facts = decls.map(|(_, d)| (d.label.clone(), d.dtype, d.len, d.place));
            facts.collect::<Vec<_>>()
        };
        let (before, now) = (list(first), list(plan));
        if before != now {
            let same = before.iter().zip(&now).take_while(|(a, b)| a == b).count();
            let label = |list: &[(String, DType, u32, Place)]| {
                list.get(same).map_or_else(|| "nothing".into(), |decl| decl.0.clone())
            };
            faults.push(format!(
                "rank {rank}: persistent buffer {same} is {}, in the first Plan {}",
                label(&now),
                label(&before)
            ));
        }
    }
    faults
}
