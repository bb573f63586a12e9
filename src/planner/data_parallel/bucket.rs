//! Which weights are reduced, updated and gathered together, and which of them other ranks hold too.
//!
//! All tensor-parallel ranks of a pipeline position form the same buckets; data-parallel ranks
//! differ in nothing here.

use super::{index_u32, narrow};
use std::collections::BTreeMap;
use std::ops::Range;

use crate::config::ZeroStage;
use crate::mesh::Axis;
use crate::planner::context::{Context, Unit};
use crate::planner::tensor_parallel::{Shard, Weight, key_head_holders, key_heads, shards};
use crate::shape::DType;

/// Buckets by (pipeline, tensor) position.
pub(in crate::planner) type Buckets = BTreeMap<(u32, u32), Vec<Bucket>>;

/// One weight inside a bucket.
#[derive(Clone, Debug)]
pub(in crate::planner) struct Entry {
    pub(in crate::planner) unit: Unit,
    pub(in crate::planner) shard: Shard,
    /// First element in the bucket.
    pub(in crate::planner) offset: u64,
}

/// A range of a bucket that other ranks of the same replica hold too.
#[derive(Clone, Debug)]
pub(in crate::planner) struct Shared {
    /// Where it lies in this rank's bucket.
    pub(in crate::planner) range: Range<u64>,
    /// Who holds it, this rank among them; the first is the owner.
    pub(in crate::planner) members: Vec<Member>,
    /// The axis over which they are spread.
    pub(in crate::planner) axis: Axis,
    /// Whether each holder has only a part of the gradient, so that it must be summed.
    pub(in crate::planner) partial: bool,
    /// Tells the shared ranges of a bucket apart, the same for all its holders.
    pub(in crate::planner) key: u32,
}

/// A holder of a shared range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::planner) struct Member {
    pub(in crate::planner) tp: u32,
    pub(in crate::planner) pp: u32,
    /// Which of its buckets.
    pub(in crate::planner) bucket: usize,
    /// Where the range starts there.
    pub(in crate::planner) start: u64,
}

/// Weights that are reduced, updated and gathered together.
#[derive(Clone, Debug)]
pub(in crate::planner) struct Bucket {
    /// Units in backward order.
    pub(in crate::planner) units: Vec<Unit>,
    pub(in crate::planner) entries: Vec<Entry>,
    pub(in crate::planner) elements: u64,
    /// The norms: `0..norm_len`.
    pub(in crate::planner) norm_len: u64,
    pub(in crate::planner) shared: Vec<Shared>,
    /// This bucket is only a second gradient accumulator (the head's) of another one's weights:
    /// the tied table where both uses lie on one rank.
    pub(in crate::planner) alias_of: Option<usize>,
    /// The table that embedding and head share (or its alias), alone in its bucket.
    pub(in crate::planner) is_tied: bool,
    /// Other ranks of the replica complete the gradient, so it is summed once a step.
    pub(in crate::planner) is_late: bool,
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
pub(in crate::planner) fn all_buckets(context: &Context<'_>) -> Buckets {
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

impl Shared {
    /// A number for the bucket `index` on which all holders agree: the positions of the pipeline
    /// number their buckets each for itself, and share nothing but the tied table.
    pub(in crate::planner) fn number(&self, index: usize) -> u32 {
        if self.axis == Axis::Pp { 0 } else { index_u32(index) }
    }
}

impl Bucket {
    /// Elements.
    pub(in crate::planner) fn len(&self) -> u32 {
        narrow(&(0..self.elements)).end
    }
}
