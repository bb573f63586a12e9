//! Every action of the window and the key that does it.
//!
//! Letters are places on the keyboard, not characters, so that they stay where they are on every
//! layout; the help shows the letter that stands there. While a text field has the focus, plain
//! keys belong to it. Keys are taken out of the input before egui sees them, so that an arrow
//! steps through time instead of moving the focus.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use eframe::egui;
use egui::{Event, Key, Modifiers};

use crate::app::Half;
use crate::play::Direction::{self, Back, Forward};
use crate::shown::Workspace;

/// How far one step goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grain {
    /// To the next edge of a block.
    Block,
    /// To the next microbatch.
    Microbatch,
    /// To the next training step.
    Step,
    /// To the next instruction.
    Instruction,
}

/// Everything that can be done with a key or from the palette.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Plays or pauses.
    PlayPause,
    /// Follows training.
    Live,
    /// Steps.
    Step(Grain, Direction),
    /// To the start of the shown step, or of the one before.
    First,
    /// To the newest step.
    Last,
    /// Changes the speed.
    Speed(Direction),
    /// Gives the speed back to the slow motion.
    SlowMotion,
    /// Repeats the selection.
    Loop,
    /// Trains on while paused, or not.
    KeepTraining,
    /// Trains as many steps again.
    TrainMore,
    /// Trains from the beginning.
    Restart,
    /// Zooms in (forward) or out.
    Zoom(Direction),
    /// Moves the view.
    Pan(Direction),
    /// Shows the whole step.
    Fit,
    /// Shows the selection as wide as the view.
    FitSelection,
    /// Marks time: from the playhead, and with the next press up to it.
    Mark,
    /// Makes the timeline higher (forward), or the tabs below it.
    Heighten(Direction),
    /// Makes the left tabs wider (forward), or the right ones.
    Widen(Direction),
    /// Selects what is at the playhead in the row below (forward) or above.
    Row(Direction),
    /// Selects the block at the playhead, opens or closes a group of rows.
    Select,
    /// Closes or clears the top-most thing.
    Escape,
    /// Says what the picture shows.
    Describe,
    /// Opens a tab by its number, counted from 0.
    Tab(u8),
    /// Opens what can be broken in the chosen rank or wire.
    Break,
    /// Mends everything that is broken on purpose.
    Mend,
    /// Goes back to before the step that failed.
    StepBack,
    /// Selects the block in which a step failed.
    OpenFailed,
    /// Another workspace.
    Workspace(Workspace),
    /// Opens what can stand above or below, in Compare.
    Choose(Half),
    /// What is above and what is below change places.
    Swap,
    /// Keeps the shown step, to be compared.
    Pin,
    /// Plans the next layout of the front (forward), or the one before.
    Front(Direction),
    /// Trains here what is planned.
    TrainPlan,
    /// Opens a schedule file.
    OpenSchedule,
    /// Opens the window of the split.
    Split,
    /// Opens a scenario file.
    Open,
    /// Saves the scenario to a file.
    Save,
    /// Writes what is shown to a file.
    Export,
    /// Opens the palette.
    Palette,
    /// Shows all keys.
    Help,
    /// Light or dark.
    Theme,
    /// Large text for a room.
    Projector,
    /// Full screen.
    FullScreen,
}

/// Whether a chord is meant by the place of its key or by what it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Place,
    Meaning,
}

/// A key with its modifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chord {
    key: Key,
    modifiers: Modifiers,
    by: By,
}

/// What a chord does, and what a person reads about it.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    /// What is done.
    pub action: Action,
    /// What it is called in the palette and the help.
    pub name: &'static str,
    /// The chords, the first one is shown.
    chords: &'static [Chord],
    /// Whether it goes on while the key is held.
    repeats: Repeat,
}

