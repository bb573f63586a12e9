//! No read before a write, in program order, to the byte.
//!
//! What the host brings (inputs, persistent buffers) counts as written. A place that two step
//! buffers use in turn holds the contents of whoever wrote last, so a place that is reused too
//! early shows as a read of overwritten contents.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{FaultKind, Faults};
use crate::mesh::Rank;
use crate::plan::segments::Segments;
use crate::plan::{Arena, BufferId, Life, Plan, View};

/// Who wrote some bytes last: the buffer, and the instruction.
type Written = Option<(BufferId, u32)>;

/// Checks what every instruction reads.
pub(super) fn check_contents(plan: &Plan, faults: &mut Faults) {
    for (rank, program) in (0..).map(Rank).zip(&plan.programs) {
        let mut memory: BTreeMap<Arena, Segments<Written>> = BTreeMap::new();
        for (index, instr) in (0u32..).zip(&program.instrs) {
            let mut reads = instr.action.reads();
            reads.retain(|view| view.len > 0);
            reads.sort_unstable();
            reads.dedup(); // One argument given twice is one fault.
            for view in reads {
                let decl = plan.buffer(view.buffer);
                if matches!(decl.life, Life::Step | Life::Output(_)) {
                    let (arena, bytes) = plan.view_place(view);
                    let memory = memory.entry(arena).or_default();
                    for kind in read(plan, memory, view, bytes) {
                        faults.at(rank, index, kind);
                    }
                }
            }
            for &view in instr.action.writes().iter().filter(|view| view.len > 0) {
                let (arena, bytes) = plan.view_place(view);
                let memory = memory.entry(arena).or_default();
                memory.replace(bytes, Some((view.buffer, index)));
            }
        }
    }
}

/// The faults of one read, one for each run of bytes with the same history.
fn read(
    plan: &Plan,
    memory: &mut Segments<Written>,
    view: View,
    bytes: Range<u64>,
) -> Vec<FaultKind> {
    let decl = plan.buffer(view.buffer);
    let place = decl.place.offset;
    let mut runs: Vec<(u64, Written)> = Vec::new();
    for (start, written) in memory.in_range(bytes.clone()) {
        if runs.last().is_none_or(|(_, last)| last != written) {
            runs.push((start, *written));
        }
    }
    let ends = runs.iter().skip(1).map(|(start, _)| *start).chain([bytes.end]);
    let kinds = runs.iter().zip(ends).filter_map(|(&(start, written), end)| {
        let (label, start, end) = (decl.label.clone(), start - place, end - place);
        match written {
            None => Some(FaultKind::ReadBeforeWrite { label, start, end }),
            Some((buffer, by)) if buffer != view.buffer => {
                let other = plan.buffer(buffer).label.clone();
                Some(FaultKind::ReadOverwritten { label, start, end, other, by })
            }
            Some(_) => None,
        }
    });
    kinds.collect()
}
