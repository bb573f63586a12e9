//! One rank's time at three levels, and what it does between any two instants.
//!
//! All three levels are cuts of one list of pieces; sums by kind are kept at every 32nd piece, so
//! that the work of any stretch of time costs the same however many pieces lie in it.

use std::ops::Range;

use super::Level;
use super::margins::Kinds;
use crate::mesh::Rank;
use crate::plan::Plan;
use crate::trace::Span;
use crate::trace::draw::blocks::{Beside, Piece, Row, State};
use crate::trace::draw::{Block, Work};
use crate::units::Nanos;

/// Pieces between two sums.
const STRIDE: usize = 32;

/// Kinds of time: every work, and waiting as the last one.
const KINDS: usize = Work::ALL.len() + 1;

/// A rank's time.
#[derive(Debug)]
pub(super) struct RankRow {
    pub(super) blocks: Vec<Block>,
    /// Where the pieces of each block end.
    cuts: Vec<u32>,
    /// Level 2: where each group of pieces ends.
    layers: Vec<u32>,
    pub(super) pieces: Vec<Piece>,
    /// Pieces that are not what their block does, but are seen in it: waits, and forward that is run
    /// again.
    marks: Vec<u32>,
    pub(super) beside: Vec<Beside>,
    /// Time of each kind before every 32nd piece.
    sums: Vec<[u64; KINDS]>,
    /// Whether blocks of more than one stage are among them.
    pub(super) has_chunks: bool,
}

/// A cell of a row at some level.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Part {
    pub(super) span: Span,
    /// What it does; `None` while it waits.
    pub(super) work: Option<Work>,
    /// What it is made of.
    pub(super) pieces: Range<usize>,
}

/// The work of a piece; `None` for a wait.
pub(super) fn work_of(piece: &Piece) -> Option<Work> {
    match piece.state {
        State::Runs(work) => Some(work),
        State::Waits(_) => None,
    }
}

impl RankRow {
    pub(super) fn new(plan: &Plan, row: Row) -> Self {
        let rank = row.rank;
        let Row { mut blocks, cuts, pieces, beside, .. } = row;
        blocks.shrink_to_fit();
        let layer = |piece: &Piece| {
            let instr = piece.instr.filter(|_| work_of(piece).is_some())?;
            plan.programs[rank.index()].instrs[instr as usize].origin.layer
        };
        let (mut layers, mut marks) = (Vec::new(), Vec::new());
        let mut start = 0;
        for (block, &cut) in blocks.iter().zip(&cuts) {
            let inside = |piece: &u32| match work_of(&pieces[*piece as usize]) {
                None => block.work().is_some(),
                Some(work) => work == Work::Recompute && block.work() != Some(work),
            };
            marks.extend((start as u32..cut).filter(inside));
            group(&pieces[start..cut as usize], layer, |end| layers.push(start as u32 + end));
            start = cut as usize;
        }
        layers.shrink_to_fit();
        marks.shrink_to_fit();
        let mut stages = blocks.iter().filter_map(|block| block.stage);
        let first = stages.next();
        let has_chunks = stages.any(|stage| Some(stage) != first);
        let sums = sums(&pieces);
        Self { blocks, cuts, layers, pieces, marks, beside, sums, has_chunks }
    }

    /// What there is to be seen in it.
    pub(super) fn kinds(&self, plan: &Plan, rank: Rank) -> Kinds {
        let Sum(spent) = self.before_piece(self.pieces.len());
        let is_wait = |mark: &u32| work_of(&self.pieces[*mark as usize]).is_none();
        let mut kinds = Kinds {
            works: std::array::from_fn(|work| spent[work] > 0),
            waits: spent[KINDS - 1] > 0,
            notches: self.marks.iter().any(is_wait),
            chunks: self.has_chunks,
            ..Kinds::default()
        };
        for beside in self.beside.iter().filter(|beside| beside.span.end > beside.span.start) {
            let origin = plan.programs[rank.index()].instrs[beside.instr as usize].origin;
            let work = Work::of(origin);
            match work.is_pass() {
                true => kinds.messages = true,
                false => kinds.beside[work as usize] = true,
            }
        }
        kinds
    }

