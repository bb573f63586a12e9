//! Predicts what is wished, on a thread of its own: the step by classes of equal ranks, its figures,
//! and whether the same cut can be trained here.

use std::sync::Arc;

use shardlab::config::{Layout, Scenario};
use shardlab::ledger::ByRole;
use shardlab::plan::order;
use shardlab::planner::{Purpose, StepSpec, plan_step};
use shardlab::predict::memory::{PositionMemory, USABLE};
use shardlab::predict::{Prediction, predict};
use shardlab::trace::Badge;
use shardlab::trace::draw::timeline::{Alike, Timeline};
use shardlab::units::{Bytes, Nanos};

use super::Wish;
use crate::app::compare::Held;

/// More ranks than this are not trained from here.
pub(super) const RANKS_MOST: u32 = 64;

/// What is asked.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) wish: Wish,
    /// What is trained here.
    pub(super) scenario: Scenario,
}

/// What has come of it.
#[derive(Debug)]
pub(super) struct Answer {
    /// What was wished.
    pub(super) wish: Wish,
    /// The step, or why there is none.
    pub(super) outcome: Result<Foreseen, String>,
    /// The same cut of the model that is trained here, or why it cannot be trained.
    pub(super) here: Result<Box<Scenario>, String>,
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

pub(super) fn foresee(question: Question) -> Answer {
    let Question { wish, scenario } = question;
    let outcome = foreseen(&wish);
    let here = match wish.layout() {
        Some(_) if wish.context > 1 => Err("Ranks that share sequences are only predicted".into()),
        Some(layout) => here(&layout, &scenario),
        None => Err(NO_CUT.into()),
    };
    Answer { wish, outcome, here }
}

fn foreseen(wish: &Wish) -> Result<Foreseen, String> {
    let (workload, cluster) = wish.workload().ok_or(NO_CUT)?;
    let predicted = predict(&workload, &cluster, &wish.conditions());
    let predicted = predicted.map_err(|error| error.to_string())?;
    let rows = u64::from(wish.batch) * u64::from(wish.seq);
    let usable = bytes(USABLE * cluster.gpu.memory_gb * 1e9);
    let Prediction { step_seconds, mfu, parts, .. } = predicted;
    let held = held(wish, &workload.split.mesh(), predicted, usable);
    Ok(Foreseen {
        held: Arc::new(held),
        step_seconds,
        tokens_per_sec: rows as f64 / step_seconds,
        mfu,
        exposed_seconds: parts.exposed_comm,
        outside: Nanos((parts.outside.max(0.0) * 1e9) as u64),
        usable,
    })
}

fn held(wish: &Wish, mesh: &shardlab::mesh::Mesh, predicted: Prediction, usable: Bytes) -> Held {
    let Prediction { bubble, bytes: sent, memory, cluster_plan, trace, .. } = predicted;
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
    let order = order::derive(&cluster_plan.plan);
    let timeline = Timeline::new(Arc::new(cluster_plan.plan), &order, Arc::new(trace), &of_class);
    let timeline = timeline.standing_for(alike).within(usable);
    let peak = roles.iter().map(ByRole::total).max().unwrap_or_default();
    let name = format!("{} on {} × {}", wish.model, wish.gpus, wish.cluster);
    Held {
        name,
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

/// The cut for what is trained here, if it can be trained.
fn here(layout: &Layout, scenario: &Scenario) -> Result<Box<Scenario>, String> {
    let ranks = layout.mesh().size();
    if ranks > RANKS_MOST {
        return Err(format!("{ranks} ranks are not trained on one machine: {RANKS_MOST} at most"));
    }
    let mut scenario = scenario.clone();
    scenario.layout = Layout {
        bucket_bytes: scenario.layout.bucket_bytes,
        chunk_bytes: scenario.layout.chunk_bytes,
        ..layout.clone()
    };
    // A row for each microbatch at least.
    let least = layout.dp * layout.microbatches;
    scenario.training.batch = scenario.training.batch.max(least);
    let spec = StepSpec {
        model: scenario.model.resolve().map_err(|error| error.to_string())?,
        layout: scenario.layout.clone(),
        training: scenario.training.clone(),
        purpose: Purpose::Evaluate,
        device_kinds: Vec::new(),
    };
    match plan_step(&spec) {
        Ok(_) => Ok(Box::new(scenario)),
        Err(error) => Err(format!("The model here: {error}")),
    }
}
