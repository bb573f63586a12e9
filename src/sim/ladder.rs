//! From the textbook's waiting to the clock's, a condition at a time: unequal stages, times that
//! vary, messages, turns and dispatch.
//!
//! The same Plan is laid out again and again, each time with one more thing as it really was. The
//! difference between two rungs is what that thing costs, so the parts add up by construction.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Wires, median_durations, replay_over};
use crate::mesh::Rank;
use crate::plan::order::Graph;
use crate::plan::{Instr, Lane, Phase, Plan};
use crate::trace::Trace;
use crate::trace::bubble::bubble;
use crate::units::Nanos;

/// Waiting over span as one condition after another becomes real.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ladder {
    /// Every pass takes the same in all stages, messages are free: what the textbook computes.
    pub equal_stages: f64,
    /// Every pass takes what it takes on average in its stage.
    pub own_stages: f64,
    /// Every instruction takes what it takes.
    pub own_times: f64,
    /// Messages take what the links say: the replayed share.
    pub with_links: f64,
    /// As it was, with turns on shared devices and dispatch: the measured share.
    pub measured: f64,
}

/// What a part of the way between two rungs is called.
pub const PARTS: [&str; 4] = ["unequal stages", "uneven times", "messages", "turns and dispatch"];

impl Ladder {
    /// Lays the last of several measured steps of one Plan out, with the medians of all.
    ///
    /// # Panics
    /// As [`median_durations`], and if the Plan hangs, which one that has run does not.
    pub fn of(plan: &Plan, graph: &Graph, traces: &[&Trace], wires: &Wires) -> Self {
        let durations = median_durations(traces);
        let share = |durations: &[Vec<Nanos>], wires: &Wires| {
            let trace = replay_over(plan, graph, durations, wires, 0)
                .expect("a Plan that has run does not hang");
            bubble(plan, &trace).waiting_over_span
        };
        let free = Wires::free();
        let last = traces.last().expect("a median needs a Trace");
        Self {
            equal_stages: share(&evened(plan, &durations, Alike::All), &free),
            own_stages: share(&evened(plan, &durations, Alike::OfAStage), &free),
            own_times: share(&durations, &free),
            with_links: share(&durations, wires),
            measured: bubble(plan, last).waiting_over_span,
        }
    }

    /// What each of [`PARTS`] adds; together `measured − equal_stages`.
    pub fn parts(&self) -> [f64; 4] {
        let Self { equal_stages, own_stages, own_times, with_links, measured } = *self;
        [
            own_stages - equal_stages,
            own_times - own_stages,
            with_links - own_times,
            measured - with_links,
        ]
    }
}

/// Which cells of a schedule are made to take the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Alike {
    /// All of a pass.
    All,
    /// All of a pass and stage: of its ranks and microbatches.
    OfAStage,
}

/// The pass that an instruction belongs to; a recompute is part of its backward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Pass {
    Forward,
    Backward,
    InputGrad,
    WeightGrad,
}

/// The cell of the schedule that an instruction of the Compute lane is part of.
fn cell(rank: Rank, instr: &Instr) -> Option<(Pass, Option<u32>, Rank, u32)> {
    let pass = match instr.origin.phase {
        Phase::Forward => Pass::Forward,
        Phase::Recompute | Phase::Backward => Pass::Backward,
        Phase::InputGrad => Pass::InputGrad,
        Phase::WeightGrad => Pass::WeightGrad,
        _ => return None,
    };
    let microbatch = instr.origin.microbatch.filter(|_| instr.lane == Lane::Compute)?;
    Some((pass, instr.origin.stage, rank, microbatch))
}

