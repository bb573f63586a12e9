//! All layouts of a model, a batch and a number of GPUs, and which of them make no sense.
//!
//! Whether a layout fits into memory is asked later, in `mod`: that needs its schedule.

use std::ops::ControlFlow;

use serde::Serialize;

use crate::config::schedule::Stages;
use crate::config::workload::{Precision, Software, Split, StepBatch, Transformer, Workload};
use crate::config::{Cluster, Recompute, ScheduleName, ZeroStage};
use crate::mesh::RankOrder;

/// What is trained, on how many GPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct Space {
    /// Sizes of the model.
    pub model: Transformer,
    /// Ranks.
    pub gpus: u32,
    /// Rows of a step over all data-parallel ranks.
    pub batch: u32,
    /// Tokens of a row.
    pub seq: u64,
    /// Of matrix products.
    pub precision: Precision,
}

/// One layout: how a step is cut and run. The rank order is tensor, data, pipeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cut {
    /// Tensor-parallel size.
    pub tp: u32,
    /// Pipeline positions.
    pub pp: u32,
    /// Data-parallel size.
    pub dp: u32,
    /// Stages of a pipeline position.
    pub chunks: u32,
    /// Rows of a microbatch.
    pub microbatch_rows: u32,
    /// What data-parallel ranks share out.
    pub zero: ZeroStage,
    /// What is computed again in backward.
    pub recompute: Recompute,
    /// Whether norms and residuals are cut over the sequence too.
    pub sequence_parallel: bool,
    /// Order of forwards and backwards.
    pub schedule: ScheduleName,
}

/// Why a layout is not looked at further: the closed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    /// A head is never cut.
    Heads,
    /// A stage would be empty.
    Stages,
    /// Microbatches of equal size do not make up the batch.
    Batch,
    /// More microbatches than are planned.
    Microbatches,
    /// A simpler layout is as good in time and memory.
    NoGain,
    /// A GPU has less memory.
    Memory,
}

impl Refusal {
    /// All reasons, in the order in which they are asked.
    pub const ALL: [Self; 6] =
        [Self::Heads, Self::Stages, Self::Batch, Self::Microbatches, Self::NoGain, Self::Memory];

    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Heads => "a head would be cut",
            Self::Stages => "a stage would be empty",
            Self::Batch => "the batch is not cut evenly",
            Self::Microbatches => "too many microbatches",
            Self::NoGain => "no gain over a simpler one",
            Self::Memory => "does not fit",
        }
    }
}

