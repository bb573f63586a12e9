//! Data parallelism and ZeRO (arXiv:1910.02054): buckets, gradient sums, shards, the optimizer.
//!
//! A bucket is a run of units of one stage whose weights lie in one buffer, norms first. It is cut
//! over the data-parallel ranks by [`crate::shape::part`]; ZeRO 0 uses the same cut for its sums
//! and for the norm, so that it differs from ZeRO 1 in nothing but memory.
//!
//! Some ranges of a bucket lie on several ranks of a replica: norms (all tensor-parallel ranks),
//! key heads (those whose query heads read them), a tied table (two stages). [`Shared`] names them
//! once; sums, ownership, the global norm and the sharing of weights all read that list.

use std::collections::BTreeMap;
use std::ops::Range;

use super::build::{Message, RankWriter, message_id};
use super::collective::{self, Into, Seat};
use super::context::{Context, Unit};
use super::schedule::Pass;
use super::tensor_parallel::{Shard, Weight, key_head_holders, key_heads, shards};
use crate::config::{OptimizerKind, ZeroStage};
use crate::mesh::{Axis, Coord, Rank};
use crate::ops::Op;
use crate::ops::elementwise::{AddAssign, Fill};
use crate::ops::optimizer::{AdamW, Sgd};
use crate::ops::reduction::SquaredNorm;
use crate::plan::{Held, Lane, Life, Output, Phase, Piece, Role, View};
use crate::shape::{DType, part, parts};

/// Buckets by (pipeline, tensor) position.
pub(super) type Buckets = BTreeMap<(u32, u32), Vec<Bucket>>;

/// One weight inside a bucket.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) unit: Unit,
    pub(super) shard: Shard,
    /// First element in the bucket.
    pub(super) offset: u64,
}

/// A range of a bucket that other ranks of the same replica hold too.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    /// Where it lies in this rank's bucket.
    pub(super) range: Range<u64>,
    /// Who holds it, this rank among them; the first is the owner.
    pub(super) members: Vec<Member>,
    /// The axis over which they are spread.
    pub(super) axis: Axis,
    /// Whether each holder has only a part of the gradient, so that it must be summed.
    pub(super) partial: bool,
    /// Tells the shared ranges of a bucket apart, the same for all its holders.
    pub(super) key: u32,
}

/// A holder of a shared range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) tp: u32,
    pub(super) pp: u32,
    /// Which of its buckets.
    pub(super) bucket: usize,
    /// Where the range starts there.
    pub(super) start: u64,
}

/// Weights that are reduced, updated and gathered together.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    /// Units in backward order.
    pub(super) units: Vec<Unit>,
    pub(super) entries: Vec<Entry>,
    pub(super) elements: u64,
    /// The norms: `0..norm_len`.
    pub(super) norm_len: u64,
    pub(super) shared: Vec<Shared>,
    /// This bucket is only a second gradient accumulator (the head's) of another one's weights:
    /// the tied table where both uses lie on one rank.
    pub(super) alias_of: Option<usize>,
    /// The table that embedding and head share (or its alias), alone in its bucket.
    pub(super) is_tied: bool,
    /// Other ranks of the replica complete the gradient, so it is summed once a step.
    pub(super) is_late: bool,
}

/// Which weights of a unit share a bucket.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Share {
    /// Gradients that only the data-parallel ranks sum.
    Plain,
    /// ZeRO 2, 3: gradients that other ranks of the replica must complete first, once a step: norms
    /// under sequence parallel, and queries, keys and values where key heads have several holders.
    /// Only so does the ZeRO stage change no bit.
    Late,
    /// The table that embedding and head share.
    Tied,
}

fn share_of(context: &Context<'_>, weight: Weight) -> Share {
    let sums_often = matches!(context.zero, ZeroStage::Zero2 | ZeroStage::Zero3);
    let key_heads_shared =
        || (0..context.model().num_key_value_heads).any(|h| key_head_holders(context, h).len() > 1);
    match weight {
        Weight::Table if context.model().tie_word_embeddings => Share::Tied,
        Weight::InputNorm | Weight::PostNorm | Weight::FinalNorm
            if sums_often && context.sequence_parallel =>
        {
            Share::Late
        }
        Weight::Q | Weight::K | Weight::V if sums_often && key_heads_shared() => Share::Late,
        _ => Share::Plain,
    }
}

