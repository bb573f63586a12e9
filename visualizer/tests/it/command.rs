//! The command line of the app: what it refuses, in which words and with which code.

use std::process::{Command, Output};

fn visualizer(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_shardlab-visualizer"))
        .args(args)
        .env_remove("DISPLAY")
        .env_remove("WAYLAND_DISPLAY")
        .output()
        .unwrap()
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
        (&["--view", "watch"], &["--screenshot"]),
        (&["pipeline", "--scenario", "pipeline"], &["--scenario"]),
    ] {
        let (code, text) = says(args);
        assert_eq!(code, Some(2), "{args:?}: {text}");
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
    assert!(text.contains("DISPLAY and WAYLAND_DISPLAY are unset"), "{text}");
    assert!(text.contains("--screenshot"), "{text}");
}

#[test]
fn a_place_that_cannot_be_written_is_named_with_code_1() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let below = file.join("out");
    let scenario = folder.path().join("tiny.toml");
    let text = "name = \"tiny\"\nmodel.preset = \"tiny\"\ntraining = { batch = 4, seq = 8, steps = 1 }\n\
                layout = { dp = 1, tp = 1, pp = 1, microbatches = 1, zero = 0 }";
    std::fs::write(&scenario, text).unwrap();
    let below = below.to_str().unwrap();
    let scenario = scenario.to_str().unwrap();
    // Before it trains: so many steps would take days.
    for pictures in [["--screenshot", below], ["--record", &format!("{below}/step.gif")]] {
        let mut args = vec![scenario, "--at", "1000000000"];
        args.extend(pictures);
        let (code, text) = says(&args);
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains("cannot write") && text.contains("another folder"), "{text}");
    }
}
