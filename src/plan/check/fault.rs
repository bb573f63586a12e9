//! What can be wrong with a Plan, in words.

use std::fmt;

use crate::mesh::Rank;
use crate::plan::{Arena, Held, Lane};
use crate::shape::DType;

/// One fault of a Plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Whose program or buffer; `None` where the fault is the whole Plan's.
    pub rank: Option<Rank>,
    /// Which instruction of that rank; `None` where the fault is no instruction's.
    pub instr: Option<u32>,
    /// What is wrong.
    pub kind: FaultKind,
}

impl std::error::Error for Fault {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.rank, self.instr) {
            (Some(rank), Some(instr)) => write!(f, "rank {rank} #{instr} {}", self.kind),
            (Some(rank), None) => write!(f, "rank {rank}: {}", self.kind),
            (None, _) => write!(f, "{}", self.kind),
        }
    }
}

/// The kinds of faults. The text of most goes on after `rank 2 #7`; lengths are in elements.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FaultKind {
    /// The Plan has not one program per rank of the mesh.
    #[error("the mesh has {ranks} ranks, the Plan has {programs} programs")]
    ProgramCount {
        /// Ranks of the mesh.
        ranks: u32,
        /// Programs of the Plan.
        programs: usize,
    },
    /// A view of a buffer that is not declared.
    #[error("uses buffer #{buffer}, but the Plan declares {count} buffers")]
    NoSuchBuffer {
        /// Index of the buffer.
        buffer: u32,
        /// Number of declared buffers.
        count: usize,
    },
    /// A view of another rank's memory.
    #[error("uses {label} of rank {owner}; a rank only touches its own buffers")]
    ForeignBuffer {
        /// Label of the buffer.
        label: String,
        /// Whose it is.
        owner: Rank,
    },
    /// A view that leaves its buffer.
    #[error("uses elements {start}..{end} of {label}, which has {len}")]
    OutsideBuffer {
        /// Label of the buffer.
        label: String,
        /// First element.
        start: u32,
        /// Behind the last element.
        end: u64,
        /// Length of the buffer.
        len: u32,
    },
    /// A launch with too many or too few arguments.
    #[error("{op} takes {expected} {side}, not {found}")]
    ArgumentCount {
        /// Name of the op.
        op: &'static str,
        /// `inputs` or `outputs`.
        side: &'static str,
        /// What the signature asks for.
        expected: usize,
        /// What the launch brings.
        found: usize,
    },
    /// An argument of another length than the signature asks for.
    #[error("{op}: {slot} has {expected} elements, not {found} of {label}")]
    ArgumentLength {
        /// Name of the op.
        op: &'static str,
        /// Name of the argument.
        slot: &'static str,
        /// Label of the buffer.
        label: String,
        /// What the signature asks for.
        expected: u64,
        /// What the launch brings.
        found: u32,
    },
    /// An argument of another type than the signature asks for.
    #[error("{op}: {slot} is {expected}, {label} is {found}")]
    ArgumentType {
        /// Name of the op.
        op: &'static str,
        /// Name of the argument.
        slot: &'static str,
        /// Label of the buffer.
        label: String,
        /// What the signature asks for.
        expected: DType,
        /// What the launch brings.
        found: DType,
    },
    /// An output that shares bytes with another argument.
    #[error("{op}: output {output} shares {bytes} bytes with {other}")]
    ArgumentOverlap {
        /// Name of the op, or `copy`.
        op: &'static str,
        /// Label of the output.
        output: String,
        /// Label of the other argument.
        other: String,
        /// How many bytes both touch.
        bytes: u64,
    },
    /// A copy between views of different lengths or types.
    #[error("copies {from_len} {from_type} of {from} to {to_len} {to_type} of {to}")]
    CopyMismatch {
        /// Label of the source.
        from: String,
        /// Its length.
        from_len: u32,
        /// Its type.
        from_type: DType,
        /// Label of the destination.
        to: String,
        /// Its length.
        to_len: u32,
        /// Its type.
        to_type: DType,
    },
    /// An instruction in a lane that is not for it.
    #[error("is a {what} in lane {lane}; it belongs into {expected}")]
    WrongLane {
        /// The kind of instruction.
        what: &'static str,
        /// Where it is.
        lane: Lane,
        /// Where it belongs.
        expected: String,
    },
    /// A message that stands for several: such a Plan can only be simulated.
    #[error("stands for {hops} messages in a row; a Plan that runs has 1 everywhere")]
    Hops {
        /// How many.
        hops: u32,
    },
    /// A message to or from a rank that does not exist.
    #[error("exchanges {label} with rank {peer}, but the Plan has {count} ranks")]
    NoSuchRank {
        /// Label of the buffer.
        label: String,
        /// The rank that does not exist.
        peer: Rank,
        /// Number of ranks.
        count: usize,
    },
    /// A send without a receive.
    #[error(
        "sends {len} elements of {label} to rank {to} (tag {tag}), \
         but rank {to} never receives them"
    )]
    UnmatchedSend {
        /// Label of the buffer.
        label: String,
        /// Elements.
        len: u32,
        /// The receiver.
        to: Rank,
        /// The tag.
        tag: u64,
    },
    /// A receive without a send.
    #[error(
        "waits for {len} elements into {label} from rank {from} (tag {tag}), \
         but rank {from} never sends them"
    )]
    UnmatchedRecv {
        /// Label of the buffer.
        label: String,
        /// Elements.
        len: u32,
        /// The sender.
        from: Rank,
        /// The tag.
        tag: u64,
    },
    /// A message whose halves differ in length, type or hops.
    #[error(
        "sends {sent} of {label} to rank {to} (tag {tag}), \
         but rank {to} #{recv} receives {received} into {into}"
    )]
    MessageMismatch {
        /// Label of the sent buffer.
        label: String,
        /// What is sent: `1025 f32`.
        sent: String,
        /// The receiver.
        to: Rank,
        /// The tag.
        tag: u64,
        /// The receive.
        recv: u32,
        /// What is received: `262144 f32`.
        received: String,
        /// Label of the receiving buffer.
        into: String,
    },
    /// A read of what nothing has written.
    #[error("reads bytes {start}..{end} of {label}, which nothing has written before")]
    ReadBeforeWrite {
        /// Label of the buffer.
        label: String,
        /// First such byte of the buffer.
        start: u64,
        /// Behind the last one in a row.
        end: u64,
    },
    /// A read of what was written through another buffer that lies in the same place.
    #[error("reads bytes {start}..{end} of {label}, but #{by} has put {other} there since")]
    ReadOverwritten {
        /// Label of the buffer.
        label: String,
        /// First such byte of the buffer.
        start: u64,
        /// Behind the last one in a row.
        end: u64,
        /// The buffer that lies there now.
        other: String,
        /// The instruction that wrote it.
        by: u32,
    },
    /// A buffer that starts at an odd place or in an arena that is not for its life.
    #[error("{label} lies at {arena}+{offset}: {why}")]
    Misplaced {
        /// Label of the buffer.
        label: String,
        /// Its arena.
        arena: Arena,
        /// Its first byte there.
        offset: u64,
        /// The rule that is broken.
        why: &'static str,
    },
    /// Two buffers whose contents live at the same time, in the same bytes.
    #[error(
        "{one} and {other} share {bytes} bytes of the {arena} arena, where all buffers live at once"
    )]
    BuffersOverlap {
        /// Label of the one.
        one: String,
        /// Label of the other.
        other: String,
        /// Their arena.
        arena: Arena,
        /// How many bytes both cover.
        bytes: u64,
    },
    /// A piece that leaves its buffer or its tensor.
    #[error("{label} holds a piece of tensor {tensor}: {why}")]
    PieceOutside {
        /// Label of the buffer.
        label: String,
        /// Name or number of the tensor.
        tensor: String,
        /// What does not fit.
        why: String,
    },
    /// An element of a tensor with two owners.
    #[error(
        "tensor {tensor}: {held:?} of row {row}, column {col} is owned by both {one} and {other}"
    )]
    OwnedTwice {
        /// Name of the tensor.
        tensor: String,
        /// What is held.
        held: Held,
        /// Row of the first such element that was found.
        row: u64,
        /// Its column.
        col: u64,
        /// The one owner: rank and buffer.
        one: String,
        /// The other owner.
        other: String,
    },
    /// Elements of a tensor without an owner.
    #[error("tensor {tensor}: {held:?} of {missing} of {len} elements is owned by nobody")]
    NotOwned {
        /// Name of the tensor.
        tensor: String,
        /// What is held.
        held: Held,
        /// Elements without an owner.
        missing: u64,
        /// Elements of the tensor.
        len: u64,
    },
    /// Instructions that wait for each other.
    #[error("hangs: {}", lines.join("; "))]
    Cycle {
        /// The shortest cycle, one line per wait: each node waits for the next, the last for the
        /// first.
        lines: Vec<String>,
        /// The instructions of the cycle, both halves of messages, in the order of the lines.
        instrs: Vec<(Rank, u32)>,
    },
}
