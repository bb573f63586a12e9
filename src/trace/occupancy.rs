//! What limits the devices of a measured step: kernels, messages, dispatch, or having nothing to run.
//!
//! Ranks that share a device take turns, so what one rank waits for says little about the wall
//! clock. Here a device is looked at instead: what runs on it, and what could run but does not.

use serde::Serialize;

use super::Trace;
use crate::mesh::Rank;
use crate::plan::order::Order;
use crate::plan::{Action, Plan};
use crate::units::Nanos;

/// A device: who runs on it, and how many instructions it runs at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its ranks.
    pub ranks: Vec<Rank>,
    /// Workers of the host, or 1.
    pub places: u32,
}

/// Shares of a step that devices spend on one thing each; they add up to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Occupancy {
    /// Kernels run.
    pub kernels: f64,
    /// Messages are moved.
    pub messages: f64,
    /// Instructions are ready and there is room for them, but they have not started.
    pub dispatch: f64,
    /// Nothing is ready: other devices are behind.
    pub waiting: f64,
}

/// What most of the devices' time goes into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// Arithmetic: faster kernels help.
    Kernels,
    /// Communication: fewer bytes help.
    Messages,
    /// Overhead: larger kernels, so fewer of them, help.
    Dispatch,
    /// Waiting: more microbatches or more equal stages help.
    Waiting,
}

impl Limit {
    /// The word that people read.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Kernels => "kernels",
            Self::Messages => "messages",
            Self::Dispatch => "dispatch",
            Self::Waiting => "waiting",
        }
    }
}

impl Occupancy {
    /// The mean of several devices over a step.
    pub fn of(plan: &Plan, order: &Order, trace: &Trace, devices: &[Device]) -> Self {
        let mut sum = Self::default();
        for device in devices {
            let one = Sweep::new(plan, order, trace, device).run(trace.end());
            sum.kernels += one.kernels / devices.len() as f64;
            sum.messages += one.messages / devices.len() as f64;
            sum.dispatch += one.dispatch / devices.len() as f64;
            sum.waiting += one.waiting / devices.len() as f64;
        }
        sum
    }

    /// The shares with what they are, in the order in which they are told.
    pub const fn shares(self) -> [(Limit, f64); 4] {
        [
            (Limit::Kernels, self.kernels),
            (Limit::Messages, self.messages),
            (Limit::Dispatch, self.dispatch),
            (Limit::Waiting, self.waiting),
        ]
    }

    /// The largest share.
    pub fn limit(self) -> Limit {
        let largest = self.shares().into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
        largest.map_or(Limit::Kernels, |(limit, _)| limit)
    }
}

/// How many of each kind there are on a device at an instant.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    kernels: i64,
    messages: i64,
    ready: i64,
}

/// How the counts change over a step.
struct Sweep {
    places: f64,
    /// When, and by how much.
    changes: Vec<(Nanos, Count)>,
}

impl Sweep {
    fn new(plan: &Plan, order: &Order, trace: &Trace, device: &Device) -> Self {
        let mut changes = Vec::new();
        let mut between = |start: Nanos, end: Nanos, count: Count| {
            let Count { kernels, messages, ready } = count;
            if start < end {
                changes.push((start, count));
                changes
                    .push((end, Count { kernels: -kernels, messages: -messages, ready: -ready }));
            }
        };
        for &rank in &device.ranks {
            for (index, instr) in (0u32..).zip(&plan.programs[rank.index()].instrs) {
                let span = trace.span(rank, index as usize);
                let peer = order.peer[rank.index()][index as usize];
                let is_message = matches!(instr.action, Action::Send { .. } | Action::Recv { .. });
                // A message inside the device is told by its sender.
                let is_told = matches!(instr.action, Action::Recv { .. })
                    && peer.is_some_and(|(from, _)| device.ranks.contains(&from));
                if is_told {
                    continue;
                }
                let sides = std::iter::once((rank, index)).chain(peer);
                let before = sides
                    .flat_map(|(rank, at)| order.predecessors(rank, at).map(move |p| (rank, p)));
                let ends = before.map(|(rank, p)| trace.span(rank, p as usize).end);
                let ready = ends.max().unwrap_or_default();
                let runs = match is_message {
                    true => Count { messages: 1, ..Count::default() },
                    false => Count { kernels: 1, ..Count::default() },
                };
                between(ready, span.start, Count { ready: 1, ..Count::default() });
                between(span.start, span.end, runs);
            }
        }
        changes.sort_unstable_by_key(|(at, _)| *at);
        Self { places: f64::from(device.places.max(1)), changes }
    }

    fn run(self, end: Nanos) -> Occupancy {
        let (mut now, mut at, mut sum) = (Count::default(), Nanos(0), Occupancy::default());
        let step = (end.0 as f64).max(1.0);
        let changes = self.changes.iter().copied().chain([(end, Count::default())]);
        for (when, change) in changes {
            let long = (when.0.saturating_sub(at.0)) as f64 / step;
            Self::add(self.places, now, long, &mut sum);
            at = at.max(when);
            now.kernels += change.kernels;
            now.messages += change.messages;
            now.ready += change.ready;
        }
        sum
    }

