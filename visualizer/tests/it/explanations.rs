//! Goal: every wait says for what and for whom. Method: point at each of them and hold the line that
//! appears against the Trace; read all texts for words that must not be there.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use eframe::egui;
use egui::{Key, Modifiers};
use egui_kittest::kittest::{NodeT as _, Queryable as _};
use shardlab::mesh::Rank;
use shardlab::plan::{Action, Instr, Lane, Origin};
use shardlab::trace::Span;
use shardlab::trace::cause::{Cause, what};
use shardlab::trace::idle::StepTime;
use shardlab::units::Nanos;
use shardlab_visualizer::shown::{Command, Step};

use crate::window::{Opened, Window};

/// A time in which a rank does nothing.
#[derive(Debug)]
struct Waiting {
    rank: Rank,
    span: Span,
    cause: Cause,
    /// Inside of a block, as a notch at its bottom.
    is_notch: bool,
}

/// All times in which ranks wait in a step.
fn waits(step: &Step) -> Vec<Waiting> {
    let timeline = &step.timeline;
    let facts = &step.facts;
    let times = StepTime::of(&facts.plan, &facts.order, timeline.trace());
    let mut found = Vec::new();
    for &rank in timeline.ranks() {
        // Inside of a pass a rank that does not compute is idle, and the sum of all idle times has
        // asked for the cause on its own way.
        let cause_of = |span: Span| {
            let mut idle = times.ranks[rank.index()].idle.iter();
            let idle = idle.find(|idle| idle.span.start <= span.start && span.end <= idle.span.end);
            idle.unwrap_or_else(|| panic!("rank {rank} is idle in {span:?}")).cause
        };
        for block in timeline.blocks(rank) {
            if let Some(cause) = block.cause() {
                let span = Span { start: block.start, end: block.end };
                found.push(Waiting { rank, span, cause, is_notch: false });
            }
            let notches = block.notches.iter().map(|&span| {
                let cause = cause_of(span);
                Waiting { rank, span, cause, is_notch: true }
            });
            found.extend(notches);
        }
    }
    found
}

/// The sentence over a wait, without what the other rank does meanwhile.
fn expected(wait: &Waiting) -> String {
    let Waiting { rank, span, cause, .. } = wait;
    let long = span.duration();
    let of = |origin: Origin| {
        let axis = origin.axis.map_or(String::new(), |axis| format!(" ({})", axis.word()));
        (what(origin), axis)
    };
    match *cause {
        Cause::Message { from, origin } => {
            let (what, axis) = of(origin);
            format!("Rank {rank} waits {long} for {what} from rank {from}{axis}")
        }
        Cause::Room { to, origin } => {
            let (what, axis) = of(origin);
            format!("Rank {rank} waits {long} until rank {to} takes {what}{axis}")
        }
        Cause::Beside { origin } => {
            format!("Rank {rank} waits {long} for its own {}", of(origin).0)
        }
        Cause::Device => format!("Rank {rank} waits {long} for its turn on the device"),
        Cause::StepEnd => format!("Rank {rank} is done; the step ends {long} later"),
    }
}

/// Holds that the Trace says the same: nothing of the rank's Compute lane runs in a wait, it begins
/// where something of the rank ended and ends where something begins, and what was missing arrived
/// in it.
fn assert_in_trace(step: &Step, wait: &Waiting) {
    let Waiting { rank, span, cause, .. } = wait;
    let (trace, plan) = (step.timeline.trace(), &step.facts.plan);
    let program = &plan.programs[rank.index()].instrs;
    let mut lines = program.iter().zip(&trace.spans[rank.index()]);
    let runs = |(instr, ran): (&Instr, &Span)| {
        instr.lane == Lane::Compute && ran.start < span.end && span.start < ran.end
    };
    assert!(!lines.clone().any(runs), "{wait:?}");
    let begins = span.start == Nanos(0) || lines.clone().any(|(_, ran)| ran.end == span.start);
    let ends = match cause {
        Cause::StepEnd => span.end == trace.end(),
        _ => lines.clone().any(|(_, ran)| ran.start == span.end),
    };
    assert!(begins && ends, "{wait:?}");
    let arrived = |ran: &Span| span.start < ran.end && ran.end <= span.end;
    let is_met = match *cause {
        Cause::Message { from, .. } => lines.any(|(instr, ran)| {
            matches!(instr.action, Action::Recv { from: sender, .. } if sender == from)
                && arrived(ran)
        }),
        Cause::Room { to, .. } => lines.any(|(instr, ran)| {
            matches!(instr.action, Action::Send { to: taker, .. } if taker == to) && arrived(ran)
        }),
        Cause::Beside { .. } => lines.any(|(instr, ran)| {
            matches!(instr.action, Action::Launch { .. } | Action::Copy { .. }) && arrived(ran)
        }),
        // Every rank of the replayed clock has a device of its own.
        Cause::Device => false,
        Cause::StepEnd => true,
    };
    assert!(is_met, "{wait:?}");
}

