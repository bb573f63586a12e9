//! The export: what, as which kind of file, in which colours, and where to.

use std::path::{Path, PathBuf};

use eframe::egui;
use shardlab::trace::Span;
use shardlab::trace::draw::scene::Area;
use shardlab::trace::export::kineto::Size;

use super::dialogue::{Answer, Asker, Dialogue, NO_PATH, Question};
use crate::board::{Board, Control, Style};
use crate::export::film::Estimate;
use crate::export::order::{Colours, Existing, Form, Order};
use crate::export::parts::{Part, file_name};
use crate::export::try_out;
use crate::shown::{Command, Workspace};

/// Height before scaling.
pub(super) const HEIGHT: f32 = 368.0;
/// Height of a button before scaling.
const BUTTON: f32 = 30.0;

/// Endings by which people know a kind of file.
const ENDINGS: [&str; 6] = ["png", "svg", "gif", "csv", "jsonl", "json"];

/// What there is to export, as it was when the dialogue was opened.
#[derive(Clone, Debug)]
pub struct Offer {
    /// The name of the scenario.
    pub scenario: String,
    /// The step on the screen, 0-based; `None` before the first.
    pub step: Option<u64>,
    /// The workspace that is open.
    pub workspace: Workspace,
    /// Width and height of the window in points.
    pub size: (f32, f32),
    /// What an animation will be.
    pub film: Option<Estimate>,
    /// The loop, the marked time or the chosen block, if there is one.
    pub stretch: Option<Span>,
    /// How large a trace of the step will be.
    pub trace: Option<Size>,
    /// How large a trace of that part will be.
    pub part: Option<Size>,
}

/// The dialogue.
#[derive(Debug)]
pub(super) struct Export {
    offer: Offer,
    parts: Vec<(Part, String)>,
    part: usize,
    form: Form,
    colours: Colours,
    /// Whether a table or a trace holds the stretch alone.
    in_part: bool,
    path: String,
    error: Option<String>,
    /// The path that was refused because it is there: asked for once more, it is replaced.
    refused: Option<PathBuf>,
    /// Whether the size was objected to: asked for once more, it is written all the same.
    warned: bool,
    dialogue: Dialogue,
}

impl Export {
    pub(super) fn new(offer: Offer, asker: Asker) -> Self {
        let (form, colours) = (Form::Png(2), Colours::AsShown);
        let parts = Part::all();
        let open = Part::Window(offer.workspace);
        let part = parts.iter().position(|(part, _)| *part == open).unwrap_or_default();
        let mut export = Self {
            offer,
            parts,
            part,
            form,
            colours,
            in_part: false,
            path: String::new(),
            error: None,
            refused: None,
            warned: false,
            dialogue: Dialogue::new(asker),
        };
        export.path = export.suggested();
        export
    }

    /// The usual name of the file.
    fn suggested(&self) -> String {
        let part = if self.form.is_picture() { self.parts[self.part].1.as_str() } else { "step" };
        let step = self.offer.step.unwrap_or_default();
        file_name(&self.offer.scenario, part, step, self.form.ending())
    }

    /// Changes something; a path that was not typed by hand follows.
    fn change(&mut self, change: impl FnOnce(&mut Self)) {
        let suggested = self.suggested();
        change(self);
        if let Some(folder) = self.path.strip_suffix(&suggested) {
            self.path = format!("{folder}{}", self.suggested());
        }
        (self.error, self.refused, self.warned) = (None, None, false);
    }

