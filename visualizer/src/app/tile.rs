//! What stands in a place of its own: a figure with its origin, or a message instead of a picture.

use shardlab::trace::draw::scene::Area;

use crate::board::{Board, Style};

/// One figure.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tile {
    pub(super) name: String,
    /// Where the figure comes from; empty of what has no unit.
    pub(super) origin: String,
    pub(super) figure: String,
    /// The widest that the figure usually is: so that what follows stands still.
    pub(super) widest: &'static str,
    /// Written smaller behind it, where there is room for all of it.
    pub(super) remark: String,
    /// How the figure is meant.
    pub(super) tone: Tone,
}

/// How a figure is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tone {
    /// It is so.
    #[default]
    Plain,
    /// It says that something cannot be.
    Wrong,
    /// It was so before something was changed.
    Past,
}

impl Tile {
    /// Draws it; the figure has this size.
    pub(super) fn show(&self, board: &mut Board<'_>, area: Area, size: f32) {
        let look = board.look();
        let faint = Style::sized(look.small()).ink(look.theme.faint);
        let inner = area.shrunk(look.gap(4), look.gap(1) / 2.0);
        let (heading, below) = inner.cut_top((look.small() * 1.3).ceil());
        if let Some(name) = board.write(heading, &self.name, faint) {
            let (_, right) = heading.cut_left(name.width + look.gap(2));
            board.write(right, &self.origin, faint);
        }
        let ink = match self.tone {
            Tone::Plain => look.theme.ink,
            Tone::Wrong => look.theme.error,
            Tone::Past => look.theme.faint,
        };
        let Some(written) = board.write(below, &self.figure, Style::sized(size).ink(ink)) else {
            return;
        };
        let width = board.width(self.widest, size).max(written.width);
        let (_, right) = below.cut_left(width.ceil() + look.gap(2));
        // On the base line of the figure.
        let low = Area { top: right.top + 0.35 * (size - look.small()), ..right };
        if board.width(&self.remark, look.small()) <= low.width {
            board.write(low, &self.remark, faint);
        }
    }
}

/// What stands there instead of a picture, in as many lines as it needs.
pub(super) fn message(board: &mut Board<'_>, area: Area, text: &str, style: Style) {
    let look = board.look();
    board.fill(area, look.theme.track);
    let inner = area.shrunk(look.gap(4), 0.0);
    let height = look.body() * 1.6;
    let lines = board.lines(text, look.body(), inner.width);
    let above = ((inner.height - height * lines.len() as f32) / 2.0).max(0.0);
    let (_, mut rest) = inner.cut_top(above);
    for line in lines {
        let (place, below) = rest.cut_top(height);
        rest = below;
        board.write(place, line, style.middle().on(look.theme.track));
    }
}
