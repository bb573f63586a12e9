//! What fits: refuses a step that places more than a device has, and names cuts that would fit.

use super::TrainError;
use crate::config::schedule::Stages;
use crate::config::{Layout, Recompute, ScheduleName, ZeroStage};
use crate::exec::need;
use crate::ledger::Ledger;
use crate::mesh::Rank;
use crate::plan::{Plan, Role};
use crate::planner::schedule::unit_time::kept_at_peak;
use crate::planner::schedule::{check, named};
use crate::planner::{PlanError, Purpose, StepSpec, plan_step};
use crate::units::Bytes;

/// How many cuts a refusal names.
const NAMED: usize = 3;
/// The largest world that a refusal proposes.
const WORLD_MAX: u32 = 64;

/// Refuses a step of which a rank places more than `cap`, or with which the held-out loss could not
/// be measured within it.
///
/// # Errors
/// [`TrainError::Memory`] with need, have and cuts that would fit.
pub fn check(plan: &Plan, spec: &StepSpec, cap: Bytes) -> Result<(), TrainError> {
    let (rank, need) = largest(plan, spec)?;
    if need <= cap {
        return Ok(());
    }
    let fits = layouts_that_fit(spec, cap);
    let kept = kept_words(plan, spec, rank);
    Err(TrainError::Memory { rank, need, have: cap, kept, fits })
}

/// `4 microbatches of stage 0 at once: 12.0 MiB of activations`.
fn kept_words(plan: &Plan, spec: &StepSpec, rank: Rank) -> String {
    let schedule = named::table(&spec.layout).expect("the layout was planned");
    let position = plan.mesh.coord(rank).pp as usize;
    let stages = kept_at_peak(schedule.acts(position));
    let activations = Ledger::of(plan).ranks[rank.index()].memory.at_peak[Role::Activations];
    format!("{} at once: {activations} of activations", check::kept(&stages))
}

/// The rank that places most for training and evaluation, and how much.
fn largest(plan: &Plan, spec: &StepSpec) -> Result<(Rank, Bytes), PlanError> {
    let evaluation = plan_step(&StepSpec { purpose: Purpose::Evaluate, ..spec.clone() })?;
    let sizes = plan.mesh.ranks().map(|rank| (need(&[plan, &evaluation], rank), rank));
    let (need, rank) = sizes
        .max_by_key(|(need, rank)| (*need, std::cmp::Reverse(*rank)))
        .expect("a mesh has at least one rank");
    Ok((rank, need))
}

/// Cuts of the same step that fit, as flags: the fewest ranks first, each of another kind.
fn layouts_that_fit(spec: &StepSpec, cap: Bytes) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut ranks = 1;
    while ranks <= WORLD_MAX && found.len() < NAMED {
        for (dp, tp, pp) in meshes(ranks) {
            let microbatches = spec.layout.microbatches.max(if pp > 1 { 2 * pp } else { 1 });
            for (zero, recompute) in [
                (ZeroStage::Zero0, Recompute::None),
                (ZeroStage::Zero1, Recompute::None),
                (ZeroStage::Zero3, Recompute::Full),
            ] {
                if (dp == 1) != (zero == ZeroStage::Zero0) || found.len() == NAMED {
                    continue;
                }
                let base = Layout {
                    stage_units: None,
                    chunks: 1,
                    schedule: one_stage_schedule(&spec.layout),
                    ..spec.layout.clone()
                };
                let layout = Layout { dp, tp, pp, zero, recompute, microbatches, ..base };
                let other = StepSpec { layout, device_kinds: Vec::new(), ..spec.clone() };
                let fits = plan_step(&other)
                    .and_then(|plan| largest(&plan, &other))
                    .is_ok_and(|(_, need)| need <= cap);
                if fits {
                    found.push(flags(&other.layout, spec));
                    break;
                }
            }
        }
        ranks *= 2;
    }
    found
}

/// All (dp, tp, pp) of a world, tensor cuts first: they save most.
fn meshes(ranks: u32) -> Vec<(u32, u32, u32)> {
    let divisors = |n: u32| (1..=n).filter(move |d| n.is_multiple_of(*d));
    let mut meshes = Vec::new();
    for tp in divisors(ranks) {
        for pp in divisors(ranks / tp) {
            meshes.push((ranks / tp / pp, tp, pp));
        }
    }
    meshes.reverse();
    meshes
}

/// The schedule of a layout if it has one stage a position, for any number of them; else 1F1B.
fn one_stage_schedule(layout: &Layout) -> ScheduleName {
    match layout.schedule.stages() {
        Stages::One => layout.schedule.clone(),
        Stages::Loop | Stages::V | Stages::Given => ScheduleName::OneFOneB,
    }
}

fn flags(layout: &Layout, spec: &StepSpec) -> String {
    let Layout { dp, tp, pp, zero, microbatches, recompute, .. } = layout;
    let mut flags = format!("--dp {dp} --tp {tp} --pp {pp}");
    if *dp > 1 {
        flags += &format!(" --zero {}", u8::from(*zero));
    }
    if *recompute != Recompute::None {
        flags += &format!(" --recompute {recompute}");
    }
    if layout.schedule != spec.layout.schedule {
        flags += &format!(" --schedule {} --chunks 1", layout.schedule);
    }
    flags + &format!(" --microbatches {microbatches}")
}
