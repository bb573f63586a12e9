//! The order of a step: which instructions must have ended before one may start.
//!
//! [`derive()`] turns overlaps of memory into a short list of waits per instruction, once;
//! [`graph()`] joins the two halves of every message and gives the step's graph in flat arrays.
//! `exec`, `sim`, `check` and the visualizer all read these, so they cannot disagree.

use std::collections::BTreeMap;

use super::segments::Segments;
use super::{Action, Arena, Lane, Plan, Program, Tag};
use crate::mesh::Rank;

/// What every instruction waits for; all lists are indexed `[rank][instruction]`.
///
/// An instruction starts when its predecessor in its lane and all its waits have ended; a message
/// starts when that holds for both halves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// Earlier instructions of the same rank whose memory overlaps, ascending. Transitively
    /// reduced: what the lane or another wait already implies is left out.
    pub waits: Vec<Vec<Vec<u32>>>,
    /// The instruction before it in its lane; `None` for the first one and in [`Lane::Posted`].
    pub lane_prev: Vec<Vec<Option<u32>>>,
    /// The other half of a message: the n-th send of a (from, to, tag) and the n-th receive.
    /// `None` for an unmatched half and for what is no message.
    pub peer: Vec<Vec<Option<(Rank, u32)>>>,
}

impl Order {
    /// All direct predecessors of an instruction in its own rank: its waits, then its lane's.
    pub fn predecessors(&self, rank: Rank, instr: u32) -> impl Iterator<Item = u32> {
        let (rank, instr) = (rank.index(), instr as usize);
        self.waits[rank][instr].iter().copied().chain(self.lane_prev[rank][instr])
    }
}

/// Derives the order of a Plan from its lanes, its places and its messages.
///
/// # Cost
/// Near-linear in the number of instructions: one interval map per arena, one clock per lane.
pub fn derive(plan: &Plan) -> Order {
    let (waits, lane_prev) =
        plan.programs.iter().map(|program| RankOrder::derive(plan, program)).unzip();
    Order { waits, lane_prev, peer: peers(plan) }
}

/// Matches the halves of all messages by (from, to, tag).
fn peers(plan: &Plan) -> Vec<Vec<Option<(Rank, u32)>>> {
    type Half = (Rank, Rank, Tag, u32);
    let (mut sends, mut recvs): (Vec<Half>, Vec<Half>) = (Vec::new(), Vec::new());
    for (me, program) in (0..).map(Rank).zip(&plan.programs) {
        for (index, instr) in (0..).zip(&program.instrs) {
            match instr.action {
                Action::Send { to, tag, .. } => sends.push((me, to, tag, index)),
                Action::Recv { from, tag, .. } => recvs.push((from, me, tag, index)),
                Action::Launch { .. } | Action::Copy { .. } => {}
            }
        }
    }
    // Sorted by triple, then program order: walking both lists in step pairs the n-th with the
    // n-th.
    sends.sort_unstable();
    recvs.sort_unstable();
    let mut peer: Vec<Vec<_>> = plan.programs.iter().map(|p| vec![None; p.instrs.len()]).collect();
    let (mut s, mut r) = (0, 0);
    while let (Some(&(from, to, tag, send)), Some(&(from_r, to_r, tag_r, recv))) =
        (sends.get(s), recvs.get(r))
    {
        let compared = (from, to, tag).cmp(&(from_r, to_r, tag_r));
        if compared.is_eq() {
            peer[from.index()][send as usize] = Some((to, recv));
            peer[to.index()][recv as usize] = Some((from, send));
        }
        s += usize::from(compared.is_le());
        r += usize::from(compared.is_ge());
    }
    peer
}

/// The state of [`derive()`] for one rank.
struct RankOrder {
    /// Dense index of the lane of every instruction; `None` for [`Lane::Posted`].
    lane_of: Vec<Option<usize>>,
    lane_count: usize,
    /// `clocks[instr * lane_count + lane]`: instructions of `lane` below this index have ended when
    /// `instr` has ended.
    clocks: Vec<u32>,
    /// For a posted instruction, the (lane, instruction) that waited for it directly: whoever
    /// knows one of those to have ended knows this one to have ended.
    covers: Vec<Vec<(usize, u32)>>,
    /// For a posted instruction, the posted ones that it knows to have ended and its clock does
    /// not cover. Nearly always empty.
    loose: Vec<Vec<u32>>,
}

