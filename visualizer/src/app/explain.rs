//! The line that explains: always there, always one line. What the pointer is over, else what went
//! wrong, else what happens at the playhead, else what the picture is.

use std::path::Path;

use shardlab::trace::draw::scene::{Area, Point};
use shardlab::trace::draw::theme::Rgb;

use crate::board::{Board, Control, Style};
use crate::broken;
use crate::keys::Action;
use crate::play::Mode;
use crate::run::State;
use crate::shown::{Command, Popup, Shared};
use crate::style::Look;
use crate::texts;

/// Ranks from which on rows are groups.
const ROWS_MOST: u32 = 16;

/// What the line says.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Said {
    pub(super) text: String,
    tone: Tone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tone {
    Plain,
    Warning,
    Error,
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
}

/// What there is to say.
pub(super) fn said(
    shared: &Shared<'_>,
    hint: Option<&str>,
    notice: Option<&str>,
    about: Option<&About>,
) -> Said {
    let plain = |text: String| Said { text, tone: Tone::Plain };
    if let Some(hint) = hint {
        return plain(hint.to_owned());
    }
    let pointed_at = match about {
        Some(about) => about.pointed_at.clone(),
        None => {
            shared.step.zip(shared.sight.hover).map(|(step, target)| step.timeline.explain(&target))
        }
    };
    if let Some(text) = pointed_at {
        return plain(text);
    }
    if let Some(notice) = notice {
        return plain(notice.to_owned());
    }
    match shared.run.state() {
        State::Failed(why) => return Said { text: why.to_string(), tone: Tone::Error },
        State::NotFinite { step, first } => {
            let text = texts::not_finite(*step, first.as_deref());
            return Said { text, tone: Tone::Error };
        }
        State::Hang { report, unsent, .. } => {
            return Said { text: texts::hang(report, unsent), tone: Tone::Error };
        }
        State::Starting(_) | State::Training | State::Held | State::Done => {}
    }
    if let Some(about) = about {
        return plain(about.chosen.as_ref().unwrap_or(&about.idle).clone());
    }
    if let (Some(step), Some(span)) = (shared.step, shared.sight.marked) {
        let length = step.timeline.duration(span.duration());
        return plain(format!(
            "{length} marked. L plays it over and over, Z zooms to it, Esc clears it."
        ));
    }
    if let (Some(step), Some(target)) = (shared.step, shared.sight.selection) {
        return plain(step.timeline.explain(&target));
    }
    if let (Some(step), Mode::Paused) = (shared.step, shared.play.mode()) {
        return plain(step.timeline.now(shared.play.playhead()));
    }
    if !shared.broken.is_empty() {
        return Said { text: broken::now(shared.broken.faults()), tone: Tone::Warning };
    }
    if let Some(why) = shared.run.fell_back() {
        return Said { text: texts::fell_back(why), tone: Tone::Warning };
    }
    if matches!(shared.run.state(), State::Done) {
        return plain(texts::done(shared.run.trained(), shared.play.shown().map(|s| s.step)));
    }
    let layout = &shared.scenario().layout;
    let ranks = layout.mesh().size();
    plain(texts::idle(layout, ranks > ROWS_MOST && ranks > layout.pp))
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
        State::Training | State::Held if run.fell_back().is_some() => {
            vec![Offer {
                text: "Try again".into(),
                hint: "Trains on the device that was asked for.",
                ..restart
            }]
        }
        State::Starting(_) | State::Training | State::Held => Vec::new(),
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
