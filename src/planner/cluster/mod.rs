//! The cluster Plan: the step of a large cluster with one rank of each class and coarse ops.
//!
//! Thousands of ranks are never planned whole. [`classes`] finds which ranks are alike, [`work`]
//! says what a layer costs in sizes, and this writes a Plan in which a pass of a microbatch through
//! a stage is one op. The Plan is ordered, laid out and drawn as any other; only `sim` knows how
//! long its ops take, from the tables beside it, and `exec` refuses it by name.

pub mod classes;
pub mod work;
mod write;

use std::collections::{BTreeMap, BTreeSet};

use crate::config::workload::{Precision, Recomputed, Sharding, Workload};
use crate::mesh::{Axis, Mesh};
use crate::plan::{CollectiveKind, Plan};
use crate::planner::schedule::{Pass, Schedule};
use crate::shape::parts;
use classes::{Classes, Group, Knobs, Topology};
use work::{LayerWork, Work};

/// A Plan of one rank of each class, with what its coarse ops stand for.
#[derive(Clone, Debug)]
pub struct ClusterPlan {
    /// One program a class, in the order of the classes.
    pub plan: Plan,
    /// Which ranks each program stands for.
    pub classes: Classes,
    /// Work of the passes and the optimizer, by [`crate::ops::coarse::Coarse::work`].
    pub works: Vec<Work>,
    /// Collectives, by the same index of the other kinds of op.
    pub exchanges: Vec<Vec<Exchange>>,
    /// How much slower each class computes.
    pub slowness: Vec<f64>,
    /// Which messages between stages leave the node, and how slow they are in thousandths, by
    /// (from, to) class.
    pub links: BTreeMap<(u32, u32), (bool, u32)>,
}

/// Equal collectives in a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Exchange {
    /// Which kind.
    pub kind: CollectiveKind,
    /// Whose communication it is.
    pub axis: Axis,
    /// Size of the whole tensor.
    pub bytes: f64,
    /// Who takes part.
    pub group: Group,
    /// How many in a row.
    pub repeats: f64,
    /// What runs meanwhile.
    pub beside: Beside,
    /// The work that its members end at the same time only if none is slower than the others.
    pub after: Option<u32>,
}

/// What of a collective is hidden by construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Nothing.
    Nothing,
    /// It is cut into chunks that run beside the products that make or take them.
    Products,
    /// It runs beside the attention of blocks that have arrived.
    Attention,
}

/// The layers of each stage: as equal as they go. Where embedding and head count as a layer each
/// makes them equal, the first and last stage have one less.
pub fn layers_of_stages(layers: u64, stages: u32) -> Vec<u64> {
    let stages = u64::from(stages);
    if !layers.is_multiple_of(stages) && (layers + 2).is_multiple_of(stages) && stages > 1 {
        let each = (layers + 2) / stages;
        let end = |stage| u64::from(stage == 0) + u64::from(stage == stages - 1);
        return (0..stages).map(|stage| each - end(stage)).collect();
    }
    let cut = parts(layers as u32, stages as u32);
    cut.iter().map(|range| u64::from(range.end - range.start)).collect()
}

/// The pipeline position of each stage.
pub fn owners(table: &Schedule) -> Vec<u32> {
    let mut owners = vec![0; table.stage_count() as usize];
    for row in 0..table.rows.len() {
        for act in table.acts(row) {
            owners[act.stage as usize] = row as u32;
        }
    }
    owners
}

/// Who exchanges messages with whom, and where ranks lie.
pub fn topology<'a>(
    workload: &Workload,
    table: &Schedule,
    node: u32,
    knobs: &'a Knobs,
) -> Topology<'a> {
    let mut neighbours = BTreeSet::new();
    let owners = owners(table);
    for pair in owners.windows(2) {
        if pair[0] != pair[1] {
            neighbours.insert((pair[0].min(pair[1]), pair[0].max(pair[1])));
        }
    }
    Topology { mesh: workload.split.mesh(), cp: workload.split.cp, node, neighbours, knobs }
}

/// Writes the Plan of one rank of each class. The table must be complete and have a row for each
/// pipeline position.
///
/// # Panics
/// If the table has other rows than the workload has pipeline positions.
pub fn cluster_plan(
    workload: &Workload,
    table: &Schedule,
    topology: &Topology<'_>,
    classes: Classes,
) -> ClusterPlan {
    assert_eq!(table.rows.len(), workload.split.pp as usize, "one row a pipeline position");
    write::write(Spec::new(workload, table, topology), classes)
}

/// Who takes part in the communication of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Inside {
    tensor: Group,
    sequence: Group,
    /// The two ends of a hand-over that blocks.
    handed: Option<Group>,
}

/// What the writers of all ranks share.
struct Spec<'a> {
    workload: &'a Workload,
    table: &'a Schedule,
    topology: &'a Topology<'a>,
    /// Layers of each stage.
    layers: Vec<u64>,
    /// Pipeline position of each stage.
    owners: Vec<u32>,
    layer: LayerWork,
}

impl<'a> Spec<'a> {
    fn new(workload: &'a Workload, table: &'a Schedule, topology: &'a Topology<'a>) -> Self {
        let owners = owners(table);
        Self {
            workload,
            table,
            topology,
            layers: layers_of_stages(workload.model.layers, owners.len() as u32),
            owners,
            layer: LayerWork::of(workload),
        }
    }

    fn last_stage(&self) -> u32 {
        self.layers.len() as u32 - 1
    }

