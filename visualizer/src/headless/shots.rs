//! `--screenshot`: trains a scenario so far and writes a picture of every view.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use shardlab::trace::draw::scene::Area;

use crate::app::App;
use crate::args::{Format, Scale, Size};
use crate::export::drawing::Drawing;
use crate::export::parts::{Part, file_name};
use crate::export::{self, ExportError, moment};
use crate::keys::Action;
use crate::panels;
use crate::shown::{Command, Side, Step, Workspace};
use crate::zones::Dividers;

use super::{Headless, Painter, Run, ShotError, Told};

/// How often it is asked whether something has been planned.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Frames until everything stands: the figures are written, the tabs have found their size.
const SETTLED: usize = 3;
/// How long a search of layouts is waited for.
const PATIENCE: Duration = Duration::from_secs(15);

/// Which pictures are taken.
#[derive(Debug)]
pub struct Shots {
    /// Of which run.
    pub run: Run,
    /// Of what.
    pub parts: Vec<(Part, String)>,
    /// As what.
    pub format: Format,
    /// Size of the window in points.
    pub size: Size,
    /// Pixels a point.
    pub scale: Scale,
    /// Where they are written.
    pub folder: PathBuf,
}

/// Takes the pictures; where no adapter paints, from vector pictures, which are written as well.
///
/// # Errors
/// If the run fails before the step or a file cannot be written.
pub fn take(
    shots: Shots,
    painter: Result<Painter, String>,
    mut tell: impl FnMut(Told<'_>),
) -> Result<(), ShotError> {
    let Shots { run, mut parts, format, size, scale, folder } = shots;
    // The numbers of a collective take one more step: what comes before shows none of it.
    parts.sort_by_key(|(part, _)| *part == Part::Tab(Side::Left, panels::COLLECTIVE));
    let painter = match (format, painter) {
        (Format::Svg, _) => None,
        (Format::Png, Ok(painter)) => Some(painter),
        (Format::Png, Err(why)) => {
            tell(Told::NoAdapter(&why));
            None
        }
    };
    let studio = Studio { scale, format, size, has_painter: painter.is_some() };
    let first = parts.first().map_or("", |(_, name)| name);
    let first = folder.join(file_name(&run.scenario.name, first, run.at - 1, "png"));
    let mut window = run.open(&first, (size, scale), painter, &mut tell)?;
    window.app_mut().audit().keep_scenes();
    window.frames(SETTLED);
    let telling = window.app().step().map(moment::telling).unwrap_or_default();
    window.ask(Command::Seek(telling));
    let step = window.app().step().map_or(0, |step| step.number());
    let scenario = window.app().run().scenario().name.clone();
    for (part, name) in parts {
        let shown = turn_to(&mut window, part);
        window.frames(SETTLED);
        if let Part::Tab(side, tab) = part {
            open_example(&mut window, side, tab);
        }
        // What is planned or predicted beside the window comes when it is ready.
        let begin = Instant::now();
        while is_awaited(window.app(), begin.elapsed()) {
            std::thread::sleep(LOOK_EVERY);
            window.frames(1);
        }
        window.frames(SETTLED);
        for (ending, bytes) in studio.pictures(&mut window)? {
            let path = folder.join(file_name(&scenario, &name, step, ending));
            export::write(&path, &bytes)?;
            tell(Told::Written(&path));
        }
        turn_back(&mut window, shown);
    }
    Ok(())
}

/// Whether something comes yet that belongs on the picture. A search of all layouts may take minutes:
/// it is there where it is quick.
fn is_awaited(app: &App, waited: Duration) -> bool {
    let plan = app.planned();
    let only_searches = plan.is_busy() && !plan.is_predicting();
    app.is_busy() && !(only_searches && waited > PATIENCE)
}

/// Opens what a tab has to show, and trains the step that gives it its numbers, if it needs one.
fn open_example(window: &mut Headless, side: Side, tab: usize) {
    let Some(at) = window.app_mut().show_example(side, tab) else { return };
    window.ask(Command::Capture(at));
    let (begin, step) = (Instant::now(), window.app().step().map(Step::number));
    while window.app().run().captured(at).is_none() && begin.elapsed() < PATIENCE {
        std::thread::sleep(LOOK_EVERY);
        window.app_mut().listen();
    }
    window.frames(SETTLED);
    // All pictures are of one step.
    if let Some(step) = step {
        window.ask(Command::SeekStep(step));
    }
}

/// How pictures are made.
struct Studio {
    scale: Scale,
    format: Format,
    size: Size,
    has_painter: bool,
}

impl Studio {
    /// The files of what the window shows now, with their endings.
    fn pictures(&self, window: &mut Headless) -> Result<Vec<(&'static str, Vec<u8>)>, ExportError> {
        if self.has_painter {
            return Ok(vec![("png", window.pixels()?.png()?)]);
        }
        let area = Area::sized(f32::from(self.size.width), f32::from(self.size.height));
        let title = window.app().run().scenario().name.clone();
        let drawing = Drawing::new(title, area, window.app_mut().audit().scenes());
        let svg = ("svg", drawing.svg(self.scale.0).into_bytes());
        Ok(match self.format {
            Format::Svg => vec![svg],
            Format::Png => vec![svg, ("png", drawing.image(self.scale.0)?.png()?)],
        })
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
    let workspace = match part {
        Part::Window(workspace) => workspace,
        Part::Timeline | Part::Tab(..) => Workspace::Watch,
    };
    window.ask(Command::Do(Action::Workspace(workspace)));
    match part {
        Part::Window(_) => {}
        Part::Timeline => window.ask(Command::Divide(Dividers { timeline: 1.0, ..dividers })),
        Part::Tab(side, tab) => {
            let app = window.app();
            let playhead = app.play().playhead();
            let target = app.step().and_then(|step| moment::working(step, playhead));
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

/// Shows the window as before; each tab shows its first one again.
fn turn_back(window: &mut Headless, turned: Turned) {
    if let Some(side) = turned.maximised {
        window.ask(Command::Maximise(side));
        window.ask(Command::Select(None));
        window.ask(Command::OpenLeft(0));
        window.ask(Command::OpenRight(0));
    }
    window.ask(Command::Divide(turned.dividers));
}
