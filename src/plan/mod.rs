//! The Plan: what every rank does in one step, as data.
//!
//! A Plan is written by the planner and only read by everybody else: `exec` runs it, `sim` times
//! it, `ledger` counts it, [`check`] proves that it cannot hang, the visualizer draws it. Nothing
//! here knows a model, a layout or a clock.
//!
//! **Meaning.** A [`Program`] read from top to bottom, with sends buffered, is right. Lanes only
//! relax that order: an instruction starts when its predecessor in its lane has ended and when
//! every instruction whose memory it touches has ended ([`order`]). A receive is in no lane: it is
//! posted as soon as its view is free. A send and its receive, matched by (from, to, tag), are one
//! node of the step's graph and run together.

pub mod check;
pub mod mutate;
pub mod order;
pub mod text;
pub(crate) mod segments;

#[cfg(test)]
pub(crate) mod sample;

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::mesh::{Axis, Mesh, Rank};
pub use crate::ops::Scalar;
use crate::ops::{Access, Kernel as _, Op};
use crate::shape::{DType, Shape};
use crate::units::Bytes;

/// One training step (or evaluation), compiled: a program per rank over declared buffers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The mesh of ranks.
    pub mesh: Mesh,
    /// The logical tensors that [`Piece`]s speak of, in a fixed order.
    pub tensors: Vec<LogicalTensor>,
    /// All buffers of all ranks; a [`BufferId`] is an index into this list.
    pub buffers: Vec<BufferDecl>,
    /// What each rank does; index = rank.
    pub programs: Vec<Program>,
}

impl Plan {
    /// The declaration of a buffer.
    pub fn buffer(&self, id: BufferId) -> &BufferDecl {
        &self.buffers[id.0 as usize]
    }

    /// A view of the whole of a rank's buffer, by its label.
    ///
    /// # Panics
    /// If the rank has no buffer of this label.
    pub fn view(&self, rank: Rank, label: &str) -> View {
        let mut buffers = self.buffers_of(rank);
        let found = buffers.find(|(_, decl)| decl.label == label);
        let (buffer, decl) = found.unwrap_or_else(|| panic!("rank {rank} has no buffer {label}"));
        View { buffer, offset: 0, len: decl.len }
    }

    /// Bytes that a view covers.
    pub fn view_bytes(&self, view: View) -> Bytes {
        Bytes(u64::from(view.len) * self.buffer(view.buffer).dtype.size())
    }

    /// The bytes that a view occupies inside its arena: `(arena, start..end)`.
    pub fn view_place(&self, view: View) -> (Arena, Range<u64>) {
        let decl = self.buffer(view.buffer);
        let start = decl.place.offset + u64::from(view.offset) * decl.dtype.size();
        (decl.place.arena, start..start + u64::from(view.len) * decl.dtype.size())
    }

    /// Number of instructions of all ranks.
    pub fn instr_count(&self) -> usize {
        self.programs.iter().map(|program| program.instrs.len()).sum()
    }

    /// The buffers of one rank, in declaration order.
    pub fn buffers_of(&self, rank: Rank) -> impl Iterator<Item = (BufferId, &BufferDecl)> {
        (0u32..).map(BufferId).zip(&self.buffers).filter(move |(_, decl)| decl.rank == rank)
    }
}

/// The instructions of one rank, in program order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// Read from top to bottom, with sends buffered, they are right.
    pub instrs: Vec<Instr>,
}

/// One line of a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Instr {
    /// In whose order it runs.
    pub lane: Lane,
    /// What it does.
    pub action: Action,
    /// Why it is there: for eyes and sums only, no reader decides by it.
    pub origin: Origin,
}

/// A queue of one rank; the instructions of a lane run in program order, lanes run side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Lane {
    /// Forward, backward, optimizer, and the additions of tensor-parallel collectives.
    Compute,
    /// Additions and copies of gradient and weight collectives, so that backward never waits behind them.
    Reduce,
    /// Messages to one peer for one axis; they arrive in this order.
    Out(Axis, Rank),
    /// No lane: the mark of receives, which are posted as soon as their view is free.
    Posted,
}

/// What an instruction does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Action {
    /// One kernel. No input overlaps an output; an output that is updated in place is read too
    /// ([`crate::ops::Access`]).
    Launch {
        /// The mathematics and its sizes.
        op: Op,
        /// Views that are read, in the order of the op's signature.
        inputs: Vec<View>,
        /// Views that are written, in the order of the op's signature.
        outputs: Vec<View>,
    },
    /// Half of a staged copy to another rank.
    Send {
        /// What is sent.
        view: View,
        /// The receiver.
        to: Rank,
        /// Unique among the messages of this pair of ranks.
        tag: Tag,
        /// How many equal messages in a row this one stands for; 1 in every Plan that runs.
        hops: u32,
    },
    /// The other half: always in [`Lane::Posted`].
    Recv {
        /// Where it arrives.
        view: View,
        /// The sender.
        from: Rank,
        /// The tag of the send.
        tag: Tag,
        /// As in the send.
        hops: u32,
    },
    /// A copy inside one rank; equal lengths, no overlap.
    Copy {
        /// Source.
        from: View,
        /// Destination.
        to: View,
    },
}

