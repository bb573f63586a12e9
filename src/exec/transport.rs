//! Messages: staging bytes of those that cross memories, and what was counted on the way.
//!
//! Bytes are counted by whoever moves them, at the moment they arrive; nothing here is shared
//! with the ledger, which counts the same bytes from the Plan.

use super::Crossed;
use super::host::arenas::extent;
use super::host::memory::{Bindings, Extent};
use super::step::Run;
use super::tasks::{Home, Kind, Task, Tasks};
use crate::mesh::Rank;
use crate::plan::order::Order;
use crate::plan::{Action, Place, Plan, View};
use crate::trace::Path;

/// Where the staged messages of a Plan lie in its staging bytes.
#[derive(Debug)]
pub(super) struct Staging {
    /// First byte of the message that a task sends out; meaningless for other tasks.
    starts: Vec<u64>,
    /// Bytes of all messages.
    pub(super) bytes: u64,
}

impl Staging {
    /// Gives every message its own bytes: as many may be on the way at once.
    pub(super) fn new(plan: &Plan, tasks: &Tasks) -> Self {
        let mut bytes = 0;
        let starts = (0..tasks.list.len())
            .map(|task| {
                let start = bytes;
                let kind = tasks.list[task].kind;
                if matches!(kind, Kind::Stage { .. } | Kind::Download { .. }) {
                    let Task { rank, instr, .. } = tasks.list[task];
                    let view = message_view(plan, rank, instr).expect("a message has a view");
                    bytes += plan.view_bytes(view).0.next_multiple_of(Place::ALIGN);
                }
                start
            })
            .collect();
        Self { starts, bytes }
    }
}

/// Tells `bindings` what each task touches; the staging bytes are its arena `staging_arena`.
pub(super) fn bind(
    plan: &Plan,
    tasks: &Tasks,
    order: &Order,
    (staging, staging_arena): (&Staging, usize),
    bindings: &mut Bindings,
) {
    for (number, task) in tasks.list.iter().enumerate() {
        let instr = &plan.programs[task.rank.index()].instrs[task.instr as usize];
        let is_here = (task.set as usize) < tasks.host_set_count;
        let peer = order.peer[task.rank.index()][task.instr as usize];
        let own = |view| extent(plan, view);
        let staged = |sender: usize, view| {
            let start = staging.starts[sender];
            let bytes = start..start + plan.view_bytes(view).0;
            Extent { arena: staging_arena, bytes }
        };
        let sender = || {
            let (rank, send) = peer.expect("a message that arrives was sent");
            tasks.of_instr[rank.index()][send as usize] as usize
        };
        match (task.kind, &instr.action) {
            (Kind::Launch, Action::Launch { inputs, outputs, .. }) if is_here => {
                let extents = |views: &[View]| views.iter().map(|&view| own(view)).collect();
                bindings.push_launch(extents(inputs), extents(outputs));
            }
            (Kind::Copy, &Action::Copy { from, to }) if is_here => {
                bindings.push_copy(own(from), own(to));
            }
            (Kind::Message { .. }, &Action::Send { view, .. }) if is_here => {
                let (to, recv) = peer.expect("a joined message has two halves");
                let arrives = message_view(plan, to, recv).expect("its other half is a receive");
                bindings.push_copy(own(view), own(arrives));
            }
            (Kind::Stage { .. }, &Action::Send { view, .. }) => {
                bindings.push_copy(own(view), staged(number, view));
            }
            (Kind::Deliver { .. }, &Action::Recv { view, .. }) => {
                bindings.push_copy(staged(sender(), view), own(view));
            }
            (Kind::Download { .. }, &Action::Send { view, .. }) => {
                bindings.push_destination(staged(number, view));
            }
            (Kind::Upload { .. }, &Action::Recv { view, .. }) => {
                bindings.push_source(staged(sender(), view));
            }
            _ => bindings.push_nothing(),
        }
    }
}

/// The bytes that crossed in the last step.
pub(super) fn crossed(run: &Run) -> Crossed {
    let links = run.tasks.links.iter().enumerate();
    let counted = links.map(|(link, &(from, to, axis))| (from, to, axis, run.crossed(link)));
    Crossed { links: counted.filter(|&(.., bytes)| bytes > 0).collect() }
}

/// How a message gets from each rank to each other one.
pub(super) fn paths(homes: &[Home]) -> Vec<Vec<Path>> {
    let path = |from, to| if from == to { Path::Direct } else { Path::Staged };
    homes.iter().map(|&from| homes.iter().map(|&to| path(from, to)).collect()).collect()
}

/// The view of a send or a receive.
pub(super) fn message_view(plan: &Plan, rank: Rank, instr: u32) -> Option<View> {
    match plan.programs[rank.index()].instrs[instr as usize].action {
        Action::Send { view, .. } | Action::Recv { view, .. } => Some(view),
        Action::Launch { .. } | Action::Copy { .. } => None,
    }
}
