//! Lays Plan out: the controls on the left, figures and the predicted timeline on the right.

use eframe::egui;
use shardlab::mesh::Rank;
use shardlab::trace::Badge;
use shardlab::trace::draw::scene::{Area, Point, Shape, Sketch};
use shardlab::trace::draw::scroll;
use shardlab::trace::draw::timeline::{Layout, Legend, MemoryColumn};
use shardlab::units::Nanos;

use super::{Control, Foreseen, Planning, Reveal, Wish};
use crate::app::draw::part;
use crate::app::tile::{Tile, message};
use crate::app::timeline::Seen;
use crate::board::{self, Board, Desk, Style};
use crate::keys::{Action, Keys};
use crate::play::Direction;
use crate::shown::Command;
use crate::style::Touch;

/// Width of the controls and height of one, before scaling.
const LEFT: f32 = 300.0;
const ROW: f32 = 28.0;
/// The share of the front in what it and the timeline have, so that sixteen stages have names in a
/// usual window; and the least height of both together, before scaling.
const FRONT: f32 = 0.39;
const FRONT_FROM: f32 = 420.0;
/// The least width of a timeline that has room for memory, before scaling.
const WIDE: f32 = 520.0;

impl Planning {
    /// Draws all of it; what is asked for.
    pub(in crate::app) fn show(
        &mut self,
        ui: &mut egui::Ui,
        desk: &mut Desk,
        area: Area,
        keys: &Keys,
    ) -> Vec<Command> {
        let scale = desk.look.scale;
        let mut commands = Vec::new();
        let (left, right) = area.cut_left((LEFT * scale).min(area.width * 0.45));
        let (controls, foot) = left.cut_top(left.height - 40.0 * scale);
        part(ui, desk, ("controls", controls), |board, area| {
            commands.extend(self.controls(board, area));
        });
        part(ui, desk, ("plan foot", foot), |board, area| {
            commands.extend(self.foot(board, area, keys));
        });
        let (tiles, rest) = right.cut_top(56.0 * scale);
        // Where both have room, the timeline stands over the front.
        let below = if rest.height >= FRONT_FROM * scale { FRONT * rest.height } else { 0.0 };
        let (front, timeline) = rest.cut_bottom(below);
        part(ui, desk, ("predicted figures", tiles), |board, area| {
            figures(board, area, self.foreseen());
        });
        part(ui, desk, ("predicted timeline", timeline), |board, area| {
            commands.extend(self.timeline(board, area));
            let x = area.left;
            board.rule(Point { x, y: area.top }, Point { x, y: area.bottom() });
        });
        if below > 0.0 {
            part(ui, desk, ("front", front), |board, area| {
                let foreseen = self.foreseen();
                let now = foreseen.map(|foreseen| (foreseen.step_seconds, foreseen.held.peak.0));
                let usable = foreseen.map(|foreseen| foreseen.usable);
                commands.extend(self.pareto.show(board, area, (now, usable)));
                let (x, y) = (area.left, area.top);
                board.rule(Point { x, y }, Point { x: area.right(), y });
                board.rule(Point { x, y }, Point { x, y: area.bottom() });
            });
        }
        commands
    }

