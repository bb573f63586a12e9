//! Exports of the window, by keys alone: what is written equals what is shown.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use eframe::egui;
use egui::{Event, Key, Modifiers};
use shardlab::trace::draw::theme::Kind;
use shardlab::trace::export::rows::{Detail, rows};
use shardlab_visualizer::app::{Paper, Wanted};
use shardlab_visualizer::export::parts::Part;
use shardlab_visualizer::presets;
use shardlab_visualizer::shown::Popup;

use crate::pixels::{off, read};
use crate::window::{Opened, Window};

/// Moves the focus to the button with this name and presses it.
fn choose(window: &mut Window, name: &str) {
    for _ in 0..60 {
        window.press(Modifiers::NONE, Key::Tab);
        let focused = window.harness.ctx.memory(|memory| memory.focused());
        let reached = focused.is_some_and(|id| id == egui::Id::unique(name));
        if reached {
            window.press(Modifiers::NONE, Key::Space);
            return;
        }
    }
    panic!("{name} is not reached with the keyboard");
}

/// Writes `path` into the field and exports.
fn export_to(window: &mut Window, path: &Path) -> String {
    for _ in 0..60 {
        let focused = window.harness.ctx.memory(|memory| memory.focused());
        if focused == Some(egui::Id::unique("export path")) {
            break;
        }
        window.press(Modifiers::NONE, Key::Tab);
    }
    window.press(Modifiers::COMMAND, Key::A);
    window.harness.event(Event::Text(path.display().to_string()));
    window.frames(2);
    window.press(Modifiers::NONE, Key::Enter);
    for _ in 0..2000 {
        window.frames(1);
        let said = window.explanation();
        if !said.contains('…') {
            return said;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("the export does not end: {}", window.explanation());
}

fn open_export() -> Window {
    let mut window = Window::open(Opened::default());
    window.press(Modifiers::COMMAND, Key::E);
    assert_eq!(window.app().over().map(|over| over.popup()), Some(Popup::Export));
    window
}

#[test]
fn tables_and_traces_hold_the_numbers_of_the_shown_step() {
    let folder = tempfile::tempdir().unwrap();
    for (button, file) in [
        ("export as CSV", "step.csv"),
        ("export as JSON Lines", "step.jsonl"),
        ("export as Perfetto", "step.json"),
    ] {
        let path = folder.path().join(file);
        let mut window = open_export();
        choose(&mut window, button);
        let said = export_to(&mut window, &path);
        assert!(said.starts_with("Saved ") && said.ends_with(file), "{said}");
        let step = window.app().step().unwrap();
        let (facts, trace) = (&step.facts, step.timeline.trace());
        let shown = rows(&facts.plan, &facts.order, trace, Detail::Blocks);
        let text = std::fs::read_to_string(&path).unwrap();
        match file {
            "step.csv" => {
                let mut lines = text.lines();
                let names: Vec<&str> = lines.next().unwrap().split(',').collect();
                let of = |name| names.iter().position(|found| *found == name).unwrap();
                let (rank, start, end) = (of("rank"), of("start_ns"), of("end_ns"));
                let found: Vec<(String, String, String)> = lines
                    .map(|line| {
                        let cells: Vec<&str> = line.split(',').collect();
                        (cells[rank].into(), cells[start].into(), cells[end].into())
                    })
                    .collect();
                let expected: Vec<_> = shown
                    .iter()
                    .map(|row| {
                        let [start, end] =
                            [row.start_ns, row.end_ns].map(|time| time.0.to_string());
                        (row.rank.to_string(), start, end)
                    })
                    .collect();
                assert_eq!(found, expected);
            }
            "step.jsonl" => {
                for (line, row) in text.lines().zip(&shown) {
                    let object: serde_json::Value = serde_json::from_str(line).unwrap();
                    assert_eq!(object["end_ns"], row.end_ns.0);
                    assert_eq!(object["bytes"], row.bytes.0);
                    assert_eq!(object["what"], row.what.as_str());
                    assert_eq!(object["clock"], "REPLAYED");
                }
                assert_eq!(text.lines().count(), shown.len());
            }
            _ => {
                let whole: serde_json::Value = serde_json::from_str(&text).unwrap();
                let events = whole["traceEvents"].as_array().unwrap();
                let ends = events
                    .iter()
                    .filter(|event| event["ph"] == "X")
                    .map(|event| event["ts"].as_f64().unwrap() + event["dur"].as_f64().unwrap());
                let last = ends.fold(0.0, f64::max);
                let first = events
                    .iter()
                    .filter(|event| event["ph"] == "X")
                    .map(|event| event["ts"].as_f64().unwrap())
                    .fold(f64::MAX, f64::min);
                let expected = step.timeline.end().0 as f64 / 1e3;
                assert!((last - first - expected).abs() < 0.01, "{first} to {last}: {expected}");
            }
        }
    }
}

#[test]
fn pictures_are_written_by_keys_alone_and_a_file_that_is_there_is_asked_about() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("watch.png");
    let mut window = open_export();
    choose(&mut window, "export as PNG");
    let said = export_to(&mut window, &path);
    assert!(said.contains("watch.png"), "{said}");
    let first = read(&path);
    assert_eq!((first.width, first.height), (1280, 800));

    window.press(Modifiers::COMMAND, Key::E);
    choose(&mut window, "export as PNG");
    choose(&mut window, "export in Slide, dark");
    // The first press of Enter is refused and the dialogue stays.
    export_to(&mut window, &path);
    assert_eq!(window.app().over().map(|over| over.popup()), Some(Popup::Export));
    assert_eq!(off(&first, &read(&path)), 0.0);
    let said = export_to(&mut window, &path);
    assert!(said.starts_with("Saved "), "{said}");
    assert!(off(&first, &read(&path)) > 0.5, "the picture is dark now");
}

#[test]
fn the_chosen_block_is_an_animation_and_every_rank_has_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("block.gif");
    let mut window = Window::open(Opened::default());
    window.press(Modifiers::NONE, Key::Home);
    window.press(Modifiers::NONE, Key::ArrowDown);
    let film = window.app().film().unwrap();
    assert!(film.instants.len() < 40, "a block is short: {film:?}");
    window.press(Modifiers::COMMAND, Key::E);
    choose(&mut window, "export as GIF");
    let said = export_to(&mut window, &path);
    assert!(said.starts_with("Saved "), "{said}");
    let file = std::fs::read(&path).unwrap();
    let mut reader = gif::DecodeOptions::new().read_info(&file[..]).unwrap();
    assert!(reader.width() <= 1280 && reader.height() <= 720);
    let mut frames = 0;
    while let Some(frame) = reader.read_next_frame().unwrap() {
        assert_eq!(frame.delay, film.centiseconds);
        frames += 1;
    }
    assert_eq!(frames, film.instants.len());

    let traces = folder.path().join("traces");
    window.press(Modifiers::COMMAND, Key::E);
    choose(&mut window, "export as Perfetto per rank");
    let said = export_to(&mut window, &traces);
    assert!(said.starts_with("Saved "), "{said}");
    for rank in 0..8 {
        let text =
            std::fs::read_to_string(traces.join(format!("rank{rank}.pt.trace.json"))).unwrap();
        let whole: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(whole["distributedInfo"]["rank"], rank);
    }
}

