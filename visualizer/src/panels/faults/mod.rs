//! Faults: what can be broken on purpose, what two judges say of it, and how it is mended.
//!
//! The names stand on the left; the one that is chosen is told on the right: its knobs (`knobs`), a
//! button, what the checker and three steps beside one rank say, and who has met it. `flow` writes
//! lines below one another. What is broken is the app's ([`crate::broken`]), not the tab's.

mod flow;
mod knobs;

use std::sync::Arc;

use shardlab::config::{OptimizerKind, Scenario};
use shardlab::plan::Plan;
use shardlab::trace::draw::scene::{Area, Point, Shape};
use shardlab::train::driver::{Explained, Facts};
use shardlab::train::faults::{Fault, check_plan, that_shows};

use self::flow::{Choice, Flow};
use self::knobs::Knobs;
use super::Panel;
use crate::board::{Board, Control, Style};
use crate::broken::{self, Clip, EXHIBITS, Under, Verdict};
use crate::shown::{Command, Popup, Shared};

/// Height of a name before scaling, where there is room.
const NAME: f32 = 24.0;
/// The least height, in heights of its letters.
const LEAST: f32 = 1.5;

/// The panel; keeps what is chosen and how the knobs stand.
#[derive(Debug, Default)]
pub(super) struct Faults {
    chosen: usize,
    knobs: Knobs,
    /// How far the list and the text are scrolled.
    first: usize,
    turned: f32,
    scrolled: f32,
    /// How high the text was the last time.
    height: f32,
    /// Whether the layout can have what is chosen.
    fits: Option<Fits>,
}

/// Whether a Plan can have a fault.
#[derive(Debug)]
struct Fits {
    plan: Arc<Plan>,
    kind: Fault,
    refusal: Option<Refusal>,
}

/// Why it cannot, and what can.
#[derive(Debug)]
struct Refusal {
    why: String,
    shows: Option<(Box<Scenario>, String)>,
}

impl Panel for Faults {
    fn name(&self) -> &'static str {
        "Faults"
    }

    fn about(&self) -> &'static str {
        "Break something on purpose, see who notices, and mend it."
    }

    fn show(&mut self, board: &mut Board<'_>, area: Area, shared: &Shared<'_>) -> Vec<Command> {
        let look = board.look();
        let inner = area.shrunk(look.gap(3), look.gap(1));
        let width = (230.0 * look.scale).min(inner.width * 0.4);
        let (list, right) = inner.cut_left(width);
        let before = self.chosen;
        self.list(board, list, shared);
        if self.chosen != before {
            self.scrolled = 0.0;
        }
        self.knobs.follow(shared.sight.selection, shared.step);
        let detail = right.cut_left(look.gap(4)).1;
        let mut flow = Flow::new(board, detail, self.scrolled, self.height);
        let commands = match shared.run.facts() {
            Some(facts) => self.detail(&mut flow, facts, shared),
            None => {
                flow.sentence("Once the run is prepared, it can be broken here.", look.theme.faint);
                Vec::new()
            }
        };
        let most;
        (self.height, most) = flow.end();
        let wheel = wheel_over(board, detail);
        self.scrolled = (self.scrolled - wheel).clamp(0.0, most);
        commands
    }
}

impl Faults {
    fn list(&mut self, board: &mut Board<'_>, area: Area, shared: &Shared<'_>) {
        let look = board.look();
        // As wide apart as there is room for, but never so near that they cannot be told apart.
        let least = (look.small() * LEAST).ceil();
        let row = (area.height / EXHIBITS.len() as f32).clamp(least, least.max(NAME * look.scale));
        let rows = ((area.height / row + 0.01).floor() as usize).clamp(1, EXHIBITS.len());
        let most = EXHIBITS.len() - rows;
        self.turn_list(wheel_over(board, area), row, most);
        let (first, last) = (self.first, self.first + rows - 1);
        let mut rest = area;
        for (index, kind) in EXHIBITS.iter().enumerate().skip(first).take(rows) {
            let (line, below) = rest.cut_top(row);
            rest = below;
            let id = format!("fault {}", kind.name());
            let control = Control::text(&id, kind.name(), kind.sentence());
            let (sign, name) = line.cut_left(look.gap(5));
            let response = board.entry(line, control.chosen(index == self.chosen));
            if response.clicked() {
                self.chosen = index;
            }
            if response.has_focus() && rows > 2 {
                // The keyboard reaches the neighbours of what it has reached.
                self.first = match index {
                    _ if index == first => first.saturating_sub(1),
                    _ if index == last => (first + 1).min(most),
                    _ => first,
                };
            }
            if shared.broken.like(*kind).is_some() {
                let (at, half) = (sign.centre(), look.small() * 0.4);
                let corners = [(-half, half), (half, half), (0.0, -half)];
                let points = corners.map(|(x, y)| Point { x: at.x + x, y: at.y + y }).to_vec();
                board.push(Shape::Polygon { points, fill: look.theme.warning });
            }
            board.write(name, kind.name(), Style::sized(look.small()));
        }
    }