/// The first length of time in a sentence, and by how much it may be rounded.
fn length_in(text: &str) -> (f64, f64) {
    let words: Vec<&str> = text.split(' ').collect();
    let found = words.windows(2).find_map(|pair| {
        let unit = pair[1].trim_end_matches(['.', ',', ';']);
        let size = match unit {
            "ns" => 1.0,
            "µs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            _ => return None,
        };
        let digits = pair[0].split('.').nth(1).map_or(0, str::len) as i32;
        Some((pair[0].parse::<f64>().ok()? * size, 0.5 * size / 10_f64.powi(digits)))
    });
    found.unwrap_or_else(|| panic!("no time in {text:?}"))
}

/// Where the blocks of a rank lie, from the top down to the bottom.
fn bands(window: &Window) -> BTreeMap<Rank, (f32, f32)> {
    let nodes = window.harness.get_all_by_role(egui::accesskit::Role::ListItem);
    let read = nodes.filter_map(|node| {
        let label = node.accesskit_node().label()?;
        let rank: u32 = label.strip_prefix("Rank ")?.split(' ').next()?.parse().ok()?;
        let rect = node.rect();
        Some((Rank(rank), (rect.top(), rect.bottom())))
    });
    read.collect()
}

/// Points at an instant of a rank, with so much time around it on the screen; what is said.
fn point_at(window: &mut Window, bands: &BTreeMap<Rank, (f32, f32)>, wait: &Waiting) -> String {
    let zone = window.app().zones().timeline;
    // The track lies between 132 points of names and 132 of memory.
    let (left, width) = (zone.left + 132.0, zone.width - 264.0);
    let end = window.app().time_axis().end;
    let Span { start, end: until } = wait.span;
    let long = (until - start).0;
    let is_narrow = f64::from(width) * (long as f64) < 3.0 * end.0 as f64;
    let near = is_narrow.then(|| {
        let start = start.0.saturating_sub(20 * long);
        Span { start: Nanos(start), end: Nanos(until.0 + 20 * long.max(1)) }
    });
    window.ask(Command::Window(near));
    let (from, to) = near.map_or((0, end.0), |near| (near.start.0, near.end.0));
    let middle = start.0.midpoint(until.0);
    let part = (middle as f64 + 0.5 - from as f64) / (to - from) as f64;
    let (top, bottom) = bands[&wait.rank];
    let y = if wait.is_notch { bottom - 1.0 } else { top.midpoint(bottom) };
    window.hover(left + width * part as f32, y);
    window.explanation()
}

