//! Who waits for whom: the shortest cycle of the step's graph, and the state of a hang, in words.

use std::collections::{BTreeSet, VecDeque};

use crate::mesh::Rank;
use crate::plan::order::{Graph, Order};
use crate::plan::text::describe;
use crate::plan::{Action, Plan, View};

/// Edges that the search for the shortest cycle looks at before it settles for the shortest found
/// so far. Only huge Plans with long cycles get there.
const EDGES_MAX: usize = 1 << 26;

/// The nodes of a shortest cycle: each waits for the next one, the last for the first. `None`
/// proves that the step cannot hang, but for messages that miss their other half.
///
/// # Cost
/// Linear where there is no cycle.
pub fn shortest(graph: &Graph) -> Option<Vec<u32>> {
    let core = core(graph);
    let mut best: Option<Vec<u32>> = None;
    let mut search = Search { parent: vec![u32::MAX; graph.len()], seen: Vec::new(), edges: 0 };
    for start in back_edge_targets(graph, &core) {
        let len_max = best.as_ref().map_or(usize::MAX, |best| best.len() - 1);
        if len_max == 0 || search.edges > EDGES_MAX {
            break;
        }
        if let Some(cycle) = search.through(graph, &core, start, len_max) {
            best = Some(cycle);
        }
    }
    best
}

/// Whether each node is on a cycle or behind one: what is left when all that can run has run.
fn core(graph: &Graph) -> Vec<bool> {
    let nodes = || 0..u32::try_from(graph.len()).expect("node ids are u32");
    // Not `graph.indegree`: there unmatched messages never start, here they do.
    let mut left = vec![0u32; graph.len()];
    for &next in &graph.successor_list {
        left[next as usize] += 1;
    }
    let mut ready: Vec<u32> = nodes().filter(|node| left[*node as usize] == 0).collect();
    while let Some(node) = ready.pop() {
        for &next in graph.successors(node) {
            left[next as usize] -= 1;
            ready.extend((left[next as usize] == 0).then_some(next));
        }
    }
    left.into_iter().map(|left| left > 0).collect()
}

/// The nodes to which a depth-first search comes back: every cycle goes through one of them.
fn back_edge_targets(graph: &Graph, core: &[bool]) -> BTreeSet<u32> {
    #[derive(Clone, Copy, PartialEq)]
    enum Visit {
        New,
        Open,
        Done,
    }
    let mut visits = vec![Visit::New; core.len()];
    let mut targets = BTreeSet::new();
    for (root, _) in (0u32..).zip(core).filter(|(_, core)| **core) {
        if visits[root as usize] != Visit::New {
            continue;
        }
        visits[root as usize] = Visit::Open;
        let mut path = vec![(root, graph.successors(root).iter())];
        while let Some((node, successors)) = path.last_mut() {
            let Some(&next) = successors.next() else {
                visits[*node as usize] = Visit::Done;
                path.pop();
                continue;
            };
            match visits[next as usize] {
                Visit::New => {
                    visits[next as usize] = Visit::Open;
                    path.push((next, graph.successors(next).iter()));
                }
                Visit::Open => drop(targets.insert(next)),
                Visit::Done => {}
            }
        }
    }
    targets
}

/// Breadth-first searches that share their memory.
struct Search {
    /// From where each node was reached; `u32::MAX`: not reached.
    parent: Vec<u32>,
    seen: Vec<u32>,
    edges: usize,
}

impl Search {
    /// The shortest cycle through `start` of at most `len_max` nodes.
    fn through(
        &mut self,
        graph: &Graph,
        core: &[bool],
        start: u32,
        len_max: usize,
    ) -> Option<Vec<u32>> {
        for node in self.seen.drain(..) {
            self.parent[node as usize] = u32::MAX;
        }
        let mut queue = VecDeque::from([(start, 1)]);
        while let Some((node, len)) = queue.pop_front() {
            for &next in graph.successors(node) {
                self.edges += 1;
                if next == start {
                    // From the end of the path back to its start: each waits for the next.
                    let mut cycle = vec![node];
                    while let Some(&last) = cycle.last()
                        && last != start
                    {
                        cycle.push(self.parent[last as usize]);
                    }
                    return Some(cycle);
                }
                let new = self.parent[next as usize] == u32::MAX;
                if new && core[next as usize] && len < len_max {
                    self.parent[next as usize] = node;
                    self.seen.push(next);
                    queue.push_back((next, len + 1));
                }
            }
        }
        None
    }
}

