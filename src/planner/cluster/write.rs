//! Writes the program of one rank of each class by walking its row of the schedule.
//!
//! Messages go between the classes of the ranks that would exchange them. Where a group holds
//! several classes, its members wait for one another through messages of one element; alike members
//! need none, they end together.

use std::collections::BTreeMap;

use super::classes::{Around, Classes, Group, GroupKind};
use super::stage::{BUCKETS, Inside, StageCosts, Turn, reduces};
use super::work::Work;
use super::{ClusterPlan, Spec};
use crate::mesh::{Axis, Rank};
use crate::ops::Op;
use crate::ops::coarse::{Coarse, CoarseKind};
use crate::plan::{
    Action, Arena, BufferDecl, BufferId, Collective, CollectiveKind, Instr, Lane, Life, Origin,
    Phase, Place, Plan, Program, Role, Tag, View,
};
use crate::planner::schedule::{Act, Pass};
use crate::shape::DType;

pub(super) fn write(spec: Spec<'_>, classes: Classes) -> ClusterPlan {
    let mut tables = Tables::default();
    let mut plan = Plan {
        mesh: spec.shown_mesh(&classes),
        tensors: Vec::new(),
        buffers: Vec::new(),
        programs: Vec::new(),
    };
    let mut links = BTreeMap::new();
    for class in 0..classes.count() as u32 {
        let rank = classes.first[class as usize];
        let mut writer = RankWriter {
            spec: &spec,
            classes: &classes,
            tables: &mut tables,
            links: &mut links,
            class,
            rank,
            position: spec.topology.mesh.coord(rank).pp,
            around: Around::of(spec.topology, &classes, class),
            views: BTreeMap::new(),
            buffers: Vec::new(),
            instrs: Vec::new(),
            origin: Origin::default(),
            first_buffer: plan.buffers.len() as u32,
            offset: 0,
        };
        writer.step();
        let RankWriter { buffers, instrs, .. } = writer;
        plan.buffers.extend(buffers);
        plan.programs.push(Program { instrs });
    }
    let slowness = classes.first.iter().map(|rank| spec.topology.slowness(*rank)).collect();
    let Tables { works, exchanges, .. } = tables;
    ClusterPlan { plan, classes, works, exchanges, slowness, links }
}

/// Work and collectives so far, each once.
#[derive(Default)]
struct Tables {
    works: Vec<Work>,
    work_of: BTreeMap<(u32, u8), u32>,
    exchanges: Vec<Vec<super::Exchange>>,
    exchange_of: BTreeMap<(u32, u8, Inside), u32>,
}

/// A place of the rank: what a view is looked up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Spot {
    /// Output of a stage for a microbatch.
    Act(u32, u32),
    /// Gradient of that output.
    Grad(u32, u32),
    /// End of a piece of a pass.
    Piece(u32, u32, u8, u32),
    /// End of the collectives of a piece.
    Joined(u32, u32, u8, u32),
    /// What weight gradients need, kept by the input gradients.
    Kept(u32, u32),
    /// Gradients of a piece of a stage, complete; of a microbatch if they are reduced each time.
    Gradient(u32, u32, u32),
    /// The same, reduced.
    Reduced(u32, u32, u32),
    /// Weights of a piece of a stage, as gathered before the first forward.
    Weights(u32, u32),
    /// One of two places for the weights of a piece that is gathered for each use.
    Slot(u32),
    /// The optimizer has run.
    Updated,
    /// Weights shared after it.
    Shared,
    /// A peer has come to a collective.
    Flag(u64, u32),
}

struct RankWriter<'a> {
    spec: &'a Spec<'a>,
    classes: &'a Classes,
    tables: &'a mut Tables,
    links: &'a mut BTreeMap<(u32, u32), (bool, u32)>,
    class: u32,
    rank: Rank,
    position: u32,
    around: Around,
    views: BTreeMap<Spot, View>,
    buffers: Vec<BufferDecl>,
    instrs: Vec<Instr>,
    origin: Origin,
    first_buffer: u32,
    offset: u64,
}

