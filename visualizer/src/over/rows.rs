//! Rows of controls below one another, scrolled where there is no room: numbers with − and +, and words
//! of which one is chosen. A control that is to blame for something is marked; why is said elsewhere, so
//! that no row moves.

use shardlab::trace::draw::scene::Area;
use shardlab::trace::draw::scroll;

use crate::board::{Board, Control, Style};
use crate::icon::Icon;

/// Height of a row before scaling.
const ROW: f32 = 38.0;

/// How far rows are scrolled, and how high all of them were when they were drawn last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sight {
    scrolled: f32,
    pub(super) height: f32,
}

/// What a row is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Said<'a> {
    pub(super) name: &'a str,
    pub(super) about: &'a str,
    /// Whether it can be so.
    pub(super) blame: Blame,
}

/// Whether a control is to blame that something cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blame {
    No,
    Yes,
}

impl Said<'_> {
    /// How its name is written.
    fn style(&self, board: &Board<'_>) -> Style {
        let theme = board.look().theme;
        Style::default().ink(if self.blame == Blame::Yes { theme.error } else { theme.ink })
    }
}

/// The rows while they are drawn.
pub(super) struct Rows<'s> {
    sight: &'s mut Sight,
    view: Area,
    top: f32,
    y: f32,
}

impl<'s> Rows<'s> {
    /// From the top of an area.
    pub(super) fn new(board: &mut Board<'_>, area: Area, sight: &'s mut Sight) -> Self {
        let look = board.look();
        let hidden = (sight.height - area.height).max(0.0);
        let (wheel, keys) = board.ctx().input(|input| {
            let pressed = |key| f32::from(u8::from(input.key_pressed(key)));
            let keys = pressed(eframe::egui::Key::ArrowDown) - pressed(eframe::egui::Key::ArrowUp);
            (input.smooth_scroll_delta.y, keys)
        });
        let mut scrolled = sight.scrolled - wheel + keys * ROW * look.scale;
        let bar = scroll::WIDTH * look.scale;
        let mut view = area;
        if let Some([track, thumb]) = scroll::bar(area, (scrolled, sight.height), bar) {
            view = area.cut_right(bar + look.gap(1)).1;
            if let Some(part) = board.grip(track, "rows in sight") {
                scrolled = part * sight.height - area.height / 2.0;
            }
            board.fill(track, look.theme.track);
            board.fill(thumb, look.theme.faint);
        }
        sight.scrolled = scrolled.clamp(0.0, hidden);
        let top = view.top - sight.scrolled;
        Self { sight, view, top, y: top }
    }

    /// All rows are drawn.
    pub(super) fn end(self) {
        self.sight.height = self.y - self.top;
    }

    /// The next place of this height; `None` where it is not wholly in sight: half a row is no row.
    fn place(&mut self, height: f32) -> Option<Area> {
        let place = Area::new(self.view.left, self.y, self.view.width, height);
        self.y += height;
        place.is_inside(self.view).then_some(place)
    }

    /// Name on the left and what it is about on the right; the place between them.
    fn row(&mut self, board: &mut Board<'_>, said: Said<'_>) -> Option<Area> {
        let (label, controls, text) = columns(board, self.view);
        let (lines, style) = words(board, said, text.width);
        let line = line_height(board);
        let row = ROW * board.look().scale;
        let height = row.max(line * lines.len() as f32 + board.look().gap(1));
        let place = self.place(height)?;
        let at = |column: Area| Area { top: place.top, height: row, ..column };
        board.write(at(label), said.name, said.style(board));
        let block = line * lines.len() as f32;
        let mut rest = Area { top: place.top, height, ..text }.shrunk(0.0, (height - block) / 2.0);
        for text in lines {
            let (place, below) = rest.cut_top(line);
            rest = below;
            board.write(place, text, style);
        }
        Some(at(controls).shrunk(0.0, board.look().gap(1)))
    }

