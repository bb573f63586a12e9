//! The window, or a part of it, drawn once more on paper: in other colours, at another size or
//! instant, as a vector picture. Nothing on the screen changes by it.

use eframe::egui;
use shardlab::trace::Badge;
use shardlab::trace::draw::export::Export;
use shardlab::trace::draw::scene::{Area, Canvas};
use shardlab::trace::draw::theme::Kind;
use shardlab::trace::draw::timeline::Frame;
use shardlab::units::Nanos;

use super::draw::part;
use super::{App, explain};
use crate::audit::Audit;
use crate::board::Desk;
use crate::export::drawing::Drawing;
use crate::export::parts::Part;
use crate::paint::Fonts;
use crate::shown::{Shared, Side};
use crate::style::{Look, fonts};
use crate::texts::{self, Medium};
use crate::zones::Zones;

/// Passes until what finds its size by being drawn has found it.
const PASSES: usize = 2;

/// A picture that is wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wanted {
    /// Of what.
    pub part: Part,
    /// In which colours.
    pub kind: Kind,
    /// Width and height in points; the height of a timeline follows from its rows, that of a tab from
    /// its width.
    pub size: (f32, f32),
    /// Where the playhead stands; `None`: where it is.
    pub at: Option<Nanos>,
}

/// What pictures are drawn on. Fonts are prepared once for as many as there are.
#[derive(Clone)]
pub struct Paper(egui::Context);

impl std::fmt::Debug for Paper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Paper").finish()
    }
}

impl Default for Paper {
    fn default() -> Self {
        let ctx = egui::Context::default();
        ctx.set_fonts(fonts());
        // The first pass makes the fonts ready; it draws nothing.
        let paper = Self(ctx);
        paper.pass(egui::RawInput::default(), |_| ());
        paper
    }
}

impl Paper {
    /// One pass. What it would paint was noted by the boards; glyphs come from the font files.
    fn pass(&self, input: egui::RawInput, draw: impl FnMut(&mut egui::Ui)) {
        let mut output = self.0.run_ui(input, draw);
        output.textures_delta.clear();
    }
}

impl App {
    /// Draws a picture of the window or of a part of it.
    pub fn drawing(&mut self, paper: &Paper, wanted: Wanted) -> Drawing {
        let look = Look::new(wanted.kind, self.view.distance);
        look.apply(&paper.0);
        let mut audit = Audit::default();
        audit.keep_scenes();
        let desk = std::mem::replace(&mut self.desk, Desk::new(look, audit));
        self.medium = Medium::Picture;
        let play = wanted.at.map(|at| {
            let there = self.play.clone().with_playhead(at);
            std::mem::replace(&mut self.play, there)
        });
        let drawing = match wanted.part {
            Part::Window(workspace) => {
                let open = std::mem::replace(&mut self.view.workspace, workspace);
                if workspace != open {
                    self.enter(workspace);
                }
                let drawing = self.window_on(paper, wanted.size);
                self.view.workspace = open;
                drawing
            }
            Part::Timeline => self.timeline_on(paper, wanted.size),
            Part::Tab(side, tab) => self.tab_on(paper, (side, tab), wanted.size),
        };
        (self.desk, self.medium) = (desk, Medium::Window);
        if let Some(play) = play {
            self.play = play;
        }
        drawing
    }

    fn window_on(&mut self, paper: &Paper, (width, height): (f32, f32)) -> Drawing {
        let window = Area::sized(width, height);
        let zones = Zones::of(window, self.view.dividers, self.desk.look.scale);
        let zones = std::mem::replace(&mut self.zones, zones);
        let (anchors, over) = (self.anchors, self.over.take());
        on(paper, (width, height), self.now, |ui| {
            self.parts(ui, window);
        });
        (self.zones, self.anchors, self.over) = (zones, anchors, over);
        Drawing::new(self.heading(), window, self.desk.audit.scenes())
    }

