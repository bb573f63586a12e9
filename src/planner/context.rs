//! What all ranks of a step agree on, worked out once: stages, shards, buckets, shared ranges.

use std::collections::BTreeMap;
use std::ops::Range;

use super::data_parallel::{Bucket, Buckets, all_buckets};
use super::pipeline_parallel::Stages;
use super::posting::{Postings, postings};
use super::schedule::Schedule;
use super::{PlanError, StepSpec, pipeline_parallel, refuse};
use crate::config::{Model, ZeroStage};
use crate::mesh::{Coord, Mesh, Rank};
use crate::plan::LogicalTensor;
use crate::shape::part;

/// A unit of the model, the smallest thing that the pipeline cuts: `0` is the embedding,
/// `1..=layers` are the layers, `layers + 1` is the head (final norm, output matrix, loss).
pub(super) type Unit = u32;

/// The agreement of all ranks.
pub(super) struct Context<'a> {
    pub(super) spec: &'a StepSpec,
    pub(super) mesh: Mesh,
    /// The stage that is in force: one rank has nothing to share.
    pub(super) zero: ZeroStage,
    /// Whether norms and residuals are cut over the sequence.
    pub(super) sequence_parallel: bool,
    pub(super) schedule: Schedule,
    /// Which messages between stages are received early.
    pub(super) postings: Postings,
    /// Units of each stage.
    pub(super) stages: Vec<Range<Unit>>,
    /// Pipeline position of each stage.
    pub(super) owners: Vec<u32>,
    pub(super) tensors: Vec<LogicalTensor>,
    /// Whether ranks run on different kinds of device.
    pub(super) mixed_devices: bool,
    tensor_index: BTreeMap<String, u32>,
    buckets: Buckets,
}

impl<'a> Context<'a> {
    /// Works out the agreement.
    ///
    /// # Errors
    /// If the layout cannot run.
    pub(super) fn new(spec: &'a StepSpec) -> Result<Self, PlanError> {
        refuse::check_sizes(spec)?;
        let layout = &spec.layout;
        let Stages { schedule, units: stages, owners } = pipeline_parallel::stages(spec)?;
        let tensors: Vec<LogicalTensor> = (spec.model.tensors().into_iter())
            .map(|(name, shape)| LogicalTensor { name, shape })
            .collect();
        let tensor_index = tensors.iter().map(|tensor| tensor.name.clone()).zip(0..).collect();
        let kinds = &spec.device_kinds;
        assert!(
            kinds.is_empty() || kinds.len() == layout.mesh().size() as usize,
            "one device kind a rank"
        );
        let mut context = Self {
            spec,
            mesh: layout.mesh(),
            zero: if layout.dp == 1 { ZeroStage::Zero0 } else { layout.zero },
            sequence_parallel: layout.sequence_parallel && layout.tp > 1,
            postings: postings(&schedule),
            schedule,
            stages,
            owners,
            tensors,
            mixed_devices: kinds.windows(2).any(|pair| pair[0] != pair[1]),
            tensor_index,
            buckets: Buckets::new(),
        };
        context.buckets = all_buckets(&context);
        refuse::check_lengths(&context)?;
        Ok(context)
    }

    pub(super) fn model(&self) -> &Model {
        &self.spec.model
    }

    pub(super) fn tensor(&self, name: &str) -> u32 {
        self.tensor_index[name]
    }

    /// The unit that holds the output matrix and the loss.
    pub(super) fn head(&self) -> Unit {
        self.model().num_hidden_layers + 1
    }

    /// Gradient buckets of a (pipeline, tensor) position: the same on all data-parallel ranks.
    pub(super) fn buckets(&self, pp: u32, tp: u32) -> &[Bucket] {
        &self.buckets[&(pp, tp)]
    }

    /// Pipeline position of the stage that holds a unit.
    pub(super) fn position_of_unit(&self, unit: Unit) -> u32 {
        let stage = self.stages.iter().position(|units| units.contains(&unit));
        self.owners[stage.expect("stages cover all units")]
    }

    /// Whether the tied table lies on one rank for both of its uses.
    pub(super) fn tied_locally(&self) -> bool {
        self.model().tie_word_embeddings
            && self.position_of_unit(0) == self.position_of_unit(self.head())
    }

    /// Rows of the global batch that a microbatch of a data-parallel rank holds.
    pub(super) fn rows(&self, dp: u32, microbatch: u32) -> Range<u32> {
        let mine = part(self.spec.training.batch, self.mesh.dp, dp);
        let rows = part(mine.end - mine.start, self.spec.layout.microbatches, microbatch);
        mine.start + rows.start..mine.start + rows.end
    }

    /// Positions of the sequence that a tensor-parallel rank holds outside of attention and ffn.
    pub(super) fn positions(&self, tp: u32) -> Range<u32> {
        if self.sequence_parallel {
            part(self.spec.training.seq, self.mesh.tp, tp)
        } else {
            0..self.spec.training.seq
        }
    }

    /// The rank at a coordinate.
    pub(super) fn rank(&self, at: Coord) -> Rank {
        self.mesh.rank(at)
    }
}
