//! Times that a step can never be below, from the prices of one pipeline: by formula for every
//! layout, on paper for the few that the formula does not rule out.
//!
//! Both leave out only waiting for other pipelines and for memory, so both are admissible: a test
//! holds them against simulated steps.

use super::price::{Prices, Sharing, StagePrice};
use crate::planner::schedule::{Act, Pass, Schedule};
use crate::predict::memory::Held;

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
        let weights = if splits { first.pass(Pass::W) } else { 0 };
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

/// Nanoseconds on paper: the schedule's own table with priced passes and messages. Gathered weights
/// hold the first forward of a stage up; the pieces of its gradients are reduced one after the other
/// as its last backward completes them.
///
/// # Panics
/// If rows of the table wait for one another: named schedules do not.
pub(super) fn on_paper(prices: &Prices, held: &[Held], table: &Schedule, microbatches: u32) -> u64 {
    let mut paper = Paper::new(prices, held, table, microbatches);
    let rows = table.rows.len();
    loop {
        let moved = (0..rows).map(|row| paper.run_on(row)).fold(false, |any, moved| any | moved);
        if (0..rows).all(|row| paper.next[row] == paper.acts[row].len()) {
            break;
        }
        assert!(moved, "rows of a named schedule never wait for one another");
    }
    let end = |row: usize| {
        let busy = lane(prices, &held[row], microbatches.into());
        paper.free[row].max(paper.lanes[row]).max(busy) + prices.updates[row]
    };
    (0..rows).map(end).max().unwrap_or(0)
}

/// When things have happened.
struct Paper<'a> {
    prices: &'a Prices,
    microbatches: usize,
    acts: Vec<Vec<Act>>,
    /// By row: passes that have run, when it is free, when its lane of gradients is.
    next: Vec<usize>,
    free: Vec<u64>,
    lanes: Vec<u64>,
    /// By row: when its lane of messages to another row is free.
    sending: Vec<Vec<u64>>,
    /// By stage and microbatch: when the stage's input has arrived, and the gradient of its output.
    inputs: Vec<Option<u64>>,
    gradients: Vec<Option<u64>>,
    /// By stage: when the first and the last piece of its weights are gathered.
    gathered: Vec<(u64, u64)>,
    /// By stage: forwards and completed gradients so far.
    forwards: Vec<usize>,
    completed: Vec<usize>,
}

impl<'a> Paper<'a> {
    fn new(prices: &'a Prices, held: &[Held], table: &Schedule, microbatches: u32) -> Self {
        let (rows, stages) = (table.rows.len(), prices.stages.len());
        let microbatches = microbatches as usize;
        let (mut lanes, mut gathered) = (vec![0; rows], vec![(0, 0); stages]);
        if let Sharing::OnceAStep { gathers: true } = prices.sharing {
            for (lane, held) in lanes.iter_mut().zip(held) {
                for &stage in &held.stages {
                    let price = prices.stages[stage as usize];
                    let last = *lane + price.pieces * price.gather;
                    gathered[stage as usize] = (*lane + price.gather, last);
                    *lane = last;
                }
            }
        }
        let mut inputs = vec![None; stages * microbatches];
        let mut gradients = inputs.clone();
        inputs[..microbatches].fill(Some(0));
        gradients[(stages - 1) * microbatches..].fill(Some(0));
        Self {
            prices,
            microbatches,
            acts: (0..rows).map(|row| table.acts(row).collect()).collect(),
            next: vec![0; rows],
            free: vec![0; rows],
            lanes,
            sending: vec![vec![0; rows]; rows],
            inputs,
            gradients,
            gathered,
            forwards: vec![0; stages],
            completed: vec![0; stages],
        }
    }

    /// Runs the passes of a row until one has to wait; whether any ran.
    fn run_on(&mut self, row: usize) -> bool {
        let before = self.next[row];
        while let Some(&act) = self.acts[row].get(self.next[row]) {
            let Act { stage, pass, microbatch } = act;
            let at = stage as usize * self.microbatches + microbatch as usize;
            let ready = match pass {
                Pass::F => self.inputs[at],
                Pass::B | Pass::I => self.gradients[at],
                Pass::W => Some(0),
            };
            let Some(ready) = ready else { break };
            self.run(row, act, ready);
            self.next[row] += 1;
        }
        self.next[row] > before
    }

    fn run(&mut self, row: usize, act: Act, ready: u64) {
        let Act { stage, pass, microbatch } = act;
        let (stage, microbatch) = (stage as usize, microbatch as usize);
        let price = self.prices.stages[stage];
        let takes = price.pass(pass);
        let mut start = ready.max(self.free[row]);
        let mut end = start + takes;
        if pass == Pass::F {
            if self.forwards[stage] == 0 {
                let (first, last) = self.gathered[stage];
                start = start.max(first);
                end = (start + takes).max(last + takes / price.pieces);
            }
            self.forwards[stage] += 1;
        }
        self.free[row] = end;
        if matches!(pass, Pass::B | Pass::W) {
            self.completed[stage] += 1;
            let joined = if pass == Pass::B { price.joined } else { 0 };
            self.reduce(row, stage, start.saturating_sub(joined), end.saturating_sub(joined));
        }
        match pass {
            Pass::F if stage + 1 < self.prices.stages.len() => {
                let arrived = self.send(row, stage + 1, price.up, end);
                self.inputs[(stage + 1) * self.microbatches + microbatch] = Some(arrived);
            }
            Pass::B | Pass::I if stage > 0 => {
                let arrived = self.send(row, stage - 1, price.down, end);
                self.gradients[(stage - 1) * self.microbatches + microbatch] = Some(arrived);
            }
            _ => {}
        }
    }

    /// When a message to the position of a stage has arrived: they go one after the other.
    fn send(&mut self, row: usize, to: usize, takes: u64, end: u64) -> u64 {
        let to = self.prices.stages[to].owner as usize;
        if to == row {
            return end;
        }
        let lane = &mut self.sending[row][to];
        *lane = end.max(*lane) + takes;
        *lane
    }

    /// What a pass that completes gradients leaves to be reduced; `start`, `end`: as if its
    /// gradients were completed evenly in between.
    fn reduce(&mut self, row: usize, stage: usize, start: u64, end: u64) {
        let price = self.prices.stages[stage];
        let lane = &mut self.lanes[row];
        match self.prices.sharing {
            Sharing::OnceAStep { .. } if self.completed[stage] == self.microbatches => {
                let piece = (end - start) / price.pieces;
                for done in 1..=price.pieces {
                    *lane = (*lane).max(start + done * piece) + price.reduce;
                }
            }
            // Of earlier layers the lane counts as a whole.
            Sharing::EachPass { .. } => *lane = end + price.reduce,
            Sharing::OnceAStep { .. } | Sharing::Nobody => {}
        }
    }
}