impl RankOrder {
    /// Waits and lane predecessors of one program.
    fn derive(plan: &Plan, program: &Program) -> (Vec<Vec<u32>>, Vec<Option<u32>>) {
        let (mut rank, lane_prev) = Self::lanes(program);
        let mut memory: BTreeMap<Arena, Segments<Touched>> = BTreeMap::new();
        let mut waits = Vec::with_capacity(program.instrs.len());
        let mut hazards = Vec::new();
        for (index, instr) in (0u32..).zip(&program.instrs) {
            let lane = rank.lane_of[index as usize];
            // Reads first: an output that is updated in place is read before it is written.
            for view in instr.action.reads().into_iter().filter(|view| view.len > 0) {
                let (arena, bytes) = plan.view_place(view);
                for (_, touched) in memory.entry(arena).or_default().in_range(bytes) {
                    touched.read(index, lane, &rank.lane_of, &mut hazards);
                }
            }
            for &view in instr.action.writes().iter().filter(|view| view.len > 0) {
                let (arena, bytes) = plan.view_place(view);
                let memory = memory.entry(arena).or_default();
                for (_, touched) in memory.in_range(bytes.clone()) {
                    hazards.extend(touched.writer);
                    hazards.extend(&touched.readers);
                }
                memory.replace(bytes, Touched { writer: Some(index), readers: Vec::new() });
            }
            waits.push(rank.reduce(index, lane_prev[index as usize], &mut hazards));
        }
        (waits, lane_prev)
    }

    /// Sorts the instructions into lanes.
    fn lanes(program: &Program) -> (Self, Vec<Option<u32>>) {
        let count = program.instrs.len();
        let (mut ids, mut last) = (BTreeMap::new(), Vec::new());
        let (mut lane_of, mut lane_prev) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for (index, instr) in (0u32..).zip(&program.instrs) {
            if instr.lane == Lane::Posted {
                lane_of.push(None);
                lane_prev.push(None);
                continue;
            }
            let lane = *ids.entry(instr.lane).or_insert(last.len());
            if lane == last.len() {
                last.push(None);
            }
            lane_of.push(Some(lane));
            lane_prev.push(last[lane].replace(index));
        }
        let lane_count = last.len();
        let rank = Self {
            lane_of,
            lane_count,
            clocks: vec![0; count * lane_count],
            covers: vec![Vec::new(); count],
            loose: vec![Vec::new(); count],
        };
        (rank, lane_prev)
    }

    fn clock(&self, instr: u32) -> &[u32] {
        &self.clocks[instr as usize * self.lane_count..][..self.lane_count]
    }

    /// Empties `hazards` into the fewest waits of `instr` that imply all of them.
    fn reduce(&mut self, instr: u32, lane_prev: Option<u32>, hazards: &mut Vec<u32>) -> Vec<u32> {
        let mut clock = match lane_prev {
            Some(prev) => self.clock(prev).to_vec(),
            None => vec![0; self.lane_count],
        };
        let lane = self.lane_of[instr as usize];
        if let Some(lane) = lane {
            clock[lane] = instr + 1;
        }
        // From the latest on: a later instruction may imply an earlier one, never the reverse.
        hazards.sort_unstable_by(|a, b| b.cmp(a));
        hazards.dedup();
        let (mut waits, mut loose) = (Vec::new(), Vec::new());
        for hazard in hazards.drain(..) {
            if hazard == instr || self.is_known(hazard, &clock, &loose) {
                continue;
            }
            waits.push(hazard);
            for (known, other) in clock.iter_mut().zip(self.clock(hazard)) {
                *known = (*known).max(*other);
            }
            if self.lane_of[hazard as usize].is_none() {
                let ended = std::iter::once(hazard).chain(self.loose[hazard as usize].clone());
                for posted in ended {
                    match lane {
                        _ if self.is_known(posted, &clock, &loose) => {}
                        Some(lane) => self.covers[posted as usize].push((lane, instr)),
                        None => loose.push(posted),
                    }
                }
            }
        }
        self.clocks[instr as usize * self.lane_count..][..self.lane_count].copy_from_slice(&clock);
        self.loose[instr as usize] = loose;
        waits.reverse();
        waits
    }

