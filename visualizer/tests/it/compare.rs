//! Goal: Compare shows two steps on one scale, and what it says of them is what their times say.
//! Method: hold every number against the Traces, and drive everything by keys alone.

use std::time::Duration;

use eframe::egui;
use egui::{Event, Key, Modifiers};
use shardlab::config::{Layout, ScheduleName};
use shardlab::trace::Badge;
use shardlab::trace::bubble::bubble;
use shardlab::trace::draw::scene::Shape;
use shardlab_visualizer::app::{Choice, Half};
use shardlab_visualizer::audit::Written;
use shardlab_visualizer::shown::{Command, Popup, Workspace};

use crate::window::{Opened, Window, eight_ranks, sixty_four_ranks};

const NONE: Modifiers = Modifiers::NONE;

/// A window that compares.
fn comparing(opened: Opened) -> Window {
    let mut window = Window::open(opened);
    window.press(NONE, Key::F3);
    assert_eq!(window.app().view().workspace, Workspace::Compare);
    window
}

/// Waits until what is planned beside the window is here.
fn settle(window: &mut Window) {
    for _ in 0..2000 {
        window.frames(1);
        if !window.app().is_busy() {
            window.frames(2);
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("it is still planned");
}

fn texts(window: &mut Window, zone: &str) -> Vec<String> {
    let written = window.audit().written().to_vec();
    let of = written.iter().filter(|text| text.zone == zone);
    of.map(|text| text.label.full.clone()).collect()
}

/// Chooses an entry of the list that is open, by its name and with keys.
fn choose(window: &mut Window, name: &str) {
    let entries = texts(window, "over the window");
    let index = entries.iter().position(|entry| entry == name);
    // Keys begin at what is chosen already.
    for _ in &entries {
        window.press(NONE, Key::ArrowUp);
    }
    for _ in 0..index.unwrap_or_else(|| panic!("{name} is none of {entries:?}")) {
        window.press(NONE, Key::ArrowDown);
    }
    window.press(NONE, Key::Enter);
    settle(window);
}

#[test]
fn at_first_it_holds_the_measured_step_against_the_replayed_one_and_says_so() {
    let mut window = comparing(Opened::default());
    let compared = window.app().compared();
    assert_eq!(
        Half::BOTH.map(|half| compared.choice(half).clone()),
        [Choice::Measured, Choice::Replayed]
    );
    let both = compared.difference().expect("both are here");
    assert_eq!([both.upper.badge, both.lower.badge], [Badge::Measured, Badge::Replayed]);
    let step = window.app().step().unwrap();
    let measured = window.app().run().measured(step.number()).unwrap();
    assert_eq!(both.upper.length(), measured.end());
    assert_eq!(both.lower.length(), step.timeline.end());
    let line = window.explanation();
    assert!(line.contains(". Above: 8 ranks take turns on 1 device. Below: the same"), "{line}");
    assert!(line.chars().count() <= 120, "{line}");
}

#[test]
fn the_strip_says_the_difference_of_the_two_traces() {
    let mut window = comparing(Opened::default());
    let app = window.app();
    let step = app.step().unwrap();
    let (plan, measured) = (&step.facts.plan, app.run().measured(step.number()).unwrap());
    let (above, below) = (measured.end(), step.timeline.end());
    let waits = [measured, step.timeline.trace()]
        .map(|trace| 100.0 * bubble(plan, trace).waiting_over_span);
    let sign = if below < above { "−" } else { "+" };
    let mut ends = [above, below];
    ends.sort_unstable();
    let change = format!("{sign}{}", ends[1] - ends[0]);
    let peak = step.facts.ledger.ranks.iter().map(|rank| rank.memory.peak()).max().unwrap();
    let strip = texts(&mut window, "difference");
    let has = |text: &str| assert!(strip.iter().any(|other| other == text), "{text}: {strip:?}");
    has(&change);
    assert!(strip.iter().any(|text| text.starts_with(&format!("{above} → {below}"))), "{strip:?}");
    has(&format!("{:.1} → {:.1} %", waits[0], waits[1]));
    has(&format!("{peak} → {peak}"));
    has("MEASURED → REPLAYED");
    has("COUNTED");
    // Every time and share stands in a tile that says where it is from.
    assert_eq!(strip.iter().filter(|text| text.contains("MEASURED")).count(), 2, "{strip:?}");
}

#[test]
fn both_timelines_have_one_scale_and_one_playhead() {
    let mut window = comparing(Opened::default());
    window.press(NONE, Key::Space);
    window.press(NONE, Key::Home);
    let end = window.app().compared().end();
    let both = window.app().compared().difference().unwrap();
    assert!(end >= both.upper.length().max(both.lower.length()));
    assert_eq!(window.app().play().shown().unwrap().length, {
        let both = window.app().compared().difference().unwrap();
        both.upper.length().max(both.lower.length())
    });
    let ticks = |window: &mut Window, zone| -> Vec<String> {
        let number = |text: &String| text.starts_with(|c: char| c.is_ascii_digit());
        let mut ticks: Vec<String> = texts(window, zone).into_iter().filter(number).collect();
        ticks.retain(|text| text.ends_with("ms") || text.parse::<f64>().is_ok());
        ticks
    };
    // Rows have numbers too, the same in both.
    let [above, below] = ["compare above", "compare below"].map(|zone| ticks(&mut window, zone));
    assert!(above.len() > 8, "{above:?}");
    // The badge at the end may cover one tick more of one than of the other.
    assert!(above.len().abs_diff(below.len()) <= 1, "{above:?} {below:?}");
    assert!(above.iter().zip(&below).all(|(above, below)| above == below), "{above:?} {below:?}");
    // Zooming in one is zooming in both.
    window.press(NONE, Key::W);
    let windows = Half::BOTH.map(|half| window.app().compared().sight(half).window);
    assert!(windows[0].is_some() && windows[0] == windows[1]);
    window.press(NONE, Key::Num0);
    assert_eq!(window.app().compared().sight(Half::Lower).window, None);
    let before = window.app().play().playhead();
    window.press(NONE, Key::ArrowRight);
    assert!(window.app().play().playhead() > before);
}

#[test]
fn another_schedule_is_planned_and_laid_out_from_the_measured_pieces() {
    let mut window = comparing(Opened::default());
    window.press(NONE, Key::E);
    assert_eq!(window.app().over().map(|over| over.popup()), Some(Popup::Half(Half::Lower)));
    choose(&mut window, "Schedule: GPipe");
    let both = window.app().compared().difference().expect("it has been planned");
    assert_eq!((both.lower.name.as_str(), both.lower.badge), ("GPipe", Badge::Replayed));
    let trained = window.app().run().scenario().layout.clone();
    let wanted = Layout { schedule: ScheduleName::GPipe, ..trained };
    assert_eq!(
        window.app().compared().choice(Half::Lower),
        &Choice::Layout(Box::new(wanted.clone()))
    );
    // More microbatches in flight need more memory, and not one byte more is sent.
    assert!(both.lower.peak.0 > both.upper.peak.0);
    assert_eq!(both.lower.sent, both.upper.sent);
    assert!(texts(&mut window, "compare below").contains(&"Below: GPipe".to_owned()));
    // Another cut has pieces of other sizes: those times are predicted, and say so.
    let cut = Layout { tp: 1, dp: 4, ..wanted };
    window.ask(Command::Choose(Half::Upper, Choice::Layout(Box::new(cut))));
    settle(&mut window);
    let both = window.app().compared().difference().unwrap();
    assert_eq!([both.upper.badge, both.lower.badge], [Badge::Predicted, Badge::Replayed]);
    assert!(texts(&mut window, "difference").contains(&"PREDICTED → REPLAYED".to_owned()));
    let line = window.explanation();
    assert!(line.contains(". Above: data 4 × tensor 1"), "{line}");
    assert!(line.chars().count() <= 120, "{line}");
}

#[test]
fn what_cannot_run_says_why_where_it_would_stand() {
    let mut window = comparing(Opened::default());
    let layout = window.app().run().scenario().layout.clone();
    let refused = Layout { tp: 3, ..layout };
    window.ask(Command::Choose(Half::Lower, Choice::Layout(Box::new(refused))));
    settle(&mut window);
    let why = window.app().compared().refusal(Half::Lower).expect("it is refused").to_owned();
    assert!(why.contains("cannot be split over 3 tensor ranks"), "{why}");
    let written = texts(&mut window, "compare below").join(" ");
    assert!(written.contains(&why), "{written}");
    // The other one stays.
    assert!(window.app().compared().held(Half::Upper).is_some());
    assert!(window.app().compared().difference().is_none());
}

#[test]
fn a_pinned_step_outlives_its_run_and_the_two_change_places() {
    let mut window = Window::open(Opened::default());
    window.press(NONE, Key::H);
    let line = window.explanation();
    assert!(line.contains("is pinned"), "{line}");
    let length = window.app().step().unwrap().timeline.end();
    window.press(Modifiers::COMMAND, Key::R);
    assert!(window.app().step().is_none(), "another run");
    for event in crate::window::recording(&eight_ranks()) {
        window.tell(event.clone());
    }
    window.frames(3);
    window.press(NONE, Key::Q);
    assert_eq!(window.app().view().workspace, Workspace::Compare);
    let entries = texts(&mut window, "over the window");
    let pinned = entries.iter().find(|entry| entry.starts_with("Pinned step")).cloned();
    choose(&mut window, &pinned.expect("it is offered"));
    let upper = window.app().compared().held(Half::Upper).unwrap();
    assert_eq!(upper.length(), length);
    assert!(upper.name.starts_with("pinned step 12: data 2"), "{}", upper.name);
    window.press(NONE, Key::T);
    let lower = window.app().compared().held(Half::Lower).unwrap();
    assert!(lower.name.starts_with("pinned"), "{}", lower.name);
}

#[test]
fn a_block_is_chosen_in_both_and_its_two_lengths_are_told() {
    let mut window = comparing(Opened::default());
    window.press(NONE, Key::Space);
    window.press(NONE, Key::Home);
    window.press(NONE, Key::ArrowDown);
    // Ranks may wait for their turn just now: sooner or later one works.
    let works = |window: &mut Window| window.explanation().contains("MEASURED → REPLAYED");
    for _ in 0..40 {
        if works(&mut window) {
            break;
        }
        window.press(NONE, Key::ArrowRight);
        window.press(NONE, Key::ArrowDown);
    }
    let line = window.explanation();
    assert!(line.contains("above") && line.contains("MEASURED → REPLAYED"), "{line}");
    let sights = Half::BOTH.map(|half| window.app().compared().sight(half).selection);
    assert!(sights[0].is_some() && sights[0] == sights[1], "{sights:?}");
    window.press(NONE, Key::Escape);
    assert_eq!(window.app().compared().sight(Half::Upper).selection, None);
    // A tab belongs to the run.
    window.press(NONE, Key::Num2);
    assert_eq!(window.app().view().workspace, Workspace::Watch);
    window.press(NONE, Key::F3);
    window.press(NONE, Key::F2);
    assert_eq!(window.app().view().workspace, Workspace::Watch);
}

#[test]
fn the_palette_finds_the_workspace_and_a_file_keeps_it() {
    let mut window = Window::open(Opened::default());
    window.press(Modifiers::COMMAND, Key::K);
    window.frames(2);
    window.harness.event(Event::Text("compare two".to_owned()));
    window.frames(2);
    window.press(NONE, Key::Enter);
    assert_eq!(window.app().view().workspace, Workspace::Compare);
    assert_eq!(window.app().saved().view.unwrap().workspace, Workspace::Compare);
}

#[test]
fn a_paused_comparison_stands_still_and_asks_for_no_frame() {
    let mut window = comparing(Opened::default());
    window.press(NONE, Key::Space);
    window.assert_stands_still(30);
}

#[test]
fn sixty_four_ranks_are_groups_in_both() {
    let opened = Opened { scenario: sixty_four_ranks(), ..Opened::default() };
    let mut window = comparing(opened);
    for zone in ["compare above", "compare below"] {
        let written = texts(&mut window, zone);
        let groups = written.iter().filter(|text| text.contains("16 ranks")).count();
        assert_eq!(groups, 4, "{zone}: {written:?}");
    }
}

#[test]
fn what_is_compared_is_kept_and_planned_again_when_the_window_opens() {
    let mut window = comparing(Opened::default());
    window.press(NONE, Key::E);
    choose(&mut window, "Schedule: GPipe");
    window.press(NONE, Key::T);
    let view = window.app().saved().view.expect("a view");
    let gpipe = |choice: &Choice| match choice {
        Choice::Layout(layout) => layout.schedule == ScheduleName::GPipe,
        _ => false,
    };
    assert!(gpipe(&view.compare.above) && view.compare.below == Choice::Measured);
    // A pin is of the open window alone.
    window.press(NONE, Key::H);
    window.ask(Command::Choose(Half::Lower, Choice::Pinned(0)));
    assert_eq!(window.app().saved().view.unwrap().compare.below, Choice::Replayed);
    let mut again = Window::open(Opened { view, ..Opened::default() });
    assert_eq!(again.app().view().workspace, Workspace::Compare);
    settle(&mut again);
    let upper = again.app().compared().held(Half::Upper).expect("it was planned");
    assert_eq!(upper.name, "GPipe");
    assert!(again.app().compared().difference().is_some());
}

#[test]
fn a_small_window_has_a_name_for_each_of_sixty_four_ranks_four_stages_in_both() {
    let opened = Opened { size: (800.0, 480.0), scenario: sixty_four_ranks(), ..Opened::default() };
    let mut window = comparing(opened);
    for zone in ["compare above", "compare below"] {
        let found = texts(&mut window, zone);
        for stage in 0..4 {
            let name = format!("stage {stage} · 16 ranks");
            assert!(found.contains(&name), "{zone}: {found:?}");
        }
    }
    // Where rows do go on below the edge, a bar says so.
    window.audit().keep_scenes();
    let faint = window.app().look().theme.faint;
    let bars = |window: &mut Window| {
        window.frames(2);
        let scenes = window.audit().scenes();
        let shapes = scenes.iter().flat_map(|painted| &painted.scene.shapes);
        let is_bar = |shape: &&Shape| match shape {
            Shape::Fill { area, fill, .. } => {
                *fill == faint && area.left > 793.0 && area.height > 10.0
            }
            _ => false,
        };
        shapes.filter(is_bar).count()
    };
    assert_eq!(bars(&mut window), 0);
    window.ask(Command::Within(Half::Upper, Box::new(Command::Unfold(1))));
    assert_eq!(bars(&mut window), 2, "one in each half");
}

#[test]
fn the_list_of_a_half_hangs_below_its_name_whichever_workspace_it_is_asked_from() {
    for workspace in [Key::F2, Key::F3, Key::F4] {
        let mut window = Window::open(Opened::default());
        window.press(NONE, workspace);
        for (key, half) in [(Key::Q, Half::Upper), (Key::E, Half::Lower)] {
            window.press(NONE, key);
            let written = window.audit().written().to_vec();
            let place = |is_it: &dyn Fn(&Written) -> bool| {
                let of = written.iter().filter(|text| is_it(text)).map(|text| text.label.area);
                of.min_by(|a, b| a.top.total_cmp(&b.top)).expect("it is written")
            };
            let word = format!("{}: ", half.word());
            let name = place(&|text| text.label.full.starts_with(&word));
            let list = place(&|text| text.zone == "over the window");
            // The lower one is as long as the room below its name, and may be pushed up.
            let is_below = list.top > name.top || half == Half::Lower;
            assert!(is_below && list.top > 100.0, "{workspace:?} {key:?}: {list:?}");
            assert!((list.left - name.left).abs() < 40.0, "{workspace:?} {key:?}: {list:?}");
            window.press(NONE, Key::Escape);
        }
    }
}

#[test]
fn an_open_list_gives_way_to_another_workspace() {
    let mut window = comparing(Opened::default());
    for (key, workspace) in [(Key::F2, Workspace::Watch), (Key::F4, Workspace::Plan)] {
        window.press(NONE, Key::Q);
        assert_eq!(window.app().over().map(|over| over.popup()), Some(Popup::Half(Half::Upper)));
        window.press(NONE, key);
        assert!(window.app().over().is_none());
        assert_eq!(window.app().view().workspace, workspace);
    }
}

#[test]
fn one_legend_explains_what_either_half_shows() {
    let mut window = comparing(Opened::default());
    let words = |window: &mut Window| texts(window, "compare legend");
    let plain = words(&mut window);
    assert!(!plain.contains(&"W weight gradients".to_owned()), "{plain:?}");
    // A schedule that splits backward has roles of its own, whichever half it stands in.
    let trained = window.app().run().scenario().layout.clone();
    let split = Layout { schedule: ScheduleName::ZbH1, ..trained };
    for half in Half::BOTH {
        let mut window = comparing(Opened::default());
        window.ask(Command::Choose(half, Choice::Layout(Box::new(split.clone()))));
        settle(&mut window);
        let found = words(&mut window);
        for word in ["B backward", "I input gradients", "W weight gradients"] {
            assert!(found.iter().any(|other| other == word), "{half:?}: {word} in {found:?}");
        }
    }
}

#[test]
fn a_step_that_is_shown_is_kept_however_many_follow() {
    let mut window = Window::open(Opened::default());
    window.press(NONE, Key::Space);
    let shown = window.app().step().unwrap().number();
    let last =
        crate::window::recording(&eight_ranks()).iter().rev().find_map(|event| match event {
            shardlab::train::driver::Event::Step(step) => Some(step.clone()),
            _ => None,
        });
    let last = last.expect("a step");
    for step in shown + 1..shown + 300 {
        let mut next = last.clone();
        next.summary.step = step;
        let report = std::sync::Arc::make_mut(next.report.as_mut().expect("it was reported"));
        let mut trace = (*report.trace).clone();
        trace.step = step;
        report.trace = std::sync::Arc::new(trace);
        window.tell(shardlab::train::driver::Event::Step(next));
    }
    window.frames(2);
    assert!(window.app().run().measured(shown).is_none(), "the run has forgotten it");
    assert_eq!(window.app().step().unwrap().number(), shown);
    window.press(NONE, Key::F3);
    let compared = window.app().compared();
    assert_eq!(Half::BOTH.map(|half| compared.refusal(half)), [None, None]);
    assert!(compared.difference().is_some());
    // So is what another layout takes its times from.
    window.press(NONE, Key::E);
    choose(&mut window, "Schedule: GPipe");
    assert_eq!(window.app().compared().refusal(Half::Lower), None);
}

#[test]
fn the_list_of_a_half_begins_at_what_it_shows() {
    let mut window = comparing(Opened::default());
    let now = |window: &mut Window, key| {
        window.press(NONE, key);
        let chosen = Half::BOTH.map(|half| window.app().compared().choice(half).clone());
        window.press(NONE, Key::Enter);
        settle(window);
        (chosen, Half::BOTH.map(|half| window.app().compared().choice(half).clone()))
    };
    for key in [Key::Q, Key::E] {
        let (before, after) = now(&mut window, key);
        assert_eq!(before, after, "Enter chooses what is chosen already");
    }
    window.press(NONE, Key::E);
    choose(&mut window, "Schedule: GPipe");
    let (before, after) = now(&mut window, Key::E);
    assert_eq!(before, after);
}

#[test]
fn names_of_steps_are_cut_by_the_width_of_the_line_alone() {
    let mut window = comparing(Opened { size: (1600.0, 900.0), ..Opened::default() });
    let trained = window.app().run().scenario().layout.clone();
    let looped = Layout { schedule: ScheduleName::Interleaved1F1B, chunks: 2, ..trained };
    for half in Half::BOTH {
        window.ask(Command::Choose(half, Choice::Layout(Box::new(looped.clone()))));
    }
    settle(&mut window);
    let name = "interleaved 1F1B, 2 stages a position";
    assert_eq!(
        window.explanation(),
        format!("Both are equally long. Above: {name}. Below: {name}.")
    );
}
