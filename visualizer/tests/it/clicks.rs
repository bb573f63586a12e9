//! Goal: each control does what it says. Method: press each by its name, with the pointer, in a window of
//! its own, and hold what has become of the app against what was expected.

use eframe::egui;
use egui::accesskit::Role;
use egui::{Key, Modifiers, Pos2, Rect, pos2, vec2};
use egui_kittest::kittest::Queryable as _;
use shardlab::trace::draw::playback::Speed;
use shardlab::trace::draw::scene::Area;
use shardlab::units::Nanos;
use shardlab_visualizer::panels::{DETAILS, FAULTS, LOSS, MEMORY, NUMBERS, WIRES};
use shardlab_visualizer::play::{Mode, WhilePaused};
use shardlab_visualizer::shown::{Command, Popup, Side, Workspace};
use shardlab_visualizer::style::Scheme;

use crate::window::{Opened, Window, sixty_four_ranks};

const NONE: Modifiers = Modifiers::NONE;

/// What a control of the transport can change.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Heads {
    mode: Mode,
    step: u64,
    at: Nanos,
    speed: Speed,
}

fn heads(window: &Window) -> Heads {
    let (play, step) = (window.app().play(), window.app().step().unwrap());
    Heads { mode: play.mode(), step: step.number(), at: play.playhead(), speed: play.speed() }
}

/// Presses what is called so and lies in an area.
fn click_in(window: &mut Window, area: Area, name: &str) {
    let area = Rect::from_min_size(pos2(area.left, area.top), vec2(area.width, area.height));
    let named = window.harness.query_all_by_label(name);
    let there: Vec<Pos2> =
        named.map(|node| node.rect().center()).filter(|at| area.contains(*at)).collect();
    assert_eq!(there.len(), 1, "{name} in {area:?}");
    window.click(there[0]);
}

fn click_on(window: &mut Window, name: &str) {
    let all = window.harness.ctx.content_rect();
    click_in(window, Area::sized(all.width(), all.height()), name);
}

fn press(window: &mut Window, modifiers: Modifiers, keys: &[Key]) {
    keys.iter().for_each(|key| window.press(modifiers, *key));
}

#[test]
fn every_button_of_the_transport_does_what_it_says() {
    type Prepare = fn(&mut Window);
    type Expected = fn(&Window, Heads) -> bool;
    let nothing: Prepare = |_| ();
    let in_the_middle: Prepare = |window| {
        press(window, NONE, &[Key::Home, Key::ArrowRight, Key::ArrowRight, Key::ArrowRight]);
    };
    let three_steps_back: Prepare = |window| {
        press(window, Modifiers::COMMAND, &[Key::ArrowLeft, Key::ArrowLeft, Key::ArrowLeft]);
    };
    // A tiny step is shown as slowly as can be.
    let faster: Prepare = |window| press(window, NONE, &[Key::Period, Key::Period, Key::Period]);
    let controls: [(&str, Prepare, Expected); 12] = [
        ("Start of the step (Home).", in_the_middle, |window, before| {
            heads(window) == Heads { at: Nanos(0), ..before }
        }),
        ("Previous block (←).", in_the_middle, |window, before| {
            let after = heads(window);
            after.at < before.at && after.step == before.step
        }),
        ("Next block (→).", in_the_middle, |window, before| {
            let after = heads(window);
            after.at > before.at && after.step == before.step
        }),
        ("Pause, training as well (Space).", nothing, |window, _| {
            heads(window).mode == Mode::Paused && !window.app().play().lets_train()
        }),
        ("Play on (Space).", in_the_middle, |window, _| heads(window).mode == Mode::Live),
        ("Newest step (End).", three_steps_back, |window, before| {
            let after = heads(window);
            (after.mode, after.step) == (Mode::Live, before.step + 3)
        }),
        ("Live", three_steps_back, |window, before| {
            let after = heads(window);
            (after.mode, after.step) == (Mode::Live, before.step + 3)
        }),
        ("Slower (,).", faster, |window, before| heads(window).speed < before.speed),
        ("Faster (.).", faster, |window, before| heads(window).speed > before.speed),
        ("Speed of the playhead; press for the best one (V).", faster, |window, _| {
            !window.app().play().speed_is_chosen()
        }),
        (
            "loop",
            |window| press(window, NONE, &[Key::Home, Key::Enter]),
            |window, _| window.app().play().section().is_some(),
        ),
        ("keep training", nothing, |window, _| {
            window.app().play().while_paused() == WhilePaused::Train
        }),
    ];
    for (name, prepare, expected) in controls {
        let mut window = Window::open(Opened::default());
        prepare(&mut window);
        window.frames(1);
        let (before, bar) = (heads(&window), window.app().zones().transport);
        click_in(&mut window, bar, name);
        let after = heads(&window);
        assert!(expected(&window, before), "{name}: {before:?} became {after:?}");
    }
}

