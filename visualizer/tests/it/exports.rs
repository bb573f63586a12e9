//! Exports of the window, by keys alone: what is written equals what is shown.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use eframe::egui;
use egui::{Event, Key, Modifiers};
use shardlab::trace::captured::first;
use shardlab::trace::draw::theme::Kind;
use shardlab::trace::draw::timeline::{Level, Target};
use shardlab::trace::export::rows::{Detail, rows};
use shardlab_visualizer::app::{Paper, Wanted};
use shardlab_visualizer::export::order::{Colours, Existing, Form, Order};
use shardlab_visualizer::export::parts::Part;
use shardlab_visualizer::keys::Action;
use shardlab_visualizer::over::Question;
use shardlab_visualizer::presets;
use shardlab_visualizer::shown::{Command, Popup, Workspace};

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
fn where_no_dialogue_opens_it_is_said_and_a_typed_path_does_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("typed.csv");
    let mut window = Window::open(Opened::default());
    // As where no portal answers.
    window.app_mut().ask_for_paths(|_| None);
    window.press(Modifiers::COMMAND, Key::E);
    choose(&mut window, "export as CSV");
    choose(&mut window, "export browse");
    let said = "No file was chosen. Type the path if no dialogue opens";
    let is_said = |window: &mut Window| {
        let written = window.audit().written();
        written.iter().any(|text| text.zone == "over the window" && text.label.full == said)
    };
    assert!((0..1000).any(|_| {
        window.frames(1);
        std::thread::sleep(std::time::Duration::from_millis(2));
        is_said(&mut window)
    }));
    let answer = export_to(&mut window, &path);
    assert!(answer.starts_with("Saved ") && answer.ends_with("typed.csv"), "{answer}");
    assert!(std::fs::read_to_string(&path).unwrap().lines().count() > 100);
}

#[test]
fn what_the_dialogue_answers_is_written_without_a_second_question() {
    let mut window = Window::open(Opened::default());
    window.app_mut().ask_for_paths(|question| match question {
        Question::Save(name, None) => {
            let path = std::env::temp_dir().join(format!("{}-{name}", std::process::id()));
            // The system has asked already whether it is to be replaced.
            std::fs::write(&path, "old").ok()?;
            Some(path)
        }
        _ => None,
    });
    window.press(Modifiers::COMMAND, Key::E);
    choose(&mut window, "export as JSON Lines");
    choose(&mut window, "export browse");
    let saved = (0..2000).find_map(|_| {
        window.frames(1);
        std::thread::sleep(std::time::Duration::from_millis(2));
        let said = window.explanation();
        said.strip_prefix("Saved ").map(str::to_owned)
    });
    let saved = saved.expect("it is written");
    let name = format!("{}-shakespeare-small_step_12.jsonl", std::process::id());
    assert!(saved.ends_with(&name), "{saved}");
    let path = std::env::temp_dir().join(name);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    assert!(text.starts_with('{'), "{text}");
}

/// What must be inside of the picture of a part: badges for its times and shares, and of its legend with
/// units. A loss is no time, and faults have no numbers until the judges are asked.
fn inside(name: &str) -> (&'static [&'static str], &'static [&'static str]) {
    match name {
        "watch" => (&["REPLAYED", "COUNTED"], &["F forward", "waiting", "B backward"]),
        "compare" => (&["REPLAYED", "MEASURED"], &["F forward", "waiting"]),
        "plan" => (&["PREDICTED"], &["waiting"]),
        "timeline" => (&["REPLAYED: measured pieces"], &["F forward", "B backward", "waiting"]),
        "wires" => (&["COUNTED"], &["data ", "tensor ", "pipeline "]),
        "memory" => (&["REPLAYED", "COUNTED"], &["weights", "gradients", "activations"]),
        "collective" => (&["COUNTED"], &["chunk 0", "of rank 0", "sent"]),
        "numbers" => (&["COUNTED", "MEASURED", "REPLAYED", "FORMULA"], &[]),
        "faults" => (&[], &[]),
        "loss" => (&[], &["smoothed", "held-out", "target ", "nats per byte"]),
        "details" => (&["REPLAYED"], &[]),
        other => panic!("say what belongs into a picture of {other}"),
    }
}

/// The texts of a document.
fn texts_of(svg: &str) -> Vec<String> {
    let parts = svg.split("</text>").filter_map(|part| part.rsplit_once('>'));
    parts.map(|(_, text)| text.replace("&amp;", "&").replace("&lt;", "<")).collect()
}

