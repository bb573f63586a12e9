//! Seconds of a schedule with many microbatches from ones with few.
//!
//! Once a pipeline is full it repeats itself: the makespan grows by the same number of nanoseconds
//! with each group of microbatches. Three lengths are laid out; if they grow alike the rest is
//! added, else the whole step is laid out.

use super::{table, with_overheads};
use crate::config::Cluster;
use crate::config::workload::Workload;
use crate::planner::cluster::classes::{Classes, Knobs};
use crate::planner::cluster::{cluster_plan, topology};
use crate::sim::cost::{Constants, Pricer};
use crate::sim::{Ordered, SimError};

/// Groups of microbatches, of one for each pipeline position, until a pipeline is surely full.
const GROUPS: u32 = 3;

/// Seconds of a step, all microbatches laid out: what `predict` says, and nothing else of it.
///
/// # Errors
/// If the step would hang.
pub fn step_seconds(
    workload: &Workload,
    cluster: &Cluster,
    constants: &Constants,
) -> Result<f64, SimError> {
    let step = ordered(workload, cluster, workload.batch.microbatches);
    let end = step.end(&Pricer { cluster, constants })?;
    Ok(with_overheads(end.as_secs(), workload, constants))
}

/// The step of a workload, written once, to be priced any number of times.
#[derive(Clone, Debug)]
pub struct Prepared {
    workload: Workload,
    cluster: Cluster,
    lengths: Lengths,
}

/// What is laid out.
#[derive(Clone, Debug)]
enum Lengths {
    /// The step.
    Whole(Box<Ordered>),
    /// Three steps with few microbatches, each with one group more than the one before, and how
    /// many groups the whole has more than the first.
    Growing(Box<[Ordered; 3]>, u64),
}

impl Prepared {
    /// Writes the Plans of a workload.
    pub fn new(workload: &Workload, cluster: &Cluster) -> Self {
        let whole = workload.batch.microbatches;
        let group = workload.split.pp;
        let few = whole % group + GROUPS * group;
        let lengths = if whole <= few + 2 * group {
            Lengths::Whole(Box::new(ordered(workload, cluster, whole)))
        } else {
            let steps = [few, few + group, few + 2 * group];
            let steps = steps.map(|microbatches| ordered(workload, cluster, microbatches));
            Lengths::Growing(Box::new(steps), u64::from((whole - few) / group))
        };
        Self { workload: workload.clone(), cluster: cluster.clone(), lengths }
    }

    /// Seconds of the step.
    ///
    /// # Errors
    /// If the step would hang.
    pub fn seconds(&self, constants: &Constants) -> Result<f64, SimError> {
        let Self { workload, cluster, lengths } = self;
        let pricer = Pricer { cluster, constants };
        let schedule = match lengths {
            Lengths::Whole(step) => step.end(&pricer)?,
            Lengths::Growing(steps, groups) => {
                let [short, longer, longest] = &**steps;
                let (short, longer, longest) =
                    (short.end(&pricer)?, longer.end(&pricer)?, longest.end(&pricer)?);
                if longest - longer == longer - short {
                    short + (longer - short) * *groups
                } else {
                    ordered(workload, cluster, workload.batch.microbatches).end(&pricer)?
                }
            }
        };
        Ok(with_overheads(schedule.as_secs(), workload, constants))
    }
}

fn ordered(workload: &Workload, cluster: &Cluster, microbatches: u32) -> Ordered {
    let (table, knobs) = (table(workload, microbatches), Knobs::default());
    let topology = topology(workload, &table, cluster.node.gpus, &knobs);
    let classes = Classes::quotient(&topology);
    Ordered::new(cluster_plan(workload, &table, &topology, classes))
}
