//! What can lie over the window: lists, the split, the palette, the keys, a path, the export.
//!
//! One at a time. Each is drawn on a [`Board`] of its own in egui's foreground, closes with Esc or a
//! press beside it, and returns commands like any other part.

mod dialogue;
mod export;
mod help;
mod list;
mod menu;
mod palette;
mod path;
mod rows;
mod schedule;
mod split;

pub use dialogue::{Asker, Question, system};
pub use export::Offer;

use std::path::Path;

use eframe::egui;
use egui::{Id, Order, Sense};
use shardlab::config::Scenario;
use shardlab::trace::draw::scene::{Area, Point, Shape};
use shardlab::trace::draw::timeline::Target;

use crate::app::Anchors;
use crate::board::{Board, Desk};
use crate::broken::Change;
use crate::keys::{Keyboard, Keys};
use crate::paint;
use crate::saved::Saved;
use crate::shown::{Command, Popup};

/// What is over the window, with what was typed and chosen in it so far.
#[derive(Debug)]
pub struct Over(Kind);

#[derive(Debug)]
enum Kind {
    /// The list of scenarios.
    Scenarios(list::Scenarios),
    /// The split.
    Split(Box<split::Split>),
    /// All actions by name.
    Palette(palette::Palette),
    /// All keys.
    Help(help::Help),
    /// A path to open or to save to.
    Path(path::PathField),
    /// An export.
    Export(Box<export::Export>),
    /// What can be done to something in a picture.
    Menu(menu::Menu),
    /// A schedule from a file.
    Schedule(Box<schedule::Sheet>),
}

/// What a popup is drawn with.
#[derive(Debug)]
pub struct Around<'a> {
    /// The window.
    pub window: Area,
    /// The window without the bar at its lower edge.
    pub above_transport: Area,
    /// Where lists hang.
    pub anchors: Anchors,
    /// Names of the two timelines that are compared, from top to bottom.
    pub headings: [Area; 2],
    /// What keys read.
    pub keys: &'a Keys,
    /// Tabs by name, left and right.
    pub tabs: [Vec<&'static str>; 2],
    /// What else can be done here and now.
    pub more: Vec<Change>,
    /// Which of it is so already.
    pub now: Option<usize>,
}

/// What a popup is about when it opens.
#[derive(Clone, Debug)]
pub struct About {
    /// What is trained, and what the window looks like.
    pub saved: Saved,
    /// What is spoken of in the pictures.
    pub target: Target,
    /// Where a menu hangs.
    pub at: Point,
    /// Who is asked for paths.
    pub asker: Asker,
}

impl Over {
    /// Opens one.
    pub fn open(popup: Popup, about: About, offer: impl FnOnce() -> Offer) -> Self {
        let About { saved, target, at, asker } = about;
        Self(match popup {
            Popup::Scenarios => Kind::Scenarios(list::Scenarios::default()),
            Popup::Split => {
                Kind::Split(Box::new(split::Split::new(&saved.scenario, split::Purpose::Train)))
            }
            Popup::SplitOf(half) => {
                let purpose = split::Purpose::Compare(half);
                Kind::Split(Box::new(split::Split::new(&saved.scenario, purpose)))
            }
            Popup::Palette => Kind::Palette(palette::Palette::default()),
            Popup::Help => Kind::Help(help::Help::default()),
            // It is opened with its file, by `Over::schedule`; by itself it asks for one.
            Popup::OpenSchedule | Popup::Schedule => Kind::Path(path::PathField::schedule(asker)),
            Popup::Open => Kind::Path(path::PathField::open(asker)),
            Popup::Save => Kind::Path(path::PathField::save(saved, asker)),
            Popup::Export => Kind::Export(Box::new(export::Export::new(offer(), asker))),
            Popup::Break => Kind::Menu(menu::Menu::new(menu::Subject::Target(target), at)),
            Popup::Half(half) => Kind::Menu(menu::Menu::new(menu::Subject::Half(half), at)),
        })
    }

    /// Opens a schedule file, for the model that a scenario trains.
    pub fn schedule(path: &Path, scenario: &Scenario) -> Self {
        Self(Kind::Schedule(Box::new(schedule::Sheet::open(path, scenario))))
    }

    /// What the menu is about, if it is one.
    pub fn target(&self) -> Option<Target> {
        match &self.0 {
            Kind::Menu(menu) => menu.target(),
            _ => None,
        }
    }

    /// Which one it is.
    pub fn popup(&self) -> Popup {
        match &self.0 {
            Kind::Scenarios(_) => Popup::Scenarios,
            Kind::Split(split) => split.popup(),
            Kind::Palette(_) => Popup::Palette,
            Kind::Help(_) => Popup::Help,
            Kind::Path(path) => path.popup(),
            Kind::Export(_) => Popup::Export,
            Kind::Menu(menu) => menu.popup(),
            Kind::Schedule(_) => Popup::Schedule,
        }
    }

