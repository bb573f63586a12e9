//! Goal: a run is followed while it goes on. Method: feed a run step by step, or train one. That nothing
//! dances meanwhile is held in `jitter`.

use std::time::Duration;

use eframe::egui;
use egui::{Key, Modifiers, vec2};
use shardlab::config::{Scenario, Training};
use shardlab::trace::draw::scene::Area;
use shardlab::train::driver::Event;
use shardlab_visualizer::app::{App, Source, Start};
use shardlab_visualizer::run::State;
use shardlab_visualizer::saved::View;

use crate::window::{Opened, Window, eight_ranks, harness};

#[test]
fn a_step_that_runs_for_long_is_seen_and_one_that_has_ended_is_not() {
    let mut window = Window::open(Opened::default());
    let says = |window: &mut Window| {
        let written = window.audit().written().to_vec();
        written.iter().any(|text| text.label.full == "step 13 running…")
    };
    window.tell(Event::Playing);
    window.frames(100);
    assert!(!says(&mut window), "after less than two seconds");
    window.frames(40);
    assert!(says(&mut window));
    window.tell(Event::Paused);
    window.frames(2);
    assert!(!says(&mut window));
}

/// A window that trains so many steps of eight ranks.
fn training(steps: u64) -> Window {
    let small = eight_ranks();
    let start = Start {
        scenario: Scenario { training: Training { steps, ..small.training }, ..small },
        options: shardlab::train::Options::on_cpu(),
        view: View::default(),
        store: None,
        source: Source::Trained,
        notes: Vec::new(),
    };
    let mut window = Window { harness: harness(start, (1280.0, 800.0), 1.0, None) };
    window.audit().switch_on();
    window
}

fn until(window: &mut Window, done: &dyn Fn(&App) -> bool) {
    for _ in 0..600 {
        window.frames(1);
        if done(window.app()) {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("this takes longer than half a minute: {:?}", window.app().run().state());
}

#[test]
fn a_window_without_a_size_goes_on_training_and_comes_back_whole() {
    let mut window = training(1_000_000);
    until(&mut window, &|app| app.step().is_some());
    for size in [(0.0, 0.0), (1.0, 1.0), (0.0, 800.0), (1280.0, 800.0)] {
        let trained = window.app().run().trained();
        window.harness.set_size(vec2(size.0, size.1));
        until(&mut window, &|app| app.run().trained() >= trained + 3);
        assert!(matches!(window.app().run().state(), State::Training), "{size:?}");
    }
    let losses = window.app().run().losses();
    assert!(losses.iter().zip(0..).all(|((step, _), expected)| *step == expected), "no hole");
    assert!(losses.iter().all(|(_, loss)| loss.is_finite()));
    assert_eq!(window.app().zones().transport.bottom(), 800.0);
    let written = window.audit().written().to_vec();
    for zone in ["top bar", "explanation", "figures", "timeline", "right band", "transport"] {
        assert!(written.iter().any(|text| text.zone == zone), "{zone} is there again");
    }
    assert_eq!(window.audit().faults(Area::sized(1280.0, 800.0), 12.0), Vec::<String>::new());
}

#[test]
fn a_real_run_starts_by_itself_shows_its_steps_and_holds_when_paused() {
    let mut window = training(eight_ranks().training.steps);
    let steps = eight_ranks().training.steps;
    until(&mut window, &|app| app.step().is_some());
    until(&mut window, &|app| matches!(app.run().state(), State::Done));
    assert_eq!(window.app().run().trained(), steps);
    assert_eq!(window.app().run().held_out().len(), 2);
    assert!(window.explanation().contains("nothing is running"), "{}", window.explanation());
    window.press(Modifiers::NONE, Key::G);
    until(&mut window, &|app| app.run().trained() == 2 * steps);
    // One more step than was asked for, by a key alone.
    until(&mut window, &|app| matches!(app.run().state(), State::Done));
    window.press(Modifiers::NONE, Key::Space);
    window.press(Modifiers::NONE, Key::End);
    window.press(Modifiers::NONE, Key::Space);
    window.press(Modifiers::COMMAND, Key::ArrowRight);
    until(&mut window, &|app| app.step().is_some_and(|step| step.number() == 2 * steps));
    assert!(window.app().run().losses().iter().all(|(_, loss)| loss.is_finite()));
}
