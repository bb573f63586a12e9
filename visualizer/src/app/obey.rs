//! What each command does: the only place that changes the state of the app.

use std::sync::Arc;

use eframe::egui;
use egui::ViewportCommand;
use shardlab::config::Scenario;
use shardlab::mesh::Rank;
use shardlab::trace::draw::theme::Kind;
use shardlab::trace::draw::timeline::{self, Level, Target};
use shardlab::trace::{Span, Trace};
use shardlab::units::Nanos;

use super::compare::Given;
use super::starting::Starting;
use super::{App, Half, Held, Times, begin, kind, other, window};
use crate::here::Here;
use crate::keys::{Action, Grain};
use crate::over::Over;
use crate::panels;
use crate::play::{Direction, OnScreen};
use crate::run::{Run, State};
use crate::shown::{Command, Notice, Popup, Revealed, Side, Sight, Step, Workspace};
use crate::style::{Look, Scheme};
use crate::zones::Band;

/// Why there is nothing to loop or to zoom to.
const NOTHING_CHOSEN: &str = "Nothing is chosen: click a block, or mark time with Shift and drag.";

impl App {
    pub(super) fn obey(&mut self, ctx: &egui::Context, command: Command) {
        match command {
            Command::Do(action) => self.act(ctx, action),
            Command::Seek(at) => {
                self.play.seek(at);
                self.notice = None;
            }
            Command::SeekStep(step) => {
                let step = self.play.seek_step(step, self.run.steps());
                self.bring(step);
            }
            Command::Hover(target) => self.sight.hover = target,
            Command::Select(target) => self.select(target),
            Command::Mark(span) => self.sight.marked = span,
            Command::Window(span) => self.sight.window = span,
            Command::Unfold(position) => self.sight.unfold(position),
            Command::Scroll(points) => (self.sight.scroll, self.sight.reveal) = (points, None),
            Command::Divide(dividers) => self.view.dividers = dividers,
            Command::OpenLeft(tab) => {
                self.view.left_tab = tab;
                self.enlarge_if_closed(Side::Left);
            }
            Command::OpenRight(tab) => {
                self.view.right_tab = tab;
                self.enlarge_if_closed(Side::Right);
            }
            Command::Maximise(side) => {
                self.maximised = if self.maximised == Some(side) { None } else { Some(side) };
            }
            Command::Capture(at) => self.run.capture(at),
            Command::Train(scenario) => self.train(ctx, *scenario),
            Command::Open(saved, left_out) => self.open(ctx, *saved, &left_out),
            Command::Break(fault) => self.break_on_purpose(ctx, fault),
            Command::Mend(kind) => self.mend(ctx, kind),
            Command::Under(under) => self.look_under(ctx, under),
            Command::Menu(target, at) => self.menu(target, at),
            Command::Toggle(popup) => self.toggle(popup),
            Command::Close => self.over = None,
            Command::Tell(text) => self.notice = Some(text.into()),
            Command::Export(order) => self.export(ctx, *order),
            Command::CopyPath => self.copy_path(ctx),
            Command::Within(half, command) => {
                if let Some(command) = self.compare.obey(half, *command) {
                    self.obey(ctx, command);
                }
            }
            Command::Foreseen(command) => {
                if let Some(command) = self.planning.obey(*command) {
                    self.obey(ctx, command);
                }
            }
            Command::Cut(cut) => self.planning.take_cut(&cut),
            Command::Control(control) => self.planning.choose(control),
            Command::Wish(control, setting) => self.planning.set(control, setting),
            Command::OpenSchedule(path) => {
                self.over = Some(Over::schedule(&path, self.scenario()));
            }
            Command::Choose(half, choice) => {
                self.turn_to(Workspace::Compare);
                let given = given((self.times.as_ref(), &self.here), self.step.as_ref());
                self.compare.choose(ctx, (half, choice), &given);
                self.reshape();
            }
        }
        self.keep();
        self.keys.give_to(Over::keyboard(self.over.as_ref()));
        ctx.request_repaint();
    }

    fn toggle(&mut self, popup: Popup) {
        let is_open = self.over.as_ref().is_some_and(|over| over.popup() == popup);
        let target = self.sight.selection.or(self.rank().map(Target::Rank));
        self.over =
            (!is_open).then(|| self.opened(popup, target.unwrap_or(Target::Rank(Rank(0))), None));
    }

