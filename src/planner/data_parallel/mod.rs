//! Data parallelism and ZeRO (arXiv:1910.02054): buckets, gradient sums, shards, the optimizer.
//!
//! A bucket is a run of units of one stage whose weights lie in one buffer, norms first. It is cut
//! over the data-parallel ranks by [`crate::shape::part`]; ZeRO 0 uses the same cut for its sums
//! and for the norm, so that it differs from ZeRO 1 in nothing but memory.
//!
//! Some ranges of a bucket lie on several ranks of a replica: norms (all tensor-parallel ranks),
//! key heads (those whose query heads read them), a tied table (two stages). [`Shared`] names them
//! once; sums, ownership, the global norm and the sharing of weights all read that list.

//!
//! [`bucket`] forms the buckets, [`gradients`] sums, [`update`] runs the norm, the optimizer and the
//! sharing of weights, [`gather`] brings the weights of ZeRO 3 together.

mod bucket;
mod gather;
mod gradients;
mod update;

pub(in crate::planner) use bucket::{Bucket, Buckets, Entry, Member, Shared, all_buckets};

use std::ops::Range;

use crate::config::{OptimizerKind, ZeroStage};
use crate::mesh::{Coord, Rank};
use crate::plan::{Held, Life, Output, Piece, Role, View};
use crate::planner::build::RankWriter;
use crate::planner::collective::Seat;
use crate::planner::context::Unit;
use crate::planner::tensor_parallel::Weight;
use crate::shape::{DType, part, parts};

/// Where the state of one bucket lies on this rank.
#[derive(Debug, Default)]
pub(in crate::planner) struct BucketState {
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
    pub(in crate::planner) fn my_buckets(&self) -> &'a [Bucket] {
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
    pub(in crate::planner) fn declare_persistent(&mut self) {
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
    pub(in crate::planner) fn declare_gradients(&mut self) {
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
    pub(in crate::planner) fn weight(&self, unit: Unit, first: Weight, len: u32) -> View {
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

    /// Declares the squared norm and, on the last stage, the sum of the losses.
    pub(in crate::planner) fn declare_outputs(&mut self, trains: bool) {
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

/// A range moved to lie inside another one, so that an empty intersection stays inside it.
fn clamp(range: &Range<u32>, inside: &Range<u32>) -> Range<u32> {
    let clamp = |edge: u32| edge.clamp(inside.start, inside.end);
    clamp(range.start)..clamp(range.end)
}

fn index_u32(index: usize) -> u32 {
    u32::try_from(index).expect("fewer than 2^32")
}
