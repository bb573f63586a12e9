//! What the executor schedules: the instructions of a Plan, joined, placed and numbered.
//!
//! A message inside one memory is one task, as it is one node of the step's graph. One that
//! crosses memories is two, out to staging bytes and in from there, so that a sender goes on as
//! soon as its bytes are out: an executor may buffer more, that never adds a wait. Tasks are
//! numbered set by set: a set for each rank on the host, in program order, then one for each
//! device, over all its ranks.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::mesh::{Axis, Rank};
use crate::ops::Kernel;
use crate::plan::order::Order;
use crate::plan::{Action, Lane, Plan};

/// Where a rank lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Home {
    /// In the host's memory, run by the pool.
    Host,
    /// On a device.
    Device(usize),
}

/// What a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A kernel.
    Launch,
    /// A copy inside a rank.
    Copy,
    /// A message inside one memory, both halves.
    Message { link: u32 },
    /// A message leaves the host's memory.
    Stage { link: u32 },
    /// A message leaves a device.
    Download { link: u32 },
    /// A message arrives in the host's memory.
    Deliver { link: u32 },
    /// A message arrives on a device.
    Upload { link: u32 },
    /// Half of a message whose other half does not exist: never ready.
    Unmatched,
}

/// A task.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    /// Whose instruction it is; of a message in one memory the sender.
    pub(super) rank: Rank,
    /// Which instruction.
    pub(super) instr: u32,
    /// What it does.
    pub(super) kind: Kind,
    /// Which ready set it belongs to.
    pub(super) set: u32,
    /// Parts of its kernel.
    pub(super) part_count: u32,
    /// Flops + bytes: its share of a batch's time.
    pub(super) work: u64,
    /// Whether it is long enough that waking others for its parts pays.
    pub(super) is_worth_waking: bool,
}

/// Flops + bytes below which an op ends before a sleeping worker could help.
pub(super) const WORK_WORTH_WAKING: u64 = 200_000;

/// All tasks of a Plan and the edges between them.
#[derive(Debug)]
pub(super) struct Tasks {
    /// All tasks, set by set.
    pub(super) list: Vec<Task>,
    /// The first task of each set, and the number of tasks.
    pub(super) set_starts: Vec<u32>,
    /// The sets below this one belong to host ranks, the others to devices in their order.
    pub(super) host_set_count: usize,
    /// The device of each set from `host_set_count` on.
    pub(super) devices: Vec<usize>,
    /// The task of each instruction, `[rank][instruction]`.
    pub(super) of_instr: Vec<Vec<u32>>,
    /// How many predecessors each task has; one more for unmatched halves.
    pub(super) indegree: Vec<u32>,
    /// Tasks without predecessors.
    pub(super) roots: Vec<u32>,
    /// Where each task's successors start; one more entry than tasks.
    successor_starts: Vec<u32>,
    /// Where those start that must see the task *ended*; the ones before are in the same device's
    /// queue and only need it *encoded*.
    ended_starts: Vec<u32>,
    /// All successors.
    successors: Vec<u32>,
    /// What carries messages: (from, to, axis), sorted.
    pub(super) links: Vec<(Rank, Rank, Axis)>,
}

