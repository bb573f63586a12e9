//! The line that explains: always there, always one line. What the pointer is over, else what went
//! wrong, else what happens at the playhead, else what the picture is.

use std::path::Path;

use shardlab::trace::Badge;
use shardlab::trace::draw::scene::{Area, Point};
use shardlab::trace::draw::theme::Rgb;

use crate::board::{Board, Control, Pointed, Style};
use crate::broken;
use crate::keys::Action;
use crate::play::Mode;
use crate::run::State;
use crate::shown::{Command, Notice, Popup, Shared, Step, Tone};
use crate::style::Look;
use crate::texts::{self, Medium};

/// Ranks from which on rows are groups.
const ROWS_MOST: u32 = 16;

/// What the line says.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Said {
    pub(super) text: String,
    tone: Tone,
    /// Where its times come from, if it tells any and does not say so itself.
    badge: Option<Badge>,
}

impl Said {
    /// The same where there is no room beside it: the badge in brackets.
    pub(super) fn with_badge(self) -> String {
        match self.badge {
            Some(badge) => format!("{} ({})", self.text.trim_end_matches('.'), badge.word()) + ".",
            None => self.text,
        }
    }

    fn new(text: String, tone: Tone) -> Self {
        Self { text, tone, badge: None }
    }

    fn plain(text: impl Into<String>) -> Self {
        Self::new(text.into(), Tone::Plain)
    }

    /// The same, where its times come from this clock.
    fn by(self, badge: Option<Badge>) -> Self {
        let badge = badge.filter(|_| texts::tells_time(&self.text));
        Self { badge, ..self }
    }
}

/// A button at the end of the line.
struct Offer {
    id: &'static str,
    text: String,
    hint: &'static str,
    command: Command,
}

/// What another workspace than Watch has to say.
#[derive(Clone, Debug)]
pub(super) struct About {
    /// What the pointer is over.
    pub(super) pointed_at: Option<String>,
    /// What is chosen.
    pub(super) chosen: Option<String>,
    /// What one sees.
    pub(super) idle: String,
    /// Where times come from in what is pointed at or chosen.
    pub(super) badge: Option<Badge>,
    /// What a prediction is of, if not of this machine.
    pub(super) machine: Option<String>,
}

