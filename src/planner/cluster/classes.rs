//! The quotient: which ranks of a large cluster have the same step, so that one of each is enough.
//!
//! Two ranks are alike if they hold the same pipeline position, run at the same speed, reach their
//! groups and their neighbouring stages over the same links, and if those neighbours are alike in
//! turn. The coarsest such partition is found by refinement, as in the minimisation of automata.
//! Times of a step depend on nothing else, so a class ends every instruction at the very
//! nanosecond at which each of its members does.

use std::collections::{BTreeMap, BTreeSet};

use crate::mesh::{Axis, Coord, Mesh, Rank};

/// What makes equal positions differ. `1.0` is the described speed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Knobs {
    /// Ranks that compute slower, and by which factor.
    pub slow_ranks: Vec<(Rank, f64)>,
    /// Pairs of ranks whose messages and collectives are slower, and by which factor.
    pub slow_links: Vec<(Rank, Rank, f64)>,
}

/// How a group of ranks lies in the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    /// Ranks of the group.
    pub members: u32,
    /// The most of them in one node.
    pub per_node: u32,
    /// Factor of a slow link between two members, in thousandths.
    pub slow: u32,
}

/// Ranks of a mesh by class; class numbers go by first member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes {
    /// Class of each rank.
    pub of: Vec<u32>,
    /// The first member of each class.
    pub first: Vec<Rank>,
    /// Members of each class.
    pub sizes: Vec<u32>,
}

/// Where ranks lie and who exchanges messages with whom.
#[derive(Clone, Debug)]
pub struct Topology<'a> {
    /// The ranks. Those that share a sequence are neighbours on the data axis.
    pub mesh: Mesh,
    /// Ranks that share a sequence.
    pub cp: u32,
    /// GPUs of a node.
    pub node: u32,
    /// Pairs of pipeline positions that exchange messages, lower first.
    pub neighbours: BTreeSet<(u32, u32)>,
    /// What makes equal positions differ.
    pub knobs: &'a Knobs,
}

impl Topology<'_> {
    /// The ranks of a rank's group: tensor, data (all that hold the same weights) or sequence.
    pub fn group(&self, rank: Rank, kind: GroupKind) -> Vec<Rank> {
        match kind {
            GroupKind::Tensor => self.mesh.group(rank, Axis::Tp),
            GroupKind::Data => self.mesh.group(rank, Axis::Dp),
            GroupKind::Sequence => {
                let at = self.mesh.coord(rank);
                let start = at.dp - at.dp % self.cp;
                let on = |dp| self.mesh.rank(Coord { dp, ..at });
                (start..start + self.cp).map(on).collect()
            }
        }
    }

    /// How a group lies.
    pub fn lies(&self, members: &[Rank]) -> Group {
        let mut nodes: BTreeMap<u32, u32> = BTreeMap::new();
        for rank in members {
            *nodes.entry(rank.0 / self.node).or_default() += 1;
        }
        let inside = |a: &Rank, b: &Rank| members.contains(a) && members.contains(b);
        let slow = self.knobs.slow_links.iter().filter(|(a, b, _)| inside(a, b));
        Group {
            members: members.len() as u32,
            per_node: nodes.values().copied().max().unwrap_or(1),
            slow: thousandths(slow.map(|(.., factor)| *factor).fold(1.0, f64::max)),
        }
    }

    /// How much slower a rank computes.
    pub(crate) fn slowness(&self, rank: Rank) -> f64 {
        let slow = self.knobs.slow_ranks.iter().filter(|(slow, _)| *slow == rank);
        slow.map(|(_, factor)| *factor).fold(1.0, f64::max)
    }

    /// Whether two ranks lie in different nodes, and how slow their link is, in thousandths.
    pub fn link(&self, a: Rank, b: Rank) -> (bool, u32) {
        let is = |(x, y, _): &&(Rank, Rank, f64)| (*x, *y) == (a, b) || (*x, *y) == (b, a);
        let slow = self.knobs.slow_links.iter().find(is).map_or(1.0, |(.., factor)| *factor);
        (a.0 / self.node != b.0 / self.node, thousandths(slow))
    }

    /// The ranks of neighbouring positions in a rank's own pipeline.
    pub(crate) fn pipeline_peers(&self, rank: Rank) -> impl Iterator<Item = Rank> {
        let at = self.mesh.coord(rank);
        let other = move |&(a, b): &(u32, u32)| match at.pp {
            here if here == a => Some(b),
            here if here == b => Some(a),
            _ => None,
        };
        let peers = self.neighbours.iter().filter_map(other);
        peers.map(move |pp| self.mesh.rank(at.with(Axis::Pp, pp)))
    }
}

