//! Goal: everything can be done by keys alone, and typing never does anything else. Method: press
//! them all.

use eframe::egui;
use egui::{Event, Key, Modifiers};
use shardlab::trace::Span;
use shardlab_visualizer::app::Half;
use shardlab_visualizer::play::{Mode, WhilePaused};
use shardlab_visualizer::shown::{Command, Popup, Side};
use shardlab_visualizer::style::{Distance, Scheme};
use shardlab_visualizer::zones::Band;

use crate::window::{Opened, Window, sixty_four_ranks};

const NONE: Modifiers = Modifiers::NONE;

/// Everything about the app that a key could change.
fn state(window: &Window) -> String {
    let app = window.app();
    format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {:?}",
        app.play(),
        app.sight(),
        app.view(),
        app.over().map(|over| over.popup()),
        app.run().trained(),
        app.step().map(|step| step.number()),
        app.look(),
    )
}

#[test]
fn every_key_does_what_the_help_says() {
    let mut window = Window::open(Opened::default());
    let play = |window: &Window| window.app().play().clone();
    window.press(NONE, Key::Space);
    assert_eq!(play(&window).mode(), Mode::Paused);
    window.press(NONE, Key::Home);
    assert_eq!(play(&window).playhead(), Default::default());
    for modifiers in [NONE, Modifiers::SHIFT, Modifiers::ALT] {
        let before = play(&window).playhead();
        window.press(modifiers, Key::ArrowRight);
        assert!(play(&window).playhead() > before, "{modifiers:?}");
    }
    let step = window.app().step().unwrap().number();
    window.press(Modifiers::COMMAND, Key::ArrowLeft);
    assert_eq!(window.app().step().unwrap().number() + 1, step);
    window.press(NONE, Key::End);
    assert_eq!((window.app().step().unwrap().number(), play(&window).mode()), (step, Mode::Live));
    let speed = play(&window).speed();
    // A tiny step is shown as slowly as can be.
    window.press(NONE, Key::Period);
    window.press(NONE, Key::Period);
    let faster = play(&window).speed();
    assert!(faster > speed);
    window.press(NONE, Key::Comma);
    assert!(play(&window).speed() < faster);
    window.press(NONE, Key::V);
    assert!(!play(&window).speed_is_chosen());
    window.press(NONE, Key::K);
    assert_eq!(play(&window).while_paused(), WhilePaused::Train);
    window.press(NONE, Key::K);
    window.press(NONE, Key::Space);
    window.press(NONE, Key::ArrowDown);
    window.press(NONE, Key::ArrowDown);
    let second = window.app().sight().selection.expect("a block of the second row");
    window.press(NONE, Key::ArrowUp);
    assert_ne!(window.app().sight().selection, Some(second));
    window.press(NONE, Key::L);
    assert!(play(&window).section().is_some());
    window.press(NONE, Key::L);
    assert!(play(&window).section().is_none());
    window.press(NONE, Key::Z);
    let near = window.app().sight().window.expect("the selection fills the view");
    window.press(NONE, Key::D);
    assert_ne!(window.app().sight().window, Some(near));
    window.press(NONE, Key::A);
    window.press(NONE, Key::Num0);
    assert_eq!(window.app().sight().window, None);
    window.press(NONE, Key::W);
    assert!(window.app().sight().window.is_some());
    window.press(NONE, Key::S);
    assert_eq!(window.app().sight().window, None);
}

#[test]
fn keys_open_and_close_what_lies_over_the_window() {
    let mut window = Window::open(Opened::default());
    let over = |window: &Window| window.app().over().map(|over| over.popup());
    // The first Esc in a field only leaves the field.
    for (modifiers, key, popup, escapes) in [
        (NONE, Key::Questionmark, Popup::Help, 1),
        (Modifiers::COMMAND, Key::K, Popup::Palette, 1),
        (NONE, Key::C, Popup::Split, 1),
        (Modifiers::COMMAND, Key::O, Popup::Open, 2),
        (Modifiers::COMMAND, Key::S, Popup::Save, 2),
        (NONE, Key::J, Popup::OpenSchedule, 2),
    ] {
        window.press(modifiers, key);
        for _ in 0..escapes {
            assert_eq!(over(&window), Some(popup), "{key:?}");
            window.press(NONE, Key::Escape);
        }
        assert_eq!(over(&window), None, "{key:?}");
    }
}

#[test]
fn keys_change_the_look() {
    let mut window = Window::open(Opened::default());
    window.press(NONE, Key::N);
    assert_eq!(window.app().view().scheme, Scheme::Dark);
    window.press(NONE, Key::P);
    assert_eq!(window.app().view().distance, Distance::Room);
    window.press(NONE, Key::P);
    window.press(NONE, Key::N);
    assert_eq!(window.app().view().scheme, Scheme::Light);
    window.press(NONE, Key::I);
    let said = window.explanation();
    assert!(said.contains("REPLAYED") && said.contains(" waits longest: "), "{said}");
    assert!(said.chars().count() <= 120, "{said}");
}