    fn turn_list(&mut self, wheel: f32, row: f32, most: usize) {
        self.turned = if wheel == 0.0 { 0.0 } else { self.turned - wheel };
        let rows = (self.turned / row).trunc();
        self.turned -= rows * row;
        self.first = self.first.saturating_add_signed(rows as isize).min(most);
    }

    fn detail(
        &mut self,
        flow: &mut Flow<'_, '_>,
        facts: &Arc<Facts>,
        shared: &Shared<'_>,
    ) -> Vec<Command> {
        let kind = EXHIBITS[self.chosen.min(EXHIBITS.len() - 1)];
        let plan = &facts.original;
        let on = shared.broken.like(kind);
        if let Some(fault) = on {
            self.knobs.adopt(fault, plan);
        }
        let fault = self.knobs.fault(kind, plan);
        let refusal = match on {
            Some(_) => None,
            None => self.refusal(kind, fault, plan, shared.scenario()),
        };
        let mut commands = Vec::new();
        let can_break = fault.filter(|_| refusal.is_none());
        commands.extend(heading(flow, kind, can_break, on));
        let look = flow.board.look();
        if let Some(Refusal { why, shows }) = refusal {
            flow.sentence(why, look.theme.warning);
            commands.extend(offer(flow, shows.as_ref()));
        } else {
            let is_turned = self.knobs.show(flow, kind, plan);
            if let (true, Some(_), Some(other)) = (is_turned, on, self.knobs.fault(kind, plan)) {
                commands.push(Command::Break(other));
            }
            if !kind.joins_a_run() {
                commands.extend(under(flow, shared.broken.under()));
            }
        }
        if on.is_some() {
            verdicts(flow, facts, shared);
        }
        let texts = [kind.sentence(), kind.sight(), kind.met()];
        flow.read("fault in words", &texts.join(" "));
        for (text, ink) in texts.into_iter().zip([look.theme.ink, look.theme.ink, look.theme.faint])
        {
            flow.sentence(text, ink);
        }
        commands
    }

    /// Why the layout cannot have a fault; found out once for a Plan.
    fn refusal(
        &mut self,
        kind: Fault,
        fault: Option<Fault>,
        plan: &Arc<Plan>,
        scenario: &Scenario,
    ) -> Option<&Refusal> {
        let is_known = |fits: &Fits| Arc::ptr_eq(&fits.plan, plan) && fits.kind.is_like(kind);
        if !self.fits.as_ref().is_some_and(is_known) {
            let refusal = match fault {
                None => Some(Refusal {
                    why: "No rank sends anything here. Use at least 2 ranks.".into(),
                    shows: None,
                }),
                Some(fault) => check_plan(plan, fault).err().map(|error| {
                    let Explained { why, remedy, .. } = Explained::of(&error);
                    let shows = that_shows(scenario, kind);
                    Refusal {
                        why: format!("It cannot be shown here: {why}. {remedy}."),
                        shows: shows.map(|(scenario, words)| (Box::new(scenario), words)),
                    }
                }),
            };
            self.fits = Some(Fits { plan: Arc::clone(plan), kind, refusal });
        }
        self.fits.as_ref()?.refusal.as_ref()
    }
}

