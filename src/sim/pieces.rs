//! Times of a Plan that has not run, from the pieces of one that has.
//!
//! Another schedule or another ZeRO stage runs the same ops in another order: each takes what the
//! same op took, and the step is laid out as any replay. Another cut has ops of other sizes: each
//! takes what the most similar one of its kind took, in proportion to its work, and the times are
//! predicted, not replayed.

use std::collections::BTreeMap;

use super::{Links, SimError, replay};
use crate::ops::{Kernel as _, Op};
use crate::plan::order::Graph;
use crate::plan::{Action, Plan};
use crate::trace::{Clock, Trace};
use crate::units::Nanos;

/// What the ops of a Plan took.
#[derive(Clone, Debug)]
pub struct Pieces {
    /// Pieces by the name of their kernel.
    kinds: BTreeMap<&'static str, Vec<Piece>>,
    /// Nanoseconds for a unit of work of everything that was measured.
    rate: f64,
}

/// An op of some size, and what it took.
#[derive(Clone, Debug)]
struct Piece {
    what: What,
    work: u64,
    median: Nanos,
}

/// What is known by its equal.
#[derive(Clone, Debug, PartialEq)]
enum What {
    Op(Op),
    /// A copy of so many bytes.
    Copy(u64),
}

/// Whether a time was measured for this very op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Measured,
    Scaled,
}

impl Pieces {
    /// The pieces of a Plan, from the durations of its instructions, `[rank][instruction]`: of equal
    /// ops the median.
    pub fn of(plan: &Plan, durations: &[Vec<Nanos>]) -> Self {
        type Found = (What, u64, Vec<Nanos>);
        let mut found: BTreeMap<&'static str, Vec<Found>> = BTreeMap::new();
        let (mut nanos, mut works) = (0.0, 0.0);
        for (program, durations) in plan.programs.iter().zip(durations) {
            for (instr, duration) in program.instrs.iter().zip(durations) {
                let Some((kind, what, work)) = asked(plan, &instr.action) else { continue };
                nanos += duration.0 as f64;
                works += work as f64;
                let kind = found.entry(kind).or_default();
                match kind.iter_mut().find(|(known, ..)| *known == what) {
                    Some((.., times)) => times.push(*duration),
                    None => kind.push((what, work, vec![*duration])),
                }
            }
        }
        let piece = |(what, work, mut times): Found| {
            times.sort_unstable();
            Piece { what, work, median: times[times.len() / 2] }
        };
        let kinds = found
            .into_iter()
            .map(|(kind, pieces)| (kind, pieces.into_iter().map(piece).collect()))
            .collect();
        Self { kinds, rate: if works > 0.0 { nanos / works } else { 0.0 } }
    }

    /// Lays another Plan out as if every rank had its own device. The clock says what the times are:
    /// replayed where each op was measured, else predicted.
    ///
    /// # Errors
    /// If the Plan hangs.
    pub fn lay_out(&self, plan: &Plan, graph: &Graph, links: &Links) -> Result<Trace, SimError> {
        let mut all = Known::Measured;
        let mut duration = |action: &Action| {
            let Some((kind, what, work)) = asked(plan, action) else { return Nanos(0) };
            let (nanos, known) = self.duration(kind, &what, work);
            if known == Known::Scaled {
                all = Known::Scaled;
            }
            nanos
        };
        let rows = plan.programs.iter();
        let durations: Vec<Vec<Nanos>> = rows
            .map(|program| program.instrs.iter().map(|instr| duration(&instr.action)).collect())
            .collect();
        let trace = replay(plan, graph, &durations, links, 0)?;
        let clock = if all == Known::Measured { Clock::Replayed } else { Clock::Predicted };
        Ok(Trace { clock, ..trace })
    }

    /// What an op takes.
    fn duration(&self, kind: &str, what: &What, work: u64) -> (Nanos, Known) {
        let pieces = self.kinds.get(kind).map(Vec::as_slice).unwrap_or_default();
        if let Some(same) = pieces.iter().find(|piece| piece.what == *what) {
            return (same.median, Known::Measured);
        }
        // The nearest in size: what a launch costs by itself matters in small ones.
        let apart = |piece: &&Piece| piece.work.max(work) as f64 / piece.work.min(work) as f64;
        let nearest = pieces.iter().min_by(|a, b| apart(a).total_cmp(&apart(b)));
        let nanos = match nearest {
            Some(near) => near.median.0 as f64 * work as f64 / near.work as f64,
            None => self.rate * work as f64,
        };
        (Nanos(nanos.round() as u64), Known::Scaled)
    }
}