    fn timeline_on(&mut self, paper: &Paper, (width, height): (f32, f32)) -> Drawing {
        let Some(step) = &self.step else { return self.window_on(paper, (width, height)) };
        let (title, caption) = (self.heading(), self.caption());
        let export = Export { title: &title, caption: &caption, width, scale: 1.0 };
        let window = self.sight.window.map(|window| (window.start, window.end));
        let all = (Nanos(0), self.axis.axis().end);
        let frame = Frame {
            open: &self.sight.open,
            playhead: Some(self.play.playhead()),
            selected: self.sight.selection,
            ..Frame::new(Area::default(), window.unwrap_or(all), Badge::Replayed)
        };
        let fonts = Fonts(&paper.0);
        let canvas = Canvas { theme: &self.desk.look.theme, measure: &fonts };
        let scene = export.scene(canvas, &step.timeline, &frame);
        Drawing::of(title.clone(), scene)
    }

    fn tab_on(&mut self, paper: &Paper, tab: (Side, usize), size: (f32, f32)) -> Drawing {
        let (title, caption, note) = (self.heading(), self.caption(), self.note());
        let look = self.desk.look;
        let export = Export { title: &title, caption: &caption, width: size.0, scale: 1.0 };
        // Tabs are made for a low, wide place.
        let body = (size.0 * 0.4).min(size.1).max(look.gap(40));
        let fonts = Fonts(&paper.0);
        let canvas = Canvas { theme: &look.theme, measure: &fonts };
        let (sketch, area) = export.around(canvas, body, &note);
        let whole = sketch.scene.area;
        let Self { desk, run, broken, play, step, sight, left, right, axis, here, .. } = self;
        let panels = match tab.0 {
            Side::Left => left,
            Side::Right => right,
        };
        let axis = axis.axis();
        let step = step.as_ref();
        let predicted = run.facts().and_then(|facts| here.step(facts)?.ok());
        let predicted = predicted.as_deref();
        let (running, starting) = (None, None);
        let shared = Shared { run, play, step, axis, sight, running, starting, broken, predicted };
        if let Some(panel) = panels.get_mut(tab.1) {
            on(paper, (whole.width, whole.height), self.now, |ui| {
                desk.audit.begin();
                part(ui, desk, ("tab", area), |board, area| {
                    panel.show(board, area, &shared);
                });
            });
        }
        let around = Drawing::of(title.clone(), sketch.scene);
        around.with(desk.audit.scenes())
    }

    /// What a picture shows.
    fn heading(&self) -> String {
        let name = &self.run.scenario().name;
        match &self.step {
            Some(step) => format!("{name}, step {}", step.number() + 1),
            None => name.clone(),
        }
    }

    /// What is to be seen in it: the sentence of the line that explains.
    fn caption(&self) -> String {
        let Self { run, broken, play, step, sight, .. } = self;
        let (axis, step) = (self.axis.axis(), step.as_ref());
        let (running, starting, predicted) = (None, None, None);
        let shared = Shared { run, play, step, axis, sight, running, starting, broken, predicted };
        explain::said((&shared, Medium::Picture), None, (None, false), None).with_badge()
    }

    /// How the run is cut and what runs it; a picture of a broken run never passes for one of a whole
    /// one.
    fn note(&self) -> String {
        let mut note = texts::cuts(&self.run.scenario().layout);
        if let Some(facts) = self.run.facts() {
            note += &format!(" · {}", texts::device(&facts.devices));
        }
        if !self.broken.is_empty() {
            note += " · broken on purpose";
        }
        note
    }
}

/// Draws on paper.
fn on(paper: &Paper, (width, height): (f32, f32), now: f64, mut draw: impl FnMut(&mut egui::Ui)) {
    let rect = egui::Rect::from_min_size(egui::Pos2::ZERO, egui::vec2(width, height));
    for _ in 0..PASSES {
        let screen_rect = Some(rect);
        let input = egui::RawInput { screen_rect, time: Some(now), ..Default::default() };
        paper.pass(input, &mut draw);
    }
}