#[test]
fn a_low_window_opens_a_tab_over_the_timeline_and_escape_brings_that_back() {
    let mut window = Window::open(Opened { size: (800.0, 480.0), ..Opened::default() });
    assert_eq!(window.app().zones().band, Band::Closed);
    window.press(NONE, Key::Num1);
    assert!(window.app().maximised().is_some());
    window.press(NONE, Key::Escape);
    assert_eq!(window.app().maximised(), None::<Side>);
}

#[test]
fn typing_in_a_field_does_nothing_else() {
    let mut window = Window::open(Opened::default());
    window.press(NONE, Key::Space);
    window.press(Modifiers::COMMAND, Key::K);
    window.frames(3);
    let before = state(&window);
    // Letters that stand for no action's name, so that nothing is found and Enter does nothing.
    for letter in
        ["f", "l", "k", "g", "w", "s", "a", "d", "z", "i", "c", "n", "p", "x", "v", " ", "0"]
    {
        let key = Key::from_name(&letter.to_uppercase()).unwrap_or(Key::Space);
        window.harness.event(Event::Key {
            key,
            physical_key: Some(key),
            pressed: true,
            repeat: false,
            modifiers: NONE,
        });
        window.harness.event(Event::Text(letter.to_owned()));
        window.frames(1);
    }
    for key in [Key::ArrowLeft, Key::ArrowRight, Key::Home, Key::End, Key::Enter] {
        window.press(NONE, key);
    }
    assert_eq!(state(&window), before);
    window.press(NONE, Key::Escape);
    assert!(window.app().over().is_none(), "one Esc closes the palette");
    assert_eq!(window.app().play().mode(), Mode::Paused);
}

#[test]
fn a_palette_entry_runs_by_its_name() {
    let mut window = Window::open(Opened::default());
    window.press(Modifiers::COMMAND, Key::K);
    window.frames(2);
    window.harness.event(Event::Text("light or dark".to_owned()));
    window.frames(2);
    window.press(NONE, Key::Enter);
    assert_eq!(window.app().view().scheme, Scheme::Dark);
    assert!(window.app().over().is_none());
}

#[test]
fn dividers_are_moved_and_time_is_marked_by_keys_alone() {
    let mut window = Window::open(Opened::default());
    let before = *window.app().zones();
    window.press(Modifiers::ALT, Key::ArrowDown);
    assert!(window.app().zones().timeline.height > before.timeline.height);
    window.press(Modifiers::ALT, Key::ArrowUp);
    window.press(Modifiers::ALT, Key::ArrowUp);
    assert!(window.app().zones().timeline.height < before.timeline.height);
    let alt_shift = Modifiers { shift: true, ..Modifiers::ALT };
    window.press(alt_shift, Key::ArrowLeft);
    assert!(window.app().zones().left.width < before.left.width);
    for workspace in [Key::F2, Key::F3] {
        window.press(NONE, workspace);
        window.press(NONE, Key::Home);
        window.press(NONE, Key::Y);
        let from = window.app().play().playhead();
        for _ in 0..4 {
            window.press(NONE, Key::ArrowRight);
        }
        let to = window.app().play().playhead();
        window.press(NONE, Key::Y);
        let marked = match workspace {
            Key::F2 => window.app().sight().marked,
            _ => window.app().compared().sight(Half::Lower).marked,
        };
        assert_eq!(marked, Some(Span { start: from, end: to }), "{workspace:?}");
        window.press(NONE, Key::Escape);
    }
}

#[test]
fn a_row_that_is_chosen_by_keys_comes_into_sight() {
    let opened = Opened { scenario: sixty_four_ranks(), ..Opened::default() };
    let mut window = Window::open(opened);
    window.press(NONE, Key::Space);
    window.ask(Command::Unfold(0));
    window.ask(Command::Unfold(1));
    window.frames(3);
    for workspace in [Key::F2, Key::F3] {
        window.press(NONE, workspace);
        let scrolled = |window: &Window| match workspace {
            Key::F2 => window.app().sight().scroll,
            _ => window.app().compared().sight(Half::Upper).scroll,
        };
        if workspace == Key::F3 {
            window.ask(Command::Within(Half::Upper, Box::new(Command::Unfold(0))));
            window.frames(3);
        }
        window.press(NONE, Key::ArrowUp);
        for _ in 0..40 {
            window.press(NONE, Key::ArrowUp);
        }
        let top = scrolled(&window);
        for _ in 0..16 {
            window.press(NONE, Key::ArrowDown);
        }
        assert!(scrolled(&window) > top, "{workspace:?}: {} after {top}", scrolled(&window));
    }
}