    pub(super) fn show(&mut self, board: &mut Board<'_>, area: Area) -> Vec<Command> {
        let look = board.look();
        // In a low window all rows come nearer, so that none is below its edge.
        let tight = (area.height / (HEIGHT * look.scale)).clamp(0.6, 1.0);
        let gap = |count: u8| look.gap(count) * tight;
        let (heading, rest) = area.cut_top(gap(8));
        board.write(heading, "Export", Style::sized(look.heading()));
        let rest = self.choices(board, rest, tight);
        // Enter in the field exports; elsewhere it presses the button that has the focus.
        let typing = board.ctx().text_edit_focused();
        let enter = typing && board.ctx().input(|input| input.key_pressed(egui::Key::Enter));
        let (field, rest) = rest.cut_top(gap(9));
        let before = self.path.clone();
        board.field(field, "export path", &mut self.path, "Path of the file");
        if self.path != before {
            (self.error, self.refused, self.warned) = (None, None, false);
        }
        let (line, rest) = rest.cut_top(gap(8));
        let (text, ink) = match &self.error {
            Some(error) => (error.clone(), look.theme.error),
            None => (self.what_it_will_be(), look.theme.faint),
        };
        board.read(line, "export says", &text);
        board.write(line, &text, Style::sized(look.small()).ink(ink));
        let (buttons, _) = rest.cut_top(gap(8));
        let (go, left) = buttons.cut_right(look.gap(24));
        let what = match (&self.refused, self.warned) {
            (Some(_), _) => "Replace",
            (None, true) => "Export anyway",
            (None, false) => "Export",
        };
        let mut commands = Vec::new();
        if board.button(go, Control::text("export go", what, "Writes the file.")) || enter {
            commands = self.go();
        }
        let (browse, _) = left.cut_right(look.gap(2)).1.cut_right(look.gap(30));
        let hint = "Asks the system for a place.";
        if !self.dialogue.is_open()
            && board.button(browse, Control::text("export browse", "Browse…", hint))
        {
            self.browse(board.ctx());
        }
        match self.dialogue.answer() {
            Answer::None => {}
            // The system has asked already whether a file is to be replaced.
            Answer::Path(path) => {
                self.path = path.display().to_string();
                self.refused = Some(path);
                commands = self.go();
            }
            Answer::NoPath => self.error = Some(NO_PATH.into()),
        }
        commands
    }

    /// The three rows of buttons; what is below them.
    fn choices(&mut self, board: &mut Board<'_>, area: Area, tight: f32) -> Area {
        let parts: Vec<String> = self.parts.iter().map(|(_, name)| capital(name)).collect();
        let named: Vec<(&str, &str, bool)> = parts
            .iter()
            .enumerate()
            .map(|(index, name)| (name.as_str(), "Shows this part.", index == self.part))
            .collect();
        let is_picture = self.form.is_picture();
        let (chosen, rest) = row(board, (area, tight), "of", if is_picture { &named } else { &[] });
        if let Some(part) = chosen {
            self.change(|export| export.part = part);
        }
        let forms = Form::ALL.map(|form| (form.name(), form.about(), form == self.form));
        let (chosen, rest) = row(board, (rest, tight), "as", &forms);
        if let Some(form) = chosen {
            self.change(|export| export.form = Form::ALL[form]);
        }
        // Pictures have colours where tables have a stretch of time.
        if !is_picture {
            return self.stretches(board, (rest, tight));
        }
        let hint = "Colours of the picture.";
        let colours = Colours::ALL.map(|colours| (colours.name(), hint, colours == self.colours));
        let (chosen, rest) = row(board, (rest, tight), "in", &colours);
        if let Some(colours) = chosen {
            self.change(|export| export.colours = Colours::ALL[colours]);
        }
        rest
    }

    /// Of which part of the step a table or a trace is; what is below.
    fn stretches(&mut self, board: &mut Board<'_>, area: (Area, f32)) -> Area {
        let whole = ("Whole step", "All of the step.", !self.in_part);
        let hint = "The loop, the marked time or the chosen block alone.";
        let part = self.offer.stretch.map(|_| ("Marked time", hint, self.in_part));
        let choices: Vec<_> = [whole].into_iter().chain(part).collect();
        let (chosen, rest) = row(board, area, "of", &choices);
        if let Some(chosen) = chosen {
            self.change(|export| export.in_part = chosen == 1);
        }
        rest
    }

    /// How large a trace will be, all ranks together.
    fn size(&self) -> Option<Size> {
        if self.in_part { self.offer.part } else { self.offer.trace }
    }

    /// Why viewers may fail on what is wished, and what to do instead.
    fn objection(&self) -> Option<String> {
        let size = self.size().filter(|_| self.form == Form::Trace)?;
        let remedy = match self.in_part {
            true => "Mark less time, or give each rank a file",
            false => "Mark a time (Shift and drag), or give each rank a file",
        };
        size.is_too_large().then(|| {
            format!("{size}: trace viewers may stay blank. {remedy}. Export it all the same?")
        })
    }

    fn what_it_will_be(&self) -> String {
        let (width, height) = self.offer.size;
        match (self.form, &self.offer.film) {
            (Form::Png(scale), _) if matches!(self.parts[self.part].0, Part::Window(_)) => {
                let [width, height] = [width, height].map(|side| side * f32::from(scale));
                format!("{} {width:.0} × {height:.0}.", self.form.about())
            }
            (Form::Gif, Some(film)) => format!("{film}."),
            (form, _) if form.is_trace() && self.size().is_some() => {
                let size = self.size().unwrap_or_default();
                format!("{} About {size}.", form.about())
            }
            _ => self.form.about().into(),
        }
    }

