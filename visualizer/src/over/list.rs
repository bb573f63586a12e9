//! The list of scenarios: one for each idea, and a file.

use shardlab::trace::draw::scene::Area;

use crate::board::{Board, Control, Style};
use crate::keys::Action;
use crate::presets;
use crate::shown::{Command, Popup};

/// The list.
#[derive(Debug)]
pub(super) struct Scenarios {
    presets: Vec<presets::Preset>,
}

impl Default for Scenarios {
    fn default() -> Self {
        Self { presets: presets::all() }
    }
}

/// Height of an entry before scaling.
const ENTRY: f32 = 40.0;

impl Scenarios {
    /// Height of the whole list before scaling.
    pub(super) fn height() -> f32 {
        ENTRY * presets::all().len() as f32 + ENTRY + 24.0
    }

    pub(super) fn show(&mut self, board: &mut Board<'_>, area: Area) -> Vec<Command> {
        let look = board.look();
        let mut commands = Vec::new();
        let height = area.height / (self.presets.len() + 1) as f32;
        let mut rest = area;
        for preset in &self.presets {
            let (entry, below) = rest.cut_top(height);
            rest = below;
            let name = &preset.scenario.name;
            if entry_of(board, entry, name, preset.about) {
                commands.push(Command::Train(Box::new(preset.scenario.clone())));
                commands.push(Command::Close);
            }
        }
        let (half, save) = rest.cut_left(rest.width / 2.0);
        let inset = look.gap(1);
        let open = half.shrunk(inset, inset);
        let hint = "Reads a scenario file (TOML) and trains it.";
        if board.button(open, Control::text("open", "Open a file…", hint)) {
            commands.push(Command::Do(Action::Open));
        }
        let save = save.shrunk(inset, inset);
        let hint = "Writes this scenario to a file (TOML) for the command line and for others.";
        if board.button(save, Control::text("save", "Save to a file…", hint)) {
            commands.push(Command::Toggle(Popup::Save));
        }
        commands
    }
}

/// A name over what it means; whether it was pressed.
fn entry_of(board: &mut Board<'_>, area: Area, name: &str, about: &str) -> bool {
    let look = board.look();
    let id = format!("scenario {name}");
    let control = Control { text: "", ..Control::text(&id, "", name) };
    let pressed = board.flat_button(area, control);
    let (upper, lower) = area.shrunk(look.gap(2), look.gap(1) / 2.0).cut_top(area.height * 0.52);
    board.write(upper, name, Style::default());
    board.write(lower, about, Style::sized(look.small()).ink(look.theme.faint));
    pressed
}
