//! What the passes and collectives of one layout take, priced as the simulator prices them, for the
//! ranks of one pipeline: the first tensor rank of the first replica at every position.
//!
//! That pipeline waits for itself and for others. A bound counts the first alone, so it is never
//! above the simulated step. Durations are rounded down by more than the simulator can round off.

use crate::config::Cluster;
use crate::config::workload::{Sharding, Workload};
use crate::mesh::{Coord, Mesh};
use crate::plan::CollectiveKind;
use crate::planner::cluster::classes::{Group, GroupKind, Knobs, Topology};
use crate::planner::cluster::stage::{BUCKETS, Inside, StageCosts, StageShape};
use crate::planner::schedule::Pass;
use crate::planner::schedule::named::Held;
use crate::sim::cost::Pricer;

/// Nanoseconds of the parts of a step.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Prices {
    /// By stage.
    pub(super) stages: Vec<StagePrice>,
    /// The optimizer, by position.
    pub(super) updates: Vec<u64>,
    /// Who shares weights and gradients, and when.
    pub(super) sharing: Sharing,
}

/// What ranks with the same weights exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// There are none.
    Nobody,
    /// Gradients after the last backward of a stage; weights before its first forward if they are
    /// gathered.
    OnceAStep { gathers: bool },
    /// Every pass, layer by layer; backward gathers too if weights are sharded.
    EachPass { backward_gathers: bool },
}

/// Nanoseconds of one stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StagePrice {
    /// Its pipeline position.
    pub(super) owner: u32,
    /// A pass with the collectives inside its layers, by [`Pass`].
    passes: [u64; 4],
    /// Collectives of its gradients and weights are cut into so many pieces.
    pub(super) pieces: u64,
    /// Gathering a piece.
    pub(super) gather: u64,
    /// Reducing a piece.
    pub(super) reduce: u64,
    /// The collectives inside a piece of a backward: its gradients are complete before them.
    pub(super) joined: u64,
    /// The message to the next stage; 0 if this position holds it too.
    pub(super) up: u64,
    /// The message to the stage before.
    pub(super) down: u64,
}

impl StagePrice {
    pub(super) const fn pass(&self, pass: Pass) -> u64 {
        self.passes[pass as usize]
    }

    /// The least that is left of the last reduction when a position has run all its passes.
    pub(super) const fn reduced_late(&self) -> u64 {
        self.reduce.saturating_sub(self.joined)
    }
}

/// Seconds of the passes of one kind of stage, and its elements of weights.
#[derive(Clone, Copy, Debug)]
struct PassSeconds {
    work: [f64; 4],
    inside: [f64; 4],
    parameters: f64,
}

/// Prices passes of layouts that differ in schedule and `ZeRO` alone, each kind of stage once.
#[derive(Debug)]
pub(super) struct Passes<'a> {
    pricer: Pricer<'a>,
    place: &'a Place,
    costs: StageCosts<'a>,
    known: Vec<((StageShape, Group), PassSeconds)>,
}

impl<'a> Passes<'a> {
    /// `workload`: of one of these layouts.
    pub(super) fn new(workload: &'a Workload, place: &'a Place, pricer: Pricer<'a>) -> Self {
        Self { pricer, place, costs: StageCosts::new(workload), known: Vec::new() }
    }

    fn of(&mut self, stage: StageShape, tensor: Group) -> PassSeconds {
        let key = (stage, tensor);
        if let Some((_, known)) = self.known.iter().find(|(known, _)| *known == key) {
            return *known;
        }
        let Self { pricer, costs, .. } = self;
        // No sequence is shared, no hand-over blocks.
        let sequence = Group { members: 1, per_node: 1, slow: 1000 };
        let around = Inside { tensor, sequence, handed: None };
        let work = PASSES.map(|pass| pricer.work(&costs.work(stage, pass)));
        let inside = PASSES.map(|pass| {
            let list = costs.inside(stage, pass, around, 0);
            list.iter().map(|exchange| pricer.exchange(exchange, work[pass as usize], 0.0)).sum()
        });
        let seconds = PassSeconds { work, inside, parameters: costs.parameters(stage) };
        self.known.push((key, seconds));
        seconds
    }
}

/// The passes, in the order of their numbers.
const PASSES: [Pass; 4] = [Pass::F, Pass::B, Pass::I, Pass::W];

