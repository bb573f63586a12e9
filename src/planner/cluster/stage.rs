//! What a stage does in a step, in sizes: the work of its passes, the collectives inside its layers,
//! what it hands on, gathers, reduces and updates.
//!
//! Which rank holds the stage and when its passes run is the writer's business; how long all this
//! takes is `sim::cost`'s.

use super::classes::Group;
use super::layers_of_stages;
use super::work::{LayerWork, Part, Traffic, Work};
use super::{Beside, Exchange};
use crate::config::workload::{Precision, Recomputed, Sharding, Transformer, Workload};
use crate::mesh::Axis;
use crate::plan::CollectiveKind;
use crate::planner::schedule::Pass;

/// Gradient reductions that overlap are cut into this many buckets a stage: the last one is always
/// exposed. Megatron's default of 40 million parameters or more gives about as many.
pub const BUCKETS: u32 = 10;

/// Bytes that the optimizer moves a parameter: master weight, two moments and gradient read, three
/// of them written, in 32 bits; the 16-bit weight written and read.
const UPDATE_BYTES: f64 = 32.0;

/// What of the model a stage holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StageShape {
    /// Decoder layers.
    pub layers: u64,
    /// Whether it holds the embedding.
    pub first: bool,
    /// Whether it holds the head.
    pub last: bool,
}

impl StageShape {
    /// The stages of a model.
    pub fn of(model: &Transformer, stages: u32) -> Vec<Self> {
        let layers = layers_of_stages(model.layers, stages).into_iter().enumerate();
        let last = |stage| stage + 1 == stages as usize;
        layers
            .map(|(stage, layers)| Self { layers, first: stage == 0, last: last(stage) })
            .collect()
    }
}

/// Who takes part in the communication of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Inside {
    /// Slices of the same matrices.
    pub tensor: Group,
    /// Parts of the same sequences.
    pub sequence: Group,
    /// The two ends of a hand-over that blocks.
    pub handed: Option<Group>,
}

/// Which of its stage's passes a pass is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The first forward.
    First,
    /// The one that completes the gradients.
    Completing,
    /// Any other.
    Other,
}

/// Whether a pass completes gradients of a microbatch.
pub const fn reduces(pass: Pass) -> bool {
    matches!(pass, Pass::B | Pass::W)
}

/// What stages of one workload cost.
#[derive(Clone, Debug)]
pub struct StageCosts<'a> {
    workload: &'a Workload,
    layer: LayerWork,
}

impl<'a> StageCosts<'a> {
    /// Sizes of the passes of a layer, once.
    pub fn new(workload: &'a Workload) -> Self {
        Self { workload, layer: LayerWork::of(workload) }
    }

    /// Elements of the weights of a stage on one rank.
    pub fn parameters(&self, stage: StageShape) -> f64 {
        let model = &self.workload.model;
        let tables = match (stage.first, stage.last) {
            (true, true) if model.tied => 1,
            (first, last) => u64::from(first) + u64::from(last),
        };
        let layers = stage.layers * model.layer_parameters();
        let whole = layers + tables * model.table_parameters();
        whole as f64 / f64::from(self.workload.split.tp)
    }

    /// Elements that one rank hands to the next stage.
    pub fn boundary(&self) -> u32 {
        let Workload { split, software, model, .. } = self.workload;
        let cut = split.sequence_parallel || software.scatter_pipeline;
        let cut = if cut { u64::from(split.tp) } else { 1 };
        let elements = self.workload.tokens() * model.hidden / cut;
        u32::try_from(elements).unwrap_or(u32::MAX)
    }

