//! The event loop of ranks that share workers: when each node of a step's graph runs on the host
//! pool of some number of cores.
//!
//! The rules are those of `exec::host::worker`: a free worker takes a ready task of the rank that
//! it ran last, else the one that comes earliest in its rank's queue; with nothing to take it joins
//! an op that another worker has open, part by part; else it goes to sleep, and waking it takes
//! time. How long things take comes in as [`Work`]: the loop knows no kernels. With as many workers
//! as nodes it is [`super::lay_out`].

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::plan::order::Graph;
use crate::trace::Span;
use crate::units::Nanos;

/// What a node asks of the worker that runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// How long it takes one worker while no other one works.
    pub alone: Nanos,
    /// How long it takes one worker while all of them work.
    pub crowded: Nanos,
    /// Equal parts that different workers may run; at least 1.
    pub parts: u32,
    /// Whether sleeping workers are woken for its parts.
    pub wakes: bool,
}

impl Work {
    /// One part that takes as long whoever else works.
    pub fn of(duration: Nanos) -> Self {
        Self { alone: duration, crowded: duration, parts: 1, wakes: false }
    }

    /// Nanoseconds of one part while `busy` of `count` workers work.
    fn part(&self, busy: usize, count: usize) -> f64 {
        let (alone, crowded) = (self.alone.0 as f64, self.crowded.0 as f64);
        let share = match count {
            0 | 1 => 0.0,
            _ => busy.saturating_sub(1) as f64 / (count - 1) as f64,
        };
        (alone + (crowded - alone) * share) / f64::from(self.parts.max(1))
    }
}

/// The workers that share the ranks' work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workers {
    /// How many; at least 1.
    pub count: u32,
    /// From work to the start of a worker that slept.
    pub wake: Nanos,
    /// How long a worker without work looks for some before it sleeps.
    pub patience: Nanos,
}

/// When each node runs on shared workers. Nodes that wait for themselves or for a message that
/// nobody sends never run.
///
/// # Panics
/// If there is no worker, or not one [`Work`] for each node.
pub fn lay_out_on(graph: &Graph, works: &[Work], workers: &Workers) -> Vec<Option<Span>> {
    assert!(workers.count > 0, "somebody must work");
    assert_eq!(graph.len(), works.len(), "every node has its work");
    let mut pool = Pool::new(graph, works, workers);
    pool.run();
    let nanos = |time: f64| Nanos(time.round() as u64);
    let span = |&(start, end): &(f64, f64)| Span { start: nanos(start), end: nanos(end) };
    let spans = pool.spans.iter();
    spans.map(|times| (times.1 >= 0.0).then(|| span(times))).collect()
}

/// A worker's moment.
#[derive(Clone, Copy, Debug)]
enum Doing {
    /// Runs a part of a node, for so many more nanoseconds at the present speed.
    Part { node: u32, left: f64 },
    /// Has run its last part of an op that it opened, and waits for those who joined.
    Closing,
    /// Looks for work, or sleeps, since this time.
    Idle { since: f64 },
    /// Wakes up at this time.
    Waking { at: f64 },
}

/// An op whose parts are shared.
#[derive(Clone, Copy, Debug)]
struct Open {
    node: u32,
    /// Parts that nobody has claimed.
    unclaimed: u32,
    /// Parts that have not ended.
    unfinished: u32,
}

struct Seat {
    doing: Doing,
    /// The rank whose task it took last.
    last: usize,
    open: Option<Open>,
}

struct Pool<'a> {
    graph: &'a Graph,
    works: &'a [Work],
    workers: &'a Workers,
    seats: Vec<Seat>,
    /// Ready tasks of each rank by their number in its queue.
    ready: Vec<BinaryHeap<Reverse<(u32, u32)>>>,
    /// The number of each node in the queue of its rank.
    turns: Vec<u32>,
    left: Vec<u32>,
    /// Start and end of each node; below 0: not yet.
    spans: Vec<(f64, f64)>,
    now: f64,
    busy: usize,
}

