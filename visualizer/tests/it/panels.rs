//! Goal: the tabs of the lower band say what they show, and what is pointed at or chosen in one is
//! the same everywhere. Method: recorded runs in a window, with pointer and buttons.

use std::sync::Arc;

use egui_kittest::kittest::Queryable as _;
use shardlab::mesh::Rank;
use shardlab::trace::captured::{Captured, first};
use shardlab::trace::draw::timeline::{Level, Target};
use shardlab::train::driver::{Event, Place};
use shardlab::units::Bytes;
use shardlab_visualizer::shown::{Command, Side};

use crate::window::{Opened, Window, eight_ranks, sixty_four_ranks};

const WIRES: usize = 0;
const MEMORY: usize = 1;
const COLLECTIVE: usize = 2;
const NUMBERS: usize = 3;

/// A window with a tab of the left side as large as it gets.
fn tab(opened: Opened, number: usize) -> Window {
    let mut window = Window::open(opened);
    window.ask(Command::OpenLeft(number));
    window.ask(Command::Maximise(Side::Left));
    window.frames(2);
    window
}

/// All texts of the band.
fn texts(window: &mut Window) -> Vec<String> {
    let written = window.audit().written();
    let band = written.iter().filter(|text| text.zone.ends_with("band"));
    band.map(|text| text.label.full.clone()).collect()
}

/// The middle of a text of the band.
fn place(window: &mut Window, wanted: &str) -> (f32, f32) {
    let written = window.audit().written();
    let found =
        written.iter().find(|text| text.zone.ends_with("band") && text.label.full == wanted);
    let area = found.unwrap_or_else(|| panic!("no text “{wanted}”")).label.area;
    (area.centre().x, area.centre().y)
}

#[test]
fn a_tab_without_a_step_says_what_fills_it() {
    let mut window = Window::empty(Opened::default());
    for (number, wanted) in [
        (WIRES, "The first step that has ended shows what flows between ranks here"),
        (MEMORY, "The first step that has ended shows the memory of every rank here"),
        (COLLECTIVE, "The first step that has ended shows its collectives here"),
        (NUMBERS, "The first step that has ended shows its numbers here"),
    ] {
        window.ask(Command::OpenLeft(number));
        window.frames(2);
        assert!(texts(&mut window).iter().any(|text| text == wanted), "{:?}", texts(&mut window));
    }
}

#[test]
fn a_card_that_is_pointed_at_is_the_rank_of_the_timeline_and_a_click_chooses_it() {
    for number in [WIRES, MEMORY] {
        let mut window = tab(Opened::default(), number);
        let name = if number == WIRES { "d1t0p1" } else { "6  d1t0p1" };
        let (x, y) = place(&mut window, name);
        window.hover(x, y);
        assert_eq!(window.app().sight().hover, Some(Target::Rank(Rank(6))), "tab {number}");
        assert!(window.explanation().starts_with("Rank 6 "), "{}", window.explanation());
        window.click(eframe::egui::pos2(x, y));
        assert_eq!(window.app().sight().selection, Some(Target::Rank(Rank(6))), "tab {number}");
    }
}

#[test]
fn sixty_four_ranks_are_four_positions_in_wires_and_memory() {
    for number in [WIRES, MEMORY] {
        let mut window = tab(Opened { scenario: sixty_four_ranks(), ..Opened::default() }, number);
        let (x, y) = place(&mut window, "stage 2 · 16 ranks");
        window.hover(x, y);
        assert_eq!(window.app().sight().hover, Some(Target::Position(2)), "tab {number}");
    }
}

#[test]
fn a_collective_is_stepped_through_and_its_numbers_come_with_the_capture() {
    let mut window = tab(Opened::default(), COLLECTIVE);
    window.harness.get_by_label("Show the first one").click();
    window.frames(3);
    let title = |window: &mut Window| {
        let texts = texts(window);
        texts.iter().find(|text| text.starts_with("reduce-scatter of gradients")).cloned()
    };
    assert!(title(&mut window).expect("it is open").ends_with("before round 1 of 1"));
    window.harness.get_by_label("One round of the collective on.").click();
    window.frames(3);
    assert!(title(&mut window).expect("it is open").ends_with("after round 1 of 1"));
    assert!(texts(&mut window).iter().any(|text| text == "sum of all"));
    // As a run tells it: the same collective with numbers.
    let facts = window.app().run().facts().expect("the run is ready").clone();
    let at = first(&facts.plan, &facts.order).expect("a collective");
    let mut captured = Captured::of(&facts.plan, &facts.order, at).expect("it sends");
    for sample in &mut captured.samples {
        sample.values = vec![-0.13];
    }
    window.tell(Event::Captured { step: 1, captured: Arc::new(captured) });
    window.frames(2);
    assert!(texts(&mut window).iter().filter(|text| *text == "−0.13").count() >= 4);
}

