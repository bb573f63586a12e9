//! The numbers of a run: counted, checked against each other, and as the JSON object of `train`.
//!
//! Bytes are what crossed, counted where they crossed; they must equal the ledger, which counts the
//! same Plan, or the run fails.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::Failure;
use super::clocks::{Clocks, ClocksEntry};
use crate::config::Layout;
use crate::exec::{Crossed, DeviceInfo};
use crate::ledger::{Ledger, RankLedger};
use crate::mesh::{Axis, Rank};
use crate::plan::Role;
use crate::trace::bubble::Bubble;
use crate::trace::{Badge, Clock};
use crate::train::{Session, StepReport};
use crate::units::Bytes;

/// What the JSON tells of a step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StepEntry {
    /// Which step, 0-based.
    pub step: u64,
    /// Mean loss before the update.
    pub loss: f64,
    /// Global gradient norm before clipping.
    pub grad_norm: f64,
    /// Learning rate.
    pub lr: f32,
    /// Wall clock.
    pub seconds: f64,
}

impl From<&StepReport> for StepEntry {
    fn from(report: &StepReport) -> Self {
        let StepReport { step, loss, grad_norm, lr, seconds, .. } = *report;
        Self { step, loss, grad_norm, lr, seconds }
    }
}

/// The object that `train --json` prints.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The layout, key by key.
    pub layout: Value,
    /// The device of each rank.
    pub devices: Vec<DeviceEntry>,
    /// What was trained.
    pub steps: Vec<StepEntry>,
    /// Tokens of all steps over their seconds; `None` without a step.
    pub tokens_per_second: Option<f64>,
    /// Seconds of a step as predicted; `None` on a machine that was never measured.
    pub predicted_step_seconds: Option<f64>,
    /// Waiting of the replayed step; `None` without a step.
    pub bubble: Option<BubbleEntry>,
    /// Bytes that cross in a step.
    pub bytes_per_step: BytesEntry,
    /// Memory of each rank.
    pub memory: Vec<MemoryEntry>,
    /// What else the clocks tell; nothing without a step.
    #[serde(flatten)]
    pub clocks: Option<ClocksEntry>,
    /// Where the numbers come from.
    pub badges: BTreeMap<&'static str, Badge>,
}

/// The device of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceEntry {
    /// Which rank.
    pub rank: Rank,
    /// Name for people.
    pub name: String,
    /// host, discrete, integrated or software.
    pub kind: &'static str,
    /// CPU, Vulkan, Metal or Dx12.
    pub api: String,
    /// Driver and version.
    pub driver: String,
}

/// How much the ranks wait.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BubbleEntry {
    /// Waiting over the span from the first forward to the last backward.
    pub waiting_over_span: f64,
    /// Waiting over the work inside that span.
    pub waiting_over_ideal: f64,
    /// Share of the whole step in which Compute lanes run nothing.
    pub idle_of_step: f64,
    /// Whose time it is.
    pub clock: Clock,
}

impl From<&Bubble> for BubbleEntry {
    fn from(bubble: &Bubble) -> Self {
        let Bubble { waiting_over_span, waiting_over_ideal, idle_of_step, clock, .. } = *bubble;
        Self { waiting_over_span, waiting_over_ideal, idle_of_step, clock }
    }
}

/// Bytes that cross between ranks in a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BytesEntry {
    /// All of them.
    pub total: u64,
    /// By the axis for which they cross.
    pub by_axis: BTreeMap<Axis, u64>,
    /// What each rank sends.
    pub by_rank: Vec<u64>,
}

impl BytesEntry {
    /// Adds up what crossed between `ranks` ranks.
    pub fn of(crossed: &Crossed, ranks: usize) -> Self {
        let mut by_axis: BTreeMap<Axis, u64> = Axis::ALL.map(|axis| (axis, 0)).into();
        let mut by_rank = vec![0; ranks];
        for &(from, _, axis, bytes) in &crossed.links {
            *by_axis.entry(axis).or_default() += bytes;
            by_rank[from.index()] += bytes;
        }
        Self { total: by_rank.iter().sum(), by_axis, by_rank }
    }
}

/// Memory of a rank in bytes: the five roles at the moment of the live peak, and their sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryEntry {
    /// Which rank.
    pub rank: Rank,
    /// Weights, gathered ones too.
    pub weights: Bytes,
    /// Gradients of weights.
    pub gradients: Bytes,
    /// Optimizer state.
    pub optimizer: Bytes,
    /// Activations and their gradients.
    pub activations: Bytes,
    /// Messages, staging, scratch, inputs and outputs.
    pub workspace: Bytes,
    /// What the planner placed.
    pub placed: Bytes,
    /// The live peak.
    pub peak: Bytes,
}

impl MemoryEntry {
    /// The memory of each rank.
    pub fn of(ledger: &Ledger) -> Vec<Self> {
        let entry = |(rank, costs): (u32, &RankLedger)| {
            let memory = &costs.memory;
            let at = |role| memory.at_peak[role];
            Self {
                rank: Rank(rank),
                weights: at(Role::Weights),
                gradients: at(Role::Gradients),
                optimizer: at(Role::Optimizer),
                activations: at(Role::Activations),
                workspace: at(Role::Workspace),
                placed: memory.placed,
                peak: memory.peak(),
            }
        };
        (0..).zip(&ledger.ranks).map(entry).collect()
    }
}

/// What the ledger says would cross.
pub fn planned_crossings(ledger: &Ledger) -> Crossed {
    let links = ledger.links.iter().map(|link| (link.from, link.to, link.axis, link.bytes.0));
    Crossed { links: links.filter(|&(.., bytes)| bytes > 0).collect() }
}

