//! Watch: the four figures, the timeline of the shown step, and the tabs below it.

use eframe::egui;
use shardlab::trace::draw::scene::Area;

use super::band::{LEFT_RIGHT, Tabs, UP_DOWN};
use super::draw::part;
use super::figures::Figures;
use super::timeline::TimelinePart;
use crate::board::Desk;
use crate::panels::Panel;
use crate::saved::View;
use crate::shown::{Command, Shared, Side};
use crate::zones::{self, Band, Zones};

/// What is drawn.
pub(super) struct Watch<'a> {
    pub(super) figures: &'a Figures,
    pub(super) timeline: &'a mut TimelinePart,
    /// Tabs on the left and on the right.
    pub(super) sides: [&'a mut Vec<Box<dyn Panel>>; 2],
    /// The side that has all the room, if one has.
    pub(super) maximised: Option<Side>,
}

impl Watch<'_> {
    /// Draws all of it; what is asked for.
    pub(super) fn show(
        &mut self,
        ui: &mut egui::Ui,
        desk: &mut Desk,
        (zones, view): (&Zones, &View),
        shared: &Shared<'_>,
    ) -> Vec<Command> {
        let mut commands = Vec::new();
        part(ui, desk, ("figures", zones.figures), |board, area| {
            commands.extend(self.figures.show(board, area));
        });
        let [left, right] = &mut self.sides;
        let mut left = Tabs {
            side: Side::Left,
            panels: left,
            open: view.left_tab,
            maximised: self.maximised == Some(Side::Left),
        };
        let mut right = Tabs {
            side: Side::Right,
            panels: right,
            open: view.right_tab,
            maximised: self.maximised == Some(Side::Right),
        };
        if let Some(side) = self.maximised {
            let area = zones.between_bars();
            let area = area.cut_top(zones.figures.height).1;
            let tabs = if side == Side::Left { &mut left } else { &mut right };
            part(ui, desk, ("band", area), |board, area| {
                commands.extend(tabs.show(board, area, shared));
            });
            return commands;
        }
        part(ui, desk, ("timeline", zones.timeline), |board, area| {
            commands.extend(self.timeline.show(board, area, shared));
        });
        if left.panels.is_empty() {
            let width = zones.left.width + zones.left_divider.width + zones.right.width;
            part(ui, desk, ("band", Area { width, ..zones.left }), |board, area| {
                commands.extend(right.show(board, area, shared));
            });
        } else {
            part(ui, desk, ("left band", zones.left), |board, area| {
                commands.extend(left.show(board, area, shared));
            });
            part(ui, desk, ("right band", zones.right), |board, area| {
                commands.extend(right.show(board, area, shared));
            });
        }
        commands.extend(dividers(ui, desk, zones, view.dividers));
        commands
    }
}

/// The handles between the parts; the dividers where they were dragged.
fn dividers(
    ui: &mut egui::Ui,
    desk: &mut Desk,
    zones: &Zones,
    now: zones::Dividers,
) -> Vec<Command> {
    let mut commands = Vec::new();
    if zones.band == Band::Closed {
        return commands;
    }
    part(ui, desk, ("divider", zones.divider), |board, area| {
        if let Some(at) = board.handle(area, "divider", UP_DOWN) {
            commands.push(Command::Divide(zones::dragged_timeline(zones, now, at.y)));
        }
    });
    part(ui, desk, ("left divider", zones.left_divider), |board, area| {
        if let Some(at) = board.handle(area, "left divider", LEFT_RIGHT) {
            commands.push(Command::Divide(zones::dragged_left(zones, now, at.x)));
        }
    });
    commands
}
