//! Cuts the time of every rank into level-1 blocks, without a hole from 0 to the end of the step,
//! and each block into the pieces that it is made of: instructions and waits.
//!
//! A row shows its Compute lane. Only where that is idle does it show collectives of gradients and
//! weights that run beside it; what remains is waiting, and each wait has its cause.

use super::{Block, BlockKind, Work};
use crate::mesh::Rank;
use crate::plan::order::Order;
use crate::plan::{Action, Instr, Lane, Plan};
use crate::trace::cause::{self, Cause};
use crate::trace::{Span, Trace};
use crate::units::Nanos;

/// The level-1 blocks of every rank, `[rank][block]`, ascending: they cover `0..trace.end()`
/// without holes or overlaps, so busy + waiting = step, to the nanosecond.
///
/// One block is one cell of the schedule: instructions of one pass, stage and microbatch with
/// nothing else between them. Waits inside a cell become its notches, but a wait for another stage
/// of the pipeline stands for itself, and in a collective one for a rank that is late.
///
/// # Panics
/// If the Trace is not one of this Plan.
pub fn blocks(plan: &Plan, order: &Order, trace: &Trace) -> Vec<Vec<Block>> {
    rows(plan, order, trace).map(|row| row.blocks).collect()
}

/// The rows of all ranks, in rank order.
///
/// # Panics
/// If the Trace is not one of this Plan.
pub(super) fn rows<'a>(
    plan: &'a Plan,
    order: &'a Order,
    trace: &'a Trace,
) -> impl Iterator<Item = Row> + 'a {
    assert_eq!(trace.spans.len(), plan.programs.len(), "a Trace has the ranks of its Plan");
    let end = trace.end();
    (0..).map(Rank).zip(&plan.programs).map(move |(rank, program)| {
        assert_eq!(trace.spans[rank.index()].len(), program.instrs.len(), "rank {rank}");
        Row::of(&Source { plan, order, trace, rank }, end)
    })
}

/// The finest cut of a rank's time: one instruction, or one wait. It starts where the piece before
/// it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// First instant of the next piece.
    pub(super) end: Nanos,
    /// What runs; of a wait what runs next, `None` at the end of the step.
    pub(super) instr: Option<u32>,
    pub(super) state: State,
}

impl Piece {
    /// What is missing, if this is a wait of `rank`.
    pub(super) fn cause(self, plan: &Plan, rank: Rank) -> Cause {
        let held_by = match self.state {
            State::Waits(held_by) => held_by,
            State::Runs(_) => None,
        };
        cause::of(plan, rank, self.instr, held_by)
    }
}

/// What a rank does in a piece of its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It runs an instruction that is part of this.
    Runs(Work),
    /// It waits for the other half of this message of its own, or for this work of its own on another
    /// lane; without one, for its device or for the end of the step.
    Waits(Option<u32>),
}

/// Work of another lane than Compute that is not seen in the row itself, because the Compute lane
/// works as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Beside {
    pub(super) span: Span,
    pub(super) instr: u32,
}

/// What one row is drawn from.
struct Source<'a> {
    plan: &'a Plan,
    order: &'a Order,
    trace: &'a Trace,
    rank: Rank,
}

impl Source<'_> {
    /// The instructions that `keep` wants and that take time, by start.
    fn spans(&self, keep: impl Fn(u32) -> bool) -> Vec<(u32, Span)> {
        let spans = (0..).zip(&self.trace.spans[self.rank.index()]);
        let long = spans.filter(|(instr, span)| span.start < span.end && keep(*instr));
        let mut found: Vec<(u32, Span)> = long.map(|(instr, span)| (instr, *span)).collect();
        found.sort_unstable_by_key(|&(instr, span)| (span.start, instr));
        found
    }

    /// Whether an instruction is on the Compute lane.
    fn computes(&self, instr: u32) -> bool {
        self.line(instr).lane == Lane::Compute
    }

    /// Whether an instruction is shown where the Compute lane is idle: additions of gradient and
    /// weight collectives, and messages of anything but passes.
    fn fills(&self, instr: u32) -> bool {
        let line = self.line(instr);
        match line.action {
            Action::Send { .. } | Action::Recv { .. } => !Work::of(line.origin).is_pass(),
            Action::Launch { .. } | Action::Copy { .. } => line.lane != Lane::Compute,
        }
    }

    /// Whether an instruction is shown below the row where the Compute lane works: additions of
    /// collectives, and what is sent.
    fn is_beside(&self, instr: u32) -> bool {
        let line = self.line(instr);
        match line.action {
            Action::Send { .. } => true,
            Action::Recv { .. } => false,
            Action::Launch { .. } | Action::Copy { .. } => line.lane != Lane::Compute,
        }
    }

    fn line(&self, instr: u32) -> &Instr {
        &self.plan.programs[self.rank.index()].instrs[instr as usize]
    }

    /// What holds `next` up during `idle`: a message, or own work on another lane.
    fn missing(&self, next: Option<u32>, idle: Span) -> Option<u32> {
        cause::waited_for(self.order, self.trace, (self.rank, next?), idle)
    }

    fn cause(&self, wait: Piece) -> Cause {
        wait.cause(self.plan, self.rank)
    }
}

