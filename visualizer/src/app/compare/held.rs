//! A step that is held against another one: its timeline, and the four numbers that are compared.

use std::sync::Arc;

use shardlab::trace::bubble::{Bubble, bubble};
use shardlab::trace::draw::timeline::Timeline;
use shardlab::trace::{Badge, Trace};
use shardlab::train::driver::Facts;
use shardlab::units::{Bytes, Nanos};

use crate::shown::Step;
use crate::texts;

/// A step that is compared.
#[derive(Debug)]
pub struct Held {
    /// What it is, in a few words.
    pub name: String,
    /// Where its times come from.
    pub badge: Badge,
    /// Its blocks.
    pub timeline: Arc<Timeline>,
    /// The share of forward and backward in which its ranks wait.
    pub waiting: f64,
    /// The most that a rank holds at once, and where that number comes from.
    pub peak: (Bytes, Badge),
    /// What crosses between ranks, and where that number comes from.
    pub sent: (Bytes, Badge),
}

impl Held {
    /// A step of a run on the clock of this run.
    pub(super) fn measured(facts: &Facts, trace: &Arc<Trace>) -> Self {
        Self::timed(format!("step {}, measured", trace.step + 1), facts, trace)
    }

    /// The step of a run as it is predicted for this machine.
    pub(super) fn predicted(facts: &Facts, trace: &Arc<Trace>) -> Self {
        Self::timed("predicted for this machine".into(), facts, trace)
    }

    fn timed(name: String, facts: &Facts, trace: &Arc<Trace>) -> Self {
        let waits = bubble(&facts.plan, trace);
        let peaks: Vec<_> = facts.ledger.ranks.iter().map(|rank| rank.memory.at_peak).collect();
        let plan = Arc::clone(&facts.plan);
        let timeline = Timeline::new(plan, &facts.order, Arc::clone(trace), &peaks);
        Self::of_run(name, facts, Arc::new(timeline), &waits)
    }

    /// The step on the screen as if every rank had its own device.
    pub(super) fn replayed(step: &Step) -> Self {
        let name = format!("step {}, replayed", step.number() + 1);
        Self::of_run(name, &step.facts, Arc::clone(&step.timeline), &step.bubble)
    }

    /// The same, to be kept while other runs come and go.
    pub(in crate::app) fn pinned(step: &Step) -> Self {
        let scenario = &step.facts.scenario;
        let (cuts, schedule) = (texts::cuts(&scenario.layout), &scenario.layout.schedule);
        let name = format!("pinned step {}: {cuts}, {}", step.number() + 1, schedule.title());
        Self { name, ..Self::replayed(step) }
    }

    fn of_run(name: String, facts: &Facts, timeline: Arc<Timeline>, waits: &Bubble) -> Self {
        let peaks = facts.ledger.ranks.iter().map(|rank| rank.memory.peak());
        Self {
            name,
            badge: waits.clock.into(),
            timeline,
            waiting: waits.waiting_over_span,
            peak: (peaks.max().unwrap_or_default(), Badge::Counted),
            sent: (facts.ledger.bytes(), Badge::Counted),
        }
    }

    /// The length of the step.
    pub fn length(&self) -> Nanos {
        self.timeline.end()
    }

    /// Whether two steps run the same instructions, so that a block of one is found in the other.
    pub fn has_plan_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(self.timeline.plan(), other.timeline.plan())
    }
}