impl Action {
    /// The views whose contents matter: inputs, outputs that are updated in place, what is sent or
    /// copied.
    pub fn reads(&self) -> Vec<View> {
        match self {
            Self::Launch { op, inputs, outputs } => {
                let signature = op.signature();
                // An output that the signature does not know is a fault; it counts as read so that
                // no order is lost.
                let access = |index: usize| {
                    signature.outputs.get(index).map_or(Access::ReadWrite, |(_, access)| *access)
                };
                let updated = outputs.iter().enumerate();
                let updated = updated.filter(|(index, _)| access(*index) == Access::ReadWrite);
                inputs.iter().copied().chain(updated.map(|(_, view)| *view)).collect()
            }
            Self::Send { view, .. } => vec![*view],
            Self::Recv { .. } => Vec::new(),
            Self::Copy { from, .. } => vec![*from],
        }
    }

    /// The views that are written: outputs, what arrives, destinations of copies.
    pub fn writes(&self) -> &[View] {
        match self {
            Self::Launch { outputs, .. } => outputs,
            Self::Send { .. } => &[],
            Self::Recv { view, .. } => std::slice::from_ref(view),
            Self::Copy { to, .. } => std::slice::from_ref(to),
        }
    }
}

/// Index of a buffer in [`Plan::buffers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BufferId(pub u32);

/// Identifies a message between two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tag(pub u64);

/// A contiguous range of elements of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct View {
    /// Which buffer.
    pub buffer: BufferId,
    /// First element.
    pub offset: u32,
    /// Number of elements.
    pub len: u32,
}

impl View {
    /// The elements `range` of this view.
    #[must_use]
    pub fn slice(self, range: Range<u32>) -> Self {
        debug_assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {self:?}");
        Self {
            buffer: self.buffer,
            offset: self.offset + range.start,
            len: range.end - range.start,
        }
    }
}

/// A buffer of one rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BufferDecl {
    /// Whose memory it is.
    pub rank: Rank,
    /// A name for people, unique within the rank: `w.layer2`, `act.m1.layer2.qkv`.
    pub label: String,
    /// Which of the five sums it counts into.
    pub role: Role,
    /// Element type.
    pub dtype: DType,
    /// Number of elements.
    pub len: u32,
    /// How long it lives.
    pub life: Life,
    /// Where it lies.
    pub place: Place,
    /// Which parts of which logical tensors it holds; padding and scratch belong to none.
    pub pieces: Vec<Piece>,
}

impl BufferDecl {
    /// Size in bytes.
    pub fn bytes(&self) -> Bytes {
        Bytes(u64::from(self.len) * self.dtype.size())
    }
}

/// The memory role of a buffer: the five sums of the memory table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Weights, also gathered ones.
    Weights,
    /// Gradients of weights.
    Gradients,
    /// Optimizer state.
    Optimizer,
    /// Activations and their gradients.
    Activations,
    /// Messages, staging, scratch, inputs and outputs.
    Workspace,
}

impl Role {
    /// All roles in the order in which they are printed.
    pub const ALL: [Self; 5] =
        [Self::Weights, Self::Gradients, Self::Optimizer, Self::Activations, Self::Workspace];
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Weights => "weights",
            Self::Gradients => "gradients",
            Self::Optimizer => "optimizer",
            Self::Activations => "activations",
            Self::Workspace => "workspace",
        })
    }
}

/// How long the contents of a buffer live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Life {
    /// Across steps; shared by all Plans of a run, which declare the same persistent buffers of a
    /// rank (label, dtype, len, place) in the same order.
    Persistent,
    /// Written by the host before the step (constants once per load).
    Input(Input),
    /// Read by the host after the step.
    Output(Output),
    /// Inside one step.
    Step,
}

/// What the host writes into an input buffer. It tells all that is needed to fill it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input {
    /// Tokens `[seq, rows]`, time-major: element `t * rows + i` is token `t` of global batch row
    /// `first_row + i`.
    Tokens {
        /// First row of the global batch.
        first_row: u32,
        /// Number of rows.
        rows: u32,
    },
    /// Labels, laid out as the tokens; −100 is ignored.
    Labels {
        /// First row of the global batch.
        first_row: u32,
        /// Number of rows.
        rows: u32,
    },
    /// The step's scalars, see [`Scalar`]: `[Scalar::COUNT]`.
    Scalars,
    /// Rotary table `[seq, head_dim / 2, 2]` of (cos, sin), computed in f64: element
    /// `(t, i)` has the angle `t * theta^(-2 i / head_dim)`.
    RopeTable {
        /// Positions.
        seq: u32,
        /// Head size.
        head_dim: u32,
        /// `rope_theta` of the model, as bits of an f64 (so that the type stays `Eq`).
        theta_bits: u64,
    },
}

