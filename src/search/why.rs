//! Why one layout is slower than another: both steps, part by part.

use serde::Serialize;

use super::{Cut, Search};
use crate::predict::{Conditions, StepParts, predict};

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
    ///
    /// # Panics
    /// If a layout has a schedule from a file that hangs: those of a search do not.
    pub fn of(search: &Search<'_>, faster: &Cut, slower: &Cut) -> Self {
        let conditions = Conditions { constants: *search.constants, ..Conditions::default() };
        let parts = |cut| {
            let prediction = predict(&search.space.workload(cut), search.cluster, &conditions);
            prediction.expect("a named schedule does not hang").parts
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
