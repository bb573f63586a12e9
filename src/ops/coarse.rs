//! A coarse op: a whole pass or collective of a rank, as predictions of large clusters need it.
//!
//! It has sizes but no kernel. `sim` prices it by the tables beside its Plan
//! (`planner::cluster`), `exec` refuses it by name because its views hold 16-bit floats.

use serde::{Deserialize, Serialize};

use super::{Access, Args, Kernel, Signature};
use crate::shape::DType;
use crate::units::Flops;

/// What a coarse op stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CoarseKind {
    /// Layers forward.
    Forward,
    /// Layers backward.
    Backward,
    /// Input gradients of layers.
    InputGrad,
    /// Weight gradients of layers.
    WeightGrad,
    /// Collectives inside the layers of a pass.
    LayerCollectives,
    /// Sum of gradients over the ranks with the same weights.
    ReduceGradients,
    /// Weights from the ranks that hold their parts.
    GatherWeights,
    /// The optimizer.
    Update,
}

/// A piece of work without a kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Coarse {
    /// What it stands for.
    pub kind: CoarseKind,
    /// Index of its work in the tables beside the Plan.
    pub work: u32,
    /// It is one of this many equal pieces of that work.
    pub pieces: u32,
    /// Collective that runs beside it and takes some of its processors.
    pub beside: Option<u32>,
    /// Floating-point operations of the piece.
    pub flops: u64,
    /// Elements of a wide view: what one rank hands to the next stage.
    pub wide: u32,
    /// Wide views that are read.
    pub wide_in: u32,
    /// Views of one element that are read, after the wide ones.
    pub narrow_in: u32,
    /// Wide views that are written.
    pub wide_out: u32,
    /// Views of one element that are written, after the wide ones.
    pub narrow_out: u32,
}

impl Kernel for Coarse {
    fn name(&self) -> &'static str {
        match self.kind {
            CoarseKind::Forward => "forward",
            CoarseKind::Backward => "backward",
            CoarseKind::InputGrad => "input_grad",
            CoarseKind::WeightGrad => "weight_grad",
            CoarseKind::LayerCollectives => "layer_collectives",
            CoarseKind::ReduceGradients => "reduce_gradients",
            CoarseKind::GatherWeights => "gather_weights",
            CoarseKind::Update => "update",
        }
    }

    fn signature(&self) -> Signature {
        let lens = |wide, narrow| {
            let wide = (0..wide).map(|_| self.wide);
            wide.chain((0..narrow).map(|_| 1))
        };
        let reads = lens(self.wide_in, self.narrow_in)
            .fold(Signature::default(), |read, len| read.typed_input("x", DType::Bf16, len));
        lens(self.wide_out, self.narrow_out)
            .fold(reads, |written, len| written.typed_output("y", DType::Bf16, Access::Write, len))
    }

    fn flops(&self) -> Flops {
        Flops(self.flops)
    }

    fn run(&self, _part: u32, _args: &Args<'_>) {
        panic!("{} has no kernel; check before launching", self.name());
    }
}
