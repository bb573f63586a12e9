//! Goal: the window is composed as agreed, and stays so whatever is done. Method: look at the areas
//! of its parts and at what is written in them.

use std::collections::BTreeSet;

use eframe::egui;
use egui::{
    Event, Key, Modifiers, MouseWheelSource, MouseWheelUnit, PointerButton, TouchPhase, pos2, vec2,
};
use egui_kittest::kittest::{NodeT as _, Queryable as _};
use shardlab::mesh::Rank;
use shardlab::trace::draw::scene::{Area, Point, Shape};
use shardlab::trace::draw::timeline::Target;
use shardlab_visualizer::keys::Action;
use shardlab_visualizer::shown::{Command, Popup};

use crate::window::{Opened, Window, sixty_four_ranks};

const SIZES: [(f32, f32); 5] =
    [(800.0, 480.0), (911.0, 512.0), (1280.0, 800.0), (1920.0, 1080.0), (3840.0, 2160.0)];

#[test]
fn the_timeline_has_most_of_the_window_and_the_explanation_one_line() {
    for size in SIZES {
        let mut window = Window::open(Opened { size, ..Opened::default() });
        let line = window.explanation();
        assert!(line.chars().count() <= 120, "{line}");
        let zones = *window.app().zones();
        assert!(zones.timeline.height >= 0.45 * size.1, "{size:?}: {zones:?}");
        assert_eq!(zones.transport.bottom(), size.1);
        for name in ["Start of the step (Home).", "Pause, training as well (Space).", "Live"] {
            let button = window.harness.get_by_label(name).rect();
            assert!(button.max.y <= size.1 && button.max.x <= size.0, "{name} at {button:?}");
        }
    }
}

#[test]
fn nothing_that_is_done_changes_the_size_of_the_timeline() {
    let mut window = Window::open(Opened::default());
    let before = window.app().zones().timeline;
    for command in [
        Command::Select(Some(Target::Rank(Rank(3)))),
        Command::Do(Action::Row(shardlab_visualizer::play::Direction::Forward)),
        Command::Do(Action::Loop),
        Command::Toggle(Popup::Palette),
        Command::Toggle(Popup::Split),
        Command::Close,
        Command::Do(Action::PlayPause),
        Command::Do(Action::Describe),
        Command::Do(Action::Tab(0)),
    ] {
        let text = format!("{command:?}");
        window.ask(command);
        window.frames(2);
        assert_eq!(window.app().zones().timeline, before, "{text}");
    }
}

#[test]
fn dragging_the_divider_changes_it_and_nothing_else_does() {
    let mut window = Window::open(Opened::default());
    let before = *window.app().zones();
    let from = before.divider.centre();
    window.harness.hover_at(pos2(from.x, from.y));
    window.frames(1);
    window.harness.drag_at(pos2(from.x, from.y));
    window.frames(1);
    window.harness.hover_at(pos2(from.x, from.y - 60.0));
    window.frames(2);
    window.harness.drop_at(pos2(from.x, from.y - 60.0));
    window.frames(2);
    let after = window.app().zones();
    assert!((after.timeline.height - (before.timeline.height - 60.0)).abs() <= 1.0, "{after:?}");
    assert_eq!(after.transport, before.transport);
}

/// What is painted in the colour of the playhead and of choices in a part of the window.
fn accents(window: &mut Window, zone: &str) -> Vec<Shape> {
    let accent = window.app().look().theme.accent;
    let is_accent = |shape: &Shape| match shape {
        Shape::Fill { fill, edge, .. } => *fill == accent || *edge == Some(accent),
        Shape::Line { ink, .. } => *ink == accent,
        Shape::Polygon { fill, .. } | Shape::Dot { fill, .. } => *fill == accent,
        Shape::Label(label) => label.ink == accent,
    };
    let painted = window.audit().scenes().into_iter().filter(|painted| painted.zone == zone);
    painted.flat_map(|painted| painted.scene.shapes).filter(is_accent).collect()
}

const MARKED: [&str; 2] = ["timeline", "left band"];

/// The box around some points.
fn around(points: &[Point]) -> Area {
    let (mut low, mut high) = (points[0], points[0]);
    for point in points {
        (low.x, low.y) = (low.x.min(point.x), low.y.min(point.y));
        (high.x, high.y) = (high.x.max(point.x), high.y.max(point.y));
    }
    Area::new(low.x, low.y, high.x - low.x, high.y - low.y)
}