    pub(super) fn select(&mut self, target: Option<Target>) {
        self.sight.selection = target;
        if target.is_some() {
            self.view.right_tab = panels::DETAILS;
        }
    }

    fn act(&mut self, ctx: &egui::Context, action: Action) {
        if action != Action::Describe {
            self.notice = None;
        }
        let steps = self.run.steps();
        match action {
            Action::PlayPause => self.play.toggle(steps),
            Action::Live | Action::Last => {
                let step = self.play.follow(steps);
                self.bring(step);
            }
            Action::Step(grain, direction) => self.step_by(grain, direction),
            Action::First => {
                if self.play.playhead() > Nanos(0) {
                    self.play.seek(Nanos(0));
                } else {
                    let step = self.play.cross(Direction::Back, steps);
                    self.bring(step);
                    self.play.seek(Nanos(0));
                }
            }
            Action::Speed(direction) => self.play.change_speed(direction),
            Action::SlowMotion => self.play.choose_slow_motion(),
            Action::Loop => self.repeat(),
            Action::KeepTraining => self.play.toggle_while_paused(),
            Action::TrainMore => self.run.train_more(self.run.scenario().training.steps),
            Action::Restart => self.train(ctx, self.scenario().clone()),
            Action::Break => self.toggle(Popup::Break),
            Action::Mend => self.mend(ctx, None),
            Action::StepBack => self.step_back(),
            Action::OpenFailed => self.open_failed(),
            Action::Zoom(_) | Action::Pan(_) | Action::Fit | Action::FitSelection => {
                self.look_at(action);
            }
            Action::Mark => self.mark(),
            Action::Heighten(direction) => {
                self.view.dividers = self.view.dividers.lowered(sign(direction));
            }
            Action::Widen(direction) => {
                self.view.dividers = self.view.dividers.moved_right(sign(direction));
            }
            Action::Row(direction) => self.select_row(direction),
            Action::Select => self.select_here(),
            Action::Escape => self.escape(ctx),
            Action::Describe => self.notice = self.description().map(Into::into),
            Action::Tab(number) => self.open_tab(usize::from(number)),
            Action::Workspace(workspace) => {
                self.over = None;
                self.turn_to(workspace);
            }
            Action::Choose(half) => {
                self.turn_to(Workspace::Compare);
                self.toggle(Popup::Half(half));
            }
            Action::Swap => {
                self.turn_to(Workspace::Compare);
                self.compare.swap();
            }
            Action::Pin => self.pin(),
            Action::Front(direction) => {
                self.turn_to(Workspace::Plan);
                self.notice = self.planning.walk_front(direction).err().map(Notice::failure);
            }
            Action::TrainPlan => self.train_plan(ctx),
            Action::OpenSchedule => self.toggle(Popup::OpenSchedule),
            Action::Split => self.toggle(Popup::Split),
            Action::Open => self.toggle(Popup::Open),
            Action::Save => self.toggle(Popup::Save),
            Action::Export => {
                // What is exported stands still meanwhile.
                self.play.pause();
                self.toggle(Popup::Export);
            }
            Action::Palette => self.toggle(Popup::Palette),
            Action::Help => self.toggle(Popup::Help),
            Action::Theme => {
                let is_dark = self.desk.look.theme.kind == Kind::Dark;
                self.view.scheme = if is_dark { Scheme::Light } else { Scheme::Dark };
                self.dress(ctx);
            }
            Action::Projector => {
                self.view.distance = other(self.view.distance);
                self.dress(ctx);
            }
            Action::FullScreen => {
                let is_full = ctx.input(|input| input.viewport().fullscreen.unwrap_or(false));
                ctx.send_viewport_cmd(ViewportCommand::Fullscreen(!is_full));
            }
        }
    }

    /// Puts on the look that the view asks for.
    pub(super) fn dress(&mut self, ctx: &egui::Context) {
        let look = Look::new(kind(ctx, self.view.scheme), self.view.distance);
        if look != self.desk.look {
            self.desk.look = look;
            look.apply(ctx);
        }
    }