    /// Whether `clock` and `loose` imply that `earlier` has ended.
    fn is_known(&self, earlier: u32, clock: &[u32], loose: &[u32]) -> bool {
        match self.lane_of[earlier as usize] {
            Some(lane) => clock[lane] > earlier,
            None => {
                self.covers[earlier as usize].iter().any(|&(lane, by)| clock[lane] > by)
                    || loose.contains(&earlier)
            }
        }
    }
}

/// Who touched some bytes of an arena last.
#[derive(Clone, Default)]
struct Touched {
    writer: Option<u32>,
    /// Readers since the last write: the latest of each lane, which implies the earlier ones.
    readers: Vec<u32>,
}

impl Touched {
    /// Notes that `instr` of the lane `lane` reads, after collecting what it must wait for.
    fn read(
        &mut self,
        instr: u32,
        lane: Option<usize>,
        lane_of: &[Option<usize>],
        hazards: &mut Vec<u32>,
    ) {
        hazards.extend(self.writer);
        let implied = |reader: u32| lane.is_some() && lane_of[reader as usize] == lane;
        self.readers.retain(|&reader| !implied(reader));
        self.readers.push(instr);
    }
}

/// A vertex of the step's graph: an instruction, or both halves of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// The rank that runs it; of a message the sender.
    pub rank: Rank,
    /// Its instruction there; of a message the send.
    pub instr: u32,
    /// Of a message the receiver and its receive. `None` for an unmatched half as well.
    pub receive: Option<(Rank, u32)>,
}

impl Node {
    /// Its instructions: one, or of a message the send and the receive.
    pub fn instrs(self) -> impl Iterator<Item = (Rank, u32)> {
        std::iter::once((self.rank, self.instr)).chain(self.receive)
    }
}

/// The step's graph: lane order and waits between nodes, messages joined, in flat arrays.
///
/// To run it: count down `indegree` of the successors of each node that ends, and start whatever
/// reaches zero; start with the nodes whose in-degree is zero. An unmatched half of a message has
/// an in-degree of one more than its predecessors, so it never starts: its partner never comes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    /// The node of every instruction, `[rank][instruction]`.
    pub node_of: Vec<Vec<u32>>,
    /// All nodes, in the order of rank and program in which they are first met.
    pub nodes: Vec<Node>,
    /// How many ends each node waits for.
    pub indegree: Vec<u32>,
    /// Where the successors of each node start in `successor_list`; one more entry than nodes.
    pub successor_starts: Vec<u32>,
    /// Successors of all nodes, one after the other, each ascending.
    pub successor_list: Vec<u32>,
}

