//! A frame: time passes, keys act, every part is drawn, commands are obeyed.

use std::time::Duration;

use eframe::egui;
use shardlab::trace::Badge;
use shardlab::trace::draw::scene::Area;
use shardlab::trace::draw::timeline::Arrows;
use shardlab::units::Nanos;

use super::axis::COLD;
use super::explain::About;
use super::starting::TICK;
use super::watch::Watch;
use super::{App, Half, breaking, compare, explain, top_bar, transport};
use crate::board::{Board, Desk};
use crate::keys::ALL_ARROWS;
use crate::over::Around;
use crate::paint;
use crate::panels;
use crate::play::{Mode, Steps};
use crate::run::State;
use crate::shown::{Command, Popup, Shared, Workspace};
use crate::software::{Software, is_software};
use crate::style::{Scheme, colour};
use crate::texts;
use crate::zones::Zones;

/// Longest time that passes in one frame: a window that was hidden does not jump.
const LONGEST: f64 = 0.25;
/// Steps after which the first one is shown: the very first is slower than all others.
const SETTLED: u64 = COLD + 1;
/// But not later than this many seconds after it has ended.
const PATIENCE: f64 = 1.5;
/// Seconds after which a step that runs is seen.
const LONG: f64 = 2.0;
/// Seconds without input after which everything pauses, so that no machine works for nobody.
const IDLE: f64 = 600.0;

impl eframe::App for App {
    fn ui(&mut self, ui: &mut egui::Ui, frame: &mut eframe::Frame) {
        let is_software = frame.wgpu_render_state().is_some_and(is_software);
        self.mind_cost(ui.ctx(), frame.info().cpu_usage.unwrap_or_default(), is_software);
        self.show(ui);
    }

    fn clear_color(&self, _: &egui::Visuals) -> [f32; 4] {
        colour(self.desk.look.theme.ground).to_normalized_gamma_f32()
    }

    fn on_exit(&mut self) {
        self.keep_now();
    }
}

impl App {
    /// The last frame took so many seconds of a core, besides what paints it: those that train, or
    /// others.
    pub fn mind_cost(&mut self, ctx: &egui::Context, seconds: f32, is_software: bool) {
        self.pace.took(seconds);
        if is_software {
            let size = ctx.viewport_rect().size() * ctx.pixels_per_point();
            self.pace.on_software(size.x * size.y);
            Software::clears_with(ctx, colour(self.desk.look.theme.ground));
        }
    }

    /// Takes over what has happened and lets time pass.
    pub(super) fn advance(&mut self, ctx: &egui::Context) {
        self.listen();
        self.go_on_exporting(ctx);
        if self.compare.listen(ctx) {
            self.reshape();
        }
        self.predict_here(ctx);
        if self.view.workspace == Workspace::Compare {
            self.compare.lay_out(ctx, self.step.as_ref());
        }
        if self.view.workspace == Workspace::Plan {
            let trained = self.broken.whole().unwrap_or(self.run.scenario());
            self.planning.follow(ctx, trained);
        }
        self.open_dropped(ctx);
        let (now, last_input) = ctx.input(|input| {
            let any = !input.events.is_empty() || input.pointer.is_moving();
            (input.time, any.then_some(input.time))
        });
        self.last_input = last_input.unwrap_or(self.last_input);
        if self.trained_at.0 != self.run.trained() || !matches!(self.run.state(), State::Training) {
            self.trained_at = (self.run.trained(), now);
        }
        let elapsed = (now - self.now).clamp(0.0, LONGEST);
        self.now = now;
        self.starting.follow(self.run.state(), now);
        if self.starting.seconds().is_some() {
            ctx.request_repaint_after(TICK);
        }
        if self.view.scheme == Scheme::System {
            self.dress(ctx);
        }
        let steps = self.steps_to_show();
        if self.awaits_step && steps.newest > self.play.shown().map(|shown| shown.step) {
            self.awaits_step = false;
            self.notice = None;
            let step = self.play.seek_step(u64::MAX, steps);
            self.bring(step);
        }
        self.await_change(steps);
        let step = self.play.pass(Nanos((elapsed * 1e9) as u64), steps);
        self.bring(step);
        self.run.let_train(self.play.lets_train());
        if let Some(seconds) = self.figures.refresh(&self.run, now) {
            ctx.request_repaint_after(Duration::from_secs_f64(seconds));
        }
        if self.play.mode() != Mode::Paused && now - self.last_input > IDLE {
            self.play.pause();
            self.notice = Some(texts::LEFT_ALONE.into());
        }
        if self.step.is_some() && self.play.mode() != Mode::Paused {
            // egui comes earlier by the time that it expects a frame to take.
            let early = Duration::from_secs_f32(ctx.input(|input| input.predicted_dt));
            ctx.request_repaint_after(self.pace.until_next() + early);
        } else if self.first_ended.is_some() && self.step.is_none() {
            ctx.request_repaint_after(Duration::from_millis(100));
        }
    }