impl<'a> Pool<'a> {
    fn new(graph: &'a Graph, works: &'a [Work], workers: &'a Workers) -> Self {
        let rank_count = graph.node_of.len();
        let seat = |index: usize| Seat {
            // The caller of a step is the first worker; the others sleep between steps.
            doing: Doing::Idle { since: if index == 0 { 0.0 } else { f64::NEG_INFINITY } },
            last: index % rank_count.max(1),
            open: None,
        };
        let mut pool = Self {
            graph,
            works,
            workers,
            seats: (0..workers.count as usize).map(seat).collect(),
            ready: vec![BinaryHeap::new(); rank_count],
            turns: turns(graph),
            left: graph.indegree.clone(),
            spans: vec![(-1.0, -1.0); graph.len()],
            now: 0.0,
            busy: 0,
        };
        for (node, _) in (0u32..).zip(&graph.indegree).filter(|(_, left)| **left == 0) {
            pool.publish(node);
        }
        pool
    }

    fn run(&mut self) {
        self.offer();
        while let Some((worker, time)) = self.next_event() {
            self.pass(time);
            match self.seats[worker].doing {
                Doing::Part { node, .. } => self.end_part(worker, node),
                Doing::Waking { .. } => self.seats[worker].doing = Doing::Idle { since: time },
                Doing::Closing | Doing::Idle { .. } => unreachable!("nothing happens to them"),
            }
            // Whoever became free looks first, then the others do.
            self.seek(worker);
            self.offer();
        }
    }