    /// Another run, in place of this one; nothing is broken in it.
    pub(super) fn train(&mut self, ctx: &egui::Context, scenario: Scenario) {
        self.broken.clear();
        self.train_broken(ctx, scenario);
    }

    /// Another run with what is broken on purpose, in place of this one.
    pub(super) fn train_broken(&mut self, ctx: &egui::Context, scenario: Scenario) {
        // The old run ends first: two would share the cores.
        let old = std::mem::replace(&mut self.run, Run::told(scenario.clone()));
        let left = crate::texts::left_behind(old.scenario(), &scenario);
        let left = left.map(|name| old.leave(name)).unwrap_or_default();
        let faults = self.broken.faults().to_vec();
        self.run = begin(ctx, scenario, &self.options, faults, self.source);
        self.run.follow(left);
        self.play.clear();
        self.compare.clear();
        self.starting = Starting::default();
        self.step = None;
        self.axis = super::SteadyAxis::default();
        self.figures.clear();
        self.sight = Sight::default();
        self.marks_from = None;
        (self.awaits_step, self.awaits_change) = (false, None);
        self.first_ended = None;
        self.notice = None;
        self.left.iter_mut().chain(&mut self.right).for_each(|panel| panel.clear());
        ctx.send_viewport_cmd(ViewportCommand::Title(crate::texts::title(self.run.scenario())));
        self.keep();
    }

    /// Brings a step onto the screen.
    pub(super) fn bring(&mut self, step: Option<u64>) {
        let replayed = |step| match &self.times {
            Some(times) => Some(Trace { step, ..times.replayed.clone() }),
            None => self.run.replayed(step),
        };
        let Some(trace) = step.and_then(replayed) else { return };
        let Some(facts) = self.run.facts() else { return };
        let recent = self.run.recent(trace.step);
        let step = Step::new(facts, trace, recent);
        if self.step.is_none() {
            // A view from a file may be of another Plan or of slower steps.
            let (plan, end) = (&facts.plan, step.timeline.end());
            self.sight.selection = self.sight.selection.filter(|target| target.fits(plan));
            self.sight.window = self.sight.window.filter(|window| window.start < end);
            self.sight.marked = self.sight.marked.filter(|marked| marked.start < end);
            self.sight.open.retain(|position| *position < plan.mesh.pp);
        }
        // Another Plan of the same run has nothing to do with how long steps were before.
        if self.step.as_ref().is_some_and(|was| !Arc::ptr_eq(&was.facts, &step.facts)) {
            self.axis = super::SteadyAxis::default();
        }
        self.axis.show(step.number(), step.timeline.end());
        self.figures.take(step.number(), &step.bubble);
        if self.view.workspace == Workspace::Compare {
            let times = (self.times.as_ref(), &self.here);
            self.compare.follow(&given(times, Some(&step)));
        }
        self.play.show(self.on_screen(&step));
        self.step = Some(step);
    }

    /// What playback must know of a step in this workspace.
    fn on_screen(&self, step: &Step) -> OnScreen {
        let compared = match self.view.workspace {
            Workspace::Watch | Workspace::Plan => None,
            Workspace::Compare => self.compare.on_screen(step.number()),
        };
        compared.unwrap_or_else(|| step.on_screen())
    }

    /// Playback goes over what is shown now.
    pub(super) fn reshape(&mut self) {
        if let Some(step) = &self.step {
            let on_screen = self.on_screen(step);
            self.play.reshape(on_screen);
        }
    }

    /// Another workspace.
    pub(super) fn turn_to(&mut self, workspace: Workspace) {
        if self.view.workspace == workspace {
            return;
        }
        self.view.workspace = workspace;
        self.maximised = None;
        self.enter(workspace);
        self.reshape();
    }

    /// Makes ready what a workspace shows.
    pub(super) fn enter(&mut self, workspace: Workspace) {
        if workspace == Workspace::Compare {
            let given = given((self.times.as_ref(), &self.here), self.step.as_ref());
            self.compare.follow(&given);
        }
    }

