//! The top bar: what is trained, how it is cut, what runs it; theme and help.

use shardlab::trace::draw::scene::{Area, Point, Shape};

use crate::board::{Board, Control, Style};
use crate::icon::Icon;
use crate::keys::Action;
use crate::panels;
use crate::shown::{Command, Popup, Shared, Workspace};
use crate::texts;

/// Where the two lists that open from the bar hang.
#[derive(Clone, Copy, Debug, Default)]
pub struct Anchors {
    /// The name of the scenario.
    pub scenario: Area,
    /// The cuts.
    pub split: Area,
    /// The help.
    pub help: Area,
}

/// Draws the bar.
pub(super) fn show(
    board: &mut Board<'_>,
    area: Area,
    (shared, workspace): (&Shared<'_>, Workspace),
) -> (Vec<Command>, Anchors) {
    let look = board.look();
    let gap = look.gap(1);
    let mut commands = Vec::new();
    let inner = area.shrunk(look.gap(2), gap);
    // From the right: what must always be reached.
    let square = inner.height;
    let (help, inner) = inner.cut_right(square);
    let (theme, inner) = inner.cut_right(square);
    let help_hint = "All keys, and all actions by name with Ctrl K.";
    if board.flat_button(help, Control::text("help", "?", help_hint)) {
        commands.push(Command::Toggle(Popup::Help));
    }
    if board.flat_button(theme, Control::icon("theme", Icon::HalfMoon, "Light or dark.")) {
        commands.push(Command::Do(Action::Theme));
    }
    let inner = inner.cut_right(gap).1;
    let (asked, inner) = workspaces(board, inner, workspace);
    commands.extend(asked);
    let name = &shared.scenario().name;
    let wanted = |text: &str| board.menu_width(text);
    let layout = &shared.scenario().layout;
    let whole = texts::cuts_and_schedule(layout);
    let has_room = wanted(&whole) <= inner.width * 0.55
        && wanted(name) <= (inner.width - wanted(&whole)) * 0.6;
    let cuts_text = if has_room { whole } else { texts::cuts(layout) };
    let cuts_width = wanted(&cuts_text).min(inner.width * 0.55);
    let name_width = wanted(name).max(96.0).min((inner.width - cuts_width) * 0.6);
    let (scenario, inner) = inner.cut_left(name_width);
    let inner = board.separator(inner);
    let (split, inner) = inner.cut_left(cuts_width);
    let hint = "What is trained: choose another scenario or open a file.";
    if board.menu(scenario, "scenario", name, hint) {
        commands.push(Command::Toggle(Popup::Scenarios));
    }
    let hint = "How the model and its batch are cut over the ranks: change the split.";
    if board.menu(split, "split", &cuts_text, hint) {
        commands.push(Command::Toggle(Popup::Split));
    }
    let mut inner = inner;
    if !shared.broken.is_empty() {
        let (asked, rest) = badge(board, inner);
        commands.extend(asked);
        inner = rest;
    }
    if let Some(facts) = shared.run.facts() {
        let text = texts::device(&facts.devices);
        let room = board.separator(inner);
        // What is elided in its middle still says at its end how many they are.
        let end = text.rsplit(", ").next().unwrap_or_default();
        let least = (3.0 * board.width(end, look.body())).min(board.width(&text, look.body()));
        if room.width >= least.max(60.0) {
            board.write(room, &text, Style::default().ink(look.theme.faint));
        }
    }
    let y = area.bottom();
    board.rule(Point { x: area.left, y }, Point { x: area.right(), y });
    (commands, Anchors { scenario, split, help })
}

/// The workspaces, at the right edge; what is left of them.
fn workspaces(board: &mut Board<'_>, area: Area, open: Workspace) -> (Option<Command>, Area) {
    let look = board.look();
    let mut rest = area;
    let mut asked = None;
    for workspace in Workspace::ALL.into_iter().rev() {
        let (place, left) = rest.cut_right(board.button_width(workspace.name()));
        rest = left;
        let id = format!("workspace {}", workspace.name());
        let control = Control::text(&id, workspace.name(), workspace.about());
        if board.tab(place, control.chosen(workspace == open)).clicked() {
            asked = Some(Command::Do(Action::Workspace(workspace)));
        }
    }
    (asked, rest.cut_right(look.gap(2)).1)
}

/// Says that something is broken on purpose, where there is room for it; opens the tab that names it.
/// Also what is right of it.
fn badge(board: &mut Board<'_>, area: Area) -> (Option<Command>, Area) {
    let look = board.look();
    let text = "Broken on purpose";
    let sign = look.gap(6);
    let width = board.width(text, look.body()).ceil() + sign + look.gap(2);
    let room = board.separator(area);
    if room.width < width {
        return (None, area);
    }
    let (place, rest) = room.cut_left(width);
    let hint = "Something is broken on purpose: see what, and mend it.";
    let control = Control { text: "", ..Control::text("broken", text, hint) };
    let pressed = board.flat_button(place, control);
    let (left, words) = place.cut_left(sign);
    let (at, half) = (left.centre(), look.small() * 0.45);
    let corners = [(-half, half), (half, half), (0.0, -half)];
    let points = corners.map(|(x, y)| Point { x: at.x + x, y: at.y + y }).to_vec();
    board.push(Shape::Polygon { points, fill: look.theme.warning });
    board.write(words, text, Style::default().ink(look.theme.warning));
    (pressed.then_some(Command::Do(Action::Tab(panels::FAULTS as u8))), rest)
}