    /// What a pass of a microbatch through a stage computes.
    pub fn work(&self, stage: StageShape, pass: Pass) -> Work {
        let LayerWork {
            forward,
            input_grad,
            weight_grad,
            head_forward,
            head_input_grad,
            head_weight_grad,
            embedding,
        } = &self.layer;
        let layers = stage.layers as f64;
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
        if stage.first {
            parts.extend((pass != Pass::I).then(|| (1.0, embedding.clone())));
        }
        if stage.last {
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
    pub fn inside(
        &self,
        stage: StageShape,
        pass: Pass,
        around: Inside,
        after: u32,
    ) -> Vec<Exchange> {
        let Workload { model, split, software, recomputed, .. } = self.workload;
        let layers = stage.layers as f64;
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
            let ends = if pass == Pass::F { stage.first } else { stage.last };
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

    /// A collective over the ranks with the same weights.
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

    /// Gathering the weights of a stage from the ranks that share them.
    pub fn gathered(&self, stage: StageShape, group: Group) -> Vec<Exchange> {
        self.over_replicas(CollectiveKind::AllGather, 2.0 * self.parameters(stage), group)
    }

    /// Adding the gradients of a stage up over these ranks.
    pub fn reduced(&self, stage: StageShape, group: Group) -> Vec<Exchange> {
        let bytes = self.workload.software.gradient_bytes as f64 * self.parameters(stage);
        let sharded = self.workload.split.sharding != Sharding::Nothing;
        let kind = if sharded { CollectiveKind::ReduceScatter } else { CollectiveKind::AllReduce };
        self.over_replicas(kind, bytes, group)
    }

    /// The collectives that run beside a pass when layers are gathered one by one.
    pub fn beside(&self, stage: StageShape, pass: Pass, group: Group) -> Vec<Exchange> {
        let gathered = self.gathers(pass).then(|| self.gathered(stage, group));
        let reduces = self.gathers_layers() && reduces(pass);
        let reduced = reduces.then(|| self.reduced(stage, group));
        gathered.into_iter().chain(reduced).flatten().collect()
    }

    /// Whether weights and gradients are exchanged layer by layer, in every pass.
    pub fn gathers_layers(&self) -> bool {
        let split = &self.workload.split;
        let sharded = matches!(split.sharding, Sharding::Gradients | Sharding::Weights);
        sharded && split.replicas() > 1
    }

    /// Whether a pass gathers the weights of its layers.
    pub fn gathers(&self, pass: Pass) -> bool {
        let again = self.workload.split.sharding == Sharding::Weights && pass != Pass::W;
        self.gathers_layers() && (pass == Pass::F || again)
    }

    /// Whether weights that the optimizer has updated are shared while the first forwards run.
    pub fn overlaps_weights(&self) -> bool {
        self.shares_updates() && self.workload.software.overlap_weights
    }

    /// Whether every rank updates a part of the weights and then shares it.
    pub fn shares_updates(&self) -> bool {
        let split = &self.workload.split;
        split.sharding == Sharding::OptimizerState && split.replicas() > 1
    }

    /// Whether gradients are added up once a step, while the last backwards complete them.
    pub fn overlaps_gradients(&self) -> bool {
        self.reduces_once() && self.workload.software.overlap_gradients
    }

    /// Whether gradients are added up once a step.
    pub fn reduces_once(&self) -> bool {
        !self.gathers_layers() && self.workload.split.replicas() > 1
    }

    /// Into how many pieces a pass is cut, so that collectives of others run beside them.
    pub fn pieces(&self, stage: StageShape, pass: Pass, turn: Turn) -> u32 {
        let once = match turn {
            Turn::First => pass == Pass::F && self.overlaps_weights(),
            Turn::Completing => reduces(pass) && self.overlaps_gradients(),
            Turn::Other => false,
        };
        match once {
            _ if self.gathers_layers() => stage.layers.max(1) as u32,
            true => BUCKETS,
            false => 1,
        }
    }

    /// The optimizer on a rank that holds so many elements of weights.
    pub fn update(workload: &Workload, parameters: f64) -> Work {
        let split = &workload.split;
        let sharded = split.sharding != Sharding::Nothing;
        let share = if sharded { f64::from(split.replicas()) } else { 1.0 };
        let traffic = Traffic { bytes: UPDATE_BYTES * parameters / share, ..Traffic::default() };
        let part = Part { traffic, kernels: 4.0, ..Part::default() };
        Work { parts: vec![(1.0, part)], eight_bit: false }
    }
}
