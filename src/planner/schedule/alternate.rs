//! One forward, one backward in turn: the row that 1F1B, its interleaved and its zero-bubble kin
//! share. They differ in how many forwards run ahead, and in when weight gradients follow.

use super::{Act, Cell, Pass};

/// A stage and a microbatch that pass through it.
pub(super) type Visit = (u32, u32);

/// How backwards are cut.
#[derive(Clone, Copy, Debug)]
pub(super) enum Backward {
    /// B.
    Whole,
    /// I, and W so many backwards later: the longer, the more is kept and the sooner others go on.
    Split {
        /// Backwards between I and W.
        delay: usize,
    },
}

/// A row: `ahead` forwards, then a forward and a backward in turn, then the backwards that remain.
pub(super) fn alternate(
    forwards: &[Visit],
    backwards: &[Visit],
    ahead: u32,
    backward: Backward,
) -> Vec<Cell> {
    let cell = |pass, (stage, microbatch)| Cell::One(Act { stage, pass, microbatch });
    let (warm, steady) = forwards.split_at(forwards.len().min(ahead as usize));
    let mut cells: Vec<Cell> = warm.iter().map(|&visit| cell(Pass::F, visit)).collect();
    for (number, &visit) in backwards.iter().enumerate() {
        cells.extend(steady.get(number).map(|&visit| cell(Pass::F, visit)));
        match backward {
            Backward::Whole => cells.push(cell(Pass::B, visit)),
            Backward::Split { delay } => {
                cells.push(cell(Pass::I, visit));
                let due = number.checked_sub(delay).map(|due| backwards[due]);
                cells.extend(due.map(|visit| cell(Pass::W, visit)));
            }
        }
    }
    if let Backward::Split { delay } = backward {
        let late = &backwards[backwards.len().saturating_sub(delay)..];
        cells.extend(late.iter().map(|&visit| cell(Pass::W, visit)));
    }
    cells
}

/// The most visits that such a row keeps: its warm-up, the forward of the turn, and those whose
/// weight gradients are put off.
pub(super) fn most_kept(visits: u32, ahead: u32, backward: Backward) -> u32 {
    let delay = match backward {
        Backward::Whole => 0,
        Backward::Split { delay } => delay as u32,
    };
    visits.min(ahead + 1 + delay)
}

/// All microbatches through one stage.
pub(super) fn through(stage: u32, microbatches: u32) -> Vec<Visit> {
    (0..microbatches).map(|microbatch| (stage, microbatch)).collect()
}
