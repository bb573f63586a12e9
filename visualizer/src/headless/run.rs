//! The run that pictures are taken of: trained to a step on the spot, or with the times of a file.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use shardlab::config::Scenario;
use shardlab::trace::Clock;
use shardlab::trace::export::Recording;
use shardlab::train::Options;

use super::{Headless, Painter, ShotError, Told};
use crate::app::{Source, Start, Times};
use crate::args::{Scale, Size};
use crate::export;
use crate::run::State;
use crate::saved::View;

/// How often the run is asked what there is.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How often it is told how far it is.
const TELL_EVERY: Duration = Duration::from_secs(2);

/// A run that is trained to a step.
#[derive(Debug)]
pub struct Run {
    /// What is trained.
    pub scenario: Scenario,
    /// What runs the ranks, and what each may hold.
    pub options: Options,
    /// What the window looks like.
    pub view: View,
    /// The step that is shown, counted from 1.
    pub at: u64,
    /// A recording whose times are shown instead of the run's.
    pub trace: Option<PathBuf>,
}

impl Run {
    /// Trains and opens the window on the step, unless `file` cannot be written later.
    pub(super) fn open(
        self,
        file: &Path,
        (size, scale): (Size, Scale),
        painter: Option<Painter>,
        tell: &mut dyn FnMut(Told<'_>),
    ) -> Result<Headless, ShotError> {
        let Self { scenario, options, view, at, trace } = self;
        let recording = trace.as_deref().map(read).transpose()?;
        export::try_out(file)?;
        let source = Source::TrainedTo(at);
        let start = Start { scenario, options, view, store: None, source, notes: Vec::new() };
        let mut window = Headless::open(start, size, scale, painter);
        train(&mut window, at, tell)?;
        if let (Some(recording), Some(path)) = (recording, trace) {
            let facts = window.app().run().facts();
            let fits = facts.is_some_and(|facts| facts.plan.programs == recording.plan.programs);
            let times = times(&recording).filter(|_| fits).ok_or_else(|| {
                let file = path.display();
                ShotError::Trace(format!(
                    "{file}: is no step of this scenario. Record one: shardlab train --scenario \
                     FILE --trace {file}"
                ))
            })?;
            window.app_mut().freeze(times);
        }
        Ok(window)
    }
}

/// Waits until the run holds at the step.
fn train(window: &mut Headless, at: u64, tell: &mut dyn FnMut(Told<'_>)) -> Result<(), ShotError> {
    let (mut told, mut told_at) = (0, Instant::now());
    loop {
        window.app_mut().listen();
        let run = window.app().run();
        // A window goes on with the CPU and says so; a picture would pass for what it is not.
        if let Some(why) = run.fell_back() {
            return Err(ShotError::Device(why.to_string()));
        }
        match run.state() {
            State::Failed(why) => return Err(ShotError::Run(why.to_string())),
            State::NotFinite { .. } | State::Hang { .. } => return Ok(()),
            State::Held | State::Done if run.trained() >= at => return Ok(()),
            State::Starting(_) | State::Training | State::Held | State::Done => {}
        }
        if run.trained() > told && told_at.elapsed() >= TELL_EVERY {
            (told, told_at) = (run.trained(), Instant::now());
            tell(Told::Trained(told, at));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn read(path: &Path) -> Result<Recording, ShotError> {
    let refuse = |why: String| {
        ShotError::Trace(format!(
            "{}: {why}. Give a file that `shardlab train --trace FILE` wrote",
            path.display()
        ))
    };
    let text = std::fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
    let recording: Recording =
        serde_json::from_str(&text).map_err(|error| refuse(format!("no recording ({error})")))?;
    recording.fault().map_or(Ok(recording), |why| Err(refuse(why)))
}

fn times(recording: &Recording) -> Option<Times> {
    let replayed = recording.trace(Clock::Replayed)?.clone();
    Some(Times { replayed, measured: recording.trace(Clock::Measured).cloned() })
}