    /// Shows the first step that runs with what was broken or mended, as soon as there is one.
    fn await_change(&mut self, steps: Steps) {
        let Some(was) = self.awaits_change else { return };
        let since = self.run.same_since();
        if self.play.mode() != Mode::Live || self.run.state().has_failed() {
            // Somebody looks at something else, or there is none.
            self.awaits_change = None;
        } else if since != was && steps.newest.is_some_and(|newest| newest >= since) {
            self.awaits_change = None;
            let step = self.play.follow(steps);
            self.bring(step);
        }
    }

    /// Asks for the step on this machine when somebody looks, and shows what has come of it.
    fn predict_here(&mut self, ctx: &egui::Context) {
        let looks = match self.view.workspace {
            Workspace::Watch => self.view.left_tab == panels::NUMBERS,
            Workspace::Compare => true,
            Workspace::Plan => false,
        };
        if let Some(facts) = self.run.facts().filter(|_| looks && self.step.is_some()) {
            self.here.ask(ctx, facts);
        }
        if self.here.listen(ctx) && self.view.workspace == Workspace::Compare {
            self.enter(Workspace::Compare);
            self.reshape();
        }
    }

    /// The steps that can be shown; none until the run has settled.
    fn steps_to_show(&mut self) -> Steps {
        let steps = self.run.steps();
        let Some(newest) = steps.newest.filter(|_| self.step.is_none()) else { return steps };
        let since = *self.first_ended.get_or_insert(self.now);
        let is_settled = newest - steps.oldest + 1 >= SETTLED
            || self.now - since >= PATIENCE
            || !matches!(self.run.state(), State::Training);
        if is_settled { steps } else { Steps { newest: None, ..steps } }
    }

    /// Draws the window.
    pub(super) fn frame(&mut self, ui: &mut egui::Ui) {
        let ctx = ui.ctx().clone();
        for action in self.keys.take() {
            self.obey(&ctx, Command::Do(action));
        }
        let held = self.over.is_none() && self.keys.holds(ALL_ARROWS);
        self.sight.arrows = if held { Arrows::All } else { Arrows::Selected };
        self.compare.arrows(self.sight.arrows);
        self.planning.arrows(self.sight.arrows);
        let window = paint::area(ctx.content_rect());
        self.zones = Zones::of(window, self.view.dividers, self.desk.look.scale);
        let desk = &mut self.desk;
        ctx.input(|input| {
            let is_key =
                |event: &egui::Event| matches!(event, egui::Event::Key { pressed: true, .. });
            desk.by_keys = match input.pointer.delta() == egui::Vec2::ZERO {
                true => desk.by_keys || input.events.iter().any(is_key),
                false => false,
            };
        });
        let commands = self.parts(ui, window);
        for command in commands {
            self.obey(&ctx, command);
        }
        if self.over.is_none() {
            self.desk.left = None;
        }
        self.keep_soon(&ctx);
    }

    /// Whether the notice came after the pointer was moved last: it is not hidden then by what happens
    /// to lie under the pointer.
    fn is_news(&mut self, ctx: &egui::Context) -> bool {
        let at = ctx.pointer_hover_pos();
        if self.news.0 != self.notice {
            self.news = (self.notice.clone(), at);
        }
        let near = |a: egui::Pos2, b: egui::Pos2| a.distance(b) <= NEAR;
        match (self.news.1, at) {
            (Some(then), Some(now)) => near(then, now),
            (None, Some(_)) => false,
            (_, None) => true,
        }
    }