    /// Shares out a moment. Where nothing more is ready, an instruction may use the whole device, so
    /// places that are free then are nobody's fault.
    fn add(places: f64, now: Count, long: f64, sum: &mut Occupancy) {
        let [kernels, messages, ready] = [now.kernels, now.messages, now.ready].map(|n| n as f64);
        let running = kernels + messages;
        if running == 0.0 {
            *(if ready > 0.0 { &mut sum.dispatch } else { &mut sum.waiting }) += long;
            return;
        }
        let idle = (places - running).max(0.0).min(ready) / places;
        sum.dispatch += long * idle;
        sum.kernels += long * (1.0 - idle) * kernels / running;
        sum.messages += long * (1.0 - idle) * messages / running;
    }
}

#[cfg(test)]
mod tests {
    //! Steps of a pipeline on one device, laid out by hand.
    use super::*;
    use crate::plan::order;
    use crate::plan::sample::{one_f_one_b, pipeline, unit_durations};
    use crate::sim::{Links, lay_out, replay};
    use crate::trace::bubble::bubble;
    use crate::trace::{Clock, Span};

    /// The ranks of a pipeline take turns on one device: each launch takes `kernel`, each message
    /// `message`, and `dispatch` passes before either starts.
    fn turns(m: u32, [kernel, message, dispatch]: [u64; 3]) -> (Plan, Order, Trace) {
        let plan = pipeline(&one_f_one_b(4, m));
        let order = order::derive(&plan);
        let graph = order::graph(&plan, &order);
        // Any order that the graph allows, one after the other.
        let once = lay_out(&graph, &vec![Nanos(1); graph.len()]);
        let mut nodes: Vec<usize> = (0..graph.len()).collect();
        nodes.sort_by_key(|node| once[*node].unwrap().start);
        let mut trace = Trace {
            clock: Clock::Measured,
            step: 0,
            spans: plan.programs.iter().map(|p| vec![Span::default(); p.instrs.len()]).collect(),
            paths: Vec::new(),
        };
        let mut now = Nanos(0);
        for node in nodes.into_iter().map(|node| graph.nodes[node]) {
            let long = if node.receive.is_some() { message } else { kernel };
            let start = now + Nanos(dispatch);
            now = start + Nanos(long);
            for (rank, instr) in node.instrs() {
                trace.spans[rank.index()][instr as usize] = Span { start, end: now };
            }
        }
        (plan, order, trace)
    }

    fn occupancy(m: u32, costs: [u64; 3]) -> (Occupancy, f64) {
        let (plan, order, trace) = turns(m, costs);
        let device = Device { ranks: plan.mesh.ranks().collect(), places: 1 };
        let found = Occupancy::of(&plan, &order, &trace, &[device]);
        let sum: f64 = found.shares().iter().map(|share| share.1).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{found:?}");
        // A rank waits for its turn most of the time, whatever the device does.
        (found, bubble(&plan, &trace).waiting_over_span)
    }

    #[test]
    fn the_limit_of_a_small_model_on_one_device_is_dispatch_whatever_the_microbatches() {
        for m in [8, 16] {
            let (found, waiting) = occupancy(m, [2, 1, 6]);
            assert_eq!(found.limit(), Limit::Dispatch, "{found:?}");
            assert!(found.dispatch > 0.7 && found.waiting == 0.0, "{found:?}");
            assert!(waiting > 0.7, "{waiting}");
        }
        assert_eq!(occupancy(8, [90, 1, 6]).0.limit(), Limit::Kernels);
        assert_eq!(occupancy(8, [2, 90, 6]).0.limit(), Limit::Messages);
    }

    #[test]
    fn a_device_with_nothing_ready_waits_for_another_one() {
        let plan = pipeline(&one_f_one_b(4, 8));
        let order = order::derive(&plan);
        let graph = order::graph(&plan, &order);
        let durations = unit_durations(&plan, 10, &[1; 4]);
        let trace = replay(&plan, &graph, &durations, &Links::FREE, 0).unwrap();
        let own = |rank| Device { ranks: vec![rank], places: 1 };
        let devices: Vec<Device> = plan.mesh.ranks().map(own).collect();
        // On a device of its own each rank waits as the textbook says.
        let found = Occupancy::of(&plan, &order, &trace, &devices);
        assert!((found.waiting - 3.0 / 11.0).abs() < 1e-9, "{found:?}");
        assert!((found.kernels - 8.0 / 11.0).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn a_free_place_beside_something_ready_is_dispatch() {
        // One at a time, although four could run: where more than one is ready, places stay empty.
        let (plan, order, trace) = turns(8, [9, 1, 0]);
        let of = |places| {
            let device = Device { ranks: plan.mesh.ranks().collect(), places };
            Occupancy::of(&plan, &order, &trace, &[device])
        };
        assert_eq!((of(1).dispatch, of(1).waiting), (0.0, 0.0));
        assert!(of(4).dispatch > 0.2 && of(4).waiting == 0.0, "{:?}", of(4));
    }
}
