//! Unfolds collectives into messages and local additions, one member's side at a time.
//!
//! Every function is called once on each member of a group with the same arguments but `me`, and
//! appends that member's instructions; pieces may be uneven or empty, and empty ones send nothing.
//! All reduce with f32 additions; only [`Algorithm::Direct`] adds in rank order and so gives the
//! same bits for any cut into pieces or chunks. The algorithms live one a file: `direct`, `ring`,
//! `tree`, `hierarchical`; `member` is what they share.

mod direct;
mod hierarchical;
mod member;
mod ring;
mod tree;

#[cfg(test)]
pub(super) mod tests;

use std::ops::Range;

use self::member::{GATHER, Member, Parts};
use super::program::RankProgram;
use crate::config::layout::CollectiveChoice;
use crate::mesh::{Axis, Mesh, Rank};
use crate::plan::{Collective, CollectiveKind, Lane, Tag, View};

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

impl Seat {
    /// The seat of a rank in its group along an axis of a mesh without nodes.
    pub fn of(mesh: Mesh, rank: Rank, axis: Axis) -> Self {
        let me = mesh.coord(rank).on(axis) as usize;
        Self { ranks: mesh.group(rank, axis), me, axis, node: None }
    }
}

/// How a collective is unfolded, already decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Around a ring.
    Ring,
    /// Halving-doubling where N is a power of two. Else all-reduce goes through a binary tree, and
    /// reduce-scatter and all-gather are direct: for pieces of 1/N no tree has fewer bytes or
    /// hops. Broadcast always goes through the binary tree.
    Tree,
    /// Inside the nodes, then across, then inside; direct where the group is not cut into nodes.
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

/// Groups up to this size are reduced directly: one hop, and one op adds all.
const DIRECT_MEMBERS_MAX: usize = 8;
/// Up to this many bytes the hops of a ring cost more than the many messages of the direct way.
const DIRECT_BYTES_MAX: u64 = 256 << 10;

/// The algorithm for a group of `members`, of which `node` share a node, and tensors of `bytes`.
///
/// `Auto` is hierarchical where the group spans several nodes of several members each, else direct
/// up to 8 members or 256 KiB, else the ring.
pub fn choose(
    choice: CollectiveChoice,
    bytes: u64,
    members: usize,
    node: Option<u32>,
) -> Algorithm {
    match choice {
        CollectiveChoice::Ring => Algorithm::Ring,
        CollectiveChoice::Tree => Algorithm::Tree,
        CollectiveChoice::Hierarchical => Algorithm::Hierarchical,
        CollectiveChoice::Direct => Algorithm::Direct,
        CollectiveChoice::Auto if hierarchical::node_len(members, node).is_some() => {
            Algorithm::Hierarchical
        }
        CollectiveChoice::Auto if members <= DIRECT_MEMBERS_MAX || bytes <= DIRECT_BYTES_MAX => {
            Algorithm::Direct
        }
        CollectiveChoice::Auto => Algorithm::Ring,
    }
}

/// The tag of a message: collective (or any other id unique on the axis), step, chunk.
///
/// # Panics
/// If a part does not fit: 2^36 ids, 2^11 steps, 2^17 chunks.
pub fn message_tag(id: u64, step: usize, chunk: usize) -> Tag {
    assert!(
        id < 1 << 36 && step < 2 * GATHER && chunk < 1 << 17,
        "a tag has no room for id {id}, step {step}, chunk {chunk}"
    );
    Tag(id << 28 | (step as u64) << 17 | chunk as u64)
}

/// Everyone ends with the sum of all members' `data`, in place.
///
/// Piece `i` of `pieces` (they cover `data`) is reduced by member `i` where the algorithm cuts.
/// # Cost
/// Σ over members = 2(N−1)·S bytes; ring, halving-doubling, hierarchical and direct: each member
/// within one piece of 2(N−1)/N·S.
pub fn all_reduce(
    p: &mut RankProgram,
    seat: &Seat,
    style: Style,
    data: View,
    pieces: &[Range<u32>],
) {
    let parts = Parts::new(data, pieces, seat, style);
    collective(p, seat, style, CollectiveKind::AllReduce, |member| {
        if style.algorithm == Algorithm::Tree && !member.len().is_power_of_two() {
            tree::all_reduce(member, &parts.chunks(0..member.len()));
        } else {
            scatter(member, &parts, Into::Place);
            gather(member, &parts);
        }
    });
}

/// Member `i` ends with piece `i` of the sum of all members' `data`; other pieces of `data` are
/// scratch.
///
/// # Cost
/// (N−1)/N·S bytes a member.
/// # Panics
/// If a target is not as long as the member's piece.
pub fn reduce_scatter(
    p: &mut RankProgram,
    seat: &Seat,
    style: Style,
    data: View,
    pieces: &[Range<u32>],
    into: Into,
) {
    let parts = Parts::new(data, pieces, seat, style);
    if let Into::Assign(view) | Into::Add(view) = into {
        assert_eq!(
            view.len,
            pieces[seat.me].len() as u32,
            "a piece goes into a view of its length"
        );
    }
    collective(p, seat, style, CollectiveKind::ReduceScatter, |member| {
        scatter(member, &parts, into);
    });
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
    let parts = Parts::new(data, pieces, seat, style);
    collective(p, seat, style, CollectiveKind::AllGather, |member| gather(member, &parts));
}

/// Everyone ends with member 0's `data`: through a binary tree with [`Algorithm::Tree`], else
/// straight from member 0.
///
/// # Cost
/// Σ over members = (N−1)·S bytes.
pub fn broadcast(p: &mut RankProgram, seat: &Seat, style: Style, data: View) {
    let chunks = Parts::whole(data, style).chunks_of(0);
    collective(p, seat, style, CollectiveKind::Broadcast, |member| match style.algorithm {
        Algorithm::Tree => tree::broadcast(member, &chunks),
        Algorithm::Ring | Algorithm::Hierarchical | Algorithm::Direct => {
            direct::broadcast(member, &chunks);
        }
    });
}

/// Runs `unfold` with the origin of a collective, and restores the origin.
fn collective(
    p: &mut RankProgram,
    seat: &Seat,
    style: Style,
    kind: CollectiveKind,
    unfold: impl FnOnce(&mut Member<'_>),
) {
    assert_eq!(seat.ranks[seat.me], p.rank, "member {} of the group is another rank", seat.me);
    let origin = p.origin;
    p.origin.collective = Some(Collective { kind, id: style.id });
    p.origin.axis = Some(seat.axis);
    unfold(&mut Member::new(p, seat, style));
    p.origin = origin;
}

fn scatter(member: &mut Member<'_>, parts: &Parts, into: Into) {
    if member.len() == 1 {
        return member.keep(&parts.chunks(0..1), into);
    }
    match member.style.algorithm {
        Algorithm::Ring => ring::reduce_scatter(member, parts, into),
        Algorithm::Tree if member.len().is_power_of_two() => {
            tree::reduce_scatter(member, parts, into);
        }
        Algorithm::Hierarchical => hierarchical::reduce_scatter(member, parts, into),
        Algorithm::Tree | Algorithm::Direct => direct::reduce_scatter(member, parts, into),
    }
}

fn gather(member: &mut Member<'_>, parts: &Parts) {
    match member.style.algorithm {
        Algorithm::Ring => ring::all_gather(member, parts),
        Algorithm::Tree if member.len().is_power_of_two() => tree::all_gather(member, parts),
        Algorithm::Hierarchical => hierarchical::all_gather(member, parts),
        Algorithm::Tree | Algorithm::Direct => direct::all_gather(member, parts),
    }
}
