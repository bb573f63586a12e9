//! Where weight gradients go, and how they are summed: over the copies of a replica, then over the
//! data-parallel ranks, once a step or in every microbatch.

use super::index_u32;

use crate::config::ZeroStage;
use crate::mesh::Axis;
use crate::ops::Op;
use crate::ops::elementwise::AddAssign;
use crate::plan::{Phase, Role, View};
use crate::planner::build::{Message, RankWriter, message_id};
use crate::planner::collective::{self, Into};
use crate::planner::context::Unit;
use crate::planner::tensor_parallel::Weight;
use crate::shape::{DType, parts};

impl RankWriter<'_> {
    /// Where the gradient of weights goes, and whether it is added to what lies there.
    pub(in crate::planner) fn gradient_target(
        &mut self,
        unit: Unit,
        first: Weight,
        len: u32,
    ) -> (View, bool) {
        let (index, range) = self.find(unit, first, len);
        let bucket = &self.my_buckets()[index];
        if !self.sums_every_microbatch(bucket) {
            let state = &mut self.states[index];
            let accumulate = state.written.contains(&(unit, first));
            state.written.push((unit, first));
            return (state.gradient.expect("a training step").slice(range), accumulate);
        }
        let whole = self.states[index].microbatch_gradient.unwrap_or_else(|| {
            let microbatch = self.program.origin.microbatch.unwrap_or_default();
            let label = format!("g.{index}.m{microbatch}");
            self.program.buffer(label, Role::Gradients, DType::F32, bucket.len())
        });
        self.states[index].microbatch_gradient = Some(whole);
        (whole.slice(range), false)
    }

    /// The gradients of a unit are complete for a microbatch (`last`: for the step): reduces the
    /// buckets that end with this unit.
    pub(in crate::planner) fn unit_done(&mut self, unit: Unit, last: bool) {
        for (index, bucket) in self.my_buckets().iter().enumerate() {
            if bucket.units.last() != Some(&unit) {
                continue;
            }
            if self.sums_every_microbatch(bucket) {
                self.reduce_microbatch(index);
            } else if last && bucket.alias_of.is_none() {
                if self.context.spec.layout.overlap && !bucket.is_tied {
                    self.reduce_step(index);
                } else {
                    self.postponed.push(index);
                }
            }
        }
    }

    /// Reduces what could not be reduced during backward.
    pub(in crate::planner) fn finish_gradients(&mut self) {
        for index in std::mem::take(&mut self.postponed) {
            self.add_alias(index);
            self.reduce_step(index);
        }
    }

    /// Sums the gradients of a whole step: over the copies of a bucket, then over the data-parallel ranks.
    fn reduce_step(&mut self, index: usize) {
        self.sum_shared(index);
        let bucket = &self.my_buckets()[index];
        if self.context.mesh.dp == 1 {
            return;
        }
        let gradient = self.states[index].gradient.expect("a training step");
        let pieces = parts(bucket.len(), self.context.mesh.dp);
        let id = message_id(Message::ReduceGradient, index_u32(index), 0);
        let seat = self.seat(Axis::Dp);
        let style = self.dp_style(&seat, gradient, id);
        self.in_phase(Phase::GradReduce, |writer| {
            let program = &mut writer.program;
            if writer.context.zero == ZeroStage::Zero0 {
                collective::all_reduce(program, &seat, style, gradient, &pieces);
            } else {
                collective::reduce_scatter(program, &seat, style, gradient, &pieces, Into::Place);
            }
        });
    }

    /// Sums the gradients of a microbatch over the data-parallel ranks into this rank's shard.
    fn reduce_microbatch(&mut self, index: usize) {
        let bucket = &self.my_buckets()[index];
        let state = &mut self.states[index];
        let data = state.microbatch_gradient.take().expect("the unit wrote its gradient");
        let shard = state.gradient.expect("a training step");
        let into = if state.reduced { Into::Add(shard) } else { Into::Assign(shard) };
        state.reduced = true;
        let pieces = parts(bucket.len(), self.context.mesh.dp);
        let microbatch = self.program.origin.microbatch.unwrap_or_default();
        let id = message_id(Message::ReduceGradient, index_u32(index), microbatch);
        let seat = self.seat(Axis::Dp);
        let style = self.dp_style(&seat, data, id);
        self.in_phase(Phase::GradReduce, |writer| {
            collective::reduce_scatter(&mut writer.program, &seat, style, data, &pieces, into);
        });
    }

    /// Adds the head's accumulator of a tied table to the embedding's, where both lie here.
    fn add_alias(&mut self, index: usize) {
        let alias = self.my_buckets().iter().position(|other| other.alias_of == Some(index));
        let Some(alias) = alias else { return };
        let (to, from) = (self.states[index].gradient, self.states[alias].gradient);
        let (to, from) = (to.expect("a training step"), from.expect("a training step"));
        let lane = self.dp_lane();
        self.in_phase(Phase::GradReduce, |writer| {
            if to.len > 0 {
                let op = Op::AddAssign(AddAssign { len: to.len });
                writer.program.launch_on(lane, op, &[from], &[to]);
            }
        });
    }

    /// Sums the ranges of a bucket of which several ranks of a replica hold a part of the gradient.
    fn sum_shared(&mut self, index: usize) {
        let bucket = &self.my_buckets()[index];
        let gradient = self.states[index].gradient.expect("a training step");
        for shared in bucket.shared.iter().filter(|shared| shared.partial) {
            for (segment, seat, range) in self.segments(shared, false) {
                let view = gradient.slice(range);
                let id = message_id(Message::SumShared(segment), shared.number(index), shared.key);
                let style = self.dp_style(&seat, view, id);
                let pieces = parts(view.len, u32::try_from(seat.ranks.len()).expect("few"));
                self.in_phase(Phase::GradReduce, |writer| {
                    collective::all_reduce(&mut writer.program, &seat, style, view, &pieces);
                });
            }
        }
    }
}
