//! The tabs of the lower band.
//!
//! A tab is a [`Panel`]: it draws into the area that it is given and returns commands. To add one,
//! write it in a file here, drawing through the [`Board`] (pictures of the library go through
//! [`Board::picture`]), and name it in [`left`] or [`right`]; its number key, its place in the
//! palette and its maximised form come by themselves. A panel that is not finished is not named.

mod collective;
mod details;
mod faults;
mod loss;
mod memory;
mod numbers;
mod picture;
mod wires;

use shardlab::mesh::Rank;
use shardlab::trace::draw::scene::Area;

use crate::board::Board;
use crate::shown::{Command, Shared, Side, Step};

/// One tab.
pub trait Panel: std::fmt::Debug {
    /// What stands on the tab.
    fn name(&self) -> &'static str;

    /// What it shows, in one line.
    fn about(&self) -> &'static str;

    /// Draws it.
    fn show(&mut self, board: &mut Board<'_>, area: Area, shared: &Shared<'_>) -> Vec<Command>;

    /// Opens something of the step for a picture; where that has numbers which a step must be run for,
    /// an instruction of it.
    fn show_example(&mut self, _: &Step) -> Option<(Rank, u32)> {
        None
    }

    /// Another run begins: what belongs to the old one is forgotten.
    fn clear(&mut self) {}
}

/// The tabs of the wide part, in order.
pub fn left() -> Vec<Box<dyn Panel>> {
    vec![
        Box::<wires::Wires>::default(),
        Box::<memory::Memory>::default(),
        Box::<collective::Collective>::default(),
        Box::<numbers::Numbers>::default(),
        Box::<faults::Faults>::default(),
    ]
}

/// The tabs of the narrow part, in order. The first one is open at first.
pub fn right() -> Vec<Box<dyn Panel>> {
    vec![Box::<loss::Loss>::default(), Box::<details::Details>::default()]
}

/// The tabs of a side, in order.
pub fn of(side: Side) -> Vec<Box<dyn Panel>> {
    match side {
        Side::Left => left(),
        Side::Right => right(),
    }
}

/// Which of [`right`] a selection opens.
pub const DETAILS: usize = 1;
/// Which of [`right`] shows the run beside one rank.
pub const LOSS: usize = 0;
/// Which of [`left`] shows who sends what to whom.
pub const WIRES: usize = 0;
/// Which of [`left`] shows what each rank holds.
pub const MEMORY: usize = 1;
/// Which of [`left`] steps through a collective.
pub const COLLECTIVE: usize = 2;
/// Which of [`left`] holds numbers against one another.
pub const NUMBERS: usize = 3;
/// Which of [`left`] tells what is broken on purpose.
pub const FAULTS: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tabs_that_open_by_themselves_are_those_that_are_meant() {
        assert_eq!(right()[DETAILS].name(), "Details");
        assert_eq!(right()[LOSS].name(), "Loss");
        assert_eq!(left()[WIRES].name(), "Wires");
        assert_eq!(left()[MEMORY].name(), "Memory");
        assert_eq!(left()[COLLECTIVE].name(), "Collective");
        assert_eq!(left()[NUMBERS].name(), "Numbers");
        assert_eq!(left()[FAULTS].name(), "Faults");
    }
}