#[test]
fn the_slider_goes_to_the_step_that_is_pressed() {
    let mut window = Window::open(Opened::default());
    let track = window.harness.get_by_role(Role::Slider).rect();
    for part in [0.01, 0.5, 0.99] {
        window.click(pos2(track.left() + part * track.width(), track.center().y));
        let newest = window.app().run().trained() - 1;
        let wanted = (f64::from(part) * newest as f64).round() as u64;
        assert!(heads(&window).step.abs_diff(wanted) <= 1, "{part}: {:?}", heads(&window));
        assert_eq!(heads(&window).mode, Mode::Paused);
    }
}

#[test]
fn every_control_of_the_top_bar_does_what_it_says() {
    let mut window = Window::open(Opened::default());
    let scheme = window.app().view().scheme;
    click_on(&mut window, "Light or dark.");
    assert_ne!(window.app().view().scheme, scheme);
    click_on(&mut window, "Light or dark.");
    assert_eq!(window.app().view().scheme, Scheme::Light);
    for (name, popup) in [
        ("?", Popup::Help),
        ("What is trained: choose another scenario or open a file.", Popup::Scenarios),
        ("How the model and its batch are cut over the ranks: change the split.", Popup::Split),
    ] {
        for expected in [Some(popup), None] {
            click_on(&mut window, name);
            assert_eq!(window.app().over().map(|over| over.popup()), expected, "{name}");
        }
    }
    for workspace in [Workspace::Compare, Workspace::Plan, Workspace::Watch] {
        click_on(&mut window, workspace.name());
        assert_eq!(window.app().view().workspace, workspace);
    }
}

#[test]
fn a_scenario_of_the_menu_is_trained_and_the_menu_closes() {
    let mut window = Window::open(Opened::default());
    click_on(&mut window, "What is trained: choose another scenario or open a file.");
    click_on(&mut window, "Tensor parallel");
    assert!(window.app().over().is_none());
    let scenario = window.app().run().scenario();
    assert_eq!((scenario.name.as_str(), scenario.layout.tp), ("Tensor parallel", 4));
    // Another one from its two buttons.
    for (name, popup) in [("Open a file…", Popup::Open), ("Save to a file…", Popup::Save)] {
        click_on(&mut window, "What is trained: choose another scenario or open a file.");
        click_on(&mut window, name);
        assert_eq!(window.app().over().map(|over| over.popup()), Some(popup));
        window.ask(Command::Close);
        window.frames(1);
    }
}

#[test]
fn a_figure_opens_the_tab_that_tells_more_of_it() {
    for size in [(1280.0, 800.0), (1280.0, 620.0)] {
        let mut window = Window::open(Opened { size, ..Opened::default() });
        for (name, side, tab) in [
            ("Waiting", Side::Left, NUMBERS),
            ("Sent", Side::Left, WIRES),
            ("Peak memory", Side::Left, MEMORY),
            ("Loss", Side::Right, LOSS),
        ] {
            window.ask(Command::OpenRight(DETAILS));
            window.ask(Command::OpenLeft(FAULTS));
            window.frames(2);
            let figures = window.app().zones().figures;
            click_in(&mut window, figures, name);
            let view = window.app().view();
            let open = if side == Side::Left { view.left_tab } else { view.right_tab };
            assert_eq!(open, tab, "{name} at {size:?}");
            // A low window has no room for both: the tab takes that of the timeline.
            let low = size.1 < 700.0;
            assert_eq!(window.app().maximised(), low.then_some(side), "{name} at {size:?}");
        }
    }
}

