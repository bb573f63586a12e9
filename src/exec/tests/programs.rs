//! Small Plans, written by hand.

use crate::mesh::{Axis, Mesh, Rank, RankOrder};
use crate::ops::Op;
use crate::ops::elementwise::{Add, AddAssign, Fill, Scale};
use crate::plan::{Action, Arena, BufferId, Life, Place, Plan, Program, Role, Tag, View};
use crate::planner::program::RankProgram;
use crate::shape::DType;

/// Programs of the ranks of a pipeline, one after the other.
pub(super) fn programs(rank_count: u32) -> Vec<RankProgram> {
    (0..rank_count).map(|rank| RankProgram::new(Rank(rank))).collect()
}

/// A float buffer inside the step.
pub(super) fn floats(program: &mut RankProgram, label: &str, len: u32) -> View {
    program.buffer(label, Role::Activations, DType::F32, len)
}

/// A float buffer of any life.
pub(super) fn declare(program: &mut RankProgram, label: &str, len: u32, life: Life) -> View {
    program.declare(label, Role::Workspace, DType::F32, len, life)
}

pub(super) fn fill(len: u32, value: f32) -> Op {
    Op::Fill(Fill { len, value })
}

pub(super) fn add(len: u32) -> Op {
    Op::Add(Add { len })
}

pub(super) fn add_assign(len: u32) -> Op {
    Op::AddAssign(AddAssign { len })
}

pub(super) fn scale(len: u32, factor: f32) -> Op {
    Op::Scale(Scale { len, factor })
}

/// Both halves of a message, appended to the programs of both ranks.
pub(super) fn message(
    programs: &mut [RankProgram],
    from: (usize, View),
    to: (usize, View),
    tag: u64,
) {
    let rank = |index: usize| Rank(index as u32);
    programs[from.0].send(Axis::Pp, from.1, rank(to.0), Tag(tag));
    programs[to.0].recv(to.1, rank(from.0), Tag(tag));
}

/// Joins programs into a Plan, each buffer in a place of its own.
pub(super) fn join(programs: Vec<RankProgram>) -> Plan {
    let order = RankOrder::TpDpPp;
    let mesh = Mesh { dp: 1, tp: 1, pp: programs.len() as u32, order };
    let mut plan = Plan { mesh, tensors: Vec::new(), buffers: Vec::new(), programs: Vec::new() };
    for mut program in programs {
        let first = plan.buffers.len() as u32;
        for instr in &mut program.instrs {
            let shift = |view: &mut View| view.buffer.0 += first;
            match &mut instr.action {
                Action::Launch { inputs, outputs, .. } => {
                    inputs.iter_mut().chain(outputs).for_each(shift);
                }
                Action::Send { view, .. } | Action::Recv { view, .. } => shift(view),
                Action::Copy { from, to } => [from, to].into_iter().for_each(shift),
            }
        }
        let mut ends = [0; 3];
        for mut decl in program.buffers {
            let arena = Arena::ALL.iter().position(|&arena| arena == decl.place.arena).unwrap();
            decl.place.offset = ends[arena];
            ends[arena] += decl.bytes().0.next_multiple_of(Place::ALIGN);
            plan.buffers.push(decl);
        }
        plan.programs.push(Program { instrs: program.instrs });
    }
    plan
}

/// The view of a whole buffer, by its rank and label.
pub(super) fn view_of(plan: &Plan, rank: u32, label: &str) -> View {
    let named = plan.buffers_of(Rank(rank)).find(|(_, decl)| decl.label == label);
    let (buffer, decl) = named.unwrap();
    View { buffer: BufferId(buffer.0), offset: 0, len: decl.len }
}

/// Rank 0 computes, sends to rank 1, which doubles and sends on, and so on round to rank 0.
pub(super) fn relay(rank_count: u32, len: u32, value: f32) -> Plan {
    let mut programs = programs(rank_count);
    let x: Vec<View> = programs.iter_mut().map(|program| floats(program, "x", len)).collect();
    let back = floats(&mut programs[0], "back", len);
    programs[0].launch(fill(len, value), &[], &[x[0]]);
    for rank in 1..rank_count as usize {
        message(&mut programs, (rank - 1, x[rank - 1]), (rank, x[rank]), rank as u64);
        programs[rank].launch(scale(len, 2.0), &[], &[x[rank]]);
    }
    let last = rank_count as usize - 1;
    message(&mut programs, (last, x[last]), (0, back), 0);
    programs[0].launch(add_assign(len), &[back], &[x[0]]);
    join(programs)
}
