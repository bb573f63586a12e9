//! Places the buffers of one rank: the last pass over its program.
//!
//! Persistent, input and output buffers lie one after another. Buffers of the step share memory
//! where their lives, from first to last access in program order, do not meet; the packing itself
//! is in `skyline`. Reuse of a place is an ordinary hazard, so a tight packing delays messages: a
//! life is stretched by some cells of the schedule where memory allows (see [`place`]).

mod skyline;

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::slice;

use self::skyline::Block;
use super::program::RankProgram;
use crate::plan::{Action, Arena, BufferDecl, CollectiveKind, Held, Instr, Lane, Place, View};
use crate::units::Bytes;

/// How buffers are placed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlaceOptions {
    /// Receive targets and send sources share their place with nobody: for programs in which
    /// reuse would let two messages wait for each other.
    pub exclusive_messages: bool,
}

/// Gives every buffer of the program its place.
///
/// Messages do not run at their line of the program: a receive is posted early if its view is
/// free, a send or an addition of a gradient collective ends late. So a receive between stages
/// takes its place one cell of the schedule early, and what a message or the Reduce lane touches
/// last keeps its place for one cell more, if everything still fits into 1.1 × the live peak; else
/// only messages between stages do; else none.
///
/// ```text
/// program   │ B 3     │ F 5     │ B 4        cells
/// life      │         │   ├───┤ │            from the receive of x to its last use
/// place     ├─────────────────┤ │            so that the sender of x need not wait for F 5
/// ```
pub fn place(program: &mut RankProgram, options: PlaceOptions) {
    let lives = Lives::new(program);
    let room = lives.bytes_peak(&program.buffers) * 11 / 10
        + Place::ALIGN * lives.strict.iter().flatten().count() as u64;
    let pack = |reach| skyline::pack(&lives.blocks(&program.buffers, reach));
    let packing = if options.exclusive_messages {
        pack(Reach::Exclusive)
    } else {
        let mut stretched = [Reach::Messages, Reach::Stages].into_iter().map(pack);
        let fitting = stretched.find(|packing| packing.height <= room);
        fitting.unwrap_or_else(|| pack(Reach::Nothing))
    };
    let mut ends = [0; 2];
    for (decl, step_offset) in program.buffers.iter_mut().zip(packing.offsets) {
        decl.place.offset = match decl.place.arena {
            Arena::Persistent => append(&mut ends[0], decl),
            Arena::Io => append(&mut ends[1], decl),
            Arena::Step => step_offset,
        };
    }
}

/// The most bytes of step buffers that are between first and last access at one time, in program
/// order; final gradients count up to the end.
pub fn live_peak(program: &RankProgram) -> Bytes {
    Bytes(Lives::new(program).bytes_peak(&program.buffers))
}

/// The place after the end of an arena.
fn append(end: &mut u64, decl: &BufferDecl) -> u64 {
    let offset = *end;
    *end += aligned(decl);
    offset
}

fn aligned(decl: &BufferDecl) -> u64 {
    decl.bytes().0.next_multiple_of(Place::ALIGN)
}

/// Whose lives are stretched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// All that messages and the Reduce lane touch.
    Messages,
    /// Messages between stages.
    Stages,
    /// None.
    Nothing,
    /// Messages own their place for the whole step.
    Exclusive,
}

/// When the buffers of a program are in use; all lists by buffer.
#[derive(Debug)]
struct Lives {
    /// From first to last access of step buffers that are accessed at all.
    strict: Vec<Option<Range<u32>>>,
    uses: Vec<Uses>,
    /// Bounds of the cells: cell `k` is `bounds[k]..bounds[k + 1]`; what comes before the first
    /// cell of the schedule is one too.
    bounds: Vec<u32>,
}

/// What a buffer is to the messages of its rank.
#[derive(Clone, Copy, Debug, Default)]
struct Uses {
    /// The source or target of a message.
    message: bool,
    /// The source or target of a message between stages.
    between_stages: bool,
    /// Its first access is a receive.
    begins_received: bool,
    /// Its last access is not on the Compute lane.
    ends_late: bool,
}

