//! The command line of the app: what it refuses, in which words and with which code.

use std::path::Path;
use std::process::{Command, Output, Stdio};

fn visualizer(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_shardlab-visualizer"))
        .args(args)
        .env_remove("DISPLAY")
        .env_remove("WAYLAND_DISPLAY")
        .output()
        .unwrap()
}

/// A scenario that is trained in no time.
fn tiny(folder: &Path) -> String {
    let scenario = folder.join("tiny.toml");
    let text = "name = \"tiny\"\nmodel.preset = \"tiny\"\ntraining = { batch = 4, seq = 8, steps = 1 }\n\
                layout = { dp = 1, tp = 1, pp = 1, microbatches = 1, zero = 0 }";
    std::fs::write(&scenario, text).unwrap();
    scenario.to_str().unwrap().to_owned()
}

/// The exit code and what was said.
fn says(args: &[&str]) -> (Option<i32>, String) {
    let output = visualizer(args);
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn what_cannot_be_used_is_refused_with_code_2_and_what_to_do() {
    for (args, words) in [
        (
            &["--screenshot", "x", "--view", "nothing"][..],
            &["\"nothing\"", "watch", "timeline"][..],
        ),
        (&["no-such", "--screenshot", "x"], &["no-such", "pipeline", "64-ranks"]),
        (&["--screenshot", "x", "--size", "12"], &["1280x800"]),
        (&["--screenshot", "x", "--scale", "9"], &["1 to 4"]),
        (&["--screenshot", "x", "--at", "0"], &["--at"]),
        (&["--screenshot", "x", "--trace", "none.json"], &["none.json", "train --trace"]),
        (&["--screenshot", "x", "--record", "x.gif"], &["--record"]),
        (&["--record", "x.txt"], &["x.txt", "ends in .gif"]),
        (&["--record", "gif"], &["ends in .gif"]),
        (&["--view", "watch"], &["--screenshot"]),
        (&["pipeline", "--scenario", "pipeline"], &["--scenario"]),
    ] {
        let (code, text) = says(args);
        assert_eq!(code, Some(2), "{args:?}: {text}");
        assert!(text.contains("error: "), "{args:?}: {text}");
        for word in words {
            assert!(text.contains(word), "{args:?}: {word} is not in {text}");
        }
    }
}

#[test]
#[cfg(all(unix, not(target_os = "macos")))]
fn without_a_display_no_window_opens_and_the_ways_around_it_are_named() {
    let (code, text) = says(&["--fresh"]);
    assert_eq!(code, Some(3));
    assert!(text.starts_with("error: No display found"), "{text}");
    assert!(text.contains("DISPLAY and WAYLAND_DISPLAY are unset"), "{text}");
    assert!(text.contains("--screenshot"), "{text}");
}

#[test]
fn a_place_that_cannot_be_written_is_named_with_code_1() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let below = file.join("out");
    let scenario = tiny(folder.path());
    let below = below.to_str().unwrap();
    // Before it trains: so many steps would take days.
    for pictures in [["--screenshot", below], ["--record", &format!("{below}/step.gif")]] {
        let mut args = vec![scenario.as_str(), "--at", "1000000000"];
        args.extend(pictures);
        let (code, text) = says(&args);
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains("cannot write") && text.contains("another folder"), "{text}");
    }
}

#[test]
fn a_device_that_is_not_there_is_refused_with_code_3_instead_of_pictures_of_the_cpu() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = tiny(folder.path());
    for (device, words) in [("no-such-adapter", "no adapter is called"), ("99", "no adapter 99")] {
        let out = folder.path().join("step.gif");
        let (code, text) =
            says(&[&scenario, "--at", "1", "--record", out.to_str().unwrap(), "--device", device]);
        assert_eq!(code, Some(3), "{text}");
        assert!(text.contains("error: ") && text.contains(words), "{text}");
        assert!(!out.exists());
    }
}

#[test]
#[cfg(unix)]
fn a_reader_that_has_gone_away_is_no_failure_and_a_full_device_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = tiny(folder.path());
    let out = folder.path().join("out");
    let args =
        [scenario.as_str(), "--at", "1", "--format", "svg", "--view", "timeline", "--screenshot"];
    let run = |stdout: Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shardlab-visualizer"));
        command.args(args).arg(&out).stdout(stdout).stderr(Stdio::piped());
        // The pipe is closed here as soon as the command has it.
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, text) = run(Stdio::piped());
    assert_eq!(code, Some(0), "{text}");
    let Ok(full) = std::fs::File::options().write(true).open("/dev/full") else { return };
    let (code, text) = run(full.into());
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("error: standard output: cannot be written"), "{text}");
    assert_eq!(std::fs::read_dir(&out).unwrap().count(), 1, "the picture is there all the same");
}
