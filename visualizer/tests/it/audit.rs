//! Goal: every text can be read, and every control has a name for those who hear it. Method: draw every
//! part at every size, in both themes, for few and many ranks and for long names, and hold each text to
//! its size, contrast, container and neighbours.

use std::sync::Arc;

use eframe::egui::{Key, Modifiers};
use egui_kittest::kittest::Queryable as _;
use shardlab::config::{Layout, Scenario};
use shardlab::mesh::Rank;
use shardlab::trace::draw::scene::Area;
use shardlab::trace::draw::timeline::Target;
use shardlab::train::driver::{Event, Facts};
use shardlab::train::faults::Fault;
use shardlab_visualizer::app::{Choice, Control, Half};
use shardlab_visualizer::broken::EXHIBITS;
use shardlab_visualizer::keys::Action;
use shardlab_visualizer::panels::FAULTS;
use shardlab_visualizer::play::Mode;
use shardlab_visualizer::shown::{Command, Popup, Workspace};
use shardlab_visualizer::style::{Distance, Scheme};

use crate::window::{Opened, Window, eight_ranks, sixty_four_ranks};

const NONE: Modifiers = Modifiers::NONE;
const SIZES: [((f32, f32), f32); 5] = [
    ((800.0, 480.0), 1.0),
    ((911.0, 512.0), 1.5),
    ((1280.0, 800.0), 1.0),
    ((1920.0, 1080.0), 2.0),
    ((3840.0, 2160.0), 1.0),
];

/// Everything that can be shown, one after the other; all faults.
fn faults(opened: Opened) -> Vec<String> {
    let what = format!(
        "{:?} × {}, {:?}, {:?}, {} ranks",
        opened.size,
        opened.pixels_per_point,
        opened.scheme,
        opened.distance,
        opened.scenario.layout.mesh().size()
    );
    let least = if opened.distance == Distance::Room { 18.0 } else { 12.0 };
    let size = Area::sized(opened.size.0, opened.size.1);
    let mut faults = Vec::new();
    let mut hold = |window: &mut Window, state: &str| {
        window.frames(2);
        let mut found = window.audit().faults(size, least);
        let unnamed = window.harness.unnamed_widgets();
        found.extend(unnamed.into_iter().map(|widget| format!("{widget} has no name")));
        faults.extend(found.into_iter().map(|fault| format!("{what}, {state}: {fault}")));
    };
    let mut window = Window::empty(opened.clone());
    hold(&mut window, "starting");
    let mut window = Window::open(opened);
    let targets = [
        ("nothing", None),
        ("a rank", Some(Target::Rank(Rank(5)))),
        ("a position", Some(Target::Position(1))),
    ];
    let step = window.app().step().unwrap();
    let block = step.timeline.target_at(Rank(0), Default::default(), Default::default());
    let wait = step.timeline.target_at(Rank(4), Default::default(), Default::default());
    for (name, target) in targets.into_iter().chain([("a block", block), ("a wait", wait)]) {
        window.ask(Command::Select(target));
        hold(&mut window, name);
        for tab in 0..8 {
            window.ask(Command::Do(Action::Tab(tab)));
            hold(&mut window, &format!("{name} in tab {tab}"));
        }
        window.ask(Command::Do(Action::Escape));
    }
    let popups = [
        Popup::Scenarios,
        Popup::Split,
        Popup::Palette,
        Popup::Help,
        Popup::Open,
        Popup::Save,
        Popup::OpenSchedule,
        Popup::Export,
    ];
    for popup in popups {
        window.ask(Command::Toggle(popup));
        hold(&mut window, &format!("{popup:?}"));
        window.ask(Command::Close);
    }
    compare(&mut window, block, &mut hold);
    plan(&mut window, &mut hold);
    schedules(&mut window, &mut hold);
    window.ask(Command::Unfold(1));
    hold(&mut window, "an open group");
    window.ask(Command::Menu(Target::Rank(Rank(1)), None));
    hold(&mut window, "the menu of a rank");
    window.ask(Command::Close);
    window.ask(Command::Do(Action::Tab(FAULTS as u8)));
    for kind in EXHIBITS {
        window.press(NONE, Key::Escape);
        window.ask(Command::Do(Action::Tab(FAULTS as u8)));
        let found = window.harness.query_by_label(kind.name()).map(|node| node.rect().center());
        if let Some(at) = found {
            window.click(at);
        }
        hold(&mut window, kind.name());
    }
    break_slowly(&mut window);
    hold(&mut window, "a slow rank");
    faults
}

