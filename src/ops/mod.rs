//! The mathematics: one file per op family with its sizes, shape rule, cost and plain-Rust kernel.
//!
//! The Rust kernels are the definition of right; `shaders/` holds a WGSL file of the same stem for
//! each. House rule for gradients: **parameters accumulate** (`+=`, unless `accumulate` is off, as
//! in the first microbatch), **activations are assigned** (`=`), **the residual stream adds**.
//!
//! Activations are time-major: row `t * batch + i` of a `[rows, d]` matrix is position `t` of
//! sequence `i`.

pub mod args;
pub mod attention;
pub mod cast;
pub mod coarse;
pub mod cross_entropy;
pub mod elementwise;
pub mod embedding;
pub mod matmul;
pub mod norm;
pub mod optimizer;
pub mod reduction;
pub mod rope;
pub mod swiglu;

mod exp;
mod lanes;
mod panel;
#[cfg(test)]
mod testing;

pub use args::Args;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::shape::DType;
use crate::units::{Bytes, Flops};

/// One kernel's worth of mathematics with all its sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Op {
    /// Matrix product.
    Matmul(matmul::Matmul),
    /// Rows of the embedding table.
    Embedding(embedding::Embedding),
    /// Gradient of the embedding table.
    EmbeddingGrad(embedding::EmbeddingGrad),
    /// Root-mean-square norm.
    RmsNorm(norm::RmsNorm),
    /// Its input gradient.
    RmsNormGradInput(norm::RmsNormGradInput),
    /// Its weight gradient.
    RmsNormGradWeight(norm::RmsNormGradWeight),
    /// Rotary position embedding, in place.
    Rope(rope::Rope),
    /// Causal grouped-query attention.
    Attention(attention::Attention),
    /// Its input gradient.
    AttentionGrad(attention::AttentionGrad),
    /// Gated activation.
    SwiGlu(swiglu::SwiGlu),
    /// Its input gradient.
    SwiGluGrad(swiglu::SwiGluGrad),
    /// Per-row statistics of this rank's slice of the logits.
    LossStats(cross_entropy::LossStats),
    /// Merges the statistics of all slices into the loss.
    LossMerge(cross_entropy::LossMerge),
    /// Turns logits into their gradient, in place.
    LossGrad(cross_entropy::LossGrad),
    /// `c = a + b`.
    Add(elementwise::Add),
    /// `y += x`.
    AddAssign(elementwise::AddAssign),
    /// `x *= factor`: never planned, only `plan::mutate` writes it.
    Scale(elementwise::Scale),
    /// `x = value`.
    Fill(elementwise::Fill),
    /// Adds the tensors of several ranks in rank order.
    SumRanks(reduction::SumRanks),
    /// Sum of squares.
    SquaredNorm(reduction::SquaredNorm),
    /// `AdamW` with the clip factor inside.
    AdamW(optimizer::AdamW),
    /// Plain SGD with the clip factor inside.
    Sgd(optimizer::Sgd),
    /// Changes the element type.
    Cast(cast::Cast),
    /// A whole pass or collective, for predictions only.
    Coarse(coarse::Coarse),
}

/// How an op touches an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Every element is overwritten; old contents do not matter.
    Write,
    /// Old contents are read and updated.
    ReadWrite,
}

/// One argument of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// What it is, for errors: `d_y`.
    pub name: &'static str,
    /// Element type.
    pub dtype: DType,
    /// Number of elements.
    pub len: u64,
}

/// The shape rule of an op: what a Launch must bring.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signature {
    /// Read arguments, in order.
    pub inputs: Vec<Slot>,
    /// Written arguments, in order.
    pub outputs: Vec<(Slot, Access)>,
}

impl Signature {
    /// Adds a float input.
    #[must_use]
    pub fn input(self, name: &'static str, len: impl Into<u64>) -> Self {
        self.typed_input(name, DType::F32, len)
    }

    /// Adds an input of any type.
    #[must_use]
    pub fn typed_input(mut self, name: &'static str, dtype: DType, len: impl Into<u64>) -> Self {
        self.inputs.push(Slot { name, dtype, len: len.into() });
        self
    }

    /// Adds a float output.
    #[must_use]
    pub fn output(self, name: &'static str, access: Access, len: impl Into<u64>) -> Self {
        self.typed_output(name, DType::F32, access, len)
    }

