//! Writes the program of one rank, buffers and instructions in program order, and joins the
//! programs of all ranks to a Plan.
//!
//! Buffers are declared without a place; [`super::memory`] places them when the whole program is
//! known. Buffer ids are local to the rank until [`join`] numbers them over all ranks. Whoever
//! writes a Plan by hand starts here too.

use super::memory::{self, PlaceOptions};
use crate::mesh::{Axis, Mesh, Rank};
use crate::ops::Op;
use crate::plan::{
    Action, Arena, BufferDecl, BufferId, Instr, Lane, Life, LogicalTensor, Origin, Piece, Place,
    Plan, Program, Role, Tag, View, order,
};
use crate::shape::DType;

/// The program of one rank under construction.
#[derive(Clone, Debug)]
pub struct RankProgram {
    /// Whose program it is.
    pub rank: Rank,
    /// Declared buffers; their places are not valid yet.
    pub buffers: Vec<BufferDecl>,
    /// Instructions so far.
    pub instrs: Vec<Instr>,
    /// The origin that new instructions get.
    pub origin: Origin,
    /// Instruction index at which each cell of the schedule starts: memory placement lets receives
    /// be posted one cell early.
    pub cell_starts: Vec<u32>,
    /// Where the parts of the pass that is being written start: between them another pass may run.
    pub(super) part_starts: Vec<u32>,
}

impl RankProgram {
    /// An empty program.
    pub fn new(rank: Rank) -> Self {
        Self {
            rank,
            buffers: Vec::new(),
            instrs: Vec::new(),
            origin: Origin::default(),
            cell_starts: Vec::new(),
            part_starts: Vec::new(),
        }
    }

    /// Number of instructions so far.
    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.instrs.len()).expect("fewer than 2^32 instructions")
    }

    /// Begins a part of a pass. All ranks of a tensor-parallel group begin the same parts, so that
    /// passes that take turns do so alike on all of them.
    pub(super) fn begin_part(&mut self) {
        self.part_starts.push(self.len());
    }

    /// Writes the parts of two passes, the last ones so far, in turn: a device runs one kernel at a
    /// time, but while one pass waits for its messages the other one computes.
    ///
    /// ```text
    /// before: F F F F B B B B B B      now: F B F B F B F B B B
    /// ```
    pub(super) fn interleave(&mut self, one: &[u32], other: &[u32]) {
        let start = one[0];
        let written = self.instrs.split_off(start as usize);
        let part = |bounds: &[u32], index: usize| {
            let bounds = bounds.get(index..index + 2).map(|b| [b[0], b[1]]).unwrap_or_default();
            let at = |bound: u32| bound.saturating_sub(start) as usize;
            written[at(bounds[0])..at(bounds[1])].to_vec()
        };
        for index in 0..one.len().max(other.len()) {
            self.instrs.extend(part(one, index));
            self.instrs.extend(part(other, index));
        }
    }

    /// Moves what is sent to other stages since instruction `start` to the end. It is sent as soon as
    /// it is there all the same; but its place is kept until then.
    pub(super) fn hand_over_last(&mut self, start: u32) {
        let hands_over = |instr: &Instr| matches!(instr.lane, Lane::Out(Axis::Pp, _));
        let written = self.instrs.split_off(start as usize);
        let (late, others): (Vec<_>, Vec<_>) = written.into_iter().partition(hands_over);
        self.instrs.extend(others);
        self.instrs.extend(late);
    }

    /// Declares a buffer and returns a view of all of it.
    pub fn buffer(&mut self, label: impl Into<String>, role: Role, dtype: DType, len: u32) -> View {
        self.declare(label, role, dtype, len, Life::Step)
    }

    /// Declares a buffer of any life.
    ///
    /// # Panics
    /// At 2^32 buffers.
    pub fn declare(
        &mut self,
        label: impl Into<String>,
        role: Role,
        dtype: DType,
        len: u32,
        life: Life,
    ) -> View {
        let buffer = BufferId(u32::try_from(self.buffers.len()).expect("fewer than 2^32 buffers"));
        let arena = match life {
            Life::Persistent => Arena::Persistent,
            Life::Input(_) | Life::Output(_) => Arena::Io,
            Life::Step => Arena::Step,
        };
        self.buffers.push(BufferDecl {
            rank: self.rank,
            label: label.into(),
            role,
            dtype,
            len,
            life,
            place: Place { arena, offset: 0 },
            pieces: Vec::new(),
        });
        View { buffer, offset: 0, len }
    }

    /// Says which part of a logical tensor a buffer holds.
    pub fn piece(&mut self, view: View, piece: Piece) {
        self.buffers[view.buffer.0 as usize].pieces.push(piece);
    }

    /// Appends an instruction with the current origin.
    pub fn push(&mut self, lane: Lane, action: Action) {
        self.instrs.push(Instr { lane, action, origin: self.origin });
    }

    /// Appends a kernel on the Compute lane.
    pub fn launch(&mut self, op: Op, inputs: &[View], outputs: &[View]) {
        self.launch_on(Lane::Compute, op, inputs, outputs);
    }

    /// Appends a kernel on a lane.
    pub fn launch_on(&mut self, lane: Lane, op: Op, inputs: &[View], outputs: &[View]) {
        self.push(lane, Action::Launch { op, inputs: inputs.to_vec(), outputs: outputs.to_vec() });
    }

    /// Appends a send; empty views are not sent.
    pub fn send(&mut self, axis: Axis, view: View, to: Rank, tag: Tag) {
        if view.len > 0 {
            self.push(Lane::Out(axis, to), Action::Send { view, to, tag, hops: 1 });
        }
    }

    /// Appends a receive; empty views are not received.
    pub fn recv(&mut self, view: View, from: Rank, tag: Tag) {
        if view.len > 0 {
            self.push(Lane::Posted, Action::Recv { view, from, tag, hops: 1 });
        }
    }
}

