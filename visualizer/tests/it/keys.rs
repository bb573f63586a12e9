//! Goal: every action can be done by keys alone, and a key that can do nothing now says why. Method: press
//! all keys of the table, each in a window that was made ready by keys, and look for what has changed.

use eframe::egui;
use egui::{Event, Key, Modifiers, ViewportCommand, ViewportId};
use egui_kittest::kittest::Queryable as _;
use shardlab::trace::draw::timeline::Arrows;
use shardlab_visualizer::app::Half;
use shardlab_visualizer::keys::{ALL_ARROWS, Action, BINDINGS, Grain};
use shardlab_visualizer::play::Direction::{Back, Forward};
use shardlab_visualizer::shown::{Popup, Workspace};

use crate::window::{Opened, Window};

const NONE: Modifiers = Modifiers::NONE;
const COMMAND: Modifiers = Modifiers::COMMAND;

/// Everything about the app that a key could change, and the line that could say why it does not.
fn state(window: &mut Window) -> String {
    let line = window.explanation();
    let app = window.app();
    format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {line}",
        app.play(),
        app.sight(),
        app.saved(),
        app.over().map(|over| over.popup()),
        app.maximised(),
        app.run().state(),
        app.step().map(|step| step.number()),
        app.look(),
        app.time_axis(),
        Half::BOTH.map(|half| app.compared().sight(half).clone()),
        app.compared().pins(),
    )
}

/// What is pressed before, so that the action has something to do.
fn before(action: Action) -> Vec<(Modifiers, Key)> {
    let pause = (NONE, Key::Home);
    let next = (NONE, Key::ArrowRight);
    let step_back = (COMMAND, Key::ArrowLeft);
    match action {
        Action::Live | Action::Last => vec![step_back],
        Action::Step(Grain::Step, Forward) => vec![step_back, step_back],
        Action::Step(..) | Action::First => vec![pause, next, next, next],
        Action::Speed(_) | Action::SlowMotion => vec![(NONE, Key::Period), (NONE, Key::Period)],
        Action::Loop | Action::FitSelection | Action::Escape => vec![pause, (NONE, Key::Enter)],
        Action::Zoom(Back) | Action::Fit => vec![(NONE, Key::W)],
        Action::Pan(_) => vec![(NONE, Key::W), (NONE, Key::W), (NONE, Key::D)],
        Action::Row(_) => vec![pause, (NONE, Key::ArrowDown), (NONE, Key::ArrowDown)],
        Action::Workspace(Workspace::Watch) => vec![(NONE, Key::F3)],
        Action::Swap => vec![(NONE, Key::F3)],
        Action::Front(_) | Action::TrainPlan => vec![(NONE, Key::F4)],
        // The other one is open at first.
        Action::Tab(0) => vec![(NONE, Key::Num2)],
        Action::Tab(5) => vec![(NONE, Key::Num7)],
        _ => Vec::new(),
    }
}

#[test]
fn every_key_changes_something_or_says_why_it_does_not() {
    let mut silent = Vec::new();
    for binding in BINDINGS {
        // Told runs have nobody who could train on; `live` presses this key in a real one. What the
        // display is asked for is tested below.
        if matches!(binding.action, Action::TrainMore | Action::FullScreen) {
            continue;
        }
        for (modifiers, key) in binding.presses() {
            let mut window = Window::open(Opened::default());
            window.press(NONE, Key::Space);
            for (modifiers, key) in before(binding.action) {
                window.press(modifiers, key);
            }
            while window.app().is_busy() {
                window.frames(1);
            }
            window.frames(20);
            let before = state(&mut window);
            window.press(modifiers, key);
            if state(&mut window) == before {
                silent.push(format!("{}: {modifiers:?} {key:?}", binding.name));
            }
        }
    }
    assert!(silent.is_empty(), "{silent:#?}");
}

#[test]
fn what_cannot_be_done_now_is_told_with_its_reason() {
    let mut window = Window::open(Opened::default());
    for (key, reason) in [
        (Key::L, "Nothing is chosen"),
        (Key::Z, "Nothing is chosen"),
        (Key::M, "Nothing is broken"),
        (Key::U, "No step has failed"),
        (Key::O, "No number has failed to be finite"),
        (Key::Num8, "There are 7 tabs"),
    ] {
        window.press(NONE, key);
        let line = window.explanation();
        assert!(line.starts_with(reason), "{key:?}: {line}");
    }
}

