//! Predicts what is wished, on a thread of its own: the step by classes of equal ranks and its figures.

use std::sync::Arc;

use shardlab::ledger::ByRole;
use shardlab::predict::memory::{PositionMemory, USABLE};
use shardlab::predict::{Prediction, predict_while};
use shardlab::trace::Badge;
use shardlab::trace::draw::timeline::{Alike, Timeline};
use shardlab::units::{Bytes, Nanos};

use super::Wish;
use crate::app::compare::Held;
use crate::latest::Cancel;

/// What has come of a wish.
#[derive(Debug)]
pub(super) struct Answer {
    /// What was wished.
    pub(super) wish: Wish,
    /// The step, or why there is none.
    pub(super) outcome: Result<Foreseen, String>,
}

/// A predicted step.
#[derive(Debug)]
pub struct Foreseen {
    /// Its timeline and what is compared.
    pub held: Arc<Held>,
    /// Seconds of the step, with what host and stragglers add to the timeline.
    pub step_seconds: f64,
    /// Tokens a second, of all ranks.
    pub tokens_per_sec: f64,
    /// Operations of the model over the peak of the GPUs.
    pub mfu: f64,
    /// Seconds of a mean rank in which something is on its way and nothing is computed.
    pub exposed_seconds: f64,
    /// What of the step lies outside of the timeline: the host, and the slowest of many GPUs.
    pub outside: Nanos,
    /// What a rank may hold.
    pub usable: Bytes,
}

impl Foreseen {
    /// The length of the step, with what lies outside of its timeline.
    pub fn length(&self) -> Nanos {
        self.held.length() + self.outside
    }

    /// Whether the fullest rank fits.
    pub fn fits(&self) -> bool {
        self.held.peak.0 <= self.usable
    }
}

/// Why there is no step of a cut; what is wrong with it is said at its controls.
const NO_CUT: &str = "This cut does not fit or makes no sense: see what is red";

pub(super) fn foresee(wish: Wish, cancel: &Cancel) -> Option<Answer> {
    let outcome = foreseen(&wish, cancel).transpose()?;
    Some(Answer { wish, outcome })
}

/// `None` where nobody waits for it any more.
fn foreseen(wish: &Wish, cancel: &Cancel) -> Result<Option<Foreseen>, String> {
    let (workload, cluster) = wish.workload().ok_or(NO_CUT)?;
    let goes_on = || !cancel.is_asked();
    let predicted = predict_while(&workload, &cluster, &wish.conditions(), &goes_on);
    let Some(predicted) = predicted.map_err(|error| error.to_string())? else { return Ok(None) };
    let rows = u64::from(wish.batch) * u64::from(wish.seq);
    let usable = bytes(USABLE * cluster.gpu.memory_gb * 1e9);
    let Prediction { step_seconds, mfu, parts, .. } = predicted;
    let held = held(wish, &workload.split.mesh(), predicted, usable);
    Ok(Some(Foreseen {
        held: Arc::new(held),
        step_seconds,
        tokens_per_sec: rows as f64 / step_seconds,
        mfu,
        exposed_seconds: parts.exposed_comm,
        outside: Nanos((parts.outside.max(0.0) * 1e9) as u64),
        usable,
    }))
}

fn held(wish: &Wish, mesh: &shardlab::mesh::Mesh, predicted: Prediction, usable: Bytes) -> Held {
    let Prediction { bubble, bytes: sent, memory, cluster_plan, order, trace, .. } = predicted;
    let classes = cluster_plan.classes.first.iter().zip(&cluster_plan.classes.sizes);
    let alike: Vec<Alike> = classes
        .map(|(first, count)| Alike {
            first: *first,
            count: *count,
            position: mesh.coord(*first).pp,
        })
        .collect();
    let roles: Vec<ByRole> = memory.iter().map(by_role).collect();
    let of_class: Vec<ByRole> = alike.iter().map(|alike| roles[alike.position as usize]).collect();
    let timeline = Timeline::new(Arc::new(cluster_plan.plan), &order, Arc::new(trace), &of_class);
    let timeline = timeline.standing_for(alike).within(usable);
    let peak = roles.iter().map(ByRole::total).max().unwrap_or_default();
    Held {
        name: wish.name(),
        badge: Badge::Predicted,
        timeline: Arc::new(timeline),
        waiting: bubble.waiting_over_span,
        peak: (peak, Badge::Predicted),
        sent: (bytes(sent.values().sum()), Badge::Formula),
    }
}

fn by_role(memory: &PositionMemory) -> ByRole {
    let PositionMemory { weights, gradients, optimizer, activations, workspace, .. } = *memory;
    ByRole::new([weights, gradients, optimizer, activations, workspace].map(bytes))
}

fn bytes(count: f64) -> Bytes {
    Bytes(count.max(0.0) as u64)
}