impl Binding {
    /// What is pressed, for each of its chords.
    pub fn presses(&self) -> impl Iterator<Item = (Modifiers, Key)> {
        self.chords.iter().map(|chord| (chord.modifiers, chord.key))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repeat {
    Once,
    Held,
}

const fn place(key: Key) -> Chord {
    Chord { key, modifiers: Modifiers::NONE, by: By::Place }
}

const fn meaning(modifiers: Modifiers, key: Key) -> Chord {
    Chord { key, modifiers, by: By::Meaning }
}

const NONE: Modifiers = Modifiers::NONE;
const ALT_SHIFT: Modifiers = Modifiers { shift: true, ..Modifiers::ALT };

macro_rules! bindings {
    ($($action:expr, $name:literal, $repeats:ident, [$($chord:expr),*];)*) => {
        &[$(Binding {
            action: $action,
            name: $name,
            chords: &[$($chord),*],
            repeats: Repeat::$repeats,
        }),*]
    };
}

/// All actions, in the order of the help.
pub const BINDINGS: &[Binding] = bindings![
    Action::PlayPause, "Play or pause", Once, [meaning(NONE, Key::Space)];
    Action::Live, "Follow training", Once, [place(Key::F)];
    Action::Step(Grain::Block, Forward), "Next block", Held, [meaning(NONE, Key::ArrowRight)];
    Action::Step(Grain::Block, Back), "Previous block", Held, [meaning(NONE, Key::ArrowLeft)];
    Action::Step(Grain::Microbatch, Forward), "Next microbatch", Held,
        [meaning(Modifiers::SHIFT, Key::ArrowRight)];
    Action::Step(Grain::Microbatch, Back), "Previous microbatch", Held,
        [meaning(Modifiers::SHIFT, Key::ArrowLeft)];
    Action::Step(Grain::Step, Forward), "Next training step", Held,
        [meaning(Modifiers::COMMAND, Key::ArrowRight)];
    Action::Step(Grain::Step, Back), "Previous training step", Held,
        [meaning(Modifiers::COMMAND, Key::ArrowLeft)];
    Action::Step(Grain::Instruction, Forward), "Next instruction", Held,
        [meaning(Modifiers::ALT, Key::ArrowRight)];
    Action::Step(Grain::Instruction, Back), "Previous instruction", Held,
        [meaning(Modifiers::ALT, Key::ArrowLeft)];
    Action::First, "Start of the step", Once, [meaning(NONE, Key::Home)];
    Action::Last, "Newest step", Once, [meaning(NONE, Key::End)];
    Action::Speed(Back), "Slower", Held, [place(Key::Comma)];
    Action::Speed(Forward), "Faster", Held, [place(Key::Period)];
    Action::SlowMotion, "Best speed for each step", Once, [place(Key::V)];
    Action::Loop, "Loop the selection", Once, [place(Key::L)];
    Action::KeepTraining, "Keep training while paused", Once, [place(Key::K)];
    Action::TrainMore, "Train as many steps again", Once, [place(Key::G)];
    Action::Restart, "Train from the beginning", Once,
        [meaning(Modifiers::COMMAND, Key::R)];
    Action::Zoom(Forward), "Zoom in", Held,
        [place(Key::W), meaning(NONE, Key::Plus), meaning(Modifiers::SHIFT, Key::Plus)];
    Action::Zoom(Back), "Zoom out", Held, [place(Key::S), meaning(NONE, Key::Minus)];
    Action::Pan(Back), "View left", Held, [place(Key::A)];
    Action::Pan(Forward), "View right", Held, [place(Key::D)];
    Action::Fit, "Whole step, its axis as short as can be", Once, [meaning(NONE, Key::Num0)];
    Action::FitSelection, "Zoom to the selection", Once, [place(Key::Z)];
    Action::Mark, "Mark time from here, or up to here", Once, [place(Key::Y)];
    Action::Heighten(Back), "Lower timeline", Held, [meaning(Modifiers::ALT, Key::ArrowUp)];
    Action::Heighten(Forward), "Higher timeline", Held, [meaning(Modifiers::ALT, Key::ArrowDown)];
    Action::Widen(Back), "Narrower left tabs", Held, [meaning(ALT_SHIFT, Key::ArrowLeft)];
    Action::Widen(Forward), "Wider left tabs", Held, [meaning(ALT_SHIFT, Key::ArrowRight)];
    Action::Row(Back), "Select in the row above", Held, [meaning(NONE, Key::ArrowUp)];
    Action::Row(Forward), "Select in the row below", Held, [meaning(NONE, Key::ArrowDown)];
    Action::Select, "Select at the playhead, open a group", Once, [meaning(NONE, Key::Enter)];
    Action::Escape, "Close or clear", Once, [meaning(NONE, Key::Escape)];
    Action::Describe, "Describe the picture", Once, [place(Key::I)];
    Action::Tab(0), "First tab below", Once, [meaning(NONE, Key::Num1)];
    Action::Tab(1), "Second tab", Once, [meaning(NONE, Key::Num2)];
    Action::Tab(2), "Third tab", Once, [meaning(NONE, Key::Num3)];
    Action::Tab(3), "Fourth tab", Once, [meaning(NONE, Key::Num4)];
    Action::Tab(4), "Fifth tab", Once, [meaning(NONE, Key::Num5)];
    Action::Tab(5), "Sixth tab", Once, [meaning(NONE, Key::Num6)];
    Action::Tab(6), "Seventh tab", Once, [meaning(NONE, Key::Num7)];
    Action::Tab(7), "Eighth tab", Once, [meaning(NONE, Key::Num8)];
    Action::Break, "Break something in this rank or wire", Once, [place(Key::B)];
    Action::Mend, "Mend what is broken", Once, [place(Key::M)];
    Action::StepBack, "Back before the failed step", Once, [place(Key::U)];
    Action::OpenFailed, "Open the block that failed", Once, [place(Key::O)];
    Action::Workspace(Workspace::Watch), "Watch the run", Once, [meaning(NONE, Key::F2)];
    Action::Workspace(Workspace::Compare), "Compare two steps", Once, [meaning(NONE, Key::F3)];
    Action::Workspace(Workspace::Plan), "Plan a cluster", Once, [meaning(NONE, Key::F4)];
    Action::Choose(Half::Upper), "Compare: choose what is above", Once, [place(Key::Q)];
    Action::Choose(Half::Lower), "Compare: choose what is below", Once, [place(Key::E)];
    Action::Swap, "Compare: change above and below", Once, [place(Key::T)];
    Action::Pin, "Pin the shown step, to compare with it", Once, [place(Key::H)];
    Action::Front(Forward), "Plan: next of the best layouts", Held, [meaning(NONE, Key::PageDown)];
    Action::Front(Back), "Plan: previous of the best layouts", Held, [meaning(NONE, Key::PageUp)];
    Action::TrainPlan, "Plan: run it for real", Once, [place(Key::R)];
    Action::Split, "Change the split", Once, [place(Key::C)];
    Action::OpenSchedule, "Open a schedule (CSV)", Once, [place(Key::J)];
    Action::Open, "Open a scenario", Once, [meaning(Modifiers::COMMAND, Key::O)];
    Action::Save, "Save the scenario", Once, [meaning(Modifiers::COMMAND, Key::S)];
    Action::Export, "Export a picture, a table or a trace", Once,
        [meaning(Modifiers::COMMAND, Key::E)];
    Action::Palette, "Find an action", Once, [meaning(Modifiers::COMMAND, Key::K)];
    Action::Help, "All keys", Once,
        [meaning(NONE, Key::Questionmark), meaning(Modifiers::SHIFT, Key::Questionmark),
         meaning(NONE, Key::F1)];
    Action::Theme, "Light or dark", Once, [place(Key::N)];
    Action::Projector, "Large text for a room", Once, [place(Key::P)];
    Action::FullScreen, "Full screen", Once, [meaning(NONE, Key::F11)];
];

/// The place of the key that shows all arrows while it is held.
pub const ALL_ARROWS: Key = Key::X;

/// The binding of an action.
pub fn binding(action: Action) -> Option<&'static Binding> {
    BINDINGS.iter().find(|binding| binding.action == action)
}

/// Who has the keyboard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keyboard {
    /// The window: all keys are actions.
    #[default]
    Window,
    /// A list or a dialogue: only the keys that open and close.
    Dialogue,
}

