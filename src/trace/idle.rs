//! Where the time of every rank goes: work of its Compute lane, or idle for one cause each; and how
//! much of its communication hides behind work.
//!
//! Busy and causes add up to the step, to the nanosecond, on every clock. What is communication is
//! read from typed actions and never from names. [`super::bubble`] counts something else: waiting
//! between the first forward and the last backward.

use std::collections::BTreeMap;

use serde::Serialize;

use super::cause::{self, Cause};
use super::cover::{length, overlap, union};
use super::{Clock, Span, Trace};
use crate::mesh::{Axis, Rank};
use crate::ops::Op;
use crate::ops::coarse::CoarseKind;
use crate::plan::order::Order;
use crate::plan::{Action, Instr, Lane, Plan};
use crate::units::Nanos;

/// The time of all ranks of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepTime {
    /// How long the step takes.
    pub step: Nanos,
    /// Each rank's part; index = rank.
    pub ranks: Vec<RankTime>,
    /// Whose time it is.
    pub clock: Clock,
}

/// The time of one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankTime {
    /// Time in which its Compute lane runs something that is not communication.
    pub busy: Nanos,
    /// The rest of the step, ascending, one cause each.
    pub idle: Vec<Idle>,
    /// Its messages against its work.
    pub messages: Messages,
}

/// A time in which a rank's Compute lane runs nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idle {
    /// When.
    pub span: Span,
    /// Why.
    pub cause: Cause,
}

/// Time in which messages or collectives of a rank are under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Messages {
    /// While it works.
    pub hidden: Nanos,
    /// While it does not.
    pub exposed: Nanos,
}

/// A kind of cause, to add up idle time by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Communication of an axis: a message or the additions of a collective.
    Axis(Axis),
    /// A message or work of no axis: hand-written Plans.
    Other,
    /// The device works for other ranks.
    Device,
    /// The rank is done, others are not.
    StepEnd,
}

impl Reason {
    /// All kinds, in the order in which they are told.
    pub const ALL: [Self; 6] = [
        Self::Axis(Axis::Pp),
        Self::Axis(Axis::Tp),
        Self::Axis(Axis::Dp),
        Self::Other,
        Self::Device,
        Self::StepEnd,
    ];

    /// The kind of a cause.
    pub fn of(cause: Cause) -> Self {
        match cause {
            Cause::Device => Self::Device,
            Cause::StepEnd => Self::StepEnd,
            Cause::Message { .. } | Cause::Room { .. } | Cause::Beside { .. } => {
                cause.axis().map_or(Self::Other, Self::Axis)
            }
        }
    }

    /// What it is called in JSON.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Axis(Axis::Dp) => "dp",
            Self::Axis(Axis::Tp) => "tp",
            Self::Axis(Axis::Pp) => "pp",
            Self::Other => "other",
            Self::Device => "device",
            Self::StepEnd => "step_end",
        }
    }

    /// What a rank waits for, for people.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Axis(Axis::Dp) => "data",
            Self::Axis(Axis::Tp) => "tensor",
            Self::Axis(Axis::Pp) => "pipeline",
            Self::Other => "other messages",
            Self::Device => "its turn",
            Self::StepEnd => "the step's end",
        }
    }
}

impl RankTime {
    /// Idle time by kind of cause.
    pub fn by_reason(&self) -> BTreeMap<Reason, Nanos> {
        let mut sums = BTreeMap::new();
        for Idle { span, cause } in &self.idle {
            *sums.entry(Reason::of(*cause)).or_default() += span.duration();
        }
        sums
    }
}

impl StepTime {
    /// Adds up a Trace of a Plan.
    pub fn of(plan: &Plan, order: &Order, trace: &Trace) -> Self {
        let step = trace.end();
        let rank = |rank| RankReader { plan, order, trace, rank }.read(step);
        Self {
            step,
            ranks: (0..plan.programs.len() as u32).map(Rank).map(rank).collect(),
            clock: trace.clock,
        }
    }

    /// Busy time of all ranks, and what they wait for; with [`StepTime::step`] times the ranks as
    /// their sum.
    pub fn sums(&self) -> (Nanos, BTreeMap<Reason, Nanos>) {
        let mut reasons = BTreeMap::new();
        for (reason, nanos) in self.ranks.iter().flat_map(RankTime::by_reason) {
            *reasons.entry(reason).or_default() += nanos;
        }
        (self.ranks.iter().map(|rank| rank.busy).sum(), reasons)
    }

