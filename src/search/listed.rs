//! All layouts, those refused that make no sense: what a search begins with.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::front::Point;
use super::simulated::Simulated;
use super::{
    Candidate, Counts, Cut, Found, Phase, Progress, Refusal, Refused, Search, Space, Tell,
};
use crate::predict::Rate;

/// Layouts between two reports of progress.
const REPORT: u64 = 1 << 14;

/// All layouts that make sense, and what was refused.
#[derive(Debug, Default)]
pub(super) struct Listed {
    /// Those that make sense.
    pub(super) cuts: Vec<Cut>,
    pub(super) counts: Counts,
    pub(super) refused: Vec<Refused>,
    pub(super) smallest: Option<(Cut, f64)>,
}

impl Listed {
    /// Lists the layouts of a space.
    pub(super) fn list(&mut self, space: &Space, tell: &mut Tell<'_>) -> ControlFlow<()> {
        let mut refused: BTreeMap<Refusal, Refused> = BTreeMap::new();
        let end = space.each(|cut| {
            if self.counts.enumerated.is_multiple_of(REPORT) {
                self.tell(Phase::Listing, tell)?;
            }
            self.counts.enumerated += 1;
            if let Some(reason) = space.refuses(&cut) {
                let first = || Refused { reason, count: 0, example: space.example(reason, &cut) };
                refused.entry(reason).or_insert_with(first).count += 1;
                self.counts.refused += 1;
            } else {
                self.cuts.push(cut);
                self.counts.open += 1;
            }
            ControlFlow::Continue(())
        });
        self.refused = refused.into_values().collect();
        end
    }

    /// Tells how far the search is.
    pub(super) fn tell(&self, phase: Phase, tell: &mut Tell<'_>) -> ControlFlow<()> {
        tell(&Progress { phase, counts: self.counts })
    }

    /// What has come of it.
    pub(super) fn found(
        self,
        search: &Search<'_>,
        simulated: &Simulated,
        is_complete: bool,
    ) -> Found {
        let candidate = |point: &Point| {
            let cut = self.cuts[point.index as usize].clone();
            let workload = search.space.workload(&cut);
            let mfu = Rate::of(&workload, search.cluster, point.seconds).mfu;
            Candidate { cut, step_seconds: point.seconds, memory_bytes: point.memory, mfu }
        };
        Found {
            best: simulated.best.iter().map(candidate).collect(),
            front: simulated.front().map(candidate).collect(),
            counts: self.counts,
            refused: self.refused,
            smallest: self.smallest,
            is_complete,
        }
    }
}
