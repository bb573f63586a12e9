//! Goal: no window is too small for the transport, nor for the button that starts a run. Method: find
//! every control by its name at every size, at a desk and in a room.

use eframe::egui;
use egui::accesskit::Role;
use egui::{Rect, pos2, vec2};
use egui_kittest::kittest::Queryable as _;
use shardlab::config::{Scenario, Training};
use shardlab::trace::draw::scene::Area;
use shardlab_visualizer::shown::{Command, Popup};
use shardlab_visualizer::style::Distance;

use crate::window::{Opened, Window, eight_ranks};

const SIZES: [((f32, f32), f32, Distance); 6] = [
    ((800.0, 480.0), 1.0, Distance::Desk),
    ((911.0, 512.0), 1.5, Distance::Desk),
    ((1280.0, 800.0), 1.0, Distance::Desk),
    ((1280.0, 800.0), 1.0, Distance::Room),
    ((1920.0, 1080.0), 2.0, Distance::Room),
    ((800.0, 480.0), 1.0, Distance::Room),
];

/// All controls but the slider; of one that says less where it is narrow, both names.
const CONTROLS: [[&str; 2]; 11] = [
    ["Start of the step (Home).", ""],
    ["Previous block (←).", ""],
    ["Pause, training as well (Space).", ""],
    ["Next block (→).", ""],
    ["Newest step (End).", ""],
    ["Live", "Follow training: show the newest finished step (F)."],
    ["Slower (,).", ""],
    ["Speed of the playhead; press for the best one (V).", ""],
    ["Faster (.).", ""],
    ["loop", ""],
    ["keep training", "keep"],
];

fn opened((size, pixels_per_point, distance): ((f32, f32), f32, Distance)) -> Opened {
    Opened { size, pixels_per_point, distance, ..Opened::default() }
}

fn bar(window: &Window) -> Rect {
    let Area { left, top, width, height } = window.app().zones().transport;
    Rect::from_min_size(pos2(left, top), vec2(width, height))
}

/// Holds that all controls lie in the bar, wide enough to be hit, and none on another one.
fn hold(window: &mut Window, what: &str) -> Vec<Rect> {
    let bar = bar(window);
    let of_control = |names: [&str; 2]| {
        let found = names.iter().find_map(|name| window.harness.query_by_label(name));
        let rect = found.unwrap_or_else(|| panic!("{what}: {names:?} is missing")).rect();
        assert!(bar.contains_rect(rect), "{what}: {names:?} at {rect:?} leaves {bar:?}");
        assert!(rect.width() >= 24.0, "{what}: {names:?} at {rect:?} cannot be hit");
        rect
    };
    let places: Vec<Rect> = CONTROLS.map(of_control).to_vec();
    for (index, one) in places.iter().enumerate() {
        for other in &places[index + 1..] {
            let common = one.intersect(*other);
            let is_apart = common.width() <= 0.0 || common.height() <= 0.0;
            assert!(is_apart, "{what}: {one:?} lies on {other:?}");
        }
    }
    let written = window.audit().written().to_vec();
    for text in written.iter().filter(|text| text.zone == "transport") {
        assert_eq!(text.label.text, text.label.full, "{what}: it is elided");
    }
    places
}

#[test]
fn all_of_the_transport_is_in_every_window() {
    for size in SIZES {
        let what = format!("{size:?}");
        let mut window = Window::open(opened(size));
        let places = hold(&mut window, &what);
        let slider = window.harness.query_by_role(Role::Slider).map(|node| node.rect());
        // As large a text in as small a window leaves room for the buttons alone.
        let has_room = size.2 == Distance::Desk || size.0.0 > 1000.0;
        assert_eq!(slider.is_some(), has_room, "{what}");
        if let Some(slider) = slider {
            assert!(bar(&window).contains_rect(slider) && slider.width() >= 30.0, "{slider:?}");
            assert!(places.iter().all(|place| !place.shrink(0.5).intersects(slider)), "{what}");
        }
    }
}

#[test]
fn a_run_of_very_many_steps_pushes_no_control_away() {
    let small = eight_ranks();
    let training = Training { steps: 1_000_000, ..small.training };
    let scenario = Scenario { training, ..small };
    for size in [SIZES[0], SIZES[3], SIZES[5]] {
        let mut window = Window::empty(Opened { scenario: scenario.clone(), ..opened(size) });
        window.frames(2);
        hold(&mut window, &format!("a million steps at {size:?}"));
    }
}

#[test]
fn the_button_that_starts_a_run_is_in_sight_together_with_the_transport() {
    for size in SIZES {
        let mut window = Window::open(opened(size));
        for (popup, name) in [(Popup::Split, "Train again"), (Popup::Scenarios, "Data parallel")] {
            window.ask(Command::Toggle(popup));
            // The second frame knows how high the rows are.
            window.frames(3);
            let button = window.harness.get_by_label(name).rect();
            let all = Rect::from_min_size(pos2(0.0, 0.0), vec2(size.0.0, size.0.1));
            assert!(all.contains_rect(button), "{size:?}: {name} at {button:?}");
            if popup == Popup::Split {
                assert!(button.max.y <= bar(&window).min.y, "{size:?}: {button:?}");
            }
            window.ask(Command::Close);
        }
        window.ask(Command::Toggle(Popup::Split));
        window.frames(3);
        let more = window.harness.get_by_label("More: copies, each with its share of a batch.");
        let at = more.rect().center();
        window.click(at);
        let at = window.harness.get_by_label("Train this split").rect().center();
        window.click(at);
        assert_eq!(window.app().run().scenario().layout.dp, eight_ranks().layout.dp + 1);
        assert!(window.app().over().is_none());
    }
}