    /// Keeps the shown step, to be held against others.
    fn pin(&mut self) {
        if self.view.workspace == Workspace::Plan {
            let Some(foreseen) = self.planning.foreseen() else {
                self.notice = Some("No step is predicted yet, so there is nothing to pin.".into());
                return;
            };
            let text =
                format!("Pinned: {}. Compare can hold others against it.", foreseen.held.name);
            self.compare.pin(Arc::clone(&foreseen.held));
            self.notice = Some(text.into());
            return;
        }
        let Some(step) = &self.step else {
            self.notice = Some("No step has ended yet, so there is nothing to pin.".into());
            return;
        };
        self.compare.pin(Arc::new(Held::pinned(step)));
        let number = step.number() + 1;
        self.notice = Some(
            format!("Step {number} is pinned: Compare can hold any other one against it.").into(),
        );
    }

    /// Trains the cut that is planned, here.
    fn train_plan(&mut self, ctx: &egui::Context) {
        match self.planning.here() {
            Ok(scenario) => {
                let scenario = scenario.clone();
                self.turn_to(Workspace::Watch);
                self.train(ctx, scenario);
            }
            Err(why) => self.notice = Some(Notice::failure(format!("{why}."))),
        }
    }

    fn step_by(&mut self, grain: Grain, direction: Direction) {
        if self.view.workspace == Workspace::Plan {
            let settings = match grain {
                Grain::Block | Grain::Instruction => 1,
                Grain::Microbatch => 3,
                Grain::Step => usize::from(u8::MAX),
            };
            self.planning.turn(settings, direction);
            return;
        }
        let steps = self.run.steps();
        let fine = match grain {
            Grain::Block => timeline::Grain::Block,
            Grain::Microbatch => timeline::Grain::Microbatch,
            Grain::Instruction => timeline::Grain::Instruction,
            Grain::Step => {
                let at = self.play.playhead();
                let step = self.play.cross(direction, steps);
                if step.is_none() && direction == Direction::Forward {
                    self.train_one();
                }
                self.bring(step);
                self.play.seek(at);
                return;
            }
        };
        let Some(step) = &self.step else { return };
        let at = self.play.playhead();
        let way = match direction {
            Direction::Forward => timeline::Direction::Forward,
            Direction::Back => timeline::Direction::Back,
        };
        let compares = self.view.workspace == Workspace::Compare;
        let next = match compares {
            true => self.compare.next_stop(at, fine, way),
            false => step.timeline.next_stop(at, fine, way),
        };
        if next == at {
            let step = self.play.cross(direction, steps);
            self.bring(step);
        } else {
            self.play.seek(next);
        }
        let at = self.play.playhead();
        if compares {
            let moved = self
                .compare
                .seen()
                .and_then(|seen| window::following(seen, at, self.compare.end()));
            if moved.is_some() {
                self.compare.see(moved);
            }
        } else if let Some(window) = self.sight.window
            && let Some(moved) = window::following(window, at, self.axis.axis().end)
        {
            self.sight.window = Some(moved);
        }
    }

    /// The step after the newest one: trained, and shown when it has ended.
    fn train_one(&mut self) {
        if matches!(self.run.state(), State::Held | State::Done) {
            self.run.train_one();
            self.awaits_step = true;
            self.notice = Some("The next step runs; it is shown when it has ended.".into());
        }
    }

    fn repeat(&mut self) {
        let chosen = || {
            let target = self.sight.selection?;
            Some(self.step.as_ref()?.timeline.span(&target)?.1)
        };
        let section = match (self.play.section(), self.view.workspace) {
            (Some(_), _) => None,
            (None, Workspace::Watch) => self.sight.marked.or_else(chosen),
            (None, Workspace::Compare) => self.compare.section(),
            (None, Workspace::Plan) => self.planning.section(),
        };
        if section.is_none() && self.play.section().is_none() {
            self.notice = Some(NOTHING_CHOSEN.into());
        }
        self.play.repeat(section, self.run.steps());
    }

