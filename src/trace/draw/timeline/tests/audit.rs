//! Goal: every text can be read: none is small, overlaps another, leaves its container or melts
//! into its ground. Method: all labels of scenes of 8, 64 and 1,024 ranks in many sizes and all
//! themes, and of names that people might give.

use std::collections::BTreeSet;

use super::*;
use crate::ledger::{ByRole, Ledger};
use crate::plan::Role;
use crate::trace::draw::export::Export;
use crate::trace::draw::scene::Label;
use crate::trace::draw::theme::Rgb;

const THEMES: [Theme; 3] = [Theme::LIGHT, Theme::DARK, Theme::PRINT];

/// With the memory that the Plan itself asks for.
fn timeline_with_memory(mesh: Mesh, microbatches: u32, unit: u64) -> Timeline {
    let sketch = one_f_one_b(mesh, microbatches, unit);
    let (order, trace) = sketch.replay();
    let ledger = Ledger::of(&sketch.plan);
    let memory: Vec<ByRole> = ledger.ranks.iter().map(|rank| rank.memory.at_peak).collect();
    assert!(memory.iter().all(|memory| memory[Role::Activations] > Bytes(0)));
    Timeline::new(Arc::new(sketch.plan), &order, Arc::new(trace), &memory)
}

fn audit(scene: &Scene, theme: &Theme, what: &str) {
    let smallest = if theme.label_size > 12.0 { 18.0 } else { 12.0 };
    let labels: Vec<&Label> = scene.labels().collect();
    for (index, label) in labels.iter().enumerate() {
        let text = &label.text;
        assert!(label.size >= smallest, "{what}: `{text}` is {} points high", label.size);
        assert!(label.area.is_inside(label.within), "{what}: `{text}` leaves {:?}", label.within);
        assert!(label.area.is_inside(scene.area), "{what}: `{text}` leaves the picture");
        let contrast = label.ink.contrast(label.ground);
        assert!(contrast >= 4.5, "{what}: `{text}` has {contrast:.2} : 1");
        assert_eq!(painted_below(scene, label), Some(label.ground), "{what}: ground of `{text}`");
        for other in &labels[index + 1..] {
            let common = label.area.common(other.area);
            let overlap = common.is_some_and(|c| c.width > 0.5 && c.height > 0.5);
            assert!(!overlap, "{what}: `{text}` and `{}` overlap", other.text);
        }
    }
}

/// The colour of the last fill under the middle of a label, before it is written.
fn painted_below(scene: &Scene, label: &Label) -> Option<Rgb> {
    let mut found = None;
    for shape in &scene.shapes {
        match shape {
            Shape::Label(other) if other == label => return found,
            Shape::Fill { area, fill, .. } if area.contains(label.area.centre()) => {
                found = Some(*fill);
            }
            _ => {}
        }
    }
    None
}

#[test]
fn every_text_of_a_timeline_can_be_read() {
    let open: BTreeSet<u32> = [1].into();
    for (at, microbatches) in [(mesh(2, 2, 2), 4), (mesh(4, 4, 4), 8), (mesh(16, 16, 4), 4)] {
        let timeline = timeline_with_memory(at, microbatches, 1_300_017);
        let end = timeline.end();
        let windows =
            [(Nanos(0), end), (Nanos(end.0 / 3), Nanos(end.0 / 2)), (end, Nanos(end.0 * 2))];
        let sizes =
            [(800.0, 226.0), (911.0, 241.0), (1280.0, 376.0), (1920.0, 1080.0), (200.0, 60.0)];
        for (width, height) in sizes {
            for (theme, window) in THEMES.into_iter().zip(windows) {
                for theme in [theme, theme.projected()] {
                    let mut frame = Frame::new(Area::sized(width, height), window, Badge::Replayed);
                    frame.playhead = Some(Nanos(end.0 * 2 / 5));
                    frame.open = &open;
                    frame.scroll = 31.0;
                    let (scene, _) = drawn_in(&timeline, &frame, &theme);
                    let what = format!("{} ranks, {width} × {height}, {:?}", at.size(), theme.kind);
                    audit(&scene, &theme, &what);
                }
            }
        }
    }
}

#[test]
fn every_text_of_an_exported_picture_can_be_read_whatever_people_call_it() {
    let long = "a name ".repeat(43);
    let names = ["", "Shakespeare", &long, &"模型的一个很长的名字".repeat(30), "<&\"'>\u{1}"];
    let timeline = timeline_with_memory(mesh(2, 2, 2), 4, 90_000);
    for name in names {
        for theme in THEMES {
            for width in [10.0, 640.0, 1280.0] {
                let export = Export { title: name, caption: name, width, scale: 2.0 };
                let window = (Nanos(0), timeline.end());
                let frame = Frame::new(Area::default(), window, Badge::Measured);
                let canvas = Canvas { theme: &theme, measure: &SansTable };
                let scene = export.scene(canvas, &timeline, &frame);
                audit(&scene, &theme, &format!("`{name}` at {width}"));
                let texts: Vec<&str> = scene.labels().map(|label| label.text.as_str()).collect();
                assert!(texts.contains(&"MEASURED"), "the badge is inside");
                assert!(texts.iter().any(|text| text.starts_with("F")), "the legend is inside");
            }
        }
    }
}