impl Prices {
    /// Of one of the layouts that `passes` prices. `held`: by its schedule.
    pub(super) fn of(workload: &Workload, held: &[Held], passes: &mut Passes<'_>) -> Self {
        let place = passes.place;
        let sharing = match workload.split.sharding {
            _ if workload.split.replicas() == 1 => Sharing::Nobody,
            Sharding::Nothing => Sharing::OnceAStep { gathers: false },
            Sharding::OptimizerState => Sharing::OnceAStep { gathers: true },
            Sharding::Gradients => Sharing::EachPass { backward_gathers: false },
            Sharding::Weights => Sharing::EachPass { backward_gathers: true },
        };
        let count = held.iter().map(|held| held.stages.len()).sum();
        let shapes = StageShape::of(&workload.model, count as u32);
        let mut stages = vec![StagePrice::default(); count];
        let mut updates = Vec::with_capacity(held.len());
        for (position, held) in (0..).zip(held) {
            let (tensor, data) = place.groups[position as usize];
            let mut parameters = 0.0;
            for &stage in &held.stages {
                let seconds = passes.of(shapes[stage as usize], tensor);
                parameters += seconds.parameters;
                let layers = shapes[stage as usize].layers;
                let price = stage_price(&seconds, layers, sharing, (passes.pricer, data), workload);
                stages[stage as usize] = StagePrice { owner: position, ..price };
            }
            let update = StageCosts::update(workload, parameters);
            updates.push(whole_nanos(passes.pricer.work(&update), 1));
        }
        let bytes = 2.0 * f64::from(passes.costs.boundary());
        for stage in 1..count {
            let (below, above) = (stages[stage - 1].owner, stages[stage].owner);
            if below != above {
                let far = place.is_far(below, above);
                let message = whole_nanos(passes.pricer.message(bytes, far, 1000), 1);
                stages[stage - 1].up = message;
                stages[stage].down = message;
            }
        }
        Self { stages, updates, sharing }
    }
}

fn stage_price(
    seconds: &PassSeconds,
    layers: u64,
    sharing: Sharing,
    (pricer, group): (Pricer<'_>, Group),
    workload: &Workload,
) -> StagePrice {
    let PassSeconds { work, inside, parameters } = *seconds;
    let each = matches!(sharing, Sharing::EachPass { .. });
    let pieces = if each { layers.max(1) } else { BUCKETS.into() };
    let rounded = pieces.max(BUCKETS.into());
    let (weights, gradients) =
        (2.0 * parameters, workload.software.gradient_bytes as f64 * parameters);
    let reduces = match workload.split.sharding {
        Sharding::Nothing => CollectiveKind::AllReduce,
        _ => CollectiveKind::ReduceScatter,
    };
    let part = |kind, bytes: f64, parts: u64| pricer.collective(kind, bytes / parts as f64, group);
    let gather = |parts| part(CollectiveKind::AllGather, weights, parts);
    let reduce = |parts| part(reduces, gradients, parts);
    let of = |pass: Pass| {
        let (work, inside) = (work[pass as usize], inside[pass as usize]);
        let Sharing::EachPass { backward_gathers } = sharing else {
            return whole_nanos(work + inside, rounded);
        };
        let gathers = pass == Pass::F || (backward_gathers && pass != Pass::W);
        let reduces = matches!(pass, Pass::B | Pass::W);
        let both = |parts| {
            let gather = if gathers { gather(parts) } else { 0.0 };
            gather + if reduces { reduce(parts) } else { 0.0 }
        };
        // Kernels and collectives that run side by side slow one another.
        let kernels = pricer.beside(work, both(1)) + inside;
        // Weights of two layers have a place: all others are gathered while the pass runs, and in
        // their lane what is reduced lies between them.
        let lane = if gathers { pieces.saturating_sub(2) as f64 * both(pieces) } else { 0.0 };
        whole_nanos(kernels, rounded).max(whole_nanos(lane, rounded))
    };
    let alone = sharing == Sharing::Nobody;
    StagePrice {
        owner: 0,
        passes: PASSES.map(of),
        pieces,
        gather: if alone { 0 } else { whole_nanos(gather(pieces), 1) },
        reduce: if alone { 0 } else { whole_nanos(reduce(pieces), 1) },
        joined: (inside[Pass::B as usize] / pieces as f64 * 1e9).ceil() as u64 + 1,
        up: 0,
        down: 0,
    }
}

/// Nanoseconds, less one for each piece that the simulator rounds for itself.
fn whole_nanos(seconds: f64, pieces: u64) -> u64 {
    ((seconds * 1e9).floor() as u64).saturating_sub(pieces)
}

/// Where the ranks of the pipeline and their groups lie: the same for all layouts of a mesh.
#[derive(Clone, Debug)]
pub(super) struct Place {
    mesh: Mesh,
    node: u32,
    /// The tensor and the data group, by position.
    groups: Vec<(Group, Group)>,
}

impl Place {
    pub(super) fn of(mesh: Mesh, cluster: &Cluster) -> Self {
        let node = cluster.node.gpus;
        let knobs = Knobs::default();
        let topology = Topology { mesh, cp: 1, node, neighbours: [].into(), knobs: &knobs };
        let groups = |position| {
            let rank = mesh.rank(Coord { dp: 0, tp: 0, pp: position });
            let lies = |kind| topology.lies(&topology.group(rank, kind));
            (lies(GroupKind::Tensor), lies(GroupKind::Data))
        };
        Self { mesh, node, groups: (0..mesh.pp).map(groups).collect() }
    }

    /// Whether the ranks of two positions lie in different nodes.
    fn is_far(&self, one: u32, other: u32) -> bool {
        let node = |position| self.mesh.rank(Coord { dp: 0, tp: 0, pp: position }).0 / self.node;
        node(one) != node(other)
    }
}