/// What an instruction asks of its device: the kind, the very op and how much work it is; `None`
/// for messages, whose time is that of links.
fn asked(plan: &Plan, action: &Action) -> Option<(&'static str, What, u64)> {
    match action {
        Action::Launch { op, inputs, outputs } => {
            let elements: u64 = inputs.iter().chain(outputs).map(|view| u64::from(view.len)).sum();
            Some((op.name(), What::Op(op.clone()), op.flops().0.max(elements).max(1)))
        }
        Action::Copy { from, .. } => {
            let bytes = plan.view_bytes(*from).0;
            Some(("copy", What::Copy(bytes), (bytes / 4).max(1)))
        }
        Action::Send { .. } | Action::Recv { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    //! A tiny model under another schedule and another cut, against what can be said without laying
    //! anything out.
    use super::*;
    use crate::config::{Layout, Model, ScheduleName, Training};
    use crate::plan::order;
    use crate::planner::{Purpose, StepSpec, plan_step};

    fn plan(layout: Layout) -> Plan {
        let model = Model::preset("tiny").unwrap();
        let training = Training { batch: 8, seq: 16, ..Training::default() };
        let (purpose, device_kinds) = (Purpose::Train, Vec::new());
        plan_step(&StepSpec { model, layout, training, purpose, device_kinds }).unwrap()
    }

    /// Every op takes a nanosecond for a unit of its work.
    fn even(plan: &Plan) -> Vec<Vec<Nanos>> {
        let took = |action: &Action| Nanos(asked(plan, action).map_or(0, |(.., work)| work));
        let rows = plan.programs.iter();
        rows.map(|program| program.instrs.iter().map(|i| took(&i.action)).collect()).collect()
    }

    fn laid(pieces: &Pieces, plan: &Plan) -> Trace {
        let graph = order::graph(plan, &order::derive(plan));
        pieces.lay_out(plan, &graph, &Links::FREE).unwrap()
    }

    fn pipeline(schedule: ScheduleName) -> Layout {
        Layout { pp: 2, microbatches: 4, schedule, ..Layout::default() }
    }

    #[test]
    fn another_schedule_takes_the_measured_times_of_the_same_ops() {
        let ran = plan(pipeline(ScheduleName::OneFOneB));
        let pieces = Pieces::of(&ran, &even(&ran));
        for schedule in [ScheduleName::OneFOneB, ScheduleName::GPipe] {
            let other = plan(pipeline(schedule));
            let trace = laid(&pieces, &other);
            assert_eq!(trace.clock, Clock::Replayed);
            let graph = order::graph(&other, &order::derive(&other));
            let expected = replay(&other, &graph, &even(&other), &Links::FREE, 0).unwrap();
            assert_eq!(trace, expected);
        }
    }

    #[test]
    fn other_sizes_take_time_in_proportion_and_are_predicted() {
        let ran = plan(pipeline(ScheduleName::OneFOneB));
        let pieces = Pieces::of(&ran, &even(&ran));
        for layout in [
            Layout { tp: 2, ..pipeline(ScheduleName::OneFOneB) },
            Layout { microbatches: 2, ..pipeline(ScheduleName::OneFOneB) },
        ] {
            let other = plan(layout);
            let trace = laid(&pieces, &other);
            assert_eq!(trace.clock, Clock::Predicted);
            // Each kind of op that has run takes its own work; kinds that have not the mean rate,
            // which is 1 here too.
            for (rank, took) in even(&other).iter().enumerate() {
                let spans = trace.spans[rank].iter().zip(took).zip(&other.programs[rank].instrs);
                let computed = spans.filter(|(_, i)| asked(&other, &i.action).is_some());
                for ((span, took), instr) in computed {
                    assert!(span.duration().0.abs_diff(took.0) <= 1, "{instr:?}");
                }
            }
        }
    }

    #[test]
    fn of_equal_ops_the_median_counts() {
        let ran = plan(Layout { microbatches: 4, ..Layout::default() });
        let instrs = &ran.programs[0].instrs;
        let ask = |index: &usize| asked(&ran, &instrs[*index].action);
        let twins = |index: &usize| {
            let same = |other: &usize| ask(other).is_some() && ask(other) == ask(index);
            (0..instrs.len()).filter(same).collect::<Vec<_>>()
        };
        let all = (0..instrs.len()).map(|index| twins(&index)).find(|twins| twins.len() >= 4);
        let all = all.expect("four microbatches run the same op");
        let (kind, what, work) = ask(&all[0]).unwrap();
        let slow = Nanos(work + 1_000_000);
        let took = |slow_ones: &[usize]| {
            let mut durations = even(&ran);
            slow_ones.iter().for_each(|index| durations[0][*index] = slow);
            Pieces::of(&ran, &durations).duration(kind, &what, work).0
        };
        assert_eq!(took(&all[..1]), Nanos(work));
        assert_eq!(took(&all), slow);
    }
}