#[test]
fn sixty_four_ranks_are_four_rows_in_sight_and_one_opens_to_sixteen() {
    let timeline = timeline_with_memory(mesh(4, 4, 4), 8, 1_000_000);
    let window = (Nanos(0), timeline.end());
    let mut frame = Frame::new(Area::sized(1280.0, 376.0), window, Badge::Replayed);
    let (scene, layout) = drawn(&timeline, &frame);
    assert_eq!(layout.rows.len(), 4);
    assert!(layout.content_height <= layout.track.height, "no scrolling");
    let texts: Vec<&str> = scene.labels().map(|label| label.text.as_str()).collect();
    for position in 0..4 {
        assert!(texts.contains(&format!("stage {position} · 16 ranks").as_str()), "{texts:?}");
    }
    assert_eq!(texts.iter().filter(|text| text.ends_with(", slowest")).count(), 4);
    assert!(layout.rows.iter().all(|row| row.lines.as_ref().unwrap().ranks.len() == 16));

    let open: BTreeSet<u32> = [2].into();
    frame.open = &open;
    let (_, layout) = drawn(&timeline, &frame);
    let ranks = layout.rows.iter().filter(|row| matches!(row.kind, RowKind::Rank(_)));
    assert_eq!((layout.rows.len(), ranks.clone().count()), (20, 16));
    assert!(ranks.clone().all(|row| row.has_text && row.area.height >= 20.0));
    assert!(layout.content_height > layout.track.height);
    // All of them come into sight while one scrolls, and each with its name.
    let mut named = BTreeSet::new();
    for scroll in 0..400 {
        frame.scroll = scroll as f32;
        let (scene, _) = drawn(&timeline, &frame);
        named.extend(scene.labels().map(|label| label.text.clone()));
    }
    for rank in timeline.position(2) {
        assert!(named.contains(&rank.to_string()), "rank {rank} is never named");
    }
}

#[test]
fn groups_with_little_room_lose_lines_before_names_and_names_only_where_rows_are_scrolled() {
    let timeline = timeline_with_memory(mesh(4, 4, 4), 8, 1_000_000);
    // Large text is no round multiple of the usual one.
    for label_size in [12.0, 18.7] {
        let theme = Theme { label_size, ..Theme::LIGHT };
        let unit = label_size / 12.0;
        let mut lines_before = usize::MAX;
        for height in (60..=376).rev() {
            let area = Area::sized(1280.0 * unit, height as f32 * unit);
            let frame = Frame::new(area, (Nanos(0), timeline.end()), Badge::Replayed);
            let (scene, layout) = drawn_in(&timeline, &frame, &theme);
            let lines = layout.rows.iter().filter_map(|row| row.lines.as_ref());
            let lines: usize = lines.map(|lines| lines.ranks.len()).sum();
            assert!(lines <= lines_before, "{height} at {label_size}");
            lines_before = lines;
            assert!(layout.rows.iter().all(|row| row.has_text), "{height} at {label_size}");
            let is_named = |label: &&Label| label.text.ends_with("16 ranks");
            let named = scene.labels().filter(is_named).count();
            // Ruler, four rows and the legend.
            let fits = height >= 28 + 4 * 20 + 24;
            assert_eq!(layout.hidden() < 1.0, fits, "{height} at {label_size}");
            assert!(!fits || named == 4, "{named} names in {height} at {label_size}");
            // What is out of sight is announced.
            let thumb = |shape: &&Shape| match shape {
                Shape::Fill { area, fill, .. } => {
                    *fill == theme.faint && area.left > layout.area.right() - 7.0 * unit
                }
                _ => false,
            };
            assert_eq!(scene.shapes.iter().any(|shape| thumb(&shape)), !fits, "{height}");
        }
        assert_eq!(lines_before, 0);
    }
}

#[test]
fn rows_too_low_for_names_have_the_name_of_their_stage_beside_them() {
    let timeline = timeline_with_memory(mesh(2, 2, 2), 4, 1_000_000);
    let texts = |height: f32| -> Vec<String> {
        let area = Area::sized(800.0, height);
        let frame = Frame::new(area, (Nanos(0), timeline.end()), Badge::Replayed);
        drawn(&timeline, &frame).0.labels().map(|label| label.text.clone()).collect()
    };
    let (low, high) = (texts(140.0), texts(300.0));
    for stage in ["stage 0 · 4 ranks", "stage 1 · 4 ranks"] {
        assert_eq!(low.iter().filter(|text| *text == stage).count(), 1, "{low:?}");
        assert!(!high.contains(&stage.to_owned()), "each has a name of its own: {high:?}");
    }
}
