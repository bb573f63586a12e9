//! Lays Plan out: the controls on the left, of which `controls` tells more; figures, the predicted
//! timeline and the best layouts on the right.

use eframe::egui;
use shardlab::mesh::Rank;
use shardlab::trace::Badge;
use shardlab::trace::draw::scene::{Area, Point, Shape, Sketch};
use shardlab::trace::draw::theme::Paint;
use shardlab::trace::draw::timeline::{Layout, Legend, MemoryColumn, Shows};
use shardlab::units::Nanos;

use super::{Foreseen, Planning};
use crate::app::draw::part;
use crate::app::tile::{Tile, Tone, message};
use crate::app::timeline::{Age, Seen, legend, plate};
use crate::board::{self, Board, Desk, Style};
use crate::keys::{Action, Keys};
use crate::shown::Command;

/// Width of the controls, before scaling.
const LEFT: f32 = 300.0;
/// Height of the legend and the least height of a timeline that has one, before scaling.
const LEGEND: f32 = 24.0;
const LEGEND_FROM: f32 = 92.0;
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
        commands.extend(self.left(ui, desk, left, keys));
        let (tiles, rest) = right.cut_top(56.0 * scale);
        // Where both have room, the timeline stands over the front.
        let below = if rest.height >= FRONT_FROM * scale { FRONT * rest.height } else { 0.0 };
        let (front, timeline) = rest.cut_bottom(below);
        part(ui, desk, ("predicted figures", tiles), |board, area| {
            figures(board, area, (self.foreseen(), self.before()));
        });
        part(ui, desk, ("predicted timeline", timeline), |board, area| {
            commands.extend(self.timeline(board, area, keys));
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

    fn timeline(&mut self, board: &mut Board<'_>, area: Area, keys: &Keys) -> Vec<Command> {
        let look = board.look();
        let is_past = self.foreseen().is_none();
        let Some(foreseen) = self.foreseen().or(self.before()) else {
            return self.nothing(board, area, keys);
        };
        let (legend_height, least) = (LEGEND * look.scale, LEGEND_FROM * look.scale);
        let height = if area.height >= least { legend_height } else { 0.0 };
        let (below, area) = area.cut_bottom(height);
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
            legend: Legend::Hidden,
            age: if is_past { Age::Before } else { Age::Now },
        };
        let outside = foreseen.outside;
        let (mut band, mut shows) = (None, Shows::default());
        let asked = self.part.picture(board, area, &seen, |sketch, layout| {
            band = beyond(sketch, layout, (held.length(), outside));
            shows = if band.is_some() { layout.shows.with_outside() } else { layout.shows };
            if is_past {
                let free = layout.track.cut_top(layout.content_height).1;
                plate(sketch, free, &format!("before: {}", held.name));
            }
        });
        if height > 0.0 {
            legend(board, below, &shows);
        }
        if band.is_some_and(|band| board.is_over(band)) && !is_past {
            board.hint(format!("Outside of the schedule: {outside} (PREDICTED). {OUTSIDE}."));
        }
        asked.into_iter().map(|command| Command::Foreseen(Box::new(command))).collect()
    }

    /// Why there is no step, and the way out.
    fn nothing(&self, board: &mut Board<'_>, area: Area, keys: &Keys) -> Vec<Command> {
        let look = board.look();
        let ink = if self.faults.is_empty() { look.theme.ink } else { look.theme.error };
        let sentence = self.sentence();
        message(board, area, &sentence, Style::default().ink(ink));
        let Some(way_out) = &self.way_out else { return Vec::new() };
        let text = format!("Nearest that can be: {}", self.wish.changes(way_out));
        let key = keys.of(Action::Select);
        let hint = format!("Changes as little as can be, so that there is a step ({key}).");
        let below = area.cut_top((area.height / 2.0 + look.gap(8)).min(area.height)).1;
        let row = below.cut_top(look.gap(8)).0;
        let width = board.button_width(&text).min(row.width);
        let button = row.shrunk((row.width - width) / 2.0, 0.0);
        board.stand_on(look.theme.track);
        let control = board::Control::text("way out", &text, &hint);
        let is_pressed = board.button(button, control);
        board.stand_on(look.theme.ground);
        if is_pressed { vec![Command::Do(Action::Select)] } else { Vec::new() }
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
    let Paint { fill, edge, .. } = sketch.theme().outside();
    sketch.push(Shape::Fill { area: band, fill, pattern: None, edge, corner: 0.0 });
    Some(band)
}

/// The figures of the predicted step: as many as there is room for.
fn figures(
    board: &mut Board<'_>,
    area: Area,
    (foreseen, before): (Option<&Foreseen>, Option<&Foreseen>),
) {
    let look = board.look();
    let y = area.bottom() - 0.5;
    board.rule(Point { x: area.left, y }, Point { x: area.right(), y });
    let tiles = foreseen.or(before).map(tiles).unwrap_or_default();
    let is_past = foreseen.is_none();
    let count = ((area.width / (150.0 * look.scale)) as usize).clamp(1, 6);
    let mut rest = area;
    for (mut tile, mut sentence) in tiles.into_iter().take(count) {
        if is_past {
            (tile.tone, tile.remark) = (Tone::Past, "before".into());
            sentence = format!("Before. {sentence}");
        }
        let (place, right) = rest.cut_left(area.width / count as f32);
        rest = right;
        let id = format!("predicted {}", tile.name);
        board.read(place, &id, &sentence);
        if board.is_over(place) {
            board.hint(sentence);
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
    memory.0.tone = if foreseen.fits() { Tone::Plain } else { Tone::Wrong };
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
