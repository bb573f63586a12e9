//! What the passes, collectives and messages of a step take, in whole nanoseconds, as the ops of the
//! written Plan would.

use super::places::{Place, Places};
use crate::config::workload::Workload;
use crate::planner::cluster::Exchange;
use crate::planner::cluster::classes::{Group, GroupKind};
use crate::planner::cluster::stage::{BUCKETS, Inside, StageCosts, StageShape, Turn, reduces};
use crate::planner::schedule::{Pass, Schedule};
use crate::sim::cost::{Pricer, nanos};

/// Prices of a step.
#[derive(Debug)]
pub(super) struct Prices {
    /// By stage and by class of its position.
    pub(super) stages: Vec<Vec<StagePrice>>,
    /// Pipeline position of each stage.
    pub(super) owners: Vec<u32>,
    /// The optimizer, by position and class.
    pub(super) updates: Vec<Vec<u64>>,
    /// Messages, by position, class and peer.
    pub(super) messages: Vec<Vec<Vec<u64>>>,
    pub(super) sharing: Sharing,
}

/// What ranks with the same weights exchange, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sharing {
    /// Weights before the first forwards.
    pub(super) overlaps_weights: bool,
    /// Gradients while the last backwards complete them.
    pub(super) overlaps_gradients: bool,
    /// Gradients after all passes.
    pub(super) reduces_late: bool,
    /// Weights after the optimizer.
    pub(super) shares_late: bool,
    /// Both, layer by layer, in every pass.
    pub(super) layers: bool,
    /// Whether passes gather weights, by [`Pass`].
    gathers: [bool; 4],
}

/// Prices of one stage on a rank.
#[derive(Clone, Debug)]
pub(super) struct StagePrice {
    /// By [`Pass`]: a pass as most are, and one that is cut because others wait for it.
    passes: [[Pieces; 2]; 4],
    /// A piece of its weights and of its gradients.
    pub(super) gather: u64,
    pub(super) reduce: u64,
    /// All of its gradients and of its weights at once.
    pub(super) reduce_all: u64,
    pub(super) gather_all: u64,
}

/// Equal pieces of a pass, one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pieces {
    pub(super) count: u32,
    pub(super) kernel: u64,
    /// The collectives inside its layers, if there are any.
    pub(super) joined: Option<u64>,
}

impl StagePrice {
    pub(super) const fn pieces(&self, pass: Pass, turn: Turn) -> Pieces {
        let [usual, cut] = self.passes[pass as usize];
        if matches!(turn, Turn::Other) { usual } else { cut }
    }
}

impl Sharing {
    fn of(costs: &StageCosts<'_>) -> Self {
        let once = costs.reduces_once();
        Self {
            overlaps_weights: costs.overlaps_weights(),
            overlaps_gradients: costs.overlaps_gradients(),
            reduces_late: once && !costs.overlaps_gradients(),
            shares_late: costs.shares_updates() && !costs.overlaps_weights(),
            layers: costs.gathers_layers(),
            gathers: PASSES.map(|pass| costs.gathers(pass)),
        }
    }

    pub(super) const fn gathers(&self, pass: Pass) -> bool {
        self.gathers[pass as usize]
    }
}

/// The passes, in the order of their numbers.
const PASSES: [Pass; 4] = [Pass::F, Pass::B, Pass::I, Pass::W];

impl Prices {
    pub(super) fn of(
        workload: &Workload,
        places: &Places,
        table: &Schedule,
        pricer: Pricer<'_>,
    ) -> Self {
        let owners = table.owners();
        let costs = StageCosts::new(workload);
        let shapes = StageShape::of(&workload.model, owners.len() as u32);
        let mut works = Works { costs: &costs, pricer, known: Vec::new() };
        let stage = |(stage, shape): (usize, &StageShape)| {
            let work = works.of(*shape);
            let position = owners[stage] as usize;
            let price = |place: &Place| {
                let on = On { workload, costs: &costs, pricer, place, shape: *shape };
                on.price(work, [Pass::F, Pass::I].map(|pass| next(stage, pass, &owners)))
            };
            places.positions[position].iter().map(price).collect()
        };
        let stages = shapes.iter().enumerate().map(stage).collect();
        let updates = places.positions.iter().enumerate().map(|(position, classes)| {
            let own = (0..owners.len()).filter(|stage| owners[*stage] as usize == position);
            let parameters: f64 = own.map(|stage| costs.parameters(shapes[stage])).sum();
            let seconds = pricer.work(&StageCosts::update(workload, parameters));
            let update = |place: &Place| nanos(pricer.beside(seconds * place.slowness, 0.0));
            classes.iter().map(update).collect()
        });
        let updates = updates.collect();
        let bytes = 2.0 * f64::from(costs.boundary());
        let blocks = workload.software.blocking_pipeline;
        let messages = |place: &Place| {
            // A hand-over that blocks is paid for by the sender.
            let message = |peer: &super::places::Peer| match blocks {
                true => 0,
                false => nanos(pricer.message(bytes, peer.far, peer.slow)),
            };
            place.peers.iter().map(message).collect()
        };
        let messages = places.positions.iter().map(|of| of.iter().map(messages).collect());
        Self { messages: messages.collect(), sharing: Sharing::of(&costs), stages, updates, owners }
    }
}

