//! The left side of Plan: its controls, why the wish cannot be, and what can be done with it.
//!
//! Everything has a place of its own, so that no control moves when a refusal comes or goes.

use eframe::egui;
use shardlab::trace::draw::scene::{Area, Point};
use shardlab::trace::draw::scroll;

use super::{Control, Planning, Reveal, Wish};
use crate::app::draw::part;
use crate::board::{self, Board, Desk, Style};
use crate::keys::{Action, Keys};
use crate::play::Direction;
use crate::shown::Command;
use crate::style::Touch;

/// Heights of a control and of the buttons, before scaling.
const ROW: f32 = 28.0;
const BUTTONS: f32 = 40.0;
/// Lines that are kept for what is said of the wish.
const LINES: usize = 3;

impl Planning {
    /// Draws the left side; what is asked for.
    pub(super) fn left(
        &mut self,
        ui: &mut egui::Ui,
        desk: &mut Desk,
        area: Area,
        keys: &Keys,
    ) -> Vec<Command> {
        let look = desk.look;
        let mut commands = Vec::new();
        let (foot, rest) = area.cut_bottom(BUTTONS * look.scale);
        let said = (look.small() * 1.4).ceil() * LINES as f32 + look.gap(1);
        let (said, controls) = rest.cut_bottom(said);
        part(ui, desk, ("controls", controls), |board, area| {
            commands.extend(self.controls(board, area));
        });
        part(ui, desk, ("plan said", said), |board, area| self.said(board, area));
        part(ui, desk, ("plan foot", foot), |board, area| {
            commands.extend(self.foot(board, area, keys));
        });
        commands
    }

    /// The controls, one below the other; the chosen one is always in sight after it was changed.
    fn controls(&mut self, board: &mut Board<'_>, area: Area) -> Vec<Command> {
        let look = board.look();
        let row = ROW * look.scale;
        let bar = scroll::WIDTH * look.scale;
        let inner = area.cut_right(bar).1.shrunk(look.gap(2), look.gap(1));
        let all = row * Control::ALL.len() as f32;
        let wheel = if board.is_over(area) {
            board.ctx().input(|input| input.smooth_scroll_delta.y)
        } else {
            0.0
        };
        let mut scroll = self.scroll - wheel;
        if self.reveals == Reveal::Next {
            let at = Control::ALL.iter().position(|control| *control == self.control);
            let top = row * at.unwrap_or_default() as f32;
            scroll = scroll.max(top + row - inner.height).min(top);
        }
        let rows_in_sight = Area { left: area.left, width: area.width, ..inner };
        if let Some([track, thumb]) = scroll::bar(rows_in_sight, (scroll, all), bar) {
            if let Some(part) = board.grip(track, "controls in sight") {
                scroll = part * all - inner.height / 2.0;
            }
            board.fill(track, look.theme.track);
            board.fill(thumb, look.theme.faint);
        }
        let scroll = scroll.clamp(0.0, (all - inner.height).max(0.0));
        let mut commands = Vec::new();
        for (index, control) in Control::ALL.into_iter().enumerate() {
            let top = inner.top + row * index as f32 - scroll;
            let place = Area::new(inner.left, top, inner.width, row);
            // What is cut by an edge is not drawn: no text leaves its place.
            if place.is_inside(inner) {
                commands.extend(self.control_in(board, place, control));
            }
        }
        (self.scroll, self.reveals) = (scroll, Reveal::No);
        commands
    }