    /// The worker to whom something happens next, and when.
    fn next_event(&self) -> Option<(usize, f64)> {
        let times = self.seats.iter().enumerate().filter_map(|(worker, seat)| match seat.doing {
            Doing::Part { left, .. } => Some((worker, self.now + left)),
            Doing::Waking { at } => Some((worker, at)),
            Doing::Closing | Doing::Idle { .. } => None,
        });
        times.min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Lets time go on until `time`.
    fn pass(&mut self, time: f64) {
        let passed = time - self.now;
        for seat in &mut self.seats {
            if let Doing::Part { left, .. } = &mut seat.doing {
                *left = (*left - passed).max(0.0);
            }
        }
        self.now = time;
    }

    /// A part of `node` that `worker` ran has ended.
    fn end_part(&mut self, worker: usize, node: u32) {
        self.seats[worker].doing = Doing::Idle { since: self.now };
        self.work(-1);
        let owner = self.seats.iter().position(|seat| seat.open.is_some_and(|o| o.node == node));
        let Some(owner) = owner else { return self.end(node) };
        let open = self.seats[owner].open.as_mut().expect("its owner was just found");
        open.unfinished -= 1;
        if open.unfinished == 0 {
            self.seats[owner].open = None;
            if owner != worker {
                self.seats[owner].doing = Doing::Idle { since: self.now };
            }
            self.end(node);
            // The owner ends the task, and so is the first to see what became ready.
            self.seek(owner);
        } else if worker == owner && open.unclaimed == 0 {
            self.seats[worker].doing = Doing::Closing;
        }
    }

    /// A node has ended: what waited only for it is ready.
    fn end(&mut self, node: u32) {
        self.spans[node as usize].1 = self.now;
        for &next in self.graph.successors(node) {
            self.left[next as usize] -= 1;
            if self.left[next as usize] == 0 {
                self.publish(next);
            }
        }
    }

    fn publish(&mut self, node: u32) {
        let rank = self.graph.nodes[node as usize].rank.index();
        self.ready[rank].push(Reverse((self.turns[node as usize], node)));
    }

    /// An idle worker takes what it finds: its own op's next part, a ready task, a part of
    /// somebody's op.
    fn seek(&mut self, worker: usize) {
        if !matches!(self.seats[worker].doing, Doing::Idle { .. }) {
            return;
        }
        if self.seats[worker].open.is_some_and(|open| open.unclaimed > 0) {
            self.join(worker, worker);
        } else if let Some(node) = self.claim(worker) {
            self.start(worker, node);
        } else if let Some(owner) = self.seats.iter().position(has_parts) {
            self.join(worker, owner);
        }
    }

    /// A ready task: of the worker's last rank, else the earliest.
    fn claim(&mut self, worker: usize) -> Option<u32> {
        let last = self.seats[worker].last;
        let rank = match self.ready.get(last).is_some_and(|ready| !ready.is_empty()) {
            true => last,
            false => {
                let lowest = self.ready.iter().enumerate().filter_map(|(rank, ready)| {
                    let Reverse((turn, _)) = ready.peek()?;
                    Some((*turn, rank))
                });
                lowest.min()?.1
            }
        };
        self.seats[worker].last = rank;
        self.ready[rank].pop().map(|Reverse((_, node))| node)
    }

    fn start(&mut self, worker: usize, node: u32) {
        self.spans[node as usize].0 = self.now;
        let parts = self.works[node as usize].parts;
        if parts > 1 && self.seats.len() > 1 {
            self.seats[worker].open = Some(Open { node, unclaimed: parts, unfinished: parts });
            self.join(worker, worker);
        } else {
            // All parts in a row.
            self.work(1);
            let left = self.part(node) * f64::from(parts.max(1));
            self.seats[worker].doing = Doing::Part { node, left };
        }
    }

    /// Runs the next part of the op that `owner` has open.
    fn join(&mut self, worker: usize, owner: usize) {
        let open = self.seats[owner].open.as_mut().expect("an op with parts left");
        open.unclaimed -= 1;
        let node = open.node;
        self.work(1);
        self.seats[worker].doing = Doing::Part { node, left: self.part(node) };
    }

    fn part(&self, node: u32) -> f64 {
        self.works[node as usize].part(self.busy, self.seats.len())
    }

    /// Tells those without work of what there is: the patient take it, sleepers wake up.
    fn offer(&mut self) {
        for worker in 0..self.seats.len() {
            if let Doing::Idle { since } = self.seats[worker].doing
                && self.now - since <= self.workers.patience.0 as f64
            {
                self.seek(worker);
            }
        }
        let awake = self.seats.iter().filter(|seat| matches!(seat.doing, Doing::Waking { .. }));
        let tasks: usize = self.ready.iter().map(BinaryHeap::len).sum();
        let mut wanted = (tasks + self.parts_worth_waking()).saturating_sub(awake.count());
        for worker in 0..self.seats.len() {
            if wanted > 0 && matches!(self.seats[worker].doing, Doing::Idle { .. }) {
                wanted -= 1;
                let at = self.now + self.workers.wake.0 as f64;
                self.seats[worker].doing = Doing::Waking { at };
            }
        }
    }

    fn parts_worth_waking(&self) -> usize {
        let open = self.seats.iter().filter_map(|seat| seat.open);
        let worth = open.filter(|open| self.works[open.node as usize].wakes);
        worth.map(|open| open.unclaimed as usize).sum()
    }

    /// One worker more or fewer works: all others go faster or slower from now on.
    fn work(&mut self, change: isize) {
        let (before, count) = (self.busy, self.seats.len());
        self.busy = before.saturating_add_signed(change);
        for seat in &mut self.seats {
            if let Doing::Part { node, left } = &mut seat.doing {
                let work = &self.works[*node as usize];
                let slow = work.part(before, count);
                // Nothing takes no time at any speed.
                if slow > 0.0 {
                    *left *= work.part(self.busy, count) / slow;
                }
            }
        }
    }
}

fn has_parts(seat: &Seat) -> bool {
    seat.open.is_some_and(|open| open.unclaimed > 0)
}

/// The number of each node in the queue of the rank that runs it: its program without receives.
fn turns(graph: &Graph) -> Vec<u32> {
    let mut turns = vec![0; graph.len()];
    for (rank, nodes) in graph.node_of.iter().enumerate() {
        let own = nodes.iter().enumerate().filter(|&(instr, &node)| {
            let at = &graph.nodes[node as usize];
            at.rank.index() == rank && at.instr as usize == instr
        });
        for (turn, (_, &node)) in (0..).zip(own) {
            turns[node as usize] = turn;
        }
    }
    turns
}

#[cfg(test)]
mod tests {
    //! Hand-computed schedules, conservation of work, and the loop of ranks with their own devices.
    use super::*;
    use crate::plan::order;
    use crate::plan::sample::{Sample, one_f_one_b, pipeline, random_program};
    use crate::plan::{Lane, Plan, View};
    use crate::sim::lay_out;
    use proptest::prelude::*;

