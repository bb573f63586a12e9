//! Peak memory of each pipeline position, by role: whether a step fits at all.
//!
//! Counted from what the software at hand keeps of each layer (arXiv:2205.05198, section 4, written
//! out for gated feed-forwards, fused attention and eager kernels) times the microbatches in flight
//! by the schedule's own table.

use serde::Serialize;

use crate::config::workload::{AttentionKernel, Fusion, Recomputed, Sharding, Softmax, Workload};
use crate::planner::cluster::layers_of_stages;
use crate::planner::schedule::Schedule;
use crate::planner::schedule::named::Held;

/// The share of a GPU's memory that a step may take: the rest is the driver's context, NCCL's
/// buffers and what the allocator cannot join. Fitted to the layouts that ran and that did not.
pub const USABLE: f64 = 0.93;

/// Bytes that a rank of a pipeline position holds at the peak of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PositionMemory {
    /// Pipeline position.
    pub position: u32,
    /// 16-bit weights, also gathered ones.
    pub weights: f64,
    /// Gradients.
    pub gradients: f64,
    /// Master weights and moments in 32 bits.
    pub optimizer: f64,
    /// What backward needs.
    pub activations: f64,
    /// Logits and their gradient.
    pub workspace: f64,
}

impl PositionMemory {
    /// All of it.
    pub const fn total(&self) -> f64 {
        self.weights + self.gradients + self.optimizer + self.activations + self.workspace
    }
}

/// Whether the fullest position fits into so many units of 10⁹ bytes.
pub fn fits(positions: &[PositionMemory], memory_gb: f64) -> bool {
    positions.iter().all(|position| position.total() <= USABLE * memory_gb * 1e9)
}

/// Memory of each position. `table`: the schedule of the whole step.
pub fn positions(workload: &Workload, table: &Schedule) -> Vec<PositionMemory> {
    of_held(workload, &Held::of(table))
}

/// The same from what each position holds.
pub fn of_held(workload: &Workload, held: &[Held]) -> Vec<PositionMemory> {
    let stages = held.iter().map(|held| held.stages.len() as u32).sum();
    let layers = layers_of_stages(workload.model.layers, stages);
    (0..).zip(held).map(|(at, held)| position(workload, at, held, &layers)).collect()
}

fn position(workload: &Workload, pp: u32, held: &Held, layers_of: &[u64]) -> PositionMemory {
    let Workload { model, split, software, recomputed, .. } = workload;
    let Held { stages: held, in_flight } = held;
    let layers: u64 = held.iter().map(|stage| layers_of[*stage as usize]).sum();
    let last_stage = layers_of.len() as u32 - 1;
    let (first, last) = (held.contains(&0), held.contains(&last_stage));
    let tables = match (first, last) {
        (true, true) => 2 - u64::from(model.tied),
        (false, false) => 0,
        _ => 1,
    };
    let tp = f64::from(split.tp);
    let layer_parameters = model.layer_parameters() as f64 / tp;
    let table_parameters = model.table_parameters() as f64 / tp;
    let parameters = layers as f64 * layer_parameters + tables as f64 * table_parameters;
    let shares = f64::from(split.replicas());
    let share =
        |from: Sharding| if split.sharding >= from { parameters / shares } else { parameters };
    let gathered = match split.sharding {
        // Two layers at a time, and the tables in 16 bits.
        Sharding::Weights => 2.0 * 2.0 * layer_parameters + 2.0 * table_parameters,
        _ => 0.0,
    };
    let tokens = workload.tokens() as f64;
    let kept = tokens * kept_per_token(workload);
    // The table counts passes through single stages; each holds its share of the layers.
    let chunks = held.len().max(1) as f64;
    let passes = f64::from(*in_flight) / chunks;
    let input = tokens * 2.0 * model.hidden as f64 / sequence_cut(workload);
    let layers = layers as f64;
    let activations = match *recomputed {
        Recomputed::Nothing => passes * layers * kept,
        Recomputed::Attention => passes * layers * (kept - tokens * scores_per_token(workload)),
        // Half of the products and all cheap operations are dropped.
        Recomputed::HalfOfProducts => passes * layers * 0.6 * kept,
        Recomputed::Layers(again) => {
            passes * layers * (again * input + (1.0 - again) * kept) + kept
        }
    };
    let sliced = if software.sliced_loss { tp } else { 1.0 };
    // Logits in 16 bits, again in 32, and their gradient.
    let logits = if last { tokens * model.vocab as f64 / sliced * 10.0 } else { 0.0 };
    PositionMemory {
        position: pp,
        weights: 2.0 * share(Sharding::Weights) + gathered,
        gradients: software.gradient_bytes as f64 * share(Sharding::Gradients),
        optimizer: 12.0 * share(Sharding::OptimizerState),
        activations,
        workspace: logits,
    }
}

fn sequence_cut(workload: &Workload) -> f64 {
    if workload.split.sequence_parallel { f64::from(workload.split.tp) } else { 1.0 }
}

/// Bytes of scores and softmax weights that are kept a token of a layer.
fn scores_per_token(workload: &Workload) -> f64 {
    let Workload { model, software, split, batch, .. } = workload;
    let AttentionKernel::Unfused(softmax) = software.attention else { return 0.0 };
    let scores = (model.heads as f64 / f64::from(split.tp)) * batch.seq as f64;
    let dropout = if model.gated { 0.0 } else { 1.0 };
    let eager = match softmax {
        Softmax::Fused => 0.0,
        Softmax::Eager => 8.0,
    };
    scores * (2.0 + 2.0 + dropout + eager)
}

/// Bytes that backward needs a token of a layer, if nothing is computed again.
fn kept_per_token(workload: &Workload) -> f64 {
    let Workload { model, software, split, .. } = workload;
    let tp = f64::from(split.tp);
    let residual = model.hidden as f64 / sequence_cut(workload);
    let [q, kv] = [model.query_width(), model.key_width()].map(|width| width as f64 / tp);
    let ffn = model.ffn as f64 / tp;
    let activation = match (model.gated, software.activation) {
        (true, Fusion::Fused) => 3.0,
        (true, _) => 4.0,
        (false, _) => 2.0,
    };
    // Inputs and outputs of both norms; queries, keys, values and attention's output; feed-forward.
    let mut kept = 8.0 * residual + 2.0 * (2.0 * q + 2.0 * kv) + 2.0 * activation * ffn;
    if software.norm == Fusion::Eager {
        // Two 32-bit copies and a 16-bit one.
        kept += 2.0 * 10.0 * residual;
    }
    if software.rope == Some(Fusion::Eager) {
        kept += 2.0 * (q + kv);
    }
    if let (AttentionKernel::Unfused(_), false) = (software.attention, model.gated) {
        kept += 2.0 * residual;
    }
    kept + scores_per_token(workload)
}