#[test]
fn every_tab_opens_with_one_press_and_is_as_large_as_can_be_with_two() {
    for (size, is_low) in [((1280.0, 800.0), false), ((800.0, 480.0), true)] {
        let mut window = Window::open(Opened { size, ..Opened::default() });
        let left = ["Wires", "Memory", "Collective", "Numbers", "Faults"];
        let tabs = left.map(|name| (Side::Left, name)).into_iter();
        let tabs = tabs.chain(["Loss", "Details"].map(|name| (Side::Right, name)));
        for (at, (side, name)) in tabs.enumerate() {
            let zones = *window.app().zones();
            let band = if side == Side::Left { zones.left } else { zones.right };
            click_in(&mut window, band.cut_top(32.0).0, name);
            let view = window.app().view();
            let open = if side == Side::Left { view.left_tab } else { view.right_tab + left.len() };
            assert_eq!(open, at, "{name} at {size:?}");
            assert_eq!(window.app().maximised(), is_low.then_some(side), "{name} at {size:?}");
            window.frames(60);
            window.press(NONE, Key::Escape);
            assert_eq!(window.app().maximised(), None, "{name} at {size:?}");
            if !is_low {
                let before = window.app().zones().timeline;
                double_click(&mut window, band, name);
                assert_eq!(window.app().maximised(), Some(side), "{name}");
                click_on(&mut window, "Smaller");
                assert_eq!(window.app().maximised(), None, "{name}");
                window.frames(60);
                double_click(&mut window, band, name);
                assert_eq!(window.app().maximised(), Some(side), "{name}");
                window.press(NONE, Key::Escape);
                assert_eq!(window.app().maximised(), None, "{name}");
                assert_eq!(window.app().zones().timeline, before, "{name}");
            }
            window.frames(60);
        }
    }
}

/// Two presses at once on the title of a tab.
fn double_click(window: &mut Window, band: Area, name: &str) {
    let (row, _) = band.cut_top(32.0);
    let row = Rect::from_min_size(pos2(row.left, row.top), vec2(row.width, row.height));
    let named = window.harness.query_all_by_label(name);
    let at = named.map(|node| node.rect().center()).find(|at| row.contains(*at)).unwrap();
    window.harness.hover_at(at);
    for _ in 0..2 {
        window.harness.event(pressed(at, true));
        window.harness.event(pressed(at, false));
    }
    window.frames(2);
}

fn pressed(pos: Pos2, pressed: bool) -> egui::Event {
    let button = egui::PointerButton::Primary;
    egui::Event::PointerButton { pos, button, pressed, modifiers: NONE }
}

#[test]
fn the_name_of_a_group_opens_its_rows_and_closes_them() {
    let mut window = Window::open(Opened { scenario: sixty_four_ranks(), ..Opened::default() });
    let name_of = |window: &mut Window, position: u32| {
        let name = format!("stage {position}");
        let written = window.audit().written().to_vec();
        let of = |text: &&shardlab_visualizer::audit::Written| {
            text.zone == "timeline" && text.label.full.starts_with(&name)
        };
        let area = written.iter().find(of).expect("each group has a name").label.area;
        let at = area.centre();
        pos2(at.x, at.y)
    };
    let at = name_of(&mut window, 1);
    window.click(at);
    assert!(window.app().sight().open.contains(&1));
    window.frames(60);
    let at = name_of(&mut window, 1);
    window.click(at);
    assert!(window.app().sight().open.is_empty());
}
