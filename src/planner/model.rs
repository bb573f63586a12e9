//! The model as ops: forward, backward and weight gradients of each unit of a stage.
//!
//! ```text
//! layer:  x ─ norm ─ qkv ─ rope ─ attention ─ o ─ (+) ─ norm ─ gate,up ─ swiglu ─ down ─ (+) ─▶
//!          └────────────────────────────────────┘   └───────────────────────────────────┘
//! ```
//! Backward is cut into input gradients (I) and weight gradients (W): a `B` cell runs W of a matrix
//! right after its I, an `I` cell leaves them for the `W` cell.

use super::build::{Message, RankWriter, message_id};
use super::context::Unit;
use super::schedule::{Act, Pass};
use super::tensor_parallel::{Weight, heads};
use crate::config::Recompute;
use crate::mesh::Axis;
use crate::ops::Op;
use crate::ops::attention::{Attention, AttentionGrad};
use crate::ops::cross_entropy::{LossGrad, LossMerge, LossStats};
use crate::ops::elementwise::Add;
use crate::ops::embedding::{Embedding, EmbeddingGrad};
use crate::ops::matmul::{Form, Matmul};
use crate::ops::norm::{RmsNorm, RmsNormGradInput, RmsNormGradWeight};
use crate::ops::rope::Rope;
use crate::ops::swiglu::{SwiGlu, SwiGluGrad};
use crate::plan::{Input, Life, Phase, Role, View};
use crate::shape::{DType, part};

