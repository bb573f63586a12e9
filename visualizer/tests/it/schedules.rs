//! Goal: a schedule from a file is checked and explained where it is opened, and trains. Method:
//! open good and bad files by keys and by dropping them.

use eframe::egui;
use egui::{Event, Key, Modifiers};
use egui_kittest::kittest::Queryable as _;
use shardlab::config::ScheduleName;
use shardlab_visualizer::app::{Choice, Half};
use shardlab_visualizer::shown::{Command, Popup, Workspace};

use crate::window::{Opened, Window};

const NONE: Modifiers = Modifiers::NONE;
/// 1F1B on two positions, with two microbatches.
const GOOD: &str = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n";
/// Microbatch 1 never comes back, and one cell runs twice.
const BAD: &str = "0F0,0F1,0B0\n1F0,1B0,1F1,1B1,1B1\n";

fn shown(window: &mut Window) -> String {
    let written = window.audit().written().to_vec();
    let of = written.iter().filter(|text| text.zone == "over the window");
    of.map(|text| text.label.full.as_str()).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_good_one_is_explained_compared_and_trained() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.csv");
    std::fs::write(&path, GOOD).unwrap();
    let mut window = Window::open(Opened::default());
    window.press(NONE, Key::J);
    assert_eq!(window.app().over().map(|over| over.popup()), Some(Popup::OpenSchedule));
    window.frames(2);
    window.harness.event(Event::Text(path.display().to_string()));
    window.frames(2);
    window.press(NONE, Key::Enter);
    assert_eq!(window.app().over().map(|over| over.popup()), Some(Popup::Schedule));
    window.frames(2);
    let text = shown(&mut window);
    for part in ["Schedule mine.csv", "This is 1F1B", "33.3 % = (p−1)/(m+p−1)", "FORMULA"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let at = window.harness.get_by_label("Compare it").rect().center();
    window.click(at);
    assert_eq!(window.app().view().workspace, Workspace::Compare);
    let Choice::Layout(layout) = window.app().compared().choice(Half::Lower).clone() else {
        panic!("a layout is below")
    };
    assert_eq!((layout.pp, layout.microbatches), (2, 2));
    while window.app().is_busy() {
        window.frames(1);
    }
    window.frames(2);
    let lower = window.app().compared().held(Half::Lower).expect("it is laid out");
    assert_eq!(lower.name, "mine.csv, 2 microbatches");
    window.ask(Command::OpenSchedule(path.clone()));
    window.frames(2);
    let at = window.harness.get_by_label("Train it").rect().center();
    window.click(at);
    let ScheduleName::File(file) = &window.app().run().scenario().layout.schedule else {
        panic!("the file's schedule is trained")
    };
    assert_eq!(file, &path);
}

#[test]
fn a_bad_one_says_all_that_is_wrong_and_offers_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.csv");
    std::fs::write(&path, BAD).unwrap();
    let mut window = Window::open(Opened::default());
    window.ask(Command::OpenSchedule(path));
    window.frames(2);
    let text = shown(&mut window);
    assert!(text.contains("stage 0") && text.contains("stage 1"), "{text}");
    assert!(window.harness.query_by_label("Train it").is_none());
    window.press(NONE, Key::Escape);
    assert!(window.app().over().is_none());
    window.ask(Command::OpenSchedule(folder.path().join("nothing.csv")));
    window.frames(2);
    assert!(shown(&mut window).contains("nothing.csv"));
}
