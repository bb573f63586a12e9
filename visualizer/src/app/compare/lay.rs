//! Plans another layout of the model that is trained and lays its step out, without running it: on a
//! thread of its own, from the times of what has run.

use std::sync::Arc;

use shardlab::config::Layout;
use shardlab::ledger::Ledger;
use shardlab::plan::order;
use shardlab::planner::{Purpose, StepSpec, plan_step};
use shardlab::sim::pieces::Pieces;
use shardlab::sim::{Links, median_durations};
use shardlab::trace::bubble::bubble;
use shardlab::trace::draw::timeline::Timeline;
use shardlab::trace::{Badge, Trace};
use shardlab::train::driver::Facts;

use super::Held;
use super::choice::name_of;
use crate::latest::Cancel;

/// What is asked.
#[derive(Clone, Debug)]
pub(super) struct Question {
    /// The layout.
    pub(super) layout: Layout,
    /// What has run.
    pub(super) facts: Arc<Facts>,
    /// Its last steps, at least one.
    pub(super) recent: Vec<Arc<Trace>>,
}

/// What has come of it.
#[derive(Debug)]
pub(super) struct Answer {
    /// The layout that was asked for.
    pub(super) layout: Layout,
    /// The step, or why it cannot run.
    pub(super) held: Result<Arc<Held>, String>,
}

pub(super) fn lay(question: Question, cancel: &Cancel) -> Option<Answer> {
    let held = (!cancel.is_asked()).then(|| held(&question).map(Arc::new))?;
    Some(Answer { layout: question.layout, held })
}

fn held(question: &Question) -> Result<Held, String> {
    let Question { layout, facts, recent } = question;
    let spec = StepSpec {
        model: facts.model.clone(),
        layout: layout.clone(),
        training: facts.scenario.training.clone(),
        purpose: Purpose::Train,
        device_kinds: Vec::new(),
    };
    let plan = plan_step(&spec).map_err(|error| error.to_string())?;
    let recent: Vec<&Trace> = recent.iter().map(AsRef::as_ref).collect();
    let pieces = Pieces::of(&facts.plan, &median_durations(&recent));
    let order = order::derive(&plan);
    let graph = order::graph(&plan, &order);
    let trace = pieces.lay_out(&plan, &graph, &Links::FREE).map_err(|error| error.to_string())?;
    let ledger = Ledger::of(&plan);
    let waits = bubble(&plan, &trace);
    let peaks: Vec<_> = ledger.ranks.iter().map(|rank| rank.memory.at_peak).collect();
    let peak = ledger.ranks.iter().map(|rank| rank.memory.peak()).max().unwrap_or_default();
    let timeline = Timeline::new(Arc::new(plan), &order, Arc::new(trace), &peaks);
    Ok(Held {
        name: name_of(layout, &facts.scenario.layout),
        badge: waits.clock.into(),
        timeline: Arc::new(timeline),
        waiting: waits.waiting_over_span,
        peak: (peak, Badge::Counted),
        sent: (ledger.bytes(), Badge::Counted),
    })
}
