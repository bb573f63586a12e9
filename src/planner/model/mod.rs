//! The model as ops: forward, backward and weight gradients of each unit of a stage.
//!
//! ```text
//! layer:  x ─ norm ─ qkv ─ rope ─ attention ─ o ─ (+) ─ norm ─ gate,up ─ swiglu ─ down ─ (+) ─▶
//!          └────────────────────────────────────┘   └───────────────────────────────────┘
//! ```
//! Backward is cut into input gradients (I) and weight gradients (W): a `B` cell runs W of a matrix
//! right after its I, an `I` cell leaves them for the `W` cell. [`forward`] and [`backward`] write them;
//! here is what both need.

mod backward;
mod forward;

use super::build::{Message, RankWriter, message_id};
use super::context::Unit;
use super::schedule::{Act, Pass};
use super::tensor_parallel::{Weight, heads};
use crate::ops::Op;
use crate::ops::embedding::EmbeddingGrad;
use crate::ops::matmul::{Form, Matmul};
use crate::ops::norm::RmsNormGradWeight;
use crate::plan::{Phase, Role, View};
use crate::shape::{DType, part};

/// What forward of a stage keeps for its backward.
#[derive(Debug, Default)]
pub(super) struct StageSaved {
    tokens: Option<View>,
    layers: Vec<LayerSaved>,
    head: Option<HeadSaved>,
}

/// What forward of a layer keeps; what recompute leaves out is `None`.
#[derive(Clone, Copy, Debug)]
struct LayerSaved {
    x: View,
    kept: Option<LayerKept>,
}

#[derive(Clone, Copy, Debug)]
struct LayerKept {
    rstd_in: View,
    y_in: Option<View>,
    qkv: View,
    /// Attention's output and log-sum-exp.
    attention: Option<[View; 2]>,
    x_mid: View,
    rstd_post: View,
    y_post: Option<View>,
    gate_up: View,
    act: Option<View>,
}

#[derive(Clone, Copy, Debug)]
struct HeadSaved {
    x: View,
    rstd: View,
    y: View,
    logits: View,
    merged: View,
    labels: View,
}

/// A weight gradient that waits for its W cell.
#[derive(Clone, Debug)]
pub(super) struct Deferred {
    unit: Unit,
    first: Weight,
    len: u32,
    kernel: WeightKernel,
    inputs: Vec<View>,
}

#[derive(Clone, Copy, Debug)]
enum WeightKernel {
    Matmul { m: u32, n: u32, k: u32 },
    Norm { rows: u32, dim: u32 },
    Table { rows: u32, dim: u32, vocab_start: u32, vocab_len: u32 },
}

impl WeightKernel {
    fn op(self, accumulate: bool) -> Op {
        match self {
            Self::Matmul { m, n, k } => Op::Matmul(Matmul { form: Form::Tn, m, n, k, accumulate }),
            Self::Norm { rows, dim } => {
                Op::RmsNormGradWeight(RmsNormGradWeight { rows, dim, accumulate })
            }
            Self::Table { rows, dim, vocab_start, vocab_len } => {
                Op::EmbeddingGrad(EmbeddingGrad { rows, dim, vocab_start, vocab_len, accumulate })
            }
        }
    }
}

/// Sizes of a microbatch on this rank.
#[derive(Clone, Copy)]
struct Sizes {
    /// Sequences.
    batch: u32,
    /// Rows of whole activations: `seq · batch`.
    rows: u32,
    /// Rows that norms and residuals of this rank work on.
    local_rows: u32,
    d: u32,
    /// Columns of this rank's qkv, attention output and ffn.
    qkv: u32,
    attention: u32,
    ffn: u32,
    vocab_start: u32,
    vocab: u32,
}

/// Numbers of the tensor-parallel collectives of a unit in one pass.
mod site {
    pub(super) const GATHER_1: u32 = 0;
    pub(super) const SUM_1: u32 = 1;
    pub(super) const GATHER_2: u32 = 2;
    pub(super) const SUM_2: u32 = 3;
    /// Added where a pass runs forward again.
    pub(super) const RECOMPUTE: u32 = 8;
}

impl RankWriter<'_> {
    fn sizes(&self, microbatch: u32) -> Sizes {
        let context = self.context;
        let rows = context.rows(self.at.dp, microbatch);
        let batch = rows.end - rows.start;
        let positions = context.positions(self.at.tp);
        let heads = heads(context, self.at.tp, batch);
        let tp_part = |total| part(total, context.mesh.tp, self.at.tp);
        let ffn = tp_part(context.model().intermediate_size);
        let vocab = tp_part(context.model().vocab_size);
        Sizes {
            batch,
            rows: context.spec.training.seq * batch,
            local_rows: (positions.end - positions.start) * batch,
            d: context.model().hidden_size,
            qkv: heads.qkv_width(),
            attention: heads.out_width(),
            ffn: ffn.end - ffn.start,
            vocab_start: vocab.start,
            vocab: vocab.end - vocab.start,
        }
    }

    /// A step buffer for activations, named after the unit and microbatch at work.
    fn activation(&mut self, name: &str, len: u32) -> View {
        let label = self.label(name);
        self.program.buffer(label, Role::Activations, DType::F32, len)
    }

    /// Where the input of a pass arrives from another stage.
    pub(super) fn handed_over(&mut self, act: Act) -> View {
        let Sizes { local_rows, d, .. } = self.sizes(act.microbatch);
        self.activation(if act.pass == Pass::F { "x" } else { "d_x" }, local_rows * d)
    }

    fn label(&self, name: &str) -> String {
        let origin = &self.program.origin;
        let microbatch = origin.microbatch.unwrap_or_default();
        match (origin.layer, origin.stage) {
            (Some(layer), _) => format!("m{microbatch}.layer{layer}.{name}"),
            (None, stage) => format!("m{microbatch}.stage{}.{name}", stage.unwrap_or_default()),
        }
    }

    /// The id of a tensor-parallel collective of the unit and microbatch at work, where a part of the
    /// pass begins.
    fn site(&mut self, pass: Pass, unit: Unit, number: u32) -> u64 {
        self.program.begin_part();
        let recompute = self.program.origin.phase == Phase::Recompute;
        let number = number + if recompute { site::RECOMPUTE } else { 0 };
        message_id(
            Message::Tensor(pass, number),
            unit,
            self.program.origin.microbatch.unwrap_or_default(),
        )
    }

    fn enter(&mut self, phase: Phase, unit: Unit) {
        self.program.begin_part();
        self.program.origin.phase = phase;
        let is_layer = unit != 0 && unit != self.context.head();
        self.program.origin.layer = is_layer.then(|| unit - 1);
    }

    fn matmul(&mut self, form: Form, [m, n, k]: [u32; 3], a: View, b: View, name: &str) -> View {
        let c = self.activation(name, m * n);
        let op = Op::Matmul(Matmul { form, m, n, k, accumulate: false });
        self.program.launch(op, &[a, b], &[c]);
        c
    }
}
