//! The step of a real Plan on this machine's host pool, from what `doctor --calibrate` measured:
//! kernels and copies one by one, never a step.
//!
//! [`Calibration`] is what was measured and its file, `curve` reads durations between measured
//! sizes, `sizes` says by which sizes an op is known, `distance` how near what it touches lies.
//! [`predict_plan`] prices every instruction and
//! lays all out over the machine's workers (`sim::workers`). `exec::calibrate` does the measuring.

mod calibration;
mod curve;
mod distance;
mod sizes;

pub use calibration::{Calibration, CalibrationError, Pace};
pub use curve::Curve;
pub(crate) use distance::DISTANCES;
pub use sizes::Sizes;

use crate::ops::{Kernel as _, Op};
use crate::plan::order::{self, Graph, Node};
use crate::plan::{Action, Plan};
use crate::sim::{SimError, Work, hang, lay_out_on};
use crate::trace::{Clock, Trace};
use crate::units::{Bytes, Nanos};

/// Why the step of a Plan cannot be predicted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HereError {
    /// The step would hang.
    #[error(transparent)]
    Hang(#[from] SimError),
    /// An op of the Plan was never measured.
    #[error(
        "{kernel} was not measured on this machine: only what training on the CPU runs is. \
         Measure again with `shardlab doctor --calibrate`, or ask `shardlab simulate`"
    )]
    Unmeasured {
        /// The kernel's name.
        kernel: String,
    },
}

/// When every instruction of a Plan runs on this machine, all ranks on the host pool.
///
/// The Trace has the form of a measured one: the end of it is the time of a step.
///
/// # Errors
/// If the Plan hangs, or holds an op that was not measured.
pub fn predict_plan(plan: &Plan, calibration: &Calibration) -> Result<Trace, HereError> {
    let graph = order::graph(plan, &order::derive(plan));
    let works = works(plan, &graph, calibration)?;
    let spans = lay_out_on(&graph, &works, &calibration.workers());
    if spans.iter().any(Option::is_none) {
        return Err(hang(plan, &graph, |node| spans[node as usize].is_some()).into());
    }
    let span = |node: &u32| spans[*node as usize].unwrap_or_default();
    let spans = graph.node_of.iter().map(|nodes| nodes.iter().map(span).collect()).collect();
    Ok(Trace { clock: Clock::Predicted, step: 0, spans, paths: Vec::new() })
}

/// What each node of the step's graph asks of a worker.
fn works(plan: &Plan, graph: &Graph, calibration: &Calibration) -> Result<Vec<Work>, HereError> {
    let distances = distance::distances(plan);
    let work = |node: &Node| {
        let distance = distance::of_node(&distances, node.instrs());
        work(plan, node, distance, calibration)
    };
    graph.nodes.iter().map(work).collect()
}

fn work(
    plan: &Plan,
    node: &Node,
    distance: f64,
    calibration: &Calibration,
) -> Result<Work, HereError> {
    let instr = &plan.programs[node.rank.index()].instrs[node.instr as usize];
    let sizes = match &instr.action {
        Action::Launch { op, .. } => Sizes::of(op),
        Action::Copy { from, .. } => Some(Sizes::of_copy(plan.view_bytes(*from))),
        Action::Send { view, .. } | Action::Recv { view, .. } => {
            Some(Sizes::of_message(plan.view_bytes(*view)))
        }
    };
    let kernel = || match &instr.action {
        Action::Launch { op, .. } => op.to_string(),
        Action::Copy { .. } => Sizes::of_copy(Bytes(0)).kernel.to_owned(),
        Action::Send { .. } | Action::Recv { .. } => Sizes::of_message(Bytes(0)).kernel.to_owned(),
    };
    let pace = sizes.and_then(|sizes| calibration.pace(&sizes, distance));
    let Pace { alone, crowded } = pace.ok_or_else(|| HereError::Unmeasured { kernel: kernel() })?;
    let (parts, wakes) = match &instr.action {
        Action::Launch { op, .. } => (op.parts(), is_worth_waking(op, calibration)),
        Action::Copy { .. } | Action::Send { .. } | Action::Recv { .. } => (1, false),
    };
    let nanos = |nanos: f64| Nanos(nanos.round() as u64);
    Ok(Work { alone: nanos(alone), crowded: nanos(crowded), parts, wakes })
}

fn is_worth_waking(op: &Op, calibration: &Calibration) -> bool {
    op.flops().0 + op.signature().bytes().0 >= calibration.work_worth_waking
}

#[cfg(test)]
mod tests {
    //! Real Plans under a calibration by hand, in which every kernel takes what is easy to add up.
    use super::*;
    use crate::config::{Layout, Model, ScheduleName, Training};
    use crate::ops::coarse::{Coarse, CoarseKind};
    use crate::planner::{Purpose, StepSpec, plan_step};
    use crate::sim::{Links, Workers, median_durations, replay};

