//! The menu of a rank or a wire: what can be broken there, beside the pointer.

use eframe::egui::Key;
use shardlab::trace::draw::scene::{Area, Point};
use shardlab::trace::draw::timeline::Target;

use super::Around;
use crate::board::{Board, Control, Style};
use crate::shown::Command;

/// Height of an entry before scaling.
const ROW: f32 = 30.0;
/// Height of the ground around them.
const EDGE: f32 = 24.0;

/// The menu.
#[derive(Debug)]
pub(super) struct Menu {
    target: Target,
    at: Point,
    chosen: usize,
}

/// Height for so many entries, before scaling.
pub(super) fn height(entries: usize) -> f32 {
    ROW * entries.max(1) as f32 + EDGE
}

impl Menu {
    pub(super) fn new(target: Target, at: Point) -> Self {
        Self { target, at, chosen: 0 }
    }

    /// What it is about.
    pub(super) fn target(&self) -> Target {
        self.target
    }

    /// Where it was asked for.
    pub(super) fn at(&self) -> Point {
        self.at
    }

    pub(super) fn show(
        &mut self,
        board: &mut Board<'_>,
        area: Area,
        around: &Around<'_>,
    ) -> Vec<Command> {
        let look = board.look();
        let offers = &around.more;
        let (up, down, enter) = board.ctx().input(|input| {
            let pressed = |key| input.key_pressed(key);
            (pressed(Key::ArrowUp), pressed(Key::ArrowDown), pressed(Key::Enter))
        });
        self.chosen = (self.chosen + usize::from(down)).min(offers.len().saturating_sub(1));
        self.chosen = self.chosen.saturating_sub(usize::from(up));
        let row = area.height / offers.len().max(1) as f32;
        let mut asked = if enter { offers.get(self.chosen) } else { None };
        let mut rest = area;
        for (index, offer) in offers.iter().enumerate() {
            let (line, below) = rest.cut_top(row);
            rest = below;
            let control = Control { text: "", ..Control::text(&offer.name, "", &offer.name) };
            if board.flat_button(line, control.chosen(index == self.chosen)) {
                asked = Some(offer);
            }
            board.write(line.shrunk(look.gap(2), 0.0), &offer.name, Style::default());
        }
        if offers.is_empty() {
            let text = "Nothing can be broken here yet";
            board.write(area, text, Style::default().ink(look.theme.faint));
        }
        asked.map(|offer| vec![Command::Close, offer.command.clone()]).unwrap_or_default()
    }
}
