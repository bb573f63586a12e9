//! A menu beside the pointer: what can be broken in a rank or a wire, or what one of two timelines
//! can show.

use eframe::egui::Key;
use shardlab::trace::draw::scene::{Area, Point};
use shardlab::trace::draw::timeline::Target;

use super::Around;
use crate::app::Half;
use crate::board::{Board, Control, Style};
use crate::shown::{Command, Popup};

/// Height of an entry before scaling.
const ROW: f32 = 30.0;
/// Height of the ground around them.
const EDGE: f32 = 24.0;

/// What a menu is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// Something in a picture: what can be done to it.
    Target(Target),
    /// One of the two timelines that are compared: what it can show.
    Half(Half),
}

/// The menu.
#[derive(Debug)]
pub(super) struct Menu {
    subject: Subject,
    at: Point,
    /// The entry that keys have gone to.
    chosen: Option<usize>,
}

/// Height for so many entries, before scaling.
pub(super) fn height(entries: usize) -> f32 {
    ROW * entries.max(1) as f32 + EDGE
}

impl Menu {
    pub(super) fn new(subject: Subject, at: Point) -> Self {
        Self { subject, at, chosen: None }
    }

    /// What in a picture it is about.
    pub(super) fn target(&self) -> Option<Target> {
        match self.subject {
            Subject::Target(target) => Some(target),
            Subject::Half(_) => None,
        }
    }

    /// Which one it is.
    pub(super) fn popup(&self) -> Popup {
        match self.subject {
            Subject::Target(_) => Popup::Break,
            Subject::Half(half) => Popup::Half(half),
        }
    }

    /// Width before scaling.
    pub(super) fn width(&self) -> f32 {
        match self.subject {
            Subject::Target(_) => 340.0,
            Subject::Half(_) => 440.0,
        }
    }

    /// Where it hangs: below the name of what it changes, or where it was asked for.
    pub(super) fn at(&self, headings: [Area; 2]) -> Point {
        match self.subject {
            Subject::Target(_) => self.at,
            Subject::Half(half) => {
                let heading = headings[usize::from(half == Half::Lower)];
                Point { x: heading.left, y: heading.bottom() }
            }
        }
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
        // Keys begin at what is so now.
        let chosen = self.chosen.or(around.now).unwrap_or_default() + usize::from(down);
        let chosen = chosen.min(offers.len().saturating_sub(1)).saturating_sub(usize::from(up));
        self.chosen = Some(chosen);
        let row = area.height / offers.len().max(1) as f32;
        let mut asked = if enter { offers.get(chosen) } else { None };
        let mut rest = area;
        for (index, offer) in offers.iter().enumerate() {
            let (line, below) = rest.cut_top(row);
            rest = below;
            let control = Control { text: "", ..Control::text(&offer.name, "", &offer.name) };
            if board.flat_button(line, control.chosen(index == chosen)) {
                asked = Some(offer);
            }
            board.write(line.shrunk(look.gap(2), 0.0), &offer.name, Style::default());
        }
        if offers.is_empty() {
            let text = "Nothing can be done here yet";
            board.write(area, text, Style::default().ink(look.theme.faint));
        }
        asked.map(|offer| vec![Command::Close, offer.command.clone()]).unwrap_or_default()
    }
}