/// A window with something to show in every part: a sum of gradients is chosen.
fn full() -> Window {
    let mut window = Window::open(Opened::default());
    window.press(Modifiers::NONE, Key::Home);
    choose_a_sum(&mut window);
    window
}

fn choose_a_sum(window: &mut Window) {
    let facts = window.app().run().facts().unwrap();
    let (rank, instr) = first(&facts.plan, &facts.order).unwrap();
    window.ask(Command::Select(Some(Target::block(rank, Level::Pass, instr))));
    window.frames(3);
}

#[test]
fn every_part_has_a_vector_picture_with_title_caption_legend_and_badge_inside() {
    let mut window = full();
    let paper = Paper::default();
    for (part, name) in Part::all() {
        // What stands in the line that explains stands in the picture as well.
        let caption = match part {
            Part::Window(workspace) => {
                window.ask(Command::Do(Action::Workspace(workspace)));
                window.frames(2);
                while window.app().planned().is_predicting() {
                    std::thread::sleep(std::time::Duration::from_millis(2));
                    window.frames(1);
                }
                window.frames(2);
                window.explanation()
            }
            _ => {
                window.ask(Command::Do(Action::Workspace(Workspace::Watch)));
                window.frames(2);
                window.explanation()
            }
        };
        let (badges, legend) = inside(&name);
        for kind in [Kind::Light, Kind::Dark, Kind::Print] {
            let wanted = Wanted { part, kind, size: (1280.0, 800.0), at: None };
            let svg = window.app_mut().drawing(&paper, wanted).svg(1.0);
            let texts = texts_of(&svg);
            let has = |wanted: &str| texts.iter().any(|text| text.starts_with(wanted));
            let title = match part {
                Part::Window(_) => "Shakespeare, small",
                _ => "Shakespeare, small, step 12",
            };
            assert!(has(title) && svg.contains("<title>Shakespeare, small, step 12"), "{name}");
            // A picture says there where its times come from.
            let sentence = caption.trim_end_matches('.');
            assert!(has(sentence), "{name}: {caption:?} in {texts:#?}");
            for badge in badges {
                let is_there = texts.iter().any(|text| text.contains(badge));
                assert!(is_there, "{name}: {badge} in {texts:#?}");
            }
            for entry in legend {
                assert!(has(entry), "{name}: {entry:?} in {texts:#?}");
            }
        }
    }
    // The window itself is as it was.
    assert_eq!(window.app().look().theme.kind, Kind::Light);
}

#[test]
fn a_png_of_every_part_is_as_wide_as_asked_and_shows_something() {
    let folder = tempfile::tempdir().unwrap();
    let mut window = full();
    for (part, name) in Part::all() {
        for scale in [1, 2] {
            let path = folder.path().join(format!("{name}-{scale}.png"));
            let order = Order {
                part,
                form: Form::Png(scale),
                colours: Colours::AsShown,
                stretch: None,
                path: path.clone(),
                existing: Existing::Kept,
            };
            window.ask(Command::Export(Box::new(order)));
            let saved = (0..4000).any(|_| {
                window.frames(1);
                std::thread::sleep(std::time::Duration::from_millis(5));
                window.explanation().starts_with("Saved ")
            });
            assert!(saved, "{name}: {}", window.explanation());
            let picture = read(&path);
            let scale = u32::from(scale);
            assert_eq!(picture.width, 1280 * scale, "{name}");
            if matches!(part, Part::Window(_)) {
                assert_eq!(picture.height, 800 * scale, "{name}");
            }
            // A tab is a good part of the window high; much of it is no ground.
            assert!((200 * scale..=1200 * scale).contains(&picture.height), "{name}");
            let ground = &picture.rgba[..4];
            let pixels = picture.rgba.chunks_exact(4);
            let written = pixels.clone().filter(|pixel| *pixel != ground).count();
            let colours: BTreeSet<&[u8]> = pixels.collect();
            let all = (picture.width * picture.height) as usize;
            assert!(written * 200 > all, "{name}: {written} of {all} pixels");
            assert!(colours.len() > 20, "{name}: {} colours", colours.len());
            // What was said of this one is not taken for the next.
            window.press(Modifiers::NONE, Key::Escape);
            choose_a_sum(&mut window);
        }
    }
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