fn thousandths(factor: f64) -> u32 {
    (factor * 1000.0).round() as u32
}

/// The groups that run collectives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupKind {
    /// Slices of the same matrices.
    Tensor,
    /// The same weights.
    Data,
    /// The same sequences.
    Sequence,
}

impl GroupKind {
    pub(crate) const ALL: [Self; 3] = [Self::Tensor, Self::Data, Self::Sequence];
}

/// The groups of a rank: how they lie, and the other classes in them.
#[derive(Clone, Debug)]
pub(crate) struct Around {
    groups: [(Group, Vec<u32>); 3],
}

impl Around {
    /// Of the members of a class.
    pub(crate) fn of(topology: &Topology<'_>, classes: &Classes, class: u32) -> Self {
        let rank = classes.first[class as usize];
        let group = |kind| {
            let members = topology.group(rank, kind);
            let mut others = classes.among(&members);
            others.remove(&class);
            (topology.lies(&members), others.into_iter().collect())
        };
        Self { groups: GroupKind::ALL.map(group) }
    }

    /// How a group lies.
    pub(crate) const fn lies(&self, kind: GroupKind) -> Group {
        self.groups[kind as usize].0
    }

    /// The other classes in a group, ascending.
    pub(crate) fn others(&self, kind: GroupKind) -> &[u32] {
        &self.groups[kind as usize].1
    }
}

impl Classes {
    /// The coarsest partition into ranks that are alike.
    pub fn quotient(topology: &Topology<'_>) -> Self {
        let ranks: Vec<Rank> = topology.mesh.ranks().collect();
        let groups: Vec<(Vec<u32>, Vec<Vec<Rank>>)> =
            GroupKind::ALL.iter().map(|kind| topology.numbered_groups(*kind)).collect();
        let lying: Vec<Vec<Group>> = groups
            .iter()
            .map(|(_, lists)| lists.iter().map(|list| topology.lies(list)).collect())
            .collect();
        let facts = ranks.iter().map(|&rank| {
            let around = groups.iter().zip(&lying);
            let lies = around.map(|((of, _), lying)| lying[of[rank.index()] as usize]);
            let links = topology.pipeline_peers(rank).map(|peer| topology.link(rank, peer));
            let position = topology.mesh.coord(rank).pp;
            let speed = thousandths(topology.slowness(rank));
            (position, speed, lies.collect::<Vec<_>>(), links.collect::<Vec<_>>())
        });
        let mut of = number(facts);
        let count = |of: &[u32]| of.iter().max().map_or(0, |last| last + 1);
        if count(&of) == topology.mesh.pp {
            // Ranks of a position have the same position in every group and as every neighbour.
            return Self::new(of);
        }
        loop {
            // The colours that each group holds, once a group.
            let held: Vec<Vec<BTreeSet<u32>>> = groups
                .iter()
                .map(|(_, lists)| {
                    let colours = |list: &Vec<Rank>| list.iter().map(|r| of[r.index()]).collect();
                    lists.iter().map(colours).collect()
                })
                .collect();
            let facts = ranks.iter().map(|&rank| {
                let index = rank.index();
                let around = groups.iter().zip(&held);
                let around = around.map(|((group, _), held)| &held[group[index] as usize]);
                let peers = topology.pipeline_peers(rank).map(|peer| of[peer.index()]);
                (of[index], around.collect::<Vec<_>>(), peers.collect::<Vec<_>>())
            });
            let finer = number(facts);
            if count(&finer) == count(&of) {
                return Self::new(of);
            }
            of = finer;
        }
    }

