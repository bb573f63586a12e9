//! Small hand-written Plans with known times, for tests of pictures.
//!
//! [`Sketch`] writes programs line by line; [`one_f_one_b`] is the schedule of the textbook, with
//! F = 1 unit and B = 2 units, gradients summed, weights updated and shared at its end.

use std::collections::BTreeMap;

use crate::mesh::{Axis, Coord, Mesh, Rank};
use crate::ops::Op;
use crate::ops::elementwise::Fill;
use crate::plan::order::{self, Order};
use crate::plan::{
    Action, Arena, BufferDecl, BufferId, Collective, CollectiveKind, Instr, Lane, Life, Origin,
    Phase, Place, Plan, Program, Role, Tag, View,
};
use crate::shape::DType;
use crate::trace::{Clock, Span, Trace};
use crate::units::Nanos;

/// A Plan that grows line by line, and how long each line takes.
pub(crate) struct Sketch {
    pub(crate) plan: Plan,
    durations: Vec<Vec<Nanos>>,
    views: BTreeMap<(Rank, String), View>,
}

impl Sketch {
    pub(crate) fn new(mesh: Mesh) -> Self {
        let count = mesh.size() as usize;
        let programs = vec![Program::default(); count];
        let plan = Plan { mesh, tensors: Vec::new(), buffers: Vec::new(), programs };
        Self { plan, durations: vec![Vec::new(); count], views: BTreeMap::new() }
    }

    /// The one-element buffer of that name on a rank.
    fn view(&mut self, rank: Rank, name: &str) -> View {
        let buffers = &mut self.plan.buffers;
        *self.views.entry((rank, name.to_owned())).or_insert_with(|| {
            let index = u32::try_from(buffers.len()).unwrap();
            let place = Place { arena: Arena::Step, offset: u64::from(index) * Place::ALIGN };
            buffers.push(BufferDecl {
                rank,
                label: name.to_owned(),
                role: Role::Activations,
                dtype: DType::F32,
                len: 1,
                life: Life::Step,
                place,
                pieces: Vec::new(),
            });
            View { buffer: BufferId(index), offset: 0, len: 1 }
        })
    }

    fn push(&mut self, rank: Rank, lane: Lane, action: Action, origin: Origin, takes: u64) {
        self.plan.programs[rank.index()].instrs.push(Instr { lane, action, origin });
        self.durations[rank.index()].push(Nanos(takes));
    }

    /// A launch that reads `reads` and writes `writes`.
    pub(crate) fn launch(
        &mut self,
        (rank, lane): (Rank, Lane),
        origin: Origin,
        takes: u64,
        reads: &[&str],
        writes: &str,
    ) {
        let inputs = reads.iter().map(|name| self.view(rank, name)).collect();
        let outputs = vec![self.view(rank, writes)];
        let op = Op::Fill(Fill { len: 1, value: 0.0 });
        self.push(rank, lane, Action::Launch { op, inputs, outputs }, origin, takes);
    }

    /// A send of the buffer `name` to the buffer `name` of another rank.
    pub(crate) fn send(
        &mut self,
        (rank, to): (Rank, Rank),
        axis: Axis,
        origin: Origin,
        takes: u64,
        name: &str,
    ) {
        let view = self.view(rank, name);
        let action = Action::Send { view, to, tag: tag(name), hops: 1 };
        let origin = Origin { axis: Some(axis), ..origin };
        self.push(rank, Lane::Out(axis, to), action, origin, takes);
    }

    /// The other half of [`Sketch::send`].
    pub(crate) fn recv(
        &mut self,
        (rank, from): (Rank, Rank),
        axis: Axis,
        origin: Origin,
        takes: u64,
        name: &str,
    ) {
        let view = self.view(rank, name);
        let action = Action::Recv { view, from, tag: tag(name), hops: 1 };
        let origin = Origin { axis: Some(axis), ..origin };
        self.push(rank, Lane::Posted, action, origin, takes);
    }

    /// When every line runs if each starts as soon as it may.
    pub(crate) fn replay(&self) -> (Order, Trace) {
        let order = order::derive(&self.plan);
        let graph = order::graph(&self.plan, &order);
        let mut left = graph.indegree.clone();
        let mut start = vec![0; graph.len()];
        let mut ready: Vec<u32> =
            (0..left.len() as u32).filter(|&node| left[node as usize] == 0).collect();
        let mut spans: Vec<Vec<Span>> =
            self.durations.iter().map(|rank| vec![Span::default(); rank.len()]).collect();
        let mut ended = 0;
        while let Some(node) = ready.pop() {
            ended += 1;
            let at = graph.nodes[node as usize];
            let takes = self.durations[at.rank.index()][at.instr as usize].0;
            let (start_of, end) = (start[node as usize], start[node as usize] + takes);
            for (rank, instr) in at.instrs() {
                spans[rank.index()][instr as usize] =
                    Span { start: Nanos(start_of), end: Nanos(end) };
            }
            for &next in graph.successors(node) {
                start[next as usize] = start[next as usize].max(end);
                left[next as usize] -= 1;
                if left[next as usize] == 0 {
                    ready.push(next);
                }
            }
        }
        assert_eq!(ended, graph.len(), "the sketch hangs");
        let trace = Trace { clock: Clock::Replayed, step: 40, spans, paths: Vec::new() };
        (order, trace)
    }
}