#[test]
fn choosing_a_sum_of_gradients_opens_it() {
    let mut window = tab(Opened::default(), COLLECTIVE);
    let facts = window.app().run().facts().expect("the run is ready").clone();
    let (rank, instr) = first(&facts.plan, &facts.order).expect("a collective");
    window.ask(Command::Select(Some(Target::block(rank, Level::Pass, instr))));
    window.frames(2);
    let texts = texts(&mut window);
    assert!(texts.iter().any(|text| text.starts_with("reduce-scatter of gradients")), "{texts:?}");
}

#[test]
fn counted_bytes_equal_their_formula_and_a_row_opens_to_it() {
    let mut window = tab(Opened::default(), NUMBERS);
    let shown = texts(&mut window);
    for heading in ["COUNTED", "MEASURED", "REPLAYED", "FORMULA"] {
        assert!(shown.iter().any(|text| text == heading), "{shown:?}");
    }
    let (x, y) = place(&mut window, "sent, tensor");
    window.hover(x, y);
    let line = window.explanation();
    let (counted, formula) = line.split_once(" COUNTED, ").expect("both");
    let bytes = counted.trim_start_matches("sent, tensor: ");
    assert_eq!(formula.trim_end_matches(" FORMULA."), bytes, "{line}");
    window.click(eframe::egui::pos2(x, y));
    assert!(texts(&mut window).iter().any(|text| text.starts_with("FORMULA  4 B·(2(t−1)")));
}

#[test]
fn the_loss_tells_each_step_and_a_click_shows_it() {
    let mut window = Window::open(Opened::default());
    window.ask(Command::OpenRight(0));
    window.ask(Command::Maximise(Side::Right));
    window.frames(2);
    let (x, y) = place(&mut window, "step 0");
    let (right, _) = place(&mut window, "12");
    // A little above the axis, at the fifth of twelve steps.
    let at = x + (right - x) * 5.2 / 12.0;
    window.hover(at, y - 60.0);
    let line = window.explanation();
    assert!(line.starts_with("Step 5: loss ") || line.starts_with("Step 6: loss "), "{line}");
    window.click(eframe::egui::pos2(at, y - 60.0));
    let shown = window.app().step().expect("a step").number() + 1;
    assert!(line.starts_with(&format!("Step {shown}:")), "{line}, but {shown} is shown");
}

#[test]
fn what_is_left_behind_stays_on_the_plot_of_losses() {
    let mut window = Window::open(Opened::default());
    window.ask(Command::Maximise(Side::Right));
    window.frames(2);
    assert!(!texts(&mut window).iter().any(|text| text == "before going back"));
    window.tell(Event::WentBack { to: Place::Start, branch: 1 });
    window.frames(2);
    assert_eq!(window.app().run().losses(), []);
    assert!(texts(&mut window).iter().any(|text| text == "before going back"));
    // Another cut of the same model: the curve of this one stays beside it.
    let before = window.app().run().left().1[0].losses.clone();
    let mut scenario = eight_ranks();
    scenario.layout.pp = 1;
    window.ask(Command::Train(Box::new(scenario)));
    window.frames(2);
    assert_eq!(window.app().run().left().1[0].losses, before);
    // Of another model, losses cannot be compared.
    let mut other = eight_ranks();
    other.training.steps += 1;
    other.model = shardlab::config::ModelSource::Preset("quickstart".into());
    window.ask(Command::Train(Box::new(other)));
    window.frames(2);
    assert!(window.app().run().left().1.is_empty());
}

#[test]
fn what_a_rank_may_hold_is_a_line_across_the_bars_of_memory() {
    let named = |memory_cap| {
        let mut window = tab(Opened { memory_cap, ..Opened::default() }, MEMORY);
        texts(&mut window).into_iter().filter(|text| text.contains("cap")).collect::<Vec<_>>()
    };
    assert_eq!(named(None), Vec::<String>::new());
    assert!(!named(Some(Bytes(1 << 20))).is_empty());
}
