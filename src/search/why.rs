//! Why one layout is slower than another: both steps, part by part.

use serde::Serialize;

use super::{Cut, Search};
use crate::planner::cluster::classes::Knobs;
use crate::planner::cluster::topology;
use crate::predict::{Places, StepParts, step_parts, table};
use crate::sim::cost::Pricer;

/// Two predicted steps of a mean rank, part by part.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Of the faster layout.
    pub faster: StepParts,
    /// Of the slower one.
    pub slower: StepParts,
}

impl Comparison {
    /// Compares two layouts of a search.
    pub fn of(search: &Search<'_>, faster: &Cut, slower: &Cut) -> Self {
        let Search { space, cluster, constants, .. } = *search;
        let parts = |cut| {
            let workload = space.workload(cut);
            let (table, knobs) = (table(&workload, workload.batch.microbatches), Knobs::default());
            let places = Places::of(&topology(&workload, &table, cluster.node.gpus, &knobs));
            step_parts(&workload, &table, &places, Pricer { cluster, constants })
        };
        Self { faster: parts(faster), slower: parts(slower) }
    }

    /// Seconds that the slower one takes longer in each part, the largest difference first; their
    /// sum is what it loses.
    pub fn losses(&self) -> Vec<(&'static str, f64)> {
        let parts = self.faster.seconds().into_iter().zip(self.slower.seconds());
        let differences = parts.map(|(faster, slower)| slower - faster);
        let mut losses: Vec<_> = StepParts::NAMES.into_iter().zip(differences).collect();
        losses.sort_by(|(_, a), (_, b)| b.abs().total_cmp(&a.abs()));
        losses
    }
}