/// The Plan of whole programs, one a rank in rank order: places the buffers of every rank and
/// numbers them over all ranks. `tensors` is what their pieces speak of.
///
/// # Panics
/// If there is not one program for each rank of the mesh.
pub fn join(mesh: Mesh, tensors: Vec<LogicalTensor>, programs: Vec<RankProgram>) -> Plan {
    let ranks = programs.iter().map(|program| program.rank);
    assert!(ranks.eq(mesh.ranks()), "one program for each rank of {mesh:?}, in rank order");
    let bare = Plan { mesh, tensors, buffers: Vec::new(), programs: Vec::new() };
    let plan = placed(bare.clone(), programs.clone(), PlaceOptions::default());
    if order::graph(&plan, &order::derive(&plan)).is_acyclic() {
        return plan;
    }
    // A receive would wait for memory that is freed only after a later message: give messages
    // memory of their own.
    placed(bare, programs, PlaceOptions { exclusive_messages: true })
}

/// The Plan in which every rank's program is written by the same function, as in MPI.
pub fn on_every_rank(mesh: Mesh, write: impl Fn(&mut RankProgram)) -> Plan {
    let program = |rank| {
        let mut program = RankProgram::new(rank);
        write(&mut program);
        program
    };
    join(mesh, Vec::new(), mesh.ranks().map(program).collect())
}

fn placed(mut plan: Plan, programs: Vec<RankProgram>, options: PlaceOptions) -> Plan {
    for mut program in programs {
        memory::place(&mut program, options);
        let base = u32::try_from(plan.buffers.len()).expect("fewer than 2^32 buffers");
        let moved = |view: &mut View| view.buffer = BufferId(view.buffer.0 + base);
        for instr in &mut program.instrs {
            match &mut instr.action {
                Action::Launch { inputs, outputs, .. } => {
                    inputs.iter_mut().chain(outputs).for_each(moved);
                }
                Action::Send { view, .. } | Action::Recv { view, .. } => moved(view),
                Action::Copy { from, to } => [from, to].into_iter().for_each(moved),
            }
        }
        plan.buffers.extend(program.buffers);
        plan.programs.push(Program { instrs: program.instrs });
    }
    plan
}
