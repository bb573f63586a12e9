//! Seconds of a predicted step and nothing else of it, for those who ask thousands of times: a
//! search, a fit.
//!
//! The Plan that `planner::cluster` writes is run without being written: the rows of the schedule
//! move the clocks of the lanes (`run`) by the prices of their passes (`price`), on one rank of each
//! class (`places`). A test holds the end against the written Plan's to the nanosecond.

mod places;
mod price;
mod run;

#[cfg(test)]
mod tests;

pub(crate) use places::Places;

use super::parts::{Done, StepParts};
use super::{table, with_overheads};
use crate::config::Cluster;
use crate::config::workload::Workload;
use crate::planner::cluster::classes::Knobs;
use crate::planner::cluster::topology;
use crate::planner::schedule::Schedule;
use crate::sim::cost::{Constants, Pricer};
use crate::trace::Span;
use crate::units::Nanos;
use places::Place;
use price::Prices;
use run::Notes;

/// When a step of a named schedule ends, in seconds from its start; without what lies outside of the
/// schedule.
///
/// # Panics
/// If rows of the table wait for one another: those of named schedules do not.
pub(crate) fn step_seconds(
    workload: &Workload,
    table: &Schedule,
    places: &Places,
    pricer: Pricer<'_>,
) -> f64 {
    noting(workload, table, places, pricer, &mut ()).1
}

/// When its schedule ends, and the seconds of the step; `notes` hears what is done.
fn noting(
    workload: &Workload,
    table: &Schedule,
    places: &Places,
    pricer: Pricer<'_>,
    notes: &mut impl Notes,
) -> (Nanos, f64) {
    let prices = Prices::of(workload, places, table, pricer);
    let end = run::end(&prices, places, table, notes);
    (end, with_overheads(end.as_secs(), workload, pricer.constants))
}

/// Where these seconds go.
///
/// # Panics
/// As [`step_seconds`].
pub(crate) fn step_parts(
    workload: &Workload,
    table: &Schedule,
    places: &Places,
    pricer: Pricer<'_>,
) -> StepParts {
    let mut noted = Noted::new(places);
    let (end, step_seconds) = noting(workload, table, places, pricer, &mut noted);
    StepParts::of_done(noted.0.into_iter().flatten(), end, step_seconds)
}

/// All that is done, by position and class.
struct Noted(Vec<Vec<Done>>);

impl Noted {
    fn new(places: &Places) -> Self {
        let done = |place: &Place| Done { members: place.members, ..Done::default() };
        Self(places.positions.iter().map(|classes| classes.iter().map(done).collect()).collect())
    }
}

impl Notes for Noted {
    fn pass(&mut self, (row, class): (usize, usize), from: u64, to: u64) {
        self.0[row][class].passes.push(Span { start: Nanos(from), end: Nanos(to) });
    }

    fn update(&mut self, (row, class): (usize, usize), from: u64, to: u64) {
        self.0[row][class].updates.push(Span { start: Nanos(from), end: Nanos(to) });
    }

    fn moving(&mut self, (row, class): (usize, usize), from: u64, to: u64) {
        self.0[row][class].moving.push(Span { start: Nanos(from), end: Nanos(to) });
    }
}

/// A workload of a named schedule, to be priced any number of times.
#[derive(Clone, Debug)]
pub struct Prepared {
    workload: Workload,
    cluster: Cluster,
    table: Schedule,
    places: Places,
}

impl Prepared {
    /// Prepares a workload.
    ///
    /// # Panics
    /// If its schedule is a file.
    pub fn new(workload: &Workload, cluster: &Cluster) -> Self {
        let table = table(workload, workload.batch.microbatches);
        let knobs = Knobs::default();
        let places = Places::of(&topology(workload, &table, cluster.node.gpus, &knobs));
        Self { workload: workload.clone(), cluster: cluster.clone(), table, places }
    }

    /// Seconds of the step: what [`super::predict`] says.
    pub fn seconds(&self, constants: &Constants) -> f64 {
        let Self { workload, cluster, table, places } = self;
        step_seconds(workload, table, places, Pricer { cluster, constants })
    }
}