/// Takes the keys of actions out of the input. Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct Keys(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    pressed: Vec<Action>,
    keyboard: Keyboard,
    /// What stands on the keys of this keyboard, as far as it has been seen.
    local: BTreeMap<Key, Key>,
    /// The places of keys that are down.
    held: BTreeSet<Key>,
}

impl Keys {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The actions since the last call, in order.
    pub fn take(&self) -> Vec<Action> {
        std::mem::take(&mut self.lock().pressed)
    }

    /// Says who has the keyboard from now on.
    pub fn give_to(&self, keyboard: Keyboard) {
        self.lock().keyboard = keyboard;
    }

    /// Whether the key at a place is down.
    pub fn holds(&self, place: Key) -> bool {
        self.lock().held.contains(&place)
    }

    /// What stands on the key at a place of this keyboard.
    pub fn letter(&self, place: Key) -> String {
        self.lock().text(self::place(place))
    }

    /// How the first chord of a binding reads on this keyboard: `Shift →`.
    pub fn chord(&self, binding: &Binding) -> String {
        binding.chords.first().map(|chord| self.lock().text(*chord)).unwrap_or_default()
    }

    /// How the key of an action reads on this keyboard; empty where it has none.
    pub fn of(&self, action: Action) -> String {
        binding(action).map(|binding| self.chord(binding)).unwrap_or_default()
    }
}