/// Which cell a piece of time belongs to: pieces with equal keys join.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Cell {
    work: Work,
    stage: Option<u32>,
    microbatch: Option<u32>,
}

impl Cell {
    fn of(source: &Source<'_>, instr: u32) -> Self {
        let origin = source.line(instr).origin;
        let work = Work::of(origin);
        let (stage, microbatch) =
            if work.is_pass() { (origin.stage, origin.microbatch) } else { (None, None) };
        Self { work, stage, microbatch }
    }

    /// The cell that holds both: itself, or a backward for its own recompute.
    fn join(self, other: Self) -> Option<Self> {
        let backward = |cell: Self| matches!(cell.work, Work::Backward | Work::InputGrad);
        if self == other {
            return Some(self);
        }
        let (again, whole) = if backward(self) { (other, self) } else { (self, other) };
        let own = again.work == Work::Recompute
            && backward(whole)
            && (again.stage, again.microbatch) == (whole.stage, whole.microbatch);
        own.then_some(whole)
    }
}

/// A row; it grows from left to right.
pub(super) struct Row {
    /// Whose time it is.
    pub(super) rank: Rank,
    /// Level-1 blocks.
    pub(super) blocks: Vec<Block>,
    /// Where the pieces of each block end.
    pub(super) cuts: Vec<u32>,
    /// What all blocks are made of.
    pub(super) pieces: Vec<Piece>,
    /// What runs beside them, ascending and disjoint.
    pub(super) beside: Vec<Beside>,
    /// The pass at work: what runs on the Compute lane next may continue it.
    open: Option<usize>,
}

/// An instruction, the cell it belongs to and when it is shown.
#[derive(Clone, Copy)]
struct Run {
    instr: u32,
    cell: Cell,
    span: Span,
}

impl Row {
    fn of(source: &Source<'_>, end: Nanos) -> Self {
        let (blocks, cuts, pieces) = (Vec::new(), Vec::new(), Vec::new());
        let beside = Vec::new();
        let mut row = Self { rank: source.rank, blocks, cuts, pieces, beside, open: None };
        let fills = disjoint(source.spans(|instr| source.fills(instr)));
        for (instr, span) in source.spans(|instr| source.computes(instr)) {
            row.idle_until(source, span.start, Some(instr), &fills);
            let start = span.start.max(row.end());
            if start < span.end {
                let cell = Cell::of(source, instr);
                row.compute(source, Run { instr, cell, span: Span { start, end: span.end } });
            }
        }
        row.idle_until(source, end, None, &fills);
        row.pieces.shrink_to_fit();
        row.beside = row.hidden(&disjoint(source.spans(|instr| source.is_beside(instr))));
        row
    }

    /// The parts of `spans` in which the row shows other work.
    fn hidden(&self, spans: &[(u32, Span)]) -> Vec<Beside> {
        let mut found: Vec<Beside> = Vec::new();
        let mut index = 0;
        for &(instr, span) in spans {
            while self.pieces.get(index).is_some_and(|piece| piece.end <= span.start) {
                index += 1;
            }
            let (mut at, mut start) = (index, span.start);
            while let Some(piece) = self.pieces.get(at).filter(|_| start < span.end) {
                let end = piece.end.min(span.end);
                if matches!(piece.state, State::Runs(_)) && piece.instr != Some(instr) {
                    match found.last_mut().filter(|b| b.instr == instr && b.span.end == start) {
                        Some(last) => last.span.end = end,
                        None => found.push(Beside { span: Span { start, end }, instr }),
                    }
                }
                (at, start) = (at + 1, end);
            }
        }
        found
    }

    /// Where the row ends so far.
    fn end(&self) -> Nanos {
        self.blocks.last().map(|block| block.end).unwrap_or_default()
    }

    /// Fills the row up to `end`, where the Compute lane runs `next`.
    fn idle_until(
        &mut self,
        source: &Source<'_>,
        end: Nanos,
        next: Option<u32>,
        fills: &[(u32, Span)],
    ) {
        let idle = Span { start: self.end(), end };
        if idle.end <= idle.start {
            return;
        }
        let first = fills.partition_point(|(_, span)| span.end <= idle.start);
        for &(instr, span) in fills[first..].iter().take_while(|(_, span)| span.start < end) {
            self.wait_until(source, span.start, Some(next.unwrap_or(instr)));
            let span = Span { start: span.start.max(idle.start), end: span.end.min(end) };
            self.fill(Run { instr, cell: Cell::of(source, instr), span });
        }
        self.wait_until(source, end, next);
    }

    fn wait_until(&mut self, source: &Source<'_>, end: Nanos, next: Option<u32>) {
        let span = Span { start: self.end(), end };
        if span.start < span.end {
            let state = State::Waits(source.missing(next, span));
            let wait = Piece { end, instr: next, state };
            self.pieces.push(wait);
            self.push(BlockKind::Waiting(source.cause(wait)), None, span);
        }
    }

