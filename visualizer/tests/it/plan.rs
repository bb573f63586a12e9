//! Goal: Plan predicts what is wished, at once and in words, and says at a control why something
//! cannot be. Method: hold every number against the prediction itself, and drive everything by keys.

use std::time::Duration;

use eframe::egui;
use egui::{Key, Modifiers};
use egui_kittest::kittest::Queryable as _;
use shardlab::predict::predict;
use shardlab::trace::Badge;
use shardlab::trace::draw::timeline::Target;
use shardlab::units::Nanos;
use shardlab_visualizer::app::{Control, Half, Wish};
use shardlab_visualizer::audit::Written;
use shardlab_visualizer::shown::{Command, Workspace};

use crate::window::{Opened, Window};

const NONE: Modifiers = Modifiers::NONE;

/// A window that plans, and has predicted what it is asked for at first.
fn planning(opened: Opened) -> Window {
    let mut window = Window::open(opened);
    window.press(NONE, Key::F4);
    assert_eq!(window.app().view().workspace, Workspace::Plan);
    settle(&mut window);
    window
}

/// Waits until the prediction is here.
fn settle(window: &mut Window) {
    for _ in 0..4000 {
        window.frames(2);
        if !window.app().planned().is_predicting() {
            window.frames(2);
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("it is still predicted");
}

/// Sets a control to what is written so.
fn set(window: &mut Window, control: Control, value: &str) {
    let is_it = |setting: &usize| {
        let mut wish = window.app().planned().wish().clone();
        wish.set(control, *setting);
        wish.value(control) == value
    };
    let setting = (0..Wish::count(control)).find(is_it);
    let setting = setting.unwrap_or_else(|| panic!("{control:?} has no {value}"));
    window.ask(Command::Wish(control, setting));
}

fn written(window: &mut Window, zone: &str) -> Vec<Written> {
    let all = window.audit().written().to_vec();
    all.into_iter().filter(|text| text.zone == zone).collect()
}

fn texts(window: &mut Window, zone: &str) -> Vec<String> {
    written(window, zone).into_iter().map(|text| text.label.full).collect()
}

#[test]
fn a_thousand_gpus_are_a_row_for_each_stage() {
    let mut window = planning(Opened::default());
    let wish = window.app().planned().wish();
    assert_eq!((wish.gpus, wish.layout.pp), (1024, 4));
    let rows = texts(&mut window, "predicted timeline");
    for stage in 0..4 {
        let name = format!("stage {stage} · 256 ranks");
        assert_eq!(rows.iter().filter(|text| **text == name).count(), 1, "{name}: {rows:?}");
    }
    assert!(rows.contains(&"PREDICTED".to_owned()));
    let said = {
        let held = &window.app().planned().foreseen().unwrap().held;
        held.timeline.explain(&Target::Position(2))
    };
    assert!(said.starts_with("256 ranks at pipeline position 2 wait"), "{said}");
    assert!(said.contains("GiB of 69.3 GiB"), "{said}");
    // A slow rank has a step of its own, and so have those that wait for it.
    set(&mut window, Control::SlowRank, "× 2");
    settle(&mut window);
    let held = &window.app().planned().foreseen().unwrap().held;
    let classes = held.timeline.ranks().len();
    assert!((8..64).contains(&classes), "{classes} classes");
    assert_eq!((0..4).map(|position| held.timeline.ranks_at(position)).sum::<u32>(), 1024);
}

#[test]
fn every_figure_is_that_of_the_prediction_and_says_so() {
    let mut window = planning(Opened::default());
    let (workload, cluster) = window.app().planned().wish().workload().unwrap();
    let expected =
        predict(&workload, &cluster, &window.app().planned().wish().conditions()).unwrap();
    let foreseen = window.app().planned().foreseen().unwrap();
    assert_eq!(foreseen.step_seconds, expected.step_seconds);
    assert_eq!(foreseen.mfu, expected.mfu);
    assert_eq!(foreseen.held.length(), expected.trace.end());
    assert_eq!(foreseen.held.waiting, expected.bubble.waiting_over_span);
    let fullest = expected.memory.iter().map(|held| held.total()).fold(0.0, f64::max);
    assert!((foreseen.held.peak.0.0 as f64 - fullest).abs() < 8.0);
    let tokens = 1024.0 * 8192.0 / expected.step_seconds;
    assert!((foreseen.tokens_per_sec / tokens - 1.0).abs() < 1e-9);
    let figures = texts(&mut window, "predicted figures");
    let has = |text: String| assert!(figures.contains(&text), "{text}: {figures:?}");
    has(Nanos((expected.step_seconds * 1e9) as u64).to_string());
    has(format!("{:.1} %", 100.0 * expected.mfu));
    has(format!("{:.1} %", 100.0 * expected.bubble.waiting_over_span));
    let badges = figures.iter().filter(|text| *text == Badge::Predicted.word()).count();
    assert_eq!(badges, 6, "{figures:?}");
}

#[test]
fn what_lies_outside_of_the_rows_is_drawn_behind_them_and_told() {
    let mut window = planning(Opened::default());
    let foreseen = window.app().planned().foreseen().unwrap();
    let (rows, outside) = (foreseen.held.length(), foreseen.outside);
    let step = Nanos((foreseen.step_seconds * 1e9) as u64);
    assert!(outside > Nanos(0) && (rows + outside).0.abs_diff(step.0) < 10);
    let end = window.app().planned().end();
    assert!(end >= rows + outside, "the axis holds all of it");
    let figures = texts(&mut window, "predicted figures");
    assert!(figures.contains(&format!("rows {rows}")), "{figures:?}");
    // Where the rows have ended and the step has not.
    let zone = *window.app().zones();
    let (left, right) = (300.0 + 132.0, zone.top.width - 132.0);
    let middle = Nanos(rows.0 + outside.0 / 2);
    let x = left + (right - left) * (middle.0 as f64 / end.0 as f64) as f32;
    window.hover(x, zone.between_bars().top + 140.0);
    let line = window.explanation();
    assert!(line.starts_with(&format!("Outside of the schedule: {outside} (PREDICTED)")), "{line}");
}

#[test]
fn what_is_wished_is_kept() {
    let mut window = planning(Opened::default());
    for (control, value) in
        [(Control::Context, "2"), (Control::Latency, "× 4"), (Control::Recompute, "full")]
    {
        set(&mut window, control, value);
    }
    let wish = window.app().planned().wish().clone();
    let view = window.app().saved().view.expect("a view");
    assert_eq!(view.plan, wish);
    let again = planning(Opened { view, ..Opened::default() });
    assert_eq!(again.app().planned().wish(), &wish);
    assert!(again.app().planned().foreseen().is_some());
}

#[test]
fn controls_below_the_edge_are_announced_by_a_bar_that_brings_them_into_sight() {
    let window = planning(Opened::default());
    assert!(window.harness.query_by_label("controls in sight").is_none(), "all are in sight");
    let mut window = planning(Opened { size: (800.0, 480.0), ..Opened::default() });
    let bar = window.harness.get_by_label("controls in sight").rect();
    assert!(!texts(&mut window, "controls").contains(&"jitter".to_owned()));
    window.click(egui::pos2(bar.center().x, bar.bottom() - 2.0));
    let found = texts(&mut window, "controls");
    assert!(found.contains(&"jitter".to_owned()), "{found:?}");
    window.click(egui::pos2(bar.center().x, bar.top() + 2.0));
    assert!(texts(&mut window, "controls").contains(&"model".to_owned()));
}

#[test]
fn every_control_is_reached_and_changed_by_keys_alone() {
    let mut window = planning(Opened { size: (800.0, 480.0), ..Opened::default() });
    for (index, control) in Control::ALL.into_iter().enumerate() {
        assert_eq!(window.app().planned().control(), control);
        let name = control.name();
        assert!(texts(&mut window, "controls").contains(&name.to_owned()), "{name} is in sight");
        let before = window.app().planned().wish().clone();
        window.press(NONE, Key::ArrowRight);
        let mut after = window.app().planned().wish().clone();
        if after == before {
            window.press(NONE, Key::ArrowLeft);
            after = window.app().planned().wish().clone();
        }
        assert_ne!(after.setting(control), before.setting(control), "{control:?}");
        window.ask(Command::Wish(control, before.setting(control)));
        // The schedule brings its stages along.
        window.ask(Command::Wish(Control::Chunks, before.setting(Control::Chunks)));
        window.ask(Command::Control(control));
        if index + 1 < Control::ALL.len() {
            window.press(NONE, Key::ArrowDown);
        }
    }
    window.press(NONE, Key::ArrowUp);
    assert_eq!(window.app().planned().control(), Control::SlowRank);
    settle(&mut window);
}

#[test]
fn what_cannot_be_says_why_and_its_control_is_red() {
    let mut window = planning(Opened::default());
    set(&mut window, Control::Gpus, "96");
    set(&mut window, Control::Tensor, "3");
    window.frames(2);
    let planned = window.app().planned();
    assert!(planned.foreseen().is_none() && planned.here().is_err());
    let line = window.explanation();
    assert!(line.contains("64 heads cannot be split over 3 tensor ranks"), "{line}");
    let said = texts(&mut window, "plan said").join(" ");
    assert!(said.contains("tensor: 64 heads cannot be split over 3 tensor ranks"), "{said}");
    let error = window.app().look().theme.error;
    for written in written(&mut window, "controls") {
        let is_blamed = ["tensor", "3"].contains(&written.label.full.as_str());
        assert_eq!(written.label.ink == error, is_blamed, "{written:?}");
    }
    // Keys mend it.
    window.ask(Command::Control(Control::Tensor));
    window.press(NONE, Key::ArrowRight);
    set(&mut window, Control::Batch, "1024 rows");
    set(&mut window, Control::Gpus, "64");
    settle(&mut window);
    assert!(window.app().planned().foreseen().is_some(), "{:?}", window.app().planned().faults());
}

/// Waits until the best layouts are known.
fn searched(window: &mut Window) {
    for _ in 0..8000 {
        window.frames(1);
        if !window.app().is_busy() {
            window.frames(2);
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("they are still searched");
}

/// A model and a cluster whose layouts are searched in a moment.
fn small(window: &mut Window) {
    for (control, value) in [
        (Control::Model, "llama-3-8b"),
        (Control::Pipeline, "1"),
        (Control::Gpus, "8"),
        (Control::Batch, "8 rows"),
    ] {
        set(window, control, value);
    }
}

#[test]
fn no_control_moves_when_a_refusal_comes_or_goes() {
    for size in [(1280.0, 800.0), (800.0, 480.0)] {
        let mut window = planning(Opened { size, ..Opened::default() });
        let left = egui::Rect::from_min_max(egui::Pos2::ZERO, egui::pos2(300.0, size.1));
        let before = window.controls(left);
        assert!(before.len() > 15, "{before:?}");
        for (control, value) in
            [(Control::Gpus, "1"), (Control::Tensor, "3"), (Control::Chunks, "2")]
        {
            set(&mut window, control, value);
            window.frames(2);
            assert!(!window.app().planned().faults().is_empty());
            assert_eq!(window.controls(left), before, "{control:?} {value}");
        }
    }
}

#[test]
fn results_of_other_settings_never_pass_for_those_of_the_wish() {
    let mut window = planning(Opened::default());
    let first = window.app().planned().foreseen().unwrap().step_seconds;
    let faint = window.app().look().theme.faint;
    // A step of so many microbatches takes its time to be predicted.
    set(&mut window, Control::Gpus, "32");
    set(&mut window, Control::Batch, "16384 rows");
    assert!(window.app().planned().foreseen().is_none(), "nothing is known of it");
    window.frames(2);
    assert!(window.app().planned().foreseen().is_none() && window.app().planned().is_predicting());
    let line = window.explanation();
    assert_eq!(line, "Predicting llama-3-70b on 32 × h100 … Grey: what was before.");
    let old = Nanos((first * 1e9) as u64).to_string();
    let figures = written(&mut window, "predicted figures");
    let figure = figures.iter().find(|text| text.label.full == old).expect("it is there still");
    assert_eq!(figure.label.ink, faint);
    assert_eq!(figures.iter().filter(|text| text.label.full == "before").count(), 6, "{figures:?}");
    let rows = written(&mut window, "predicted timeline");
    let has = |text: &str| rows.iter().find(|row| row.label.full == text).cloned();
    assert!(has("before: llama-3-70b on 1024 × h100").is_some(), "{rows:?}");
    assert_eq!(has("stage 0 · 256 ranks").expect("a row").label.ink, faint);
    // Neither is it pinned, nor trained, and pointing at a slider says what is done.
    let pins = window.app().compared().pins().len();
    window.press(NONE, Key::H);
    assert_eq!(window.app().compared().pins().len(), pins);
    for name in ["Pin", "Run it for real", "Next best"] {
        assert!(!window.is_free(name), "{name}");
    }
    // Who goes back has the answer at once: what was asked meanwhile is not waited for.
    set(&mut window, Control::Batch, "1024 rows");
    set(&mut window, Control::Gpus, "1024");
    assert_eq!(window.app().planned().foreseen().map(|of| of.step_seconds), Some(first));
    settle(&mut window);
    let figures = texts(&mut window, "predicted figures");
    assert!(!figures.contains(&"before".to_owned()), "{figures:?}");
}

#[test]
fn the_best_layouts_are_those_of_the_settings_that_are_wished_or_none() {
    let mut window = planning(Opened::default());
    small(&mut window);
    settle(&mut window);
    searched(&mut window);
    let first = window.app().planned().front().to_vec();
    assert!(first.len() > 1 && window.is_free("Next best"));
    let said = window.said_of("Next best");
    assert!(said.starts_with(&format!("Plans the next of the {} best", first.len())), "{said}");
    let changes = [
        (Control::Model, "llama-3-70b", "llama-3-8b"),
        (Control::Cluster, "a100-80", "h100"),
        (Control::Gpus, "16", "8"),
        (Control::Batch, "16 rows", "8 rows"),
        (Control::Sequence, "4096 tokens", "8192 tokens"),
        (Control::NetworkBandwidth, "× 2", "as it is"),
    ];
    for (control, other, value) in changes {
        let values: Vec<String> = (0..Wish::count(control))
            .map(|setting| {
                let mut wish = Wish::default();
                wish.set(control, setting);
                wish.value(control)
            })
            .collect();
        let other = values.iter().find(|of| **of == other).unwrap_or(&values[0]).clone();
        set(&mut window, control, &other);
        window.frames(1);
        assert!(window.app().planned().front().is_empty(), "{control:?} {other}");
        let before = window.app().planned().wish().clone();
        window.press(NONE, Key::PageDown);
        assert_eq!(window.app().planned().wish(), &before, "{control:?}: nothing is planned");
        set(&mut window, control, value);
        window.frames(1);
        assert_eq!(window.app().planned().front(), first, "{control:?}: they are known still");
    }
    // What they do not depend on leaves them.
    set(&mut window, Control::Recompute, "full");
    window.frames(1);
    assert_eq!(window.app().planned().front(), first);
    let usable = {
        settle(&mut window);
        window.app().planned().foreseen().unwrap().usable.0 as f64
    };
    assert!(first.iter().all(|candidate| candidate.memory_bytes <= usable));
}

#[test]
fn a_wish_that_cannot_be_is_no_dead_end() {
    let mut window = planning(Opened::default());
    small(&mut window);
    set(&mut window, Control::Tensor, "3");
    window.frames(2);
    let fault = window.app().planned().faults()[0].sentence();
    // Buttons say what is wrong, and not that one must wait.
    for name in ["Run it for real", "Next best", "Pin"] {
        if !window.is_free(name) {
            assert_eq!(window.said_of(name), fault, "{name}");
        }
    }
    assert!(!window.is_free("Run it for real"));
    window.press(NONE, Key::R);
    window.hover(640.0, 8.0);
    // The layouts do not depend on the cut: they are searched, and one of them is planned.
    searched(&mut window);
    let best = window.app().planned().front()[0].cut.clone();
    assert!(window.is_free("Next best"));
    window.press(NONE, Key::PageDown);
    assert_eq!(window.app().planned().wish().cut(), Some(best));
    assert!(window.app().planned().faults().is_empty());
}

#[test]
fn the_nearest_wish_that_can_be_is_one_press_away() {
    for by_key in [true, false] {
        let mut window = planning(Opened::default());
        set(&mut window, Control::Gpus, "1");
        window.frames(2);
        let name = "Nearest that can be: GPUs 32";
        let said = window.said_of(name);
        assert!(said.ends_with("(Enter)."), "{said}");
        if by_key {
            window.press(NONE, Key::Enter);
        } else {
            let at = window.harness.get_by_label(name).rect().center();
            window.click(at);
        }
        assert_eq!(window.app().planned().wish().gpus, 32);
        settle(&mut window);
        assert!(window.app().planned().foreseen().is_some());
        assert!(window.harness.query_by_label(name).is_none());
        // Where there is a step, the key changes nothing.
        window.press(NONE, Key::Enter);
        assert_eq!(window.app().planned().wish().gpus, 32);
    }
}

#[test]
fn what_no_machine_trains_cannot_be_pressed_and_says_why() {
    let mut window = planning(Opened::default());
    assert!(!window.is_free("Run it for real"));
    let said = window.said_of("Run it for real");
    assert_eq!(said, "1024 ranks are not trained on one machine: 64 at most.");
    let at = window.harness.get_by_label("Run it for real").rect().center();
    window.click(at);
    assert_eq!(window.app().view().workspace, Workspace::Plan);
    small(&mut window);
    settle(&mut window);
    assert!(window.is_free("Run it for real"), "{:?}", window.app().planned().here());
}

#[test]
fn the_place_behind_the_rows_is_named_in_the_legend() {
    let mut window = planning(Opened::default());
    let legend = texts(&mut window, "predicted timeline");
    assert!(legend.contains(&"outside of the schedule".to_owned()), "{legend:?}");
    window.press(NONE, Key::F2);
    let legend = texts(&mut window, "timeline");
    assert!(!legend.is_empty() && !legend.contains(&"outside of the schedule".to_owned()));
}

#[test]
fn nobody_says_that_nothing_runs_while_something_is_trained() {
    let window = planning(Opened::default());
    let line = window.app().planned().sentence();
    assert!(line.contains("this plan does not run") && !line.contains("nothing runs"), "{line}");
}

#[test]
fn a_step_that_does_not_fit_says_by_how_much() {
    let mut window = planning(Opened::default());
    set(&mut window, Control::Model, "llama-3-405b");
    set(&mut window, Control::Pipeline, "1");
    settle(&mut window);
    let foreseen = window.app().planned().foreseen().unwrap();
    assert!(!foreseen.fits());
    let needs = foreseen.held.peak.0;
    let line = window.explanation();
    assert!(line.starts_with(&format!("The fullest stage needs {needs} of 69.3 GiB")), "{line}");
    assert!(line.chars().count() <= 120, "{line}");
}

#[test]
fn sixteen_thousand_gpus_are_predicted_by_classes() {
    let mut window = planning(Opened::default());
    set(&mut window, Control::Model, "llama-3-405b");
    set(&mut window, Control::Pipeline, "16");
    set(&mut window, Control::Gpus, "16384");
    set(&mut window, Control::Batch, "2048 rows");
    settle(&mut window);
    let held = &window.app().planned().foreseen().expect("it can be").held;
    assert_eq!((held.timeline.ranks().len(), held.timeline.ranks_at(0)), (16, 1024));
    let rows = texts(&mut window, "predicted timeline");
    for stage in 0..16 {
        assert!(rows.contains(&format!("stage {stage} × 1,024")), "{stage}: {rows:?}");
    }
}

#[test]
fn a_cut_that_one_machine_can_train_is_trained_and_a_larger_one_says_why_not() {
    let mut window = planning(Opened::default());
    window.press(NONE, Key::R);
    let line = window.explanation();
    assert!(line.starts_with("1024 ranks are not trained on one machine"), "{line}");
    for (control, value) in [
        (Control::Tensor, "2"),
        (Control::Pipeline, "2"),
        (Control::Gpus, "8"),
        (Control::Batch, "8 rows"),
    ] {
        set(&mut window, control, value);
    }
    settle(&mut window);
    let planned = window.app().planned().here().expect("8 ranks").layout.clone();
    assert_eq!((planned.dp, planned.tp, planned.pp, planned.microbatches), (2, 2, 2, 4));
    window.press(NONE, Key::R);
    assert_eq!(window.app().view().workspace, Workspace::Watch);
    assert_eq!(window.app().run().scenario().layout, planned);
}

#[test]
fn a_prediction_is_pinned_and_held_against_another_one() {
    let mut window = planning(Opened::default());
    window.press(NONE, Key::H);
    let first = window.app().planned().foreseen().unwrap().held.length();
    set(&mut window, Control::NetworkBandwidth, "× 0.25");
    settle(&mut window);
    window.press(NONE, Key::H);
    let second = window.app().planned().foreseen().unwrap().held.length();
    assert!(second > first, "a slower network takes longer: {first} {second}");
    let pins: Vec<u32> = window.app().compared().pins().iter().map(|(id, _)| *id).collect();
    let [newest, oldest] = pins[..] else { panic!("two pins: {pins:?}") };
    for (half, pin) in [(Half::Upper, oldest), (Half::Lower, newest)] {
        let choice = shardlab_visualizer::app::Choice::Pinned(pin);
        window.ask(Command::Choose(half, choice));
    }
    window.frames(2);
    assert_eq!(window.app().view().workspace, Workspace::Compare);
    let both = window.app().compared().difference().unwrap();
    assert_eq!([both.upper.length(), both.lower.length()], [first, second]);
    let strip = texts(&mut window, "difference");
    assert!(strip.contains(&format!("+{}", second - first)), "{strip:?}");
    assert!(strip.contains(&"PREDICTED".to_owned()), "{strip:?}");
}

#[test]
fn the_best_layouts_are_points_that_are_chosen_by_keys_and_pointer() {
    let mut window = planning(Opened::default());
    small(&mut window);
    searched(&mut window);
    let front = window.app().planned().front().to_vec();
    assert!(front.len() > 1, "{front:?}");
    // The fastest first, and each slower one takes less memory.
    for pair in front.windows(2) {
        assert!(pair[0].step_seconds <= pair[1].step_seconds);
        assert!(pair[0].memory_bytes > pair[1].memory_bytes);
    }
    window.press(NONE, Key::PageDown);
    assert_eq!(window.app().planned().wish().cut().as_ref(), Some(&front[0].cut));
    settle(&mut window);
    let fastest = window.app().planned().foreseen().unwrap();
    assert!((fastest.step_seconds / front[0].step_seconds - 1.0).abs() < 1e-9);
    assert!((fastest.held.peak.0.0 as f64 / front[0].memory_bytes - 1.0).abs() < 1e-6);
    window.press(NONE, Key::PageDown);
    assert_eq!(window.app().planned().wish().cut().as_ref(), Some(&front[1].cut));
    settle(&mut window);
    let label = {
        let first = &front[0];
        let time = Nanos((first.step_seconds * 1e9) as u64);
        let bytes = shardlab::units::Bytes(first.memory_bytes as u64);
        format!("{time}, {bytes} (PREDICTED): {}.", first.cut)
    };
    let at = window.harness.get_by_label(&label).rect().center();
    window.hover(at.x, at.y);
    assert_eq!(window.explanation(), label);
    window.click(at);
    assert_eq!(window.app().planned().wish().cut().as_ref(), Some(&front[0].cut));
    let texts = texts(&mut window, "front");
    assert!(texts.contains(&"PREDICTED".to_owned()), "{texts:?}");
}

#[test]
fn a_paused_plan_stands_still_and_asks_for_no_frame() {
    let mut window = planning(Opened::default());
    for (control, value) in [(Control::Gpus, "8"), (Control::Batch, "8 rows")] {
        set(&mut window, control, value);
    }
    settle(&mut window);
    // The search for the best layouts ends as well.
    while window.app().is_busy() {
        std::thread::sleep(Duration::from_millis(5));
        window.frames(1);
    }
    window.press(NONE, Key::Space);
    window.assert_stands_still(30);
}
