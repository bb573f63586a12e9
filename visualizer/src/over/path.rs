//! A path: to open a scenario file or to save one to.
//!
//! Asks the system's file dialogue as well, on a thread of its own; where there is none, the text
//! field does the same.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use eframe::egui;
use shardlab::config::Scenario;
use shardlab::trace::draw::scene::Area;

use crate::board::{Board, Control, Style};
use crate::shown::{Command, Popup};

/// Height before scaling.
pub(super) const HEIGHT: f32 = 168.0;

/// The field and what is done with the path.
#[derive(Debug)]
pub(super) struct PathField {
    text: String,
    purpose: Purpose,
    error: Option<String>,
    /// The system's dialogue, while it is open.
    dialogue: Option<Receiver<Option<PathBuf>>>,
}

#[derive(Debug)]
enum Purpose {
    Open,
    Save(Box<Scenario>),
}

impl PathField {
    pub(super) fn open() -> Self {
        Self { text: String::new(), purpose: Purpose::Open, error: None, dialogue: None }
    }

    pub(super) fn save(scenario: &Scenario) -> Self {
        let text = format!("{}.toml", crate::presets::slug(&scenario.name));
        Self {
            text,
            purpose: Purpose::Save(Box::new(scenario.clone())),
            error: None,
            dialogue: None,
        }
    }

    pub(super) fn popup(&self) -> Popup {
        match self.purpose {
            Purpose::Open => Popup::Open,
            Purpose::Save(_) => Popup::Save,
        }
    }

    pub(super) fn show(&mut self, board: &mut Board<'_>, area: Area) -> Vec<Command> {
        let look = board.look();
        let (title, what) = match self.purpose {
            Purpose::Open => ("Open a scenario", "Open"),
            Purpose::Save(_) => ("Save the scenario", "Save"),
        };
        let (heading, rest) = area.cut_top(look.gap(7));
        board.write(heading, title, Style::sized(look.heading()));
        let (field, rest) = rest.cut_top(look.gap(9));
        let changed = board.field(field, "path", &mut self.text, "Path of a TOML file");
        if changed {
            self.error = None;
        }
        let (line, rest) = rest.cut_top(look.gap(8));
        if let Some(error) = &self.error {
            board.write(line, error, Style::sized(look.small()).ink(look.theme.error));
        }
        let (buttons, _) = rest.cut_top(look.gap(8));
        let (go, left) = buttons.cut_right(look.gap(24));
        let enter = board.ctx().input(|input| input.key_pressed(egui::Key::Enter));
        let mut commands = Vec::new();
        if board.button(go, Control::text("path go", what, title)) || enter {
            commands = self.go(PathBuf::from(self.text.trim()).as_path());
        }
        let (system, _) = left.cut_right(look.gap(2)).1.cut_right(look.gap(30));
        let hint = "Asks the system for a file.";
        if self.dialogue.is_none() && board.button(system, Control::text("browse", "Browse…", hint))
        {
            self.browse(board.ctx());
        }
        commands.extend(self.answer());
        commands
    }

    fn browse(&mut self, ctx: &egui::Context) {
        let (answer, answers) = channel();
        let ctx = ctx.clone();
        let saves = match &self.purpose {
            Purpose::Open => None,
            Purpose::Save(_) => Some(self.text.clone()),
        };
        let ask = move || {
            let dialogue = rfd::FileDialog::new().add_filter("Scenario", &["toml"]);
            let path = match saves {
                None => dialogue.pick_file(),
                Some(name) => dialogue.set_file_name(name).save_file(),
            };
            // Nobody listens any more if the popup was closed meanwhile.
            answer.send(path).ok();
            ctx.request_repaint();
        };
        let thread = std::thread::Builder::new().name("file dialogue".into()).spawn(ask);
        match thread {
            Ok(_) => self.dialogue = Some(answers),
            Err(error) => self.error = Some(format!("No dialogue ({error}). Type the path")),
        }
    }

    /// What the system's dialogue has answered.
    fn answer(&mut self) -> Vec<Command> {
        let answer = match self.dialogue.as_ref().map(Receiver::try_recv) {
            None | Some(Err(TryRecvError::Empty)) => return Vec::new(),
            Some(Ok(answer)) => answer,
            Some(Err(TryRecvError::Disconnected)) => None,
        };
        self.dialogue = None;
        match answer {
            Some(path) => {
                self.text = path.display().to_string();
                self.go(&path)
            }
            None => {
                self.error = Some("No file was chosen. Type the path if no dialogue opens".into());
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
            Purpose::Open => match Scenario::read(path) {
                Ok(scenario) => vec![Command::Train(Box::new(scenario)), Command::Close],
                Err(error) => {
                    self.error = Some(error.to_string().replace('\n', "; "));
                    Vec::new()
                }
            },
            Purpose::Save(scenario) => {
                let written = scenario
                    .to_toml()
                    .map_err(|error| error.to_string())
                    .and_then(|text| std::fs::write(path, text).map_err(|error| error.to_string()));
                match written {
                    Ok(()) => {
                        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
                        vec![Command::Tell(format!("Saved to {}", path.display())), Command::Close]
                    }
                    Err(error) => {
                        self.error =
                            Some(format!("{}: {error}. Give another path", path.display()));
                        Vec::new()
                    }
                }
            }
        }
    }
}
