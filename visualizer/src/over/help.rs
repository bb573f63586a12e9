//! All keys on one page, with the letters of this keyboard.

use shardlab::trace::draw::scene::Area;

use super::Around;
use crate::board::{Board, Style};
use crate::keys::{ALL_ARROWS, Action, BINDINGS};
use crate::shown::Command;

/// Height before scaling.
pub(super) const HEIGHT: f32 = 560.0;
const ROW: f32 = 22.0;

/// The page.
#[derive(Debug, Default)]
pub(super) struct Help {
    /// Rows that are scrolled away above.
    scrolled: usize,
}

impl Help {
    pub(super) fn show(
        &mut self,
        board: &mut Board<'_>,
        area: Area,
        around: &Around<'_>,
    ) -> Vec<Command> {
        let look = board.look();
        let row = ROW * look.scale;
        let (heading, body) = area.cut_top(look.gap(8));
        board.write(heading, "Keys", Style::sized(look.heading()));
        let arrows = around.keys.letter(ALL_ARROWS);
        let mouse =
            format!("Wheel zooms · drag moves · Shift drag marks · {arrows} held: all arrows");
        let faint = Style::sized(look.small()).ink(look.theme.faint);
        // Beside the heading where there is room for what else stands there.
        let is_wide = board.width(&mouse, look.small()) + look.gap(64) <= heading.width;
        let body = if is_wide {
            board.write(heading, &mouse, faint.right());
            body
        } else {
            let (line, below) = body.cut_top(row);
            board.write(line, &mouse, faint);
            below
        };
        let tab_count = around.tabs.iter().map(Vec::len).sum::<usize>();
        let exists = |action: Action| match action {
            Action::Tab(number) => usize::from(number) < tab_count,
            _ => true,
        };
        let shown: Vec<_> = BINDINGS.iter().filter(|binding| exists(binding.action)).collect();
        let columns = if area.width >= 700.0 * look.scale { 2 } else { 1 };
        let rows = (body.height / row).floor().max(1.0) as usize;
        let needed = shown.len().div_ceil(columns);
        let hidden = needed.saturating_sub(rows);
        self.scroll(board, hidden);
        if self.scrolled < hidden {
            let style = Style::sized(look.small());
            let style = if is_wide { style.middle() } else { style.right() };
            board.write(heading, "↓ more below", style);
        }
        let key_width = look.gap(24);
        for column in 0..columns {
            let (mut rest, _) = body.cut_left(body.width / columns as f32);
            rest.left += column as f32 * rest.width;
            let first = column * needed + self.scrolled;
            for binding in shown.iter().take((column + 1) * needed).skip(first).take(rows) {
                let (line, below) = rest.cut_top(row);
                rest = below;
                let (key, name) = line.cut_left(key_width);
                let chord = around.keys.chord(binding);
                board.write(key, &chord, Style::default());
                let name_of = match binding.action {
                    Action::Tab(number) => {
                        let all = around.tabs.iter().flatten().nth(usize::from(number));
                        all.map_or(binding.name.to_owned(), |name| format!("Open {name}"))
                    }
                    _ => binding.name.to_owned(),
                };
                board.write(name, &name_of, Style::default().ink(look.theme.faint));
            }
        }
        Vec::new()
    }

    fn scroll(&mut self, board: &Board<'_>, most: usize) {
        let lines = board.ctx().input(|input| {
            let keys = i32::from(input.key_pressed(eframe::egui::Key::ArrowDown))
                - i32::from(input.key_pressed(eframe::egui::Key::ArrowUp));
            keys - (input.smooth_scroll_delta.y / 22.0).round() as i32
        });
        self.scrolled = self.scrolled.saturating_add_signed(lines as isize).min(most);
    }
}