use super::collective;

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

    // ── forward ─────────────────────────────────────────────────────────────────────────────

    /// Forward of a stage: takes over its input, hands on its output, keeps what backward needs.
    pub(super) fn forward_stage(&mut self, act: Act) {
        let units = self.context.stages[act.stage as usize].clone();
        let sizes = self.sizes(act.microbatch);
        let mut saved = StageSaved::default();
        self.program.origin.phase = act.pass.phase();
        self.gather_weights(units.start, act.pass);
        let mut x = (units.start != 0).then(|| self.take_over(act, act.stage - 1));
        for unit in units.clone() {
            self.enter(Phase::Forward, unit);
            if unit + 1 < units.end {
                self.gather_weights(unit + 1, act.pass);
            }
            if unit == 0 {
                x = Some(self.forward_embedding(&mut saved, sizes));
            } else if unit == self.context.head() {
                let x = x.expect("the head has layers before it");
                saved.head = Some(self.forward_head(x, sizes));
            } else {
                let (from, recompute) = (x.expect("a layer has an input"), self.recompute());
                let (out, kept) = self.forward_layer(unit, from, sizes, recompute);
                let kept = (recompute != Recompute::Full).then_some(kept);
                saved.layers.push(LayerSaved { x: from, kept });
                x = Some(out);
            }
        }
        self.program.origin.layer = None;
        if let Some(x) = x.filter(|_| units.end <= self.context.head()) {
            self.hand_over(act, x, act.stage + 1);
        }
        self.saved.insert((act.stage, act.microbatch), saved);
    }

    fn recompute(&self) -> Recompute {
        self.context.spec.layout.recompute
    }

    fn input_rows(&mut self, name: &str, labels: bool) -> View {
        let microbatch = self.program.origin.microbatch.unwrap_or_default();
        let range = self.context.rows(self.at.dp, microbatch);
        let (first_row, rows) = (range.start, range.end - range.start);
        let input = if labels {
            Input::Labels { first_row, rows }
        } else {
            Input::Tokens { first_row, rows }
        };
        let len = rows * self.context.spec.training.seq;
        let label = format!("{name}.m{microbatch}");
        self.program.declare(label, Role::Workspace, DType::I32, len, Life::Input(input))
    }

    fn forward_embedding(&mut self, saved: &mut StageSaved, sizes: Sizes) -> View {
        let tokens = self.input_rows("tokens", false);
        saved.tokens = Some(tokens);
        let table = self.weight(0, Weight::Table, sizes.vocab * sizes.d);
        let x = self.activation("embedded", sizes.rows * sizes.d);
        let op = Op::Embedding(Embedding {
            rows: sizes.rows,
            dim: sizes.d,
            vocab_start: sizes.vocab_start,
            vocab_len: sizes.vocab,
        });
        self.program.launch(op, &[tokens, table], &[x]);
        let id = self.site(Pass::F, 0, site::SUM_1);
        self.sum_partials(x, sizes.batch, id)
    }

    /// `y = norm(x)` of this rank's positions inside a whole buffer, and `1/rms`.
    fn norm(&mut self, unit: Unit, weight: Weight, x: View, sizes: Sizes, name: &str) -> [View; 2] {
        let w = self.weight(unit, weight, sizes.d);
        let y = self.activation(name, sizes.rows * sizes.d);
        let rstd = self.activation(&format!("{name}.rstd"), sizes.local_rows);
        let mine = self.local_part(y, sizes.batch);
        let eps = self.context.model().rms_norm_eps;
        let op = Op::RmsNorm(RmsNorm { rows: sizes.local_rows, dim: sizes.d, eps });
        self.program.launch(op, &[x, w], &[mine, rstd]);
        [y, rstd]
    }

    fn attention(&mut self, qkv: View, sizes: Sizes) -> [View; 2] {
        let heads = heads(self.context, self.at.tp, sizes.batch);
        let out = self.activation("attention", sizes.rows * sizes.attention);
        let lse = self.activation("lse", sizes.rows * heads.heads);
        self.program.launch(Op::Attention(Attention { heads }), &[qkv], &[out, lse]);
        [out, lse]
    }

    fn rope(&mut self, qkv: View, sizes: Sizes, inverse: bool) {
        let heads = heads(self.context, self.at.tp, sizes.batch);
        let op = Op::Rope(Rope {
            seq: heads.seq,
            batch: heads.batch,
            heads: heads.heads + heads.kv_heads,
            head_dim: heads.head_dim,
            width: heads.qkv_width(),
            inverse,
        });
        let table = self.rope_table.expect("declared for ranks with layers");
        self.program.launch(op, &[table], &[qkv]);
    }

    fn swiglu(&mut self, gate_up: View, sizes: Sizes) -> View {
        let act = self.activation("act", sizes.rows * sizes.ffn);
        let op = Op::SwiGlu(SwiGlu { rows: sizes.rows, ffn: sizes.ffn });
        self.program.launch(op, &[gate_up], &[act]);
        act
    }

    fn add(&mut self, a: View, b: View, name: &str) -> View {
        let c = self.activation(name, a.len);
        self.program.launch(Op::Add(Add { len: a.len }), &[a, b], &[c]);
        c
    }

    /// Whether norm outputs are computed again: under sequence parallel that would need messages.
    fn drops_norms(&self, recompute: Recompute) -> bool {
        recompute == Recompute::Selective && !self.context.sequence_parallel
    }

    fn forward_layer(
        &mut self,
        unit: Unit,
        x: View,
        sizes: Sizes,
        recompute: Recompute,
    ) -> (View, LayerKept) {
        let Sizes { rows, batch, d, qkv, attention, ffn, .. } = sizes;
        let drops = recompute == Recompute::Selective;
        let drops_norms = self.drops_norms(recompute);

        let [y_in, rstd_in] = self.norm(unit, Weight::InputNorm, x, sizes, "norm_in");
        let id = self.site(Pass::F, unit, site::GATHER_1);
        self.gather_sequence(y_in, batch, id);
        let w = self.weight(unit, Weight::Q, qkv * d);
        let qkv = self.matmul(Form::Nt, [rows, qkv, d], y_in, w, "qkv");
        self.rope(qkv, sizes, false);
        let [out, lse] = self.attention(qkv, sizes);
        let w = self.weight(unit, Weight::O, d * attention);
        let o = self.matmul(Form::Nt, [rows, d, attention], out, w, "o");
        let id = self.site(Pass::F, unit, site::SUM_1);
        let o = self.sum_partials(o, batch, id);
        let x_mid = self.add(x, o, "x_mid");

        let [y_post, rstd_post] = self.norm(unit, Weight::PostNorm, x_mid, sizes, "norm_post");
        let id = self.site(Pass::F, unit, site::GATHER_2);
        self.gather_sequence(y_post, batch, id);
        let w = self.weight(unit, Weight::Gate, 2 * ffn * d);
        let gate_up = self.matmul(Form::Nt, [rows, 2 * ffn, d], y_post, w, "gate_up");
        let act = self.swiglu(gate_up, sizes);
        let w = self.weight(unit, Weight::Down, d * ffn);
        let down = self.matmul(Form::Nt, [rows, d, ffn], act, w, "down");
        let id = self.site(Pass::F, unit, site::SUM_2);
        let down = self.sum_partials(down, batch, id);
        let x_out = self.add(x_mid, down, "x_out");

        let kept = LayerKept {
            rstd_in,
            y_in: (!drops_norms).then_some(y_in),
            qkv,
            attention: (!drops).then_some([out, lse]),
            x_mid,
            rstd_post,
            y_post: (!drops_norms).then_some(y_post),
            gate_up,
            act: (!drops).then_some(act),
        };
        (x_out, kept)
    }

    fn forward_head(&mut self, x: View, sizes: Sizes) -> HeadSaved {
        let unit = self.context.head();
        let Sizes { rows, d, vocab_start, vocab, .. } = sizes;
        let [y, rstd] = self.norm(unit, Weight::FinalNorm, x, sizes, "norm_final");
        let id = self.site(Pass::F, unit, site::GATHER_1);
        self.gather_sequence(y, sizes.batch, id);
        let w = self.output_matrix(sizes);
        let logits = self.matmul(Form::Nt, [rows, vocab, d], y, w, "logits");
        let labels = self.input_rows("labels", true);

        let slices = self.context.mesh.tp;
        let stats = self.activation("loss_stats", slices * rows * 3);
        let pieces: Vec<_> = (0..slices).map(|tp| tp * rows * 3..(tp + 1) * rows * 3).collect();
        let mine = stats.slice(pieces[self.at.tp as usize].clone());
        let op = Op::LossStats(LossStats { rows, vocab_start, vocab_len: vocab });
        self.program.launch(op, &[logits, labels], &[mine]);
        if slices > 1 {
            let (seat, id) = (self.seat(Axis::Tp), self.site(Pass::F, unit, site::SUM_1));
            let style = self.tp_style(&seat, stats, id);
            collective::all_gather(&mut self.program, &seat, style, stats, &pieces);
        }
        let merged = self.activation("loss_merged", rows * 2);
        let op = Op::LossMerge(LossMerge { rows, slices, accumulate: self.has_loss });
        self.has_loss = true;
        let loss_sum = self.loss_sum.expect("declared on the last stage");
        self.program.launch(op, &[stats, labels], &[merged, loss_sum]);
        HeadSaved { x, rstd, y, logits, merged, labels }
    }

    /// The output matrix: the head's own or the tied table.
    fn output_matrix(&self, sizes: Sizes) -> View {
        self.weight(self.context.head(), self.output_weight(), sizes.vocab * sizes.d)
    }

    fn output_weight(&self) -> Weight {
        if self.context.model().tie_word_embeddings { Weight::Table } else { Weight::Output }
    }

    // ── backward ────────────────────────────────────────────────────────────────────────────

    /// Input gradients of a stage and, in a `B` cell, its weight gradients. `last`: no weight
    /// gradient of the stage comes after this cell.
    pub(super) fn backward_stage(&mut self, act: Act, last: bool) {
        let units = self.context.stages[act.stage as usize].clone();
        let sizes = self.sizes(act.microbatch);
        let phase = act.pass.phase();
        let mut saved = self
            .saved
            .remove(&(act.stage, act.microbatch))
            .expect("a checked schedule runs forward first");
        self.program.origin.phase = phase;
        self.gather_weights(units.end - 1, act.pass);
        let ends = units.end > self.context.head();
        let mut d_x = (!ends).then(|| self.take_over(act, act.stage + 1));
        for unit in units.clone().rev() {
            self.enter(phase, unit);
            if unit > units.start {
                self.gather_weights(unit - 1, act.pass);
            }
            if unit == self.context.head() {
                let head = saved.head.take().expect("forward kept the head");
                d_x = Some(self.backward_head(act, head, sizes));
            } else {
                let d = d_x.expect("a gradient comes from above");
                if unit == 0 {
                    let tokens = saved.tokens.expect("forward kept the tokens");
                    self.backward_embedding(act, tokens, d, sizes);
                } else {
                    let layer = saved.layers.pop().expect("forward kept each layer");
                    d_x = Some(self.backward_layer(act, unit, layer, d, sizes));
                }
            }
            if act.pass == Pass::B {
                self.unit_done(unit, last);
            }
        }
        self.program.origin.layer = None;
        if let Some(d) = d_x.filter(|_| units.start > 0) {
            self.hand_over(act, d, act.stage - 1);
        }
    }

    /// The weight gradients that an `I` cell left.
    pub(super) fn weight_gradients_of_stage(&mut self, act: Act, last: bool) {
        let units = self.context.stages[act.stage as usize].clone();
        let mut waiting = self.deferred.remove(&(act.stage, act.microbatch)).unwrap_or_default();
        for unit in units.rev() {
            self.enter(Phase::WeightGrad, unit);
            let (mine, others) = waiting.into_iter().partition(|deferred| deferred.unit == unit);
            waiting = others;
            let mine: Vec<Deferred> = mine;
            for deferred in mine {
                self.weight_gradient(deferred);
            }
            self.unit_done(unit, last);
        }
        self.program.origin.layer = None;
    }

    /// Runs a weight gradient now, in a `B` cell, or leaves it for the `W` cell.
    fn weight_gradient_in(&mut self, act: Act, deferred: Deferred) {
        if act.pass == Pass::B {
            self.weight_gradient(deferred);
        } else {
            self.deferred.entry((act.stage, act.microbatch)).or_default().push(deferred);
        }
    }

    fn weight_gradient(&mut self, deferred: Deferred) {
        let Deferred { unit, first, len, kernel, inputs } = deferred;
        let (target, accumulate) = self.gradient_target(unit, first, len);
        self.program.launch(kernel.op(accumulate), &inputs, &[target]);
    }

    fn matrix_gradient(
        &mut self,
        act: Act,
        (unit, first): (Unit, Weight),
        [m, n, k]: [u32; 3],
        inputs: [View; 2],
    ) {
        let kernel = WeightKernel::Matmul { m, n, k };
        let inputs = inputs.to_vec();
        self.weight_gradient_in(act, Deferred { unit, first, len: m * n, kernel, inputs });
    }

    /// Gradient through a norm: of its input into `d_x` (added if `adds`), and of its weight.
    fn backward_norm(
        &mut self,
        act: Act,
        (unit, weight): (Unit, Weight),
        [d_y, x, rstd]: [View; 3],
        (d_x, adds): (View, bool),
        sizes: Sizes,
    ) {
        let (rows, dim) = (sizes.local_rows, sizes.d);
        let w = self.weight(unit, weight, dim);
        let op = Op::RmsNormGradInput(RmsNormGradInput { rows, dim, accumulate: adds });
        self.program.launch(op, &[d_y, x, w, rstd], &[d_x]);
        let kernel = WeightKernel::Norm { rows, dim };
        let inputs = vec![d_y, x, rstd];
        self.weight_gradient_in(act, Deferred { unit, first: weight, len: dim, kernel, inputs });
    }

    fn backward_head(&mut self, act: Act, head: HeadSaved, sizes: Sizes) -> View {
        let unit = self.context.head();
        let Sizes { rows, d, vocab_start, vocab, .. } = sizes;
        let op = Op::LossGrad(LossGrad { rows, vocab_start, vocab_len: vocab });
        let scalars = self.scalars.expect("declared on every rank");
        self.program.launch(op, &[head.merged, head.labels, scalars], &[head.logits]);
        let w = self.output_matrix(sizes);
        let d_y = self.matmul(Form::Nn, [rows, d, vocab], head.logits, w, "d_norm_final");
        let output = (unit, self.output_weight());
        self.matrix_gradient(act, output, [vocab, d, rows], [head.logits, head.y]);
        let id = self.site(Pass::B, unit, site::SUM_1);
        let d_y = self.sum_partials(d_y, sizes.batch, id);
        let d_x = self.activation("d_x", sizes.local_rows * d);
        let norm = (unit, Weight::FinalNorm);
        self.backward_norm(act, norm, [d_y, head.x, head.rstd], (d_x, false), sizes);
        d_x
    }

    fn backward_embedding(&mut self, act: Act, tokens: View, d_x: View, sizes: Sizes) {
        let id = self.site(Pass::B, 0, site::GATHER_1);
        let d_x = self.whole_gradient(d_x, sizes.batch, "d_embedded", id);
        let kernel = WeightKernel::Table {
            rows: sizes.rows,
            dim: sizes.d,
            vocab_start: sizes.vocab_start,
            vocab_len: sizes.vocab,
        };
        let (first, len) = (Weight::Table, sizes.vocab * sizes.d);
        let inputs = vec![tokens, d_x];
        self.weight_gradient_in(act, Deferred { unit: 0, first, len, kernel, inputs });
    }

    /// The residual gradient that backward of half a layer adds to: `d` itself, or a copy where
    /// waiting weight gradients still need `d`.
    fn residual_gradient(&mut self, act: Act, d: View, whole: View) -> View {
        if act.pass == Pass::B || whole != d {
            return d;
        }
        let copy = self.activation("d_residual", d.len);
        self.copy(d, copy);
        copy
    }

    fn backward_layer(
        &mut self,
        act: Act,
        unit: Unit,
        saved: LayerSaved,
        d: View,
        sizes: Sizes,
    ) -> View {
        let kept = self.recomputed(unit, saved, sizes);
        let d = self.backward_ffn(act, unit, kept, d, sizes);
        self.backward_attention(act, unit, (saved.x, kept), d, sizes)
    }

    /// What backward of a layer needs, computed again where it was not kept.
    fn recomputed(&mut self, unit: Unit, saved: LayerSaved, sizes: Sizes) -> LayerKept {
        let phase = self.program.origin.phase;
        self.program.origin.phase = Phase::Recompute;
        let mut kept = match saved.kept {
            Some(kept) => kept,
            None => self.forward_layer(unit, saved.x, sizes, Recompute::None).1,
        };
        if kept.y_in.is_none() {
            kept.y_in = Some(self.norm(unit, Weight::InputNorm, saved.x, sizes, "norm_in")[0]);
        }
        if kept.attention.is_none() {
            kept.attention = Some(self.attention(kept.qkv, sizes));
        }
        if kept.y_post.is_none() {
            kept.y_post =
                Some(self.norm(unit, Weight::PostNorm, kept.x_mid, sizes, "norm_post")[0]);
        }
        if kept.act.is_none() {
            kept.act = Some(self.swiglu(kept.gate_up, sizes));
        }
        self.program.origin.phase = phase;
        kept
    }

    fn backward_ffn(
        &mut self,
        act: Act,
        unit: Unit,
        kept: LayerKept,
        d: View,
        sizes: Sizes,
    ) -> View {
        let Sizes { rows, batch, d: dim, ffn, .. } = sizes;
        let y_post = kept.y_post.expect("recomputed");
        let activated = kept.act.expect("recomputed");
        let id = self.site(Pass::B, unit, site::GATHER_1);
        let label = self.label("d_down");
        let whole = self.whole_gradient(d, batch, &label, id);
        let w = self.weight(unit, Weight::Down, dim * ffn);
        let d_act = self.matmul(Form::Nn, [rows, ffn, dim], whole, w, "d_act");
        self.matrix_gradient(act, (unit, Weight::Down), [dim, ffn, rows], [whole, activated]);
        let d_gate_up = self.activation("d_gate_up", rows * 2 * ffn);
        let op = Op::SwiGluGrad(SwiGluGrad { rows, ffn });
        self.program.launch(op, &[kept.gate_up, d_act], &[d_gate_up]);
        let w = self.weight(unit, Weight::Gate, 2 * ffn * dim);
        let d_y = self.matmul(Form::Nn, [rows, dim, 2 * ffn], d_gate_up, w, "d_norm_post");
        self.matrix_gradient(act, (unit, Weight::Gate), [2 * ffn, dim, rows], [d_gate_up, y_post]);
        let id = self.site(Pass::B, unit, site::SUM_1);
        let d_y = self.sum_partials(d_y, batch, id);
        let d = self.residual_gradient(act, d, whole);
        let norm = (unit, Weight::PostNorm);
        self.backward_norm(act, norm, [d_y, kept.x_mid, kept.rstd_post], (d, true), sizes);
        d
    }

    fn backward_attention(
        &mut self,
        act: Act,
        unit: Unit,
        (x, kept): (View, LayerKept),
        d: View,
        sizes: Sizes,
    ) -> View {
        let Sizes { rows, batch, d: dim, qkv: width, attention: columns, .. } = sizes;
        let [out, lse] = kept.attention.expect("recomputed");
        let y_in = kept.y_in.expect("recomputed");
        let id = self.site(Pass::B, unit, site::GATHER_2);
        let label = self.label("d_o");
        let whole = self.whole_gradient(d, batch, &label, id);
        let w = self.weight(unit, Weight::O, dim * columns);
        let d_out = self.matmul(Form::Nn, [rows, columns, dim], whole, w, "d_attention");
        self.matrix_gradient(act, (unit, Weight::O), [dim, columns, rows], [whole, out]);
        let d_qkv = self.activation("d_qkv", rows * width);
        let heads = heads(self.context, self.at.tp, batch);
        let op = Op::AttentionGrad(AttentionGrad { heads });
        self.program.launch(op, &[kept.qkv, out, lse, d_out], &[d_qkv]);
        self.rope(d_qkv, sizes, true);
        let w = self.weight(unit, Weight::Q, width * dim);
        let d_y = self.matmul(Form::Nn, [rows, dim, width], d_qkv, w, "d_norm_in");
        self.matrix_gradient(act, (unit, Weight::Q), [width, dim, rows], [d_qkv, y_in]);
        let id = self.site(Pass::B, unit, site::SUM_2);
        let d_y = self.sum_partials(d_y, batch, id);
        let d = self.residual_gradient(act, d, whole);
        let norm = (unit, Weight::InputNorm);
        self.backward_norm(act, norm, [d_y, x, kept.rstd_in], (d, true), sizes);
        d
    }
}