    /// Begins to mark time at the playhead, or ends there.
    fn mark(&mut self) {
        if self.view.workspace == Workspace::Plan {
            self.notice = Some("No playhead runs here that could mark time.".into());
            return;
        }
        let at = self.play.playhead();
        let Some(from) = self.marks_from.take() else {
            self.marks_from = Some(at);
            self.play.seek(at);
            self.notice = Some("Marked from here: step on, and press the same key again.".into());
            return;
        };
        let span = Span { start: from.min(at), end: from.max(at) };
        let span = Some(span).filter(|span| span.start < span.end);
        match self.view.workspace {
            Workspace::Watch | Workspace::Plan => self.sight.marked = span,
            Workspace::Compare => {
                self.compare.obey(Half::Upper, Command::Mark(span));
            }
        }
    }

    fn look_at(&mut self, action: Action) {
        let Looked { end, seen, under_pointer, section } = self.looked();
        let all = Span { start: Nanos(0), end };
        let view = seen.unwrap_or(all);
        let at = under_pointer.unwrap_or(self.play.playhead());
        let next = match action {
            Action::Zoom(direction) => window::zoom_key(view, direction, at, end),
            Action::Pan(direction) => window::pan_key(view, direction, end),
            Action::FitSelection => match section {
                Some(span) => window::around(span, end),
                None => {
                    self.notice = Some(NOTHING_CHOSEN.into());
                    seen
                }
            },
            _ => {
                match self.view.workspace {
                    Workspace::Watch => self.axis.shrink(),
                    Workspace::Compare => self.compare.shrink(),
                    Workspace::Plan => self.planning.shrink(),
                }
                None
            }
        };
        match self.view.workspace {
            Workspace::Watch => self.sight.window = next,
            Workspace::Compare => self.compare.see(next),
            Workspace::Plan => self.planning.see(next),
        }
    }

    /// What of its time the workspace shows.
    fn looked(&self) -> Looked {
        match self.view.workspace {
            Workspace::Watch => {
                let span = self.step.as_ref().and_then(|step| {
                    self.sight.selection.and_then(|target| step.timeline.span(&target))
                });
                Looked {
                    end: self.axis.axis().end,
                    seen: self.sight.window,
                    under_pointer: self.timeline.under_pointer(),
                    section: self.sight.marked.or(span.map(|(_, span)| span)),
                }
            }
            Workspace::Compare => Looked {
                end: self.compare.end(),
                seen: self.compare.seen(),
                under_pointer: self.compare.under_pointer(),
                section: self.compare.section(),
            },
            Workspace::Plan => Looked {
                end: self.planning.end(),
                seen: self.planning.sight().window,
                under_pointer: self.planning.under_pointer(),
                section: self.planning.section(),
            },
        }
    }

    /// The rank that is spoken of: of the selection, else the first.
    pub(super) fn rank(&self) -> Option<Rank> {
        let step = self.step.as_ref()?;
        Some(match self.sight.selection {
            Some(Target::Block { rank, .. } | Target::Wait { rank, .. } | Target::Rank(rank)) => {
                rank
            }
            Some(Target::Position(position)) => step.timeline.slowest(position)?,
            Some(Target::Link { from, .. }) => from,
            None => *step.timeline.ranks().first()?,
        })
    }

    /// Selects what a rank does at the playhead; in the row below or above the selected one.
    fn select_row(&mut self, direction: Direction) {
        if self.view.workspace == Workspace::Plan {
            self.planning.choose_next(direction);
            return;
        }
        if self.view.workspace == Workspace::Compare {
            self.compare.select_row(direction, self.play.playhead());
            return;
        }
        let (Some(rank), Some(step)) = (self.rank(), &self.step) else { return };
        let ranks = step.timeline.ranks();
        let at = ranks.iter().position(|other| *other == rank).unwrap_or_default();
        let next = match (self.sight.selection, direction) {
            (None, _) => at,
            (Some(_), Direction::Forward) => (at + 1).min(ranks.len() - 1),
            (Some(_), Direction::Back) => at.saturating_sub(1),
        };
        let rank = ranks[next];
        self.select_at_playhead(rank);
        self.sight.reveal = Some(Revealed::Rank(rank));
    }

    fn select_at_playhead(&mut self, rank: Rank) {
        let Some(step) = &self.step else { return };
        // At the end of the step nothing runs any more: what ran last.
        let last = step.timeline.end().0.saturating_sub(1);
        let at = Nanos(self.play.playhead().0.min(last));
        let target = step.timeline.target_at(rank, Level::Pass, at);
        self.select(target.or(Some(Target::Rank(rank))));
    }