#[test]
fn every_part_has_a_vector_picture_with_title_caption_and_badge_inside() {
    let mut window = Window::open(Opened::default());
    let paper = Paper::default();
    for (part, name) in Part::all() {
        for kind in [Kind::Light, Kind::Dark, Kind::Print] {
            let wanted = Wanted { part, kind, size: (1280.0, 800.0), at: None };
            let svg = window.app_mut().drawing(&paper, wanted).svg(1.0);
            assert!(svg.contains("Shakespeare, small"), "{name}");
            if !matches!(part, Part::Window(_)) {
                assert!(svg.contains("Shakespeare, small, step 12</text>"), "{name}: {svg}");
            }
            if part == Part::Timeline {
                for text in ["REPLAYED: measured pieces", "F forward", "waiting"] {
                    assert!(svg.contains(text), "{name}: {text}");
                }
            }
        }
    }
    // The window itself is as it was.
    assert_eq!(window.app().look().theme.kind, Kind::Light);
}

/// A file that was dropped onto the window.
#[derive(Debug)]
struct Dropped(PathBuf);

impl egui::DroppedFile for Dropped {
    fn path(&self) -> &Path {
        &self.0
    }

    fn bytes(&self) -> Result<Vec<u8>, String> {
        std::fs::read(&self.0).map_err(|error| error.to_string())
    }
}

#[test]
fn a_saved_scenario_opens_with_its_view_also_when_it_is_dropped_onto_the_window() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    let mut window = Window::open(Opened::default());
    // Half of the step in sight, its second row chosen, twice as fast, dark.
    window.press(Modifiers::NONE, Key::W);
    window.press(Modifiers::NONE, Key::ArrowDown);
    window.press(Modifiers::NONE, Key::ArrowDown);
    window.press(Modifiers::NONE, Key::Period);
    window.press(Modifiers::NONE, Key::N);
    let mut saved = window.app().saved();
    assert!(saved.view.as_ref().is_some_and(|view| {
        view.selection.is_some() && view.window.is_some() && view.speed.is_some()
    }));
    saved.write(&path).unwrap();

    let mut other = Window::open(Opened::default());
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("[view]", "[view]\nlater = 1")).unwrap();
    other.harness.input_mut().dropped_files = vec![Arc::new(Dropped(path.clone()))];
    other.frames(2);
    assert!(other.explanation().contains("`view.later` is not known here"));
    assert_eq!(other.app().look().theme.kind, Kind::Dark);
    assert_eq!(other.app().saved(), saved);

    // What a smaller run does not have is not chosen there.
    saved.scenario = presets::named("one rank").unwrap();
    saved.write(&path).unwrap();
    other.harness.input_mut().dropped_files = vec![Arc::new(Dropped(path))];
    other.frames(2);
    assert_eq!(other.app().run().scenario().name, "One rank");
}