impl Lives {
    fn new(program: &RankProgram) -> Self {
        let end = program.instrs.len() as u32;
        let count = program.buffers.len();
        let mut lives =
            Self { strict: vec![None; count], uses: vec![Uses::default(); count], bounds: vec![0] };
        lives.bounds.extend(program.cell_starts.iter().filter(|&&start| start > 0 && start < end));
        lives.bounds.push(end);
        for (at, instr) in (0..).zip(&program.instrs) {
            for view in views(&instr.action) {
                lives.touch(view.buffer.0 as usize, at, instr);
            }
        }
        for ((life, decl), uses) in
            lives.strict.iter_mut().zip(&program.buffers).zip(&mut lives.uses)
        {
            if decl.place.arena != Arena::Step {
                *life = None;
            } else if decl.pieces.iter().any(|piece| piece.held == Held::Gradient) {
                // The host reads final gradients after the step.
                *life = Some(life.as_ref().map_or(0, |life| life.start)..end.max(1));
                uses.ends_late = false;
            }
        }
        lives
    }

    fn touch(&mut self, buffer: usize, at: u32, instr: &Instr) {
        let (life, uses) = (&mut self.strict[buffer], &mut self.uses[buffer]);
        let received = matches!(instr.action, Action::Recv { .. });
        if received || matches!(instr.action, Action::Send { .. }) {
            let kind = instr.origin.collective.map(|collective| collective.kind);
            uses.message = true;
            uses.between_stages |= matches!(kind, None | Some(CollectiveKind::PointToPoint));
        }
        if life.is_none() {
            uses.begins_received = received;
        }
        uses.ends_late = instr.lane != Lane::Compute;
        *life = Some(life.as_ref().map_or(at, |life| life.start)..at + 1);
    }

    /// The blocks to pack: a block of size 0 for what needs no room.
    fn blocks(&self, buffers: &[BufferDecl], reach: Reach) -> Vec<Block> {
        let block = |(index, decl)| match &self.strict[index] {
            Some(life) => {
                Block { life: self.stretched(life, self.uses[index], reach), size: aligned(decl) }
            }
            None => Block { life: 0..0, size: 0 },
        };
        buffers.iter().enumerate().map(block).collect()
    }

    fn stretched(&self, life: &Range<u32>, uses: Uses, reach: Reach) -> Range<u32> {
        let whole = 0..self.bounds[self.bounds.len() - 1];
        let stretch = match reach {
            Reach::Exclusive if uses.message => return whole,
            Reach::Exclusive | Reach::Nothing => false,
            Reach::Messages => true,
            Reach::Stages => uses.between_stages,
        };
        let mut life = life.clone();
        let cell = |at: u32| self.bounds.partition_point(|&start| start <= at) - 1;
        // Members of a collective run in step: posting its receives early gains nothing.
        if stretch && uses.begins_received && uses.between_stages {
            life.start = self.bounds[cell(life.start).saturating_sub(1)];
        }
        if stretch && uses.ends_late {
            life.end = self.bounds.get(cell(life.end - 1) + 2).copied().unwrap_or(whole.end);
        }
        life
    }

    fn bytes_peak(&self, buffers: &[BufferDecl]) -> u64 {
        let block = |(life, decl): (&Option<Range<u32>>, &BufferDecl)| {
            Some(Block { life: life.clone()?, size: decl.bytes().0 })
        };
        let blocks: Vec<Block> = self.strict.iter().zip(buffers).filter_map(block).collect();
        skyline::live_peak(&blocks)
    }
}

fn views(action: &Action) -> impl Iterator<Item = View> {
    let (some, more): (&[View], &[View]) = match action {
        Action::Launch { inputs, outputs, .. } => (inputs, outputs),
        Action::Send { view, .. } | Action::Recv { view, .. } => (slice::from_ref(view), &[]),
        Action::Copy { from, to } => (slice::from_ref(from), slice::from_ref(to)),
    };
    some.iter().chain(more).copied()
}
