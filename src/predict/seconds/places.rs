//! Where the ranks of a step lie, one of each class: the same for all layouts of a mesh whose stages
//! hand over between the same positions.

use crate::planner::cluster::classes::{Around, Classes, Group, GroupKind, Topology};

/// One rank of each class, by pipeline position.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    pub(super) positions: Vec<Vec<Place>>,
}

/// Where one rank lies.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// Ranks of its class.
    pub(super) members: u32,
    around: Around,
    /// The other classes of each of its groups, by number in its position.
    others: [Vec<usize>; 3],
    /// The ranks of neighbouring positions in its pipeline.
    pub(super) peers: Vec<Peer>,
    /// How much slower it computes.
    pub(super) slowness: f64,
}

/// A rank of a neighbouring position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub(super) position: u32,
    /// Its class, by number in that position.
    pub(super) class: usize,
    /// Whether it lies in another node.
    pub(super) far: bool,
    /// How slow the link is, in thousandths.
    pub(super) slow: u32,
}

impl Places {
    /// Finds the classes.
    pub(crate) fn of(topology: &Topology<'_>) -> Self {
        let classes = Classes::quotient(topology);
        let mut counts = vec![0; topology.mesh.pp as usize];
        let position_of = |class: u32| topology.mesh.coord(classes.first[class as usize]).pp;
        // The number of each class in its position.
        let inside: Vec<usize> = (0..classes.count() as u32)
            .map(|class| {
                let count = &mut counts[position_of(class) as usize];
                *count += 1;
                *count - 1
            })
            .collect();
        let mut positions = vec![Vec::new(); counts.len()];
        for class in 0..classes.count() as u32 {
            let rank = classes.first[class as usize];
            let around = Around::of(topology, &classes, class);
            let others = GroupKind::ALL.map(|kind| {
                around.others(kind).iter().map(|other| inside[*other as usize]).collect()
            });
            let peer = |peer| {
                let (far, slow) = topology.link(rank, peer);
                let class = inside[classes.of[peer.index()] as usize];
                Peer { position: topology.mesh.coord(peer).pp, class, far, slow }
            };
            let peers = topology.pipeline_peers(rank).map(peer).collect();
            let slowness = topology.slowness(rank);
            let members = classes.sizes[class as usize];
            let place = Place { members, around, others, peers, slowness };
            positions[position_of(class) as usize].push(place);
        }
        Self { positions }
    }
}

impl Place {
    pub(super) const fn lies(&self, kind: GroupKind) -> Group {
        self.around.lies(kind)
    }

    /// The other classes of a group, by number in the position.
    pub(super) fn others(&self, kind: GroupKind) -> &[usize] {
        &self.others[kind as usize]
    }

    /// The number of the peer at another position.
    pub(super) fn peer_at(&self, position: u32) -> Option<usize> {
        self.peers.iter().position(|peer| peer.position == position)
    }
}