/// A cycle of [`shortest`] in words, one line per wait.
pub fn explain(plan: &Plan, order: &Order, graph: &Graph, cycle: &[u32]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut arrived = None;
    for (index, &node) in cycle.iter().enumerate() {
        let next = cycle[(index + 1) % cycle.len()];
        let (rank, instr, earlier) = wait_between(order, graph, node, next);
        let other_half = arrived.is_some_and(|at| at != (rank, instr));
        let prefix = if other_half { "its other half " } else { "" };
        let (me, it) = (describe(plan, rank, instr), describe(plan, rank, earlier));
        let it = it.trim_start_matches(&format!("rank {rank} "));
        let why = why(plan, order, rank, instr, earlier);
        lines.push(format!("{prefix}{me} waits for {it}, {why}"));
        arrived = Some((rank, earlier));
    }
    lines
}

/// The rank in which `node` waits for `earlier`, and the two instructions there.
pub(super) fn wait_between(
    order: &Order,
    graph: &Graph,
    node: u32,
    earlier: u32,
) -> (Rank, u32, u32) {
    let [node, earlier] = [node, earlier].map(|node| graph.nodes[node as usize]);
    for (rank, instr) in node.instrs() {
        for before in earlier.instrs().filter(|(other, _)| *other == rank).map(|(_, i)| i) {
            if order.predecessors(rank, instr).any(|p| p == before) {
                return (rank, instr, before);
            }
        }
    }
    unreachable!("an edge of the graph comes from a wait or a lane")
}

/// Why an instruction waits for an earlier one of its rank.
fn why(plan: &Plan, order: &Order, rank: Rank, instr: u32, earlier: u32) -> String {
    let instrs = &plan.programs[rank.index()].instrs;
    let line = &instrs[instr as usize];
    if order.lane_prev[rank.index()][instr as usize] == Some(earlier) {
        return format!("which is before it in lane {}", line.lane);
    }
    let (now, before) = (&line.action, &instrs[earlier as usize].action);
    let met = |mine: &[View], theirs: &[View]| -> Option<String> {
        let meets = |theirs: &&View| {
            let (arena, a) = plan.view_place(**theirs);
            let mut mine = mine.iter().map(|mine| plan.view_place(*mine));
            mine.any(|(other, b)| arena == other && a.start.max(b.start) < a.end.min(b.end))
        };
        let view = theirs.iter().find(meets)?;
        Some(plan.buffer(view.buffer).label.clone())
    };
    if let Some(label) = met(&now.reads(), before.writes()) {
        format!("which writes {label}")
    } else if let Some(label) = met(now.writes(), &before.reads()) {
        format!("which reads {label} before its place is written again")
    } else if let Some(label) = met(now.writes(), before.writes()) {
        format!("which writes {label} into the same place first")
    } else {
        unreachable!("a wait comes from an overlap of memory")
    }
}

