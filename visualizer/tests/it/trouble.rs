//! Goal: whatever goes wrong is said in one line, with what can be done. Method: tell the window of
//! each trouble, and start the program where it cannot open one.

use std::process::Command as Process;

use eframe::egui::Pos2;
use egui_kittest::kittest::Queryable as _;
use shardlab::exec::{ExecError, NonFinite};
use shardlab::mesh::Rank;
use shardlab::plan::{Origin, Phase, Role};
use shardlab::trace::draw::scene::Area;
use shardlab::train::driver::{Event, Explained};

use crate::window::{Opened, Window};

/// The line after an event, with the buttons beside it.
fn told(event: Event) -> (Window, String) {
    let mut window = Window::open(Opened::default());
    window.tell(event);
    window.tell(Event::Paused);
    window.frames(2);
    let line = window.explanation();
    let faults = window.audit().faults(Area::sized(1280.0, 800.0), 12.0);
    assert_eq!(faults, Vec::<String>::new());
    (window, line)
}

#[test]
fn a_number_that_is_not_finite_is_told_with_its_place() {
    let first = NonFinite {
        rank: Rank(3),
        instr: 7,
        op: "matmul_tn".into(),
        origin: Origin {
            phase: Phase::Backward,
            layer: Some(2),
            microbatch: Some(1),
            ..Origin::default()
        },
        buffer: "d_w_up".into(),
        role: Role::Gradients,
        element: 5,
        value: f32::NAN,
        tensor: Some("model.layers.2.mlp.up_proj.weight".into()),
        was_read: false,
    };
    let (window, line) = told(Event::NotFinite { step: 56, first: Some(Box::new(first)) });
    assert_eq!(
        line,
        "Step 57: first non-finite number on rank 3, layer 2, B1, the gradient of mlp.up_proj."
    );
    assert!(window.harness.query_by_label("Restart").is_some());
}

#[test]
fn a_hang_says_who_waits_for_what() {
    let report = vec!["rank 0 waits for RS from rank 1".into(), "rank 2 waits as well".into()];
    let (window, line) = told(Event::Hang { step: 3, report });
    assert!(line.contains("rank 0 waits for RS from rank 1"), "{line}");
    assert!(window.harness.query_by_label("Restart").is_some());
}

#[test]
fn a_device_that_fails_is_named_and_training_goes_on() {
    let error = ExecError::Device {
        device: "Radeon 680M".into(),
        why: "its self test failed: matmul_nn equals the host's: element 1 is 2.5 instead of 2"
            .into(),
        remedy: "Update the driver, or take another device".into(),
    };
    let why = Explained::of(&error);
    let mut window = Window::open(Opened::default());
    window.tell(Event::DeviceFellBack { why });
    window.tell(Event::Playing);
    window.frames(2);
    let line = window.explanation();
    assert_eq!(line, "Radeon 680M: its self test failed. Training on the CPU instead.");
    assert!(window.harness.query_by_label("Try again").is_some());
    // The rest is told when it is asked for.
    let in_line = |at: &Pos2| at.y < 80.0;
    let buttons = window.harness.query_all_by_label("Details");
    let details = buttons.map(|node| node.rect().center()).find(in_line);
    window.click(details.expect("it stands in the line that explains"));
    window.hover(640.0, 300.0);
    let line = window.explanation();
    assert!(line.contains("element 1 is 2.5 instead of 2. Update the driver"), "{line}");
}

#[test]
fn a_run_that_cannot_start_says_so_where_the_timeline_would_be() {
    let mut window = Window::empty(Opened::default());
    let why = Explained {
        what: "rank 0 needs 2.0 GiB, but its device has 1.0 GiB".into(),
        why: "the step does not fit".into(),
        remedy: "Use fewer rows in a microbatch".into(),
    };
    window.tell(Event::Failed(why));
    window.frames(2);
    let written = window.audit().written().to_vec();
    let of =
        |zone: &str| written.iter().any(|t| t.zone == zone && t.label.full.contains("2.0 GiB"));
    assert!(of("timeline") && of("explanation"));
    assert!(window.harness.query_by_label("Change the split").is_some());
}

#[test]
fn a_window_of_any_size_is_drawn() {
    for size in [(0.0, 0.0), (1.0, 1.0), (90.0, 4000.0), (300.0, 100.0), (4000.0, 90.0)] {
        let mut window = Window::open(Opened { size, ..Opened::default() });
        window.frames(2);
        let ctx = window.harness.ctx.clone();
        for popup in [
            shardlab_visualizer::shown::Popup::Split,
            shardlab_visualizer::shown::Popup::Palette,
            shardlab_visualizer::shown::Popup::Help,
        ] {
            window.app_mut().ask(&ctx, shardlab_visualizer::shown::Command::Toggle(popup));
            window.frames(2);
        }
    }
}

/// The program without a display; how it ended and what it said.
fn program(args: &[&str]) -> (Option<i32>, String) {
    let output = Process::new(env!("CARGO_BIN_EXE_shardlab-visualizer"))
        .args(args)
        .env_remove("DISPLAY")
        .env_remove("WAYLAND_DISPLAY")
        .output()
        .unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[cfg(all(unix, not(target_os = "macos")))]
#[test]
fn without_a_display_the_program_says_what_else_can_be_done() {
    let (code, text) = program(&["--fresh"]);
    assert_eq!(code, Some(3), "{text}");
    assert!(
        text.starts_with(
            "error: No display found (DISPLAY and WAYLAND_DISPLAY are unset), so no window can \
             open."
        ),
        "{text}"
    );
    assert!(text.contains("shardlab"), "{text}");
}

#[test]
fn a_scenario_that_cannot_be_used_is_refused_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wrong.toml");
    std::fs::write(&path, "name = \"x\"\nmodel.preset = \"tiny\"\n[layout]\ndp = \"two\"").unwrap();
    let (code, text) = program(&["--fresh", path.to_str().unwrap()]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("line 4"), "{text}");
}