/// Compare: two steps, what can be chosen, what is refused.
fn compare(window: &mut Window, block: Option<Target>, hold: &mut impl FnMut(&mut Window, &str)) {
    window.ask(Command::Do(Action::Workspace(Workspace::Compare)));
    hold(window, "two steps compared");
    window.ask(Command::Within(Half::Lower, Box::new(Command::Select(block))));
    hold(window, "a block in two steps");
    for popup in [Popup::Half(Half::Upper), Popup::Half(Half::Lower), Popup::SplitOf(Half::Lower)] {
        window.ask(Command::Toggle(popup));
        hold(window, &format!("{popup:?}"));
        window.ask(Command::Close);
    }
    let layout = window.app().run().scenario().layout.clone();
    let refused = Layout { tp: 3, ..layout };
    window.ask(Command::Choose(Half::Upper, Choice::Layout(Box::new(refused))));
    hold(window, "a layout that is being planned");
    while window.app().is_busy() {
        window.frames(1);
    }
    hold(window, "a refused layout in a comparison");
}

/// Plan: what is predicted, and what cannot be.
fn plan(window: &mut Window, hold: &mut impl FnMut(&mut Window, &str)) {
    window.ask(Command::Do(Action::Workspace(Workspace::Plan)));
    hold(window, "a step that is being predicted");
    while window.app().planned().is_predicting() {
        window.frames(1);
    }
    hold(window, "a predicted step");
    window.ask(Command::Foreseen(Box::new(Command::Select(Some(Target::Position(1))))));
    hold(window, "a stage of a predicted step");
    for (control, setting) in [(Control::Tensor, 2), (Control::Chunks, 1), (Control::Pipeline, 13)]
    {
        window.ask(Command::Wish(control, setting));
        hold(window, &format!("{control:?} that cannot be"));
    }
    window.ask(Command::Do(Action::Workspace(Workspace::Watch)));
}

/// Schedules from files.
fn schedules(window: &mut Window, hold: &mut impl FnMut(&mut Window, &str)) {
    for (name, text) in [("good", "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"), ("bad", "0F0,x\n1B0\n")] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("schedule.csv");
        std::fs::write(&path, text).unwrap();
        window.ask(Command::OpenSchedule(path));
        hold(window, &format!("a {name} schedule"));
        window.ask(Command::Close);
    }
}

/// Breaks something and tells that it is broken, as a run does.
fn break_slowly(window: &mut Window) {
    let fault = Fault::SlowRank { rank: Rank(1), factor: 4.0 };
    let at = window.harness.query_by_label(fault.name()).map(|node| node.rect().center());
    if let Some(at) = at {
        window.click(at);
    }
    let facts = window.app().run().facts().unwrap();
    let facts = Facts { faults: vec![fault], ..(**facts).clone() };
    window.tell(Event::Ready(Arc::new(facts)));
    window.ask(Command::Break(fault));
}

fn none(opened: impl IntoIterator<Item = Opened>) {
    let faults: Vec<String> = opened.into_iter().flat_map(faults).collect();
    let shown: Vec<&String> = faults.iter().take(30).collect();
    assert!(faults.is_empty(), "{} faults, the first ones: {shown:#?}", faults.len());
}

fn all(scenario: &Scenario, sizes: &[((f32, f32), f32)]) -> Vec<Opened> {
    let both = [Scheme::Light, Scheme::Dark].into_iter();
    let of = |scheme| {
        sizes.iter().map(move |&(size, pixels_per_point)| Opened {
            size,
            pixels_per_point,
            scheme,
            scenario: scenario.clone(),
            ..Opened::default()
        })
    };
    both.flat_map(of).collect()
}

#[test]
fn eight_ranks_can_be_read_at_every_size_in_both_themes() {
    none(all(&eight_ranks(), &SIZES));
}

#[test]
fn sixty_four_ranks_can_be_read_at_every_size_in_both_themes() {
    none(all(&sixty_four_ranks(), &SIZES));
}

/// Names of at least 300 letters: in words, in squares, and from right to left.
fn long_names() -> [String; 3] {
    ["long name ".repeat(30), "一个很长的场景名字".repeat(34), "שם ארוך מאוד ".repeat(24)]
}

/// What must be reached whatever things are called, by what a screen reader says.
const REACHED: [&str; 6] = [
    "Pause, training as well (Space).",
    "Start of the step (Home).",
    "Live",
    "What is trained: choose another scenario or open a file.",
    "How the model and its batch are cut over the ranks: change the split.",
    "?",
];