/// What there is to say; news come first until the pointer is moved.
pub(super) fn said(
    (shared, medium): (&Shared<'_>, Medium),
    pointed: Option<&Pointed>,
    (notice, is_news): (Option<&Notice>, bool),
    about: Option<&About>,
) -> Said {
    let news = notice.map(|Notice { text, tone }| Said::new(text.clone(), *tone));
    if let Some(news) = news.as_ref().filter(|_| is_news) {
        return news.clone();
    }
    // In Watch all steps are replayed.
    let badge = about.map_or(Some(Badge::Replayed), |about| about.badge);
    match pointed {
        Some(Pointed::Badge(badge)) => return Said::plain(meaning(*badge, shared, about)),
        Some(Pointed::Control(hint)) => return Said::plain(hint.as_str()),
        Some(Pointed::Shown(text)) => return Said::plain(text.as_str()).by(badge),
        None => {}
    }
    let pointed_at = match about {
        Some(about) => about.pointed_at.clone(),
        None => {
            shared.step.zip(shared.sight.hover).map(|(step, target)| step.timeline.explain(&target))
        }
    };
    if let Some(text) = pointed_at {
        return Said::plain(text).by(badge);
    }
    if let Some(news) = news {
        return news;
    }
    if let Some(text) = trouble(shared.run.state()) {
        return Said::new(text, Tone::Error);
    }
    if let Some(about) = about {
        return match &about.chosen {
            Some(chosen) => Said::plain(chosen.as_str()).by(badge),
            None => Said::plain(about.idle.as_str()),
        };
    }
    if let Some(text) = shared.step.and_then(|step| of_step(step, shared)) {
        return Said::plain(text).by(badge);
    }
    if !shared.broken.is_empty() {
        return Said::new(broken::now(shared.broken.faults()), Tone::Warning);
    }
    if let Some(why) = shared.run.fell_back() {
        return Said::new(texts::fell_back(why), Tone::Warning);
    }
    if matches!(shared.run.state(), State::Done) {
        let shown = shared.play.shown().map(|shown| shown.step);
        return Said::plain(texts::done(shared.run.trained(), shown));
    }
    let layout = &shared.scenario().layout;
    let ranks = layout.mesh().size();
    Said::plain(texts::idle(layout, ranks > ROWS_MOST && ranks > layout.pp, medium))
}

/// What a badge means in what is shown.
fn meaning(badge: Badge, shared: &Shared<'_>, about: Option<&About>) -> String {
    let facts = shared.run.facts();
    let devices = facts.map_or(&[][..], |facts| &facts.devices);
    let slow = facts.is_some_and(|facts| !facts.delays.links.is_empty());
    let links = if slow { "free, but for those slowed on purpose" } else { "free" };
    let machine = about.and_then(|about| about.machine.as_deref());
    texts::meaning(badge, devices, links, machine.unwrap_or("this machine, as calibrated"))
}

/// What went wrong, if a run has ended so.
fn trouble(state: &State) -> Option<String> {
    match state {
        State::Failed(why) => Some(why.to_string()),
        State::NotFinite { step, first } => Some(texts::not_finite(*step, first.as_deref())),
        State::Hang { report, unsent, .. } => Some(texts::hang(report, unsent)),
        State::Starting(_) | State::Training | State::Held | State::Done => None,
    }
}

/// What is marked or chosen in the shown step, else what happens in it while it is paused.
fn of_step(step: &Step, shared: &Shared<'_>) -> Option<String> {
    if let Some(span) = shared.sight.marked {
        let length = step.timeline.duration(span.duration());
        return Some(format!(
            "{length} marked. L plays it over and over, Z zooms to it, Esc clears it."
        ));
    }
    if let Some(target) = shared.sight.selection {
        return Some(step.timeline.explain(&target));
    }
    let is_paused = shared.play.mode() == Mode::Paused;
    is_paused.then(|| step.timeline.now(shared.play.playhead()))
}

/// Draws the line and the buttons at its end; `file` is the one that it tells of.
pub(super) fn show(
    board: &mut Board<'_>,
    area: Area,
    shared: &Shared<'_>,
    (said, file): (&Said, Option<&Path>),
) -> Vec<Command> {
    let look = board.look();
    let mut commands = Vec::new();
    let mut rest = area.shrunk(look.gap(3), look.gap(1) / 2.0);
    let copy = file.map(|_| Offer {
        id: "copy path",
        text: "Copy path".into(),
        hint: "Puts the path of the file on the clipboard.",
        command: Command::CopyPath,
    });
    for offer in copy.into_iter().chain(offers(shared)) {
        let width = board.button_width(&offer.text);
        if rest.width < width + look.gap(60) {
            break;
        }
        let (button, left) = rest.cut_right(width);
        rest = left.cut_right(look.gap(1)).1;
        if board.button(button, Control::text(offer.id, &offer.text, offer.hint)) {
            commands.push(offer.command);
        }
    }
    if let Some(badge) = said.badge {
        let width = board.width(badge.word(), look.small()).ceil() + look.gap(3);
        let (place, left) = rest.cut_right(width);
        rest = left;
        let faint = Style::sized(look.small()).ink(look.theme.faint);
        board.write(place, badge.word(), faint.right());
    }
    let ink = ink(&look, said.tone);
    // A screen reader hears it as the value of one node.
    board.read(rest, "explanation", &said.text);
    let size = fitting(board, &said.text, rest.width);
    board.write(rest, &said.text, Style::sized(size).ink(ink));
    let y = area.bottom();
    board.rule(Point { x: area.left, y }, Point { x: area.right(), y });
    commands
}

/// The usual size, or that of labels where the line would be cut.
fn fitting(board: &Board<'_>, text: &str, width: f32) -> f32 {
    let look = board.look();
    if board.width(text, look.body()) <= width { look.body() } else { look.small() }
}

fn ink(look: &Look, tone: Tone) -> Rgb {
    match tone {
        Tone::Plain => look.theme.ink,
        Tone::Warning => look.theme.warning,
        Tone::Error => look.theme.error,
    }
}

/// What can be done now that the run stands as it does; from right to left.
fn offers(shared: &Shared<'_>) -> Vec<Offer> {
    let run = shared.run;
    let restart = Offer {
        id: "restart",
        text: "Restart".into(),
        hint: "Trains the same scenario from the beginning.",
        command: Command::Do(Action::Restart),
    };
    let split = Offer {
        id: "offer split",
        text: "Change the split".into(),
        hint: "Cut model and batch in another way and train again.",
        command: Command::Toggle(Popup::Split),
    };
    let mend = Offer {
        id: "mend",
        text: "Mend it".into(),
        hint: "Nothing is broken on purpose any more (M).",
        command: Command::Do(Action::Mend),
    };
    let is_broken = !shared.broken.is_empty();
    match run.state() {
        State::Done => {
            let more = Offer {
                id: "train more",
                text: format!("Train {} more", run.scenario().training.steps),
                hint: "Goes on from these weights.",
                command: Command::Do(Action::TrainMore),
            };
            vec![if is_broken { mend } else { split }, more]
        }
        State::Failed(_) => vec![split, restart],
        State::NotFinite { first, .. } => {
            let open = first.is_some().then(open_failed);
            open.into_iter().chain([restart, step_back()]).collect()
        }
        State::Hang { .. } => vec![restart, step_back()],
        State::Starting(_) | State::Training | State::Held if is_broken => vec![mend],
        State::Training | State::Held => match run.fell_back() {
            Some(why) => {
                let again = Offer {
                    text: "Try again".into(),
                    hint: "Trains on the device that was asked for.",
                    ..restart
                };
                let details = Offer {
                    id: "details of the device",
                    text: "Details".into(),
                    hint: "The whole reason, and what to do about it.",
                    command: Command::Tell(why.to_string()),
                };
                vec![again, details]
            }
            None => Vec::new(),
        },
        State::Starting(_) => Vec::new(),
    }
}

fn step_back() -> Offer {
    Offer {
        id: "step back",
        text: "Step back".into(),
        hint: "To before the step that failed; the run holds there (U).",
        command: Command::Do(Action::StepBack),
    }
}

fn open_failed() -> Offer {
    Offer {
        id: "open failed",
        text: "Open the block".into(),
        hint: "Chooses the block in which the first such number was written (O).",
        command: Command::Do(Action::OpenFailed),
    }
}
