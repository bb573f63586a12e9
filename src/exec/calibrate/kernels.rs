//! Which kernels are measured, and at which sizes.
//!
//! The grids are geometric and wide: a layer of thousands of columns and the shard of a tiny one
//! both lie inside. What would take too long is left out; a unit of it takes as long as at the
//! largest point that is measured. What does little more than read and write is measured twice:
//! near, in the caches that cores share, and far, in memory.

use super::probe::Probe;
use crate::ops::Op;
use crate::ops::attention::{Attention, AttentionGrad, Heads};
use crate::ops::cross_entropy::{LossGrad, LossMerge, LossStats};
use crate::ops::elementwise::{Add, AddAssign, Fill, Scale};
use crate::ops::embedding::{Embedding, EmbeddingGrad};
use crate::ops::matmul::{Form, Matmul};
use crate::ops::norm::{RmsNorm, RmsNormGradInput, RmsNormGradWeight};
use crate::ops::optimizer::{AdamW, Sgd};
use crate::ops::reduction::{SquaredNorm, SumRanks};
use crate::ops::rope::Rope;
use crate::ops::swiglu::{SwiGlu, SwiGluGrad};
use crate::predict::here::DISTANCES;

/// Sizes of a product.
const PRODUCT: &[u32] = &[16, 64, 256, 1024, 4096];
/// Operations of the largest product and attention.
const FLOPS_MAX: u64 = 600_000_000;
/// Positions of a sequence, and elements of a head.
const SEQ: &[u32] = &[16, 32, 64, 128, 256, 512, 1024];
const HEAD: &[u32] = &[8, 16, 32, 64, 128];
const HEAD_OF_ROPE: &[u32] = &[16, 64];
/// Rows of an attention over all its sequences, and its heads.
const ROWS: u32 = 1024;
const HEADS: u32 = 4;
/// Elements of a matrix by rows, and of a row.
const MATRIX: &[u32] = &[1 << 10, 1 << 14, 1 << 18, 1 << 21];
const ROW: &[u32] = &[64, 512];
/// Elements of anything else, and bytes of what is moved.
const ELEMENTS: &[u32] = &[1, 1 << 10, 1 << 14, 1 << 18, 1 << 21];
const BYTES: &[u32] = &[4, 1 << 12, 1 << 16, 1 << 20, 1 << 23];

/// A kernel that is measured.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    /// Its name in a calibration.
    pub(super) name: &'static str,
    /// The sizes along each axis, as `predict::here::Sizes` gives them; then the distances, if they
    /// matter.
    pub(super) axes: Vec<&'static [u32]>,
    make: fn(&[u32]) -> Probe,
}

/// What a point of a grid takes.
#[derive(Clone, Debug)]
pub(super) enum Point {
    /// This is measured, where what is touched was touched so many bytes ago.
    Measured { probe: Probe, distance: u32 },
    /// As long as an earlier point of the grid, by its place.
    As(Vec<usize>),
}

impl Kernel {
    /// All points of its grid in the order of a curve, by place.
    pub(super) fn points(&self) -> Vec<(Vec<usize>, Point)> {
        let mut places = vec![Vec::new()];
        for axis in &self.axes {
            let longer = |place: Vec<usize>| {
                (0..axis.len()).map(move |index| [&place[..], &[index]].concat())
            };
            places = places.into_iter().flat_map(longer).collect();
        }
        places.into_iter().map(|place| (place.clone(), self.point(&place))).collect()
    }

    fn point(&self, place: &[usize]) -> Point {
        let mut sizes: Vec<u32> = self.axes.iter().zip(place).map(|(axis, i)| axis[*i]).collect();
        let moves = self.axes.last().is_some_and(|axis| **axis == DISTANCES);
        let distance = if moves { sizes.pop() } else { None };
        let probe = (self.make)(&sizes);
        match distance {
            // So little is touched that it is near whatever happens.
            Some(far) if far > DISTANCES[0] && !probe.reaches(DISTANCES[0]) => {
                Point::As([&place[..place.len() - 1], &[0]].concat())
            }
            None if probe.flops() > FLOPS_MAX => Point::As(smaller(place)),
            _ => Point::Measured { probe, distance: distance.unwrap_or(DISTANCES[0]) },
        }
    }
}

/// The neighbour of a place whose largest size is smaller.
fn smaller(place: &[usize]) -> Vec<usize> {
    let mut place = place.to_vec();
    if let Some(largest) = place.iter_mut().max() {
        *largest = largest.saturating_sub(1);
    }
    place
}