    /// Why nothing can be written to this place.
    fn refusal(&self, path: &Path) -> Option<String> {
        if path.is_dir() && self.form != Form::TraceOfRanks {
            return Some(format!("{} is a folder. Add the name of a file", path.display()));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            return Some(format!(
                "There is no folder {}. Make it, or give another",
                folder.display()
            ));
        }
        // `.json` is all that is asked of a trace.
        let own = self.form.ending().rsplit('.').next().unwrap_or_default();
        let typed = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
        let is_file = self.form != Form::TraceOfRanks;
        let is_other =
            |typed: &String| is_file && ENDINGS.contains(&typed.as_str()) && typed != own;
        if let Some(typed) = typed.filter(is_other) {
            let name = self.form.name();
            return Some(format!(
                "A {name} does not end in .{typed}. Choose above, or end it in .{own}"
            ));
        }
        // A folder that is not there is not made by looking.
        let place = if path.is_dir() { path.join("rank0") } else { path.into() };
        try_out(&place).err().map(|why| why.to_string())
    }

    fn go(&mut self) -> Vec<Command> {
        let path = PathBuf::from(self.path.trim());
        if path.as_os_str().is_empty() {
            self.error = Some("Type the path of a file".into());
            return Vec::new();
        }
        if self.offer.step.is_none() && self.form != Form::Svg && !matches!(self.form, Form::Png(_))
        {
            self.error = Some("No step has ended yet. Close this and wait for the first".into());
            return Vec::new();
        }
        if let Some(why) = self.refusal(&path) {
            self.error = Some(why);
            return Vec::new();
        }
        let replaces = self.refused.as_deref() == Some(path.as_path());
        if !self.warned
            && let Some(objection) = self.objection()
        {
            (self.error, self.warned) = (Some(objection), true);
            return Vec::new();
        }
        if path.exists() && !replaces {
            self.error = Some(format!("{} is there already. Replace it?", shown(&path)));
            self.refused = Some(path);
            return Vec::new();
        }
        let existing = if replaces { Existing::Replaced } else { Existing::Kept };
        let (part, form, colours) = (self.parts[self.part].0, self.form, self.colours);
        let stretch = self.offer.stretch.filter(|_| self.in_part);
        let order = Order { part, form, colours, stretch, path, existing };
        vec![Command::Close, Command::Export(Box::new(order))]
    }

    fn browse(&mut self, ctx: &egui::Context) {
        let name = shown(Path::new(&self.path));
        let question = match self.form == Form::TraceOfRanks {
            true => Question::Folder,
            false => Question::Save(name, None),
        };
        if let Err(error) = self.dialogue.open(ctx, question) {
            self.error = Some(format!("No dialogue ({error}). Type the path"));
        }
    }
}