impl Prices {
    /// The stages of a position, ascending.
    pub(super) fn stages_of(&self, position: usize) -> impl Iterator<Item = usize> {
        let of =
            move |(stage, owner): (usize, &u32)| (*owner as usize == position).then_some(stage);
        self.owners.iter().enumerate().filter_map(of)
    }
}

/// The position that a pass of a stage hands over to, if it is another one.
fn next(stage: usize, pass: Pass, owners: &[u32]) -> Option<u32> {
    let next = match pass {
        Pass::F => Some(stage + 1).filter(|next| *next < owners.len()),
        Pass::B | Pass::I => stage.checked_sub(1),
        Pass::W => None,
    };
    next.map(|next| owners[next]).filter(|next| *next != owners[stage])
}

/// Seconds of the passes of a stage, by [`Pass`]: all of a pass, and the attention in it.
type PassSeconds = [(f64, f64); 4];

/// Seconds of passes, each kind of stage once.
struct Works<'a> {
    costs: &'a StageCosts<'a>,
    pricer: Pricer<'a>,
    known: Vec<(StageShape, PassSeconds)>,
}

impl Works<'_> {
    fn of(&mut self, shape: StageShape) -> PassSeconds {
        if let Some((_, known)) = self.known.iter().find(|(known, _)| *known == shape) {
            return *known;
        }
        let seconds = PASSES.map(|pass| {
            let work = self.costs.work(shape, pass);
            (self.pricer.work(&work), self.pricer.flash_in(&work))
        });
        self.known.push((shape, seconds));
        seconds
    }
}

/// One stage on one rank.
struct On<'a> {
    workload: &'a Workload,
    costs: &'a StageCosts<'a>,
    pricer: Pricer<'a>,
    place: &'a Place,
    shape: StageShape,
}

impl On<'_> {
    /// `next`: the positions that its forwards and its backwards hand over to.
    fn price(&self, work: PassSeconds, next: [Option<u32>; 2]) -> StagePrice {
        let Self { costs, shape, .. } = *self;
        let [up, down] = next;
        let group = self.place.lies(GroupKind::Data);
        let (gathered, reduced) = (costs.gathered(shape, group), costs.reduced(shape, group));
        let cut = if costs.gathers_layers() { shape.layers.max(1) as u32 } else { BUCKETS };
        let pass = |pass: Pass| {
            let handed = match pass {
                Pass::F => self.handed(up),
                Pass::B | Pass::I => self.handed(down),
                Pass::W => None,
            };
            let turn = match pass {
                Pass::F => Turn::First,
                _ if reduces(pass) => Turn::Completing,
                _ => Turn::Other,
            };
            [Turn::Other, turn].map(|turn| self.pieces(pass, turn, work[pass as usize], handed))
        };
        let all = |list: &[Exchange], pieces: u32| {
            let whole = self.pricer.exchanges(list, 0.0, 0.0);
            nanos(self.pricer.piece(list, whole, pieces.into()))
        };
        StagePrice {
            passes: PASSES.map(pass),
            gather: all(&gathered, cut),
            reduce: all(&reduced, cut),
            reduce_all: all(&reduced, 1),
            gather_all: all(&gathered, 1),
        }
    }

    fn pieces(
        &self,
        pass: Pass,
        turn: Turn,
        (work, flash): (f64, f64),
        handed: Option<Group>,
    ) -> Pieces {
        let Self { costs, pricer, place, shape, .. } = *self;
        let count = costs.pieces(shape, pass, turn);
        let parts = f64::from(count);
        let beside = costs.beside(shape, pass, place.lies(GroupKind::Data));
        let beside = pricer.exchanges(&beside, 0.0, 0.0) / parts;
        let [tensor, sequence] = [GroupKind::Tensor, GroupKind::Sequence].map(|of| place.lies(of));
        let inside = costs.inside(shape, pass, Inside { tensor, sequence, handed }, 0);
        let joined = (!inside.is_empty()).then(|| {
            let whole = pricer.exchanges(&inside, work, flash);
            nanos(pricer.piece(&inside, whole, parts))
        });
        Pieces {
            count,
            kernel: nanos(pricer.beside(work / parts * place.slowness, beside)),
            joined,
        }
    }

    /// The two ends of a hand-over, if the rank computes nothing meanwhile.
    fn handed(&self, position: Option<u32>) -> Option<Group> {
        let peer = position.and_then(|position| self.place.peer_at(position))?;
        let peer = self.place.peers[peer];
        let per_node = if peer.far { 1 } else { 2 };
        let group = Group { members: 2, per_node, slow: peer.slow };
        self.workload.software.blocking_pipeline.then_some(group)
    }
}
