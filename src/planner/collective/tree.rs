//! Halving-doubling where N is a power of two, and the binary tree for all other N.
//!
//! Halving-doubling (Rabenseifner, 2004) sends the ring's bytes in 2·log2 N steps; the tree sends
//! whole tensors, few messages for small ones, chunk after chunk for large ones.

use super::Into;
use super::member::{GATHER, Member, Parts};
use crate::plan::View;

/// Recursive halving: log2 N exchanges of halves, each with a partner half as far away.
///
/// Member `i` keeps the half in which its own part lies, so it ends with part `i`.
pub(super) fn reduce_scatter(member: &mut Member<'_>, parts: &Parts, into: Into) {
    let (me, mut half, mut step) = (member.me, member.len() / 2, 0);
    while half > 0 {
        let partner = me ^ half;
        member.send(&parts.chunks(block(partner, half)), partner, step);
        let chunks = parts.chunks(block(me, half));
        let into = if half == 1 { into } else { Into::Place };
        for (index, (&chunk, into)) in chunks.iter().zip(into.along(&chunks)).enumerate() {
            let term = member.scratch(partner, step, index, chunk.len);
            member.recv_chunk(term, partner, step, index);
            // Both orders of two terms have the same bits; the lower member comes first.
            member.sum(vec![term], usize::from(me > partner), chunk, into);
        }
        (half, step) = (half / 2, step + 1);
    }
}

/// Recursive doubling: the exchanges of the halving backwards.
pub(super) fn all_gather(member: &mut Member<'_>, parts: &Parts) {
    let (me, mut half, mut step) = (member.me, 1, GATHER);
    while half < member.len() {
        let partner = me ^ half;
        member.send(&parts.chunks(block(me, half)), partner, step);
        member.recv(&parts.chunks(block(partner, half)), partner, step);
        (half, step) = (half * 2, step + 1);
    }
}

/// The aligned block of `len` members in which `member` lies.
fn block(member: usize, len: usize) -> std::ops::Range<usize> {
    let start = member / len * len;
    start..start + len
}

/// Sums up the binary tree to member 0, then back down.
pub(super) fn all_reduce(member: &mut Member<'_>, chunks: &[View]) {
    for (index, &chunk) in chunks.iter().enumerate() {
        for child in children(member) {
            let term = member.scratch(child, 0, index, chunk.len);
            member.recv_chunk(term, child, 0, index);
            member.add_assign(chunk, term);
        }
        if let Some(parent) = parent(member) {
            member.send_chunk(chunk, parent, 0, index);
        }
    }
    broadcast(member, chunks);
}

/// Member 0's chunks down the binary tree.
pub(super) fn broadcast(member: &mut Member<'_>, chunks: &[View]) {
    for (index, &chunk) in chunks.iter().enumerate() {
        if let Some(parent) = parent(member) {
            member.recv_chunk(chunk, parent, GATHER, index);
        }
        for child in children(member) {
            member.send_chunk(chunk, child, GATHER, index);
        }
    }
}

// The tree is numbered as a heap: 0 over 1 and 2, 1 over 3 and 4, …

fn parent(member: &Member<'_>) -> Option<usize> {
    member.me.checked_sub(1).map(|above| above / 2)
}

fn children(member: &Member<'_>) -> impl Iterator<Item = usize> + use<> {
    let (first, len) = (2 * member.me + 1, member.len());
    (first..first + 2).filter(move |&child| child < len)
}