    fn graph_of(plan: &Plan) -> Graph {
        order::graph(plan, &order::derive(plan))
    }

    fn prompt(count: u32) -> Workers {
        Workers { count, wake: Nanos(0), patience: Nanos(0) }
    }

    /// Ranks that only compute, `counts[rank]` ops in a row each, and nothing between ranks.
    fn rows(counts: &[u32]) -> (Graph, Vec<Vec<u32>>) {
        let mut sample = Sample::new(u32::try_from(counts.len()).unwrap());
        for (rank, count) in (0..).zip(counts) {
            let x = sample.step(rank, "x", 8);
            for _ in 0..*count {
                sample.fill(rank, x);
            }
        }
        let graph = graph_of(&sample.plan);
        let nodes = graph.node_of.clone();
        (graph, nodes)
    }

    fn times(spans: &[Option<Span>], nodes: &[u32]) -> Vec<(u64, u64)> {
        let span = |node: &u32| spans[*node as usize].unwrap();
        nodes.iter().map(span).map(|span| (span.start.0, span.end.0)).collect()
    }

    fn timed(graph: &Graph, nanos: impl Fn(u32) -> u64) -> Vec<Work> {
        (0..graph.len() as u32).map(|node| Work::of(Nanos(nanos(node)))).collect()
    }

    #[test]
    fn a_worker_stays_with_its_rank_and_then_takes_what_comes_earliest() {
        let (graph, nodes) = rows(&[1, 3, 2]);
        let spans = lay_out_on(&graph, &timed(&graph, |_| 10), &prompt(2));
        // Worker 0 begins with rank 0 and worker 1 with rank 1. Rank 0 is over after one op: rank
        // 2's first comes earlier than rank 1's second, which worker 1 takes in any case.
        assert_eq!(times(&spans, &nodes[0]), [(0, 10)]);
        assert_eq!(times(&spans, &nodes[1]), [(0, 10), (10, 20), (20, 30)]);
        assert_eq!(times(&spans, &nodes[2]), [(10, 20), (20, 30)]);
    }

    #[test]
    fn waking_takes_time_unless_the_worker_still_looks_for_work() {
        let (graph, nodes) = rows(&[2, 1]);
        let workers = Workers { count: 2, wake: Nanos(7), patience: Nanos(0) };
        let spans = lay_out_on(&graph, &timed(&graph, |_| 10), &workers);
        assert_eq!(times(&spans, &nodes[0]), [(0, 10), (10, 20)]);
        assert_eq!(times(&spans, &nodes[1]), [(7, 17)], "it slept before the step");

        // Rank 0: an op, and then a message and another op at once. Rank 1: one op.
        let mut sample = Sample::new(2);
        let [x, z] = ["x", "z"].map(|label| sample.step(0, label, 8));
        let [y, w] = ["y", "w"].map(|label| sample.step(1, label, 8));
        let mine = [sample.fill(0, x), sample.send(0, x, 1, 0), sample.fill(0, z)];
        let other = sample.fill(1, w);
        sample.recv(1, y, 0, 0);
        let graph = graph_of(&sample.plan);
        let nodes = mine.map(|instr| graph.node_of[0][instr as usize]);
        let other = graph.node_of[1][other as usize];
        let works = timed(&graph, |node| if node == nodes[0] { 30 } else { 10 });
        for (patience, start) in [(0, 37), (12, 37), (13, 30), (50, 30)] {
            let workers = Workers { patience: Nanos(patience), ..workers };
            let spans = lay_out_on(&graph, &works, &workers);
            assert_eq!(times(&spans, &[other]), [(7, 17)], "by worker 1, which is idle since 17");
            // The message is first in the queue, so worker 0 goes on with it.
            let expected = [(0, 30), (30, 40), (start, start + 10)];
            assert_eq!(times(&spans, &nodes), expected, "patience {patience}");
        }
    }