    fn control_in(&self, board: &mut Board<'_>, place: Area, control: Control) -> Vec<Command> {
        let look = board.look();
        let mut commands = Vec::new();
        let name = control.name();
        let fault = self.faults.iter().find(|fault| fault.at == control);
        let hint = match fault {
            Some(fault) => fault.sentence(),
            None => format!("{name}: {}.", control.about()),
        };
        let is_chosen = control == self.control;
        if is_chosen {
            board.ground(place, look.control(Touch::Hover));
        }
        let (label, rest) = place.cut_left(look.gap(24));
        let (slider, value) = rest.cut_left(look.gap(23));
        let id = format!("control {name}");
        let pressed = board::Control { text: "", ..board::Control::text(&id, name, &hint) };
        if board.interact(label, pressed.chosen(is_chosen)).clicked() {
            commands.push(Command::Control(control));
        }
        let ink = if fault.is_none() { look.theme.ink } else { look.theme.error };
        board.write(label.shrunk(look.gap(2), 0.0), name, Style::default().ink(ink));
        let (setting, count) = (self.wish.setting(control), Wish::count(control));
        let text = self.wish.value(control);
        let last = (count - 1).max(1) as f32;
        let told = format!("{name} {text}: {}.", control.about());
        let id = format!("wish {name}");
        if let Some(at) = board.slider(slider, &id, setting as f32 / last, &told) {
            let to = (at * last).round() as usize;
            if to != setting {
                commands.push(Command::Wish(control, to));
            }
        }
        // What comes of it is worth more than what it is.
        if board.is_over(slider) && self.foreseen().is_none() {
            board.hint(self.sentence());
        }
        let value = value.shrunk(look.gap(1), 0.0);
        let size = match board.width(&text, look.body()) <= value.width {
            true => look.body(),
            false => look.small(),
        };
        board.write(value, &text, Style::sized(size).ink(ink));
        if is_chosen {
            board.stand_on(look.theme.ground);
        }
        commands
    }

    /// Why the wish cannot be, as far as there is room; else what the chosen control is.
    fn said(&self, board: &mut Board<'_>, area: Area) {
        let look = board.look();
        let mut rest = area.shrunk(look.gap(4), 0.0);
        let (texts, ink): (Vec<String>, _) = if self.faults.is_empty() {
            let (name, about) = (self.control.name(), self.control.about());
            (vec![format!("{name}: {about}.")], look.theme.faint)
        } else {
            (self.faults.iter().map(super::Refusal::sentence).collect(), look.theme.error)
        };
        let height = (look.small() * 1.4).ceil();
        let lines: Vec<&str> =
            texts.iter().flat_map(|text| board.lines(text, look.small(), rest.width)).collect();
        for line in lines.into_iter().take(LINES) {
            let (place, below) = rest.cut_top(height);
            rest = below;
            board.write(place, line, Style::sized(look.small()).ink(ink));
        }
    }

    /// What can be done with the wish.
    fn foot(&self, board: &mut Board<'_>, area: Area, keys: &Keys) -> Vec<Command> {
        let look = board.look();
        let y = area.top;
        board.rule(Point { x: area.left, y }, Point { x: area.right(), y });
        let inner = area.shrunk(look.gap(2), look.gap(1));
        let (train, rest) = inner.cut_left(board.button_width("Run it for real"));
        let (pin, rest) = rest.cut_left(look.gap(1)).1.cut_left(board.button_width("Pin"));
        let (next, _) = rest.cut_left(look.gap(1)).1.cut_left(board.button_width("Next best"));
        let mut commands = Vec::new();
        let key = keys.of(Action::TrainPlan);
        let here = self.here().map_err(|why| format!("{why}."));
        let hint =
            here.as_ref().map(|of| format!("Trains {} with this cut, here ({key}).", of.name));
        let control =
            board::Control::text("train plan", "Run it for real", hint.as_deref().unwrap_or(""));
        if board.button(train, control.unless(hint.as_ref().err().map(|why| why.as_str()))) {
            commands.push(Command::Do(Action::TrainPlan));
        }
        let hint = format!("Keeps this step, to compare with it ({}).", keys.of(Action::Pin));
        let control = board::Control::text("pin plan", "Pin", &hint);
        let why = self.foreseen().is_none().then(|| self.sentence());
        if board.button(pin, control.unless(why.as_deref())) {
            commands.push(Command::Do(Action::Pin));
        }
        let action = Action::Front(Direction::Forward);
        let (best, key) = (self.best(), keys.of(action));
        let hint = best.as_ref().map(|count| match count {
            1 => format!("Plans the one best layout ({key})."),
            count => format!("Plans the next of the {count} best layouts ({key})."),
        });
        let control = board::Control::text("next best", "Next best", hint.as_deref().unwrap_or(""));
        if board.button(next, control.unless(hint.as_ref().err().map(|why| why.as_str()))) {
            commands.push(Command::Do(action));
        }
        commands
    }
}
