//! What all algorithms share: a member's program and its messages, and the data cut into chunks.
//!
//! A message is one chunk. Its tag is (collective, step, chunk), which is unique for the pair of
//! ranks as long as an algorithm sends each peer every chunk once a step; gathering steps start at
//! [`GATHER`], so that the two halves of an all-reduce never meet.

use std::ops::Range;

use super::{Into, RankProgram, Seat, Style, message_tag};
use crate::mesh::{Axis, Rank};
use crate::ops::{Op, elementwise::AddAssign, reduction::SumRanks};
use crate::plan::{Action, Role, View};
use crate::shape::DType;

/// First step of the gathering half.
pub(super) const GATHER: usize = 1 << 10;

/// The data cut into one part a member; a part is a list of ranges.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    data: View,
    chunk_len: u32,
    /// Per member, in rank order.
    pub(super) ranges: Vec<Vec<Range<u32>>>,
}

impl Parts {
    /// One piece a member; the pieces cover the data in order.
    pub(super) fn new(data: View, pieces: &[Range<u32>], seat: &Seat, style: Style) -> Self {
        assert_eq!(pieces.len(), seat.ranks.len(), "one piece a member");
        let end = pieces.iter().fold(0, |at, piece| {
            assert_eq!(piece.start, at, "pieces {pieces:?} lie one after another");
            piece.end
        });
        assert_eq!(end, data.len, "the pieces cover the data");
        assert!(style.chunk_len > 0, "a chunk has at least one element");
        let ranges = pieces.iter().map(|piece| vec![piece.clone()]).collect();
        Self { data, chunk_len: style.chunk_len, ranges }
    }

    /// All of the data as one part, in the order in which every member sees it.
    pub(super) fn whole(data: View, style: Style) -> Self {
        assert!(style.chunk_len > 0, "a chunk has at least one element");
        let all = 0..data.len;
        Self { data, chunk_len: style.chunk_len, ranges: vec![vec![all]] }
    }

    /// Other parts of the same data.
    pub(super) fn with(&self, ranges: Vec<Vec<Range<u32>>>) -> Self {
        Self { data: self.data, chunk_len: self.chunk_len, ranges }
    }

    /// The chunks of the parts of some members. Parts that touch are cut as one.
    pub(super) fn chunks(&self, members: Range<usize>) -> Vec<View> {
        let mut joined: Vec<Range<u32>> = Vec::new();
        for range in self.ranges[members].iter().flatten() {
            match joined.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => joined.push(range.clone()),
            }
        }
        let cut = |range: Range<u32>| {
            let starts = range.clone().step_by(self.chunk_len as usize);
            starts.map(move |at| at..range.end.min(at.saturating_add(self.chunk_len)))
        };
        joined.into_iter().flat_map(cut).map(|chunk| self.data.slice(chunk)).collect()
    }

    /// The chunks of one member's part.
    pub(super) fn chunks_of(&self, member: usize) -> Vec<View> {
        self.chunks(member..member + 1)
    }
}

/// One member at work: its program and its place in the group.
#[derive(Debug)]
pub(super) struct Member<'a> {
    p: &'a mut RankProgram,
    ranks: Vec<Rank>,
    axis: Axis,
    /// Members of a node.
    pub(super) node: Option<u32>,
    /// Index in the group.
    pub(super) me: usize,
    /// How the collective runs.
    pub(super) style: Style,
}

impl<'a> Member<'a> {
    pub(super) fn new(p: &'a mut RankProgram, seat: &Seat, style: Style) -> Self {
        let Seat { ranks, me, axis, node } = seat.clone();
        Self { p, ranks, me, axis, node, style }
    }