/// One coarse op to be written.
struct Launch {
    kind: CoarseKind,
    work: u32,
    pieces: u32,
    beside: Option<u32>,
}

impl RankWriter<'_> {
    fn step(&mut self) {
        let acts: Vec<Act> = self.spec.table.acts(self.position as usize).collect();
        let stages: Vec<u32> = (0..self.spec.shapes.len() as u32)
            .filter(|stage| self.spec.owners[*stage as usize] == self.position)
            .collect();
        if self.spec.costs.overlaps_weights() {
            for &stage in &stages {
                self.gather_before_forward(stage);
            }
        }
        for (index, act) in acts.iter().enumerate() {
            let is = |passes: &[Pass], other: &Act| {
                other.stage == act.stage && passes.contains(&other.pass)
            };
            let turn = match act.pass {
                Pass::F if !acts[..index].iter().any(|other| is(&[Pass::F], other)) => Turn::First,
                Pass::B | Pass::W
                    if !acts[index + 1..].iter().any(|other| is(&[Pass::B, Pass::W], other)) =>
                {
                    Turn::Completing
                }
                _ => Turn::Other,
            };
            self.act(*act, turn);
        }
        self.update(&stages);
    }

    fn group(&self, kind: GroupKind) -> Group {
        self.around.lies(kind)
    }

    // ── Passes ──────────────────────────────────────────────────────────────────────────────────

    fn act(&mut self, act: Act, turn: Turn) {
        let Act { stage, pass, microbatch } = act;
        let end = self.spec.last_stage();
        self.origin = Origin {
            phase: phase(pass),
            stage: Some(stage),
            microbatch: Some(microbatch),
            ..Origin::default()
        };
        let mut reads = Vec::new();
        match pass {
            Pass::F if stage > 0 => reads.push(self.arrives(stage - 1, act)),
            Pass::B | Pass::I => {
                reads.push(self.wide(Spot::Act(stage, microbatch)));
                if stage < end {
                    reads.push(self.arrives(stage + 1, act));
                }
            }
            Pass::F | Pass::W => {}
        }
        let kept = (pass == Pass::W).then(|| self.narrow(Spot::Kept(stage, microbatch)));
        let writes = match pass {
            Pass::F => Some(Spot::Act(stage, microbatch)),
            Pass::B | Pass::I if stage > 0 => Some(Spot::Grad(stage - 1, microbatch)),
            _ => None,
        };
        self.pieces(act, Ends { reads, kept, writes, turn });
        let next = match pass {
            Pass::F if stage < end => Some(stage + 1),
            Pass::B | Pass::I if stage > 0 => Some(stage - 1),
            _ => None,
        };
        if let (Some(next), Some(spot)) = (next, writes) {
            self.leaves(next, spot);
        }
    }

    fn pieces(&mut self, act: Act, ends: Ends) {
        let Act { stage, pass, microbatch } = act;
        let (costs, shape) = (&self.spec.costs, self.spec.shapes[stage as usize]);
        let per_layer = costs.gathers_layers();
        let pieces = costs.pieces(shape, pass, ends.turn);
        let gathers = costs.gathers(pass);
        let waits_for_weights = ends.turn == Turn::First && costs.overlaps_weights();
        let completes = ends.turn == Turn::Completing;
        let reduces = reduces(pass) && (per_layer || (completes && costs.overlaps_gradients()));
        if gathers {
            self.gather_slot(stage, 0, pieces);
        }
        let work = self.work(stage, pass);
        let mut chain = None;
        for piece in 0..pieces {
            if gathers && piece + 1 < pieces {
                self.gather_slot(stage, piece + 1, pieces);
            }
            let mut narrow_in: Vec<View> = chain.into_iter().collect();
            narrow_in.extend(ends.kept);
            if gathers {
                narrow_in.push(self.narrow(Spot::Slot(piece % 2)));
            } else if waits_for_weights {
                narrow_in.push(self.narrow(Spot::Weights(stage, piece)));
            }
            let wide_in = if piece == 0 { ends.reads.clone() } else { Vec::new() };
            let at_end = piece + 1 == pieces;
            let collectives = self.collectives(stage, pass, work);
            let done = Spot::Piece(stage, microbatch, pass as u8, piece);
            let mut narrow_out = vec![self.narrow(done)];
            if at_end && pass == Pass::I {
                narrow_out.push(self.narrow(Spot::Kept(stage, microbatch)));
            }
            let of = if per_layer { microbatch } else { 0 };
            if reduces || completes {
                narrow_out.push(self.narrow(Spot::Gradient(stage, of, piece)));
            }
            let wide_out: Vec<View> = match ends.writes {
                Some(spot) if at_end && collectives.is_none() => vec![self.wide(spot)],
                _ => Vec::new(),
            };
            let beside = self.beside(stage, pass);
            let launch = Launch { kind: kind(pass), work, pieces, beside };
            let views = [wide_in, narrow_in, wide_out, narrow_out];
            self.launch(Lane::Compute, &launch, views);
            let mut end = self.narrow(done);
            if let Some(exchange) = collectives {
                let mut narrow_in = vec![end];
                for kind in [GroupKind::Tensor, GroupKind::Sequence] {
                    narrow_in.extend(self.meet(kind, end, act, piece));
                }
                let joined = self.narrow(Spot::Joined(stage, microbatch, pass as u8, piece));
                let wide_out: Vec<View> = match ends.writes {
                    Some(spot) if at_end => vec![self.wide(spot)],
                    _ => Vec::new(),
                };
                let kind = CoarseKind::LayerCollectives;
                let launch = Launch { kind, work: exchange, pieces, beside: None };
                self.origin.axis = Some(Axis::Tp);
                self.launch(
                    Lane::Compute,
                    &launch,
                    [Vec::new(), narrow_in, wide_out, vec![joined]],
                );
                self.origin.axis = None;
                end = joined;
            }
            chain = Some(end);
            if reduces {
                self.reduce(stage, of, piece, pieces, act);
            }
        }
    }

    fn work(&mut self, stage: u32, pass: Pass) -> u32 {
        let Self { spec, tables, .. } = self;
        *tables.work_of.entry((stage, pass as u8)).or_insert_with(|| {
            tables.works.push(spec.costs.work(spec.shapes[stage as usize], pass));
            tables.works.len() as u32 - 1
        })
    }

    /// The collectives inside the layers of a pass, if there are any.
    fn collectives(&mut self, stage: u32, pass: Pass, work: u32) -> Option<u32> {
        let around = Inside {
            tensor: self.group(GroupKind::Tensor),
            sequence: self.group(GroupKind::Sequence),
            handed: self.handed(stage, pass),
        };
        let Self { spec, tables, .. } = self;
        let index = *tables.exchange_of.entry((stage, pass as u8, around)).or_insert_with(|| {
            let shape = spec.shapes[stage as usize];
            tables.exchanges.push(spec.costs.inside(shape, pass, around, work));
            tables.exchanges.len() as u32 - 1
        });
        (!tables.exchanges[index as usize].is_empty()).then_some(index)
    }

    /// The two ends of the hand-over after a pass, if the rank computes nothing meanwhile.
    fn handed(&self, stage: u32, pass: Pass) -> Option<Group> {
        let next = match pass {
            Pass::F => Some(stage + 1).filter(|next| *next <= self.spec.last_stage()),
            Pass::B | Pass::I => stage.checked_sub(1),
            Pass::W => None,
        };
        let blocks = self.spec.workload.software.blocking_pipeline;
        let position = self.spec.owners[next.filter(|_| blocks)? as usize];
        let at = self.spec.topology.mesh.coord(self.rank).with(Axis::Pp, position);
        let peer = self.spec.topology.mesh.rank(at);
        let (far, slow) = self.spec.topology.link(self.rank, peer);
        let per_node = if far { 1 } else { 2 };
        (peer != self.rank).then_some(Group { members: 2, per_node, slow })
    }

    // ── Messages ────────────────────────────────────────────────────────────────────────────────

    /// The rank of another pipeline position in this rank's pipeline, as its class.
    fn peer(&mut self, position: u32) -> Option<Rank> {
        let at = self.spec.topology.mesh.coord(self.rank).with(Axis::Pp, position);
        let peer = self.spec.topology.mesh.rank(at);
        if peer == self.rank {
            return None;
        }
        let class = self.classes.of[peer.index()];
        // A hand-over that blocks was paid for by the sender.
        if !self.spec.workload.software.blocking_pipeline {
            let link = self.spec.topology.link(self.rank, peer);
            self.links.insert((self.class, class), link);
        }
        Some(Rank(class))
    }

    /// What another stage hands over: received if another rank holds that stage.
    fn arrives(&mut self, from: u32, act: Act) -> View {
        let spot = match act.pass {
            Pass::F => Spot::Act(from, act.microbatch),
            _ => Spot::Grad(act.stage, act.microbatch),
        };
        let view = self.wide(spot);
        if let Some(peer) = self.peer(self.spec.owners[from as usize]) {
            self.hand_over(
                Lane::Posted,
                Action::Recv { view, from: peer, tag: tag(spot), hops: 1 },
            );
        }
        view
    }

    fn leaves(&mut self, to: u32, spot: Spot) {
        let view = self.wide(spot);
        if let Some(peer) = self.peer(self.spec.owners[to as usize]) {
            let lane = Lane::Out(Axis::Pp, peer);
            self.hand_over(lane, Action::Send { view, to: peer, tag: tag(spot), hops: 1 });
        }
    }

    fn hand_over(&mut self, lane: Lane, action: Action) {
        let kind = CollectiveKind::PointToPoint;
        let before = self.origin;
        self.origin.axis = Some(Axis::Pp);
        self.origin.collective = Some(Collective { kind, id: 0 });
        self.push(lane, action);
        self.origin = before;
    }

    /// Waits for the other classes of a group to come as far as this rank: `ready` is written when
    /// it has. Nothing if all members are alike.
    fn meet(&mut self, kind: GroupKind, ready: View, act: Act, piece: u32) -> Vec<View> {
        let others = self.around.others(kind).to_vec();
        let Act { stage, pass, microbatch } = act;
        let numbers = [kind as u64, u64::from(stage), microbatch.into(), pass as u64, piece.into()];
        let bits = [2, 12, 24, 2, 16];
        let id = numbers.iter().zip(bits).fold(1, |id, (number, bits)| id << bits | number);
        let axis = if kind == GroupKind::Tensor { Axis::Tp } else { Axis::Dp };
        let mut flags = Vec::new();
        for &class in &others {
            let to = Rank(class);
            self.push(Lane::Out(axis, to), Action::Send { view: ready, to, tag: Tag(id), hops: 1 });
        }
        for class in others {
            let view = self.narrow(Spot::Flag(id, class));
            let from = Rank(class);
            self.push(Lane::Posted, Action::Recv { view, from, tag: Tag(id), hops: 1 });
            flags.push(view);
        }
        flags
    }

    // ── Weights and gradients ───────────────────────────────────────────────────────────────────

    /// The number of a list of collectives.
    fn exchange(&mut self, exchanges: Vec<super::Exchange>) -> u32 {
        let known = self.tables.exchanges.iter().position(|other| *other == exchanges);
        let index = known.unwrap_or_else(|| {
            self.tables.exchanges.push(exchanges);
            self.tables.exchanges.len() - 1
        });
        index as u32
    }

    fn gather(&mut self, stage: u32, pieces: u32, writes: Spot, reads: Vec<View>) {
        let (shape, group) = (self.spec.shapes[stage as usize], self.group(GroupKind::Data));
        let work = self.exchange(self.spec.costs.gathered(shape, group));
        let before = self.origin;
        self.origin = Origin {
            phase: Phase::WeightGather,
            stage: Some(stage),
            axis: Some(Axis::Dp),
            ..Origin::default()
        };
        let launch = Launch { kind: CoarseKind::GatherWeights, work, pieces, beside: None };
        let written = vec![self.narrow(writes)];
        self.launch(Lane::Reduce, &launch, [Vec::new(), reads, Vec::new(), written]);
        self.origin = before;
    }

    fn gather_before_forward(&mut self, stage: u32) {
        for piece in 0..BUCKETS {
            self.gather(stage, BUCKETS, Spot::Weights(stage, piece), Vec::new());
        }
    }

    fn gather_slot(&mut self, stage: u32, piece: u32, pieces: u32) {
        self.gather(stage, pieces, Spot::Slot(piece % 2), Vec::new());
    }

    fn beside(&mut self, stage: u32, pass: Pass) -> Option<u32> {
        let (shape, group) = (self.spec.shapes[stage as usize], self.group(GroupKind::Data));
        let exchanges = self.spec.costs.beside(shape, pass, group);
        (!exchanges.is_empty()).then(|| self.exchange(exchanges))
    }

    fn reduce(&mut self, stage: u32, of: u32, piece: u32, pieces: u32, act: Act) {
        let (shape, group) = (self.spec.shapes[stage as usize], self.group(GroupKind::Data));
        let work = self.exchange(self.spec.costs.reduced(shape, group));
        let before = self.origin;
        self.origin = Origin {
            phase: Phase::GradReduce,
            stage: Some(stage),
            axis: Some(Axis::Dp),
            ..Origin::default()
        };
        let ready = self.narrow(Spot::Gradient(stage, of, piece));
        let mut reads = vec![ready];
        // Apart from the flags that the pass itself may have sent.
        let act = Act { pass: Pass::F, ..act };
        reads.extend(self.meet(GroupKind::Data, ready, act, piece));
        let reduced = vec![self.narrow(Spot::Reduced(stage, of, piece))];
        let launch = Launch { kind: CoarseKind::ReduceGradients, work, pieces, beside: None };
        self.launch(Lane::Reduce, &launch, [Vec::new(), reads, Vec::new(), reduced]);
        self.origin = before;
    }

    fn update(&mut self, stages: &[u32]) {
        let costs = &self.spec.costs;
        let replicas = self.spec.workload.split.replicas() > 1;
        let late = costs.reduces_once() && !costs.overlaps_gradients();
        let shares = costs.shares_updates() && !costs.overlaps_weights();
        if late {
            for &stage in stages {
                let act = Act { stage, pass: Pass::F, microbatch: 0 };
                self.reduce(stage, 0, 0, 1, act);
            }
        }
        let is_done = |spot: &Spot| match spot {
            Spot::Reduced(..) => replicas,
            Spot::Gradient(..) => !replicas,
            _ => false,
        };
        let reads: Vec<View> =
            self.views.iter().filter(|(spot, _)| is_done(spot)).map(|(_, view)| *view).collect();
        let parameters: f64 = stages.iter().map(|stage| self.spec.parameters(*stage)).sum();
        self.tables.works.push(StageCosts::update(self.spec.workload, parameters));
        let work = self.tables.works.len() as u32 - 1;
        self.origin = Origin { phase: Phase::Optimizer, ..Origin::default() };
        let updated = self.narrow(Spot::Updated);
        let launch = Launch { kind: CoarseKind::Update, work, pieces: 1, beside: None };
        self.launch(Lane::Compute, &launch, [Vec::new(), reads, Vec::new(), vec![updated]]);
        if shares {
            for &stage in stages {
                self.gather(stage, 1, Spot::Shared, vec![updated]);
            }
        }
    }

    // ── Views and instructions ──────────────────────────────────────────────────────────────────

    fn wide(&mut self, spot: Spot) -> View {
        self.view(spot, self.spec.costs.boundary())
    }

    fn narrow(&mut self, spot: Spot) -> View {
        self.view(spot, 1)
    }

    fn view(&mut self, spot: Spot, len: u32) -> View {
        if let Some(view) = self.views.get(&spot) {
            return *view;
        }
        let buffer = BufferId(self.first_buffer + self.buffers.len() as u32);
        let place = Place { arena: Arena::Step, offset: self.offset };
        let decl = BufferDecl {
            rank: Rank(self.class),
            label: format!("{spot:?}"),
            role: if len == 1 { Role::Workspace } else { Role::Activations },
            dtype: DType::Bf16,
            len,
            life: Life::Step,
            place,
            pieces: Vec::new(),
        };
        // Every buffer has a place of its own: memory is counted by `predict`, not placed.
        self.offset += decl.bytes().0.next_multiple_of(Place::ALIGN);
        self.buffers.push(decl);
        let view = View { buffer, offset: 0, len };
        self.views.insert(spot, view);
        view
    }

    fn push(&mut self, lane: Lane, action: Action) {
        self.instrs.push(Instr { lane, action, origin: self.origin });
    }

    fn launch(&mut self, lane: Lane, launch: &Launch, views: [Vec<View>; 4]) {
        let Launch { kind, work, pieces, beside } = *launch;
        let flops = match kind {
            CoarseKind::LayerCollectives
            | CoarseKind::ReduceGradients
            | CoarseKind::GatherWeights => 0.0,
            _ => self.tables.works[work as usize].flops() / f64::from(pieces),
        };
        let [wide_in, narrow_in, wide_out, narrow_out] = views;
        let op = Op::Coarse(Coarse {
            kind,
            work,
            pieces,
            beside,
            flops: flops as u64,
            wide: self.spec.costs.boundary(),
            wide_in: wide_in.len() as u32,
            narrow_in: narrow_in.len() as u32,
            wide_out: wide_out.len() as u32,
            narrow_out: narrow_out.len() as u32,
        });
        let inputs = [wide_in, narrow_in].concat();
        let outputs = [wide_out, narrow_out].concat();
        self.push(lane, Action::Launch { op, inputs, outputs });
    }
}

