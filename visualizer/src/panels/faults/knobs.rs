//! What a fault with a place is turned to: rank, factor, wire, axis.

use shardlab::mesh::{Axis, Rank};
use shardlab::plan::{Origin, Plan};
use shardlab::trace::draw::scene::Area;
use shardlab::trace::draw::timeline::Target;
use shardlab::train::faults::{Fault, places};
use shardlab::units::Nanos;

use super::flow::{Choice, Flow};
use crate::broken::late;
use crate::shown::{Step, rank_of};

const FACTORS: [(f64, &str); 3] = [(2.0, "×2"), (4.0, "×4"), (8.0, "×8")];
const DELAYS: [(u64, &str); 3] = [(100_000, "0.1 ms"), (1_000_000, "1 ms"), (10_000_000, "10 ms")];

/// The knobs; they follow what is chosen in the pictures, and what is broken.
#[derive(Debug)]
pub(super) struct Knobs {
    rank: Rank,
    factor: f64,
    wire: Option<(Rank, Rank)>,
    delay: Nanos,
    axis: Option<Axis>,
    near: Option<Origin>,
    seen: Option<Target>,
}

impl Default for Knobs {
    fn default() -> Self {
        Self {
            rank: Rank(0),
            factor: 4.0,
            wire: None,
            delay: Nanos(1_000_000),
            axis: None,
            near: None,
            seen: None,
        }
    }
}

impl Knobs {
    /// Turns them to what was chosen since the last call.
    pub(super) fn follow(&mut self, selection: Option<Target>, step: Option<&Step>) {
        if selection == self.seen {
            return;
        }
        self.seen = selection;
        let Some(target) = selection else { return };
        if let Target::Link { from, to, axis } = target {
            (self.wire, self.axis) = (Some((from, to)), Some(axis));
        }
        if let Some(rank) = rank_of(target) {
            self.rank = rank;
        }
        self.near = match (target, step) {
            (Target::Block { rank, instr, .. }, Some(step)) => {
                let program = step.facts.plan.programs.get(rank.index());
                program.and_then(|program| program.instrs.get(instr as usize)).map(|i| i.origin)
            }
            _ => None,
        };
    }

    /// Turns them to what is broken.
    pub(super) fn adopt(&mut self, fault: Fault, plan: &Plan) {
        match fault {
            Fault::SlowRank { rank, factor } => (self.rank, self.factor) = (rank, factor),
            Fault::SlowLink { from, to, cost } => {
                (self.wire, self.delay) = (Some((from, to)), cost.latency);
            }
            Fault::Poison { rank, .. } => self.rank = rank,
            Fault::SkipMessage { rank, instr } => {
                self.rank = rank;
                let program = plan.programs.get(rank.index());
                let line = program.and_then(|program| program.instrs.get(instr as usize));
                self.axis = line.and_then(|line| line.origin.axis);
            }
            Fault::ForgetDivision
            | Fault::ScaleByMicrobatches
            | Fault::SplitTied
            | Fault::SplitNorms
            | Fault::RepeatRows => {}
        }
    }

    /// The fault that they stand for; `None` if the layout has no place for it.
    pub(super) fn fault(&self, kind: Fault, plan: &Plan) -> Option<Fault> {
        let rank = Rank(self.rank.0.min(plan.mesh.size() - 1));
        Some(match kind {
            Fault::SlowRank { .. } => Fault::SlowRank { rank, factor: self.factor },
            Fault::SlowLink { .. } => {
                let (from, to) = self.wire_of(&places::links(plan))?;
                Fault::SlowLink { from, to, cost: late(self.delay) }
            }
            Fault::Poison { .. } => {
                Fault::Poison { rank, instr: places::to_poison(plan, rank, self.near)? }
            }
            Fault::SkipMessage { .. } => {
                let axes = places::axes(plan, rank);
                let axis = self.axis.filter(|axis| axes.contains(axis));
                Fault::SkipMessage { rank, instr: places::to_skip(plan, rank, None, axis)? }
            }
            museum => museum,
        })
    }

    fn wire_of(&self, wires: &[(Rank, Rank)]) -> Option<(Rank, Rank)> {
        self.wire.filter(|wire| wires.contains(wire)).or_else(|| wires.first().copied())
    }