impl Space {
    /// Calls `each` with every layout until it breaks, in an order that depends on nothing but the
    /// space; layouts that differ in schedule and `ZeRO` alone follow one another.
    pub(super) fn each(&self, mut each: impl FnMut(Cut) -> ControlFlow<()>) -> ControlFlow<()> {
        let rows = divisors(self.batch);
        for tp in divisors(self.gpus) {
            for pp in divisors(self.gpus / tp) {
                let dp = self.gpus / tp / pp;
                for &microbatch_rows in &rows {
                    for sequence_parallel in [false, true] {
                        for recompute in [Recompute::None, Recompute::Selective, Recompute::Full] {
                            for (chunks, schedule) in self.schedules(pp) {
                                for zero in ZERO {
                                    each(Cut {
                                        tp,
                                        pp,
                                        dp,
                                        chunks,
                                        microbatch_rows,
                                        zero,
                                        recompute,
                                        sequence_parallel,
                                        schedule: schedule.clone(),
                                    })?;
                                }
                            }
                        }
                    }
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// All layouts, in that order.
    pub(super) fn all(&self) -> Vec<Cut> {
        let mut all = Vec::new();
        let end = self.each(|cut| {
            all.push(cut);
            ControlFlow::Continue(())
        });
        debug_assert!(end.is_continue(), "nobody broke off");
        all
    }

    /// The schedules for so many positions, with every number of stages that leaves none empty, at
    /// least one number each; by number of stages. On one position order alone could differ.
    fn schedules(&self, pp: u32) -> Vec<(u32, ScheduleName)> {
        let units = self.model.layers + 2;
        let most = if pp > 1 { (units / u64::from(pp)) as u32 } else { 2 };
        let mut found = Vec::new();
        for chunks in 1..=most.max(2) {
            let takes = |name: &&ScheduleName| match name.stages() {
                // A loop of one would be no loop.
                Stages::Loop => chunks > 1,
                stages => stages.allows(chunks),
            };
            let named = ScheduleName::NAMED.iter().filter(takes);
            found.extend(named.map(|name| (chunks, name.clone())));
        }
        found
    }

    /// Why a layout makes no sense, before its memory is looked at.
    pub(super) fn refuses(&self, cut: &Cut) -> Option<Refusal> {
        let stages = u64::from(cut.pp) * u64::from(cut.chunks);
        if !self.model.heads.is_multiple_of(cut.tp.into()) {
            Some(Refusal::Heads)
        } else if stages > self.model.layers + 2 {
            Some(Refusal::Stages)
        } else {
            // `workload` has fused attention.
            let saves_nothing = cut.recompute == Recompute::Selective;
            self.refuses_batch(cut).or_else(|| saves_nothing.then_some(Refusal::NoGain))
        }
    }

    /// The same as far as a planner would not say so itself.
    pub(super) fn refuses_batch(&self, cut: &Cut) -> Option<Refusal> {
        let rows = u64::from(cut.dp) * u64::from(cut.microbatch_rows);
        if !u64::from(self.batch).is_multiple_of(rows) {
            Some(Refusal::Batch)
        } else if self.microbatches(cut) > MICROBATCHES {
            Some(Refusal::Microbatches)
        } else {
            cut.no_gain().map(|_| Refusal::NoGain)
        }
    }

    /// A refused layout as an example: which sizes, and why they are refused.
    pub(super) fn example(&self, refusal: Refusal, cut: &Cut) -> String {
        let Cut { tp, pp, dp, chunks, microbatch_rows, .. } = cut;
        let heads = self.model.heads;
        match refusal {
            Refusal::Heads => format!("tp {tp}: {heads} heads cannot be split over it"),
            Refusal::Stages => format!(
                "pp {pp} · chunks {chunks}: {} stages, but the model has {} layers",
                pp * chunks,
                self.model.layers
            ),
            Refusal::Batch => format!(
                "dp {dp} · microbatch {microbatch_rows}: {} rows are no multiple of {}",
                self.batch,
                u64::from(*dp) * u64::from(*microbatch_rows)
            ),
            Refusal::Microbatches => format!(
                "dp {dp} · microbatch {microbatch_rows}: {} microbatches, and {MICROBATCHES} are the most",
                self.microbatches(cut)
            ),
            Refusal::NoGain => cut.no_gain().unwrap_or(SAVES_NOTHING).into(),
            Refusal::Memory => cut.to_string(),
        }
    }

    /// Microbatches of a data-parallel rank.
    pub(super) const fn microbatches(&self, cut: &Cut) -> u32 {
        self.batch / cut.dp / cut.microbatch_rows
    }

    /// What a prediction of a layout is made of.
    pub fn workload(&self, cut: &Cut) -> Workload {
        Workload {
            model: self.model,
            split: Split {
                tp: cut.tp,
                pp: cut.pp,
                dp: cut.dp,
                cp: 1,
                chunks: cut.chunks,
                sharding: cut.zero.into(),
                sequence_parallel: cut.sequence_parallel,
                schedule: cut.schedule.clone(),
                order: RankOrder::TpDpPp,
            },
            batch: StepBatch {
                seq: self.seq,
                rows: cut.microbatch_rows.into(),
                microbatches: self.microbatches(cut),
            },
            recomputed: cut.recompute.into(),
            precision: self.precision,
            software: Software::default(),
        }
    }

    /// The flags of `shardlab simulate` that ask for a layout of this space.
    pub fn flags(&self, cut: &Cut) -> String {
        let Cut { tp, pp, chunks, microbatch_rows, zero, recompute, schedule, .. } = cut;
        let sequence = if cut.sequence_parallel { "on" } else { "off" };
        let precision = match self.precision {
            Precision::Half => "",
            Precision::Fp8 => " --precision fp8",
        };
        format!(
            "--gpus {} --tp {tp} --pp {pp} --chunks {chunks} --schedule {schedule} --batch {} \
             --micro-batch-size {microbatch_rows} --zero {zero} --recompute {recompute} \
             --sequence-parallel {sequence} --seq {}{precision}",
            self.gpus, self.batch, self.seq
        )
    }
}

impl Cut {
    /// Why a simpler layout is as good.
    fn no_gain(&self) -> Option<&'static str> {
        if self.pp == 1 && self.schedule != ScheduleName::OneFOneB {
            Some("one pipeline position runs one microbatch after the other in any schedule")
        } else if self.dp == 1 && self.zero != ZeroStage::Zero0 {
            Some("one data-parallel rank has nobody to share with in ZeRO")
        } else if self.tp == 1 && self.sequence_parallel {
            Some("one tensor-parallel rank holds the whole sequence anyway")
        } else {
            None
        }
    }

    /// Whether two layouts differ in schedule and `ZeRO` alone.
    pub(super) fn costs_as(&self, other: &Self) -> bool {
        let key = |cut: &Self| (cut.tp, cut.pp, cut.chunks, cut.microbatch_rows);
        let how = |cut: &Self| (cut.recompute, cut.sequence_parallel);
        key(self) == key(other) && how(self) == how(other)
    }
}

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { tp, pp, dp, chunks, microbatch_rows, zero, recompute, schedule, .. } = self;
        let sequence = if self.sequence_parallel { "on" } else { "off" };
        write!(
            f,
            "tp {tp} · pp {pp} · dp {dp} · chunks {chunks} · microbatch {microbatch_rows} · \
             ZeRO {zero} · recompute {recompute} · SP {sequence} · {schedule}"
        )
    }
}

/// The most microbatches that the planner takes.
const MICROBATCHES: u32 = 4096;

/// Why selective recompute is no gain (arXiv:2205.14135).
const SAVES_NOTHING: &str = "fused attention keeps no scores that selective recompute could save";

const ZERO: [ZeroStage; 4] =
    [ZeroStage::Zero0, ZeroStage::Zero1, ZeroStage::Zero2, ZeroStage::Zero3];

/// Divisors of a number above 0, ascending.
fn divisors(of: u32) -> Vec<u32> {
    let small = || (1..=of.isqrt()).filter(|size| of.is_multiple_of(*size));
    let mut all: Vec<u32> = small().chain(small().map(|size| of / size)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Bytes that a step may take on a GPU.
pub(super) fn usable_bytes(cluster: &Cluster) -> f64 {
    crate::predict::memory::USABLE * cluster.gpu.memory_gb * 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(gpus: u32, batch: u32) -> Space {
        let model = Transformer::read("llama-3-8b").unwrap();
        Space { model, gpus, batch, seq: 4096, precision: Precision::Half }
    }

    fn refusals(space: &Space) -> Vec<(Cut, Option<Refusal>)> {
        let asked = |cut| (space.refuses(&cut), cut);
        space.all().into_iter().map(asked).map(|(refused, cut)| (cut, refused)).collect()
    }

    #[test]
    fn divisors_are_all_and_ascending() {
        assert_eq!(divisors(1), [1]);
        assert_eq!(divisors(36), [1, 2, 3, 4, 6, 9, 12, 18, 36]);
        assert_eq!(divisors(97), [1, 97]);
    }

    #[test]
    fn every_reason_is_found_and_what_is_left_covers_the_gpus_and_the_batch() {
        let too_many = space(2, 2 * 4099);
        let most = refusals(&too_many);
        let (cut, _) = most.iter().find(|(_, why)| *why == Some(Refusal::Microbatches)).unwrap();
        let words = too_many.example(Refusal::Microbatches, cut);
        assert!(words.contains("4099 microbatches, and 4096 are the most"), "{words}");
        let space = space(64, 96);
        let found = refusals(&space);
        for refusal in [Refusal::Heads, Refusal::Stages, Refusal::Batch, Refusal::NoGain] {
            let of = found.iter().find(|(_, why)| *why == Some(refusal));
            let (cut, _) = of.unwrap_or_else(|| panic!("{refusal:?} is never met"));
            assert!(!space.example(refusal, cut).is_empty());
        }
        for (cut, _) in found.iter().filter(|(_, why)| why.is_none()) {
            let workload = space.workload(cut);
            assert_eq!(workload.split.ranks(), 64);
            let rows = workload.batch.rows * u64::from(workload.batch.microbatches * cut.dp);
            assert_eq!(rows, 96, "{cut}");
            assert!(cut.schedule.stages().allows(cut.chunks), "{cut}");
        }
    }

    #[test]
    fn no_layout_is_enumerated_twice_and_equal_costs_follow_one_another() {
        let found = refusals(&space(16, 32));
        let names: std::collections::BTreeSet<String> =
            found.iter().map(|(cut, _)| cut.to_string()).collect();
        assert_eq!(names.len(), found.len());
        let runs = found.chunk_by(|(a, _), (b, _)| a.costs_as(b)).count();
        let kinds: std::collections::BTreeSet<String> = found
            .iter()
            .map(|(cut, _)| {
                let cut =
                    Cut { zero: ZeroStage::Zero0, schedule: ScheduleName::GPipe, ..cut.clone() };
                cut.to_string()
            })
            .collect();
        assert_eq!(runs, kinds.len());
    }
}