/// The buckets of every (pipeline, tensor) position, in backward order. All tensor-parallel ranks of
/// a position form the same buckets: the grouping is decided by the sizes of the first.
pub(super) fn all_buckets(context: &Context<'_>) -> Buckets {
    let mut all = Buckets::new();
    for pp in 0..context.mesh.pp {
        let groups = groups(context, pp);
        let local_table =
            groups.iter().position(|(units, share)| units[0] == 0 && *share == Share::Tied);
        for tp in 0..context.mesh.tp {
            let buckets = groups.iter().map(|(units, share)| {
                let is_table = *share == Share::Tied;
                Bucket {
                    alias_of: local_table.filter(|_| is_table && units[0] != 0),
                    is_tied: is_table,
                    is_late: *share != Share::Plain,
                    ..lay_out(context, units, *share, tp)
                }
            });
            all.insert((pp, tp), buckets.collect());
        }
    }
    let shared: Vec<_> = all
        .iter()
        .flat_map(|(&at, buckets)| (0..buckets.len()).map(move |index| (at, index)))
        .map(|(at, index)| shared_of(context, &all, at, index))
        .collect();
    for (bucket, shared) in all.values_mut().flatten().zip(shared) {
        bucket.shared = shared;
    }
    all
}

fn groups(context: &Context<'_>, pp: u32) -> Vec<(Vec<Unit>, Share)> {
    let limit = match context.zero {
        ZeroStage::Zero3 => 0,
        ZeroStage::Zero0 | ZeroStage::Zero1 | ZeroStage::Zero2 => context.spec.layout.bucket_bytes,
    };
    let mut groups: Vec<(Vec<Unit>, Share)> = Vec::new();
    let mut close = |units: Vec<Unit>, kinds: &[Share]| {
        for &share in kinds {
            if !taken(context, &units, share, 0).is_empty() {
                groups.push((units.clone(), share));
            }
        }
    };
    for stage in (0..context.stages.len()).rev().filter(|&stage| context.owners[stage] == pp) {
        let mut open: Vec<Unit> = Vec::new();
        let mut bytes = 0;
        for unit in context.stages[stage].clone().rev() {
            open.push(unit);
            let shards = taken(context, &[unit], Share::Plain, 0);
            bytes += shards.iter().map(|(_, shard)| shard.len() * DType::F32.size()).sum::<u64>();
            if bytes >= limit {
                close(std::mem::take(&mut open), &[Share::Plain, Share::Late]);
                bytes = 0;
            }
            close(vec![unit], &[Share::Tied]);
        }
        close(open, &[Share::Plain, Share::Late]);
    }
    groups
}

/// The slices of some units that share a bucket.
fn taken(context: &Context<'_>, units: &[Unit], share: Share, tp: u32) -> Vec<(Unit, Shard)> {
    let all = units
        .iter()
        .flat_map(|&unit| shards(context, unit, tp).into_iter().map(move |shard| (unit, shard)));
    all.filter(|(_, shard)| share_of(context, shard.weight) == share).collect()
}

fn lay_out(context: &Context<'_>, units: &[Unit], share: Share, tp: u32) -> Bucket {
    let mut all = taken(context, units, share, tp);
    // A stable sort: norms of all units, then the matrices in storage order.
    all.sort_by_key(|(_, shard)| !shard.weight.is_norm());
    let (mut offset, mut norm_len) = (0, 0);
    let mut entries = Vec::new();
    for (unit, shard) in all {
        let len = shard.len();
        norm_len += if shard.weight.is_norm() { len } else { 0 };
        entries.push(Entry { unit, shard, offset });
        offset = offset.saturating_add(len);
    }
    Bucket {
        units: units.to_vec(),
        entries,
        elements: offset,
        norm_len,
        shared: Vec::new(),
        alias_of: None,
        is_tied: false,
        is_late: false,
    }
}

type Position = (u32, u32);

