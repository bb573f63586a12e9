//! The palette: every action by name, found by a few letters.

use eframe::egui;
use egui::Key;
use shardlab::trace::draw::scene::Area;

use super::Around;
use crate::board::{Board, Control, Style};
use crate::keys::{Action, BINDINGS};
use crate::presets;
use crate::shown::Command;

/// Height before scaling.
pub(super) const HEIGHT: f32 = 380.0;
const ROW: f32 = 30.0;

/// The palette.
#[derive(Debug, Default)]
pub(super) struct Palette {
    query: String,
    chosen: usize,
}

/// Something that can be found.
struct Entry {
    name: String,
    key: String,
    command: Command,
}

impl Palette {
    pub(super) fn show(
        &mut self,
        board: &mut Board<'_>,
        area: Area,
        around: &Around<'_>,
    ) -> Vec<Command> {
        let look = board.look();
        let (field, list) = area.cut_top(look.gap(9));
        if board.field(field, "palette", &mut self.query, "Find an action…") {
            self.chosen = 0;
        }
        let mut found: Vec<(u8, Entry)> = entries(around)
            .into_iter()
            .filter_map(|entry| Some((rank(&entry.name, &self.query)?, entry)))
            .collect();
        // The best first; of equally good ones the order of the help.
        found.sort_by_key(|(rank, _)| *rank);
        let found: Vec<Entry> = found.into_iter().map(|(_, entry)| entry).collect();
        let (up, down, enter) = board.ctx().input(|input| {
            let pressed = |key| input.key_pressed(key);
            (pressed(Key::ArrowUp), pressed(Key::ArrowDown), pressed(Key::Enter))
        });
        if down {
            self.chosen += 1;
        }
        if up {
            self.chosen = self.chosen.saturating_sub(1);
        }
        self.chosen = self.chosen.min(found.len().saturating_sub(1));
        let list = list.cut_top(look.gap(2)).1;
        let row = ROW * look.scale;
        let rows = (list.height / row).floor().max(1.0) as usize;
        let first = (self.chosen + 1).saturating_sub(rows);
        let mut rest = list;
        let mut run =
            if enter { found.get(self.chosen).map(|entry| entry.command.clone()) } else { None };
        for (index, entry) in found.iter().enumerate().skip(first).take(rows) {
            let (line, below) = rest.cut_top(row);
            rest = below;
            let id = format!("palette {}", entry.name);
            let control = Control { text: "", ..Control::text(&id, "", &entry.name) };
            if board.flat_button(line, control.chosen(index == self.chosen)) {
                run = Some(entry.command.clone());
            }
            let inner = line.shrunk(look.gap(2), 0.0);
            let (name, key) = inner.cut_left(inner.width * 0.75);
            board.write(name, &entry.name, Style::default());
            board.write(key, &entry.key, Style::default().right());
        }
        if found.is_empty() {
            let (line, _) = list.cut_top(row);
            let nothing = format!("No action is called {:?}", self.query);
            board.write(
                line.shrunk(look.gap(2), 0.0),
                &nothing,
                Style::default().ink(look.theme.faint),
            );
        }
        run.map(|command| vec![Command::Close, command]).unwrap_or_default()
    }
}

fn entries(around: &Around<'_>) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut tabs = around.tabs.iter().flatten();
    for binding in BINDINGS {
        let name = match binding.action {
            // Those are what the palette is.
            Action::Palette | Action::Escape => continue,
            Action::Tab(_) => match tabs.next() {
                Some(tab) => format!("Open {tab}"),
                None => continue,
            },
            _ => binding.name.to_owned(),
        };
        let key = around.keys.chord(binding);
        entries.push(Entry { name, key, command: Command::Do(binding.action) });
    }
    entries.extend(around.more.iter().map(|offer| Entry {
        name: offer.name.clone(),
        key: String::new(),
        command: offer.command.clone(),
    }));
    entries.extend(presets::all().into_iter().map(|preset| Entry {
        name: format!("Train: {}", preset.scenario.name),
        key: String::new(),
        command: Command::Train(Box::new(preset.scenario)),
    }));
    entries
}

/// How well `name` fits what was typed, 0 the best: a word of it begins so, it stands in it, its
/// letters stand in it in this order; blind to case.
fn rank(name: &str, query: &str) -> Option<u8> {
    let (name, query) = (name.to_lowercase(), query.trim().to_lowercase());
    if let Some(at) = name.find(&query) {
        let begins = |at: usize| at == 0 || !name[..at].ends_with(char::is_alphanumeric);
        let any = name.match_indices(&query).any(|(at, _)| begins(at));
        return Some(u8::from(!(begins(at) || any)));
    }
    let mut letters = name.chars();
    let mut wanted = query.chars().filter(|c| !c.is_whitespace());
    wanted.all(|wanted| letters.any(|letter| letter == wanted)).then_some(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings_of_words_come_first_and_a_few_letters_in_order_are_enough() {
        assert_eq!(rank("Next training step", "TRAIN"), Some(0));
        assert_eq!(rank("Next training step", ""), Some(0));
        assert_eq!(rank("Light or dark", "ark"), Some(1));
        assert_eq!(rank("Next training step", "nts"), Some(2));
        assert_eq!(rank("Next training step", "stn"), None);
    }
}
