//! The step that one does not have: time, memory and bytes of a workload on a described cluster.
//!
//! [`predict`] writes the cluster Plan (`planner::cluster`), prices it and lays it out (`sim`), and
//! adds what lies outside of the schedule. [`published`] reads measured runs, [`score`] holds
//! predictions against them, [`fit`] fits the cost model's constants. [`here`] is another way for
//! another question: the step of a real Plan on this machine's own cores.

pub mod fit;
pub mod here;
pub mod memory;
pub mod published;
pub mod score;
mod parts;
mod seconds;
mod software;

pub use parts::StepParts;
pub use seconds::Prepared;
pub(crate) use seconds::{Places, step_parts, step_seconds};

use std::collections::BTreeMap;

use crate::config::Cluster;
use crate::config::workload::{Precision, Workload};
use crate::mesh::{Axis, Mesh};
use crate::ops::Op;
use crate::ops::coarse::{Coarse, CoarseKind};
use crate::plan::order::Order;
use crate::plan::{Action, CollectiveKind};
use crate::planner::cluster::classes::{Classes, Knobs};
use crate::planner::cluster::{ClusterPlan, Exchange, cluster_plan, topology};
use crate::planner::schedule::Schedule;
use crate::planner::schedule::named::named;
use crate::sim::cost::{Constants, Pricer};
use crate::sim::{Ordered, SimError, Whatif};
use crate::trace::Trace;
use crate::trace::bubble::{Bubble, weighted};
use crate::trace::idle::StepTime;
use memory::PositionMemory;

/// What is asked of a prediction beyond workload and cluster.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    /// Rates and overheads.
    pub constants: Constants,
    /// Slow ranks and links.
    pub knobs: Knobs,
    /// Jitter.
    pub whatif: Whatif,
    /// The cells of a schedule that has no name: of a file.
    pub table: Option<Schedule>,
}

/// A predicted step.
#[derive(Clone, Debug)]
pub struct Prediction {
    /// Seconds of the step.
    pub step_seconds: f64,
    /// Operations of the model a second and GPU, in units of 10¹².
    pub tflops_per_gpu: f64,
    /// The same over the peak of the GPU.
    pub mfu: f64,
    /// Waiting between the first forward and the last backward, over all ranks.
    pub bubble: Bubble,
    /// Bytes that cross in a step, over all ranks, by axis.
    pub bytes: BTreeMap<Axis, f64>,
    /// Memory of each pipeline position.
    pub memory: Vec<PositionMemory>,
    /// Where the step goes on a mean rank.
    pub parts: StepParts,
    /// Where the time of a rank of each class goes.
    pub time: StepTime,
    /// Seconds of a mean rank in which a message or collective of it runs beside a kernel.
    pub hidden_comm_seconds: f64,
    /// All ranks.
    pub mesh: Mesh,
    /// The Plan that was laid out.
    pub cluster_plan: ClusterPlan,
    /// What its instructions wait for.
    pub order: Order,
    /// When its instructions run.
    pub trace: Trace,
}

/// Predicts a step.
///
/// # Errors
/// If the step would hang, which only a schedule from a file can.
///
/// # Panics
/// If the workload's schedule is a file and no table is given.
pub fn predict(
    workload: &Workload,
    cluster: &Cluster,
    conditions: &Conditions,
) -> Result<Prediction, SimError> {
    let whole = predict_while(workload, cluster, conditions, &|| true)?;
    Ok(whole.expect("nobody ends it"))
}

