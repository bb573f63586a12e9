//! Two stages a position in a V: a row that counts its microbatches for itself.
//!
//! Position `i` of `p` holds stage `i` on the way down and stage `2p − 1 − i` on the way up, so the
//! last position hands a microbatch over to itself, and the first one has both embedding and loss.

use std::collections::VecDeque;

use super::{Act, Cell, Pass, Schedule};

/// One of the two stages of a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leg {
    /// The first one.
    Down,
    /// The second one.
    Up,
}

/// A row that grows pass by pass; each pass takes the next microbatch of its stage.
#[derive(Debug)]
pub(super) struct VRow {
    stages: [u32; 2],
    /// By leg: microbatches that have run forward, their input and their weight gradients.
    forwards: [u32; 2],
    inputs: [u32; 2],
    weights: [u32; 2],
    /// Stages of which a weight gradient is put off, the oldest first.
    put_off: VecDeque<Leg>,
    cells: Vec<Cell>,
}

impl VRow {
    pub(super) fn new(position: u32, positions: u32) -> Self {
        Self {
            stages: [position, 2 * positions - 1 - position],
            forwards: [0; 2],
            inputs: [0; 2],
            weights: [0; 2],
            put_off: VecDeque::new(),
            cells: Vec::new(),
        }
    }

    /// How many forwards of a stage have run.
    pub(super) fn forwards(&self, leg: Leg) -> u32 {
        self.forwards[leg as usize]
    }

    /// Runs a pass of the next microbatch.
    pub(super) fn run(&mut self, leg: Leg, pass: Pass) {
        let act = self.next(leg, pass);
        self.cells.push(Cell::One(act));
    }

    /// A forward and a backward that may overlap.
    pub(super) fn pair(&mut self, forward: Leg, backward: Leg) {
        let pair = Cell::Pair(self.next(forward, Pass::F), self.next(backward, Pass::B));
        self.cells.push(pair);
    }

    /// The weight gradient that was put off first.
    pub(super) fn oldest_weights(&mut self) {
        if let Some(&leg) = self.put_off.front() {
            self.run(leg, Pass::W);
        }
    }

    /// All weight gradients of a stage that were put off.
    pub(super) fn all_weights(&mut self, leg: Leg) {
        while self.put_off.contains(&leg) {
            self.run(leg, Pass::W);
        }
    }

    fn next(&mut self, leg: Leg, pass: Pass) -> Act {
        let at = leg as usize;
        let count = |counter: &mut u32| std::mem::replace(counter, *counter + 1);
        let microbatch = match pass {
            Pass::F => count(&mut self.forwards[at]),
            Pass::B => {
                self.weights[at] += 1;
                count(&mut self.inputs[at])
            }
            Pass::I => {
                self.put_off.push_back(leg);
                count(&mut self.inputs[at])
            }
            Pass::W => {
                let oldest = self.put_off.iter().position(|other| *other == leg);
                self.put_off.remove(oldest.expect("input gradients come before weight gradients"));
                count(&mut self.weights[at])
            }
        };
        Act { stage: self.stages[at], pass, microbatch }
    }
}

/// The rows of all positions for the microbatches of the step; what `row` writes for more of them,
/// because it needs so many to fill the pipeline, is left out.
pub(super) fn schedule(positions: u32, microbatches: u32, row: impl Fn(u32) -> VRow) -> Schedule {
    let exists = |act: &Act| act.microbatch < microbatches;
    let kept = |cell: Cell| {
        let mut acts = cell.acts().filter(exists);
        let first = acts.next()?;
        Some(acts.next().map_or(Cell::One(first), |second| Cell::Pair(first, second)))
    };
    let rows = (0..positions).map(|position| row(position).cells.into_iter().filter_map(kept));
    Schedule { rows: rows.map(Iterator::collect).collect() }
}