    /// Who has the keyboard while it is open.
    pub fn keyboard(over: Option<&Self>) -> Keyboard {
        if over.is_some() { Keyboard::Dialogue } else { Keyboard::Window }
    }

    /// Draws it over everything else.
    pub fn show(
        &mut self,
        ctx: &egui::Context,
        desk: &mut Desk,
        around: &Around<'_>,
    ) -> Vec<Command> {
        let area = self.area(desk, around);
        let id = Id::unique(("over", format!("{:?}", self.popup())));
        let rect = paint::rect(area);
        let shown =
            egui::Area::new(id).order(Order::Foreground).fixed_pos(rect.min).show(ctx, |ui| {
                // Takes every press, so that none reaches what lies below.
                ui.interact(rect, id.with("ground"), Sense::click_and_drag());
                ui.set_clip_rect(rect.expand(1.0));
                let look = desk.look;
                let mut board = Board::new(ui, desk, "over the window");
                let (fill, edge) = (look.popup(), Some(look.theme.faint));
                board.push(Shape::Fill { area, fill, pattern: None, edge, corner: look.gap(1) });
                board.stand_on(look.popup());
                let inner = area.shrunk(look.gap(3), look.gap(3));
                let commands = match &mut self.0 {
                    Kind::Scenarios(list) => list.show(&mut board, inner),
                    Kind::Split(split) => split.show(&mut board, inner),
                    Kind::Palette(palette) => palette.show(&mut board, inner, around),
                    Kind::Help(help) => help.show(&mut board, inner, around),
                    Kind::Path(path) => path.show(&mut board, inner),
                    Kind::Export(export) => export.show(&mut board, inner),
                    Kind::Menu(menu) => menu.show(&mut board, inner, around),
                    Kind::Schedule(sheet) => sheet.show(&mut board, inner),
                };
                board.finish();
                ui.allocate_rect(rect, Sense::hover());
                commands
            });
        let mut commands = shown.inner;
        let pressed_beside = ctx.input(|input| {
            let at = input.pointer.interact_pos();
            input.pointer.any_pressed() && at.is_some_and(|at| !rect.contains(at))
        });
        if pressed_beside && !self.is_on_its_button(ctx, around) {
            commands.push(Command::Close);
        }
        commands
    }

    /// Whether the pointer is on the button that opens and closes this.
    fn is_on_its_button(&self, ctx: &egui::Context, around: &Around<'_>) -> bool {
        let button = match &self.0 {
            Kind::Scenarios(_) => around.anchors.scenario,
            Kind::Split(_) => around.anchors.split,
            Kind::Help(_) => around.anchors.help,
            Kind::Palette(_)
            | Kind::Path(_)
            | Kind::Export(_)
            | Kind::Menu(_)
            | Kind::Schedule(_) => return false,
        };
        let at = ctx.input(|input| input.pointer.interact_pos());
        at.is_some_and(|at| paint::rect(button).contains(at))
    }

    fn area(&self, desk: &Desk, around: &Around<'_>) -> Area {
        let look = desk.look;
        let window = match &self.0 {
            // Its button starts a run, and the transport is what one looks at next.
            Kind::Split(_) => around.above_transport,
            _ => around.window,
        };
        let scale = look.scale;
        let margin = look.gap(2);
        let (width, height) = match &self.0 {
            Kind::Scenarios(_) => (420.0, list::Scenarios::height()),
            Kind::Split(split) => (620.0, split.height(&look)),
            Kind::Palette(_) => (520.0, palette::HEIGHT),
            Kind::Help(_) => (860.0, help::HEIGHT),
            Kind::Path(_) => (620.0, path::HEIGHT),
            Kind::Export(_) => (620.0, export::HEIGHT),
            Kind::Schedule(_) => (760.0, schedule::HEIGHT),
            Kind::Menu(menu) => (menu.width(), menu::height(around.more.len())),
        };
        let width = (width * scale).min(window.width - 2.0 * margin);
        let height = (height * scale).min(window.height - 2.0 * margin);
        let (left, top) = match &self.0 {
            Kind::Scenarios(_) => (around.anchors.scenario.left, around.anchors.scenario.bottom()),
            Kind::Split(_) => (around.anchors.split.left, around.anchors.split.bottom()),
            Kind::Menu(menu) => {
                let at = menu.at(around.headings);
                (at.x, at.y)
            }
            Kind::Palette(_)
            | Kind::Help(_)
            | Kind::Path(_)
            | Kind::Export(_)
            | Kind::Schedule(_) => ((window.width - width) / 2.0, (window.height - height) / 4.0),
        };
        let left = left.min(window.right() - width - margin).max(margin).round();
        let top = (top + look.gap(1)).min(window.bottom() - height - margin).max(margin).round();
        Area::new(left, top, width, height)
    }
}