/// All of them.
pub(super) fn all() -> Vec<Kernel> {
    let far: &[u32] = &DISTANCES;
    let matrix = || vec![MATRIX, ROW, far];
    let line = || vec![ELEMENTS, far];
    let product = || vec![PRODUCT, PRODUCT, PRODUCT];
    let kernel = |name, axes, make| Kernel { name, axes, make };
    vec![
        kernel("matmul_nt", product(), |at| matmul(Form::Nt, at, false)),
        kernel("matmul_nn", product(), |at| matmul(Form::Nn, at, false)),
        kernel("matmul_tn", product(), |at| matmul(Form::Tn, at, true)),
        kernel("attention", vec![SEQ, HEAD], |at| {
            launch(Op::Attention(Attention { heads: heads(at) }))
        }),
        kernel("attention_grad", vec![SEQ, HEAD], |at| {
            launch(Op::AttentionGrad(AttentionGrad { heads: heads(at) }))
        }),
        kernel("embedding", matrix(), |at| {
            let [rows, dim] = rows(at);
            launch(Op::Embedding(Embedding { rows, dim, vocab_start: 0, vocab_len: VOCAB }))
        }),
        kernel("embedding_grad", matrix(), |at| {
            let ([rows, dim], vocab_len) = (rows(at), VOCAB);
            let op = EmbeddingGrad { rows, dim, vocab_start: 0, vocab_len, accumulate: true };
            launch(Op::EmbeddingGrad(op))
        }),
        kernel("rms_norm", matrix(), |at| {
            let [rows, dim] = rows(at);
            launch(Op::RmsNorm(RmsNorm { rows, dim, eps: EPS }))
        }),
        kernel("rms_norm_grad_input", matrix(), |at| {
            let [rows, dim] = rows(at);
            launch(Op::RmsNormGradInput(RmsNormGradInput { rows, dim, accumulate: true }))
        }),
        kernel("rms_norm_grad_weight", matrix(), |at| {
            let [rows, dim] = rows(at);
            launch(Op::RmsNormGradWeight(RmsNormGradWeight { rows, dim, accumulate: true }))
        }),
        kernel("rope", vec![MATRIX, HEAD_OF_ROPE, far], rope),
        kernel("swiglu", line(), |at| launch(Op::SwiGlu(SwiGlu { rows: 1, ffn: at[0] }))),
        kernel("swiglu_grad", line(), |at| {
            launch(Op::SwiGluGrad(SwiGluGrad { rows: 1, ffn: at[0] }))
        }),
        kernel("loss_stats", matrix(), |at| {
            let [rows, vocab_len] = rows(at);
            launch(Op::LossStats(LossStats { rows, vocab_start: 0, vocab_len }))
        }),
        kernel("loss_merge", vec![ROWS_OF_LOSS, SLICES], |at| {
            launch(Op::LossMerge(LossMerge { rows: at[0], slices: at[1], accumulate: true }))
        }),
        kernel("loss_grad", matrix(), |at| {
            let [rows, vocab_len] = rows(at);
            launch(Op::LossGrad(LossGrad { rows, vocab_start: 0, vocab_len }))
        }),
        kernel("add", line(), |at| launch(Op::Add(Add { len: at[0] }))),
        kernel("add_assign", line(), |at| launch(Op::AddAssign(AddAssign { len: at[0] }))),
        kernel("scale", line(), |at| launch(Op::Scale(Scale { len: at[0], factor: 0.5 }))),
        kernel("fill", line(), |at| launch(Op::Fill(Fill { len: at[0], value: 0.0 }))),
        kernel("sum_ranks", vec![ELEMENTS, SLICES, far], |at| {
            let (len, ranks) = (at[0], at[1]);
            launch(Op::SumRanks(SumRanks { ranks, own: Some(0), len, accumulate: false }))
        }),
        kernel("squared_norm", line(), |at| {
            launch(Op::SquaredNorm(SquaredNorm { len: at[0], guard: false, accumulate: true }))
        }),
        kernel("adamw", line(), |at| launch(Op::AdamW(adamw(at[0])))),
        kernel("sgd", line(), |at| launch(Op::Sgd(Sgd { len: at[0], clip_norm: 1.0 }))),
        kernel("copy", vec![BYTES, far], |at| Probe::Copy { bytes: at[0] }),
        kernel("message", vec![BYTES, far], |at| Probe::Message { bytes: at[0] }),
    ]
}

/// Tokens of the table that embeddings read.
const VOCAB: u32 = 256;
const EPS: f32 = 1e-5;
const ROWS_OF_LOSS: &[u32] = &[1, 64, 1 << 12, 1 << 15];
/// Ranks whose parts are merged or added.
const SLICES: &[u32] = &[2, 8];