/// A tag that only messages of this name have.
fn tag(name: &str) -> Tag {
    Tag(name.bytes().fold(7, |tag, byte| tag * 31 + u64::from(byte)))
}

/// An origin of a pass.
pub(crate) fn pass(phase: Phase, stage: u32, microbatch: u32) -> Origin {
    Origin { phase, stage: Some(stage), microbatch: Some(microbatch), ..Origin::default() }
}

/// An origin of a collective over the data-parallel ranks.
pub(crate) fn collective(phase: Phase, kind: CollectiveKind) -> Origin {
    let collective = Some(Collective { kind, id: 0 });
    Origin { phase, collective, axis: Some(Axis::Dp), ..Origin::default() }
}

/// 1F1B with F = `unit`, B = 2 · `unit`, messages that take no time, and at the end one unit each
/// for summing gradients, the optimizer and sharing weights.
pub(crate) fn one_f_one_b(mesh: Mesh, microbatches: u32, unit: u64) -> Sketch {
    let mut sketch = Sketch::new(mesh);
    for rank in mesh.ranks() {
        let at = mesh.coord(rank);
        let warm_up = (mesh.pp - at.pp).min(microbatches);
        for microbatch in 0..warm_up {
            forward(&mut sketch, at, microbatch, unit);
        }
        for microbatch in 0..microbatches {
            backward(&mut sketch, at, microbatch, unit);
            if warm_up + microbatch < microbatches {
                forward(&mut sketch, at, warm_up + microbatch, unit);
            }
        }
        let (compute, reduce) = ((rank, Lane::Compute), (rank, Lane::Reduce));
        let sum = collective(Phase::GradReduce, CollectiveKind::ReduceScatter);
        let last = format!("B{}.{}", microbatches - 1, at.pp);
        sketch.launch(reduce, sum, unit, &["gradient", &last], "sum");
        let update = Origin { phase: Phase::Optimizer, ..Origin::default() };
        sketch.launch(compute, update, unit, &["sum"], "weight");
        let share = collective(Phase::WeightGather, CollectiveKind::AllGather);
        sketch.launch(reduce, share, unit, &["weight"], "shared");
    }
    sketch
}

fn forward(sketch: &mut Sketch, at: Coord, microbatch: u32, unit: u64) {
    let mesh = sketch.plan.mesh;
    let (rank, stage) = (mesh.rank(at), at.pp);
    let [below, above] = [stage, stage + 1].map(|s| format!("F{microbatch}.{s}"));
    let origin = pass(Phase::Forward, stage, microbatch);
    if stage > 0 {
        let from = mesh.rank(at.with(Axis::Pp, stage - 1));
        sketch.recv((rank, from), Axis::Pp, pass(Phase::Forward, stage - 1, microbatch), 0, &below);
    }
    sketch.launch((rank, Lane::Compute), origin, unit, &[&below], &above);
    if stage + 1 < mesh.pp {
        let to = mesh.rank(at.with(Axis::Pp, stage + 1));
        sketch.send((rank, to), Axis::Pp, origin, 0, &above);
    }
}

fn backward(sketch: &mut Sketch, at: Coord, microbatch: u32, unit: u64) {
    let mesh = sketch.plan.mesh;
    let (rank, stage) = (mesh.rank(at), at.pp);
    let [below, above] = [stage, stage + 1].map(|s| format!("B{microbatch}.{s}"));
    let origin = pass(Phase::Backward, stage, microbatch);
    if stage + 1 < mesh.pp {
        let from = mesh.rank(at.with(Axis::Pp, stage + 1));
        let theirs = pass(Phase::Backward, stage + 1, microbatch);
        sketch.recv((rank, from), Axis::Pp, theirs, 0, &above);
    }
    let kept = format!("F{microbatch}.{}", stage + 1);
    sketch.launch((rank, Lane::Compute), origin, unit, &[&above, &kept], "gradient");
    sketch.launch((rank, Lane::Compute), origin, unit, &[&above, "gradient"], &below);
    if stage > 0 {
        let to = mesh.rank(at.with(Axis::Pp, stage - 1));
        sketch.send((rank, to), Axis::Pp, origin, 0, &below);
    }
}