/// What the host reads from an output buffer after the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Output {
    /// Sum of the losses of the labels that this rank saw; the loss of the step is the sum of all
    /// counted ones times 1/valid-labels.
    LossSum {
        /// Whether this rank's sum counts (one rank of each tensor group).
        counted: bool,
    },
    /// Squared global gradient norm before clipping; the same on all ranks.
    SquaredNorm,
}

/// Where a buffer lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Place {
    /// Which memory of the rank.
    pub arena: Arena,
    /// First byte inside the arena; a multiple of [`Place::ALIGN`].
    pub offset: u64,
}

impl Place {
    /// Alignment of every buffer in bytes: what bindings of any adapter accept.
    pub const ALIGN: u64 = 256;
}

/// A memory of one rank. Buffers in different arenas never overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Arena {
    /// Weights and optimizer state.
    Persistent,
    /// Inputs and outputs of a step.
    Io,
    /// Everything that lives inside a step.
    Step,
}

impl Arena {
    /// All arenas.
    pub const ALL: [Self; 3] = [Self::Persistent, Self::Io, Self::Step];
}

/// A tensor as the model knows it, whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogicalTensor {
    /// Hugging Face name: `model.layers.0.mlp.up_proj.weight`.
    pub name: String,
    /// Global shape, one or two dimensions.
    pub shape: Shape,
}

/// What of a logical tensor a buffer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Held {
    /// The weight itself.
    Weight,
    /// Its gradient at the end of the step (summed over everything, before clipping).
    Gradient,
    /// First moment of `AdamW`.
    Moment1,
    /// Second moment of `AdamW`.
    Moment2,
}

/// A part of a logical tensor inside a buffer.
///
/// The tensor's box `rows × cols` (a one-dimensional tensor is one column) is flattened row-major,
/// and the elements `flat` of that lie at `offset` of the buffer, contiguously.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// Index into [`Plan::tensors`].
    pub tensor: u32,
    /// What is held.
    pub held: Held,
    /// Rows of the box in the whole tensor.
    pub rows: Range<u32>,
    /// Columns of the box in the whole tensor.
    pub cols: Range<u32>,
    /// Which elements of the flattened box.
    pub flat: Range<u32>,
    /// Where they start in the buffer, in elements.
    pub offset: u32,
    /// Whether this is the copy that counts: over all ranks, the owned pieces of a (tensor, held)
    /// cover it exactly once.
    pub owned: bool,
}

impl Piece {
    /// Index in the whole, row-major tensor of the `i`-th element of this piece, given the
    /// tensor's number of columns.
    pub fn global_index(&self, i: u32, tensor_cols: u32) -> usize {
        let flat = self.flat.start + i;
        let width = self.cols.end - self.cols.start;
        let (row, col) = (self.rows.start + flat / width, self.cols.start + flat % width);
        row as usize * tensor_cols as usize + col as usize
    }
}

/// Why an instruction is there. For eyes and sums only.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Origin {
    /// Part of the step.
    pub phase: Phase,
    /// Pipeline stage.
    pub stage: Option<u32>,
    /// Layer of the model.
    pub layer: Option<u32>,
    /// Microbatch.
    pub microbatch: Option<u32>,
    /// The collective that it was unfolded from.
    pub collective: Option<Collective>,
    /// The mesh axis whose communication it belongs to.
    pub axis: Option<Axis>,
}

/// The parts of a step.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Forward of a microbatch.
    Forward,
    /// Forward run again for backward.
    Recompute,
    /// Full backward of a microbatch (input and weight gradients in one cell of the schedule).
    Backward,
    /// Input gradients alone.
    InputGrad,
    /// Weight gradients alone.
    WeightGrad,
    /// Summing gradients over ranks.
    GradReduce,
    /// The global norm.
    Norm,
    /// The optimizer.
    Optimizer,
    /// Sharing weights.
    WeightGather,
    /// Anything else: hand-written Plans.
    #[default]
    Other,
}

/// A collective of the step, before it was unfolded into messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Collective {
    /// Which kind.
    pub kind: CollectiveKind,
    /// Equal on all members, unique in the step for a group.
    pub id: u64,
}

/// Kinds of collectives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CollectiveKind {
    /// Everyone ends with the sum.
    AllReduce,
    /// Everyone ends with its piece of the sum.
    ReduceScatter,
    /// Everyone ends with everyone's piece.
    AllGather,
    /// Everyone ends with the first rank's data.
    Broadcast,
    /// Neighbouring stages hand over activations or their gradients.
    PointToPoint,
}

impl fmt::Display for CollectiveKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::AllReduce => "all-reduce",
            Self::ReduceScatter => "reduce-scatter",
            Self::AllGather => "all-gather",
            Self::Broadcast => "broadcast",
            Self::PointToPoint => "point-to-point",
        })
    }
}
