//! The cluster Plan: the step of a large cluster with one rank of each class and coarse ops.
//!
//! Thousands of ranks are never planned whole. [`classes`] finds which ranks are alike, [`work`]
//! says what a layer costs in sizes, [`stage`] what a stage does, and this writes a Plan in which a
//! pass of a microbatch through a stage is one op. The Plan is ordered, laid out and drawn as any
//! other; only `sim` knows how long its ops take, from the tables beside it, and `exec` refuses it by
//! name.

pub mod classes;
pub mod stage;
pub mod work;
mod write;

use std::collections::{BTreeMap, BTreeSet};

use crate::config::workload::Workload;
use crate::mesh::{Axis, Mesh};
use crate::plan::{CollectiveKind, Plan};
use crate::planner::schedule::Schedule;
use crate::shape::parts;
use classes::{Classes, Group, Knobs, Topology};
use stage::{StageCosts, StageShape};
use work::Work;

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

/// Who exchanges messages with whom, and where ranks lie.
pub fn topology<'a>(
    workload: &Workload,
    table: &Schedule,
    node: u32,
    knobs: &'a Knobs,
) -> Topology<'a> {
    topology_of(workload, &table.owners(), node, knobs)
}

/// The same from the pipeline position of each stage.
pub(crate) fn topology_of<'a>(
    workload: &Workload,
    owners: &[u32],
    node: u32,
    knobs: &'a Knobs,
) -> Topology<'a> {
    let mut neighbours = BTreeSet::new();
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

/// What the writers of all ranks share.
struct Spec<'a> {
    workload: &'a Workload,
    table: &'a Schedule,
    topology: &'a Topology<'a>,
    /// What of the model each stage holds.
    shapes: Vec<StageShape>,
    /// Pipeline position of each stage.
    owners: Vec<u32>,
    costs: StageCosts<'a>,
}

impl<'a> Spec<'a> {
    fn new(workload: &'a Workload, table: &'a Schedule, topology: &'a Topology<'a>) -> Self {
        let owners = table.owners();
        Self {
            workload,
            table,
            topology,
            shapes: StageShape::of(&workload.model, owners.len() as u32),
            owners,
            costs: StageCosts::new(workload),
        }
    }

    fn last_stage(&self) -> u32 {
        self.shapes.len() as u32 - 1
    }

    /// Elements of the weights of a stage on one rank.
    fn parameters(&self, stage: u32) -> f64 {
        self.costs.parameters(self.shapes[stage as usize])
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