/// The last part of a path.
fn shown(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn capital(name: &str) -> String {
    let mut letters = name.chars();
    let first = letters.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(letters).collect()
}

/// A word and its choices, in as many lines as they need; which one was pressed, and what is below.
fn row(
    board: &mut Board<'_>,
    (area, tight): (Area, f32),
    word: &str,
    choices: &[(&str, &str, bool)],
) -> (Option<usize>, Area) {
    let look = board.look();
    let height = look.scale * BUTTON * tight;
    let line = height + look.gap(1);
    let (words, buttons) = area.cut_left(look.gap(10));
    board.write(words.cut_top(line).0, word, Style::default().ink(look.theme.faint));
    let (mut left, mut top) = (buttons.left, buttons.top);
    let mut pressed = None;
    for (index, (name, hint, chosen)) in choices.iter().enumerate() {
        let width = board.button_width(name);
        if left + width > buttons.right() && left > buttons.left {
            (left, top) = (buttons.left, top + line);
        }
        let place = Area::new(left, top, width, height);
        let id = format!("export {word} {name}");
        if board.button(place, Control::text(&id, name, hint).chosen(*chosen)) {
            pressed = Some(index);
        }
        left += width + look.gap(1);
    }
    let below = top + line + look.gap(1) - area.top;
    (pressed, area.cut_top(below).1)
}

#[cfg(test)]
mod tests {
    use shardlab::units::{Bytes, Nanos};

    use super::*;

    fn dialogue() -> Export {
        let scenario = "Shakespeare, small".to_owned();
        let (workspace, size) = (Workspace::Watch, (1280.0, 800.0));
        let (film, stretch, trace, part) = (None, None, None, None);
        let step = Some(23);
        let offer = Offer { scenario, step, workspace, size, film, stretch, trace, part };
        Export::new(offer, |_| None)
    }

    #[test]
    fn the_name_follows_what_is_chosen_but_not_what_was_typed() {
        let mut export = dialogue();
        assert_eq!(export.path, "shakespeare-small_watch_24.png");
        let timeline = export.parts.iter().position(|(part, _)| *part == Part::Timeline);
        export.change(|export| export.part = timeline.unwrap());
        assert_eq!(export.path, "shakespeare-small_timeline_24.png");
        export.path = format!("/somewhere/{}", export.path);
        export.change(|export| export.form = Form::Csv);
        assert_eq!(export.path, "/somewhere/shakespeare-small_step_24.csv");
        export.path = "mine.csv".into();
        export.change(|export| export.form = Form::Svg);
        assert_eq!(export.path, "mine.csv");
    }

    #[test]
    fn a_file_that_is_there_is_replaced_only_when_asked_for_once_more() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.png");
        std::fs::write(&path, "old").unwrap();
        let mut export = dialogue();
        export.path = path.display().to_string();
        assert!(export.go().is_empty());
        assert!(export.error.as_ref().unwrap().contains("a.png is there already"));
        let commands = export.go();
        assert!(matches!(
            &commands[..],
            [Command::Close, Command::Export(order)] if order.existing == Existing::Replaced
        ));
        export.path = folder.path().join("b.png").display().to_string();
        let commands = export.go();
        assert!(matches!(
            &commands[..],
            [Command::Close, Command::Export(order)] if order.existing == Existing::Kept
        ));
    }

    /// Kineto 805: a viewer that is given too much shows nothing and says nothing.
    #[test]
    fn what_viewers_may_fail_on_is_told_before_it_is_written_and_a_part_of_it_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let mut export = dialogue();
        export.offer.trace = Some(Size { events: 2_000_000, bytes: Bytes(900_000_000) });
        export.offer.part = Some(Size { events: 2_000, bytes: Bytes(900_000) });
        export.offer.stretch = Some(Span { start: Nanos(1), end: Nanos(2) });
        export.change(|export| export.form = Form::Trace);
        let path = folder.path().join("step.json");
        std::fs::write(&path, "old").unwrap();
        export.path = path.display().to_string();
        assert!(export.what_it_will_be().contains("2,000,000 events, 858.3 MiB"));
        // Two questions, each of its own.
        for question in ["stay blank", "there already"] {
            assert!(export.go().is_empty());
            assert!(export.error.as_ref().unwrap().contains(question), "{:?}", export.error);
        }
        let exported = |commands: &[Command]| match commands {
            [Command::Close, Command::Export(order)] => Some((order.stretch, order.existing)),
            _ => None,
        };
        assert_eq!(exported(&export.go()), Some((None, Existing::Replaced)));
        std::fs::remove_file(&path).unwrap();
        export.change(|export| export.in_part = true);
        let stretch = export.offer.stretch;
        assert_eq!(exported(&export.go()), Some((stretch, Existing::Kept)));
        // A file for each rank is small enough.
        export.change(|export| (export.in_part, export.form) = (false, Form::TraceOfRanks));
        assert_eq!(exported(&export.go()), Some((None, Existing::Kept)));
    }

    #[test]
    fn a_place_that_cannot_be_written_is_told_while_it_can_be_changed() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        let says = |form: Form, name: &str| {
            let mut export = dialogue();
            export.change(|export| export.form = form);
            export.path = folder.path().join(name).display().to_string();
            match export.go().is_empty() {
                true => export.error.unwrap(),
                false => String::new(),
            }
        };
        for (form, name, what) in [
            (Form::Png(1), "", "is a folder"),
            (Form::Png(1), "none/a.png", "There is no folder"),
            (Form::Png(1), "a.svg", "A PNG does not end in .svg"),
            (Form::Csv, "a.jsonl", "end it in .csv"),
            (Form::Trace, "file/a.json", "There is no folder"),
        ] {
            let said = says(form, name);
            assert!(said.contains(what), "{name}: {said}");
        }
        for (form, name) in [
            (Form::Png(4), "a.png"),
            (Form::Trace, "a.json"),
            (Form::Csv, "a.table"),
            (Form::Svg, "a"),
        ] {
            assert_eq!(says(form, name), "", "{name}");
        }
        // Nothing was left behind by looking.
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn tables_wait_for_the_first_step() {
        let mut export = dialogue();
        export.offer.step = None;
        export.change(|export| export.form = Form::Csv);
        assert!(export.go().is_empty());
        assert!(export.error.unwrap().contains("No step has ended"));
    }
}
