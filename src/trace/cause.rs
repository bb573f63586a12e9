//! Why a rank waits: the wait that ended last, followed back to what was missing then.
//!
//! The answer is one hop long, the other rank and what it had to bring; what that rank was doing
//! itself is a question about its own row. Pictures (`draw`) and sums ([`super::idle`]) ask here.

use std::fmt;

use super::draw::{Work, label};
use super::{Span, Trace};
use crate::mesh::{Axis, Rank};
use crate::plan::order::Order;
use crate::plan::{Action, Instr, Origin, Plan};
use crate::units::Nanos;

/// What a waiting rank waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A message that is under way, or that the other rank cannot send yet.
    Message {
        /// The sender.
        from: Rank,
        /// Why the message is sent.
        origin: Origin,
    },
    /// Another rank has no room yet for what this one sends.
    Room {
        /// The receiver.
        to: Rank,
        /// Why the message is sent.
        origin: Origin,
    },
    /// The rank's own additions or copies beside its Compute lane.
    Beside {
        /// What they are part of.
        origin: Origin,
    },
    /// Nothing is missing: the device works for other ranks.
    Device,
    /// This rank is done; others are not.
    StepEnd,
}

impl Cause {
    /// The mesh axis of the message that is missing.
    pub fn axis(self) -> Option<Axis> {
        match self {
            Self::Message { origin, .. } | Self::Room { origin, .. } | Self::Beside { origin } => {
                origin.axis
            }
            Self::Device | Self::StepEnd => None,
        }
    }

    /// Whether another stage of the pipeline is what is missing.
    pub fn is_pipeline(self) -> bool {
        self.axis() == Some(Axis::Pp)
    }
}

/// Writes the end of a sentence that begins with the rank: `waits for B2 from rank 4`.
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message { from, origin } => {
                write!(f, "waits for {} from rank {from}", what(*origin))
            }
            Self::Room { to, origin } => {
                write!(f, "waits until rank {to} takes {}", what(*origin))
            }
            Self::Beside { origin } => write!(f, "waits for its own {}", what(*origin)),
            Self::Device => f.write_str("waits for its turn on the device"),
            Self::StepEnd => f.write_str("is done with this step"),
        }
    }
}

/// What a message brings: `B2`, `RS`, or the norm in words.
pub fn what(origin: Origin) -> String {
    match Work::of(origin) {
        Work::Norm => "the gradient norm".into(),
        work => label(work, origin.microbatch),
    }
}

/// What is missing while `rank` waits to run `next`, or for the end of the step; `held_by` is its
/// instruction that [`waited_for`] found.
pub(super) fn of(plan: &Plan, rank: Rank, next: Option<u32>, held_by: Option<u32>) -> Cause {
    let Some(held_by) = held_by else {
        return if next.is_some() { Cause::Device } else { Cause::StepEnd };
    };
    let Instr { action, origin, .. } = &plan.programs[rank.index()].instrs[held_by as usize];
    match *action {
        Action::Recv { from, .. } => Cause::Message { from, origin: *origin },
        Action::Send { to, .. } => Cause::Room { to, origin: *origin },
        Action::Launch { .. } | Action::Copy { .. } => Cause::Beside { origin: *origin },
    }
}

/// The instruction of `rank` that held `next` up during `idle`: a message that was missing, or its
/// own work on another lane; `None` if nothing did.
pub(super) fn waited_for(
    order: &Order,
    trace: &Trace,
    (rank, next): (Rank, u32),
    idle: Span,
) -> Option<u32> {
    let mut at = next;
    loop {
        if let Some((other, peer_instr)) = order.peer[rank.index()][at as usize] {
            // A message under way, or one that the other side holds up longer than this one does.
            let started = trace.span(rank, at as usize).start < idle.end;
            let mine = latest_end(order, trace, rank, at);
            if started || latest_end(order, trace, other, peer_instr) >= mine {
                return Some(at);
            }
        }
        // The latest end; of equal ones the later instruction.
        let before = order.predecessors(rank, at);
        let last = before.max_by_key(|&p| (trace.span(rank, p as usize).end, p));
        match last {
            Some(last) if trace.span(rank, last as usize).end > idle.start => at = last,
            _ => {
                let is_message = order.peer[rank.index()][at as usize].is_some();
                return (is_message || at != next).then_some(at);
            }
        }
    }
}

/// When the last thing that an instruction waits for on its own rank ended.
fn latest_end(order: &Order, trace: &Trace, rank: Rank, instr: u32) -> Nanos {
    let before = order.predecessors(rank, instr);
    before.map(|p| trace.span(rank, p as usize).end).max().unwrap_or_default()
}
