//! A time that a step can never be below, by formula, from the prices of one pipeline.
//!
//! It leaves out what waits for other pipelines, for memory and for the turns of its schedule, so it is
//! admissible: a test holds it against simulated steps.

use super::price::{Prices, Sharing, StagePrice};
use crate::planner::schedule::Pass;
use crate::planner::schedule::named::Held;

/// Nanoseconds by formula: a position waits until the first microbatch has come down to it, runs all
/// passes of its stages, and what is done last comes back to the first stage: (m + p − 1)(F + B) for
/// equal stages. `splits`: whether the schedule runs weight gradients apart.
pub(super) fn by_formula(prices: &Prices, held: &[Held], microbatches: u32, splits: bool) -> u64 {
    let Prices { stages, updates, sharing } = prices;
    let m = u64::from(microbatches);
    // What comes down to a stage, and what is left to do before it.
    let (mut starts, mut drains) = (vec![0; stages.len()], vec![0; stages.len()]);
    if let Sharing::OnceAStep { gathers: true } = sharing {
        starts[0] = stages[0].gather;
    }
    let back = if splits { Pass::I } else { Pass::B };
    for stage in 1..stages.len() {
        let before = stages[stage - 1];
        starts[stage] = starts[stage - 1] + before.pass(Pass::F) + before.up;
        drains[stage] = drains[stage - 1] + before.pass(back) + stages[stage].down;
    }
    let ends_at_first = {
        let first = stages[0];
        // A schedule that splits some backwards may run this one whole.
        let rest = first.pass(Pass::B).saturating_sub(first.pass(Pass::I));
        let weights = if splits { first.pass(Pass::W).min(rest) } else { 0 };
        weights + first.reduced_late() + updates[first.owner as usize]
    };
    let position = |(held, update): (&Held, &u64)| {
        let own = || held.stages.iter().map(|stage| stages[*stage as usize]);
        let first = held.stages[0] as usize;
        let sum = |of: &dyn Fn(&StagePrice) -> u64| own().map(|s| of(&s)).sum::<u64>();
        let forward = sum(&|stage| stage.pass(Pass::F));
        let handed_back = sum(&|stage| stage.pass(back));
        // A schedule that splits some backwards runs others whole.
        let backward = sum(&|stage| {
            let split = stage.pass(Pass::I) + stage.pass(Pass::W);
            if splits { stage.pass(Pass::B).min(split) } else { stage.pass(Pass::B) }
        });
        let reduced = own().map(|stage| stage.reduced_late()).min().unwrap_or(0);
        let here = starts[first] + m * (forward + backward) + reduced + update;
        let back_at_first = match first {
            0 => 0,
            _ => starts[first] + m * (forward + handed_back) + drains[first] + ends_at_first,
        };
        here.max(back_at_first).max(lane(prices, held, m) + update)
    };
    held.iter().zip(updates).map(position).max().unwrap_or(0)
}

/// Nanoseconds in which collectives of weights and gradients keep their lane of a position busy.
fn lane(prices: &Prices, held: &Held, microbatches: u64) -> u64 {
    let (times, gathers) = match prices.sharing {
        Sharing::Nobody => return 0,
        Sharing::OnceAStep { gathers } => (1, u64::from(gathers)),
        Sharing::EachPass { backward_gathers } => (microbatches, 1 + u64::from(backward_gathers)),
    };
    let own = held.stages.iter().map(|stage| prices.stages[*stage as usize]);
    own.map(|stage| times * stage.pieces * (gathers * stage.gather + stage.reduce)).sum()
}
