//! Goal: every wait says for what and for whom. Method: point at each of them and hold the line that
//! appears against the Trace; read all texts for words that must not be there.

use std::fs;
use std::path::{Path, PathBuf};

use eframe::egui;
use egui::{Key, Modifiers};
use shardlab::trace::cause::Cause;

use crate::window::{Opened, Window};

#[test]
fn pointing_at_a_wait_names_what_is_missing_and_who_has_it() {
    let mut window = Window::open(Opened { size: (1920.0, 1080.0), ..Opened::default() });
    window.press(Modifiers::NONE, Key::Space);
    let step = window.app().step().unwrap();
    let end = step.timeline.end();
    let mut waits = Vec::new();
    for &rank in step.timeline.ranks() {
        let mut sum = 0;
        for block in step.timeline.blocks(rank) {
            sum += block.duration().0;
            // What is narrower than the pointer is met by stepping.
            if let Some(cause) = block.cause().filter(|_| block.duration().0 * 200 > end.0) {
                waits.push((rank, block.start.0.midpoint(block.end.0), cause));
            }
        }
        assert_eq!(sum, end.0, "works and waits of rank {rank} are the step");
    }
    assert!(waits.len() >= 8, "{} waits", waits.len());
    let zones = *window.app().zones();
    // Rows lie below one another in the order of the ranks; find each by pointing down its column.
    let axis = {
        use shardlab::trace::draw::axis::TimeAxis;
        TimeAxis::holding(end)
    };
    let mut found = 0;
    for (rank, middle, cause) in waits {
        // The track lies between 132 points of names and 132 of memory.
        let width = zones.timeline.width - 264.0;
        let x = 132.0 + width * (middle as f64 / axis.end.0 as f64) as f32;
        let mut y = zones.timeline.top + 30.0;
        while y < zones.timeline.bottom() - 26.0 {
            window.hover(x, y);
            let line = window.explanation();
            if line.starts_with(&format!("Rank {rank} ")) {
                match cause {
                    Cause::Message { from, .. } => {
                        assert!(line.contains(&format!("from rank {from}")), "{line}");
                        found += 1;
                    }
                    Cause::Room { to, .. } => {
                        assert!(line.contains(&format!("rank {to}")), "{line}");
                    }
                    Cause::Beside { .. } | Cause::Device | Cause::StepEnd => {}
                }
                break;
            }
            y += 16.0;
        }
    }
    assert!(found >= 4, "{found} waits for messages were pointed at");
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn no_text_of_the_app_says_theory_wall_serial_or_ideal() {
    let mut files = Vec::new();
    sources(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut files);
    let mut faults = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        let code: String =
            code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        for literal in code.split('"').skip(1).step_by(2) {
            let lower = literal.to_lowercase();
            let words = lower.split(|c: char| !c.is_alphanumeric());
            for word in words.filter(|w| matches!(*w, "theory" | "wall" | "serial" | "ideal")) {
                if !lower.contains("waiting/ideal") {
                    faults.push(format!("{}: {word} in {literal:?}", file.display()));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}
