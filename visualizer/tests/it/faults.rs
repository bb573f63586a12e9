//! Goal: what is broken on purpose is noticed by who should notice it, is mended without a trace, and
//! never takes the window along. Method: break a tiny run in every way, by clicks and by keys.

use std::time::Duration;

use eframe::egui;
use egui::{Event, Key, Modifiers, PointerButton, Pos2, pos2};
use egui_kittest::kittest::{NodeT as _, Queryable as _};
use shardlab::config::{Layout, Model, ModelSource, OptimizerKind, Scenario};
use shardlab::mesh::{Axis, Rank};
use shardlab::trace::draw::timeline::Target;
use shardlab::train::Options;
use shardlab::train::faults::{Examination, Fault, Steps};
use shardlab_visualizer::app::{App, Source, Start};
use shardlab_visualizer::broken::{Clip, EXHIBITS, Under, Verdict};
use shardlab_visualizer::keys::Action;
use shardlab_visualizer::panels::FAULTS;
use shardlab_visualizer::play::Mode;
use shardlab_visualizer::run::State;
use shardlab_visualizer::saved::{Saved, View};
use shardlab_visualizer::shown::{Command, Popup};
use shardlab_visualizer::style::Distance;

use crate::window::{Opened, Window, eight_ranks, harness};

const NONE: Modifiers = Modifiers::NONE;
const STEPS: u64 = 6;

/// Four ranks in which everything can be broken.
fn everything() -> Scenario {
    let small = eight_ranks();
    let model = Model { tie_word_embeddings: true, ..Model::preset("tiny").unwrap() };
    let (dp, tp, microbatches) = (2, 2, 2);
    let layout = Layout { dp, tp, microbatches, sequence_parallel: true, ..Layout::default() };
    let mut scenario = Scenario { model: ModelSource::Sizes(model), layout, ..small };
    scenario.training.steps = STEPS;
    scenario.training.batch = 8;
    scenario
}

fn open(scenario: Scenario, store: Option<std::path::PathBuf>) -> Window {
    let start = Start {
        scenario,
        options: Options::on_cpu(),
        view: View { left_tab: FAULTS, ..View::default() },
        store,
        source: Source::Trained,
        notes: Vec::new(),
    };
    let mut window = Window { harness: harness(start, (1280.0, 800.0), 1.0, None) };
    window.audit().switch_on();
    until(&mut window, "a step is shown", |app| app.step().is_some());
    window
}