impl Tasks {
    /// Joins, places and numbers the instructions of a Plan.
    pub(super) fn new(plan: &Plan, order: &Order, homes: &[Home]) -> Self {
        let builder = Builder { plan, order, homes, links: links(plan) };
        let mut found = builder.find();
        // Sets in the order of homes; inside a set what lets others go on first, then by program.
        found.sort_by_key(|(set, task)| {
            let leaves = matches!(task.kind, Kind::Download { .. });
            (*set, !leaves, task.instr, task.rank)
        });
        let mut sets: Vec<Set> = found.iter().map(|(set, _)| *set).collect();
        sets.dedup();
        let set_index: BTreeMap<Set, u32> = sets.iter().copied().zip(0..).collect();
        let mut of_instr: Vec<Vec<u32>> =
            plan.programs.iter().map(|program| vec![0; program.instrs.len()]).collect();
        let mut set_starts = vec![0; sets.len() + 1];
        let mut list = Vec::with_capacity(found.len());
        for (number, (set, mut task)) in (0..).zip(found) {
            task.set = set_index[&set];
            set_starts[task.set as usize + 1] = number + 1;
            of_instr[task.rank.index()][task.instr as usize] = number;
            if let (Kind::Message { .. }, Some((peer, instr))) =
                (task.kind, order.peer[task.rank.index()][task.instr as usize])
            {
                of_instr[peer.index()][instr as usize] = number;
            }
            list.push(task);
        }
        let devices: Vec<usize> = sets
            .iter()
            .filter_map(|set| match set {
                Set::Rank(_) => None,
                Set::Device(device) => Some(*device),
            })
            .collect();
        let mut tasks = Self {
            host_set_count: sets.len() - devices.len(),
            list,
            set_starts,
            devices,
            of_instr,
            indegree: Vec::new(),
            roots: Vec::new(),
            successor_starts: Vec::new(),
            ended_starts: Vec::new(),
            successors: Vec::new(),
            links: builder.links,
        };
        tasks.connect(plan, order);
        tasks
    }

    /// The tasks of a set.
    pub(super) fn set(&self, set: usize) -> Range<u32> {
        self.set_starts[set]..self.set_starts[set + 1]
    }

    /// The set of a device; `None` if no rank lives there.
    pub(super) fn device_set(&self, device: usize) -> Option<usize> {
        let index = self.devices.iter().position(|&d| d == device)?;
        Some(self.host_set_count + index)
    }

    /// Successors that may be encoded once this task is.
    pub(super) fn after_encoded(&self, task: u32) -> &[u32] {
        let task = task as usize;
        let range = self.successor_starts[task] as usize..self.ended_starts[task] as usize;
        &self.successors[range]
    }

    /// Successors that may start once this task has ended.
    pub(super) fn after_ended(&self, task: u32) -> &[u32] {
        let task = task as usize;
        let range = self.ended_starts[task] as usize..self.successor_starts[task + 1] as usize;
        &self.successors[range]
    }

    /// Derives the edges: lanes and waits inside a rank, and the two legs of a staged message.
    fn connect(&mut self, plan: &Plan, order: &Order) {
        // (before, must have ended, after)
        let mut edges: Vec<(u32, bool, u32)> = Vec::new();
        for (rank, program) in plan.mesh.ranks().zip(&plan.programs) {
            let of = &self.of_instr[rank.index()];
            for instr in 0..program.instrs.len() as u32 {
                let task = of[instr as usize];
                for before in order.predecessors(rank, instr) {
                    edges.push(self.edge(of[before as usize], task));
                }
                let Some((peer, other)) = order.peer[rank.index()][instr as usize] else {
                    continue;
                };
                let other = self.of_instr[peer.index()][other as usize];
                let kind = self.list[task as usize].kind;
                if matches!(kind, Kind::Stage { .. } | Kind::Download { .. }) {
                    edges.push((task, true, other));
                }
            }
        }
        edges.sort_unstable();
        edges.dedup();
        let count = self.list.len();
        self.indegree = vec![0; count];
        self.successor_starts = vec![0; count + 1];
        self.ended_starts = vec![0; count];
        for &(before, must_end, after) in &edges {
            self.indegree[after as usize] += 1;
            self.successor_starts[before as usize + 1] += 1;
            self.ended_starts[before as usize] += u32::from(!must_end);
        }
        for task in 0..count {
            self.successor_starts[task + 1] += self.successor_starts[task];
            self.ended_starts[task] += self.successor_starts[task];
        }
        self.successors = edges.iter().map(|&(_, _, after)| after).collect();
        for (task, indegree) in self.list.iter().zip(&mut self.indegree) {
            *indegree += u32::from(task.kind == Kind::Unmatched);
        }
        self.roots = (0..).zip(&self.indegree).filter(|(_, n)| **n == 0).map(|(t, _)| t).collect();
    }