    /// How many cells there are at a level.
    pub(super) fn len(&self, level: Level) -> usize {
        match level {
            Level::Pass => self.blocks.len(),
            Level::Layer => self.layers.len(),
            Level::Instr => self.pieces.len(),
        }
    }

    /// The cell of that index.
    pub(super) fn part(&self, level: Level, index: usize) -> Part {
        let between = |ends: &[u32]| {
            let start = index.checked_sub(1).map_or(0, |before| ends[before] as usize);
            start..ends[index] as usize
        };
        let pieces = match level {
            Level::Pass => between(&self.cuts),
            Level::Layer => between(&self.layers),
            Level::Instr => index..index + 1,
        };
        let work = match level {
            Level::Pass => self.blocks[index].work(),
            // A group of work begins with work.
            Level::Layer | Level::Instr => work_of(&self.pieces[pieces.start]),
        };
        let start = index.checked_sub(1).map_or(Nanos(0), |before| self.end(level, before));
        Part { span: Span { start, end: self.end(level, index) }, work, pieces }
    }

    /// Waits in a cell, and forward that is run again in a block that does something else as well:
    /// their work and time.
    pub(super) fn insides(&self, cell: &Part) -> impl Iterator<Item = (Option<Work>, Span)> {
        let first = self.marks.partition_point(|&mark| (mark as usize) < cell.pieces.start);
        let marks = self.marks[first..].iter().map(|&mark| mark as usize);
        let (end, work) = (cell.pieces.end, cell.work);
        let inside = marks.take_while(move |&mark| mark < end).map(|mark| {
            let span = Span { start: self.start(mark), end: self.pieces[mark].end };
            (work_of(&self.pieces[mark]), span)
        });
        inside.filter(move |(inside, _)| *inside != work)
    }

    /// When pieces begin and end.
    pub(super) fn span(&self, pieces: &Range<usize>) -> Span {
        Span { start: self.start(pieces.start), end: self.start(pieces.end) }
    }

    /// When a piece begins; of the one after the last, the end of the step.
    fn start(&self, piece: usize) -> Nanos {
        piece.checked_sub(1).map_or(Nanos(0), |before| self.pieces[before].end)
    }

    /// The cell that covers an instant, or one more than the last.
    pub(super) fn index_at(&self, level: Level, time: Nanos) -> usize {
        match level {
            Level::Pass => self.blocks.partition_point(|block| block.end <= time),
            Level::Layer => {
                self.layers.partition_point(|&cut| self.pieces[cut as usize - 1].end <= time)
            }
            Level::Instr => self.pieces.partition_point(|piece| piece.end <= time),
        }
    }