/// Where every rank stands that has not ended, one line a rank: for reports of a hang, when nothing
/// runs any more. `ended` tells which nodes have ended.
pub fn who_waits(
    plan: &Plan,
    order: &Order,
    graph: &Graph,
    ended: impl Fn(u32) -> bool,
) -> Vec<String> {
    // All before the first open instruction of a rank has ended, so it waits for nothing of its
    // own rank: it is a message that misses its other half.
    let first_open = |rank: Rank| -> Option<u32> {
        let nodes = (0u32..).zip(graph.node_of.get(rank.index())?);
        nodes.into_iter().find(|(_, node)| !ended(**node)).map(|(instr, _)| instr)
    };
    let mut lines = Vec::new();
    for rank in (0..).map(Rank).take(plan.programs.len()) {
        let Some(instr) = first_open(rank) else { continue };
        let me = describe(plan, rank, instr);
        let line = &plan.programs[rank.index()].instrs[instr as usize];
        let half = match line.action {
            Action::Send { to, .. } => Some((to, "receive")),
            Action::Recv { from, .. } => Some((from, "send")),
            Action::Launch { .. } | Action::Copy { .. } => None,
        };
        let peer = order.peer[rank.index()][instr as usize];
        lines.push(match (half, peer) {
            (None, _) => format!("{me} has not ended"),
            (Some((other, half)), None) => format!("{me} waits: rank {other} has no {half} for it"),
            (Some((other, half)), Some((_, peer))) => match first_open(other) {
                Some(at) if at != peer => {
                    let there = describe(plan, other, at);
                    format!(
                        "{me} waits for the {half} #{peer} of rank {other}, which is at {there}"
                    )
                }
                _ => format!("{me} has not ended"),
            },
        });
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::order;
    use crate::plan::sample::{Sample, one_f_one_b, pipeline};
    use proptest::prelude::*;

    /// A graph of bare edges.
    fn graph_of(count: u32, edges: &[(u32, u32)]) -> Graph {
        let mut graph = Graph::default();
        for from in 0..count {
            graph.successor_starts.push(u32::try_from(graph.successor_list.len()).unwrap());
            graph.nodes.push(order::Node { rank: Rank(0), instr: from, receive: None });
            graph.successor_list.extend(edges.iter().filter(|(f, _)| *f == from).map(|(_, to)| to));
        }
        graph.successor_starts.push(u32::try_from(graph.successor_list.len()).unwrap());
        graph
    }

    /// Length of the shortest cycle by all-pairs distances.
    fn girth(count: usize, edges: &[(u32, u32)]) -> Option<usize> {
        let mut distance = vec![vec![usize::MAX / 2; count]; count];
        for &(from, to) in edges {
            distance[from as usize][to as usize] = 1;
        }
        for via in 0..count {
            for from in 0..count {
                for to in 0..count {
                    let around = distance[from][via] + distance[via][to];
                    distance[from][to] = distance[from][to].min(around);
                }
            }
        }
        (0..count).map(|node| distance[node][node]).min().filter(|len| *len < usize::MAX / 2)
    }

    proptest! {
        #[test]
        fn the_cycle_is_as_short_as_any(
            edges in proptest::collection::btree_set((0u32..12, 0u32..12), 0..24),
        ) {
            let edges: Vec<_> = edges.into_iter().collect();
            let cycle = shortest(&graph_of(12, &edges));
            prop_assert_eq!(cycle.as_ref().map(Vec::len), girth(12, &edges));
            for (index, node) in cycle.iter().flatten().enumerate() {
                let cycle = cycle.as_ref().unwrap();
                let waits_for = cycle[(index + 1) % cycle.len()];
                prop_assert!(edges.contains(&(waits_for, *node)), "{:?} in {:?}", cycle, edges);
            }
        }
    }

    #[test]
    fn a_hang_is_told_rank_by_rank() {
        let mut plan = pipeline(&one_f_one_b(3, 1));
        // Rank 1 never sends its gradient; nothing of the last rank depends on that.
        plan.programs[1]
            .instrs
            .retain(|line| !matches!(line.action, Action::Send { to: Rank(0), .. }));
        let order = order::derive(&plan);
        let graph = order::graph(&plan, &order);
        let open = |node: u32| {
            let node = graph.nodes[node as usize];
            node.rank == Rank(0) && node.instr >= 2 && node.receive.is_none()
        };
        let lines = who_waits(&plan, &order, &graph, |node| !open(node));
        assert_eq!(
            lines,
            ["rank 0 #2 recv d_y.m0 from rank 1 (64 f32, tag 1) waits: rank 1 has no send for it"]
        );
    }

    #[test]
    fn a_mutual_wait_is_told_from_both_sides() {
        let mut sample = Sample::new(2);
        for (me, other) in [(0, 1), (1, 0)] {
            let x = sample.step(me, "x", 8);
            sample.send(me, x, other, me.into());
            sample.recv(me, x, other, other.into());
        }
        let order = order::derive(&sample.plan);
        let graph = order::graph(&sample.plan, &order);
        let lines = who_waits(&sample.plan, &order, &graph, |_| false);
        let line = |me, other| {
            format!(
                "rank {me} #0 send x to rank {other} (8 f32, tag {me}) waits for the receive #1 of \
                 rank {other}, which is at rank {other} #0 send x to rank {me} (8 f32, tag {other})"
            )
        };
        assert_eq!(lines, [line(0, 1), line(1, 0)]);
    }
}