#[test]
fn a_key_asks_the_display_for_the_whole_screen() {
    let mut window = Window::open(Opened::default());
    window.harness.key_down(Key::F11);
    window.frames(1);
    let asked = &window.harness.output().viewport_output[&ViewportId::ROOT].commands;
    assert!(asked.contains(&ViewportCommand::Fullscreen(true)), "{asked:?}");
}

/// The key at a place goes down or up; on this keyboard it writes something else.
fn at_place(window: &mut Window, (place, writes): (Key, Key), pressed: bool) {
    window.harness.event(Event::Key {
        key: writes,
        physical_key: Some(place),
        pressed,
        repeat: false,
        modifiers: NONE,
    });
    window.frames(2);
}

/// What is painted in the timelines.
fn shapes(window: &mut Window) -> usize {
    let scenes = window.audit().scenes();
    scenes.iter().map(|painted| painted.scene.shapes.len()).sum()
}

#[test]
fn all_arrows_are_there_as_long_as_the_key_at_the_place_of_x_is_down() {
    for workspace in [Key::F2, Key::F3, Key::F4] {
        let mut window = Window::open(Opened::default());
        window.audit().keep_scenes();
        window.press(NONE, Key::Space);
        window.press(NONE, workspace);
        while window.app().is_busy() {
            window.frames(1);
        }
        window.frames(20);
        let few = shapes(&mut window);
        at_place(&mut window, (ALL_ARROWS, Key::Q), true);
        let many = shapes(&mut window);
        assert!(many > few + 8, "{workspace:?}: {few} shapes became {many}");
        at_place(&mut window, (ALL_ARROWS, Key::Q), false);
        assert_eq!(shapes(&mut window), few, "{workspace:?}");
        // The letter at another place does nothing.
        at_place(&mut window, (Key::Num9, Key::X), true);
        assert_eq!(shapes(&mut window), few, "{workspace:?}");
    }
}

#[test]
fn arrows_go_when_the_window_loses_the_keyboard_and_the_help_names_their_key() {
    let mut window = Window::open(Opened::default());
    at_place(&mut window, (ALL_ARROWS, Key::Q), true);
    assert_eq!(window.app().sight().arrows, Arrows::All);
    window.harness.event(Event::WindowFocused(false));
    window.frames(2);
    assert_eq!(window.app().sight().arrows, Arrows::Selected);
    at_place(&mut window, (ALL_ARROWS, Key::Q), false);
    window.press(NONE, Key::F1);
    let written = window.audit().written().to_vec();
    let says = |text: &str| written.iter().any(|line| line.label.full.contains(text));
    assert!(says("Q held: all arrows"));
}

/// What stands in the field over the window, if there is one.
fn field(window: &Window) -> String {
    use egui_kittest::kittest::NodeT as _;
    let node = window.harness.get_by_role(egui::accesskit::Role::TextInput);
    node.accesskit_node().value().unwrap_or_default()
}

#[test]
fn escape_in_a_field_leaves_the_field_and_nothing_else() {
    for (key, popup) in [(Key::E, Popup::Export), (Key::O, Popup::Open), (Key::S, Popup::Save)] {
        let mut window = Window::open(Opened::default());
        let over = |window: &Window| window.app().over().map(|over| over.popup());
        window.press(COMMAND, key);
        window.frames(2);
        if popup == Popup::Export {
            let at = window.harness.get_by_label("SVG").rect().center();
            window.click(at);
            window.frames(2);
        }
        let write = |window: &mut Window, text: &str| {
            window.harness.event(Event::Text(text.into()));
            window.frames(2);
        };
        write(&mut window, "y");
        let typed = field(&window);
        assert!(typed.contains('y'), "{popup:?}: {typed}");
        window.press(NONE, Key::Escape);
        window.frames(5);
        assert_eq!((over(&window), field(&window)), (Some(popup), typed.clone()));
        write(&mut window, "z");
        assert_eq!(field(&window), typed, "{popup:?}: nobody types any more");
        // Pressed, it takes the keyboard again, and gives it back again.
        let at = window.harness.get_by_role(egui::accesskit::Role::TextInput).rect().center();
        window.click(at);
        write(&mut window, "z");
        assert_ne!(field(&window), typed, "{popup:?}");
        window.press(NONE, Key::Escape);
        assert_eq!(over(&window), Some(popup));
        if popup == Popup::Export {
            assert!(field(&window).contains(".svg"), "what was chosen stays: {}", field(&window));
        }
        window.press(NONE, Key::Escape);
        assert_eq!(over(&window), None);
        // Opened once more, its field has the keyboard at once.
        window.press(COMMAND, key);
        window.frames(2);
        write(&mut window, "q");
        assert!(field(&window).contains('q'), "{popup:?}");
    }
}
