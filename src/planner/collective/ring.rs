//! The ring: every member talks to its two neighbours only, in 2(N−1) steps.
//!
//! A part starts at the member after its owner, and every member on the way adds its own before it
//! passes the sum on; so the order of additions of a part begins behind its owner. Then the sums
//! travel the same way once more (Patarasuk and Yuan, 2009).

use super::Into;
use super::member::{GATHER, Member, Parts};
use crate::plan::View;

/// N−1 steps; at step `s` member `i` passes on part `i − 1 − s`.
pub(super) fn reduce_scatter(member: &mut Member<'_>, parts: &Parts, into: Into) {
    let (me, len) = (member.me, member.len());
    let (next, previous) = ((me + 1) % len, (me + len - 1) % len);
    let slots = slots(member, parts, previous);
    for step in 0..len - 1 {
        member.send(&parts.chunks_of((me + 2 * len - 1 - step) % len), next, step);
        let chunks = parts.chunks_of((me + 2 * len - 2 - step) % len);
        let into = if step == len - 2 { into } else { Into::Place };
        for (index, (&chunk, into)) in chunks.iter().zip(into.along(&chunks)).enumerate() {
            let term = slots[step % 2][index].slice(0..chunk.len);
            member.recv_chunk(term, previous, step, index);
            match into {
                Into::Place => member.add_assign(chunk, term),
                // The sum so far comes from the members behind this one.
                Into::Assign(_) | Into::Add(_) => member.sum(vec![term], 1, chunk, into),
            }
        }
    }
}

/// Two sets of scratch, used in turn: a step receives while the step before adds.
fn slots(member: &mut Member<'_>, parts: &Parts, from: usize) -> [Vec<View>; 2] {
    // Parts are uneven: each slot fits the chunk of its index of any part.
    let mut lens: Vec<u32> = Vec::new();
    for chunks in (0..member.len()).map(|owner| parts.chunks_of(owner)) {
        lens.resize(lens.len().max(chunks.len()), 0);
        for (len, chunk) in lens.iter_mut().zip(&chunks) {
            *len = chunk.len.max(*len);
        }
    }
    // A ring of two has a single step.
    let sets = if member.len() > 2 { 0..2 } else { 0..1 };
    let mut slots = [Vec::new(), Vec::new()];
    for step in sets {
        let slot = |(index, &len)| member.scratch(from, step, index, len);
        slots[step] = lens.iter().enumerate().map(slot).collect();
    }
    slots
}

/// N−1 steps; at step `s` member `i` passes on part `i − s`.
pub(super) fn all_gather(member: &mut Member<'_>, parts: &Parts) {
    let (me, len) = (member.me, member.len());
    let (next, previous) = ((me + 1) % len, (me + len - 1) % len);
    for step in 0..len - 1 {
        let tag = GATHER + step;
        member.send(&parts.chunks_of((me + len - step) % len), next, tag);
        member.recv(&parts.chunks_of((me + 2 * len - 1 - step) % len), previous, tag);
    }
}
