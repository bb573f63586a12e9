//! Every send is met by a receive of equal length and type, and every receive by a send.

use super::{FaultKind, Faults, instrs, label};
use crate::plan::order::Order;
use crate::plan::{Action, Plan, View};

/// Checks all messages; a mismatch is reported at the send.
pub(super) fn check_messages(plan: &Plan, order: &Order, faults: &mut Faults) {
    let count = plan.programs.len();
    let size = |view: View| format!("{} {}", view.len, plan.buffer(view.buffer).dtype);
    for (rank, instr, line) in instrs(plan) {
        let peer = order.peer[rank.index()][instr as usize];
        match (&line.action, peer) {
            (
                Action::Send { view, to: other, .. } | Action::Recv { view, from: other, .. },
                None,
            ) if other.index() >= count => {
                let label = label(plan, view.buffer);
                faults.at(rank, instr, FaultKind::NoSuchRank { label, peer: *other, count });
            }
            (&Action::Send { view, to, tag, .. }, None) => {
                let (label, len) = (label(plan, view.buffer), view.len);
                faults.at(rank, instr, FaultKind::UnmatchedSend { label, len, to, tag: tag.0 });
            }
            (&Action::Recv { view, from, tag, .. }, None) => {
                let (label, len) = (label(plan, view.buffer), view.len);
                faults.at(rank, instr, FaultKind::UnmatchedRecv { label, len, from, tag: tag.0 });
            }
            (&Action::Send { view, to, tag, hops }, Some((_, recv))) => {
                let there = &plan.programs[to.index()].instrs[recv as usize].action;
                let &Action::Recv { view: into, hops: hops_there, .. } = there else {
                    unreachable!("the peer of a send is a receive")
                };
                let (mut sent, mut received) = (size(view), size(into));
                if hops != hops_there {
                    sent += &format!(" in {hops} hops");
                    received += &format!(" in {hops_there} hops");
                }
                if sent != received {
                    let kind = FaultKind::MessageMismatch {
                        label: label(plan, view.buffer),
                        sent,
                        to,
                        tag: tag.0,
                        recv,
                        received,
                        into: label(plan, into.buffer),
                    };
                    faults.at(rank, instr, kind);
                }
            }
            (Action::Recv { .. }, Some(_)) | (Action::Launch { .. } | Action::Copy { .. }, _) => {}
        }
    }
}
