//! The lower band: tabs on the left and on the right, each with one panel open.

use eframe::egui;
use egui::CursorIcon;
use shardlab::trace::draw::scene::{Area, Point};

use crate::board::{Board, Control};
use crate::panels::Panel;
use crate::shown::{Command, Shared, Side};
use crate::zones::TAB_ROW;

/// One side of the band.
#[derive(Debug)]
pub(super) struct Tabs<'a> {
    pub(super) side: Side,
    pub(super) panels: &'a mut [Box<dyn Panel>],
    pub(super) open: usize,
    pub(super) maximised: bool,
}

impl Tabs<'_> {
    /// Draws the row of tabs and the open panel.
    pub(super) fn show(
        &mut self,
        board: &mut Board<'_>,
        area: Area,
        shared: &Shared<'_>,
    ) -> Vec<Command> {
        let look = board.look();
        let (row, body) = area.cut_top(TAB_ROW * look.scale);
        let mut commands = self.row(board, row);
        if body.height > look.gap(6)
            && let Some(panel) = self.panels.get_mut(self.open)
        {
            commands.extend(panel.show(board, body, shared));
        }
        commands
    }

    fn row(&self, board: &mut Board<'_>, row: Area) -> Vec<Command> {
        let look = board.look();
        let mut commands = Vec::new();
        let y = row.bottom() - 0.5;
        board.rule(Point { x: row.left, y }, Point { x: row.right(), y });
        let mut rest = row.shrunk(look.gap(2), 0.0);
        for (index, panel) in self.panels.iter().enumerate() {
            let width = board.button_width(panel.name());
            let (place, right) = rest.cut_left(width);
            rest = right.cut_left(look.gap(1)).1;
            let id = format!("tab {}", panel.name());
            let control = Control::text(&id, panel.name(), panel.about());
            let response = board.tab(place, control.chosen(index == self.open));
            if response.double_clicked() {
                commands.push(Command::Maximise(self.side));
            } else if response.clicked() {
                commands.push(match self.side {
                    Side::Left => Command::OpenLeft(index),
                    Side::Right => Command::OpenRight(index),
                });
            }
        }
        if self.maximised {
            let width = board.button_width("Smaller");
            let (place, _) = rest.cut_right(width);
            let hint = "Back to the whole window (Esc).";
            if board.flat_button(place, Control::text("smaller", "Smaller", hint)) {
                commands.push(Command::Maximise(self.side));
            }
        }
        commands
    }
}

/// Cursors of the two dividers.
pub(super) const UP_DOWN: CursorIcon = CursorIcon::ResizeVertical;
pub(super) const LEFT_RIGHT: CursorIcon = CursorIcon::ResizeHorizontal;