    /// Elements of the weights of a stage on one rank.
    fn parameters(&self, stage: u32) -> f64 {
        let model = &self.workload.model;
        let tables = if self.last_stage() == 0 {
            if model.tied { 1 } else { 2 }
        } else {
            u64::from(stage == 0) + u64::from(stage == self.last_stage())
        };
        let layers = self.layers[stage as usize] * model.layer_parameters();
        let whole = layers + tables * model.table_parameters();
        whole as f64 / f64::from(self.workload.split.tp)
    }

    /// Elements that one rank hands to the next stage.
    fn boundary(&self) -> u32 {
        let Workload { split, software, model, .. } = self.workload;
        let cut = split.sequence_parallel || software.scatter_pipeline;
        let cut = if cut { u64::from(split.tp) } else { 1 };
        let elements = self.workload.tokens() * model.hidden / cut;
        u32::try_from(elements).unwrap_or(u32::MAX)
    }

    /// What a pass of a microbatch through a stage computes.
    fn work(&self, stage: u32, pass: Pass) -> Work {
        let LayerWork {
            forward,
            input_grad,
            weight_grad,
            head_forward,
            head_input_grad,
            head_weight_grad,
            embedding,
        } = &self.layer;
        let layers = self.layers[stage as usize] as f64;
        let again = self.layer.recomputed(self.workload.recomputed);
        let again = again.map(|(share, part)| (share * layers, part));
        let mut parts = match pass {
            Pass::F => vec![(layers, forward.clone())],
            Pass::I => vec![(layers, input_grad.clone())],
            Pass::W => vec![(layers, weight_grad.clone())],
            Pass::B => vec![(layers, input_grad.clone()), (layers, weight_grad.clone())],
        };
        if matches!(pass, Pass::I | Pass::B) {
            parts.extend(again);
        }
        if stage == 0 {
            parts.extend((pass != Pass::I).then(|| (1.0, embedding.clone())));
        }
        if stage == self.last_stage() {
            let ends = match pass {
                Pass::F => vec![head_forward],
                Pass::I => vec![head_input_grad],
                Pass::W => vec![head_weight_grad],
                Pass::B => vec![head_input_grad, head_weight_grad],
            };
            parts.extend(ends.into_iter().map(|part| (1.0, part.clone())));
        }
        let eight_bit = self.workload.precision == Precision::Fp8;
        Work { parts, eight_bit }
    }

    /// Collectives inside the layers of a pass, and the hand-over after it if that blocks. `after`:
    /// the work of the pass.
    fn inside(&self, stage: u32, pass: Pass, around: Inside, after: u32) -> Vec<Exchange> {
        let Workload { model, split, software, recomputed, .. } = self.workload;
        let layers = self.layers[stage as usize] as f64;
        let Inside { tensor, sequence, handed } = around;
        let again = match (pass, recomputed) {
            (Pass::I | Pass::B, Recomputed::Layers(share)) => *share,
            _ => 0.0,
        };
        if pass == Pass::W {
            return Vec::new();
        }
        let mut exchanges = Vec::new();
        if tensor.members > 1 {
            let beside = if software.overlap_tensor && split.sequence_parallel {
                Beside::Products
            } else {
                Beside::Nothing
            };
            // Two a layer and direction; one for the embedding and one for the head's gradient.
            let ends = match pass {
                Pass::F => stage == 0,
                _ => stage == self.last_stage(),
            };
            exchanges.push(Exchange {
                kind: CollectiveKind::AllReduce,
                axis: Axis::Tp,
                bytes: 2.0 * (self.workload.tokens() * model.hidden) as f64,
                group: tensor,
                repeats: 2.0 * layers * (1.0 + again) + f64::from(u8::from(ends)),
                beside,
                after: Some(after),
            });
        }
        if sequence.members > 1 {
            // Keys and values of the other blocks; backward brings their gradients back too.
            let directions = if pass == Pass::F { 1.0 } else { 2.0 };
            let kv = 2 * model.key_width() / u64::from(split.tp);
            exchanges.push(Exchange {
                kind: CollectiveKind::AllGather,
                axis: Axis::Dp,
                bytes: 2.0 * (self.workload.tokens() * kv * u64::from(split.cp)) as f64,
                group: sequence,
                repeats: layers * (directions + again),
                beside: Beside::Attention,
                after: Some(after),
            });
        }
        if let Some(group) = handed {
            exchanges.push(Exchange {
                kind: CollectiveKind::PointToPoint,
                axis: Axis::Pp,
                bytes: 2.0 * f64::from(self.boundary()),
                group,
                repeats: 1.0,
                beside: Beside::Nothing,
                after: None,
            });
        }
        exchanges
    }

    /// Collectives over the ranks with the same weights, for `share` of a stage.
    fn over_replicas(&self, kind: CollectiveKind, bytes: f64, group: Group) -> Vec<Exchange> {
        // A collective that does not know the nodes brings each rank its own copy over the network.
        let copies = if self.workload.software.node_aware { 1 } else { group.per_node };
        vec![Exchange {
            kind,
            axis: Axis::Dp,
            bytes: bytes * f64::from(copies),
            group,
            repeats: 1.0,
            beside: Beside::Nothing,
            after: None,
        }]
    }

    /// Whether every layer's weights are gathered when they are used.
    fn gathers_layers(&self) -> bool {
        let sharded =
            matches!(self.workload.split.sharding, Sharding::Gradients | Sharding::Weights);
        sharded && self.workload.split.replicas() > 1
    }

    /// The mesh that the classes are shown on.
    fn shown_mesh(&self, classes: &Classes) -> Mesh {
        let mesh = self.topology.mesh;
        let count = classes.count() as u32;
        if count == mesh.size() {
            mesh
        } else if count == mesh.pp {
            Mesh { dp: 1, tp: 1, ..mesh }
        } else {
            Mesh { dp: count, tp: 1, pp: 1, ..mesh }
        }
    }
}