    /// Messages of a mean rank, each of which stands for `weights[rank]` of them.
    pub fn mean_messages(&self, weights: &[u32]) -> Messages {
        let all: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
        let mean = |of: fn(&Messages) -> Nanos| {
            let ranks = self.ranks.iter().zip(weights);
            let sum: Nanos = ranks.map(|(rank, n)| of(&rank.messages) * u64::from(*n)).sum();
            Nanos(sum.0 / all.max(1))
        };
        Messages { hidden: mean(|m| m.hidden), exposed: mean(|m| m.exposed) }
    }
}

/// Whether an instruction is communication: a message, or a collective that stands whole in the
/// Plan of a described cluster.
fn communicates(action: &Action) -> bool {
    match action {
        Action::Send { .. } | Action::Recv { .. } => true,
        Action::Launch { op: Op::Coarse(op), .. } => matches!(
            op.kind,
            CoarseKind::LayerCollectives | CoarseKind::ReduceGradients | CoarseKind::GatherWeights
        ),
        Action::Launch { .. } | Action::Copy { .. } => false,
    }
}

struct RankReader<'a> {
    plan: &'a Plan,
    order: &'a Order,
    trace: &'a Trace,
    rank: Rank,
}

impl RankReader<'_> {
    fn instrs(&self) -> impl Iterator<Item = (u32, &Instr, Span)> {
        let rows = self.plan.programs[self.rank.index()].instrs.iter();
        let pairs = (0u32..).zip(rows.zip(&self.trace.spans[self.rank.index()]));
        pairs.map(|(index, (instr, span))| (index, instr, *span))
    }

    fn read(&self, step: Nanos) -> RankTime {
        let (mut work, mut moving) = (Vec::new(), Vec::new());
        for (index, instr, span) in self.instrs().filter(|(.., span)| span.start < span.end) {
            if communicates(&instr.action) {
                moving.push(span);
            } else if instr.lane == Lane::Compute {
                work.push((index, span));
            }
        }
        let moving = union(moving);
        let busy = union(work.iter().map(|(_, span)| *span).collect());
        let hidden = overlap(&moving, &busy);
        RankTime {
            busy: length(&busy),
            idle: self.idle(&work, step),
            messages: Messages { hidden, exposed: length(&moving) - hidden },
        }
    }

    /// The gaps before each work, and after the last.
    fn idle(&self, work: &[(u32, Span)], step: Nanos) -> Vec<Idle> {
        let (mut found, mut at) = (Vec::new(), Nanos(0));
        for &(next, span) in work {
            if at < span.start {
                let span = Span { start: at, end: span.start };
                let held_by = cause::waited_for(self.order, self.trace, (self.rank, next), span);
                found.push(Idle { span, cause: self.cause(Some(next), held_by) });
            }
            at = at.max(span.end);
        }
        // Messages and additions may go on behind the last work.
        let last = self.instrs().max_by_key(|&(index, _, span)| (span.end, index));
        if let Some((last, _, Span { end, .. })) = last.filter(|(.., span)| at < span.end) {
            let span = Span { start: at, end };
            let held_by = cause::waited_for(self.order, self.trace, (self.rank, last), span);
            found.push(Idle { span, cause: self.cause(Some(last), held_by.or(Some(last))) });
            at = end;
        }
        if at < step {
            let span = Span { start: at, end: step };
            found.push(Idle { span, cause: self.cause(None, None) });
        }
        found
    }

    fn cause(&self, next: Option<u32>, held_by: Option<u32>) -> Cause {
        cause::of(self.plan, self.rank, next, held_by)
    }
}

#[cfg(test)]
mod tests {
    //! Hand-made steps whose sums are known.
    use super::*;
    use crate::plan::order;
    use crate::plan::sample::{Sample, one_f_one_b, pipeline, unit_durations};
    use crate::plan::{Origin, Phase};
    use crate::sim::{Links, replay};

    fn span(start: u64, end: u64) -> Span {
        Span { start: Nanos(start), end: Nanos(end) }
    }