    fn edge(&self, before: u32, after: u32) -> (u32, bool, u32) {
        let (from, to) = (self.list[before as usize].set, self.list[after as usize].set);
        let same_queue = from == to && from as usize >= self.host_set_count;
        (before, !same_queue, after)
    }
}

/// Who runs a set of tasks. Host ranks come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Set {
    Rank(Rank),
    Device(usize),
}

/// Turns instructions into tasks.
struct Builder<'a> {
    plan: &'a Plan,
    order: &'a Order,
    homes: &'a [Home],
    links: Vec<(Rank, Rank, Axis)>,
}

impl Builder<'_> {
    fn find(&self) -> Vec<(Set, Task)> {
        let mut found = Vec::with_capacity(self.plan.instr_count());
        for (rank, program) in self.plan.mesh.ranks().zip(&self.plan.programs) {
            for instr in 0..program.instrs.len() as u32 {
                found.extend(self.task(rank, instr));
            }
        }
        found
    }

    /// The task of an instruction; `None` for a receive that its send's task includes.
    fn task(&self, rank: Rank, instr: u32) -> Option<(Set, Task)> {
        let home = self.homes[rank.index()];
        let at = &self.plan.programs[rank.index()].instrs[instr as usize];
        let peer = self.order.peer[rank.index()][instr as usize];
        let bytes = |view| self.plan.view_bytes(view).0;
        let (kind, part_count, work) = match &at.action {
            Action::Launch { op, .. } => {
                (Kind::Launch, op.parts(), op.flops().0 + op.signature().bytes().0)
            }
            Action::Copy { from, .. } => (Kind::Copy, 1, 2 * bytes(*from)),
            Action::Send { view, to, .. } => {
                let kind = match (peer, home) {
                    (None, _) => Kind::Unmatched,
                    _ if home == self.homes[to.index()] => {
                        Kind::Message { link: self.link(rank, instr) }
                    }
                    (_, Home::Host) => Kind::Stage { link: self.link(rank, instr) },
                    (_, Home::Device(_)) => Kind::Download { link: self.link(rank, instr) },
                };
                (kind, 1, 2 * bytes(*view))
            }
            Action::Recv { view, from, .. } => {
                let kind = match (peer, home) {
                    (None, _) => Kind::Unmatched,
                    _ if home == self.homes[from.index()] => return None,
                    (Some((from, send)), Home::Host) => {
                        Kind::Deliver { link: self.link(from, send) }
                    }
                    (Some((from, send)), Home::Device(_)) => {
                        Kind::Upload { link: self.link(from, send) }
                    }
                };
                (kind, 1, 2 * bytes(*view))
            }
        };
        let set = match home {
            Home::Host => Set::Rank(rank),
            Home::Device(device) => Set::Device(device),
        };
        let is_worth_waking = part_count > 1 && work >= WORK_WORTH_WAKING;
        Some((set, Task { rank, instr, kind, set: 0, part_count, work, is_worth_waking }))
    }

    /// The link that a send takes.
    fn link(&self, from: Rank, send: u32) -> u32 {
        let link = link(from, self.plan.programs[from.index()].instrs[send as usize].lane);
        let link = link.expect("a send is validated to be in a lane out");
        self.links.binary_search(&link).expect("all links were collected") as u32
    }
}

/// The links that the sends of a Plan take, sorted.
fn links(plan: &Plan) -> Vec<(Rank, Rank, Axis)> {
    let sends = plan.mesh.ranks().zip(&plan.programs).flat_map(|(rank, program)| {
        program.instrs.iter().filter_map(move |instr| match instr.action {
            Action::Send { .. } => link(rank, instr.lane),
            Action::Launch { .. } | Action::Recv { .. } | Action::Copy { .. } => None,
        })
    });
    let mut links: Vec<_> = sends.collect();
    links.sort_unstable();
    links.dedup();
    links
}

fn link(from: Rank, lane: Lane) -> Option<(Rank, Rank, Axis)> {
    match lane {
        Lane::Out(axis, to) => Some((from, to, axis)),
        Lane::Compute | Lane::Reduce | Lane::Posted => None,
    }
}
