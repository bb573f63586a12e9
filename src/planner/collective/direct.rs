//! The direct algorithm: the owner of a piece receives the others' and adds them in rank order.
//!
//! It sends the ring's bytes in two hops instead of 2(N−1), and its sum is the same for any cut
//! into pieces or chunks: element by element, `x_0 + x_1 + …` from the left.

use super::Into;
use super::member::{GATHER, Member, Parts};
use crate::plan::View;

/// Every member sends each owner its part; one op a chunk adds them.
///
/// All sends come first in the program, for they depend on nothing that this collective does:
/// ```text
/// Out(peer)   c0 c1 c2 …
/// received    ─ c0 c1 c2 …
/// lane        ─ ── +c0 +c1 +c2
/// ```
pub(super) fn reduce_scatter(member: &mut Member<'_>, parts: &Parts, into: Into) {
    for owner in member.others() {
        member.send(&parts.chunks_of(owner), owner, 0);
    }
    let (me, own) = (member.me, parts.chunks_of(member.me));
    for (index, (&chunk, into)) in own.iter().zip(into.along(&own)).enumerate() {
        let mut terms = Vec::with_capacity(member.len() - 1);
        for from in (0..member.len()).filter(|&from| from != me) {
            let term = member.scratch(from, 0, index, chunk.len);
            member.recv_chunk(term, from, 0, index);
            terms.push(term);
        }
        member.sum(terms, me, chunk, into);
    }
}

/// Every owner sends all others its part, right into its place.
pub(super) fn all_gather(member: &mut Member<'_>, parts: &Parts) {
    for (index, &chunk) in parts.chunks_of(member.me).iter().enumerate() {
        for to in member.others() {
            member.send_chunk(chunk, to, GATHER, index);
        }
    }
    for from in member.others() {
        member.recv(&parts.chunks_of(from), from, GATHER);
    }
}

/// Member 0 sends everyone its chunks.
pub(super) fn broadcast(member: &mut Member<'_>, chunks: &[View]) {
    if member.me > 0 {
        return member.recv(chunks, 0, GATHER);
    }
    for (index, &chunk) in chunks.iter().enumerate() {
        for to in member.others() {
            member.send_chunk(chunk, to, GATHER, index);
        }
    }
}
