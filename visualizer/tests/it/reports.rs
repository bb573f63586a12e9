//! Goal: what people report of tools like this one does not happen here. Method: do what such a report
//! says, frame by frame. Reports about exports, long names, small windows and keys are held where
//! these are tested.

use eframe::egui;
use egui::accesskit::Role;
use egui::{Key, Modifiers, Pos2, pos2};
use egui_kittest::kittest::Queryable as _;
use shardlab::train::driver::{Event, StepSummary, Stepped};
use shardlab::units::Nanos;
use shardlab_visualizer::play::Mode;
use shardlab_visualizer::run::State;

use crate::window::{Opened, Window, eight_ranks, recording};

const NONE: Modifiers = Modifiers::NONE;

/// A window that follows a run which has told so many steps, and what is told next.
fn live(steps: usize) -> (Window, impl Iterator<Item = &'static Event>) {
    let mut window = Window::empty(Opened::default());
    let mut events = recording(&eight_ranks()).iter();
    let mut told = 0;
    while told < steps {
        let event = events.next().expect("the recording is longer");
        told += usize::from(matches!(event, Event::Step(_)));
        window.tell(event.clone());
    }
    window.frames(3);
    assert_eq!(window.app().play().mode(), Mode::Live);
    (window, events.filter(|event| matches!(event, Event::Step(_))))
}

fn shown(window: &Window) -> u64 {
    window.app().step().expect("a step is shown").number()
}

#[test]
fn a_slider_that_is_dragged_while_the_run_goes_on_is_followed_in_the_same_frame() {
    let (mut window, mut events) = live(8);
    assert_eq!(shown(&window), 7);
    let track = window.harness.get_by_role(Role::Slider).rect();
    let at = |part: f32| pos2(track.left() + part * track.width(), track.center().y);
    window.harness.hover_at(at(0.6));
    window.harness.drag_at(at(0.6));
    window.frames(1);
    let pressed = shown(&window);
    assert!((3..6).contains(&pressed), "step {pressed} was pressed");
    assert_ne!(window.app().play().mode(), Mode::Live);
    // Steps end meanwhile: they take nothing away from the hand.
    let mut before = pressed;
    for part in [0.4, 0.2, 0.0] {
        window.tell(events.next().expect("a step").clone());
        window.harness.hover_at(at(part));
        window.frames(1);
        assert!(shown(&window) < before, "{part} of the slider is step {}", shown(&window));
        before = shown(&window);
    }
    assert_eq!(before, 0);
    window.harness.drop_at(at(0.0));
    window.frames(120);
    assert_eq!((shown(&window), window.app().run().trained()), (0, 11), "it stays there");
}

#[test]
fn the_playhead_is_where_the_ruler_is_pressed_and_dragged_while_the_run_goes_on() {
    let (mut window, mut events) = live(6);
    let zone = window.app().zones().timeline;
    let end = window.app().time_axis().end.0 as f32;
    // Between the names of the ranks and their memory.
    let (left, right) = (zone.left + 132.0, zone.right() - 132.0);
    let y = zone.top + 10.0;
    let mut press = true;
    for part in [0.3_f32, 0.5, 0.1] {
        let at = pos2(left + part * (right - left), y);
        window.tell(events.next().expect("a step").clone());
        window.harness.hover_at(at);
        if std::mem::take(&mut press) {
            window.harness.drag_at(at);
        }
        window.frames(1);
        let length = window.app().step().expect("a step").timeline.end();
        let expected = ((part * end) as u64).min(length.0);
        let found = window.app().play().playhead();
        let off = found.0.abs_diff(expected);
        assert!(off as f32 <= end / 200.0, "{found} instead of {}", Nanos(expected));
        assert_ne!(window.app().play().mode(), Mode::Live);
    }
}

/// Two presses at once.
fn double_click(window: &mut Window, at: Pos2) {
    window.harness.hover_at(at);
    for _ in 0..2 {
        window.harness.drag_at(at);
        window.harness.drop_at(at);
    }
    window.frames(1);
}

/// What is painted in a part of the window.
fn shapes(window: &mut Window, zone: &str) -> usize {
    let scenes = window.audit().scenes();
    let of_zone = scenes.iter().filter(|painted| painted.zone == zone);
    of_zone.map(|painted| painted.scene.shapes.len()).sum()
}

#[test]
fn beside_a_hundred_thousand_losses_a_double_click_still_shows_the_whole_step_at_once() {
    let mut window = Window::open(Opened::default());
    window.audit().keep_scenes();
    window.press(NONE, Key::Space);
    let first = window.app().run().trained();
    let tell = |window: &mut Window, steps: std::ops::Range<u64>| {
        for step in steps {
            let loss = 5.0 / (1.0 + step as f64 / 1000.0) + 0.1 * (step as f64).sin();
            let summary = StepSummary {
                step,
                branch: 0,
                loss,
                grad_norm: 1.0,
                lr: 1e-3,
                seconds: 0.1,
                wall_seconds: 0.1,
                bytes: 1,
                difference: None,
            };
            window.tell(Event::Step(Stepped { summary, report: None }));
        }
        window.frames(2);
    };
    tell(&mut window, first..5_000);
    let few = shapes(&mut window, "right band");
    tell(&mut window, 5_000..100_000);
    assert_eq!(window.app().run().losses().len(), 100_000);
    let many = shapes(&mut window, "right band");
    assert!(few > 10 && many <= few + few / 2, "{few} shapes became {many}");
    let place = window.app().zones().timeline.centre();
    window.press(NONE, Key::W);
    window.press(NONE, Key::W);
    assert!(window.app().sight().window.is_some());
    // Where no block lies: behind the end of the step, where the ruler is.
    let at = pos2(place.x, window.app().zones().timeline.top + 10.0);
    double_click(&mut window, at);
    assert_eq!(window.app().sight().window, None, "the whole step in the very frame");
}

#[test]
fn ten_minutes_without_input_pause_everything_and_say_so() {
    let (mut window, mut events) = live(6);
    window.tell(Event::Playing);
    let wait = |window: &mut Window, seconds: f64| {
        let now = window.harness.ctx.input(|input| input.time);
        window.harness.input_mut().time = Some(now + seconds);
        window.frames(2);
    };
    window.hover(400.0, 300.0);
    wait(&mut window, 590.0);
    assert_eq!(window.app().play().mode(), Mode::Live);
    window.hover(410.0, 300.0);
    wait(&mut window, 590.0);
    assert_eq!(window.app().play().mode(), Mode::Live, "a moved pointer is somebody");
    // Over nothing that would speak of itself.
    window.hover(800.0, 20.0);
    wait(&mut window, 601.0);
    assert_eq!(window.app().play().mode(), Mode::Paused);
    assert!(!window.app().play().lets_train());
    assert_eq!(window.explanation(), "Paused after 10 minutes without input. Space goes on.");
    window.tell(Event::Paused);
    window.tell(events.next().expect("the step that was running").clone());
    assert!(matches!(window.app().run().state(), State::Held));
    window.assert_stands_still(20);
    window.press(NONE, Key::Space);
    assert_ne!(window.app().play().mode(), Mode::Paused);
}
