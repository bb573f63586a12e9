//! The file dialogue of the system, on a thread of its own: the window never waits for it.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use eframe::egui;

/// A dialogue that may be open.
#[derive(Debug, Default)]
pub(super) struct Dialogue(Option<Receiver<Option<PathBuf>>>);

/// What has come of a dialogue.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Nothing yet, or none is open.
    None,
    /// A path.
    Path(PathBuf),
    /// It was closed, or there is none here: the system does not say which.
    NoPath,
}

impl Dialogue {
    /// Whether it is open.
    pub(super) fn is_open(&self) -> bool {
        self.0.is_some()
    }

    /// Opens it.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub(super) fn open(
        &mut self,
        ctx: &egui::Context,
        ask: impl FnOnce() -> Option<PathBuf> + Send + 'static,
    ) -> io::Result<()> {
        let (answer, answers) = channel();
        let ctx = ctx.clone();
        let work = move || {
            // Nobody listens any more if the popup was closed meanwhile.
            answer.send(ask()).ok();
            ctx.request_repaint();
        };
        std::thread::Builder::new().name("file dialogue".into()).spawn(work)?;
        self.0 = Some(answers);
        Ok(())
    }

    /// What has come of it.
    pub(super) fn answer(&mut self) -> Answer {
        let answer = match self.0.as_ref().map(Receiver::try_recv) {
            None | Some(Err(TryRecvError::Empty)) => return Answer::None,
            Some(Ok(answer)) => answer,
            Some(Err(TryRecvError::Disconnected)) => None,
        };
        self.0 = None;
        answer.map_or(Answer::NoPath, Answer::Path)
    }
}

/// What is said where no path came back.
pub(super) const NO_PATH: &str = "No file was chosen. Type the path if no dialogue opens";

#[cfg(test)]
mod tests {
    use super::*;

    fn waited(dialogue: &mut Dialogue) -> Answer {
        loop {
            match dialogue.answer() {
                Answer::None => std::thread::yield_now(),
                answer => return answer,
            }
        }
    }

    #[test]
    fn a_dialogue_answers_once_and_a_system_without_one_is_no_error() {
        let ctx = egui::Context::default();
        let mut dialogue = Dialogue::default();
        assert_eq!(dialogue.answer(), Answer::None);
        dialogue.open(&ctx, || Some("a.toml".into())).unwrap();
        assert!(dialogue.is_open());
        assert_eq!(waited(&mut dialogue), Answer::Path("a.toml".into()));
        assert!(!dialogue.is_open());
        assert_eq!(dialogue.answer(), Answer::None);
        dialogue.open(&ctx, || None).unwrap();
        assert_eq!(waited(&mut dialogue), Answer::NoPath);
    }
}
