//! Goal: the window is composed as agreed, and stays so whatever is done. Method: look at the areas
//! of its parts and at what is written in them.

use eframe::egui;
use egui::{Key, Modifiers, pos2};
use egui_kittest::kittest::{NodeT as _, Queryable as _};
use shardlab::mesh::Rank;
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

#[test]
fn a_choice_is_in_the_timeline_and_in_the_details_in_the_same_frame_and_escape_clears_it() {
    let mut window = Window::open(Opened::default());
    window.press(Modifiers::NONE, Key::Space);
    let node = window.harness.get_all_by_role(egui::accesskit::Role::ListItem).next();
    let at = node.expect("a block").rect().center();
    window.click(at);
    let chosen = window.app().sight().selection.expect("a block is chosen");
    assert!(matches!(chosen, Target::Block { .. } | Target::Wait { .. }));
    let sentence = window.app().step().unwrap().timeline.explain(&chosen);
    assert_eq!(window.explanation(), sentence);
    let written = window.audit().written().to_vec();
    assert!(written.iter().any(|text| text.zone.contains("band") && text.label.full == "takes"));
    window.press(Modifiers::NONE, Key::Escape);
    assert_eq!(window.app().sight().selection, None);
}

#[test]
fn sixty_four_ranks_are_four_groups_in_sight_and_a_stage_opens_to_sixteen_rows() {
    let mut window = Window::open(Opened { scenario: sixty_four_ranks(), ..Opened::default() });
    let texts = |window: &mut Window| -> Vec<String> {
        let written = window.audit().written().to_vec();
        let of = written.iter().filter(|text| text.zone == "timeline");
        of.map(|text| text.label.full.clone()).collect()
    };
    let groups = texts(&mut window);
    let count = groups.iter().filter(|text| text.contains("16 ranks")).count();
    assert_eq!(count, 4, "{groups:?}");
    window.ask(Command::Unfold(2));
    window.frames(2);
    let written = window.audit().written().to_vec();
    let rows = written.iter().filter(|text| {
        text.zone == "timeline"
            && text.label.full.starts_with('d')
            && text.label.full.contains("p2")
    });
    let rows: Vec<_> = rows.collect();
    // As many as there is room for below the heading; the others are a turn of the wheel away.
    assert!(rows.len() >= 14, "{} rows of the stage are in sight", rows.len());
    assert!(rows.iter().all(|row| row.label.size >= 12.0));
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