    #[test]
    fn idle_workers_join_an_op_part_by_part_and_nobody_else_is_woken_for_small_ones() {
        let (graph, nodes) = rows(&[1]);
        let op = |parts, wakes| vec![Work { parts, wakes, ..Work::of(Nanos(60)) }];
        let end = |work: &[Work], workers: &Workers| {
            times(&lay_out_on(&graph, work, workers), &nodes[0])[0].1
        };
        assert_eq!(end(&op(6, true), &prompt(1)), 60);
        assert_eq!(end(&op(6, true), &prompt(2)), 30);
        assert_eq!(end(&op(6, true), &prompt(3)), 20);
        assert_eq!(end(&op(6, true), &prompt(8)), 10, "no more helpers than parts");
        assert_eq!(end(&op(6, false), &prompt(3)), 60, "not worth waking anybody");
        assert_eq!(end(&op(1, true), &prompt(3)), 60);
        // The helper comes at 25 and finds parts 3, 4 and 5 left, of which it runs two.
        let late = Workers { count: 2, wake: Nanos(25), patience: Nanos(0) };
        assert_eq!(end(&op(6, true), &late), 45);
    }

    #[test]
    fn a_helper_takes_ready_tasks_before_parts() {
        // Rank 0: one op of four parts. Rank 1: two ops, ready at once in two lanes.
        let mut sample = Sample::new(2);
        let x = sample.step(0, "x", 8);
        let [y, z] = ["y", "z"].map(|label| sample.step(1, label, 8));
        let split = sample.fill(0, x);
        let [first, second] = [sample.fill(1, y), sample.fill(1, z)];
        sample.plan.programs[1].instrs[1].lane = Lane::Reduce;
        let graph = graph_of(&sample.plan);
        let node = |rank: usize, instr: u32| graph.node_of[rank][instr as usize];
        let nodes = [node(0, split), node(1, first), node(1, second)];
        let mut work = timed(&graph, |_| 10);
        work[nodes[0] as usize] = Work { parts: 4, wakes: true, ..Work::of(Nanos(80)) };
        let spans = lay_out_on(&graph, &work, &prompt(2));
        // Worker 0 runs parts at 0, 20, 40; worker 1 both ops of rank 1, and from 20 on a part.
        assert_eq!(times(&spans, &nodes), [(0, 60), (0, 10), (10, 20)]);
    }

    #[test]
    fn those_who_work_together_slow_one_another_down() {
        let (graph, nodes) = rows(&[1, 1]);
        let work = |alone, crowded| Work { crowded: Nanos(crowded), ..Work::of(Nanos(alone)) };
        let mut works = vec![work(10, 10); 2];
        works[nodes[0][0] as usize] = work(30, 60);
        works[nodes[1][0] as usize] = work(10, 20);
        let spans = lay_out_on(&graph, &works, &prompt(2));
        // Until 20 both work, at half speed; what is left of the long one then takes 20.
        assert_eq!(times(&spans, &nodes[1]), [(0, 20)]);
        assert_eq!(times(&spans, &nodes[0]), [(0, 40)]);
        // Of four workers two are busy: a third of the way from alone to crowded.
        let spans = lay_out_on(&graph, &works, &prompt(4));
        assert_eq!(times(&spans, &nodes[1]), [(0, 13)]);
    }

    #[test]
    fn what_waits_for_itself_never_runs() {
        let mut sample = Sample::new(2);
        for (me, other) in [(0, 1), (1, 0)] {
            let x: View = sample.step(me, "x", 8);
            sample.send(me, x, other, me.into());
            sample.recv(me, x, other, other.into());
        }
        let graph = graph_of(&sample.plan);
        let spans = lay_out_on(&graph, &timed(&graph, |_| 1), &prompt(2));
        assert!(spans.iter().all(Option::is_none));
    }

