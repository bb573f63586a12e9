//! Forward of the units of a stage, and what of it backward needs.

use super::{HeadSaved, LayerKept, LayerSaved, Sizes, StageSaved, site};
use crate::config::Recompute;
use crate::mesh::Axis;
use crate::ops::Op;
use crate::ops::attention::Attention;
use crate::ops::cross_entropy::{LossMerge, LossStats};
use crate::ops::elementwise::Add;
use crate::ops::embedding::Embedding;
use crate::ops::matmul::Form;
use crate::ops::norm::RmsNorm;
use crate::ops::rope::Rope;
use crate::ops::swiglu::SwiGlu;
use crate::plan::{Input, Life, Phase, Role, View};
use crate::planner::build::RankWriter;
use crate::planner::collective;
use crate::planner::context::Unit;
use crate::planner::schedule::{Act, Pass};
use crate::planner::tensor_parallel::{Weight, heads};
use crate::shape::DType;

impl RankWriter<'_> {
    /// Forward of a stage: takes over its input, hands on its output, keeps what backward needs.
    pub(in crate::planner) fn forward_stage(&mut self, act: Act) {
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
    pub(super) fn norm(
        &mut self,
        unit: Unit,
        weight: Weight,
        x: View,
        sizes: Sizes,
        name: &str,
    ) -> [View; 2] {
        let w = self.weight(unit, weight, sizes.d);
        let y = self.activation(name, sizes.rows * sizes.d);
        let rstd = self.activation(&format!("{name}.rstd"), sizes.local_rows);
        let mine = self.local_part(y, sizes.batch);
        let eps = self.context.model().rms_norm_eps;
        let op = Op::RmsNorm(RmsNorm { rows: sizes.local_rows, dim: sizes.d, eps });
        self.program.launch(op, &[x, w], &[mine, rstd]);
        [y, rstd]
    }

    pub(super) fn attention(&mut self, qkv: View, sizes: Sizes) -> [View; 2] {
        let heads = heads(self.context, self.at.tp, sizes.batch);
        let out = self.activation("attention", sizes.rows * sizes.attention);
        let lse = self.activation("lse", sizes.rows * heads.heads);
        self.program.launch(Op::Attention(Attention { heads }), &[qkv], &[out, lse]);
        [out, lse]
    }

    pub(super) fn rope(&mut self, qkv: View, sizes: Sizes, inverse: bool) {
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

    pub(super) fn swiglu(&mut self, gate_up: View, sizes: Sizes) -> View {
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

    pub(super) fn forward_layer(
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
    pub(super) fn output_matrix(&self, sizes: Sizes) -> View {
        self.weight(self.context.head(), self.output_weight(), sizes.vocab * sizes.d)
    }

    pub(super) fn output_weight(&self) -> Weight {
        if self.context.model().tie_word_embeddings { Weight::Table } else { Weight::Output }
    }
}
