//! What the clocks of a finished run tell: where time goes, what decides the step, what waiting comes
//! from. As numbers for JSON and as the few words of the summary.

use std::collections::BTreeMap;

use serde::Serialize;

use super::run::Run;
use crate::exec::DeviceKind;
use crate::mesh::Rank;
use crate::sim::ladder::{Ladder, PARTS};
use crate::trace::Trace;
use crate::trace::bubble::{Bubble, bubble};
use crate::trace::critical_path::{CriticalPath, PartKind};
use crate::trace::idle::{Messages, Reason, StepTime};
use crate::trace::occupancy::{Device, Limit, Occupancy};
use crate::train::Session;
use crate::units::Nanos;

/// Shares below this are not worth a word.
const NOTICEABLE: f64 = 0.005;

/// The last steps of a run, read in all ways.
#[derive(Clone, Debug)]
pub struct Clocks {
    /// The last steps laid out as if every rank had its own device.
    pub replayed: Trace,
    /// What its links are called.
    pub links: String,
    /// Its waiting.
    pub bubble: Bubble,
    /// Where the time of each rank goes in it.
    pub time: StepTime,
    /// What decides its length.
    pub path: CriticalPath,
    /// What waiting comes from.
    pub ladder: Ladder,
    /// What limits the devices, as measured.
    pub occupancy: Occupancy,
}

impl Clocks {
    /// Reads the last steps of a run; `None` without a step.
    pub(super) fn of(run: &Run) -> Option<Self> {
        let measured = &run.last.as_ref()?.trace;
        let session = &run.session;
        let (plan, order) = (session.plan(), session.order());
        let replayed = session.replayed();
        Some(Self {
            links: session.wires().to_string(),
            bubble: bubble(plan, &replayed),
            time: StepTime::of(plan, order, &replayed),
            path: CriticalPath::of(plan, order, &replayed),
            ladder: session.ladder(),
            occupancy: Occupancy::of(plan, order, measured, &devices(session, run.cores)),
            replayed,
        })
    }

    /// Messages of a mean rank.
    pub fn messages(&self) -> Messages {
        self.time.mean_messages(&vec![1; self.time.ranks.len()])
    }

    /// What waiting comes from beside the textbook's, as points of the span: `+2.1 unequal stages`.
    pub(super) fn rest(&self, formula: Option<f64>) -> Vec<String> {
        let Ladder { equal_stages, .. } = self.ladder;
        let other = formula.map(|formula| ("backward not twice forward", equal_stages - formula));
        // What makes up the measured share beyond that is told by the devices.
        let parts = PARTS.into_iter().zip(self.ladder.parts()).take(3);
        let parts = other.into_iter().chain(parts);
        let noticeable = parts.filter(|(_, part)| part.abs() >= NOTICEABLE);
        noticeable.map(|(what, part)| format!("{:+.1} {what}", 100.0 * part)).collect()
    }

    /// Who decides the length of the step: `71 % on rank 6, 20 % on rank 4, 3 % in messages`.
    pub(super) fn path_words(&self) -> Vec<String> {
        path_words(&self.path, self.time.step, |rank| rank)
    }

    /// What the devices spend their time on: `71 % kernels, 20 % dispatch`.
    pub(super) fn device_words(&self) -> Vec<String> {
        let noticeable = self.occupancy.shares().into_iter().filter(|(_, s)| *s >= NOTICEABLE);
        let share =
            |(limit, share): (Limit, f64)| format!("{:.0} % {}", 100.0 * share, limit.word());
        noticeable.map(share).collect()
    }

    /// The same as an object for JSON.
    pub(super) fn entry(&self) -> ClocksEntry {
        let StepTime { step, ranks, .. } = &self.time;
        let of = |kind| self.path.length_of(kind);
        let ranks = (0..).map(Rank).zip(ranks);
        ClocksEntry {
            links: self.links.clone(),
            waiting_parts: self.ladder,
            idle: IdleEntry {
                step: *step,
                ranks: ranks
                    .map(|(rank, time)| {
                        let idle = time.by_reason().into_iter();
                        let idle = idle.map(|(reason, nanos)| (reason.key(), nanos)).collect();
                        RankEntry { rank, busy: time.busy, idle, messages: time.messages }
                    })
                    .collect(),
            },
            critical_path: PathEntry {
                work: self.path.work_by_rank(),
                messages: of(PartKind::Message),
                ready: of(PartKind::Ready),
            },
            messages: self.messages(),
            devices_spend: self.occupancy,
            limit: self.occupancy.limit(),
        }
    }
}

