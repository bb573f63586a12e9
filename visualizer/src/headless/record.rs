//! `--record`: one whole step in slow motion, as an animation.

use std::path::PathBuf;

use shardlab::units::{Bytes, Nanos};

use super::{Run, ShotError, Told};
use crate::app::{Paper, Wanted};
use crate::args::{Scale, Size};
use crate::export;
use crate::export::drawing::Drawing;
use crate::export::film;
use crate::export::parts::Part;
use crate::keys::Action;
use crate::play::Mode;
use crate::shown::{Command, Workspace};

/// Which animation is made.
#[derive(Debug)]
pub struct Take {
    /// Of which run.
    pub run: Run,
    /// Size of the window in points.
    pub size: Size,
    /// Where it is written.
    pub path: PathBuf,
}

/// Makes the animation; how large the file is.
///
/// # Errors
/// If the run fails before the step, has none to show, or the file cannot be written.
pub fn record(take: Take, mut tell: impl FnMut(Told<'_>)) -> Result<Bytes, ShotError> {
    let Take { run, size, path } = take;
    let mut window = run.open(&path, (size, Scale(1.0)), None, &mut tell)?;
    window.frames(2);
    let app = window.app();
    let no_step = || ShotError::Run("no step has ended, so there is nothing to show".into());
    let film = app.film().ok_or_else(no_step)?;
    let (kind, size) = (app.look().theme.kind, (f32::from(size.width), f32::from(size.height)));
    tell(Told::Estimate(film.estimate(size)));
    // The window of somebody who watches.
    if window.app().play().mode() == Mode::Paused {
        window.ask(Command::Do(Action::PlayPause));
    }
    let paper = Paper::default();
    let mut draw = |at: &Nanos| {
        let wanted = Wanted { part: Part::Window(Workspace::Watch), kind, size, at: Some(*at) };
        window.app_mut().drawing(&paper, wanted)
    };
    let drawings: Vec<Drawing> = film.instants.iter().map(&mut draw).collect();
    let count = drawings.len();
    let bytes =
        film::develop(&drawings, film.centiseconds, |done| tell(Told::Painted(done, count)))?;
    export::write(&path, &bytes)?;
    tell(Told::Written(&path));
    Ok(Bytes(bytes.len() as u64))
}