    /// The same member in a smaller group: `members` are indices in this one.
    pub(super) fn within(&mut self, members: impl Iterator<Item = usize>) -> Member<'_> {
        let rank = self.ranks[self.me];
        let ranks: Vec<Rank> = members.map(|index| self.ranks[index]).collect();
        let me = ranks.iter().position(|&other| other == rank).expect("I am in my own group");
        Member { p: self.p, ranks, me, axis: self.axis, node: None, style: self.style }
    }

    /// Number of members.
    pub(super) fn len(&self) -> usize {
        self.ranks.len()
    }

    /// The other members, beginning with the next one, so that not all begin with member 0.
    pub(super) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (me, len) = (self.me, self.len());
        (1..len).map(move |distance| (me + distance) % len)
    }

    /// Sends chunks to a member.
    pub(super) fn send(&mut self, chunks: &[View], to: usize, step: usize) {
        for (index, &chunk) in chunks.iter().enumerate() {
            self.send_chunk(chunk, to, step, index);
        }
    }

    /// Sends chunk `index` to a member.
    pub(super) fn send_chunk(&mut self, chunk: View, to: usize, step: usize, index: usize) {
        let tag = message_tag(self.style.id, step, index);
        self.p.send(self.axis, chunk, self.ranks[to], tag);
    }

    /// Receives chunks from a member.
    pub(super) fn recv(&mut self, chunks: &[View], from: usize, step: usize) {
        for (index, &chunk) in chunks.iter().enumerate() {
            self.recv_chunk(chunk, from, step, index);
        }
    }

    /// Receives chunk `index` from a member.
    pub(super) fn recv_chunk(&mut self, chunk: View, from: usize, step: usize, index: usize) {
        let tag = message_tag(self.style.id, step, index);
        self.p.recv(chunk, self.ranks[from], tag);
    }

    /// Declares scratch for a message from a member.
    pub(super) fn scratch(&mut self, from: usize, step: usize, index: usize, len: u32) -> View {
        let (axis, id, rank) = (self.axis, self.style.id, self.ranks[from]);
        let label = format!("scratch.{axis}{id}.step{step}.chunk{index}.from{rank}");
        self.p.buffer(label, Role::Workspace, DType::F32, len)
    }

    /// `y += x`.
    pub(super) fn add_assign(&mut self, y: View, x: View) {
        let op = Op::AddAssign(AddAssign { len: y.len });
        self.p.launch_on(self.style.lane, op, &[x], &[y]);
    }

    /// Adds the others' `terms`, which are in rank order, and this member's `own` term at its
    /// `position` among them, from left to right.
    pub(super) fn sum(&mut self, mut terms: Vec<View>, position: usize, own: View, into: Into) {
        let ranks = terms.len() as u32 + 1;
        let (held, accumulate, out) = match into {
            Into::Place => (Some(position as u32), false, own),
            Into::Assign(view) => (None, false, view),
            Into::Add(view) => (None, true, view),
        };
        if held.is_none() {
            terms.insert(position, own);
        }
        let op = Op::SumRanks(SumRanks { ranks, own: held, len: own.len, accumulate });
        self.p.launch_on(self.style.lane, op, &terms, &[out]);
    }

    /// The sum of one member: its own chunks.
    pub(super) fn keep(&mut self, chunks: &[View], into: Into) {
        for (&chunk, into) in chunks.iter().zip(into.along(chunks)) {
            match into {
                Into::Place => {}
                Into::Assign(to) => self.p.push(self.style.lane, Action::Copy { from: chunk, to }),
                Into::Add(to) => self.add_assign(to, chunk),
            }
        }
    }
}

impl Into {
    /// The target of each of the chunks of a piece.
    pub(super) fn along(self, chunks: &[View]) -> Vec<Self> {
        let mut at = 0;
        let target = |chunk: &View| {
            let range = at..at + chunk.len;
            at = range.end;
            match self {
                Self::Place => Self::Place,
                Self::Assign(view) => Self::Assign(view.slice(range)),
                Self::Add(view) => Self::Add(view.slice(range)),
            }
        };
        chunks.iter().map(target).collect()
    }
}
