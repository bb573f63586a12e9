//! What the app does to break things on purpose, to mend them, and to get on after a step that failed.

use eframe::egui;
use shardlab::mesh::Rank;
use shardlab::plan::{Action, Origin};
use shardlab::trace::draw::scene::Point;
use shardlab::trace::draw::timeline::{Level, Target};
use shardlab::train::faults::{Fault, check_plan};
use shardlab::units::Nanos;

use super::App;
use crate::broken::{Change, Under, changes, everywhere};
use crate::over::{About, Over};
use crate::panels;
use crate::run::State;
use crate::shown::{Notice, Popup, Shared, Step};

impl App {
    /// Breaks something: in the run as it stands, or, where it makes another training, from the
    /// beginning. Either way it is followed, beside one rank.
    pub(super) fn break_on_purpose(&mut self, ctx: &egui::Context, fault: Fault) {
        let Some(facts) = self.run.facts() else {
            self.notice = Some("The run is being prepared: nothing can be broken yet.".into());
            return;
        };
        if let Err(error) = check_plan(&facts.original, fault) {
            self.notice = Some(Notice::failure(format!("{error}.")));
            return;
        }
        self.notice = None;
        self.broken.add(fault);
        self.take_hold(ctx, fault.joins_a_run());
        self.view.right_tab = panels::LOSS;
    }

    /// Mends what is broken in the same way as `kind`, or everything.
    pub(super) fn mend(&mut self, ctx: &egui::Context, kind: Option<Fault>) {
        let mended = self.broken.take(kind);
        if mended.is_empty() {
            self.notice = Some("Nothing is broken on purpose.".into());
        } else {
            self.take_hold(ctx, mended.iter().all(|fault| fault.joins_a_run()));
        }
    }

    /// Another optimizer for faults: those that make another training are trained anew under it.
    pub(super) fn look_under(&mut self, ctx: &egui::Context, under: Under) {
        if under == self.broken.under() {
            return;
        }
        self.broken.set_under(under);
        if !self.broken.is_empty() {
            let joins = self.broken.faults().iter().all(|fault| fault.joins_a_run());
            if joins { self.ask_judges(ctx) } else { self.take_hold(ctx, false) }
        }
    }

    /// Lets the run have what is broken now, and asks the judges.
    fn take_hold(&mut self, ctx: &egui::Context, as_it_stands: bool) {
        if as_it_stands {
            self.run.set_faults(self.broken.faults().to_vec());
            let step = self.play.follow(self.run.steps());
            self.bring(step);
            self.awaits_change = Some(self.run.same_since());
        } else {
            let scenario = self.broken.training_of(self.run.scenario());
            self.train_broken(ctx, scenario);
        }
        self.ask_judges(ctx);
    }

    fn ask_judges(&mut self, ctx: &egui::Context) {
        let ctx = ctx.clone();
        self.broken.ask(self.run.scenario(), move || ctx.request_repaint());
    }

    /// Opens what can be done to something, beside where it was asked for.
    pub(super) fn menu(&mut self, target: Target, at: Option<Point>) {
        self.over = Some(self.opened(Popup::Break, target, at));
    }

    /// Something over the window; where a menu was asked for by a key, it hangs in the timeline.
    pub(super) fn opened(&self, popup: Popup, target: Target, at: Option<Point>) -> Over {
        let area = self.zones.timeline;
        let beside = || Point { x: area.left + area.width / 4.0, y: area.top + area.height / 4.0 };
        let at = at.unwrap_or_else(beside);
        let about = About { saved: self.saved(), target, at, asker: self.asker };
        Over::open(popup, about, || self.offer())
    }

    /// Back to before the step that failed.
    pub(super) fn step_back(&mut self) {
        if matches!(self.run.state(), State::NotFinite { .. } | State::Hang { .. }) {
            self.run.step_back();
            self.play.pause();
        } else {
            self.notice = Some("No step has failed, so there is none to go back over.".into());
        }
    }

    /// Selects the block in which the first number was written that is not finite, in the step on
    /// the screen: the failed one has no times.
    pub(super) fn open_failed(&mut self) {
        let State::NotFinite { first: Some(first), .. } = self.run.state() else {
            let text = "No number has failed to be finite, so there is no block to open.";
            self.notice = Some(text.into());
            return;
        };
        let at = (first.rank, first.origin);
        let Some(step) = &self.step else { return };
        let Some((target, start)) = block_of(step, at) else { return };
        self.play.seek(start);
        self.select(Some(target));
    }
}

/// The block that works for an origin, and its first instant.
fn block_of(step: &Step, (rank, origin): (Rank, Origin)) -> Option<(Target, Nanos)> {
    let program = step.facts.plan.programs.get(rank.index())?;
    let index = program.instrs.iter().position(|instr| {
        instr.origin == origin && matches!(instr.action, Action::Launch { .. })
    })?;
    let start = step.timeline.trace().span(rank, index).start;
    Some((step.timeline.target_at(rank, Level::Pass, start)?, start))
}

/// What can be done besides actions with keys: in a menu to what it is about, in the palette to what
/// is chosen and everywhere.
pub(super) fn changes_of(over: &Over, shared: &Shared<'_>) -> Vec<Change> {
    let Some(facts) = shared.run.facts() else { return Vec::new() };
    match over.popup() {
        Popup::Break => over
            .target()
            .map(|target| changes(facts, on_rank(target, shared), shared.broken))
            .unwrap_or_default(),
        Popup::Palette => {
            let target = shared.sight.selection.unwrap_or(Target::Rank(Rank(0)));
            let mut all = changes(facts, on_rank(target, shared), shared.broken);
            all.retain(|offer| offer.name != "Mend everything");
            all.extend(everywhere(shared.broken));
            all
        }
        Popup::Scenarios
        | Popup::Split
        | Popup::Help
        | Popup::Open
        | Popup::Save
        | Popup::Export
        | Popup::Half(_)
        | Popup::OpenSchedule
        | Popup::Schedule
        | Popup::SplitOf(_) => Vec::new(),
    }
}

/// Of a row of many ranks the one that it shows: the slowest.
fn on_rank(target: Target, shared: &Shared<'_>) -> Target {
    match target {
        Target::Position(position) => {
            let slowest = shared.step.and_then(|step| step.timeline.slowest(position));
            slowest.map_or(target, Target::Rank)
        }
        other => other,
    }
}
