//! Views, arguments, lanes and places: what one instruction or one buffer shows by itself.

use std::collections::BTreeMap;

use super::{FaultKind, Faults, label, views};
use crate::mesh::Rank;
use crate::ops::{Kernel as _, Op, Slot};
use crate::plan::{Action, Arena, BufferDecl, Instr, Lane, Life, Place, Plan, View};

/// Checks one instruction.
pub(super) fn check_instr(plan: &Plan, rank: Rank, instr: u32, line: &Instr, faults: &mut Faults) {
    let mut add = |kind| faults.at(rank, instr, kind);
    check_lane(line, &mut add);
    let before = views(&line.action);
    let known: Vec<&BufferDecl> =
        before.iter().filter_map(|view| plan.buffers.get(view.buffer.0 as usize)).collect();
    for view in &before {
        check_view(plan, rank, *view, &mut add);
    }
    if known.len() < before.len() {
        return; // The rest asks for types and places.
    }
    match &line.action {
        Action::Launch { op, inputs, outputs } => {
            check_arguments(plan, op, inputs, outputs, &mut add);
            for (index, output) in outputs.iter().enumerate() {
                for other in inputs.iter().chain(&outputs[index + 1..]) {
                    check_overlap(plan, op.name(), *output, *other, &mut add);
                }
            }
        }
        Action::Copy { from, to } => {
            let (a, b) = (plan.buffer(from.buffer), plan.buffer(to.buffer));
            if from.len != to.len || a.dtype != b.dtype {
                add(FaultKind::CopyMismatch {
                    from: a.label.clone(),
                    from_len: from.len,
                    from_type: a.dtype,
                    to: b.label.clone(),
                    to_len: to.len,
                    to_type: b.dtype,
                });
            }
            check_overlap(plan, "copy", *to, *from, &mut add);
        }
        Action::Send { .. } | Action::Recv { .. } => {}
    }
}

fn check_lane(line: &Instr, add: &mut impl FnMut(FaultKind)) {
    let (what, fits, expected) = match line.action {
        Action::Recv { .. } => ("receive", line.lane == Lane::Posted, Lane::Posted.to_string()),
        Action::Send { to, .. } => {
            let fits = matches!(line.lane, Lane::Out(_, peer) if peer == to);
            ("send", fits, format!("a lane to rank {to}"))
        }
        Action::Launch { .. } | Action::Copy { .. } => {
            let fits = matches!(line.lane, Lane::Compute | Lane::Reduce);
            let what = if matches!(line.action, Action::Copy { .. }) { "copy" } else { "launch" };
            (what, fits, "compute or reduce".into())
        }
    };
    if !fits {
        add(FaultKind::WrongLane { what, lane: line.lane, expected });
    }
    match line.action {
        Action::Send { hops, .. } | Action::Recv { hops, .. } if hops != 1 => {
            add(FaultKind::Hops { hops });
        }
        _ => {}
    }
}

fn check_view(plan: &Plan, rank: Rank, view: View, add: &mut impl FnMut(FaultKind)) {
    let Some(decl) = plan.buffers.get(view.buffer.0 as usize) else {
        return add(FaultKind::NoSuchBuffer { buffer: view.buffer.0, count: plan.buffers.len() });
    };
    if decl.rank != rank {
        add(FaultKind::ForeignBuffer { label: decl.label.clone(), owner: decl.rank });
    }
    let end = u64::from(view.offset) + u64::from(view.len);
    if end > u64::from(decl.len) {
        let (label, start, len) = (decl.label.clone(), view.offset, decl.len);
        add(FaultKind::OutsideBuffer { label, start, end, len });
    }
}

fn check_arguments(
    plan: &Plan,
    op: &Op,
    inputs: &[View],
    outputs: &[View],
    add: &mut impl FnMut(FaultKind),
) {
    let signature = op.signature();
    let out_slots: Vec<Slot> = signature.outputs.iter().map(|(slot, _)| *slot).collect();
    for (side, slots, found) in
        [("inputs", &signature.inputs, inputs), ("outputs", &out_slots, outputs)]
    {
        if slots.len() != found.len() {
            let (expected, found) = (slots.len(), found.len());
            add(FaultKind::ArgumentCount { op: op.name(), side, expected, found });
        }
        for (slot, view) in slots.iter().zip(found) {
            let (op, slot, expected, found) = (op.name(), slot.name, slot, view.len);
            let decl = plan.buffer(view.buffer);
            if expected.len != u64::from(found) {
                let (label, expected) = (decl.label.clone(), expected.len);
                add(FaultKind::ArgumentLength { op, slot, label, expected, found });
            }
            if expected.dtype != decl.dtype {
                let (label, expected, found) = (decl.label.clone(), expected.dtype, decl.dtype);
                add(FaultKind::ArgumentType { op, slot, label, expected, found });
            }
        }
    }
}

fn check_overlap(
    plan: &Plan,
    op: &'static str,
    output: View,
    other: View,
    add: &mut impl FnMut(FaultKind),
) {
    let ((arena, a), (other_arena, b)) = (plan.view_place(output), plan.view_place(other));
    let shared = a.end.min(b.end).saturating_sub(a.start.max(b.start));
    if arena == other_arena && shared > 0 {
        let (output, other) = (label(plan, output.buffer), label(plan, other.buffer));
        add(FaultKind::ArgumentOverlap { op, output, other, bytes: shared });
    }
}

/// Checks the places of all buffers. Step buffers may share bytes: their contents are checked in
/// the order of the program.
pub(super) fn check_buffers(plan: &Plan, faults: &mut Faults) {
    let mut lasting: BTreeMap<(Rank, Arena), Vec<&BufferDecl>> = BTreeMap::new();
    for decl in &plan.buffers {
        let Place { arena, offset } = decl.place;
        let expected = match decl.life {
            Life::Persistent => Arena::Persistent,
            Life::Input(_) | Life::Output(_) => Arena::Io,
            Life::Step => Arena::Step,
        };
        let wrong_arena = (arena != expected).then_some("its life belongs into another arena");
        let crooked = !offset.is_multiple_of(Place::ALIGN);
        let crooked = crooked.then_some("places are multiples of 256 bytes");
        for why in wrong_arena.into_iter().chain(crooked) {
            let kind = FaultKind::Misplaced { label: decl.label.clone(), arena, offset, why };
            faults.add(Some(decl.rank), None, kind);
        }
        if arena != Arena::Step && decl.len > 0 {
            lasting.entry((decl.rank, arena)).or_default().push(decl);
        }
    }
    for ((rank, arena), mut decls) in lasting {
        decls.sort_by_key(|decl| decl.place.offset);
        let end = |decl: &BufferDecl| decl.place.offset + decl.bytes().0;
        let mut reaching: Option<&BufferDecl> = None;
        for decl in decls {
            if let Some(one) = reaching
                && decl.place.offset < end(one)
            {
                let bytes = end(one).min(end(decl)) - decl.place.offset;
                let (one, other) = (one.label.clone(), decl.label.clone());
                let kind = FaultKind::BuffersOverlap { one, other, arena, bytes };
                faults.add(Some(rank), None, kind);
            }
            if reaching.is_none_or(|one| end(decl) > end(one)) {
                reaching = Some(decl);
            }
        }
    }
}