/// The name, and the button that breaks or mends.
fn heading(
    flow: &mut Flow<'_, '_>,
    kind: Fault,
    can_break: Option<Fault>,
    on: Option<Fault>,
) -> Option<Command> {
    let look = flow.board.look();
    let row = flow.line(look.gap(8))?;
    let width = flow.board.button_width("Mend it");
    let (button, name) = row.cut_right(width);
    let button = button.shrunk(0.0, look.gap(1) / 2.0);
    flow.board.write(name.cut_right(look.gap(2)).1, kind.name(), Style::sized(look.heading()));
    let (text, hint, command) = match (on, can_break) {
        (Some(fault), _) => (
            "Mend it",
            "The run goes on as if this had never been broken.",
            Command::Mend(Some(fault)),
        ),
        (None, Some(fault)) if fault.joins_a_run() => (
            "Break it",
            "Breaks it in the run as it stands, from the next step on.",
            Command::Break(fault),
        ),
        (None, Some(fault)) => {
            let hint = "Trains from the beginning with this broken, beside one rank.";
            ("Break it", hint, Command::Break(fault))
        }
        (None, None) => return None,
    };
    flow.board.button(button, Control::text("break or mend", text, hint)).then_some(command)
}

/// The layout that can show it, as a button.
fn offer(flow: &mut Flow<'_, '_>, shows: Option<&(Box<Scenario>, String)>) -> Option<Command> {
    let look = flow.board.look();
    let row = flow.line(look.gap(8))?.shrunk(0.0, look.gap(1) / 2.0);
    let (text, hint, command) = match shows {
        Some((scenario, words)) => {
            let hint = "Trains from the beginning with a layout that can have this fault.";
            (format!("Train with {words}"), hint, Command::Train(scenario.clone()))
        }
        None => {
            let hint = "Cut model and batch in another way and train again.";
            ("Change the split".to_owned(), hint, Command::Toggle(Popup::Split))
        }
    };
    let button = row.cut_left(flow.board.button_width(&text).min(row.width)).0;
    flow.board.button(button, Control::text("show it", &text, hint)).then_some(command)
}

/// The optimizer under which it is looked at.
fn under(flow: &mut Flow<'_, '_>, now: Under) -> Option<Command> {
    let mut rest = flow.row("under")?;
    let optimizers = [(OptimizerKind::Sgd, "SGD"), (OptimizerKind::AdamW, "AdamW")];
    let choices = optimizers.map(|(optimizer, text)| Choice {
        id: text,
        text,
        hint: "The optimizer of the broken run and of the three steps. Adam hides the size of gradients.",
        chosen: optimizer == now.optimizer,
    });
    let optimizer = flow.choice(&mut rest, &choices);
    let clips = [(Clip::Off, "no clip"), (Clip::On, "clip")];
    let choices = clips.map(|(clip, text)| Choice {
        id: text,
        text,
        hint: "Whether gradients are clipped in every step. A clip hides their size.",
        chosen: clip == now.clip,
    });
    let clip = flow.choice(&mut rest, &choices);
    let asked = Under {
        optimizer: optimizer.and_then(|at| optimizers.get(at)).map_or(now.optimizer, |one| one.0),
        clip: clip.and_then(|at| clips.get(at)).map_or(now.clip, |one| one.0),
    };
    (asked != now).then_some(Command::Under(asked))
}

/// What the two judges say, and how far the run is from one rank.
fn verdicts(flow: &mut Flow<'_, '_>, facts: &Facts, shared: &Shared<'_>) {
    let broken = shared.broken;
    // The run tells what its checker finds once it stands with these faults.
    if facts.faults == broken.faults() {
        flow.said("Checker", &broken::checker(&facts.checker, &facts.faults));
    }
    let three = format!("3 steps, {}", broken.under());
    match broken.verdict() {
        Some(Verdict::Given(examination)) => {
            flow.said(&three, &broken::steps(&examination.steps, Some(facts)));
        }
        Some(Verdict::Failed(why)) => flow.said(&three, &format!("{why}.")),
        Some(Verdict::Asked) => flow.said(&three, "run beside one rank …"),
        None => {}
    }
    if let Some((step, loss, difference)) = shared.run.beside() {
        flow.said("This run", &broken::beside(step, loss, &difference, facts));
    }
}

fn wheel_over(board: &Board<'_>, area: Area) -> f32 {
    let is_over = board.ui().rect_contains_pointer(crate::paint::rect(area));
    if is_over { board.ctx().input(|input| input.smooth_scroll_delta.y) } else { 0.0 }
}