/// Whether a shape is a line around a block that a screen reader finds there.
fn is_around(shape: &Shape, block: egui::Rect) -> bool {
    let Shape::Line { points, .. } = shape else { return false };
    let line = around(points);
    let sides = [
        (line.left, block.left()),
        (line.top, block.top()),
        (line.right(), block.right()),
        (line.bottom(), block.bottom()),
    ];
    points.len() == 5 && sides.iter().all(|(line, block)| (line - block).abs() <= 1.5)
}

/// Whether a shape marks what is written somewhere: an edge around it, or a bar beside it.
fn marks(shape: &Shape, written: Area) -> bool {
    let Shape::Fill { area, .. } = shape else { return false };
    let beside = area.width <= 4.0 && area.right() <= written.left;
    (area.top..area.bottom()).contains(&written.centre().y)
        && (beside || area.contains(written.centre()))
}

/// Where a block or a wait lies of which this is said, wide enough for the pointer.
fn block_that(window: &Window, beginning: &str) -> egui::Rect {
    let nodes = window.harness.get_all_by_role(egui::accesskit::Role::ListItem);
    let is_it = |text: Option<String>| text.is_some_and(|text| text.starts_with(beginning));
    let mut found = nodes.filter(|node| is_it(node.accesskit_node().label()));
    let met = found.find(|node| node.rect().width() > 6.0);
    met.unwrap_or_else(|| panic!("nothing {beginning}")).rect()
}

/// The words of the lower right in this frame.
fn details(window: &mut Window) -> Vec<String> {
    let written = window.audit().written().iter().filter(|text| text.zone == "right band");
    written.map(|text| text.label.full.clone()).collect()
}

#[test]
fn a_choice_marks_timeline_tab_and_details_in_the_very_next_frame_and_escape_clears_them() {
    // In Wires a card is named by its coordinates, in Memory a row by rank and coordinates.
    for (tab, name) in [(0, "d0t1p1"), (1, "5  d0t1p1")] {
        let mut window = Window::open(Opened::default());
        window.audit().keep_scenes();
        window.press(Modifiers::NONE, Key::Space);
        window.ask(Command::OpenLeft(tab));
        window.frames(2);
        let timeline = window.app().zones().timeline;
        for beginning in ["Rank 5 runs backward", "Rank 5 waits", "Rank 5 runs the optimizer"] {
            let block = block_that(&window, beginning);
            let hover = block.center();
            window.hover(hover.x, hover.y);
            let before = MARKED.map(|zone| accents(&mut window, zone));
            for pressed in [true, false] {
                let (button, modifiers) = (PointerButton::Primary, Modifiers::NONE);
                let pos = hover;
                window.harness.event(Event::PointerButton { pos, button, pressed, modifiers });
            }
            // A frame for each of the two: the second is the one in which it was clicked.
            window.frames(1);
            for (zone, before) in MARKED.into_iter().zip(&before) {
                assert_eq!(&accents(&mut window, zone), before, "{zone} waits for the others");
            }
            assert!(!details(&mut window).iter().any(|text| text == "takes"));
            window.frames(1);

            let what = format!("{beginning}, {name}");
            let chosen = window.app().sight().selection.expect("something is chosen");
            assert_eq!(chosen.rank(), Some(Rank(5)), "{what}");
            let [rows, tab] = MARKED.map(|zone| accents(&mut window, zone));
            let around = rows.iter().filter(|shape| is_around(shape, block)).count();
            assert_eq!(around, 1, "{what}: {block:?} in {rows:#?}");
            let written = window.audit().written().iter();
            let card = written.filter(|text| text.zone == "left band" && text.label.full == name);
            let cards: Vec<Area> = card.map(|text| text.label.area).collect();
            let [card] = cards[..] else { panic!("{what}: {cards:?}") };
            assert!(!before[1].iter().any(|shape| marks(shape, card)), "{what}: marked before");
            assert!(tab.iter().any(|shape| marks(shape, card)), "{what}: {card:?} in {tab:#?}");
            let step = window.app().step().unwrap();
            let sentence = step.timeline.explain(&chosen);
            let (_, span) = step.timeline.span(&chosen).unwrap();
            let takes = step.timeline.duration(span.duration());
            assert_eq!(window.explanation(), sentence);
            let details = details(&mut window);
            let at = details.iter().position(|text| text == "takes").expect("Details are open");
            assert_eq!(details[at + 1], takes, "{what}: {details:?}");

            window.harness.key_press(Key::Escape);
            window.frames(2);
            assert_eq!(window.app().sight().selection, None);
            for (zone, before) in MARKED.into_iter().zip(&before) {
                assert_eq!(&accents(&mut window, zone), before, "{zone} after Escape");
            }
            window.ask(Command::OpenRight(0));
            assert_eq!(window.app().zones().timeline, timeline);
        }
    }
}