    /// Adds an output of any type.
    #[must_use]
    pub fn typed_output(
        mut self,
        name: &'static str,
        dtype: DType,
        access: Access,
        len: impl Into<u64>,
    ) -> Self {
        self.outputs.push((Slot { name, dtype, len: len.into() }, access));
        self
    }

    /// Bytes read and written once: the least traffic that the op can have.
    pub fn bytes(&self) -> Bytes {
        let size = |slot: &Slot| slot.len * slot.dtype.size();
        let written = self.outputs.iter().map(|(slot, access)| match access {
            Access::Write => size(slot),
            Access::ReadWrite => 2 * size(slot),
        });
        Bytes(self.inputs.iter().map(size).sum::<u64>() + written.sum::<u64>())
    }
}

/// [`Access::ReadWrite`] if `accumulate`, else [`Access::Write`].
pub(crate) const fn assign_or_add(accumulate: bool) -> Access {
    if accumulate { Access::ReadWrite } else { Access::Write }
}

/// Index into the scalars of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// Learning rate of this step.
    LearningRate = 0,
    /// `1 − β1^t`, t counted from 1.
    BiasCorrection1 = 1,
    /// `1 − β2^t`.
    BiasCorrection2 = 2,
    /// One over the number of labels of the global batch that are not −100.
    InverseValidLabels = 3,
}

impl Scalar {
    /// Number of scalars.
    pub const COUNT: u32 = 4;
}

/// What every op family answers. Implemented by each params struct; [`Op`] forwards to it.
pub trait Kernel {
    /// The op's name as printed in a Plan: `matmul_nt`.
    fn name(&self) -> &'static str;

    /// Which arguments a Launch must bring.
    fn signature(&self) -> Signature;

    /// Floating-point operations; a multiply-add counts two, a transcendental function one.
    fn flops(&self) -> Flops;

    /// Into how many independent parts the host kernel may be split. It depends on the sizes
    /// alone, never on the number of threads, so that the bits of the result do not either.
    fn parts(&self) -> u32 {
        1
    }

    /// Computes part `part` of [`Kernel::parts`]. Parts write disjoint elements and may run at
    /// the same time in any order.
    fn run(&self, part: u32, args: &Args<'_>);
}

macro_rules! forward {
    ($self:ident, $kernel:ident => $answer:expr) => {
        match $self {
            Op::Matmul($kernel) => $answer,
            Op::Embedding($kernel) => $answer,
            Op::EmbeddingGrad($kernel) => $answer,
            Op::RmsNorm($kernel) => $answer,
            Op::RmsNormGradInput($kernel) => $answer,
            Op::RmsNormGradWeight($kernel) => $answer,
            Op::Rope($kernel) => $answer,
            Op::Attention($kernel) => $answer,
            Op::AttentionGrad($kernel) => $answer,
            Op::SwiGlu($kernel) => $answer,
            Op::SwiGluGrad($kernel) => $answer,
            Op::LossStats($kernel) => $answer,
            Op::LossMerge($kernel) => $answer,
            Op::LossGrad($kernel) => $answer,
            Op::Add($kernel) => $answer,
            Op::AddAssign($kernel) => $answer,
            Op::Scale($kernel) => $answer,
            Op::Fill($kernel) => $answer,
            Op::SumRanks($kernel) => $answer,
            Op::SquaredNorm($kernel) => $answer,
            Op::AdamW($kernel) => $answer,
            Op::Sgd($kernel) => $answer,
            Op::Cast($kernel) => $answer,
            Op::Coarse($kernel) => $answer,
        }
    };
}

impl Op {
    /// The kernel behind the op.
    pub fn kernel(&self) -> &dyn Kernel {
        forward!(self, kernel => kernel)
    }
}

impl Kernel for Op {
    fn name(&self) -> &'static str {
        self.kernel().name()
    }
    fn signature(&self) -> Signature {
        self.kernel().signature()
    }
    fn flops(&self) -> Flops {
        self.kernel().flops()
    }
    fn parts(&self) -> u32 {
        self.kernel().parts()
    }
    fn run(&self, part: u32, args: &Args<'_>) {
        self.kernel().run(part, args);
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