/// The durations with each cell stretched or shrunk to the mean of those it is made alike with.
fn evened(plan: &Plan, durations: &[Vec<Nanos>], alike: Alike) -> Vec<Vec<Nanos>> {
    let ranks = || (0..).map(Rank).zip(plan.programs.iter().zip(durations));
    let mut cells = BTreeMap::new();
    for (rank, (program, nanos)) in ranks() {
        for (instr, nanos) in program.instrs.iter().zip(nanos) {
            if let Some(cell) = cell(rank, instr) {
                *cells.entry(cell).or_insert(0) += nanos.0;
            }
        }
    }
    let class = |(pass, stage, ..): (Pass, Option<u32>, Rank, u32)| match alike {
        Alike::All => (pass, None),
        Alike::OfAStage => (pass, stage),
    };
    let mut means: BTreeMap<_, (u64, u64)> = BTreeMap::new();
    for (cell, nanos) in &cells {
        let (sum, count) = means.entry(class(*cell)).or_default();
        (*sum, *count) = (*sum + nanos, *count + 1);
    }
    let scaled = |rank, (instr, nanos): (&Instr, &Nanos)| {
        let Some(cell) = cell(rank, instr) else { return *nanos };
        let ((sum, count), whole) = (means[&class(cell)], cells[&cell]);
        let factor = if whole == 0 { 1.0 } else { sum as f64 / count as f64 / whole as f64 };
        Nanos((nanos.0 as f64 * factor).round() as u64)
    };
    let rows = ranks().map(|(rank, (program, nanos))| {
        program.instrs.iter().zip(nanos).map(|pair| scaled(rank, pair)).collect()
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Links, replay};
    use super::*;
    use crate::plan::order;
    use crate::plan::sample::{one_f_one_b, pipeline, unit_durations};
    use crate::trace::bubble::formula_waiting_over_span;

    /// The rungs of a pipeline of four stages that was measured over these links; every fourth
    /// microbatch took `noise` more in each pass.
    fn rungs(stages: [u64; 4], noise: u64, measured: &Links, wires: &Wires) -> Ladder {
        let plan = pipeline(&one_f_one_b(4, 16));
        let graph = order::graph(&plan, &order::derive(&plan));
        let mut durations = unit_durations(&plan, 1_000, &stages);
        let lines = plan.programs.iter().flat_map(|program| &program.instrs);
        for (line, nanos) in lines.zip(durations.iter_mut().flatten()) {
            let is_slow = line.origin.microbatch.is_some_and(|m| m.is_multiple_of(4));
            nanos.0 += if is_slow && nanos.0 > 0 { noise } else { 0 };
        }
        let trace = replay(&plan, &graph, &durations, measured, 0).unwrap();
        let ladder = Ladder::of(&plan, &graph, &[&trace], wires);
        let sum: f64 = ladder.parts().iter().sum();
        assert!((ladder.equal_stages + sum - ladder.measured).abs() < 1e-12);
        let formula = formula_waiting_over_span(4, 16);
        assert!((ladder.equal_stages - formula).abs() < 1e-4, "{ladder:?}");
        ladder
    }

    /// Only the parts whose numbers are given are noticeable.
    #[track_caller]
    fn assert_parts(ladder: &Ladder, expected: [bool; 4]) {
        let found = ladder.parts().map(|part| part.abs() > 0.004);
        assert_eq!(found, expected, "{ladder:?}");
    }

    #[test]
    fn each_part_of_the_waiting_comes_from_what_was_changed() {
        const SLOW: Links = Links { latency: Nanos(150), bytes_per_sec: None };
        let (free, pcie) = (Wires::free(), Wires::of_links("slow", SLOW));
        assert_parts(&rungs([1; 4], 0, &Links::FREE, &free), [false; 4]);
        assert_parts(&rungs([1, 1, 2, 1], 0, &Links::FREE, &free), [true, false, false, false]);
        assert_parts(&rungs([1; 4], 900, &Links::FREE, &free), [false, true, false, false]);
        assert_parts(&rungs([1; 4], 0, &SLOW, &pcie), [false, false, true, false]);
        assert_parts(&rungs([1; 4], 0, &SLOW, &free), [false, false, false, true]);
    }
}