/// What is wrong in a window in which everything has a long name: with its texts, and with buttons
/// that are pushed out of it, away or over one another.
fn faults_of_names(opened: Opened) -> Vec<String> {
    let (size, adapter) = (opened.size, opened.adapter.clone());
    let what = format!("{size:?}, {:?}, on {adapter:?}", opened.scheme);
    let mut window = Window::open(opened);
    let mut faults = Vec::new();
    let mut hold = |window: &mut Window, state: &str| {
        window.frames(2);
        let found = window.audit().faults(Area::sized(size.0, size.1), 12.0);
        faults.extend(found.into_iter().map(|fault| format!("{what}, {state}: {fault}")));
    };
    hold(&mut window, "watch");
    for workspace in [Workspace::Compare, Workspace::Plan] {
        window.ask(Command::Do(Action::Workspace(workspace)));
        hold(&mut window, workspace.name());
    }
    window.ask(Command::Do(Action::Workspace(Workspace::Watch)));
    for popup in [Popup::Scenarios, Popup::Split, Popup::Palette, Popup::Export, Popup::Save] {
        window.ask(Command::Toggle(popup));
        hold(&mut window, &format!("{popup:?}"));
        window.ask(Command::Close);
    }
    window.frames(2);
    let mut rects = Vec::new();
    for name in REACHED {
        let rect = window.harness.get_by_label(name).rect();
        let inside = rect.left() >= 0.0 && rect.right() <= size.0 && rect.bottom() <= size.1;
        if !inside || rect.width() < 16.0 || rect.height() < 16.0 {
            faults.push(format!("{what}: {name} at {rect:?}"));
        }
        for (other, before) in &rects {
            if rect.shrink(1.0).intersects(*before) {
                faults.push(format!("{what}: {name} lies on {other}"));
            }
        }
        rects.push((name, rect));
    }
    // They do what they say where they are.
    for (name, popup) in [(REACHED[4], Popup::Split), (REACHED[5], Popup::Help)] {
        window.click(window.harness.get_by_label(name).rect().center());
        let opened = window.app().over().map(|over| over.popup());
        if opened != Some(popup) {
            faults.push(format!("{what}: {name} opens {opened:?}"));
        }
        window.ask(Command::Close);
        window.frames(2);
    }
    window.click(window.harness.get_by_label(REACHED[0]).rect().center());
    if window.app().play().mode() != Mode::Paused {
        faults.push(format!("{what}: it is not paused"));
    }
    if let Some(adapter) = adapter {
        let found = fault_of_adapter(&mut window, &adapter);
        faults.extend(found.map(|fault| format!("{what}: {fault}")));
    }
    faults
}

/// A name that does not fit keeps its beginning and its end.
fn fault_of_adapter(window: &mut Window, adapter: &str) -> Option<String> {
    let written = window.audit().written();
    let device = format!("{adapter}, 8 ranks");
    let found = written.iter().find(|text| text.zone == "top bar" && text.label.full == device);
    // Where the bar is narrow, the device is not in it at all.
    let label = &found?.label;
    let (begin, end) = label.text.split_once('…')?;
    let is_middle = label.full.starts_with(begin) && label.full.ends_with(end);
    (!is_middle || begin.is_empty() || !end.ends_with("8 ranks"))
        .then(|| format!("{:?} is what remains of the device", label.text))
}

#[test]
fn names_of_three_hundred_letters_in_any_script_push_no_button_away_at_any_size() {
    let mut faults = Vec::new();
    for name in long_names() {
        assert!(name.chars().count() >= 300);
        let scenario = Scenario { name: name.clone(), ..eight_ranks() };
        for opened in all(&scenario, &SIZES) {
            faults.extend(faults_of_names(Opened { adapter: Some(name.clone()), ..opened }));
        }
    }
    assert!(faults.is_empty(), "{} faults: {:#?}", faults.len(), &faults[..faults.len().min(30)]);
}

#[test]
fn everything_can_be_read_beside_long_names() {
    for (name, size) in long_names().into_iter().zip([0, 1, 2]) {
        let scenario = Scenario { name: name.clone(), ..eight_ranks() };
        let opened = all(&scenario, &SIZES[size..=size]).into_iter();
        none(opened.map(|opened| Opened { adapter: Some(name.clone()), ..opened }));
    }
}

#[test]
fn the_projector_reads_from_the_last_row() {
    let opened = all(&eight_ranks(), &SIZES[2..4]);
    none(opened.into_iter().map(|opened| Opened { distance: Distance::Room, ..opened }));
}
