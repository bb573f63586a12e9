//! Backward of the units of a stage: input gradients, and weight gradients now or later.

use super::{Deferred, HeadSaved, LayerKept, LayerSaved, Sizes, WeightKernel, site};
use crate::config::Recompute;
use crate::ops::Op;
use crate::ops::attention::AttentionGrad;
use crate::ops::cross_entropy::LossGrad;
use crate::ops::matmul::Form;
use crate::ops::norm::RmsNormGradInput;
use crate::ops::swiglu::SwiGluGrad;
use crate::plan::{Phase, View};
use crate::planner::build::RankWriter;
use crate::planner::context::Unit;
use crate::planner::schedule::{Act, Pass};
use crate::planner::tensor_parallel::{Weight, heads};

impl RankWriter<'_> {
    /// Input gradients of a stage and, in a `B` cell, its weight gradients. `last`: no weight
    /// gradient of the stage comes after this cell.
    pub(in crate::planner) fn backward_stage(&mut self, act: Act, last: bool) {
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
    pub(in crate::planner) fn weight_gradients_of_stage(&mut self, act: Act, last: bool) {
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
