//! Where a predicted step goes: compute, optimizer, exposed communication, waiting, and what lies
//! outside of the schedule. On a mean rank the five are the step.

use serde::Serialize;

use crate::ops::Op;
use crate::ops::coarse::CoarseKind;
use crate::plan::{Action, Lane};
use crate::planner::cluster::ClusterPlan;
use crate::trace::cover::{length, union};
use crate::trace::{Span, Trace};
use crate::units::Nanos;

/// Seconds of a mean rank, by what it does. Their sum is the step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct StepParts {
    /// Kernels of layers, embedding and head run.
    pub compute: f64,
    /// The optimizer runs.
    pub optimizer: f64,
    /// A message or collective of it runs and no kernel.
    pub exposed_comm: f64,
    /// Nothing of it runs: it waits for other ranks.
    pub waiting: f64,
    /// The host, and the slowest of many GPUs: what predictions add to the schedule.
    pub outside: f64,
}

impl StepParts {
    /// Names of the parts, in the order of [`StepParts::seconds`].
    pub const NAMES: [&'static str; 5] =
        ["compute", "optimizer", "exposed communication", "waiting", "outside of the schedule"];

    /// The parts of a predicted step.
    pub(super) fn of(cluster: &ClusterPlan, trace: &Trace, step_seconds: f64) -> Self {
        let classes = cluster.plan.programs.iter().zip(&trace.spans).zip(&cluster.classes.sizes);
        let done = classes.map(|((program, spans), members)| {
            let mut done = Done { members: *members, ..Done::default() };
            for (instr, span) in program.instrs.iter().zip(spans) {
                let list = match &instr.action {
                    Action::Launch { op: Op::Coarse(op), .. } => match op.kind {
                        CoarseKind::Update => &mut done.updates,
                        CoarseKind::LayerCollectives => &mut done.moving,
                        _ if instr.lane == Lane::Compute => &mut done.passes,
                        _ => &mut done.moving,
                    },
                    Action::Launch { .. } | Action::Copy { .. } => &mut done.passes,
                    Action::Send { .. } | Action::Recv { .. } => &mut done.moving,
                };
                list.push(*span);
            }
            done
        });
        Self::of_done(done, trace.end(), step_seconds)
    }

    /// The same from what a rank of each class does until the last one ends.
    pub(super) fn of_done(done: impl Iterator<Item = Done>, end: Nanos, step_seconds: f64) -> Self {
        let (mut sum, mut ranks) = (Self::default(), 0.0);
        for Done { members, passes, updates, moving } in done {
            let kernels: Vec<Span> = passes.iter().chain(&updates).copied().collect();
            let all = covered(kernels.iter().chain(&moving).copied().collect());
            let (kernels, updates) = (covered(kernels), covered(updates));
            let members = f64::from(members);
            sum.compute += (kernels - updates).as_secs() * members;
            sum.optimizer += updates.as_secs() * members;
            sum.exposed_comm += (all - kernels).as_secs() * members;
            sum.waiting += (end - all).as_secs() * members;
            ranks += members;
        }
        let mean = |seconds: f64| if ranks > 0.0 { seconds / ranks } else { 0.0 };
        Self {
            compute: mean(sum.compute),
            optimizer: mean(sum.optimizer),
            exposed_comm: mean(sum.exposed_comm),
            waiting: mean(sum.waiting),
            outside: step_seconds - end.as_secs(),
        }
    }

    /// The parts as a list.
    pub const fn seconds(&self) -> [f64; 5] {
        let Self { compute, optimizer, exposed_comm, waiting, outside } = *self;
        [compute, optimizer, exposed_comm, waiting, outside]
    }
}

/// When the ranks of a class do what.
#[derive(Clone, Debug, Default)]
pub(super) struct Done {
    /// Ranks of the class.
    pub(super) members: u32,
    /// Kernels of layers, embedding and head.
    pub(super) passes: Vec<Span>,
    /// The optimizer.
    pub(super) updates: Vec<Span>,
    /// Messages and collectives.
    pub(super) moving: Vec<Span>,
}

/// Time that is covered by at least one span.
fn covered(spans: Vec<Span>) -> Nanos {
    length(&union(spans))
}