impl Work {
    /// Operations of products and attention.
    pub fn flops(&self) -> f64 {
        self.parts.iter().map(|(times, part)| times * part.flops()).sum()
    }
}

/// What a pass begins and ends with.
struct Ends {
    reads: Vec<View>,
    kept: Option<View>,
    writes: Option<Spot>,
    turn: Turn,
}

fn tag(spot: Spot) -> Tag {
    let (kind, stage, microbatch) = match spot {
        Spot::Act(stage, microbatch) => (1, stage, microbatch),
        Spot::Grad(stage, microbatch) => (2, stage, microbatch),
        _ => unreachable!("only activations and their gradients are handed over"),
    };
    Tag(kind << 36 | u64::from(stage) << 24 | u64::from(microbatch))
}

const fn kind(pass: Pass) -> CoarseKind {
    match pass {
        Pass::F => CoarseKind::Forward,
        Pass::B => CoarseKind::Backward,
        Pass::I => CoarseKind::InputGrad,
        Pass::W => CoarseKind::WeightGrad,
    }
}

const fn phase(pass: Pass) -> Phase {
    match pass {
        Pass::F => Phase::Forward,
        Pass::B => Phase::Backward,
        Pass::I => Phase::InputGrad,
        Pass::W => Phase::WeightGrad,
    }
}