/// The names of single ranks in the timeline: text, size, and how far down each stands.
fn rank_names(window: &mut Window, position: u32) -> Vec<(String, f32)> {
    let zone = window.app().zones().timeline;
    let written = window.audit().written().iter().filter(|text| text.zone == "timeline");
    let of = written.filter(|text| {
        let (text, area) = (&text.label.full, text.label.area);
        text.starts_with('d')
            && text.ends_with(&format!("p{position}"))
            && (zone.top..zone.bottom()).contains(&area.centre().y)
    });
    of.map(|text| (text.label.full.clone(), text.label.size)).collect()
}

#[test]
fn sixty_four_ranks_are_four_groups_in_sight_and_a_stage_opens_to_sixteen_rows() {
    let mut window = Window::open(Opened { scenario: sixty_four_ranks(), ..Opened::default() });
    let zone = window.app().zones().timeline;
    let written = window.audit().written().iter().filter(|text| text.zone == "timeline");
    let texts: Vec<(String, Area)> =
        written.map(|text| (text.label.full.clone(), text.label.area)).collect();
    for stage in 0..4 {
        let name = format!("stage {stage} · 16 ranks");
        let found: Vec<_> = texts.iter().filter(|(text, _)| *text == name).collect();
        assert!(found.len() == 1 && found[0].1.is_inside(zone), "{name}: {texts:?}");
    }
    let shown = texts.iter().filter(|(text, _)| text.starts_with("shown r"));
    assert_eq!(shown.count(), 4, "{texts:?}");
    window.ask(Command::Unfold(2));
    window.frames(2);
    // The wheel brings all of them into sight, each with its name, while the ruler stays.
    let mut seen = BTreeSet::new();
    let middle = zone.centre();
    window.hover(middle.x, middle.y);
    for turn in 0..60 {
        let names = rank_names(&mut window, 2);
        assert!(names.iter().all(|(_, size)| *size >= 12.0), "{names:?}");
        seen.extend(names.into_iter().map(|(name, _)| name));
        let written = window.audit().written();
        let is_ruler = |text: &&shardlab_visualizer::audit::Written| {
            text.zone == "timeline"
                && text.label.full.starts_with("0 ")
                && text.label.area.top < zone.top + 28.0
        };
        assert!(written.iter().any(|text| is_ruler(&text)), "after {turn} turns");
        window.harness.event(Event::MouseWheel {
            unit: MouseWheelUnit::Point,
            delta: vec2(0.0, if turn < 30 { -40.0 } else { 40.0 }),
            phase: TouchPhase::Move,
            source: MouseWheelSource::Unknown,
            modifiers: Modifiers::NONE,
        });
        window.frames(6);
    }
    let expected = (0..4).flat_map(|dp| (0..4).map(move |tp| format!("d{dp} t{tp} p2")));
    assert_eq!(seen, expected.collect::<BTreeSet<String>>());
}

#[test]
fn everything_has_a_name_for_those_who_do_not_see_it() {
    let mut window = Window::open(Opened::default());
    assert_eq!(window.harness.unnamed_widgets(), Vec::<String>::new());
    let list = window.harness.get_by_label("Timeline");
    assert!(list.accesskit_node().value().is_some_and(|now| !now.is_empty()));
    let blocks: Vec<String> = window
        .harness
        .get_all_by_role(egui::accesskit::Role::ListItem)
        .filter_map(|node| node.accesskit_node().label())
        .collect();
    assert!(blocks.len() > 50, "{}", blocks.len());
    assert!(blocks.iter().all(|text| text.starts_with("Rank ")), "{blocks:?}");
    let line = window.explanation();
    assert!(window.harness.query_by_label(&line).is_some(), "{line}");
}
