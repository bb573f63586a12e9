//! When scenario and view are written to where they are kept: at the end of the frame that changed
//! them, but not more often than a disk should be asked while something is dragged.

use std::path::PathBuf;
use std::time::Duration;

use eframe::egui;

use super::App;
use crate::saved::Saved;
use crate::shown::Notice;

/// Least time between two writes, in seconds: what is lost if the program is killed.
const WRITE_EVERY: f64 = 0.5;

/// What is kept, and where.
#[derive(Debug, Default)]
pub(super) struct Keeping {
    /// The file; `None`: nothing is kept.
    store: Option<PathBuf>,
    /// Whether anything was done since the last look.
    may_differ: bool,
    /// What was written last, and when.
    last: Option<(Saved, f64)>,
}

impl Keeping {
    /// Keeps things in this file from now on.
    pub(super) fn at(store: Option<PathBuf>) -> Self {
        Self { store, ..Self::default() }
    }
}

impl App {
    /// Something was done that may have changed what is kept.
    pub(super) fn keep(&mut self) {
        self.keeping.may_differ = true;
    }

    /// Writes what has changed, or asks for the frame in which that is due.
    pub(super) fn keep_soon(&mut self, ctx: &egui::Context) {
        if self.keeping.store.is_none() || !self.keeping.may_differ {
            return;
        }
        let wait = self.keeping.last.as_ref().map_or(0.0, |(_, at)| at + WRITE_EVERY - self.now);
        if wait > 0.0 {
            ctx.request_repaint_after(Duration::from_secs_f64(wait));
        } else {
            self.keep_now();
        }
    }

    /// Writes what has changed.
    pub(super) fn keep_now(&mut self) {
        let Some(path) = &self.keeping.store else { return };
        self.keeping.may_differ = false;
        let saved = self.saved();
        if self.keeping.last.as_ref().is_some_and(|(last, _)| *last == saved) {
            return;
        }
        if let Err(error) = saved.write(path) {
            let why = format!("{}: not saved: {error}", path.display());
            self.notice = Some(Notice::failure(why));
        }
        // What could not be written is tried again with the next change, not in each frame.
        self.keeping.last = Some((saved, self.now));
    }
}
