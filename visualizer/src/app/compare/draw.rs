//! Lays Compare out: a heading and a timeline, the strip that says the difference, and the same again.

use eframe::egui;
use shardlab::mesh::Rank;
use shardlab::trace::Span;
use shardlab::trace::draw::scene::{Area, Dash, Point, Shape, Sketch};
use shardlab::trace::draw::timeline::{Layout, Legend, MemoryColumn, Shows};
use shardlab::units::Nanos;

use super::super::draw::part;
use super::super::tile::{Tile, message};
use super::super::timeline::{Age, Seen, legend, memory_column};
use super::words::Compared;
use super::{Choice, Compare, Half, Shown, State};
use crate::board::{Board, Control, Desk, Style};
use crate::keys::{Action, Keys};
use crate::shown::{Command, Popup, Shared};

/// Where the parts lie, from top to bottom.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Places {
    headings: [Area; 2],
    timelines: [Area; 2],
    strip: Area,
    /// The legend of both.
    legend: Area,
}

impl Places {
    /// In what lies between the bars.
    fn of(area: Area, scale: f32) -> Self {
        let (heading, strip, legend) = (30.0 * scale, 48.0 * scale, 24.0 * scale);
        let each = ((area.height - 2.0 * heading - strip - legend) / 2.0).max(0.0).floor();
        let (upper_heading, rest) = area.cut_top(heading);
        let (upper, rest) = rest.cut_top(each);
        let (strip, rest) = rest.cut_top(strip);
        let (lower_heading, rest) = rest.cut_top(heading);
        let (legend, lower) = rest.cut_bottom(legend);
        let (headings, timelines) = ([upper_heading, lower_heading], [upper, lower]);
        Self { headings, timelines, strip, legend }
    }
}

