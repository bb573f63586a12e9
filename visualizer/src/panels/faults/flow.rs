//! Lines below one another: names, sentences and rows of controls, scrolled where there is no room.

use shardlab::trace::draw::scene::Area;
use shardlab::trace::draw::theme::Rgb;

use crate::board::{Board, Control, Style};
use crate::icon::Icon;
use crate::panels::details::lines;

/// Where the next line goes.
pub(super) struct Flow<'f, 'b> {
    pub(super) board: &'f mut Board<'b>,
    /// Where lines go.
    area: Area,
    /// Below them, where not all of them fit.
    foot: Option<Area>,
    top: f32,
    y: f32,
}

/// One of several things that can be chosen.
pub(super) struct Choice<'a> {
    pub(super) id: &'a str,
    pub(super) text: &'a str,
    pub(super) hint: &'a str,
    pub(super) chosen: bool,
}

impl<'f, 'b> Flow<'f, 'b> {
    /// From the top of an area, with so much scrolled away above; everything was so high the last
    /// time.
    pub(super) fn new(board: &'f mut Board<'b>, area: Area, scrolled: f32, height: f32) -> Self {
        let top = area.top - scrolled;
        let line = (board.look().small() * 1.35).ceil();
        let (area, foot) = if height > area.height {
            let (foot, area) = area.cut_bottom(line);
            (area, Some(foot))
        } else {
            (area, None)
        };
        Self { board, area, foot, top, y: top }
    }

    /// Says that there is more below, if there is; how high everything is together, and how much of
    /// it can be scrolled away.
    pub(super) fn end(self) -> (f32, f32) {
        let look = self.board.look();
        if let Some(foot) = self.foot.filter(|_| self.y > self.area.bottom() + 0.5) {
            let style = Style::sized(look.small()).right().ink(look.theme.faint);
            self.board.write(foot, "more below: turn the wheel", style);
        }
        let height = self.y - self.top;
        (height, (height - self.area.height).max(0.0))
    }

    /// Lets a screen reader read a text that begins here.
    pub(super) fn read(&mut self, id: &str, text: &str) {
        let place = Area::new(self.area.left, self.y.min(self.area.bottom()), self.area.width, 1.0);
        self.board.read(place, id, text);
    }

    /// A line of this height; `None` where it is not wholly in sight: half a line is no line.
    pub(super) fn line(&mut self, height: f32) -> Option<Area> {
        let place = Area::new(self.area.left, self.y, self.area.width, height);
        self.y += height;
        place.is_inside(self.area).then_some(place)
    }

    /// A sentence in as many lines as it takes.
    pub(super) fn sentence(&mut self, text: &str, ink: Rgb) {
        self.wrapped(text, ink, 0.0);
    }

    /// A name, and what is said of it behind it; read out as one.
    pub(super) fn said(&mut self, name: &str, text: &str) {
        let look = self.board.look();
        let indent = look.gap(21).min(self.area.width / 3.0);
        let line = (look.small() * 1.35).ceil();
        let first = Area::new(self.area.left, self.y, indent, line);
        if first.is_inside(self.area) {
            self.board.write(first, name, Style::sized(look.small()).ink(look.theme.faint));
            let whole = Area { width: self.area.width, ..first };
            let id = format!("said {name}");
            self.board.read(whole, &id, &format!("{name}: {text}"));
        }
        self.wrapped(text, look.theme.ink, indent);
    }

    fn wrapped(&mut self, text: &str, ink: Rgb, indent: f32) {
        let look = self.board.look();
        let size = look.small();
        let width = self.area.width - indent;
        for text in lines(self.board, text, width, size) {
            let Some(place) = self.line((size * 1.35).ceil()) else { continue };
            let place = place.cut_left(indent).1;
            self.board.write(place, &text, Style::sized(size).ink(ink));
        }
    }

    /// A row with a name on the left; what is right of it.
    pub(super) fn row(&mut self, name: &str) -> Option<Area> {
        let look = self.board.look();
        let row = self.line(look.gap(8))?.shrunk(0.0, look.gap(1) / 2.0);
        let indent = look.gap(21).min(self.area.width / 3.0);
        let (label, rest) = row.cut_left(indent);
        self.board.write(label, name, Style::sized(look.small()).ink(look.theme.faint));
        Some(rest)
    }

    /// − a text +; by how much it was changed.
    pub(super) fn stepper(&mut self, rest: &mut Area, id: &str, text: &str, widest: &str) -> i32 {
        let look = self.board.look();
        let side = rest.height;
        let figure = self.board.width(widest, look.body()).ceil() + look.gap(2);
        let (minus, right) = rest.cut_left(side);
        let (middle, right) = right.cut_left(figure);
        let (plus, right) = right.cut_left(side);
        *rest = right.cut_left(look.gap(4)).1;
        self.board.write(middle, text, Style::default().middle());
        let mut by = 0;
        for (place, icon, sign, word) in
            [(minus, Icon::Minus, -1, "before"), (plus, Icon::Plus, 1, "after")]
        {
            let (id, hint) = (format!("{id} {word}"), format!("The {id} {word} this one."));
            if self.board.button(place, Control::icon(&id, icon, &hint)) {
                by = sign;
            }
        }
        by
    }

    /// Buttons side by side, one of which is chosen; which one was pressed.
    pub(super) fn choice(&mut self, rest: &mut Area, choices: &[Choice<'_>]) -> Option<usize> {
        let look = self.board.look();
        let mut pressed = None;
        for (index, Choice { id, text, hint, chosen }) in choices.iter().enumerate() {
            let width = self.board.button_width(text);
            if rest.width < width {
                break;
            }
            let (place, right) = rest.cut_left(width);
            *rest = right.cut_left(look.gap(1)).1;
            if self.board.button(place, Control::text(id, text, hint).chosen(*chosen)) {
                pressed = Some(index);
            }
        }
        *rest = rest.cut_left(look.gap(3)).1;
        pressed
    }
}