    /// Draws all parts; what they ask for.
    pub(super) fn parts(&mut self, ui: &mut egui::Ui, window: Area) -> Vec<Command> {
        let is_news = self.is_news(ui.ctx());
        let Self { desk, run, play, step, sight, zones, view, broken, .. } = self;
        desk.audit.begin();
        desk.pointed = None;
        let axis = self.axis.axis();
        let running = (self.now - self.trained_at.1 > LONG).then_some(self.trained_at.0);
        let predicted = run.facts().and_then(|facts| self.here.step(facts)?.ok());
        let (step, predicted) = (step.as_ref(), predicted.as_deref());
        let starting = self.starting.seconds();
        let shared = Shared { run, play, step, axis, sight, running, starting, broken, predicted };
        let mut commands = Vec::new();
        part(ui, desk, ("top bar", zones.top), |board, area| {
            let (asked, anchors) = top_bar::show(board, area, (&shared, view.workspace));
            self.anchors = anchors;
            commands.extend(asked);
        });
        let around = zones.between_bars();
        match view.workspace {
            Workspace::Watch => {
                let mut watch = Watch {
                    figures: &self.figures,
                    timeline: &mut self.timeline,
                    sides: [&mut self.left, &mut self.right],
                    maximised: self.maximised,
                };
                commands.extend(watch.show(ui, desk, (zones, view), &shared));
            }
            Workspace::Compare => {
                let drawn = self.compare.show(ui, desk, around, (&shared, &self.keys));
                commands.extend(drawn);
            }
            Workspace::Plan => {
                commands.extend(self.planning.show(ui, desk, around, &self.keys));
            }
        }
        part(ui, desk, ("transport", zones.transport), |board, area| {
            commands.extend(transport::show(board, area, &shared, &self.keys));
        });
        if let Some(over) = &mut self.over {
            let names = |panels: &[Box<dyn panels::Panel>]| {
                panels.iter().map(|panel| panel.name()).collect()
            };
            let tabs = [names(&self.left), names(&self.right)];
            let (more, now) = match over.popup() {
                Popup::Half(half) => {
                    let layout = &run.scenario().layout;
                    let offers = compare::offers(half, layout, &self.compare.pins());
                    let now = compare::offered(&offers, self.compare.choice(half));
                    (offers, Some(now))
                }
                _ => (breaking::changes_of(over, &shared), None),
            };
            let (anchors, keys) = (self.anchors, &self.keys);
            let headings = Half::BOTH.map(|half| self.compare.heading(half));
            let (_, above_transport) = window.cut_bottom(zones.transport.height);
            let around =
                Around { window, above_transport, anchors, headings, keys, tabs, more, now };
            commands.extend(over.show(ui.ctx(), desk, &around));
        }
        // Last, because it speaks of what is under the pointer now.
        let pointed = desk.pointed.take();
        let about = match view.workspace {
            Workspace::Watch => None,
            Workspace::Compare => Some(About {
                pointed_at: self.compare.pointed_at(),
                chosen: self.compare.chosen(),
                idle: self.compare.sentence(run),
                badge: self.compare.badge(),
                machine: None,
            }),
            Workspace::Plan => Some(About {
                pointed_at: self.planning.pointed_at(),
                chosen: self.planning.chosen(),
                idle: self.planning.sentence(),
                badge: Some(Badge::Predicted),
                machine: Some(self.planning.machine()),
            }),
        };
        let said = explain::said(
            (&shared, self.medium),
            pointed.as_ref(),
            (self.notice.as_ref(), is_news),
            about.as_ref(),
        );
        let file = self.exporting.path(self.notice.as_ref());
        part(ui, desk, ("explanation", zones.explain), |board, area| {
            commands.extend(explain::show(board, area, &shared, (&said, file)));
        });
        commands
    }
}

/// A pointer that is nearer to where it was, in points, has not been moved on purpose.
const NEAR: f32 = 6.0;

/// Draws one part on its ground, cut to its area.
pub(super) fn part(
    ui: &mut egui::Ui,
    desk: &mut Desk,
    (zone, area): (&'static str, Area),
    draw: impl FnOnce(&mut Board<'_>, Area),
) {
    let rect = paint::rect(area);
    let ground = desk.look.theme.ground;
    ui.scope_builder(egui::UiBuilder::new().max_rect(rect), |ui| {
        ui.set_clip_rect(rect);
        let mut board = Board::new(ui, desk, zone);
        board.ground(area, ground);
        draw(&mut board, area);
        board.finish();
    });
}