impl State {
    fn text(&self, chord: Chord) -> String {
        let mut text = String::new();
        for (held, name) in [
            (chord.modifiers.command, "Ctrl "),
            (chord.modifiers.alt, "Alt "),
            (chord.modifiers.shift, "Shift "),
        ] {
            if held {
                text.push_str(name);
            }
        }
        let key = match chord.by {
            By::Place => self.local.get(&chord.key).copied().unwrap_or(chord.key),
            By::Meaning => chord.key,
        };
        text.push_str(match key {
            Key::ArrowLeft => "←",
            Key::ArrowRight => "→",
            Key::ArrowUp => "↑",
            Key::ArrowDown => "↓",
            Key::Comma => ",",
            Key::Period => ".",
            Key::Plus => "+",
            Key::Minus => "-",
            Key::Questionmark => "?",
            Key::Escape => "Esc",
            other => other.name(),
        });
        text
    }

    /// Takes over what an event tells of the keyboard.
    fn see(&mut self, event: &Event) {
        match event {
            Event::Key { key, physical_key, pressed, .. } => {
                if let Some(place) = physical_key {
                    self.local.insert(*place, *key);
                }
                let place = physical_key.unwrap_or(*key);
                if *pressed {
                    self.held.insert(place)
                } else {
                    self.held.remove(&place)
                };
            }
            // Where else it is let go is not told here.
            Event::WindowFocused(false) => self.held.clear(),
            _ => {}
        }
    }

    /// The action of a key event, if it has one here and now.
    fn action(&self, event: &Event, holder: Holder) -> Option<Action> {
        let Event::Key { key, physical_key, pressed: true, repeat, modifiers } = event else {
            return None;
        };
        let place = physical_key.unwrap_or(*key);
        let fits = |chord: &Chord| {
            let same = match chord.by {
                By::Place => chord.key == place,
                By::Meaning => chord.key == *key,
            };
            same && modifiers.matches_exact(chord.modifiers)
        };
        let found = BINDINGS.iter().find(|binding| binding.chords.iter().any(fits))?;
        if *repeat && found.repeats == Repeat::Once {
            return None;
        }
        let action = found.action;
        let opens_or_closes = matches!(
            action,
            Action::Escape
                | Action::Palette
                | Action::Help
                | Action::FullScreen
                | Action::Workspace(_)
        );
        let functions = [Key::F1, Key::F2, Key::F3, Key::F4, Key::F11];
        let writes = !(modifiers.command || modifiers.alt || functions.contains(key));
        let allowed = match (self.keyboard, holder) {
            (_, Holder::TextField) => opens_or_closes && (!writes || action == Action::Escape),
            (Keyboard::Dialogue, _) => opens_or_closes,
            (Keyboard::Window, Holder::Control) => !matches!(key, Key::Space | Key::Enter),
            (Keyboard::Window, Holder::Nobody) => true,
        };
        allowed.then_some(action)
    }
}