/// Holds what a step did against what its Plan says: bytes on each link, and instructions.
///
/// # Errors
/// If they differ, with the first link that does.
pub fn check_counts(report: &StepReport, ledger: &Ledger) -> Result<(), Failure> {
    let remedy = "This is a fault of shardlab: please report it with the scenario";
    let planned = planned_crossings(ledger);
    if report.crossed != planned {
        let link = |crossed: &Crossed, at: usize| match crossed.links.get(at) {
            Some((from, to, axis, bytes)) => format!("{from} → {to} on {axis}: {bytes} bytes"),
            None => "nothing more".into(),
        };
        let pairs = planned.links.iter().zip(&report.crossed.links);
        let at = pairs.take_while(|(one, other)| one == other).count();
        return Err(Failure::Check {
            what: format!("bytes of step {}", report.step),
            why: format!(
                "counted {}, but {} crossed",
                link(&planned, at),
                link(&report.crossed, at)
            ),
            remedy: remedy.into(),
        });
    }
    if report.instructions != ledger.instrs() {
        return Err(Failure::Check {
            what: format!("instructions of step {}", report.step),
            why: format!("{} ran of {} in the Plan", report.instructions, ledger.instrs()),
            remedy: remedy.into(),
        });
    }
    Ok(())
}

impl Report {
    /// The report of a session that ran `steps`; `predicted` are the seconds of one that was never
    /// run.
    pub fn of(
        session: &Session,
        steps: &[StepEntry],
        clocks: Option<&Clocks>,
        predicted: Option<f64>,
    ) -> Self {
        let ledger = session.ledger();
        let badges = [
            ("seconds", Badge::Measured),
            ("tokens_per_second", Badge::Measured),
            ("predicted_step_seconds", Badge::Predicted),
            ("bubble", Badge::Replayed),
            ("waiting_parts", Badge::Replayed),
            ("waiting_parts.measured", Badge::Measured),
            ("idle", Badge::Replayed),
            ("critical_path", Badge::Replayed),
            ("messages", Badge::Replayed),
            ("devices_spend", Badge::Measured),
            ("limit", Badge::Measured),
            ("bytes_per_step", Badge::Counted),
            ("memory", Badge::Counted),
        ];
        Self {
            layout: layout_json(&session.scenario().layout),
            devices: device_entries(&session.devices()),
            steps: steps.to_vec(),
            tokens_per_second: tokens_per_second(session, steps),
            predicted_step_seconds: predicted,
            bubble: clocks.map(|clocks| BubbleEntry::from(&clocks.bubble)),
            // Every step was held against the ledger.
            bytes_per_step: BytesEntry::of(&planned_crossings(&ledger), ledger.ranks.len()),
            memory: MemoryEntry::of(&ledger),
            clocks: clocks.map(Clocks::entry),
            badges: badges.into(),
        }
    }
}

/// Tokens of all steps over the seconds of all steps.
pub fn tokens_per_second(session: &Session, steps: &[StepEntry]) -> Option<f64> {
    let training = &session.scenario().training;
    let tokens = f64::from(training.batch) * f64::from(training.seq) * steps.len() as f64;
    let seconds: f64 = steps.iter().map(|step| step.seconds).sum();
    (seconds > 0.0).then(|| tokens / seconds)
}

/// The median step; `None` without a step.
pub fn median_seconds(steps: &[StepEntry]) -> Option<f64> {
    let mut seconds: Vec<f64> = steps.iter().map(|step| step.seconds).collect();
    seconds.sort_by(f64::total_cmp);
    let last = seconds.len().checked_sub(1)?;
    Some(f64::midpoint(seconds[last / 2], seconds[seconds.len() / 2]))
}

/// The layout as an object whose keys are spelt like all others.
///
/// # Panics
/// Never: a layout is always JSON unless a path is no text, and then it is left out.
pub fn layout_json(layout: &Layout) -> Value {
    let Ok(Value::Object(fields)) = serde_json::to_value(layout) else { return Value::Null };
    fields.into_iter().map(|(key, value)| (key.replace('-', "_"), value)).collect()
}

/// The devices of the ranks, by rank.
pub fn device_entries(devices: &[DeviceInfo]) -> Vec<DeviceEntry> {
    let entry = |(rank, device): (u32, &DeviceInfo)| DeviceEntry {
        rank: Rank(rank),
        name: device.name.clone(),
        kind: super::doctor::kind_word(device.kind),
        api: device.api.clone(),
        driver: device.driver.clone(),
    };
    (0..).zip(devices).map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_added_up_by_axis_and_sender() {
        let link = |from, to, axis, bytes| (Rank(from), Rank(to), axis, bytes);
        let links = vec![link(0, 1, Axis::Tp, 5), link(0, 2, Axis::Pp, 7), link(2, 0, Axis::Pp, 1)];
        let bytes = BytesEntry::of(&Crossed { links }, 3);
        assert_eq!((bytes.total, bytes.by_rank), (13, vec![12, 0, 1]));
        assert_eq!(bytes.by_axis, [(Axis::Dp, 0), (Axis::Tp, 5), (Axis::Pp, 8)].into());
    }

    #[test]
    fn the_keys_of_a_layout_are_spelt_like_all_others() {
        let json = layout_json(&Layout { pp: 3, ..Layout::default() });
        assert_eq!((&json["pp"], &json["zero"]), (&3.into(), &0.into()));
        assert_eq!(json["sequence_parallel"], false);
        assert_eq!(json["rank_order"], "tp-dp-pp");
    }
}