    fn plan(layout: Layout) -> Plan {
        let spec = StepSpec {
            model: Model::preset("tiny").unwrap(),
            layout,
            training: Training { batch: 8, seq: 16, ..Training::default() },
            purpose: Purpose::Train,
            device_kinds: Vec::new(),
        };
        plan_step(&spec).unwrap()
    }

    /// A machine on which a unit of anything takes 1 ns alone and 1.2 ns crowded.
    fn machine(plan: &Plan, workers: Workers) -> Calibration {
        let mut calibration = Calibration::new("by hand".into(), &workers, u64::MAX);
        let axes = |sizes: &Sizes| vec![vec![1.0]; sizes.at.len()];
        let moved = [Sizes::of_copy(Bytes(1)), Sizes::of_message(Bytes(1))];
        let launched = plan.programs.iter().flat_map(|program| &program.instrs);
        let launched = launched.filter_map(|instr| match &instr.action {
            Action::Launch { op, .. } => Sizes::of(op),
            Action::Copy { .. } | Action::Send { .. } | Action::Recv { .. } => None,
        });
        for sizes in launched.chain(moved) {
            let curve = Curve { axes: axes(&sizes), alone: vec![1.0], crowded: vec![1.2] };
            calibration.kernels.insert(sizes.kernel.to_owned(), curve);
        }
        calibration
    }

    fn prompt(count: u32) -> Workers {
        Workers { count, wake: Nanos(0), patience: Nanos(0) }
    }

    #[test]
    fn one_worker_takes_the_units_of_all_instructions_one_after_the_other() {
        let layout = Layout { tp: 2, pp: 2, schedule: ScheduleName::OneFOneB, ..Layout::default() };
        let plan = plan(layout);
        let trace = predict_plan(&plan, &machine(&plan, prompt(1))).unwrap();
        assert_eq!(trace.clock, Clock::Predicted);
        let units = |action: &Action| match action {
            Action::Launch { op, .. } => Sizes::of(op).unwrap().units,
            Action::Send { view, .. } => plan.view_bytes(*view).0 as f64,
            Action::Copy { from, .. } => plan.view_bytes(*from).0 as f64,
            Action::Recv { .. } => 0.0,
        };
        let instrs = plan.programs.iter().flat_map(|program| &program.instrs);
        let sum: f64 = instrs.map(|instr| units(&instr.action)).sum();
        assert_eq!(trace.end().0 as f64, sum);
    }

    #[test]
    fn many_workers_are_devices_of_ranks_and_two_are_between_them_and_one() {
        let plan = plan(Layout { dp: 2, pp: 2, microbatches: 2, ..Layout::default() });
        let end = |count| predict_plan(&plan, &machine(&plan, prompt(count))).unwrap().end();
        let [one, two, four] = [1, 2, 4].map(end);
        assert!(four < two && two < one, "{four} {two} {one}");
        // As many workers as instructions: every rank has its own device, a byte takes 1 ns.
        let mut calibration = machine(&plan, prompt(plan.instr_count() as u32));
        for curve in calibration.kernels.values_mut() {
            curve.crowded.clone_from(&curve.alone);
        }
        let trace = predict_plan(&plan, &calibration).unwrap();
        let graph = order::graph(&plan, &order::derive(&plan));
        let links = Links { latency: Nanos(0), bytes_per_sec: Some(1e9) };
        let replayed = replay(&plan, &graph, &median_durations(&[&trace]), &links, 0).unwrap();
        assert_eq!(replayed.spans, trace.spans);
    }

    #[test]
    fn what_was_never_measured_is_refused_by_name() {
        let mut plan = plan(Layout::default());
        let mut calibration = machine(&plan, prompt(2));
        calibration.kernels.remove("rms_norm");
        let error = predict_plan(&plan, &calibration).unwrap_err().to_string();
        assert!(error.starts_with("rms_norm was not measured"), "{error}");
        let coarse = Op::Coarse(Coarse {
            kind: CoarseKind::Forward,
            work: 0,
            pieces: 1,
            beside: None,
            flops: 1,
            wide: 1,
            wide_in: 0,
            narrow_in: 0,
            wide_out: 0,
            narrow_out: 0,
        });
        let action = Action::Launch { op: coarse, inputs: Vec::new(), outputs: Vec::new() };
        plan.programs[0].instrs[0].action = action;
        let error = predict_plan(&plan, &machine(&plan, prompt(2))).unwrap_err().to_string();
        assert!(error.contains("was not measured"), "{error}");
    }
}