fn shared_of(
    context: &Context<'_>,
    all: &Buckets,
    (pp, tp): Position,
    index: usize,
) -> Vec<Shared> {
    let bucket = &all[&(pp, tp)][index];
    let mut shared = Vec::new();
    if bucket.norm_len > 0 && context.mesh.tp > 1 {
        shared.push(Shared {
            range: 0..bucket.norm_len,
            members: (0..context.mesh.tp)
                .map(|tp| Member { tp, pp, bucket: index, start: 0 })
                .collect(),
            axis: Axis::Tp,
            partial: context.sequence_parallel,
            key: 0,
        });
    }
    let is_kv = |entry: &&Entry| matches!(entry.shard.weight, Weight::K | Weight::V);
    for (matrix, entry) in (0..).zip(bucket.entries.iter().filter(is_kv)) {
        shared.extend(shared_key_heads(context, all, (matrix, entry), (pp, tp), index));
    }
    if bucket.is_tied && !context.tied_locally() {
        // The table of the embedding and its copy at the head, alone in a bucket each.
        let member = |unit: Unit| {
            let pp = context.position_of_unit(unit);
            let is_table = |bucket: &Bucket| bucket.is_tied && bucket.units == [unit];
            let bucket = all[&(pp, tp)].iter().position(is_table);
            Member { tp, pp, bucket: bucket.expect("both stages hold the table"), start: 0 }
        };
        shared.push(Shared {
            range: 0..bucket.elements,
            members: vec![member(0), member(context.head())],
            axis: Axis::Pp,
            partial: true,
            key: 0,
        });
    }
    shared
}

/// Runs of key heads with the same holders, of a key or value matrix.
fn shared_key_heads(
    context: &Context<'_>,
    all: &Buckets,
    (matrix, entry): (u32, &Entry),
    (pp, tp): Position,
    index: usize,
) -> Vec<Shared> {
    let head_len = u64::from(context.model().head_dim) * u64::from(context.model().hidden_size);
    let mine = key_heads(context, tp);
    let holders_of = |head: u32| key_head_holders(context, head);
    let mut shared = Vec::new();
    let mut head = mine.start;
    while head < mine.end {
        let holders = holders_of(head);
        let count = (head..mine.end).take_while(|&other| holders_of(other) == holders).count();
        let count = u32::try_from(count).expect("no more than the heads");
        let start_at = |other: u32| {
            let same = |e: &&Entry| e.unit == entry.unit && e.shard.weight == entry.shard.weight;
            let entry = all[&(pp, other)][index].entries.iter().find(same);
            let entry = entry.expect("all tensor-parallel ranks hold the same weights");
            entry.offset + u64::from(head - key_heads(context, other).start) * head_len
        };
        if holders.len() > 1 {
            let start = start_at(tp);
            shared.push(Shared {
                range: start..start + u64::from(count) * head_len,
                members: holders
                    .iter()
                    .map(|&tp| Member { tp, pp, bucket: index, start: start_at(tp) })
                    .collect(),
                axis: Axis::Tp,
                partial: true,
                key: 1 + matrix * context.model().num_key_value_heads + head,
            });
        }
        head += count;
    }
    shared
}

/// Where the state of one bucket lies on this rank.
#[derive(Debug, Default)]
pub(super) struct BucketState {
    /// Whole (ZeRO 0–2) or this rank's shard (ZeRO 3); none for an alias.
    weights: Option<View>,
    /// First and second moment: whole (ZeRO 0) or this rank's shard.
    moments: Option<[View; 2]>,
    /// Whole (ZeRO 0, 1) or this rank's shard (ZeRO 2, 3); none in an evaluation.
    gradient: Option<View>,
    /// ZeRO 2, 3: the whole gradient of the microbatch at work.
    microbatch_gradient: Option<View>,
    /// Weights whose gradient has been written in this step: later microbatches accumulate.
    written: Vec<(Unit, Weight)>,
    /// ZeRO 2, 3: whether the shard holds a sum already.
    reduced: bool,
}

fn narrow(range: &Range<u64>) -> Range<u32> {
    let narrow = |end: u64| u32::try_from(end).expect("refuse checked the lengths");
    narrow(range.start)..narrow(range.end)
}

fn intersect(a: &Range<u32>, b: &Range<u32>) -> Range<u32> {
    let start = a.start.max(b.start);
    start..a.end.min(b.end).max(start)
}

fn shift(range: &Range<u32>, down: u32) -> Range<u32> {
    range.start - down..range.end - down
}