fn launch(op: Op) -> Probe {
    Probe::Launch(op)
}

fn matmul(form: Form, at: &[u32], accumulate: bool) -> Probe {
    launch(Op::Matmul(Matmul { form, m: at[0], n: at[1], k: at[2], accumulate }))
}

/// Rows and columns of a matrix with so many elements in all and in a row.
fn rows(at: &[u32]) -> [u32; 2] {
    [at[0] / at[1], at[1]]
}

fn heads(at: &[u32]) -> Heads {
    Heads {
        seq: at[0],
        batch: (ROWS / at[0]).max(1),
        heads: HEADS,
        kv_heads: HEADS,
        head_dim: at[1],
        group: 1,
        first_head: 0,
        first_kv_head: 0,
    }
}

fn rope(at: &[u32]) -> Probe {
    let (head_dim, heads) = (at[1], HEADS);
    let positions = at[0] / (head_dim * heads);
    let seq = positions.clamp(1, 128);
    let batch = (positions / seq).max(1);
    // Queries and keys are turned, values lie beside them.
    let width = heads * head_dim * 3 / 2;
    launch(Op::Rope(Rope { seq, batch, heads, head_dim, width, inverse: false }))
}

fn adamw(len: u32) -> AdamW {
    AdamW { len, beta1: 0.9, beta2: 0.99, eps: 1e-8, weight_decay: 0.1, clip_norm: 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_at_a_point_has_the_sizes_of_that_point() {
        for kernel in all() {
            for (place, point) in kernel.points() {
                let Point::Measured { probe, distance } = point else { continue };
                let mut at: Vec<f64> =
                    kernel.axes.iter().zip(&place).map(|(axis, i)| axis[*i].into()).collect();
                let sizes = probe.sizes().unwrap();
                if at.len() > sizes.at.len() {
                    assert_eq!(at.pop(), Some(distance.into()));
                }
                assert_eq!((sizes.kernel, &sizes.at), (kernel.name, &at));
                assert!(sizes.units > 0.0);
            }
        }
    }

    #[test]
    fn the_smallest_point_is_measured_and_its_neighbours_lead_to_all_others() {
        for kernel in all() {
            let mut met = std::collections::BTreeSet::new();
            for (place, point) in kernel.points() {
                if let Point::As(other) = &point {
                    assert!(met.contains(other), "{}: {place:?} before {other:?}", kernel.name);
                }
                met.insert(place);
            }
        }
    }

    #[test]
    fn everything_that_a_trained_step_launches_is_measured() {
        use crate::config::{Layout, Model, OptimizerKind, Recompute, Training, ZeroStage};
        use crate::plan::Action;
        use crate::planner::{Purpose, StepSpec, plan_step};
        let kernels = all();
        for (optimizer, sequence_parallel) in
            [(OptimizerKind::AdamW, false), (OptimizerKind::Sgd, true)]
        {
            let (zero, recompute) = (ZeroStage::Zero3, Recompute::Full);
            let layout = Layout {
                dp: 2,
                tp: 2,
                pp: 2,
                zero,
                recompute,
                sequence_parallel,
                ..Layout::default()
            };
            let spec = StepSpec {
                model: Model::preset("tiny").unwrap(),
                layout,
                training: Training { batch: 8, seq: 16, optimizer, ..Training::default() },
                purpose: Purpose::Train,
                device_kinds: Vec::new(),
            };
            let plan = plan_step(&spec).unwrap();
            for instr in plan.programs.iter().flat_map(|program| &program.instrs) {
                let Action::Launch { op, .. } = &instr.action else { continue };
                let sizes = Probe::Launch(op.clone()).sizes().unwrap();
                let kernel = kernels.iter().find(|kernel| kernel.name == sizes.kernel);
                let kernel = kernel.unwrap_or_else(|| panic!("{op} is not measured"));
                let sized = kernel.axes.iter().filter(|axis| ***axis != DISTANCES);
                assert_eq!(sized.count(), sizes.at.len(), "{op}");
            }
        }
    }

    #[test]
    fn the_executor_takes_the_smallest_of_everything() {
        for kernel in all() {
            let Point::Measured { probe, .. } = kernel.points().remove(0).1 else {
                panic!("{}: the smallest is measured", kernel.name)
            };
            for workers in [1, 2] {
                let nanos = probe.nanos(workers).unwrap();
                assert!(nanos > 0.0 && nanos.is_finite(), "{}: {nanos}", kernel.name);
            }
        }
    }
}