#[test]
fn pointing_at_every_wait_names_what_is_missing_who_has_it_and_for_how_long() {
    let mut window = Window::open(Opened { size: (1920.0, 1080.0), ..Opened::default() });
    window.press(Modifiers::NONE, Key::Space);
    let bands = bands(&window);
    let step = window.app().step().unwrap();
    let (waits, end) = (waits(step), step.timeline.end());
    assert!(waits.len() >= 8, "{} waits", waits.len());
    for wait in &waits {
        assert_in_trace(step, wait);
    }
    // What ranks work, from the Trace: as long as the Compute lane runs, or as long as the row shows
    // a collective where it does not.
    let times = StepTime::of(&step.facts.plan, &step.facts.order, step.timeline.trace());
    let busy = |rank: Rank, step: &Step| {
        let blocks = step.timeline.blocks(rank).iter();
        blocks.map(shardlab::trace::draw::Block::busy).sum::<Nanos>()
    };
    let busy: Vec<Nanos> = (0..8).map(|rank| busy(Rank(rank), step)).collect();
    for (rank, busy) in busy.iter().enumerate() {
        assert!(times.ranks[rank].busy <= *busy, "rank {rank} computes more than it is said to");
    }
    let mut shown = vec![(0.0, 0.0); busy.len()];
    for wait in &waits {
        let line = point_at(&mut window, &bands, wait);
        let expected = expected(wait);
        assert!(line.starts_with(&expected), "{expected} in {line:?}: {wait:?}");
        assert!(line.chars().count() <= 120, "{line}");
        let (said, off) = length_in(&line);
        let exact = wait.span.duration().0 as f64;
        assert!((said - exact).abs() <= off, "{exact} ns in {line}");
        let sum = &mut shown[wait.rank.index()];
        (sum.0, sum.1) = (sum.0 + said, sum.1 + off);
    }
    // What is shown as waiting and what works is the step, as exactly as figures are written.
    for (rank, ((said, off), busy)) in shown.iter().zip(&busy).enumerate() {
        let all = said + busy.0 as f64;
        assert!((all - end.0 as f64).abs() <= off + 1.0, "rank {rank}: {all} of {end}");
        assert!(*off < 0.02 * end.0 as f64, "rank {rank}: {off} is nothing to compare with");
    }
    let messages = waits.iter().filter(|wait| matches!(wait.cause, Cause::Message { .. })).count();
    let ends = waits.iter().filter(|wait| wait.cause == Cause::StepEnd).count();
    assert!(messages >= 8 && ends >= 1, "{messages} messages, {ends} ends");
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

/// Where texts that a person may read are written, beside those of the app itself.
const TEXTS: [&str; 6] =
    ["visualizer/src", "src/trace/draw", "src/train", "src/planner", "src/exec", "src/cli"];

/// The texts in code: of a line nothing behind `//`, nothing after the tests begin.
fn literals(code: &str) -> Vec<String> {
    let code = code.split("#[cfg(test)]").next().unwrap();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code: Vec<char> = lines.collect::<Vec<_>>().join("\n").chars().collect();
    let (mut found, mut open, mut at) = (Vec::new(), None::<String>, 0);
    while at < code.len() {
        let letter = code[at];
        match &mut open {
            // A quotation mark as a character begins no text.
            None if code[at..].starts_with(&['\'', '"', '\'']) => at += 2,
            None if letter == '"' => open = Some(String::new()),
            None => {}
            Some(text) if letter == '\\' => {
                text.extend(code.get(at + 1));
                at += 1;
            }
            Some(_) if letter == '"' => found.extend(open.take()),
            Some(text) => text.push(letter),
        }
        at += 1;
    }
    found
}

/// The words of a text that must not be in it.
fn forbidden(text: &str) -> Vec<String> {
    let text = text.to_lowercase().replace("waiting/ideal", "");
    let words = text.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    let is_forbidden = |word: &&str| matches!(*word, "theory" | "wall" | "serial" | "ideal");
    words.filter(is_forbidden).map(str::to_owned).collect()
}

#[test]
fn no_text_for_people_says_theory_wall_serial_or_ideal() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut read = 0;
    let mut faults = Vec::new();
    for folder in TEXTS {
        let mut files = Vec::new();
        sources(&root.join(folder), &mut files);
        for file in files.iter().filter(|file| !file.ends_with("tests.rs")) {
            for text in literals(&fs::read_to_string(file).unwrap()) {
                read += 1;
                // The key of a number in JSON, beside that of the ratio.
                if file.ends_with("cli/plan.rs") && text == "ideal" {
                    continue;
                }
                let words = forbidden(&text).into_iter();
                faults.extend(words.map(|word| format!("{}: {word} in {text:?}", file.display())));
            }
        }
    }
    assert!(read > 3_000, "{read} texts were read");
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn words_that_must_not_be_said_are_found_in_code_and_nothing_else() {
    let code = r#"
        // "wall" in a comment
        let a = "The wall \" clock";
        let b = ['"', 'x'];
        let c = "waiting/ideal";
        let d = "Ideal: 3";
        let wall = "wallet wall_seconds serialised";
        #[cfg(test)]
        let e = "serial";
    "#;
    let found: Vec<String> = literals(code).iter().flat_map(|text| forbidden(text)).collect();
    assert_eq!(found, ["wall", "ideal"]);
}