    /// Appends work of the Compute lane.
    fn compute(&mut self, source: &Source<'_>, run: Run) {
        let Run { cell, span, .. } = run;
        if !cell.work.is_pass() {
            self.open = None;
            self.fill(run);
            return;
        }
        if let Some(open) = self.open {
            let joined = cell_of(&self.blocks[open]).and_then(|opened| opened.join(cell));
            // What lies between is a notch: waits, and collectives that ran meanwhile.
            let own =
                self.blocks[open + 1..].iter().all(|b| !b.cause().is_some_and(Cause::is_pipeline));
            if let Some(joined) = joined.filter(|_| own) {
                self.absorb(source, open, run);
                self.extend(joined, run);
                return;
            }
        }
        self.open = Some(self.blocks.len());
        self.runs(run);
        self.push(BlockKind::Work(cell.work), Some(cell), span);
    }

    /// Makes one wait for `next` of all blocks behind `open`: while its Compute lane is in a pass,
    /// a rank that does not compute waits, whatever runs beside.
    fn absorb(&mut self, source: &Source<'_>, open: usize, next: Run) {
        let behind = self.blocks.len() - open - 1;
        let is_one_wait = behind == 1 && self.blocks[open + 1].cause().is_some();
        if behind > 0 && !is_one_wait {
            self.pieces.truncate(self.cuts[open] as usize);
            let idle = Span { start: self.blocks[open].end, end: next.span.start };
            let state = State::Waits(source.missing(Some(next.instr), idle));
            self.pieces.push(Piece { end: idle.end, instr: Some(next.instr), state });
        }
        self.blocks.truncate(open + 1);
        self.cuts.truncate(open + 1);
    }

    fn runs(&mut self, run: Run) {
        let Run { instr, cell, span } = run;
        let state = State::Runs(cell.work);
        self.pieces.push(Piece { end: span.end, instr: Some(instr), state });
    }

    /// Appends a piece of a collective, the norm or the optimizer.
    fn fill(&mut self, run: Run) {
        let Run { cell, span, .. } = run;
        // A wait no longer than the work before it is a notch; a late rank is a wait.
        let notch = |wait: &Block, before: &Block| {
            wait.cause().is_some_and(|cause| !cause.is_pipeline())
                && wait.duration() <= before.busy()
        };
        let before = match self.blocks.as_slice() {
            [.., before] if cell_of(before) == Some(cell) => Some(self.blocks.len()),
            [.., before, wait] if cell_of(before) == Some(cell) && notch(wait, before) => {
                Some(self.blocks.len() - 1)
            }
            _ => None,
        };
        match before {
            Some(count) => {
                self.blocks.truncate(count);
                self.cuts.truncate(count);
                self.extend(cell, run);
            }
            None => {
                self.runs(run);
                self.push(BlockKind::Work(cell.work), Some(cell), span);
            }
        }
    }

    /// Makes the last block, now of the cell `joined`, reach to the end of `run`.
    fn extend(&mut self, joined: Cell, run: Run) {
        let Run { cell, span, .. } = run;
        self.runs(run);
        *self.cuts.last_mut().expect("a block to extend") = self.pieces.len() as u32;
        let block = self.blocks.last_mut().expect("a block to extend");
        let was = block.work();
        if was == Some(Work::Recompute) && joined.work != Work::Recompute {
            block.recompute = vec![Span { start: block.start, end: block.end }];
        }
        if block.end < span.start {
            block.notches.push(Span { start: block.end, end: span.start });
        }
        if joined.work != Work::Recompute && cell.work == Work::Recompute {
            match block.recompute.last_mut().filter(|again| again.end == block.end) {
                Some(again) => again.end = span.end,
                None => block.recompute.push(span),
            }
        }
        block.kind = BlockKind::Work(joined.work);
        block.end = span.end;
    }

    /// A new block, of the piece that was pushed last.
    fn push(&mut self, kind: BlockKind, cell: Option<Cell>, span: Span) {
        self.cuts.push(self.pieces.len() as u32);
        self.blocks.push(Block {
            rank: self.rank,
            start: span.start,
            end: span.end,
            kind,
            microbatch: cell.and_then(|cell| cell.microbatch),
            stage: cell.and_then(|cell| cell.stage),
            notches: Vec::new(),
            recompute: Vec::new(),
        });
    }
}

/// The cell that a block shows; `None` for a wait.
fn cell_of(block: &Block) -> Option<Cell> {
    let Block { stage, microbatch, .. } = *block;
    block.work().map(|work| Cell { work, stage, microbatch })
}

/// Where several run at once, the one that started first; ascending.
fn disjoint(spans: Vec<(u32, Span)>) -> Vec<(u32, Span)> {
    let mut found: Vec<(u32, Span)> = Vec::with_capacity(spans.len());
    for (instr, span) in spans {
        let start = span.start.max(found.last().map(|last| last.1.end).unwrap_or_default());
        if start < span.end {
            found.push((instr, Span { start, end: span.end }));
        }
    }
    found
}

#[cfg(test)]
mod tests;
