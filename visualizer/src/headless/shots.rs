//! `--screenshot`: trains a scenario so far and writes a picture of every view.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::app::Start;
use crate::args::{Scale, Size};
use crate::export::parts::{Part, file_name};
use crate::export::{self, ExportError, moment};
use crate::panels;
use crate::run::State;
use crate::shown::{Command, Side};
use crate::zones::Dividers;

use super::{Headless, Painter};

/// How often the run is asked what there is.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Frames until everything stands: the figures are written, the tabs have found their size.
const SETTLED: usize = 3;

/// Which pictures are taken.
#[derive(Debug)]
pub struct Shots {
    /// What the window starts with; its steps are trained to `at`.
    pub start: Start,
    /// The step that is shown, counted from 1.
    pub at: u64,
    /// Of what.
    pub parts: Vec<(Part, String)>,
    /// Size of the window in points.
    pub size: Size,
    /// Pixels a point.
    pub scale: Scale,
    /// Where they are written.
    pub folder: PathBuf,
}

/// Why there are no pictures.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShotError {
    /// The run does not get there.
    #[error("{0}")]
    Run(String),
    /// No adapter paints.
    #[error("{0}")]
    Adapter(String),
    /// A picture cannot be made or written.
    #[error(transparent)]
    Export(#[from] ExportError),
}

/// Takes the pictures; `tell` hears the path of each.
///
/// # Errors
/// If the run fails before the step, no adapter paints, or a file cannot be written.
pub fn take(shots: Shots, mut tell: impl FnMut(&Path)) -> Result<(), ShotError> {
    let Shots { start, at, parts, size, scale, folder } = shots;
    let painter = Painter::open().map_err(ShotError::Adapter)?;
    let mut window = Headless::open(start, size, scale, Some(painter));
    train(&mut window, at)?;
    window.frames(SETTLED);
    let telling = window.app().step().map(moment::telling).unwrap_or_default();
    window.ask(Command::Seek(telling));
    let step = window.app().step().map_or(0, |step| step.number());
    let scenario = window.app().run().scenario().name.clone();
    for (part, name) in parts {
        let shown = turn_to(&mut window, part);
        window.frames(SETTLED);
        let path = folder.join(file_name(&scenario, &name, step, "png"));
        export::write(&path, &window.pixels()?.png()?)?;
        tell(&path);
        turn_back(&mut window, shown);
    }
    Ok(())
}

/// Waits until the run holds at the step.
fn train(window: &mut Headless, at: u64) -> Result<(), ShotError> {
    loop {
        window.app_mut().listen();
        let run = window.app().run();
        match run.state() {
            State::Failed(why) => return Err(ShotError::Run(why.to_string())),
            State::NotFinite { .. } | State::Hang { .. } => return Ok(()),
            State::Held | State::Done if run.trained() >= at => return Ok(()),
            State::Starting(_) | State::Training | State::Held | State::Done => {}
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// What was changed in the window for a picture.
struct Turned {
    dividers: Dividers,
    maximised: Option<Side>,
}

/// Shows a part as large as the window has room for.
fn turn_to(window: &mut Headless, part: Part) -> Turned {
    let dividers = window.app().view().dividers;
    let mut turned = Turned { dividers, maximised: None };
    match part {
        Part::Window => {}
        Part::Timeline => window.ask(Command::Divide(Dividers { timeline: 1.0, ..dividers })),
        Part::Tab(side, tab) => {
            let app = window.app();
            let playhead = app.play().playhead();
            let target = app.step().and_then(|step| {
                let panel = panels::of(side).into_iter().nth(tab)?;
                panel.example(step).or_else(|| moment::working(step, playhead))
            });
            window.ask(Command::Select(target));
            window.ask(match side {
                Side::Left => Command::OpenLeft(tab),
                Side::Right => Command::OpenRight(tab),
            });
            window.ask(Command::Maximise(side));
            turned.maximised = Some(side);
        }
    }
    turned
}

fn turn_back(window: &mut Headless, turned: Turned) {
    if let Some(side) = turned.maximised {
        window.ask(Command::Maximise(side));
        window.ask(Command::Select(None));
    }
    window.ask(Command::Divide(turned.dividers));
}
