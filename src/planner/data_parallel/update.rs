//! The global norm, the optimizer, and the sharing of updated weights.

use super::{Bucket, index_u32, intersect, narrow, shift};
use std::ops::Range;

use crate::config::ZeroStage;
use crate::mesh::Axis;
use crate::ops::Op;
use crate::ops::elementwise::Fill;
use crate::ops::optimizer::{AdamW, Sgd};
use crate::ops::reduction::SquaredNorm;
use crate::plan::{Phase, Role, View};
use crate::planner::build::{Message, RankWriter, message_id};
use crate::planner::collective::{self};
use crate::shape::{DType, parts};

impl RankWriter<'_> {
    /// The squared global norm: every logical parameter once, one float over each axis.
    pub(in crate::planner) fn global_norm(&mut self) {
        let norm = self.squared_norm.expect("a training step");
        let mut terms: Vec<View> = Vec::new();
        for (index, bucket) in self.my_buckets().iter().enumerate() {
            if bucket.alias_of.is_some() {
                continue;
            }
            let gradient = self.states[index].gradient.expect("a training step");
            let mine = self.shard_of(bucket);
            let start = if self.sums_every_microbatch(bucket) { mine.start } else { 0 };
            for (run, owned) in self.ownership(bucket) {
                let range = intersect(&run, &mine);
                if owned && !range.is_empty() {
                    terms.push(gradient.slice(shift(&range, start)));
                }
            }
        }
        self.in_phase(Phase::Norm, |writer| writer.sum_squares(&terms, norm));
        for (number, axis) in (0..).zip(Axis::ALL) {
            if self.context.mesh.len(axis) > 1 {
                let id = message_id(Message::SumNorm, number, 0);
                let (seat, style) = (self.seat(axis), self.scalar_style(id));
                let pieces = parts(1, self.context.mesh.len(axis));
                self.in_phase(Phase::Norm, |writer| {
                    collective::all_reduce(&mut writer.program, &seat, style, norm, &pieces);
                });
            }
        }
    }

    /// `norm = Σ |term|²`; a loss that is not finite makes it not finite.
    fn sum_squares(&mut self, terms: &[View], norm: View) {
        let mut terms = terms.to_vec();
        let mut guard = self.loss_sum;
        if terms.is_empty() {
            let zero = self.program.buffer("norm.zero", Role::Workspace, DType::F32, 1);
            self.program.launch(Op::Fill(Fill { len: 1, value: 0.0 }), &[], &[zero]);
            terms.push(zero);
        }
        for (number, &term) in terms.iter().enumerate() {
            let guard = guard.take();
            let op = SquaredNorm { len: term.len, guard: guard.is_some(), accumulate: number > 0 };
            let inputs: Vec<View> = [Some(term), guard].into_iter().flatten().collect();
            self.program.launch(Op::SquaredNorm(op), &inputs, &[norm]);
        }
    }

    /// Updates this rank's weights and shares what the others need.
    pub(in crate::planner) fn update_weights(&mut self) {
        for (index, bucket) in self.my_buckets().iter().enumerate() {
            if bucket.alias_of.is_some() {
                continue;
            }
            self.in_phase(Phase::Optimizer, |writer| writer.update_bucket(index));
            self.in_phase(Phase::WeightGather, |writer| writer.share_bucket(index));
        }
    }

    /// Ranges of a bucket that this rank receives instead of updating them, because its device
    /// might round differently from the owner's.
    pub(super) fn received(&self, bucket: &Bucket) -> Vec<Range<u32>> {
        if !self.context.mixed_devices {
            return Vec::new();
        }
        if self.context.zero == ZeroStage::Zero0 && self.at.dp > 0 {
            let all = 0..bucket.len();
            return std::iter::once(all).collect();
        }
        let others = self.ownership(bucket).into_iter().filter(|(_, owned)| !owned);
        others.map(|(range, _)| range).collect()
    }

    fn update_bucket(&mut self, index: usize) {
        let bucket = &self.my_buckets()[index];
        let state = &self.states[index];
        let mine = self.updated_range(bucket);
        let [weights, gradient] =
            [state.weights, state.gradient].map(|view| view.expect("trained"));
        let moments = state.moments;
        // Norms are not decayed; received ranges are left out.
        let norm_len = narrow(&(0..bucket.norm_len)).end;
        let mut edges = vec![mine.start, mine.end, norm_len.clamp(mine.start, mine.end)];
        let received = self.received(bucket);
        for range in &received {
            edges.extend([range.start, range.end].map(|edge| edge.clamp(mine.start, mine.end)));
        }
        edges.sort_unstable();
        edges.dedup();
        let (norm, scalars) = (self.squared_norm.expect("trained"), self.scalars.expect("trained"));
        for edge in edges.windows(2) {
            let range = edge[0]..edge[1];
            if received.iter().any(|r| r.start <= range.start && range.end <= r.end) {
                continue;
            }
            let of = |view: View, first: u32| view.slice(shift(&range, first));
            let whole_or = |sharded: bool| if sharded { mine.start } else { 0 };
            let w = of(weights, whole_or(self.context.zero == ZeroStage::Zero3));
            let g = of(gradient, whole_or(self.sums_every_microbatch(bucket)));
            let inputs = [g, norm, scalars];
            let decayed = range.start >= norm_len;
            match moments {
                Some(moments) => {
                    let [m, v] = moments.map(|view| of(view, mine.start));
                    let op = self.adamw(w.len, decayed);
                    self.program.launch(op, &inputs, &[w, m, v]);
                }
                None => {
                    let clip_norm = self.context.spec.training.clip_norm;
                    let op = Op::Sgd(Sgd { len: w.len, clip_norm });
                    self.program.launch(op, &inputs, &[w]);
                }
            }
        }
    }

    fn adamw(&self, len: u32, decayed: bool) -> Op {
        let training = &self.context.spec.training;
        Op::AdamW(AdamW {
            len,
            beta1: training.beta1,
            beta2: training.beta2,
            eps: training.eps,
            weight_decay: if decayed { training.weight_decay } else { 0.0 },
            clip_norm: training.clip_norm,
        })
    }

    /// Shares updated weights: the shards of ZeRO 1 and 2, and what ranks on other kinds of device
    /// must not update themselves.
    fn share_bucket(&mut self, index: usize) {
        let bucket = &self.my_buckets()[index];
        let weights = self.states[index].weights.expect("only an alias has none");
        let zero = self.context.zero;
        let dp = self.context.mesh.dp;
        if matches!(zero, ZeroStage::Zero1 | ZeroStage::Zero2) {
            let pieces = parts(bucket.len(), dp);
            let id = message_id(Message::GatherWeights, index_u32(index), 0);
            let seat = self.seat(Axis::Dp);
            let style = self.dp_style(&seat, weights, id);
            collective::all_gather(&mut self.program, &seat, style, weights, &pieces);
        }
        if !self.context.mixed_devices {
            return;
        }
        let sharded = zero == ZeroStage::Zero3;
        let first_replica = zero != ZeroStage::Zero0 || self.at.dp == 0;
        for shared in bucket.shared.iter().filter(|_| first_replica) {
            for (segment, seat, range) in self.segments(shared, sharded) {
                let start = if sharded { self.shard_of(bucket).start } else { 0 };
                let view = weights.slice(shift(&range, start));
                let id =
                    message_id(Message::ShareShared(segment), shared.number(index), shared.key);
                let style = self.dp_style(&seat, view, id);
                collective::broadcast(&mut self.program, &seat, style, view);
            }
        }
        if zero == ZeroStage::Zero0 && dp > 1 {
            let id = message_id(Message::GatherWeights, index_u32(index), 0);
            let seat = self.seat(Axis::Dp);
            let style = self.dp_style(&seat, weights, id);
            collective::broadcast(&mut self.program, &seat, style, weights);
        }
    }
}