impl Compare {
    /// Draws all of it; what is asked for.
    pub(in crate::app) fn show(
        &mut self,
        ui: &mut egui::Ui,
        desk: &mut Desk,
        area: Area,
        (shared, keys): (&Shared<'_>, &Keys),
    ) -> Vec<Command> {
        let mut commands = Vec::new();
        let places = Places::of(area, desk.look.scale);
        let end = self.end();
        let rows = self.difference().map(|both| both.rows());
        let ghost = self.ghost();
        let zones = [("compare above", Half::Upper), ("compare below", Half::Lower)];
        let mut shows = Shows::default();
        for (index, (zone, half)) in zones.into_iter().enumerate() {
            part(ui, desk, (zone, places.headings[index]), |board, area| {
                commands.extend(self.heading_of(board, area, half, keys));
            });
            part(ui, desk, (zone, places.timelines[index]), |board, area| {
                let shown = self.half_mut(half);
                let (asked, seen) = shown.timeline(board, area, (half, shared, end), ghost);
                shows = shows.or(seen);
                let within = |command| Command::Within(half, Box::new(command));
                commands.extend(asked.into_iter().map(within));
            });
        }
        part(ui, desk, ("difference", places.strip), |board, area| strip(board, area, rows));
        part(ui, desk, ("compare legend", places.legend), |board, area| {
            legend(board, area, &shows);
        });
        commands
    }

    /// What a half shows, and what can be done with both.
    fn heading_of(
        &mut self,
        board: &mut Board<'_>,
        area: Area,
        half: Half,
        keys: &Keys,
    ) -> Vec<Command> {
        let look = board.look();
        let shown = self.half_mut(half);
        let name = match &shown.state {
            State::Ready(held) => held.name.as_str(),
            State::Planning => "planning …",
            State::Refused(_) => "nothing",
        };
        let text = format!("{}: {name}", half.word());
        let mut commands = Vec::new();
        let mut rest = area.shrunk(look.gap(2), 1.0);
        if half == Half::Upper {
            let buttons = [
                ("Swap", "Changes what is above and what is below", Action::Swap),
                (
                    "Pin this step",
                    "Keeps the shown step, to hold later ones against it",
                    Action::Pin,
                ),
            ];
            for (name, about, action) in buttons {
                let (place, left) = rest.cut_right(board.button_width(name));
                rest = left.cut_right(look.gap(1)).1;
                let hint = format!("{about} ({}).", keys.of(action));
                if board.flat_button(place, Control::text(name, name, &hint)) {
                    commands.push(Command::Do(action));
                }
            }
        }
        let action = Action::Choose(half);
        let hint =
            format!("Chooses what stands {} ({}).", half.word().to_lowercase(), keys.of(action));
        let (place, _) = rest.cut_left(board.menu_width(&text).min(rest.width));
        shown.heading = place;
        if board.menu(place, half.word(), &text, &hint) {
            commands.push(Command::Toggle(Popup::Half(half)));
        }
        let y = area.top;
        board.rule(Point { x: area.left, y }, Point { x: area.right(), y });
        commands
    }

    /// When a block that is spoken of runs above: it is outlined below as well, if it is there.
    fn ghost(&self) -> Option<(Rank, Span)> {
        let sight = self.sight(Half::Upper);
        let target = sight.hover.or(sight.selection)?;
        let both = self.difference().filter(|both| both.upper.has_plan_of(both.lower))?;
        both.upper.timeline.span(&target)
    }
}

impl Shown {
    /// Draws the timeline; what is asked for, and what a legend must explain.
    fn timeline(
        &mut self,
        board: &mut Board<'_>,
        area: Area,
        (half, shared, end): (Half, &Shared<'_>, Nanos),
        ghost: Option<(Rank, Span)>,
    ) -> (Vec<Command>, Shows) {
        let look = board.look();
        let held = match &self.state {
            State::Ready(held) => held,
            State::Planning => {
                let text = match self.choice {
                    Choice::Layout(_) => "It is planned and laid out …",
                    Choice::Predicted => "It is predicted …",
                    _ => "The first step that has ended is shown here.",
                };
                message(board, area, text, Style::default());
                return (Vec::new(), Shows::default());
            }
            State::Refused(why) => {
                message(board, area, why, Style::default().ink(look.theme.error));
                return (Vec::new(), Shows::default());
            }
        };
        let name = match half {
            Half::Upper => "Timeline above",
            Half::Lower => "Timeline below",
        };
        let seen = Seen {
            name,
            timeline: &held.timeline,
            badge: held.badge,
            end,
            sight: &self.sight,
            playhead: Some(shared.play.playhead()),
            memory: match held.timeline.memory(Rank(0)) {
                Some(_) => memory_column(area.width, &look),
                None => MemoryColumn::Hidden,
            },
            legend: Legend::Hidden,
            age: Age::Now,
        };
        let ghost = ghost.filter(|_| half == Half::Lower);
        let mut shows = Shows::default();
        let asked = self.part.picture(board, area, &seen, |sketch, layout| {
            shows = layout.shows;
            if let Some((rank, span)) = ghost {
                outline(sketch, layout, rank, span);
            }
        });
        (asked, shows)
    }
}

/// A dashed outline: where a block lies in the other timeline.
fn outline(sketch: &mut Sketch<'_>, layout: &Layout, rank: Rank, span: Span) {
    let Some(band) = layout.band_of(rank) else { return };
    let (left, right) = (layout.x_at(span.start), layout.x_at(span.end));
    let whole = Area::new(left, band.top, (right - left).max(3.0), band.height);
    let Some(area) = whole.common(layout.track) else { return };
    let points = area.outline();
    let ink = sketch.theme().ink;
    sketch.push(Shape::Line { points, width: 1.5, ink, dash: Dash::Dashed });
}

/// The numbers of both and how they differ: as many as there is room for.
fn strip(board: &mut Board<'_>, area: Area, rows: Option<[Compared; 4]>) {
    let look = board.look();
    for y in [area.top, area.bottom() - 0.5] {
        board.rule(Point { x: area.left, y }, Point { x: area.right(), y });
    }
    let Some(rows) = rows else { return };
    let count = ((area.width / (220.0 * look.scale)) as usize).clamp(2, rows.len());
    let mut rest = area;
    for row in rows.iter().take(count) {
        let (place, right) = rest.cut_left(area.width / count as f32);
        rest = right;
        let sentence = row.sentence();
        board.read(place, &format!("difference {}", row.name), &sentence);
        if board.is_over(place) {
            board.hint(sentence);
        }
        let tile = Tile {
            name: format!("{} Δ", row.name),
            origin: row.origin(),
            figure: row.change.clone(),
            remark: row.both.clone(),
            ..Tile::default()
        };
        tile.show(board, place, look.heading());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_timelines_are_equally_high_and_all_room_is_used() {
        for (width, height) in [(800.0, 352.0), (1280.0, 672.0), (3840.0, 2032.0)] {
            for scale in [1.0, 1.6] {
                let area = Area::sized(width, height);
                let Places { headings, timelines, strip, legend } = Places::of(area, scale);
                let [upper, lower] = timelines;
                assert!((lower.height - upper.height).abs() <= 1.0);
                let order = [headings[0], upper, strip, headings[1], lower, legend];
                for pair in order.windows(2) {
                    assert!((pair[0].bottom() - pair[1].top).abs() < 0.01, "{order:?}");
                }
                assert!((legend.bottom() - area.bottom()).abs() < 0.01);
            }
        }
    }
}
