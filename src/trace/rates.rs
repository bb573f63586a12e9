//! What kernels and messages of measured steps achieve: how often they run, for how long, and what
//! they compute and move in that time.

use std::collections::BTreeMap;
use std::fmt;

use super::Trace;
use crate::mesh::Axis;
use crate::ops::Kernel as _;
use crate::plan::{Action, Lane, Plan};
use crate::units::{Bytes, Flops, Nanos};

/// What instructions have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Launches of a kernel, by its name.
    Kernel(&'static str),
    /// Copies inside a rank.
    Copy,
    /// Messages for an axis.
    Message(Axis),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(name) => f.pad(name),
            Self::Copy => f.pad("copy"),
            Self::Message(axis) => f.pad(&format!("message, {}", axis.word())),
        }
    }
}

/// All instructions of a kind in one or more steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// How many.
    pub count: u64,
    /// The time that they took, one after the other.
    pub busy: Nanos,
    /// Operations.
    pub flops: Flops,
    /// The least traffic that they can have: bytes read and written once.
    pub bytes: Bytes,
}

impl Work {
    /// Operations a second; `None` where no time was measured.
    pub fn flops_per_sec(&self) -> Option<f64> {
        (self.busy.0 > 0).then(|| self.flops.0 as f64 / self.busy.as_secs())
    }

    /// Bytes a second; `None` where no time was measured.
    pub fn bytes_per_sec(&self) -> Option<f64> {
        (self.busy.0 > 0).then(|| self.bytes.0 as f64 / self.busy.as_secs())
    }

    /// The time over the measured one that it would take if arithmetic or traffic, whichever takes
    /// longer, ran at these rates (the roofline: Williams, Waterman and Patterson, 2009).
    pub fn share_of(&self, flops_per_sec: f64, bytes_per_sec: f64) -> Option<f64> {
        let least = (self.flops.0 as f64 / flops_per_sec).max(self.bytes.0 as f64 / bytes_per_sec);
        (self.busy.0 > 0).then(|| least / self.busy.as_secs())
    }

    fn add(&mut self, busy: Nanos, flops: Flops, bytes: Bytes) {
        self.count += 1;
        self.busy += busy;
        self.flops += flops;
        self.bytes += bytes;
    }
}

/// The work of steps, by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    kinds: BTreeMap<Kind, Work>,
}

impl Rates {
    /// Of some measured steps of a Plan together.
    pub fn of<'a>(plan: &Plan, traces: impl IntoIterator<Item = &'a Trace>) -> Self {
        let mut rates = Self::default();
        for trace in traces {
            for (program, spans) in plan.programs.iter().zip(&trace.spans) {
                for (instr, span) in program.instrs.iter().zip(spans) {
                    let (kind, flops, bytes) = match &instr.action {
                        Action::Launch { op, .. } => {
                            (Kind::Kernel(op.name()), op.flops(), op.signature().bytes())
                        }
                        Action::Copy { from, .. } => {
                            (Kind::Copy, Flops(0), plan.view_bytes(*from) * 2)
                        }
                        Action::Send { view, hops, .. } => {
                            let Lane::Out(axis, _) = instr.lane else { continue };
                            let bytes = plan.view_bytes(*view) * u64::from(*hops) * 2;
                            (Kind::Message(axis), Flops(0), bytes)
                        }
                        // It has the span of its send.
                        Action::Recv { .. } => continue,
                    };
                    rates.kinds.entry(kind).or_default().add(span.duration(), flops, bytes);
                }
            }
        }
        rates
    }

    /// Kinds with their work, those that took the longest first.
    pub fn longest_first(&self) -> Vec<(Kind, Work)> {
        let mut kinds: Vec<(Kind, Work)> =
            self.kinds.iter().map(|(kind, work)| (*kind, *work)).collect();
        kinds.sort_by_key(|(kind, work)| (std::cmp::Reverse(work.busy), *kind));
        kinds
    }

    /// Operations of all kinds.
    pub fn flops(&self) -> Flops {
        self.kinds.values().map(|work| work.flops).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Scenario;
    use crate::ledger::Ledger;
    use crate::planner::{Purpose, StepSpec, plan_step};
    use crate::trace::{Clock, Span};

    #[test]
    fn counts_are_those_of_the_ledger_and_rates_those_of_the_durations() {
        let Scenario { model, layout, training, .. } = Scenario::quickstart();
        let model = model.resolve().unwrap();
        let purpose = Purpose::Train;
        let spec = StepSpec { model, layout, training, purpose, device_kinds: Vec::new() };
        let plan = plan_step(&spec).unwrap();
        // Everything takes two nanoseconds.
        let span = Span { start: Nanos(5), end: Nanos(7) };
        let spans = plan.programs.iter().map(|program| vec![span; program.instrs.len()]).collect();
        let trace = Trace { clock: Clock::Measured, step: 0, spans, paths: Vec::new() };
        let rates = Rates::of(&plan, [&trace, &trace]);
        let ledger = Ledger::of(&plan);
        let messages = |axis| {
            let work = rates.longest_first().into_iter().find(|of| of.0 == Kind::Message(axis));
            work.map_or(Bytes(0), |(_, work)| work.bytes)
        };
        for axis in Axis::ALL {
            // Two steps, and each byte is read and written.
            assert_eq!(messages(axis), ledger.bytes_on(axis) * 4, "{axis:?}");
        }
        assert_eq!(rates.flops(), ledger.flops() * 2);
        for (kind, work) in rates.longest_first() {
            assert_eq!(work.busy.0, 2 * work.count, "{kind:?}");
            assert_eq!(work.flops_per_sec(), Some(work.flops.0 as f64 / work.busy.as_secs()));
        }
    }

    #[test]
    fn a_share_is_that_of_what_takes_longer() {
        let work = Work { count: 1, busy: Nanos(1_000), flops: Flops(600), bytes: Bytes(100) };
        // 600 operations take 0.6 µs at a thousand a microsecond, 100 bytes 0.1 or 0.8.
        let is = |share: Option<f64>, expected: f64| (share.unwrap() - expected).abs() < 1e-12;
        assert!(is(work.share_of(1e9, 1e9), 0.6));
        assert!(is(work.share_of(1e9, 0.125e9), 0.8));
        assert_eq!(Work::default().share_of(1e9, 1e9), None);
    }
}
