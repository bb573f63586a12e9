//! Goal: every cut of a run can be read and chosen in every window, and a refusal is read whole.
//! Method: collect what is written over the window while it is scrolled; press buttons by their names.

use eframe::egui;
use egui::{Key, Modifiers};
use egui_kittest::kittest::Queryable as _;
use shardlab::config::{Layout, ScheduleName};
use shardlab_visualizer::app::Half;
use shardlab_visualizer::shown::{Command, Popup};
use shardlab_visualizer::style::Distance;

use crate::window::{Opened, Window, eight_ranks};

/// What is written over the window, from its head to its foot, each line once.
fn read(window: &mut Window) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    window.hover(200.0, 200.0);
    for _ in 0..40 {
        let written = window.audit().written().to_vec();
        for text in written.iter().filter(|text| text.zone == "over the window") {
            assert_eq!(text.label.text, text.label.full, "it is elided");
            if !lines.contains(&text.label.text) {
                lines.push(text.label.text.clone());
            }
        }
        window.press(Modifiers::NONE, Key::ArrowDown);
    }
    lines
}

#[test]
fn every_schedule_is_read_whole_in_windows_of_every_size() {
    for (size, distance) in [
        ((1280.0, 800.0), Distance::Desk),
        ((800.0, 480.0), Distance::Desk),
        ((1280.0, 800.0), Distance::Room),
    ] {
        let mut window = Window::open(Opened { size, distance, ..Opened::default() });
        window.ask(Command::Toggle(Popup::Split));
        window.frames(3);
        let lines = read(&mut window);
        let names = ScheduleName::NAMED.map(|name| name.title());
        let others = [
            "data",
            "tensor",
            "pipeline",
            "microbatches",
            "schedule",
            "selective",
            "sequence",
            "on",
        ];
        for name in names.iter().map(String::as_str).chain(others) {
            assert!(lines.iter().any(|line| line == name), "{size:?}: {name} in {lines:?}");
        }
    }
}

#[test]
fn a_schedule_that_is_pressed_is_chosen_with_the_stages_that_it_needs() {
    let mut window = Window::open(Opened::default());
    window.ask(Command::Toggle(Popup::SplitOf(Half::Lower)));
    window.frames(3);
    let at = window.harness.get_by_label("ZB-V").rect().center();
    window.click(at);
    window.frames(2);
    let lines = read(&mut window);
    assert!(lines.iter().any(|line| line == "chunks"), "{lines:?}");
    let at = window.harness.get_by_label("Compare it").rect().center();
    window.click(at);
    let chosen = window.app().compared().choice(Half::Lower).clone();
    let shardlab_visualizer::app::Choice::Layout(layout) = chosen else { panic!("{chosen:?}") };
    assert_eq!((&layout.schedule, layout.chunks), (&ScheduleName::ZbV, 2));
}

#[test]
fn a_refusal_is_read_whole_at_the_control_that_is_to_blame() {
    for size in [(1280.0, 800.0), (800.0, 480.0)] {
        let mut window = Window::open(Opened { size, ..Opened::default() });
        window.ask(Command::Toggle(Popup::Split));
        window.frames(3);
        for _ in 0..7 {
            let at = window.harness.get_by_label("More: positions, each with its layers.");
            let at = at.rect().center();
            window.click(at);
        }
        let lines = read(&mut window);
        let layout = Layout { pp: 9, ..eight_ranks().layout };
        let why = refusal(layout);
        let all = lines.join(" ");
        assert!(all.contains(&why), "{why}: {all}");
    }
}

#[test]
fn no_control_moves_when_a_refusal_comes_or_goes() {
    for size in [(1280.0, 800.0), (800.0, 480.0)] {
        let mut window = Window::open(Opened { size, ..Opened::default() });
        window.ask(Command::Toggle(Popup::Split));
        window.frames(3);
        let more = window.harness.get_by_label("More: slices of every matrix.").rect();
        let places = |window: &Window| window.controls(egui::Rect::EVERYTHING);
        let before = places(&window);
        assert!(window.is_free("Train again"));
        window.click(more.center());
        window.hover(more.left() - 60.0, more.top());
        assert!(!window.is_free("Train this split"));
        let why = refusal(Layout { tp: 3, ..eight_ranks().layout });
        assert_eq!(window.said_of("Train this split"), format!("{why}."));
        assert_eq!(places(&window), before, "{size:?}");
    }
}

#[test]
fn a_schedule_of_several_stages_a_position_comes_with_them_and_with_their_control() {
    for name in ["interleaved 1F1B", "looped BFS", "interleaved zero bubble"] {
        let mut window = Window::open(Opened { size: (1280.0, 900.0), ..Opened::default() });
        window.ask(Command::Toggle(Popup::SplitOf(Half::Lower)));
        window.frames(3);
        let chunks = "More: stages of a pipeline position.";
        assert!(window.harness.query_by_label(chunks).is_none());
        let at = window.harness.get_by_label(name).rect().center();
        window.click(at);
        window.frames(3);
        assert!(window.harness.query_by_label(chunks).is_some(), "{name}");
        let at = window.harness.get_by_label("Compare it").rect().center();
        window.click(at);
        let chosen = window.app().compared().choice(Half::Lower).clone();
        let shardlab_visualizer::app::Choice::Layout(layout) = chosen else { panic!("{chosen:?}") };
        assert_eq!((layout.schedule.title().as_str(), layout.chunks), (name, 2));
    }
}

/// What the planner says of a layout.
fn refusal(layout: Layout) -> String {
    use shardlab::planner::{Purpose, StepSpec, plan_step};
    let scenario = eight_ranks();
    let spec = StepSpec {
        model: scenario.model.resolve().unwrap(),
        layout,
        training: scenario.training,
        purpose: Purpose::Evaluate,
        device_kinds: Vec::new(),
    };
    plan_step(&spec).unwrap_err().to_string()
}