fn until(window: &mut Window, what: &str, is_so: impl Fn(&App) -> bool) {
    for _ in 0..6000 {
        window.frames(1);
        if is_so(window.app()) {
            window.frames(2);
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{what}: never within half a minute: {:?}", window.app().run().state());
}

fn is_done(app: &App) -> bool {
    matches!(app.run().state(), State::Done)
}

fn answer(app: &App) -> Option<Examination> {
    match app.broken().verdict() {
        Some(Verdict::Given(examination)) => Some((**examination).clone()),
        Some(Verdict::Failed(why)) => panic!("{why}"),
        Some(Verdict::Asked) | None => None,
    }
}

/// Waits for both judges, and until the run has done what it can.
fn judged(window: &mut Window) -> Examination {
    until(window, "the judges answer", |app| answer(app).is_some());
    until(window, "the run ends", |app| {
        matches!(app.run().state(), State::Done | State::NotFinite { .. } | State::Hang { .. })
    });
    answer(window.app()).unwrap()
}

fn click_on(window: &mut Window, label: &str) {
    let at = window.harness.get_by_label(label).rect().center();
    window.click(at);
}

fn break_by_clicks(window: &mut Window, kind: Fault) {
    click_on(window, kind.name());
    click_on(window, "Break it");
}

fn break_by_keys(window: &mut Window, words: &str) {
    window.press(Modifiers::COMMAND, Key::K);
    window.frames(2);
    window.harness.event(Event::Text(words.to_owned()));
    window.frames(2);
    window.press(NONE, Key::Enter);
}

/// What a screen reader reads of the judges in the tab.
fn read(window: &Window) -> Vec<String> {
    let labels = window.harness.get_all_by_role(egui::accesskit::Role::Label);
    labels.filter_map(|node| node.accesskit_node().value()).collect()
}

fn losses(window: &Window) -> Vec<(u64, u64)> {
    window.app().run().losses().iter().map(|(step, loss)| (*step, loss.to_bits())).collect()
}

fn expect(window: &mut Window, kind: Fault) {
    let Examination { checker, steps } = judged(window);
    let texts = read(window);
    let said = |name: &str| {
        let found = texts.iter().find(|text| text.starts_with(name));
        found.unwrap_or_else(|| panic!("{kind:?}: {name} in {texts:#?}")).clone()
    };
    let line = window.explanation();
    match kind {
        Fault::SlowRank { .. } | Fault::SlowLink { .. } => {
            let Steps::Compared(found) = steps else { panic!("{steps:?}") };
            assert!(found.pass && checker.is_empty());
            assert!(said("Checker").contains("only runs late"));
            assert!(said("3 steps, SGD").contains("equal one rank"));
        }
        Fault::Poison { .. } => {
            assert!(matches!(steps, Steps::NotFinite { .. }) && checker.is_empty());
            assert!(line.contains("first non-finite number on rank"), "{line}");
            assert!(said("3 steps, SGD").contains("first non-finite number"));
        }
        Fault::SkipMessage { .. } => {
            assert!(matches!(steps, Steps::Hang { .. }));
            assert!(!checker.is_empty() && said("Checker").contains("finds it"));
            assert!(line.contains("never sent") && line.contains("wait"), "{line}");
            assert!(said("3 steps, SGD").contains("never sent"));
        }
        _ => {
            let Steps::Compared(found) = steps else { panic!("{kind:?}: {steps:?}") };
            assert!(!found.pass && checker.is_empty(), "{kind:?}: {found:?}");
            assert!(said("Checker").contains("legal, but wrong"));
            let three = said("3 steps, SGD");
            assert!(three.contains("differ: gradients by") && three.contains("First: "), "{three}");
            assert!(said("This run").contains("weights differ by"), "{texts:?}");
            let apart = |app: &App| {
                let all = app.run().differences().iter().zip(app.run().losses());
                all.filter(|((_, one), (_, own))| (one.loss - own).abs() > 1e-6).count()
            };
            assert!(apart(window.app()) > 0, "{kind:?}: the run is seen to differ from one rank");
        }
    }
    assert!(line.chars().count() <= 120, "{line}");
    assert!(window.app().broken().like(kind).is_some());
}

/// The words by which the palette finds what breaks something.
fn words(kind: Fault) -> String {
    match kind {
        Fault::SlowRank { .. } => "Slow rank 0 ×4".into(),
        Fault::SlowLink { .. } => "Slow wire 0 → 1: each message 1 ms".into(),
        Fault::Poison { .. } => "Poison rank 0".into(),
        Fault::SkipMessage { .. } => "Skip a message of rank 0".into(),
        museum => format!("Break: {}", museum.name()),
    }
}

#[test]
fn every_fault_is_broken_by_clicks_and_mended_by_a_key() {
    let mut window = open(everything(), None);
    for kind in EXHIBITS {
        let timeline = window.app().zones().timeline;
        break_by_clicks(&mut window, kind);
        expect(&mut window, kind);
        assert_eq!(window.app().zones().timeline, timeline, "nothing moves");
        window.press(NONE, Key::M);
        assert!(window.app().broken().is_empty());
        until(&mut window, "the mended run trains to its end", is_done);
        assert!(!window.explanation().contains("Broken"), "{}", window.explanation());
    }
    assert_eq!(window.app().run().scenario(), &everything());
}

#[test]
fn every_fault_is_broken_by_keys_alone_and_mended_by_a_click() {
    let mut window = open(everything(), None);
    for kind in EXHIBITS {
        if let Fault::SlowLink { .. } = kind {
            let (from, to, axis) = (Rank(0), Rank(1), Axis::Tp);
            window.ask(Command::Select(Some(Target::Link { from, to, axis })));
        }
        break_by_keys(&mut window, &words(kind));
        assert!(window.app().broken().like(kind).is_some(), "{}", words(kind));
        click_on(&mut window, kind.name());
        expect(&mut window, kind);
        // One in the tab, and one at the end of the line that explains unless a step has failed.
        let buttons: Vec<Pos2> =
            window.harness.get_all_by_label("Mend it").map(|node| node.rect().center()).collect();
        assert!((1..=2).contains(&buttons.len()));
        window.click(buttons[0]);
        assert!(window.app().broken().is_empty(), "{kind:?}");
        until(&mut window, "the mended run trains to its end", is_done);
        window.press(NONE, Key::Escape);
    }
}

#[test]
fn a_mended_run_equals_one_that_was_never_broken_to_the_bit() {
    let mut window = open(everything(), None);
    until(&mut window, "all steps are trained", is_done);
    let right = losses(&window);
    assert_eq!(right.len() as u64, STEPS);
    // From the beginning.
    break_by_keys(&mut window, &words(Fault::RepeatRows));
    judged(&mut window);
    assert_ne!(losses(&window), right);
    window.press(NONE, Key::M);
    until(&mut window, "all steps are trained", is_done);
    assert_eq!(losses(&window), right);
    // As it stands, in the middle: a step that hangs leaves no trace, nor does one that is late.
    for kind in [EXHIBITS[3], EXHIBITS[2], EXHIBITS[0]] {
        let mut window = open(everything(), None);
        break_by_keys(&mut window, &words(kind));
        judged(&mut window);
        window.press(NONE, Key::M);
        until(&mut window, "all steps are trained", is_done);
        let all = losses(&window);
        assert_eq!(all[..right.len()], right, "{kind:?}");
    }
}

#[test]
fn after_a_failed_step_one_goes_back_or_opens_its_block() {
    let mut window = open(everything(), None);
    break_by_keys(&mut window, &words(EXHIBITS[2]));
    judged(&mut window);
    for label in ["Step back", "Restart", "Open the block"] {
        assert!(window.harness.query_by_label(label).is_some(), "{label}");
    }
    window.press(NONE, Key::O);
    let chosen = window.app().sight().selection;
    assert!(matches!(chosen, Some(Target::Block { rank: Rank(0), .. })), "{chosen:?}");
    let trained = window.app().run().trained();
    window.press(NONE, Key::U);
    until(&mut window, "the run holds", |app| matches!(app.run().state(), State::Held));
    assert_eq!(window.app().run().trained(), trained);
    assert_eq!(window.app().play().mode(), Mode::Paused);
    window.press(NONE, Key::Escape);
    // It is broken still: going on fails again, restarting does not.
    window.press(NONE, Key::Space);
    until(&mut window, "it fails again", |app| {
        matches!(app.run().state(), State::NotFinite { .. })
    });
    click_on(&mut window, "Restart");
    assert!(window.app().broken().is_empty());
    until(&mut window, "all steps are trained", is_done);
}

#[test]
fn adam_hides_a_gradient_that_is_too_large_and_the_tab_says_so() {
    let mut window = open(everything(), None);
    break_by_clicks(&mut window, Fault::ForgetDivision);
    judged(&mut window);
    click_on(&mut window, "AdamW");
    let adam = Under { optimizer: OptimizerKind::AdamW, ..Under::default() };
    assert_eq!(window.app().broken().under(), adam);
    judged(&mut window);
    let texts = read(&window);
    let said = texts.iter().find(|text| text.starts_with("3 steps, AdamW")).unwrap();
    assert!(said.contains("it hides"), "{said}");
    assert_eq!(Under::of(&window.app().run().scenario().training), adam);
}

/// Whether a training hides a fault of the museum in its weights, by the maths: a constant factor of
/// all gradients drops out where their size is divided out, by Adam and by a clip that acts. What
/// points into another direction stays wrong under each of them.
fn hides(fault: Fault, under: Under) -> bool {
    let is_scaled = matches!(fault, Fault::ForgetDivision | Fault::ScaleByMicrobatches);
    is_scaled && (under.optimizer == OptimizerKind::AdamW || under.clip == Clip::On)
}

#[test]
fn what_each_optimizer_hides_of_each_fault_of_the_museum_is_what_the_maths_says() {
    let sgd = Under::default();
    let clipped = Under { clip: Clip::On, ..sgd };
    let adam = Under { optimizer: OptimizerKind::AdamW, ..sgd };
    let mut window = open(everything(), None);
    for fault in Fault::MUSEUM {
        window.ask(Command::Under(sgd));
        break_by_clicks(&mut window, fault);
        for under in [sgd, adam, clipped] {
            window.ask(Command::Under(under));
            let Examination { checker, steps } = judged(&mut window);
            let what = format!("{fault:?} under {under}");
            let Steps::Compared(found) = steps else { panic!("{what}: {steps:?}") };
            let [allowed, allowed_weights] = found.tolerance;
            // Whatever the weights say: the Plan is legal, and the gradients are wrong.
            assert!(checker.is_empty() && !found.pass, "{what}: {found:?}");
            assert!(found.grad_rel_max > 100.0 * allowed, "{what}: {found:?}");
            let is_hidden = found.final_rel_max <= allowed_weights;
            assert_eq!(is_hidden, hides(fault, under), "{what}: {found:?}");
            // Two replicas and two microbatches: twice as large.
            let is_scaled = matches!(fault, Fault::ForgetDivision | Fault::ScaleByMicrobatches);
            if is_scaled {
                assert!((found.grad_rel_max - 1.0).abs() < 0.2, "{what}: {found:?}");
            }
            let texts = read(&window);
            let name = format!("3 steps, {under}");
            let said = texts.iter().find(|text| text.starts_with(&name));
            let said = said.unwrap_or_else(|| panic!("{name} in {texts:#?}"));
            assert_eq!(said.contains("it hides"), is_hidden, "{what}: {said}");
        }
        window.press(NONE, Key::M);
        until(&mut window, "the mended run trains to its end", is_done);
    }
}

#[test]
fn a_layout_that_cannot_show_a_fault_says_why_and_offers_one_that_can() {
    let mut alone = everything();
    alone.layout = Layout::default();
    let mut window = open(alone, None);
    for kind in [EXHIBITS[1], EXHIBITS[3]] {
        click_on(&mut window, kind.name());
        assert!(window.harness.query_by_label("Break it").is_none(), "{kind:?}");
        let offered = window.harness.get_all_by_label("Change the split").count();
        assert!(offered > 0, "{kind:?}");
    }
    click_on(&mut window, Fault::SplitNorms.name());
    let written = window.audit().written().to_vec();
    assert!(written.iter().any(|text| text.label.full.contains("cannot be shown here")));
    click_on(&mut window, "Train with sequence parallel, tensor 2");
    until(&mut window, "the other layout trains", |app| app.step().is_some());
    let layout = &window.app().run().scenario().layout;
    assert_eq!((layout.tp, layout.sequence_parallel), (2, true));
    click_on(&mut window, "Break it");
    assert!(window.app().broken().like(Fault::SplitNorms).is_some());
    judged(&mut window);
}

fn press_other_button(window: &mut Window, pos: Pos2) {
    window.harness.hover_at(pos);
    window.frames(1);
    for pressed in [true, false] {
        let button = PointerButton::Secondary;
        window.harness.event(Event::PointerButton { pos, button, pressed, modifiers: NONE });
        window.frames(1);
    }
    window.frames(2);
}

#[test]
fn rows_and_wires_have_a_menu_by_pointer_and_by_key() {
    let mut window = open(everything(), None);
    until(&mut window, "all steps are trained", is_done);
    let zone = window.app().zones().timeline;
    press_other_button(&mut window, pos2(zone.left + 20.0, zone.top + 60.0));
    assert_eq!(window.app().over().map(|over| over.popup()), Some(Popup::Break));
    for name in ["Slow rank 0 ×2", "Slow rank 0 ×4", "Poison rank 0 with NaN"] {
        assert!(window.harness.query_by_label(name).is_some(), "{name}");
    }
    window.press(NONE, Key::ArrowDown);
    window.press(NONE, Key::Enter);
    let slow = Fault::SlowRank { rank: Rank(0), factor: 4.0 };
    assert_eq!(window.app().broken().faults(), [slow]);
    assert_eq!(window.app().over().map(|over| over.popup()), None);
    judged(&mut window);
    // The same for what is chosen, by a key.
    window.press(NONE, Key::M);
    window.ask(Command::Select(Some(Target::Rank(Rank(3)))));
    window.press(NONE, Key::B);
    window.press(NONE, Key::Enter);
    assert_eq!(window.app().broken().faults(), [Fault::SlowRank { rank: Rank(3), factor: 2.0 }]);
    window.press(NONE, Key::M);
    // A wire: wherever one lies in its tab.
    window.press(NONE, Key::Num1);
    until(&mut window, "all steps are trained", is_done);
    let zone = window.app().zones().left;
    let places = (0..20).flat_map(|row| (0..40).map(move |column| (row, column)));
    for (row, column) in places {
        let at = pos2(
            zone.left + zone.width * (column as f32 + 0.5) / 40.0,
            zone.top + 32.0 + (zone.height - 32.0) * (row as f32 + 0.5) / 20.0,
        );
        window.hover(at.x, at.y);
        if let Some(Target::Link { from, to, .. }) = window.app().sight().hover {
            press_other_button(&mut window, at);
            window.press(NONE, Key::Enter);
            let broken = window.app().broken().faults();
            assert!(
                matches!(broken, [Fault::SlowLink { from: a, to: b, .. }] if (*a, *b) == (from, to)),
                "{broken:?}"
            );
            judged(&mut window);
            return;
        }
    }
    panic!("no wire is under the pointer anywhere in its tab");
}

#[test]
fn nothing_is_remembered_as_broken_when_the_app_starts_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("visualizer.toml");
    let mut window = open(everything(), Some(path.clone()));
    break_by_keys(&mut window, &words(Fault::RepeatRows));
    judged(&mut window);
    assert_ne!(window.app().run().scenario(), &everything(), "it is trained under SGD");
    // Any action writes the file.
    window.press(NONE, Key::N);
    let (saved, warnings) = Saved::read(&path).unwrap();
    assert_eq!((saved.scenario, warnings), (everything(), Vec::new()));
    assert!(!std::fs::read_to_string(&path).unwrap().contains("repeat"));
}

#[test]
fn the_keyboard_reaches_every_fault_also_where_the_list_is_longer_than_its_place() {
    let mut window = Window::open(Opened {
        size: (800.0, 480.0),
        distance: Distance::Room,
        ..Opened::default()
    });
    window.ask(Command::Do(Action::Tab(FAULTS as u8)));
    window.frames(2);
    let in_sight = |window: &Window| {
        EXHIBITS.iter().filter(|kind| window.harness.query_by_label(kind.name()).is_some()).count()
    };
    assert!(in_sight(&window) < EXHIBITS.len(), "the list is longer than its place");
    let mut reached: Vec<&str> = Vec::new();
    for _ in 0..80 {
        window.press(NONE, Key::Tab);
        for kind in EXHIBITS {
            let node = window.harness.query_by_label(kind.name());
            if node.is_some_and(|node| node.accesskit_node().is_focused()) {
                reached.push(kind.name());
            }
        }
    }
    reached.sort_unstable();
    reached.dedup();
    assert_eq!(reached.len(), EXHIBITS.len(), "{reached:?}");
}