    /// The first cell from `index` on that ends after an instant, or one more than the last: found
    /// in as many steps as the logarithm of how far it is away.
    pub(super) fn next_after(&self, level: Level, index: usize, time: Nanos) -> usize {
        let count = self.len(level);
        let ends = |index: usize| self.end(level, index) <= time;
        let (mut low, mut reach) = (index, 1);
        while low + reach <= count && ends(low + reach - 1) {
            low += reach;
            reach *= 2;
        }
        let mut high = (low + reach).min(count);
        while low < high {
            let middle = usize::midpoint(low, high);
            if ends(middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// When a cell ends.
    fn end(&self, level: Level, index: usize) -> Nanos {
        match level {
            Level::Pass => self.blocks[index].end,
            Level::Layer => self.pieces[self.layers[index] as usize - 1].end,
            Level::Instr => self.pieces[index].end,
        }
    }

    /// The block that a piece is in.
    pub(super) fn block_of(&self, piece: usize) -> usize {
        self.cuts.partition_point(|&cut| cut as usize <= piece)
    }

    /// The cell of a level that a piece is in.
    pub(super) fn index_of(&self, level: Level, piece: usize) -> usize {
        match level {
            Level::Pass => self.block_of(piece),
            Level::Layer => self.layers.partition_point(|&cut| cut as usize <= piece),
            Level::Instr => piece,
        }
    }

    /// How much of each kind lies before an instant.
    pub(super) fn before(&self, time: Nanos) -> Sum {
        let index = self.index_at(Level::Instr, time);
        let Sum(mut sum) = self.before_piece(index);
        let start = self.start(index);
        if let Some(piece) = self.pieces.get(index).filter(|_| start < time) {
            sum[kind(piece)] += (time - start).0;
        }
        Sum(sum)
    }

    /// How much of each kind lies before a piece.
    pub(super) fn before_piece(&self, index: usize) -> Sum {
        let checkpoint = index / STRIDE;
        let mut sum = self.sums[checkpoint];
        let mut start = self.start(checkpoint * STRIDE);
        for piece in &self.pieces[checkpoint * STRIDE..index] {
            sum[kind(piece)] += (piece.end - start).0;
            start = piece.end;
        }
        Sum(sum)
    }
}

/// Time by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sum([u64; KINDS]);

impl Sum {
    /// What most of the time since `earlier` goes into: work, or `None` for waiting.
    pub(super) fn most_since(self, earlier: Self) -> Option<Work> {
        let spent = |kind: usize| self.0[kind] - earlier.0[kind];
        // Of equal ones the first; waiting comes last.
        let most = (0..KINDS).rev().max_by_key(|&kind| spent(kind)).unwrap_or(KINDS - 1);
        Work::ALL.get(most).copied()
    }

    /// How much of the time since `earlier` is waiting.
    pub(super) fn waiting_since(self, earlier: Self) -> Nanos {
        Nanos(self.0[KINDS - 1] - earlier.0[KINDS - 1])
    }
}

fn kind(piece: &Piece) -> usize {
    work_of(piece).map_or(KINDS - 1, |work| work as usize)
}

fn sums(pieces: &[Piece]) -> Vec<[u64; KINDS]> {
    let (mut sum, mut start) = ([0; KINDS], Nanos(0));
    let mut sums = Vec::with_capacity(pieces.len() / STRIDE + 1);
    for (index, piece) in pieces.iter().enumerate() {
        if index % STRIDE == 0 {
            sums.push(sum);
        }
        sum[kind(piece)] += (piece.end - start).0;
        start = piece.end;
    }
    if pieces.len().is_multiple_of(STRIDE) {
        sums.push(sum);
    }
    sums
}

/// Cuts the pieces of a block into groups of one kind of work on one layer. A wait between pieces
/// of one group lies in it, any other stands for itself.
fn group(pieces: &[Piece], layer: impl Fn(&Piece) -> Option<u32>, mut cut: impl FnMut(u32)) {
    let key = |piece: &Piece| work_of(piece).map(|work| (work, layer(piece)));
    let mut open = None;
    let mut end = 0;
    for (index, piece) in (0u32..).zip(pieces) {
        let key = key(piece);
        // Waits are taken in when the group goes on behind them.
        if key.is_some() && key == open {
            end = index + 1;
            continue;
        }
        if key.is_some() {
            if end > 0 {
                cut(end);
            }
            if end < index {
                cut(index);
            }
            (open, end) = (key, index + 1);
        }
    }
    if end > 0 {
        cut(end);
    }
    if (end as usize) < pieces.len() {
        cut(pieces.len() as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh::{Mesh, RankOrder};
    use crate::trace::draw::blocks;
    use crate::trace::draw::sketch::one_f_one_b;

    #[test]
    fn time_of_each_kind_is_that_of_all_pieces_added_up() {
        let sketch = one_f_one_b(Mesh { dp: 1, tp: 1, pp: 3, order: RankOrder::TpDpPp }, 90, 7);
        let (order, trace) = sketch.replay();
        for row in blocks::rows(&sketch.plan, &order, &trace) {
            let row = RankRow::new(&sketch.plan, row);
            assert!(row.pieces.len() > 5 * STRIDE);
            let mut expected = [0; KINDS];
            let (mut piece, mut at) = (0, Nanos(0));
            for time in (0..=trace.end().0 + 5).map(Nanos) {
                while piece < row.pieces.len() && at < time {
                    expected[kind(&row.pieces[piece])] += 1;
                    at += Nanos(1);
                    piece += usize::from(row.pieces[piece].end == at);
                }
                assert_eq!(row.before(time), Sum(expected), "before {time}");
            }
            for level in Level::ALL {
                for time in (0..=trace.end().0).step_by(5).map(Nanos) {
                    for index in [0, row.len(level) / 2] {
                        let found = row.next_after(level, index, time);
                        assert_eq!(
                            found,
                            row.index_at(level, time).max(index),
                            "{level:?}, {time}"
                        );
                    }
                }
            }
        }
    }
}