    /// Any durations and parts for the nodes of a graph.
    fn drawn(graph: &Graph, seed: &[(u64, u64, u32)]) -> Vec<Work> {
        let work = |node: usize| {
            let (alone, more, parts) = seed[node % seed.len()];
            let (alone, crowded) = (Nanos(alone), Nanos(alone + more));
            Work { alone, crowded, parts, wakes: parts > 2 }
        };
        (0..graph.len()).map(work).collect()
    }

    fn seeds() -> impl Strategy<Value = Vec<(u64, u64, u32)>> {
        proptest::collection::vec((0u64..50, 0u64..20, 1u32..5), 64)
    }

    fn pipelines() -> impl Strategy<Value = Plan> {
        (1u32..5, 1u32..5).prop_map(|(p, m)| pipeline(&one_f_one_b(p, m)))
    }

    /// Also programs whose messages nobody receives.
    fn plans() -> impl Strategy<Value = Plan> {
        prop_oneof![pipelines(), random_program()]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn as_many_workers_as_nodes_are_ranks_with_devices_of_their_own(
            plan in plans(), seed in seeds(),
        ) {
            let graph = graph_of(&plan);
            let whole = |work: Work| Work::of(work.alone);
            let works: Vec<Work> = drawn(&graph, &seed).into_iter().map(whole).collect();
            let durations: Vec<Nanos> = works.iter().map(|work| work.alone).collect();
            let many = prompt(u32::try_from(graph.len().max(1)).unwrap());
            prop_assert_eq!(lay_out_on(&graph, &works, &many), lay_out(&graph, &durations));
        }

        #[test]
        fn one_worker_takes_the_sum_of_all_and_is_never_idle(plan in pipelines(), seed in seeds()) {
            let graph = graph_of(&plan);
            let works = drawn(&graph, &seed);
            let spans = lay_out_on(&graph, &works, &prompt(1));
            let sum: u64 = works.iter().map(|work| work.alone.0).sum();
            let busy: u64 = spans.iter().map(|span| span.unwrap().duration().0).sum();
            let end = spans.iter().map(|span| span.unwrap().end.0).max().unwrap_or(0);
            prop_assert_eq!((busy, end), (sum, sum));
        }

        #[test]
        fn order_holds_work_is_conserved_and_nobody_idles_while_something_is_ready(
            plan in pipelines(), seed in seeds(), count in 2u32..6,
        ) {
            let graph = graph_of(&plan);
            let whole = |work: Work| Work::of(work.alone);
            let works: Vec<Work> = drawn(&graph, &seed).into_iter().map(whole).collect();
            let spans: Vec<Span> =
                lay_out_on(&graph, &works, &prompt(count)).into_iter().map(Option::unwrap).collect();
            for node in 0..graph.len() {
                prop_assert_eq!(spans[node].duration(), works[node].alone);
                for &next in graph.successors(node as u32) {
                    prop_assert!(spans[next as usize].start >= spans[node].end);
                }
            }
            let at = |time: u64| {
                spans.iter().filter(|s| s.start.0 <= time && time < s.end.0).count()
            };
            let busy: u64 = works.iter().map(|work| work.alone.0).sum();
            let end = spans.iter().map(|span| span.end.0).max().unwrap_or(0);
            prop_assert_eq!((0..end).map(|time| at(time) as u64).sum::<u64>(), busy);
            prop_assert!((0..end).all(|time| at(time) <= count as usize));
            // Graham's bound for any list scheduling: busy / count + the longest path.
            let durations: Vec<Nanos> = works.iter().map(|work| work.alone).collect();
            let path = lay_out(&graph, &durations).iter().flatten().map(|s| s.end.0).max();
            let bound = busy.div_ceil(count.into()) + path.unwrap_or(0);
            prop_assert!(end <= bound, "{} of at most {}", end, bound);
        }
    }
}
