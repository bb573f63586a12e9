//! A path: of a scenario or a schedule to open, or of a scenario to save.
//!
//! Asks the system's file dialogue as well, on a thread of its own; where there is none, the text
//! field does the same.

use std::path::{Path, PathBuf};

use eframe::egui;
use shardlab::trace::draw::scene::Area;

use super::dialogue::{Answer, Asker, Dialogue, NO_PATH, Question};
use crate::board::{Board, Control, Style};
use crate::saved::Saved;
use crate::shown::{Command, Popup};

/// Height before scaling.
pub(super) const HEIGHT: f32 = 168.0;

/// The field and what is done with the path.
#[derive(Debug)]
pub(super) struct PathField {
    text: String,
    purpose: Purpose,
    error: Option<String>,
    /// The path that was refused because it is there: asked for once more, it is replaced.
    refused: Option<PathBuf>,
    dialogue: Dialogue,
}

#[derive(Debug)]
enum Purpose {
    Open,
    Save(Box<Saved>),
    Schedule,
}

impl PathField {
    pub(super) fn open(asker: Asker) -> Self {
        Self::of(Purpose::Open, String::new(), asker)
    }

    pub(super) fn schedule(asker: Asker) -> Self {
        Self::of(Purpose::Schedule, String::new(), asker)
    }

    pub(super) fn save(saved: Saved, asker: Asker) -> Self {
        let text = format!("{}.toml", crate::presets::slug(&saved.scenario.name));
        Self::of(Purpose::Save(Box::new(saved)), text, asker)
    }

    fn of(purpose: Purpose, text: String, asker: Asker) -> Self {
        let dialogue = Dialogue::new(asker);
        Self { text, purpose, error: None, refused: None, dialogue }
    }

    pub(super) fn popup(&self) -> Popup {
        match self.purpose {
            Purpose::Open => Popup::Open,
            Purpose::Save(_) => Popup::Save,
            Purpose::Schedule => Popup::OpenSchedule,
        }
    }

    pub(super) fn show(&mut self, board: &mut Board<'_>, area: Area) -> Vec<Command> {
        let look = board.look();
        let (title, what) = match self.purpose {
            Purpose::Open => ("Open a scenario", "Open"),
            Purpose::Schedule => ("Open a schedule", "Open"),
            Purpose::Save(_) if self.refused.is_some() => ("Save the scenario", "Replace"),
            Purpose::Save(_) => ("Save the scenario", "Save"),
        };
        let (heading, rest) = area.cut_top(look.gap(7));
        board.write(heading, title, Style::sized(look.heading()));
        let (field, rest) = rest.cut_top(look.gap(9));
        let empty = match self.purpose {
            Purpose::Open | Purpose::Save(_) => "Path of a TOML file",
            Purpose::Schedule => "Path of a CSV file with cells like 0F0, one row a position",
        };
        // Enter in the field is its button; elsewhere it presses what has the focus.
        let typing = board.ctx().text_edit_focused();
        let enter = typing && board.ctx().input(|input| input.key_pressed(egui::Key::Enter));
        let changed = board.field(field, "path", &mut self.text, empty);
        if changed {
            (self.error, self.refused) = (None, None);
        }
        let (line, rest) = rest.cut_top(look.gap(8));
        if let Some(error) = &self.error {
            board.write(line, error, Style::sized(look.small()).ink(look.theme.error));
        }
        let (buttons, _) = rest.cut_top(look.gap(8));
        let (go, left) = buttons.cut_right(look.gap(24));
        let mut commands = Vec::new();
        if board.button(go, Control::text("path go", what, title)) || enter {
            commands = self.go(PathBuf::from(self.text.trim()).as_path());
        }
        let (system, _) = left.cut_right(look.gap(2)).1.cut_right(look.gap(30));
        let hint = "Asks the system for a file.";
        if !self.dialogue.is_open()
            && board.button(system, Control::text("browse", "Browse…", hint))
        {
            self.browse(board.ctx());
        }
        commands.extend(self.answer());
        commands
    }

    fn browse(&mut self, ctx: &egui::Context) {
        let question = match &self.purpose {
            Purpose::Open => Question::Open("Scenario", "toml"),
            Purpose::Schedule => Question::Open("Schedule", "csv"),
            Purpose::Save(_) => Question::Save(self.text.clone(), Some(("Scenario", "toml"))),
        };
        if let Err(error) = self.dialogue.open(ctx, question) {
            self.error = Some(format!("No dialogue ({error}). Type the path"));
        }
    }

    /// What the system's dialogue has answered.
    fn answer(&mut self) -> Vec<Command> {
        match self.dialogue.answer() {
            Answer::None => Vec::new(),
            Answer::Path(path) => {
                // The system has asked already whether a file is to be replaced.
                self.text = path.display().to_string();
                self.refused = Some(path.clone());
                self.go(&path)
            }
            Answer::NoPath => {
                self.error = Some(NO_PATH.into());
                Vec::new()
            }
        }
    }

    fn go(&mut self, path: &Path) -> Vec<Command> {
        if path.as_os_str().is_empty() {
            self.error = Some("Type the path of a file".into());
            return Vec::new();
        }
        match &self.purpose {
            Purpose::Open => match Saved::read(path) {
                Ok((saved, left_out)) => {
                    vec![Command::Close, Command::Open(Box::new(saved), left_out)]
                }
                Err(error) => {
                    self.error = Some(error.replace('\n', "; "));
                    Vec::new()
                }
            },
            Purpose::Schedule => vec![Command::OpenSchedule(path.to_owned())],
            Purpose::Save(_) if path.exists() && self.refused.as_deref() != Some(path) => {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                self.error = Some(format!("{name} is there already. Replace it?"));
                self.refused = Some(path.to_owned());
                Vec::new()
            }
            Purpose::Save(saved) => match saved.write(path) {
                Ok(()) => {
                    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
                    vec![Command::Tell(format!("Saved to {}", path.display())), Command::Close]
                }
                Err(error) => {
                    self.error = Some(error);
                    Vec::new()
                }
            },
        }
    }
}
