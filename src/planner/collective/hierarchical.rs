//! Two levels: inside the nodes, where links are fast, and across them, where 1/n of the data goes.
//!
//! With K nodes of n members each, member j of a node is first given the parts of the members j of
//! *all* nodes, summed over its node; then the members j exchange these across the nodes. A member
//! sends (n−1)·K + (K−1) = N−1 parts: the ring's bytes, but only K−1 of them leave the node.

use super::member::{Member, Parts};
use super::{DIRECT_MEMBERS_MAX, Into, direct, ring};

/// Members of a node, if the group consists of several nodes of several members each.
pub(super) fn node_len(members: usize, node: Option<u32>) -> Option<usize> {
    let node = node? as usize;
    (node > 1 && node < members && members.is_multiple_of(node)).then_some(node)
}

/// Inside the node, then across the nodes.
pub(super) fn reduce_scatter(member: &mut Member<'_>, parts: &Parts, into: Into) {
    let Some(node) = node_len(member.len(), member.node) else {
        return direct::reduce_scatter(member, parts, into);
    };
    let (inside, across) = levels(parts, member.me, node);
    direct::reduce_scatter(&mut neighbours(member, node), &inside, Into::Place);
    let mut peers = peers(member, node);
    if peers.len() > DIRECT_MEMBERS_MAX {
        ring::reduce_scatter(&mut peers, &across, into);
    } else {
        direct::reduce_scatter(&mut peers, &across, into);
    }
}

/// Across the nodes, then inside the node.
pub(super) fn all_gather(member: &mut Member<'_>, parts: &Parts) {
    let Some(node) = node_len(member.len(), member.node) else {
        return direct::all_gather(member, parts);
    };
    let (inside, across) = levels(parts, member.me, node);
    let mut peers = peers(member, node);
    if peers.len() > DIRECT_MEMBERS_MAX {
        ring::all_gather(&mut peers, &across);
    } else {
        direct::all_gather(&mut peers, &across);
    }
    direct::all_gather(&mut neighbours(member, node), &inside);
}

/// The group of the members of my node.
fn neighbours<'a>(member: &'a mut Member<'_>, node: usize) -> Member<'a> {
    let first = member.me / node * node;
    member.within(first..first + node)
}

/// The group of the members that have my index in their nodes: direct for few, else a ring.
fn peers<'a>(member: &'a mut Member<'_>, node: usize) -> Member<'a> {
    let (index, len) = (member.me % node, member.len());
    member.within((index..len).step_by(node))
}

/// The parts of the two levels: of each member of my node, and of my peer in each node.
fn levels(parts: &Parts, me: usize, node: usize) -> (Parts, Parts) {
    let same_index = |index: usize| parts.ranges.iter().skip(index).step_by(node);
    let inside = (0..node).map(|index| same_index(index).flatten().cloned().collect()).collect();
    let across = same_index(me % node).cloned().collect();
    (parts.with(inside), parts.with(across))
}
