//! Unfolds collectives into messages and local additions, one member's side at a time.
//!
//! Every function is called once on each member of a group with the same arguments but `me`, and
//! appends that member's instructions. Pieces may be uneven or empty; empty ones send nothing.
//! All reduce with f32 additions; only [`Algorithm::Direct`] adds in rank order and so gives the
//! same bits for any cut into pieces or chunks.

use std::ops::Range;

use super::program::RankProgram;
use crate::mesh::{Axis, Rank};
use crate::plan::{CollectiveKind, Lane, View};

/// One member's seat in a group.
#[derive(Clone, Debug)]
pub struct Seat {
    /// The members in rank order of the axis.
    pub ranks: Vec<Rank>,
    /// This member's index in `ranks`.
    pub me: usize,
    /// The axis that the bytes count for.
    pub axis: Axis,
    /// Members of a node, consecutive in `ranks`, for the hierarchical algorithm; divides the
    /// group.
    pub node: Option<u32>,
}

/// How a collective is unfolded, already decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Around a ring.
    Ring,
    /// Halving-doubling where N is a power of two, else a binary tree.
    Tree,
    /// Inside the nodes, then across, then inside.
    Hierarchical,
    /// The owner of a piece receives the others' and adds them in rank order.
    Direct,
}

/// How one collective runs.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Lane of the additions and copies.
    pub lane: Lane,
    /// Messages carry at most this many elements.
    pub chunk_len: u32,
    /// Equal on all members, unique in the step for the group: the high bits of every tag.
    pub id: u64,
}

/// Where a reduce-scatter leaves this member's piece.
#[derive(Clone, Copy, Debug)]
pub enum Into {
    /// In place, in the member's own piece of the data.
    Place,
    /// Assigned to a view of the piece's length.
    Assign(View),
    /// Added to a view of the piece's length: `view += Σ`.
    Add(View),
}

/// Everyone ends with the sum of all members' `data`, in place.
///
/// Piece `i` of `pieces` (they cover `data`) is reduced by member `i` where the algorithm cuts.
/// # Cost
/// Σ over members = 2(N−1)·S bytes; ring, halving-doubling and direct: each member within one piece of 2(N−1)/N·S.
pub fn all_reduce(
    p: &mut RankProgram,
    seat: &Seat,
    style: Style,
    data: View,
    pieces: &[Range<u32>],
) {
    let _ = (p, seat, style, data, pieces, CollectiveKind::AllReduce);
    unimplemented!()
}

/// Member `i` ends with piece `i` of the sum of all members' `data`; other pieces of `data` are scratch.
///
/// # Cost
/// (N−1)/N·S bytes a member.
pub fn reduce_scatter(
    p: &mut RankProgram,
    seat: &Seat,
    style: Style,
    data: View,
    pieces: &[Range<u32>],
    into: Into,
) {
    let _ = (p, seat, style, data, pieces, into);
    unimplemented!()
}

/// Everyone ends with all pieces: member `i` brings piece `i` in its place in `data`.
///
/// # Cost
/// (N−1)/N·S bytes a member.
pub fn all_gather(
    p: &mut RankProgram,
    seat: &Seat,
    style: Style,
    data: View,
    pieces: &[Range<u32>],
) {
    let _ = (p, seat, style, data, pieces);
    unimplemented!()
}

/// Everyone ends with member 0's `data`.
pub fn broadcast(p: &mut RankProgram, seat: &Seat, style: Style, data: View) {
    let _ = (p, seat, style, data);
    unimplemented!()
}
