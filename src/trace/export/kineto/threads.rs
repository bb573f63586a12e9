//! The threads of a rank's process: each lane is one, as a profiler shows the streams of a device.

use std::collections::BTreeMap;

use crate::mesh::{Axis, Rank};
use crate::plan::{Action, Instr, Lane, Plan};

/// Thread of the Compute lane: the number of a stream, as profilers show it.
const COMPUTE: u64 = 7;
/// Thread of the Reduce lane.
const REDUCE: u64 = 8;
/// First thread of the messages that a rank sends; those that it receives follow.
const MESSAGES: u64 = 20;

/// The threads of a rank: its lanes, and one for what comes from each sender.
pub(super) struct Threads {
    pub(super) names: BTreeMap<u64, String>,
    sent: BTreeMap<(Axis, Rank), u64>,
    received: BTreeMap<(Option<Axis>, Rank), u64>,
}

impl Threads {
    pub(super) fn of(plan: &Plan, rank: Rank) -> Self {
        let names = BTreeMap::from([(COMPUTE, "compute".into()), (REDUCE, "reduce".into())]);
        let mut threads = Self { names, sent: BTreeMap::new(), received: BTreeMap::new() };
        let instrs = &plan.programs[rank.index()].instrs;
        for instr in instrs {
            if let Lane::Out(axis, to) = instr.lane {
                threads.sent.insert((axis, to), 0);
            }
            if let Action::Recv { from, .. } = instr.action {
                threads.received.insert((instr.origin.axis, from), 0);
            }
        }
        let mut next = MESSAGES..;
        for (&(axis, to), tid) in &mut threads.sent {
            *tid = next.next().unwrap_or(u64::MAX);
            threads.names.insert(*tid, format!("{axis} to rank {to}"));
        }
        for (&(axis, from), tid) in &mut threads.received {
            *tid = next.next().unwrap_or(u64::MAX);
            let axis = axis.map_or_else(String::new, |axis| format!("{axis} "));
            threads.names.insert(*tid, format!("{axis}from rank {from}"));
        }
        threads
    }

    pub(super) fn of_instr(&self, instr: &Instr) -> u64 {
        match (instr.lane, &instr.action) {
            (Lane::Compute, _) => COMPUTE,
            (Lane::Reduce, _) => REDUCE,
            (Lane::Out(axis, to), _) => self.sent[&(axis, to)],
            (Lane::Posted, Action::Recv { from, .. }) => self.received[&(instr.origin.axis, *from)],
            (Lane::Posted, _) => COMPUTE,
        }
    }
}
