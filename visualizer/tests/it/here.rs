//! Goal: the step as it is predicted for this machine stands beside the measured one, in numbers and
//! as a timeline. Method: a machine of made-up speed, and the prediction itself to compare with.

use std::path::PathBuf;

use eframe::egui;
use egui::{Key, Modifiers};
use shardlab::plan::{Action, Plan};
use shardlab::predict::here::{Calibration, Curve, Sizes, predict_plan};
use shardlab::sim::Workers;
use shardlab::trace::Badge;
use shardlab::units::{Bytes, Nanos};
use shardlab_visualizer::app::{Choice, Half};
use shardlab_visualizer::shown::Command;

use crate::window::{Opened, Window};

const NONE: Modifiers = Modifiers::NONE;

/// A machine that takes two nanoseconds for each unit of any work.
fn machine(plan: &Plan) -> Calibration {
    let workers = Workers { count: 2, wake: Nanos(0), patience: Nanos(0) };
    let mut calibration = Calibration::new("a test".into(), &workers, u64::MAX);
    let launched = plan.programs.iter().flat_map(|program| &program.instrs);
    let ops = launched.filter_map(|instr| match &instr.action {
        Action::Launch { op, .. } => Sizes::of(op),
        Action::Copy { .. } | Action::Send { .. } | Action::Recv { .. } => None,
    });
    let moves = [Sizes::of_copy(Bytes(1)), Sizes::of_message(Bytes(1))];
    for sizes in ops.chain(moves) {
        let axes = vec![vec![1.0]; sizes.at.len()];
        let curve = Curve { axes, alone: vec![2.0], crowded: vec![2.0] };
        calibration.kernels.insert(sizes.kernel.to_owned(), curve);
    }
    calibration
}

fn settle(window: &mut Window) {
    window.frames(2);
    while window.app().is_busy() {
        window.frames(1);
    }
    window.frames(2);
}

/// A window on a machine that has been measured, and how long its step is predicted to take.
fn measured() -> (Window, Nanos, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("calibration.toml");
    let mut window = Window::open(Opened::default());
    let plan = std::sync::Arc::clone(&window.app().run().facts().unwrap().plan);
    let calibration = machine(&plan);
    calibration.write(&path).unwrap();
    window.app_mut().calibrate_from(path);
    let end = predict_plan(&plan, &calibration).unwrap().end();
    (window, end, folder)
}

fn texts(window: &mut Window, zone: &str) -> Vec<String> {
    let written = window.audit().written().to_vec();
    let of = written.iter().filter(|text| text.zone == zone);
    of.map(|text| text.label.full.clone()).collect()
}

#[test]
fn numbers_have_a_predicted_column_where_the_machine_was_measured() {
    let (mut window, end, _folder) = measured();
    window.press(NONE, Key::Num4);
    settle(&mut window);
    window.ask(Command::Maximise(shardlab_visualizer::shown::Side::Left));
    window.frames(2);
    let table = texts(&mut window, "band");
    assert!(table.contains(&"PREDICTED".to_owned()), "{table:?}");
    assert!(table.contains(&end.to_string()), "{end}: {table:?}");
    window.app_mut().calibrate_from("nowhere".into());
    settle(&mut window);
    assert!(!texts(&mut window, "band").contains(&"PREDICTED".to_owned()));
}

#[test]
fn the_predicted_step_is_held_against_the_measured_one() {
    let (mut window, end, _folder) = measured();
    window.press(NONE, Key::F3);
    window.ask(Command::Choose(Half::Lower, Choice::Predicted));
    settle(&mut window);
    let both = window.app().compared().difference().expect("both are here");
    assert_eq!([both.upper.badge, both.lower.badge], [Badge::Measured, Badge::Predicted]);
    assert_eq!(both.lower.length(), end);
    assert!(both.upper.has_plan_of(both.lower));
    let strip = texts(&mut window, "difference");
    assert!(strip.contains(&"MEASURED → PREDICTED".to_owned()), "{strip:?}");
}

#[test]
fn a_machine_that_was_not_measured_says_what_to_do() {
    let mut window = Window::open(Opened::default());
    window.press(NONE, Key::F3);
    window.ask(Command::Choose(Half::Lower, Choice::Predicted));
    settle(&mut window);
    let why = window.app().compared().refusal(Half::Lower).expect("nothing is known").to_owned();
    assert!(why.contains("shardlab doctor --calibrate"), "{why}");
    let written = texts(&mut window, "compare below").join(" ");
    assert!(written.contains("doctor --calibrate"), "{written}");
}
