//! What panels share that show a picture of the library: painting it, what the pointer does with it,
//! and what stands there while there is nothing to show.

use std::sync::Arc;

use eframe::egui::{Id, Sense};
use shardlab::trace::Trace;
use shardlab::trace::draw::scene::{Area, Canvas, Point, Sketch};

use crate::board::{Board, Control, Style};
use crate::keys::Action;
use crate::paint::{self, Fonts};
use crate::run::State;
pub(super) use crate::shown::rank_of;
use crate::shown::{Command, Shared, Step};

/// What the pointer does with a picture.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pointer {
    /// Where it is, over the picture.
    pub(super) at: Option<Point>,
    /// Whether it was pressed and let go.
    pub(super) clicked: bool,
    /// Whether it was pressed with the other button: what can be done there?
    pub(super) asked: bool,
    /// Whether it is held down.
    pub(super) held: bool,
}

/// Draws a picture; what came of it, and what the pointer does.
pub(super) fn picture<T>(
    board: &mut Board<'_>,
    (area, id): (Area, &str),
    draw: impl FnOnce(&mut Sketch<'_>, Area) -> T,
) -> (T, Pointer) {
    let look = board.look();
    let rect = paint::rect(area);
    let response = board.ui().interact(rect, Id::unique(id), Sense::click_and_drag());
    let ctx = board.ctx().clone();
    let fonts = Fonts(&ctx);
    let canvas = Canvas { theme: &look.theme, measure: &fonts };
    let mut sketch = Sketch::new(canvas, area);
    let drawn = draw(&mut sketch, area.shrunk(look.gap(2), look.gap(1)));
    board.picture(&sketch.scene);
    let pointer = response.hover_pos().map(|pos| Point { x: pos.x, y: pos.y });
    let held = response.is_pointer_button_down_on();
    let (clicked, asked) = (response.clicked(), response.secondary_clicked());
    (drawn, Pointer { at: pointer, clicked, asked, held })
}

/// Says what fills a panel that is empty, and offers one thing to do.
pub(super) fn empty(
    board: &mut Board<'_>,
    area: Area,
    text: &str,
    offer: Option<(&str, &str, Command)>,
) -> Vec<Command> {
    let look = board.look();
    let middle = area.shrunk(look.gap(3), ((area.height - look.gap(18)) / 2.0).max(0.0));
    let (line, below) = middle.cut_top(look.gap(7));
    board.write(line, text, Style::sized(look.small()).middle().ink(look.theme.faint));
    let Some((name, hint, command)) = offer else { return Vec::new() };
    let width = board.button_width(name).min(below.width);
    let (button, _) = below.cut_top(look.gap(8));
    let button = button.shrunk((button.width - width) / 2.0, 0.0);
    let pressed = board.button(button, Control::text(name, name, hint));
    if pressed { vec![command] } else { Vec::new() }
}

/// What stands in a panel before the first step.
pub(super) fn before_first(
    board: &mut Board<'_>,
    area: Area,
    shared: &Shared<'_>,
    what: &str,
) -> Vec<Command> {
    let text = format!("The first step that has ended shows {what} here");
    let offer = match shared.run.state() {
        State::Held => Some(("Train", "Begins to train (Space).", Command::Do(Action::PlayPause))),
        State::Failed(_) | State::NotFinite { .. } | State::Hang { .. } => {
            Some(("Restart", "Trains the same from the beginning.", Command::Do(Action::Restart)))
        }
        State::Starting(_) | State::Training | State::Done => None,
    };
    empty(board, area, &text, offer)
}

/// Something that is prepared once for a step, and again when another one is shown.
#[derive(Debug)]
pub(super) struct Prepared<K, T> {
    of: Option<(Arc<Trace>, K)>,
    value: Option<T>,
}

impl<K, T> Default for Prepared<K, T> {
    fn default() -> Self {
        Self { of: None, value: None }
    }
}

impl<K: PartialEq, T> Prepared<K, T> {
    /// What was prepared for this step and key.
    pub(super) fn get(&mut self, step: &Step, key: K, prepare: impl FnOnce() -> T) -> &T {
        let trace = step.timeline.trace();
        let is_same = |of: &(Arc<Trace>, K)| Arc::ptr_eq(&of.0, trace) && of.1 == key;
        if !self.of.as_ref().is_some_and(is_same) {
            self.value = None;
            self.of = Some((Arc::clone(trace), key));
        }
        self.value.get_or_insert_with(prepare)
    }
}
