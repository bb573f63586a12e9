//! The file dialogue of the system, on a thread of its own: the window never waits for it.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use eframe::egui;

/// What the system is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// A file to read, of a kind of files with this ending.
    Open(&'static str, &'static str),
    /// A place for a file of this name; where files are of one kind, that and its ending.
    Save(String, Option<(&'static str, &'static str)>),
    /// A folder.
    Folder,
}

/// Who answers: `None` where it was closed, or where there is no dialogue.
pub type Asker = fn(Question) -> Option<PathBuf>;

/// The dialogue of the system.
pub fn system(question: Question) -> Option<PathBuf> {
    let dialogue = rfd::FileDialog::new();
    match question {
        Question::Open(kind, ending) => dialogue.add_filter(kind, &[ending]).pick_file(),
        Question::Save(name, Some((kind, ending))) => {
            dialogue.add_filter(kind, &[ending]).set_file_name(name).save_file()
        }
        Question::Save(name, None) => dialogue.set_file_name(name).save_file(),
        Question::Folder => dialogue.pick_folder(),
    }
}

/// A dialogue that may be open.
#[derive(Debug)]
pub(super) struct Dialogue {
    asker: Asker,
    answers: Option<Receiver<Option<PathBuf>>>,
}

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
    pub(super) fn new(asker: Asker) -> Self {
        Self { asker, answers: None }
    }

    /// Whether it is open.
    pub(super) fn is_open(&self) -> bool {
        self.answers.is_some()
    }

    /// Opens it.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub(super) fn open(&mut self, ctx: &egui::Context, question: Question) -> io::Result<()> {
        let (answer, answers) = channel();
        let (ctx, ask) = (ctx.clone(), self.asker);
        let work = move || {
            // Nobody listens any more if the popup was closed meanwhile.
            answer.send(ask(question)).ok();
            ctx.request_repaint();
        };
        std::thread::Builder::new().name("file dialogue".into()).spawn(work)?;
        self.answers = Some(answers);
        Ok(())
    }

    /// What has come of it.
    pub(super) fn answer(&mut self) -> Answer {
        let answer = match self.answers.as_ref().map(Receiver::try_recv) {
            None | Some(Err(TryRecvError::Empty)) => return Answer::None,
            Some(Ok(answer)) => answer,
            Some(Err(TryRecvError::Disconnected)) => None,
        };
        self.answers = None;
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
        let mut dialogue = Dialogue::new(|question| match question {
            Question::Folder => None,
            _ => Some("a.toml".into()),
        });
        assert_eq!(dialogue.answer(), Answer::None);
        dialogue.open(&ctx, Question::Open("Scenario", "toml")).unwrap();
        assert!(dialogue.is_open());
        assert_eq!(waited(&mut dialogue), Answer::Path("a.toml".into()));
        assert!(!dialogue.is_open());
        assert_eq!(dialogue.answer(), Answer::None);
        dialogue.open(&ctx, Question::Folder).unwrap();
        assert_eq!(waited(&mut dialogue), Answer::NoPath);
    }
}
