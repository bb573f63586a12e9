//! What fits: refuses a step that places more than a device has, and names cuts that would fit.

use super::TrainError;
use crate::config::{Layout, Recompute, ZeroStage};
use crate::ledger::Ledger;
use crate::mesh::Rank;
use crate::plan::Plan;
use crate::planner::{StepSpec, plan_step};
use crate::units::Bytes;

/// How many cuts a refusal names.
const NAMED: usize = 3;
/// The largest world that a refusal proposes.
const WORLD_MAX: u32 = 64;

/// Refuses a Plan of which a rank places more than `cap`.
///
/// # Errors
/// [`TrainError::Memory`] with need, have and cuts that would fit.
pub fn check(plan: &Plan, spec: &StepSpec, cap: Bytes) -> Result<(), TrainError> {
    let (rank, need) = largest(plan);
    if need <= cap {
        return Ok(());
    }
    let fits = layouts_that_fit(spec, cap);
    Err(TrainError::Memory { rank, need, have: cap, fits })
}

/// The rank that places most, and how much.
fn largest(plan: &Plan) -> (Rank, Bytes) {
    let ledger = Ledger::of(plan);
    let ranks = plan.mesh.ranks().zip(&ledger.ranks);
    let sizes = ranks.map(|(rank, costs)| (costs.memory.placed, rank));
    let (need, rank) = sizes
        .max_by_key(|(placed, rank)| (*placed, std::cmp::Reverse(*rank)))
        .expect("a mesh has at least one rank");
    (rank, need)
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
                let base = Layout { stage_units: None, chunks: 1, ..spec.layout.clone() };
                let layout = Layout { dp, tp, pp, zero, recompute, microbatches, ..base };
                let other = StepSpec { layout, device_kinds: Vec::new(), ..spec.clone() };
                let fits = plan_step(&other).is_ok_and(|plan| largest(&plan).1 <= cap);
                if fits {
                    found.push(flags(&other.layout));
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

fn flags(layout: &Layout) -> String {
    let Layout { dp, tp, pp, zero, microbatches, recompute, .. } = layout;
    let mut flags = format!("--dp {dp} --tp {tp} --pp {pp}");
    if *dp > 1 {
        flags += &format!(" --zero {}", u8::from(*zero));
    }
    if *recompute != Recompute::None {
        flags += &format!(" --recompute {recompute}");
    }
    flags + &format!(" --microbatches {microbatches}")
}