    fn trace(clock: Clock, spans: Vec<Vec<Span>>) -> Trace {
        Trace { clock, step: 0, spans, paths: Vec::new() }
    }

    #[test]
    fn overlap_is_read_from_typed_actions_whatever_they_are_called() {
        // A message of 100 ns, of which 40 lie beside work. A copy called `send_recv` is work, and
        // so is an addition whose origin is a collective of gradients.
        let mut sample = Sample::new(2);
        let [x, y] = ["nccl_send_recv", "nccl_all_reduce"].map(|name| sample.step(0, name, 8));
        let z = sample.step(1, "z", 8);
        sample.send(0, x, 1, 0);
        sample.origin =
            Origin { phase: Phase::GradReduce, axis: Some(Axis::Dp), ..Origin::default() };
        sample.add(0, x, x, y);
        sample.push(0, Lane::Compute, Action::Copy { from: x, to: y });
        sample.recv(1, z, 0, 0);
        let order = order::derive(&sample.plan);
        let rows = vec![vec![span(10, 110), span(0, 30), span(90, 140)], vec![span(10, 110)]];
        let time = StepTime::of(&sample.plan, &order, &trace(Clock::Measured, rows));
        let [first, second] = time.ranks.as_slice() else { unreachable!("two ranks") };
        assert_eq!(first.messages, Messages { hidden: Nanos(40), exposed: Nanos(60) });
        assert_eq!(first.busy, Nanos(80));
        assert_eq!(second.messages, Messages { hidden: Nanos(0), exposed: Nanos(100) });
        let mean = time.mean_messages(&[1, 1]);
        assert_eq!(mean, Messages { hidden: Nanos(20), exposed: Nanos(80) });
    }

    #[test]
    fn idle_of_a_pipeline_waits_for_other_stages_or_for_the_end() {
        let plan = pipeline(&one_f_one_b(4, 8));
        let order = order::derive(&plan);
        let graph = order::graph(&plan, &order);
        let durations = unit_durations(&plan, 10, &[1; 4]);
        let trace = replay(&plan, &graph, &durations, &Links::FREE, 0).unwrap();
        let time = StepTime::of(&plan, &order, &trace);
        let (busy, reasons) = time.sums();
        assert_eq!(busy, Nanos(4 * 8 * 30));
        // Every rank waits (p−1) times a forward and a backward, of all that is not its end for
        // messages, which have no axis in a hand-written Plan.
        let waits: Nanos = reasons.values().copied().sum();
        assert_eq!(waits, Nanos(4 * 3 * 30));
        assert!(!reasons.contains_key(&Reason::Device), "{reasons:?}");
        // Rank p ends p backwards of 20 before the step does.
        assert_eq!(reasons[&Reason::StepEnd], Nanos((1 + 2 + 3) * 20));
        assert_eq!(reasons[&Reason::Other], Nanos(4 * 3 * 30 - (1 + 2 + 3) * 20));
    }

    #[test]
    fn work_on_another_lane_and_turns_on_a_device_have_causes_of_their_own() {
        let mut sample = Sample::new(1);
        let [x, y, z] = ["x", "y", "z"].map(|name| sample.step(0, name, 8));
        sample.fill(0, x);
        sample.origin = Origin { axis: Some(Axis::Dp), ..Origin::default() };
        let add = sample.add(0, x, x, y);
        sample.plan.programs[0].instrs[add as usize].lane = Lane::Reduce;
        sample.origin = Origin::default();
        sample.add(0, y, y, z);
        sample.fill(0, x);
        let order = order::derive(&sample.plan);
        let rows = vec![vec![span(5, 10), span(10, 25), span(25, 30), span(34, 40)]];
        let time = StepTime::of(&sample.plan, &order, &trace(Clock::Measured, rows));
        let found: Vec<(u64, Reason)> = time.ranks[0]
            .idle
            .iter()
            .map(|idle| (idle.span.duration().0, Reason::of(idle.cause)))
            .collect();
        let expected = [(5, Reason::Device), (15, Reason::Axis(Axis::Dp)), (4, Reason::Device)];
        assert_eq!(found, expected);
        assert_eq!(time.ranks[0].busy, Nanos(16));
    }
}