impl Graph {
    /// The nodes that wait for `node`, ascending.
    pub fn successors(&self, node: u32) -> &[u32] {
        let [start, end] = [0, 1].map(|i| self.successor_starts[node as usize + i] as usize);
        &self.successor_list[start..end]
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether every node can start some day: the step cannot hang.
    pub fn is_acyclic(&self) -> bool {
        let mut indegree = self.indegree.clone();
        let mut ready: Vec<u32> =
            (0u32..).zip(&indegree).filter(|(_, degree)| **degree == 0).map(|(id, _)| id).collect();
        let mut ended = 0;
        while let Some(node) = ready.pop() {
            ended += 1;
            for &next in self.successors(node) {
                indegree[next as usize] -= 1;
                if indegree[next as usize] == 0 {
                    ready.push(next);
                }
            }
        }
        ended == self.len()
    }

    /// Whether the step does nothing.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

/// Builds the graph of a step.
pub fn graph(plan: &Plan, order: &Order) -> Graph {
    let mut graph = Graph::default();
    for program in &plan.programs {
        graph.node_of.push(vec![u32::MAX; program.instrs.len()]);
    }
    for (rank, program) in (0..).map(Rank).zip(&plan.programs) {
        for (instr, line) in (0u32..).zip(&program.instrs) {
            let (me, peer) = ((rank, instr), order.peer[rank.index()][instr as usize]);
            let node = match (&line.action, peer) {
                (Action::Recv { .. }, Some((from, send))) => {
                    Node { rank: from, instr: send, receive: Some(me) }
                }
                _ => Node { rank, instr, receive: peer },
            };
            if graph.node_of[rank.index()][instr as usize] == u32::MAX {
                let id = node_id(graph.nodes.len());
                for (rank, instr) in node.instrs() {
                    graph.node_of[rank.index()][instr as usize] = id;
                }
                graph.nodes.push(node);
            }
        }
    }
    connect(plan, order, &mut graph);
    graph
}

fn node_id(index: usize) -> u32 {
    u32::try_from(index).expect("a step has fewer than 2^32 nodes")
}

/// Fills in-degrees and successors.
fn connect(plan: &Plan, order: &Order, graph: &mut Graph) {
    let mut edges = Vec::new();
    let mut before = Vec::new();
    for (id, node) in (0u32..).zip(&graph.nodes) {
        for (rank, instr) in node.instrs() {
            let node_of = &graph.node_of[rank.index()];
            before.extend(order.predecessors(rank, instr).map(|p| node_of[p as usize]));
        }
        // Both halves of a message may wait for both halves of another.
        before.sort_unstable();
        before.dedup();
        let alone = node.receive.is_none() && is_message(plan, node);
        graph.indegree.push(u32::try_from(before.len()).expect("few waits") + u32::from(alone));
        edges.extend(before.drain(..).map(|from| (from, id)));
    }
    // A counting sort by source; targets stay ascending.
    let mut starts = vec![0u32; graph.nodes.len() + 1];
    for (from, _) in &edges {
        starts[*from as usize + 1] += 1;
    }
    for i in 1..starts.len() {
        starts[i] += starts[i - 1];
    }
    let mut next = starts.clone();
    graph.successor_list = vec![0; edges.len()];
    for (from, to) in edges {
        graph.successor_list[next[from as usize] as usize] = to;
        next[from as usize] += 1;
    }
    graph.successor_starts = starts;
}

fn is_message(plan: &Plan, node: &Node) -> bool {
    let action = &plan.programs[node.rank.index()].instrs[node.instr as usize].action;
    matches!(action, Action::Send { .. } | Action::Recv { .. })
}

#[cfg(test)]
mod tests {
    //! The reduced waits are held against the definition: all pairs, all bytes, transitive closure.
    use super::*;
    use crate::mesh::Axis;
    use crate::plan::View;
    use crate::plan::sample::{Sample, one_f_one_b, pipeline, random_program};
    use proptest::prelude::*;

    /// `before[i][j]`: instruction `j` has ended when `i` starts, from direct edges.
    fn closure(count: usize, edges: impl Fn(usize) -> Vec<usize>) -> Vec<Vec<bool>> {
        let mut before = vec![vec![false; count]; count];
        for i in 0..count {
            for j in edges(i) {
                let (earlier, now) = before.split_at_mut(i);
                now[0][j] = true;
                for (mine, theirs) in now[0].iter_mut().zip(&earlier[j]) {
                    *mine |= theirs;
                }
            }
        }
        before
    }

    /// The definition of a hazard, pair by pair.
    fn conflict(plan: &Plan, a: &Action, b: &Action) -> bool {
        let meet = |x: View, y: View| {
            let ((arena_x, x), (arena_y, y)) = (plan.view_place(x), plan.view_place(y));
            arena_x == arena_y && x.start.max(y.start) < x.end.min(y.end)
        };
        let any = |xs: &[View], ys: &[View]| xs.iter().any(|x| ys.iter().any(|y| meet(*x, *y)));
        any(&a.reads(), b.writes()) || any(a.writes(), &b.reads()) || any(a.writes(), b.writes())
    }

    proptest! {
        #[test]
        fn waits_and_lanes_imply_exactly_all_hazards_and_none_is_spare(plan in random_program()) {
            let order = derive(&plan);
            let instrs = &plan.programs[0].instrs;
            let lane_edge = |i: usize| {
                let lane = instrs[i].lane;
                let same = |j: &usize| instrs[*j].lane == lane && lane != Lane::Posted;
                (0..i).rev().find(same)
            };
            let hazards = |i: usize| -> Vec<usize> {
                let meets = |j: &usize| conflict(&plan, &instrs[*j].action, &instrs[i].action);
                (0..i).filter(meets).chain(lane_edge(i)).collect()
            };
            let naive = closure(instrs.len(), hazards);
            let predecessors = |i: usize| -> Vec<usize> {
                let instr = u32::try_from(i).unwrap();
                order.predecessors(Rank(0), instr).map(|p| p as usize).collect()
            };
            let ours = closure(instrs.len(), predecessors);
            prop_assert_eq!(&ours, &naive);
            for (i, waits) in order.waits[0].iter().enumerate() {
                prop_assert!(waits.is_sorted());
                for wait in waits.iter().map(|wait| *wait as usize) {
                    let by_lane = lane_edge(i) == Some(wait);
                    let implied = |p: usize| p != wait && ours[p][wait];
                    let spare = by_lane || predecessors(i).into_iter().any(implied);
                    prop_assert!(!spare, "#{i} waits for #{wait}");
                }
            }
        }
    }

    #[test]
    fn a_receive_is_covered_by_the_launch_that_waited_for_it() {
        let mut sample = Sample::new(2);
        let [x, y] = ["x", "y"].map(|label| sample.step(0, label, 8));
        sample.recv(0, x, 1, 0);
        sample.add(0, x, x, y); // reads what arrived
        sample.add(0, x, x, y); // needs nothing but its lane
        sample.send(0, y, 1, 1);
        sample.recv(0, x, 1, 2); // its place is free after the last reader
        let order = derive(&sample.plan);
        assert_eq!(order.waits[0], [vec![], vec![0], vec![], vec![2], vec![2]]);
        assert_eq!(order.lane_prev[0], [None, None, Some(1), None, None]);
    }

    #[test]
    fn messages_pair_in_order_and_an_unmatched_half_never_starts() {
        let mut sample = Sample::new(2);
        let [a, b] = [0, 1].map(|rank| sample.step(rank, "x", 8));
        for tag in [7, 7, 9] {
            sample.send(0, a, 1, tag);
        }
        for tag in [8, 7, 7] {
            sample.recv(1, b, 0, tag);
        }
        let order = derive(&sample.plan);
        assert_eq!(order.peer[0], [Some((Rank(1), 1)), Some((Rank(1), 2)), None]);
        assert_eq!(order.peer[1], [None, Some((Rank(0), 0)), Some((Rank(0), 1))]);
        let graph = graph(&sample.plan, &order);
        assert_eq!(graph.len(), 4);
        let message = Node { rank: Rank(0), instr: 1, receive: Some((Rank(1), 2)) };
        assert_eq!(graph.nodes[1], message);
        assert_eq!(graph.node_of[1][2], 1);
        // The second message follows the first in the sender's lane and in the receiver's memory.
        assert_eq!(graph.successors(0), [1]);
        // Both unmatched halves miss their partner; the receive is also first in its place.
        assert_eq!(graph.indegree, [1, 1, 2, 1]);
    }

    #[test]
    fn the_graph_of_a_pipeline_runs_to_its_end() {
        let plan = pipeline(&one_f_one_b(4, 8));
        let order = derive(&plan);
        let graph = graph(&plan, &order);
        let messages = 2 * 3 * 8;
        assert_eq!(graph.len(), plan.instr_count() - messages);
        let mut left = graph.indegree.clone();
        let mut ready: Vec<u32> =
            (0u32..).zip(&left).filter(|(_, n)| **n == 0).map(|(i, _)| i).collect();
        let mut ended = 0;
        while let Some(node) = ready.pop() {
            ended += 1;
            for &next in graph.successors(node) {
                left[next as usize] -= 1;
                ready.extend((left[next as usize] == 0).then_some(next));
            }
        }
        assert_eq!(ended, graph.len());
    }

    #[test]
    fn sends_to_two_peers_run_in_lanes_of_their_own() {
        let mut sample = Sample::new(3);
        let x = sample.step(0, "x", 8);
        for to in [1, 2, 1] {
            sample.send(0, x, to, 0);
        }
        let order = derive(&sample.plan);
        assert_eq!(order.lane_prev[0], [None, None, Some(0)]);
        assert_eq!(sample.plan.programs[0].instrs[1].lane, Lane::Out(Axis::Pp, Rank(2)));
    }
}
