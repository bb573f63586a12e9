//! The fastest layouts of a model on a described cluster, and the Pareto front of time and memory.
//!
//! [`Space`] lists every layout and refuses those that make no sense; what does not fit into memory
//! is refused too. For the rest, `bound` says a time that the step is never below. Layouts are
//! simulated in the order of these bounds, until no bound is below the tenth best and none can lie on
//! the front up to twice the best time: what is found is what simulating all of them would find.
//!
//! [`why`] tells what one layout loses to another, [`here`] searches the layouts of a real scenario on
//! this machine. Nothing here prints.

mod bound;
mod fitting;
mod front;
pub mod here;
mod listed;
mod parallel;
mod price;
mod simulated;
mod space;
pub mod why;

#[cfg(test)]
mod tests;

pub use space::{Cut, Refusal, Space};

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::ControlFlow;

use serde::Serialize;

use crate::config::Cluster;
use crate::predict::{step_seconds, table};
use crate::sim::cost::{Constants, Pricer};
use fitting::Fitting;
use front::Point;
use listed::Listed;
use parallel::in_parallel;
use simulated::Simulated;

/// How many of the fastest are looked for.
pub const BEST: usize = 10;

/// The front ends at layouts that take so many times as long as the fastest: nobody pays more.
pub const SLOWEST: f64 = 2.0;

/// Layouts that are simulated together: a constant, so that which are does not depend on the number of
/// threads.
const ROUND: usize = 16;

/// A search, to be [run](Search::run).
#[derive(Clone, Copy, Debug)]
pub struct Search<'a> {
    /// What is cut.
    pub space: &'a Space,
    /// Over which GPUs.
    pub cluster: &'a Cluster,
    /// Rates and overheads of predictions.
    pub constants: &'a Constants,
    /// Threads that look at layouts; they change nothing but how long it takes.
    pub threads: usize,
}

/// How far a search is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What it does.
    pub phase: Phase,
    /// What is known.
    pub counts: Counts,
}

/// What a search does, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// It lists layouts and refuses those that make no sense.
    Listing,
    /// It refuses what does not fit and says a bound for the rest.
    Bounding,
    /// It simulates the most promising.
    Simulating,
}

impl Phase {
    /// What is done, as a person says it.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Listing => "listing layouts",
            Self::Bounding => "memory and bounds",
            Self::Simulating => "simulating",
        }
    }
}

/// Hears how far a search is, and may end it.
pub type Tell<'a> = dyn FnMut(&Progress) -> ControlFlow<()> + 'a;

/// What has become of all layouts. At the end none is open: `enumerated` is the sum of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// All layouts.
    pub enumerated: u64,
    /// They make no sense or do not fit.
    pub refused: u64,
    /// Their bounds say that they are neither among the best nor on the front.
    pub bounded: u64,
    /// They were simulated.
    pub simulated: u64,
    /// Nothing is known yet.
    pub open: u64,
}

/// Layouts that were refused for one reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Refused {
    /// The reason.
    pub reason: Refusal,
    /// How many.
    pub count: u64,
    /// The first of them, in words.
    pub example: String,
}

/// A layout and its prediction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// The layout.
    pub cut: Cut,
    /// Predicted seconds of a step.
    pub step_seconds: f64,
    /// Predicted bytes of the fullest GPU.
    pub memory_bytes: f64,
    /// Operations of the model over the peak of the GPUs.
    pub mfu: f64,
}

/// What a search has found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The fastest, at most [`BEST`]; of equally fast ones those that take less memory first.
    pub best: Vec<Candidate>,
    /// What no other layout beats in both time and memory, the fastest first, up to [`SLOWEST`] times
    /// its time.
    pub front: Vec<Candidate>,
    /// What has become of all layouts.
    pub counts: Counts,
    /// By reason, those that were met.
    pub refused: Vec<Refused>,
    /// The layout that takes the least memory of a GPU, whether it fits or not, and its bytes.
    pub smallest: Option<(Cut, f64)>,
    /// Whether the search came to its end.
    pub is_complete: bool,
}

impl Search<'_> {
    /// Searches. `tell` hears how far it is, from the first moment on, and may end it: what was found
    /// until then is returned.
    pub fn run(&self, tell: &mut Tell<'_>) -> Found {
        let (mut listed, mut simulated) = (Listed::default(), Simulated::default());
        let end = self.search(&mut listed, &mut simulated, tell);
        listed.found(self, &simulated, end.is_continue())
    }

    fn search(
        &self,
        listed: &mut Listed,
        simulated: &mut Simulated,
        tell: &mut Tell<'_>,
    ) -> ControlFlow<()> {
        listed.list(self.space, tell)?;
        let fitting = Fitting::of(self, listed, tell)?;
        self.best_first(listed, &fitting, simulated, tell)
    }

    /// Simulates layouts in the order of their bounds.
    fn best_first(
        &self,
        listed: &mut Listed,
        fitting: &Fitting,
        simulated: &mut Simulated,
        tell: &mut Tell<'_>,
    ) -> ControlFlow<()> {
        let points = fitting.bounds.iter().copied();
        let mut heap: BinaryHeap<Reverse<Point>> = points.map(Reverse).collect();
        loop {
            let mut round = Vec::with_capacity(ROUND);
            while round.len() < ROUND
                && let Some(Reverse(next)) = heap.pop()
            {
                if simulated.rules_out(next) {
                    listed.counts.bounded += 1;
                    listed.counts.open -= 1;
                } else {
                    round.push(next);
                }
            }
            listed.tell(Phase::Simulating, tell)?;
            if round.is_empty() {
                return ControlFlow::Continue(());
            }
            let seconds = in_parallel(self.threads, &round, |point| {
                self.simulate(&listed.cuts[point.index as usize], fitting)
            });
            for (point, seconds) in round.into_iter().zip(seconds) {
                simulated.insert(Point { seconds, ..point });
                listed.counts.simulated += 1;
                listed.counts.open -= 1;
            }
        }
    }

    /// The predicted step of a layout, in seconds.
    fn simulate(&self, cut: &Cut, fitting: &Fitting) -> f64 {
        let Self { space, cluster, constants, .. } = *self;
        let workload = space.workload(cut);
        let table = table(&workload, workload.batch.microbatches);
        let places = fitting.places(self, cut);
        step_seconds(&workload, &table, places, Pricer { cluster, constants })
    }
}