    /// The controls, one below the other; the chosen one is always in sight after it was changed.
    fn controls(&mut self, board: &mut Board<'_>, area: Area) -> Vec<Command> {
        let look = board.look();
        let (row, line) = (ROW * look.scale, (look.small() * 1.4).ceil());
        let bar = scroll::WIDTH * look.scale;
        let inner = area.cut_right(bar).1.shrunk(look.gap(2), look.gap(1));
        let why = |control: Control| -> Vec<&str> {
            let of = self.faults.iter().filter(|fault| fault.at == control);
            of.flat_map(|fault| board.lines(&fault.why, look.small(), inner.width - look.gap(4)))
                .collect()
        };
        let rows: Vec<(Control, Vec<&str>)> =
            Control::ALL.into_iter().map(|control| (control, why(control))).collect();
        let height = |lines: &Vec<&str>| match lines.len() {
            0 => row,
            count => row + line * count as f32 + look.gap(1),
        };
        let mut tops = vec![0.0];
        tops.extend(rows.iter().scan(0.0, |top, (_, lines)| {
            *top += height(lines);
            Some(*top)
        }));
        let all = tops[rows.len()];
        let wheel = if board.is_over(area) {
            board.ctx().input(|input| input.smooth_scroll_delta.y)
        } else {
            0.0
        };
        let mut scroll = self.scroll - wheel;
        if self.reveals == Reveal::Next {
            let at = rows.iter().position(|(control, _)| *control == self.control);
            let at = at.unwrap_or_default();
            scroll = scroll.clamp(tops[at + 1] - inner.height, tops[at].max(0.0));
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
        for ((control, lines), top) in rows.iter().zip(&tops) {
            let place = Area::new(inner.left, inner.top + top - scroll, inner.width, height(lines));
            // What is cut by an edge is not drawn: no text leaves its place.
            if place.is_inside(inner) {
                commands.extend(self.control_in(board, place, *control, (row, line), lines));
            }
        }
        (self.scroll, self.reveals) = (scroll, Reveal::No);
        commands
    }

    fn control_in(
        &self,
        board: &mut Board<'_>,
        place: Area,
        control: Control,
        (row, line): (f32, f32),
        why: &[&str],
    ) -> Vec<Command> {
        let look = board.look();
        let mut commands = Vec::new();
        let name = control.name();
        let hint = format!("{name}: {}.", control.about());
        let is_chosen = control == self.control;
        let (upper, mut below) = place.cut_top(row);
        if is_chosen {
            board.ground(place, look.control(Touch::Hover));
        }
        let (label, rest) = upper.cut_left(look.gap(24));
        let (slider, value) = rest.cut_left(look.gap(23));
        let id = format!("control {name}");
        let pressed = board::Control { text: "", ..board::Control::text(&id, name, &hint) };
        if board.interact(label, pressed.chosen(is_chosen)).clicked() {
            commands.push(Command::Control(control));
        }
        board.write(label.shrunk(look.gap(2), 0.0), name, Style::default());
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
        let ink = if why.is_empty() { look.theme.ink } else { look.theme.error };
        let value = value.shrunk(look.gap(1), 0.0);
        let size = match board.width(&text, look.body()) <= value.width {
            true => look.body(),
            false => look.small(),
        };
        board.write(value, &text, Style::sized(size).ink(ink));
        for text in why {
            let (place, rest) = below.cut_top(line);
            below = rest;
            let style = Style::sized(look.small()).ink(look.theme.error);
            board.write(place.shrunk(look.gap(2), 0.0), text, style);
        }
        if is_chosen {
            board.stand_on(look.theme.ground);
        }
        commands
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
        let hint = match self.here() {
            Ok(scenario) => format!(
                "Trains {} with this cut, here ({}).",
                scenario.name,
                keys.of(Action::TrainPlan)
            ),
            Err(why) => format!("{why}."),
        };
        let control = board::Control::text("train plan", "Run it for real", &hint);
        if board.button(train, control) {
            commands.push(Command::Do(Action::TrainPlan));
        }
        let hint = format!("Keeps this step, to compare with it ({}).", keys.of(Action::Pin));
        if board.button(pin, board::Control::text("pin plan", "Pin", &hint)) {
            commands.push(Command::Do(Action::Pin));
        }
        let action = Action::Front(Direction::Forward);
        let hint = match self.front().len() {
            0 => "The best layouts of these GPUs are being searched.".to_owned(),
            count => {
                format!("Plans the next of the {count} best layouts ({}).", keys.of(action))
            }
        };
        if board.button(next, board::Control::text("next best", "Next best", &hint)) {
            commands.push(Command::Do(action));
        }
        commands
    }

    fn timeline(&mut self, board: &mut Board<'_>, area: Area) -> Vec<Command> {
        let look = board.look();
        let Some(foreseen) = self.foreseen() else {
            let is_wrong = !self.faults.is_empty();
            let ink = if is_wrong { look.theme.error } else { look.theme.ink };
            message(board, area, &self.sentence(), Style::default().ink(ink));
            return Vec::new();
        };
        let held = std::sync::Arc::clone(&foreseen.held);
        let has_memory = area.width >= WIDE * look.scale && held.timeline.memory(Rank(0)).is_some();
        let seen = Seen {
            name: "Predicted timeline",
            timeline: &held.timeline,
            badge: Badge::Predicted,
            end: self.axis.end,
            sight: &self.sight,
            playhead: None,
            memory: if has_memory { MemoryColumn::Shown } else { MemoryColumn::Hidden },
            legend: Legend::Shown,
        };
        let outside = foreseen.outside;
        let mut band = None;
        let asked = self.part.picture(board, area, &seen, |sketch, layout| {
            band = beyond(sketch, layout, (held.length(), outside));
        });
        if band.is_some_and(|band| board.is_over(band)) {
            board.hint(format!("Outside of the schedule: {outside} (PREDICTED). {OUTSIDE}."));
        }
        asked.into_iter().map(|command| Command::Foreseen(Box::new(command))).collect()
    }
}

/// What lies outside of the schedule.
const OUTSIDE: &str = "The host starts the step, and all wait for the slowest of many GPUs";

/// What the step takes beyond its rows: an outlined place behind them; where that is.
fn beyond(
    sketch: &mut Sketch<'_>,
    layout: &Layout,
    (end, outside): (Nanos, Nanos),
) -> Option<Area> {
    let (left, right) = (layout.x_at(end), layout.x_at(end + outside));
    let height = layout.content_height.min(layout.track.height);
    let band = Area { left, width: right - left, height, ..layout.track };
    let band = band.common(layout.track).filter(|band| band.width >= 1.0)?;
    let theme = *sketch.theme();
    let (fill, edge) = (theme.ground.mixed(theme.ink, 0.05), Some(theme.faint));
    sketch.push(Shape::Fill { area: band, fill, pattern: None, edge, corner: 0.0 });
    Some(band)
}

/// The figures of the predicted step: as many as there is room for.
fn figures(board: &mut Board<'_>, area: Area, foreseen: Option<&Foreseen>) {
    let look = board.look();
    let y = area.bottom() - 0.5;
    board.rule(Point { x: area.left, y }, Point { x: area.right(), y });
    let tiles = foreseen.map(tiles).unwrap_or_default();
    let count = ((area.width / (150.0 * look.scale)) as usize).clamp(1, 6);
    let mut rest = area;
    for (tile, sentence) in tiles.iter().take(count) {
        let (place, right) = rest.cut_left(area.width / count as f32);
        rest = right;
        let id = format!("predicted {}", tile.name);
        board.read(place, &id, sentence);
        if board.is_over(place) {
            board.hint(sentence.as_str());
        }
        tile.show(board, place, look.heading());
    }
}

/// Figures with what they mean, the most important first.
fn tiles(foreseen: &Foreseen) -> Vec<(Tile, String)> {
    let seconds = |seconds: f64| Nanos((seconds * 1e9) as u64).to_string();
    let share = |share: f64| format!("{:.1} %", 100.0 * share);
    let tile = |name: &'static str, figure: String, sentence: &str| {
        let origin = Badge::Predicted.word().to_owned();
        let told = format!("{name}: {sentence}.");
        (Tile { name: name.into(), origin, figure, ..Tile::default() }, told)
    };
    let (peak, usable) = (foreseen.held.peak.0, foreseen.usable);
    let mut memory = tile(
        "Memory",
        peak.to_string(),
        "what the fullest rank holds; a step may take 93 % of the memory (FORMULA)",
    );
    memory.0.remark = format!("of {usable}");
    memory.0.is_wrong = !foreseen.fits();
    let mut step = tile(
        "Step",
        seconds(foreseen.step_seconds),
        "its rows, and behind them what the host and the slowest of many GPUs add",
    );
    step.0.remark = format!("rows {}", foreseen.held.length());
    vec![
        step,
        memory,
        tile("MFU", share(foreseen.mfu), "operations of the model over the peak of the GPUs"),
        tile(
            "Waiting",
            share(foreseen.held.waiting),
            "the share of forward and backward in which ranks wait",
        ),
        tile("Tokens/s", thousands(foreseen.tokens_per_sec), "of all ranks together"),
        tile(
            "Exposed",
            seconds(foreseen.exposed_seconds),
            "communication of a mean rank during which it computes nothing",
        ),
    ]
}

fn thousands(number: f64) -> String {
    match number {
        ..1e4 => format!("{number:.0}"),
        1e4..1e6 => format!("{:.0} k", number / 1e3),
        _ => format!("{:.2} M", number / 1e6),
    }
}