/// Which widget has the focus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Nobody,
    Control,
    TextField,
}

impl egui::Plugin for Keys {
    fn debug_name(&self) -> &'static str {
        "keys"
    }

    fn input_hook(&mut self, ctx: &egui::Context, input: &mut egui::RawInput) {
        let holder = if ctx.text_edit_focused() {
            Holder::TextField
        } else if ctx.memory(|memory| memory.focused().is_some()) {
            Holder::Control
        } else {
            Holder::Nobody
        };
        let mut state = self.lock();
        let mut taken = Vec::new();
        input.events.retain(|event| {
            state.see(event);
            let action = state.action(event, holder);
            taken.extend(action);
            action.is_none()
        });
        state.pressed.append(&mut taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(key: Key, place: Key, modifiers: Modifiers) -> Event {
        Event::Key { key, physical_key: Some(place), pressed: true, repeat: false, modifiers }
    }

    #[test]
    fn no_two_actions_share_a_key_and_every_action_has_one() {
        let mut seen: Vec<(Key, Modifiers)> = Vec::new();
        for binding in BINDINGS {
            assert!(!binding.chords.is_empty(), "{}", binding.name);
            for chord in binding.chords {
                let chord = (chord.key, chord.modifiers);
                assert!(!seen.contains(&chord), "{}: {chord:?} is taken", binding.name);
                seen.push(chord);
            }
        }
    }

    #[test]
    fn letters_are_places_and_the_help_shows_what_stands_there() {
        let mut state = State::default();
        // On a French keyboard Z stands where W is on an English one.
        let event = press(Key::Z, Key::W, NONE);
        assert_eq!(state.action(&event, Holder::Nobody), Some(Action::Zoom(Forward)));
        let chord = binding(Action::Zoom(Forward)).unwrap().chords[0];
        assert_eq!(state.text(chord), "W");
        state.local.insert(Key::W, Key::Z);
        assert_eq!(state.text(chord), "Z");
        let step = binding(Action::Step(Grain::Step, Forward)).unwrap().chords[0];
        assert_eq!(state.text(step), "Ctrl →");
    }

    #[test]
    fn a_text_field_keeps_its_letters_and_a_control_its_space() {
        let state = State::default();
        for binding in BINDINGS {
            let chord = binding.chords[0];
            let event = press(chord.key, chord.key, chord.modifiers);
            let in_text = state.action(&event, Holder::TextField);
            assert_eq!(state.action(&event, Holder::Nobody), Some(binding.action));
            let writes_nothing = [Key::Escape, Key::F2, Key::F3, Key::F4, Key::F11];
            if chord.modifiers.is_none() && !writes_nothing.contains(&chord.key) {
                assert_eq!(in_text, None, "{}", binding.name);
            }
        }
        let space = press(Key::Space, Key::Space, NONE);
        assert_eq!(state.action(&space, Holder::Control), None);
        let right = press(Key::ArrowRight, Key::ArrowRight, NONE);
        assert!(state.action(&right, Holder::Control).is_some());
    }

    #[test]
    fn a_dialogue_takes_all_keys_but_those_that_close_it() {
        let state = State { keyboard: Keyboard::Dialogue, ..State::default() };
        let of = |key| state.action(&press(key, key, NONE), Holder::Nobody);
        assert_eq!(of(Key::Escape), Some(Action::Escape));
        assert_eq!(of(Key::F4), Some(Action::Workspace(Workspace::Plan)));
        assert_eq!(of(Key::Space), None);
        assert_eq!(of(Key::F), None);
    }

    #[test]
    fn a_held_key_steps_on_but_does_not_toggle_on() {
        let state = State::default();
        let held = |key| {
            let event = Event::Key {
                key,
                physical_key: None,
                pressed: true,
                repeat: true,
                modifiers: NONE,
            };
            state.action(&event, Holder::Nobody)
        };
        assert_eq!(held(Key::Space), None);
        assert_eq!(held(Key::ArrowRight), Some(Action::Step(Grain::Block, Forward)));
    }
}