    /// − a number +.
    pub(super) fn count(&mut self, board: &mut Board<'_>, said: Said<'_>, value: &mut u32) {
        let Some(controls) = self.row(board, said) else { return };
        let Said { name, about, .. } = said;
        let side = controls.height;
        let (minus, rest) = controls.cut_left(side);
        let (figure, rest) = rest.cut_left(board.look().gap(12));
        let (plus, _) = rest.cut_left(side);
        let hint = format!("Fewer: {about}.");
        let id = format!("{name} fewer");
        if board.button(minus, Control::icon(&id, Icon::Minus, &hint)) {
            *value = value.saturating_sub(1).max(1);
        }
        board.write(figure, &value.to_string(), Style::default().middle());
        let hint = format!("More: {about}.");
        let id = format!("{name} more");
        if board.button(plus, Control::icon(&id, Icon::Plus, &hint)) {
            *value += 1;
        }
    }

    /// One of several values, each with its name: beside what is said of them, or below it in as many
    /// lines as they need.
    pub(super) fn choice<T: Clone + PartialEq>(
        &mut self,
        board: &mut Board<'_>,
        said: Said<'_>,
        values: &[(T, String)],
        value: &mut T,
    ) {
        let (_, controls, _) = columns(board, self.view);
        let gap = board.look().gap(1);
        let wide: f32 = values.iter().map(|(_, name)| board.button_width(name) + gap).sum();
        if wide - gap <= controls.width {
            let Some(mut rest) = self.row(board, said) else { return };
            buttons(board, &mut rest, said, values, value);
            return;
        }
        let (label, ..) = columns(board, self.view);
        let (lines, style) = words(board, said, self.view.right() - label.right());
        let line = line_height(board);
        self.y += 2.0 * gap;
        for text in lines {
            let Some(place) = self.place(line) else { continue };
            board.write(place.cut_left(label.width).1, text, style);
        }
        let row = (ROW - 4.0) * board.look().scale;
        let width = self.view.right() - label.right();
        let (mut name, mut rest) = (Some(said.name), values);
        while !rest.is_empty() {
            let (of_line, below) = rest.split_at(fitting(board, rest, width));
            rest = below;
            let name = name.take();
            let Some(place) = self.place(row) else { continue };
            let (label, place) = place.cut_left(label.width);
            // Beside the first buttons, as in the other rows.
            if let Some(name) = name {
                board.write(label, name, said.style(board));
            }
            buttons(board, &mut place.shrunk(0.0, gap / 2.0), said, of_line, value);
        }
        self.y += gap;
    }
}

/// The columns of a row: its name, its controls, what is said of it.
fn columns(board: &Board<'_>, view: Area) -> (Area, Area, Area) {
    let look = board.look();
    let (label, right) = view.cut_left(look.gap(24));
    let (controls, text) = right.cut_left(look.gap(58).min(right.width * 0.55));
    (label, controls, text)
}

/// What is said of a control, in lines.
fn words<'t>(board: &Board<'_>, said: Said<'t>, width: f32) -> (Vec<&'t str>, Style) {
    let look = board.look();
    let lines = board.lines(said.about, look.small(), width);
    (lines, Style::sized(look.small()).ink(look.theme.faint))
}

/// Height of a line of small text.
pub(super) fn line_height(board: &Board<'_>) -> f32 {
    (board.look().small() * 1.4).ceil()
}

/// How many of the first values have room side by side, at least one.
fn fitting<T>(board: &Board<'_>, values: &[(T, String)], width: f32) -> usize {
    let mut left = width;
    let fits = |(_, name): &&(T, String)| {
        left -= board.button_width(name);
        let is_in = left >= 0.0;
        left -= board.look().gap(1);
        is_in
    };
    values.iter().take_while(fits).count().max(1)
}

/// Values side by side; the one that is pressed is chosen.
fn buttons<T: Clone + PartialEq>(
    board: &mut Board<'_>,
    rest: &mut Area,
    said: Said<'_>,
    values: &[(T, String)],
    value: &mut T,
) {
    let gap = board.look().gap(1);
    let now = value.clone();
    for (choice, text) in values {
        let (place, right) = rest.cut_left(board.button_width(text));
        *rest = right.cut_left(gap).1;
        let id = format!("{} {text}", said.name);
        let hint = format!("{} {text}: {}.", said.name, said.about);
        if board.button(place, Control::text(&id, text, &hint).chosen(*choice == now)) {
            *value = choice.clone();
        }
    }
}