    /// Every rank by itself: the full simulation.
    pub fn singletons(mesh: Mesh) -> Self {
        Self::new((0..mesh.size()).collect())
    }

    fn new(of: Vec<u32>) -> Self {
        let (mut first, mut sizes) = (Vec::new(), Vec::new());
        for (rank, class) in (0..).map(Rank).zip(&of) {
            if *class as usize == first.len() {
                first.push(rank);
                sizes.push(0);
            }
            sizes[*class as usize] += 1;
        }
        Self { of, first, sizes }
    }

    /// Number of classes.
    pub fn count(&self) -> usize {
        self.first.len()
    }

    /// The classes of some ranks, each once, ascending.
    fn among(&self, ranks: &[Rank]) -> BTreeSet<u32> {
        ranks.iter().map(|rank| self.of[rank.index()]).collect()
    }
}

impl Topology<'_> {
    /// The group of each rank by number, and the groups.
    fn numbered_groups(&self, kind: GroupKind) -> (Vec<u32>, Vec<Vec<Rank>>) {
        let mut of = vec![u32::MAX; self.mesh.size() as usize];
        let mut lists = Vec::new();
        for rank in self.mesh.ranks() {
            if of[rank.index()] == u32::MAX {
                let members = self.group(rank, kind);
                for member in &members {
                    of[member.index()] = lists.len() as u32;
                }
                lists.push(members);
            }
        }
        (of, lists)
    }
}

/// Numbers facts in order of appearance; equal facts get equal numbers.
fn number<T: Ord>(facts: impl Iterator<Item = T>) -> Vec<u32> {
    let mut known = BTreeMap::new();
    let mut next = 0;
    facts
        .map(|fact| {
            *known.entry(fact).or_insert_with(|| {
                next += 1;
                next - 1
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh::RankOrder;

    fn classes(mesh: Mesh, node: u32, knobs: &Knobs) -> Classes {
        let neighbours = (1..mesh.pp).map(|pp| (pp - 1, pp)).collect();
        Classes::quotient(&Topology { mesh, cp: 1, node, neighbours, knobs })
    }

    #[test]
    fn equal_pipelines_have_one_class_a_position_however_many_there_are() {
        let mesh = Mesh { dp: 128, tp: 8, pp: 16, order: RankOrder::TpDpPp };
        let classes = classes(mesh, 8, &Knobs::default());
        assert_eq!(classes.count(), 16);
        assert_eq!(classes.sizes, [1024; 16]);
    }

    #[test]
    fn one_slow_rank_sets_its_tensor_group_and_its_pipeline_apart() {
        let mesh = Mesh { dp: 4, tp: 2, pp: 3, order: RankOrder::TpDpPp };
        let knobs = Knobs { slow_ranks: vec![(Rank(0), 1.5)], ..Knobs::default() };
        let classes = classes(mesh, 24, &knobs);
        // At each of three positions four kinds: in the slow rank's pipeline, in its tensor peer's, and
        // the same two slices elsewhere, which meet the first two in their data groups.
        assert_eq!(classes.count(), 12);
        assert_ne!(classes.of[0], classes.of[1]);
        assert_ne!(classes.of[0], classes.of[2]);
        assert_eq!(classes.of[4], classes.of[6], "two replicas that the slow one does not touch");
    }

    #[test]
    fn a_pipeline_that_crosses_nodes_elsewhere_than_its_neighbour_is_another_class() {
        // Six ranks a node, four a position: some pairs of positions cross, some do not.
        let mesh = Mesh { dp: 4, tp: 1, pp: 3, order: RankOrder::TpDpPp };
        let classes = classes(mesh, 6, &Knobs::default());
        assert!(classes.count() > 3, "{classes:?}");
        assert_eq!(classes.sizes.iter().sum::<u32>(), 12);
    }
}