/// Who decides the length of a step, the largest shares first; `name` is the rank that a program
/// stands for.
pub(super) fn path_words(
    path: &CriticalPath,
    step: Nanos,
    name: impl Fn(Rank) -> Rank,
) -> Vec<String> {
    let share = |nanos: Nanos| nanos.0 as f64 / (step.0 as f64).max(1.0);
    let mut ranks: Vec<(Rank, f64)> =
        path.work_by_rank().into_iter().map(|(rank, nanos)| (rank, share(nanos))).collect();
    ranks.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let (told, others) = ranks.split_at(ranks.len().min(2));
    let mut words: Vec<String> = told
        .iter()
        .map(|(rank, share)| format!("{:.0} % on rank {}", 100.0 * share, name(*rank)))
        .collect();
    let others: f64 = others.iter().map(|(_, share)| share).sum();
    let rest = [
        ("on others", others),
        ("in messages", share(path.length_of(PartKind::Message))),
        ("in dispatch", share(path.length_of(PartKind::Ready))),
    ];
    let rest = rest.into_iter().filter(|(_, share)| *share >= NOTICEABLE);
    words.extend(rest.map(|(what, share)| format!("{:.0} % {what}", 100.0 * share)));
    words
}

/// What ranks wait for on average, the largest shares of the step first: `15 % of the step: 12 %
/// pipeline, 3 % data`.
pub(super) fn idle_words(time: &StepTime, weights: &[u32]) -> String {
    let mut sums: BTreeMap<Reason, f64> = BTreeMap::new();
    for (rank, weight) in time.ranks.iter().zip(weights) {
        for (reason, nanos) in rank.by_reason() {
            *sums.entry(reason).or_default() += nanos.0 as f64 * f64::from(*weight);
        }
    }
    let all: f64 =
        weights.iter().map(|weight| f64::from(*weight)).sum::<f64>() * time.step.0 as f64;
    let mut sums: Vec<(Reason, f64)> =
        sums.into_iter().map(|(reason, sum)| (reason, sum / all.max(1.0))).collect();
    let total: f64 = sums.iter().map(|(_, share)| share).sum();
    sums.retain(|(_, share)| *share >= NOTICEABLE);
    sums.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let words =
        sums.iter().map(|(reason, share)| format!("{:.0} % {}", 100.0 * share, reason.words()));
    let words = words.collect::<Vec<_>>().join(", ");
    let colon = if words.is_empty() { "" } else { ": " };
    format!("{:.0} % of the step{colon}{words}", 100.0 * total)
}

/// The devices of a session with their ranks; the host has as many places as `cores`.
pub(super) fn devices(session: &Session, cores: u32) -> Vec<Device> {
    let mut devices: BTreeMap<usize, Device> = BTreeMap::new();
    for (rank, info) in session.plan().mesh.ranks().zip(session.devices()) {
        let places = if info.kind == DeviceKind::Host { cores } else { 1 };
        let empty = Device { ranks: Vec::new(), places };
        devices.entry(session.device_of(rank)).or_insert(empty).ranks.push(rank);
    }
    devices.into_values().collect()
}

/// What `train --json` tells of its clocks.
#[derive(Clone, Debug, Serialize)]
pub struct ClocksEntry {
    /// Links of the replayed clock.
    pub links: String,
    /// Waiting over span as one condition after another becomes real.
    pub waiting_parts: Ladder,
    /// Busy and idle time of each rank in nanoseconds; they add up to the step.
    pub idle: IdleEntry,
    /// What decides the length of the step.
    pub critical_path: PathEntry,
    /// Communication of a mean rank.
    pub messages: Messages,
    /// Shares of the devices' time.
    pub devices_spend: Occupancy,
    /// The largest of these shares.
    pub limit: Limit,
}

/// Idle time by rank.
#[derive(Clone, Debug, Serialize)]
pub struct IdleEntry {
    /// The replayed step.
    pub step: Nanos,
    /// Index = rank.
    pub ranks: Vec<RankEntry>,
}

/// The time of a rank.
#[derive(Clone, Debug, Serialize)]
pub struct RankEntry {
    /// Which rank.
    pub rank: Rank,
    /// Time in which its Compute lane works.
    pub busy: Nanos,
    /// The rest of the step by what it waits for.
    pub idle: BTreeMap<&'static str, Nanos>,
    /// Its messages, hidden behind its work and exposed.
    pub messages: Messages,
}

/// The critical path.
#[derive(Clone, Debug, Serialize)]
pub struct PathEntry {
    /// Work on the path, by rank.
    pub work: BTreeMap<Rank, Nanos>,
    /// Messages on the path.
    pub messages: Nanos,
    /// Time on the path in which an instruction is ready and does not run.
    pub ready: Nanos,
}