    fn select_here(&mut self) {
        if self.view.workspace == Workspace::Plan {
            self.planning.mend();
            return;
        }
        if self.view.workspace == Workspace::Compare {
            self.compare.select_here(self.play.playhead());
            return;
        }
        if let (Some(Target::Position(position)), Some(_)) = (self.sight.selection, &self.step) {
            self.sight.unfold(position);
        } else if let Some(rank) = self.rank() {
            self.select_at_playhead(rank);
        }
    }

    /// Closes or clears the top-most thing alone.
    fn escape(&mut self, ctx: &egui::Context) {
        if let Some(over) = &self.over {
            let focused = ctx.memory(|memory| memory.focused());
            let field = focused.filter(|_| ctx.text_edit_focused());
            match field {
                // What was chosen beside a field stays; the palette is nothing but its field.
                Some(field) if over.popup() != Popup::Palette => {
                    ctx.memory_mut(|memory| memory.surrender_focus(field));
                    self.desk.left = Some(field);
                }
                _ => self.over = None,
            }
        } else if self.maximised.is_some() {
            self.maximised = None;
        } else if let Some(focused) = ctx.memory(|memory| memory.focused()) {
            ctx.memory_mut(|memory| memory.surrender_focus(focused));
        } else if self.view.workspace == Workspace::Compare {
            self.compare.escape();
        } else if self.view.workspace == Workspace::Plan {
            self.planning.escape();
        } else if self.sight.marked.is_some() {
            self.sight.marked = None;
        } else if self.sight.selection.is_some() {
            self.sight.selection = None;
        } else {
            self.sight.window = None;
        }
    }

    fn open_tab(&mut self, number: usize) {
        let (left, right) = (self.left.len(), self.right.len());
        if number >= left + right {
            self.notice = Some(format!("There are {} tabs.", left + right).into());
            return;
        }
        self.turn_to(Workspace::Watch);
        let side = if number < left { Side::Left } else { Side::Right };
        match side {
            Side::Left => self.view.left_tab = number,
            Side::Right => self.view.right_tab = number - left,
        }
        self.enlarge_if_closed(side);
    }

    /// A tab that is opened where the band is closed to its row has the room of the timeline.
    fn enlarge_if_closed(&mut self, side: Side) {
        if self.zones.band == Band::Closed {
            self.maximised = Some(side);
        }
    }

    /// The picture in words.
    fn description(&self) -> Option<String> {
        if self.view.workspace == Workspace::Plan {
            return self.planning.description();
        }
        let step = self.step.as_ref()?;
        if self.view.workspace == Workspace::Compare {
            let step = &self.compare.difference()?.rows()[0];
            return Some(format!("{} {}", self.compare.sentence(&self.run), step.sentence()));
        }
        let waiting = 100.0 * step.bubble.waiting_over_span;
        let timeline = &step.timeline;
        let longest = timeline.longest_wait();
        let who = longest.unwrap_or_else(|| timeline.now(self.play.playhead()));
        Some(format!(
            "Step {} takes {} (REPLAYED), ranks wait {waiting:.1} %. {who}",
            step.number() + 1,
            timeline.duration(timeline.end()),
        ))
    }
}

/// One press, onwards or back.
fn sign(direction: Direction) -> f32 {
    match direction {
        Direction::Forward => 1.0,
        Direction::Back => -1.0,
    }
}

/// What there is to be compared.
fn given<'a>((times, here): (Option<&Times>, &Here), step: Option<&'a Step>) -> Given<'a> {
    let measured = step.and_then(|step| match times {
        Some(times) => {
            times.measured.clone().map(|trace| Arc::new(Trace { step: step.number(), ..trace }))
        }
        None => step.measured().cloned(),
    });
    let predicted = step.and_then(|step| here.step(&step.facts));
    Given { step, measured, predicted }
}

/// What of its time a workspace shows.
struct Looked {
    /// Where the time axis ends.
    end: Nanos,
    /// The part that is in sight; `None`: all.
    seen: Option<Span>,
    /// The instant under the pointer.
    under_pointer: Option<Nanos>,
    /// What is marked or chosen.
    section: Option<Span>,
}