    /// Draws the knobs of a kind of fault; whether one was turned.
    pub(super) fn show(&mut self, flow: &mut Flow<'_, '_>, kind: Fault, plan: &Plan) -> bool {
        match kind {
            Fault::SlowRank { .. } => {
                let Some(mut rest) = flow.row("rank") else { return false };
                self.ranks(flow, &mut rest, plan) | self.factors(flow, &mut rest)
            }
            Fault::SlowLink { .. } => self.wires(flow, plan),
            Fault::Poison { .. } => {
                let Some(mut rest) = flow.row("rank") else { return false };
                self.ranks(flow, &mut rest, plan)
            }
            Fault::SkipMessage { .. } => {
                let Some(mut rest) = flow.row("rank") else { return false };
                self.ranks(flow, &mut rest, plan) | self.axes(flow, &mut rest, plan)
            }
            Fault::ForgetDivision
            | Fault::ScaleByMicrobatches
            | Fault::SplitTied
            | Fault::SplitNorms
            | Fault::RepeatRows => false,
        }
    }

    fn ranks(&mut self, flow: &mut Flow<'_, '_>, rest: &mut Area, plan: &Plan) -> bool {
        let count = plan.mesh.size();
        let now = self.rank.0.min(count - 1);
        let by = flow.stepper(rest, "rank", &now.to_string(), "1000");
        self.rank = Rank(turned(now as usize, by, count as usize) as u32);
        if by != 0 {
            // Another rank has other blocks.
            self.near = None;
        }
        by != 0
    }

    fn factors(&mut self, flow: &mut Flow<'_, '_>, rest: &mut Area) -> bool {
        let choices = FACTORS.map(|(factor, text)| Choice {
            id: text,
            text,
            hint: "How many times as long every kernel of the rank takes.",
            chosen: factor == self.factor,
        });
        let pressed = flow.choice(rest, &choices);
        if let Some((factor, _)) = pressed.and_then(|index| FACTORS.get(index)) {
            self.factor = *factor;
        }
        pressed.is_some()
    }

    fn wires(&mut self, flow: &mut Flow<'_, '_>, plan: &Plan) -> bool {
        let wires = places::links(plan);
        let (Some(now), Some(mut rest)) = (self.wire_of(&wires), flow.row("wire")) else {
            return false;
        };
        let at = wires.iter().position(|wire| *wire == now).unwrap_or_default();
        let by = flow.stepper(&mut rest, "wire", &format!("{} → {}", now.0, now.1), "100 → 100");
        self.wire = wires.get(turned(at, by, wires.len())).copied();
        let choices = DELAYS.map(|(nanos, text)| Choice {
            id: text,
            text,
            hint: "How much later every message on this wire arrives.",
            chosen: self.delay == Nanos(nanos),
        });
        let pressed = flow.choice(&mut rest, &choices);
        if let Some((nanos, _)) = pressed.and_then(|index| DELAYS.get(index)) {
            self.delay = Nanos(*nanos);
        }
        by != 0 || pressed.is_some()
    }

    fn axes(&mut self, flow: &mut Flow<'_, '_>, rest: &mut Area, plan: &Plan) -> bool {
        let axes = places::axes(plan, self.rank);
        let chosen = self.axis.filter(|axis| axes.contains(axis)).or(axes.first().copied());
        let ids: Vec<String> = axes.iter().map(|axis| format!("skip {}", axis.word())).collect();
        let choices: Vec<Choice<'_>> = axes
            .iter()
            .zip(&ids)
            .map(|(axis, id)| Choice {
                id,
                text: axis.word(),
                hint: "For which axis the message would have been.",
                chosen: Some(*axis) == chosen,
            })
            .collect();
        let pressed = flow.choice(rest, &choices);
        if let Some(axis) = pressed.and_then(|index| axes.get(index)) {
            self.axis = Some(*axis);
        }
        pressed.is_some()
    }
}

/// One of `count` things, turned on or back, around the ends.
fn turned(now: usize, by: i32, count: usize) -> usize {
    match by {
        ..0 => (now + count - 1) % count,
        0 => now,
        1.. => (now + 1) % count,
    }
}