impl<'a> RankWriter<'a> {
    pub(super) fn my_buckets(&self) -> &'a [Bucket] {
        self.context.buckets(self.at.pp, self.at.tp)
    }

    /// This rank's range of a bucket that is cut over the data-parallel ranks.
    fn shard_of(&self, bucket: &Bucket) -> Range<u32> {
        part(bucket.len(), self.context.mesh.dp, self.at.dp)
    }

    /// The range of a bucket whose gradient this rank holds in the end, and updates.
    fn updated_range(&self, bucket: &Bucket) -> Range<u32> {
        match self.context.zero {
            ZeroStage::Zero0 => 0..bucket.len(),
            ZeroStage::Zero1 | ZeroStage::Zero2 | ZeroStage::Zero3 => self.shard_of(bucket),
        }
    }

    /// Whether the gradients of a bucket are summed over ranks in every microbatch, and only this
    /// rank's shard of the sum is kept.
    fn sums_every_microbatch(&self, bucket: &Bucket) -> bool {
        matches!(self.context.zero, ZeroStage::Zero2 | ZeroStage::Zero3) && !bucket.is_late
    }

    /// Declares weights and optimizer state, the same in every Plan of a run.
    pub(super) fn declare_persistent(&mut self) {
        for (index, bucket) in self.my_buckets().iter().enumerate() {
            let mut state = BucketState::default();
            if bucket.alias_of.is_none() {
                let whole = 0..bucket.len();
                let shard = self.updated_range(bucket);
                let stored = match self.context.zero {
                    ZeroStage::Zero3 => &shard,
                    ZeroStage::Zero0 | ZeroStage::Zero1 | ZeroStage::Zero2 => &whole,
                };
                let role = Role::Weights;
                state.weights = Some(self.declare_held(
                    format!("w.{index}"),
                    role,
                    (index, stored),
                    Held::Weight,
                ));
                // Who receives all of its weights updates none.
                let updates = !self.received(bucket).contains(&whole);
                if updates && self.context.spec.training.optimizer == OptimizerKind::AdamW {
                    let mut moment = |name: &str, held| {
                        let label = format!("{name}.{index}");
                        self.declare_held(label, Role::Optimizer, (index, &shard), held)
                    };
                    state.moments = Some([moment("m", Held::Moment1), moment("v", Held::Moment2)]);
                }
            }
            self.states.push(state);
        }
    }

    /// Declares the gradient buffers of the step.
    pub(super) fn declare_gradients(&mut self) {
        for (index, bucket) in self.my_buckets().iter().enumerate() {
            let held = if self.sums_every_microbatch(bucket) {
                self.shard_of(bucket)
            } else {
                0..bucket.len()
            };
            let len = held.end - held.start;
            let gradient =
                self.program.buffer(format!("g.{index}"), Role::Gradients, DType::F32, len);
            if bucket.alias_of.is_none() {
                let range = self.updated_range(bucket);
                for mut piece in self.pieces(bucket, &range, Held::Gradient) {
                    piece.offset += range.start - held.start;
                    self.program.piece(gradient, piece);
                }
            }
            self.states[index].gradient = Some(gradient);
        }
    }

    /// A persistent buffer that holds a range of a bucket.
    fn declare_held(
        &mut self,
        label: String,
        role: Role,
        (index, range): (usize, &Range<u32>),
        held: Held,
    ) -> View {
        let len = range.end - range.start;
        let view = self.program.declare(label, role, DType::F32, len, Life::Persistent);
        for piece in self.pieces(&self.my_buckets()[index], range, held) {
            self.program.piece(view, piece);
        }
        view
    }

    /// The pieces of the logical tensors in a range of a bucket; offsets count from its start.
    fn pieces(&self, bucket: &Bucket, range: &Range<u32>, held: Held) -> Vec<Piece> {
        let sharded = match (self.context.zero, held) {
            (ZeroStage::Zero0, _) => false,
            (ZeroStage::Zero1 | ZeroStage::Zero2, Held::Weight) => false,
            (ZeroStage::Zero1 | ZeroStage::Zero2 | ZeroStage::Zero3, _) => true,
        };
        let counts = sharded || self.at.dp == 0;
        // Moments of weights that are received are never written: they are no copies.
        let is_moment = matches!(held, Held::Moment1 | Held::Moment2);
        let unused = if is_moment { self.received(bucket) } else { Vec::new() };
        let is_used = |run: &Range<u32>| {
            !unused.iter().any(|other| other.start <= run.start && run.end <= other.end)
        };
        let mut pieces = Vec::new();
        for (run, owned) in self.ownership(bucket).into_iter().filter(|(run, _)| is_used(run)) {
            for entry in &bucket.entries {
                let whole = narrow(&(entry.offset..entry.offset + entry.shard.len()));
                let here = intersect(&intersect(&whole, &run), range);
                if !here.is_empty() {
                    pieces.push(Piece {
                        tensor: entry.shard.tensor,
                        held,
                        rows: entry.shard.rows.clone(),
                        cols: entry.shard.cols.clone(),
                        flat: shift(&here, whole.start),
                        offset: here.start - range.start,
                        owned: owned && counts,
                    });
                }
            }
        }
        pieces
    }

    /// A bucket as consecutive runs that this rank's position owns or only holds a copy of.
    fn ownership(&self, bucket: &Bucket) -> Vec<(Range<u32>, bool)> {
        let mut shared: Vec<_> = bucket
            .shared
            .iter()
            .map(|shared| (narrow(&shared.range), self.is_member(&shared.members[0])))
            .collect();
        shared.sort_by_key(|(range, _)| range.start);
        let mut runs = Vec::new();
        let mut start = 0;
        for (range, owned) in shared {
            runs.push((start..range.start, true));
            start = range.end;
            runs.push((range, owned));
        }
        runs.push((start..bucket.len(), true));
        runs.retain(|(range, _)| !range.is_empty());
        runs
    }

    fn is_member(&self, member: &Member) -> bool {
        (member.tp, member.pp) == (self.at.tp, self.at.pp)
    }

    /// Bucket and range of consecutive weights of a unit, from `first`, `len` elements.
    fn find(&self, unit: Unit, first: Weight, len: u32) -> (usize, Range<u32>) {
        let found = self.my_buckets().iter().enumerate().find_map(|(index, bucket)| {
            let same = |entry: &&Entry| entry.unit == unit && entry.shard.weight == first;
            bucket.entries.iter().find(same).map(|entry| (index, entry.offset))
        });
        let (index, offset) = found.expect("the rank holds the weights of its units");
        (index, narrow(&(offset..offset + u64::from(len))))
    }

    /// The weights of a unit from `first`, `len` elements; ZeRO 3 has gathered them before.
    pub(super) fn weight(&self, unit: Unit, first: Weight, len: u32) -> View {
        let (index, range) = self.find(unit, first, len);
        let index = self.my_buckets()[index].alias_of.unwrap_or(index);
        let whole = if self.context.zero == ZeroStage::Zero3 {
            let gathered =
                self.gathered.iter().find(|(of, bucket, _)| (*of, *bucket) == (unit, index));
            gathered.expect("weights are gathered before they are used").2
        } else {
            self.states[index].weights.expect("only an alias has no weights")
        };
        whole.slice(range)
    }

    /// Where the gradient of weights goes, and whether it is added to what lies there.
    pub(super) fn gradient_target(&mut self, unit: Unit, first: Weight, len: u32) -> (View, bool) {
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
    pub(super) fn unit_done(&mut self, unit: Unit, last: bool) {
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
    pub(super) fn finish_gradients(&mut self) {
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

    /// A shared range as segments that lie on exactly one rank of each member: number, this rank's
    /// seat and range (in its bucket). Members whose buckets have other lengths cut them elsewhere over
    /// the data-parallel ranks, so a sharded range may meet several of their ranks.
    fn segments(&self, shared: &Shared, sharded: bool) -> Vec<(u32, Seat, Range<u32>)> {
        let len = narrow(&(0..shared.range.end - shared.range.start)).end;
        let me = shared.members.iter().position(|member| self.is_member(member));
        let me = me.expect("this rank holds its shared ranges");
        let dp = self.context.mesh.dp;
        let shards_of = |member: &Member| -> Vec<Range<u32>> {
            let bucket = &self.context.buckets(member.pp, member.tp)[member.bucket];
            let start = narrow(&(member.start..member.start)).start;
            let all = start..start + len;
            parts(bucket.len(), dp)
                .iter()
                .map(|p| shift(&intersect(&clamp(p, &all), &all), start))
                .collect()
        };
        let cuts: Vec<Vec<Range<u32>>> = if sharded {
            shared.members.iter().map(shards_of).collect()
        } else {
            vec![
                (0..dp).map(|d| if d == self.at.dp { 0..len } else { 0..0 }).collect();
                shared.members.len()
            ]
        };
        let mut edges: Vec<u32> = cuts.iter().flatten().flat_map(|r| [r.start, r.end]).collect();
        edges.sort_unstable();
        edges.dedup();
        let mut segments = Vec::new();
        for (number, edge) in (0..).zip(edges.windows(2)) {
            let holders: Vec<Rank> = shared
                .members
                .iter()
                .zip(&cuts)
                .map(|(member, cuts)| {
                    let holds =
                        |r: &Range<u32>| r.start <= edge[0] && edge[1] <= r.end && !r.is_empty();
                    let d = cuts.iter().position(holds).expect("shards cover the bucket");
                    let at = Coord { dp: index_u32(d), tp: member.tp, pp: member.pp };
                    self.context.rank(at)
                })
                .collect();
            if holders[me] == self.program.rank {
                let start = narrow(&shared.range).start;
                let range = start + edge[0]..start + edge[1];
                let seat = Seat { ranks: holders, me, axis: shared.axis, node: None };
                segments.push((number, seat, range));
            }
        }
        segments
    }

    /// The squared global norm: every logical parameter once, one float over each axis.
    pub(super) fn global_norm(&mut self) {
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
    pub(super) fn update_weights(&mut self) {
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
    fn received(&self, bucket: &Bucket) -> Vec<Range<u32>> {
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

    /// Elements that the gathered weights of a unit take.
    fn gathered_len(&self, unit: Unit) -> u32 {
        self.buckets_to_gather(unit).iter().map(|&index| self.my_buckets()[index].len()).sum()
    }

    /// Buckets that hold the weights of a unit.
    fn buckets_to_gather(&self, unit: Unit) -> Vec<usize> {
        let holds = |bucket: &Bucket| bucket.entries.iter().any(|entry| entry.unit == unit);
        let all = self.my_buckets().iter().enumerate().filter(|(_, bucket)| holds(bucket));
        all.map(|(index, bucket)| bucket.alias_of.unwrap_or(index)).collect()
    }

    /// ZeRO 3: declares the two slots that gathered units use in turn.
    pub(super) fn declare_slots(&mut self) {
        if self.context.zero == ZeroStage::Zero3 {
            let units = self.my_units();
            let len = units.into_iter().map(|unit| self.gathered_len(unit)).max().unwrap_or(0);
            let mut slot = |name| self.program.buffer(name, Role::Weights, DType::F32, len);
            self.slots = Some([slot("w.slot0"), slot("w.slot1")]);
        }
    }

    /// ZeRO 3: gathers the weights of a unit into the slot whose turn it is. Nothing to do else.
    pub(super) fn gather_weights(&mut self, unit: Unit, pass: Pass) {
        let Some(slots) = self.slots else { return };
        let turn = self.gather_count % 2;
        self.gather_count += 1;
        // The slot's last unit is forgotten; the other slot's stays.
        self.gathered.retain(|(_, _, view)| view.buffer != slots[turn].buffer);
        let mut start = 0;
        for (number, index) in (0..).zip(self.buckets_to_gather(unit)) {
            let bucket = &self.my_buckets()[index];
            let view = slots[turn].slice(start..start + bucket.len());
            start += bucket.len();
            let stored = self.states[index].weights.expect("an alias was resolved");
            let pieces = parts(bucket.len(), self.context.mesh.dp);
            let microbatch = self.program.origin.microbatch.unwrap_or_default();
            let id = message_id(Message::GatherUnit(pass, number), unit, microbatch);
            let seat = self.seat(Axis::Dp);
            let style = self.dp_style(&seat, view, id);
            let mine = view.slice(self.shard_of(bucket));
            self.in_phase(Phase::WeightGather, |writer| {
                writer.copy_on(Lane::Reduce, stored, mine);
                collective::all_gather(&mut writer.program, &seat, style, view, &pieces);
            });
            self.gathered.push((unit, index, view));
        }
    }

    /// Declares the squared norm and, on the last stage, the sum of the losses.
    pub(super) fn declare_outputs(&mut self, trains: bool) {
        let mut output = |label: &str, output| {
            self.program.declare(label, Role::Workspace, DType::F32, 1, Life::Output(output))
        };
        if trains {
            self.squared_norm = Some(output("squared_norm", Output::SquaredNorm));
        }
        if self.at.pp == self.context.position_of_unit(self.context.head()) {
            let counted = self.at.tp == 0;
            self.loss_sum = Some(output("loss_sum", Output::LossSum { counted }));
        }
    }
}

impl Shared {
    /// A number for the bucket `index` on which all holders agree: the positions of the pipeline
    /// number their buckets each for itself, and share nothing but the tied table.
    fn number(&self, index: usize) -> u32 {
        if self.axis == Axis::Pp { 0 } else { index_u32(index) }
    }
}

impl Bucket {
    /// Elements.
    pub(super) fn len(&self) -> u32 {
        narrow(&(0..self.elements)).end
    }
}

/// A range moved to lie inside another one, so that an empty intersection stays inside it.
fn clamp(range: &Range<u32>, inside: &Range<u32>) -> Range<u32> {
    let clamp = |edge: u32| edge.clamp(inside.start, inside.end);
    clamp(range.start)..clamp(range.end)
}

fn index_u32(index: usize) -> u32 {
    u32::try_from(index).expect("fewer than 2^32")
}