/// Predicts a step that may be large as long as somebody waits for it: `None` once `goes_on`, which is
/// asked between the parts of the work, says no.
///
/// # Errors
/// If the step would hang, which only a schedule from a file can.
///
/// # Panics
/// If the workload's schedule is a file and no table is given.
pub fn predict_while(
    workload: &Workload,
    cluster: &Cluster,
    conditions: &Conditions,
    goes_on: &dyn Fn() -> bool,
) -> Result<Option<Prediction>, SimError> {
    let Conditions { constants, knobs, whatif, table: given } = conditions;
    let table = given.clone().unwrap_or_else(|| table(workload, workload.batch.microbatches));
    let topology = topology(workload, &table, cluster.node.gpus, knobs);
    if !goes_on() {
        return Ok(None);
    }
    let plan = cluster_plan(workload, &table, &topology, Classes::quotient(&topology));
    if !goes_on() {
        return Ok(None);
    }
    let pricer = Pricer { cluster, constants };
    let ordered = Ordered::new(plan);
    if !goes_on() {
        return Ok(None);
    }
    let trace = ordered.predict(&pricer, *whatif)?;
    if !goes_on() {
        return Ok(None);
    }
    let Ordered { cluster: plan, order, .. } = ordered;
    let step_seconds = with_overheads(trace.end().as_secs(), workload, constants);
    let rate = Rate::of(workload, cluster, step_seconds);
    let time = StepTime::of(&plan.plan, &order, &trace);
    let hidden = time.mean_messages(&plan.classes.sizes).hidden;
    Ok(Some(Prediction {
        step_seconds,
        tflops_per_gpu: rate.tflops_per_gpu,
        mfu: rate.mfu,
        bubble: weighted(&plan.plan, &trace, &plan.classes.sizes),
        bytes: bytes(&plan),
        memory: memory::positions(workload, &table),
        parts: StepParts::of(&plan, &trace, step_seconds),
        hidden_comm_seconds: hidden.as_secs(),
        time,
        mesh: workload.split.mesh(),
        cluster_plan: plan,
        order,
        trace,
    }))
}

/// How much of the GPUs a step uses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Operations of the model a second and GPU, in units of 10¹².
    pub tflops_per_gpu: f64,
    /// The same over the peak of the GPU.
    pub mfu: f64,
}

impl Rate {
    /// Of a step that takes so many seconds.
    pub fn of(workload: &Workload, cluster: &Cluster, step_seconds: f64) -> Self {
        let ranks = f64::from(workload.split.ranks());
        let tflops_per_gpu = workload.model_flops() / ranks / step_seconds * 1e-12;
        let peak = match (workload.precision, cluster.gpu.tflops_8bit) {
            (Precision::Fp8, Some(peak)) => peak,
            _ => cluster.gpu.tflops_16bit,
        };
        Self { tflops_per_gpu, mfu: tflops_per_gpu / peak }
    }
}

/// The table of a workload's schedule with some number of microbatches.
pub(crate) fn table(workload: &Workload, microbatches: u32) -> Schedule {
    let split = &workload.split;
    named(&split.schedule, split.pp, split.chunks, microbatches)
        .expect("a schedule from a file comes with its table")
}

/// What the host adds to a step, and the slowest of many GPUs.
pub(crate) fn with_overheads(schedule: f64, workload: &Workload, constants: &Constants) -> f64 {
    let doublings = (f64::from(workload.split.ranks()) / 8.0).log2().max(0.0);
    (schedule + constants.step_seconds) * (1.0 + constants.straggler * doublings)
}

/// Bytes that cross, over all ranks, by the formulas of collectives and the sizes of messages.
fn bytes(cluster: &ClusterPlan) -> BTreeMap<Axis, f64> {
    let mut sums: BTreeMap<Axis, f64> = Axis::ALL.map(|axis| (axis, 0.0)).into();
    for (program, members) in cluster.plan.programs.iter().zip(&cluster.classes.sizes) {
        for instr in &program.instrs {
            let (axis, bytes) = match &instr.action {
                Action::Send { view, .. } if view.len > 1 => {
                    (Axis::Pp, cluster.plan.view_bytes(*view).0 as f64)
                }
                Action::Launch { op: Op::Coarse(op), .. } if op.flops == 0 => {
                    let Some((axis, bytes)) = collective_bytes(cluster, op) else { continue };
                    (axis, bytes)
                }
                _ => continue,
            };
            *sums.entry(axis).or_default() += bytes * f64::from(*members);
        }
    }
    sums
}

/// What a member of a collective sends.
fn collective_bytes(cluster: &ClusterPlan, op: &Coarse) -> Option<(Axis, f64)> {
    let collective = matches!(
        op.kind,
        CoarseKind::LayerCollectives | CoarseKind::ReduceGradients | CoarseKind::GatherWeights
    );
    let list = collective.then(|| &cluster.exchanges[op.work as usize])?;
    // Messages between stages are counted where they are sent.
    let list: Vec<_> =
        list.iter().filter(|exchange| exchange.kind != CollectiveKind::PointToPoint).collect();
    let sent = |exchange: &&Exchange| {
        let ways = if exchange.kind == CollectiveKind::AllReduce { 2.0 } else { 1.0 };
        let n = f64::from(exchange.group.members);
        ways * (n - 1.0) / n * exchange.bytes * exchange.repeats / f64::from(op.pieces)
    };
    Some((list.first()?.axis, list.iter().map(sent).sum()))
}
