//! Goal: the same step gives the same picture, and a picture shows it when anything changes.
//! Method: SVG documents, byte by byte, and a golden one that a person has looked at.

use expect_test::expect_file;

use super::*;
use crate::trace::draw::Work;
use crate::trace::draw::export::Export;
use crate::trace::draw::svg::{Document, document};

fn scene(timeline: &Timeline, at: Nanos) -> Scene {
    let mut frame = Frame::new(Area::default(), (Nanos(0), timeline.end()), Badge::Replayed);
    frame.playhead = Some(at);
    frame.selected = timeline.target_at(Rank(1), Level::Pass, at);
    let caption = timeline.now(at);
    let export = Export { title: "1F1B", caption: &caption, width: 960.0, scale: 1.0 };
    let canvas = Canvas { theme: &Theme::LIGHT, measure: &SansTable };
    export.scene(canvas, timeline, &frame)
}

fn svg(scene: &Scene) -> String {
    document(scene, &Document { title: "1F1B", scale: 1.0 })
}

#[test]
fn stepping_forward_and_back_gives_the_same_bytes() {
    let timeline = timeline(mesh(1, 2, 2), 4, 12_000_000);
    for grain in [Grain::Block, Grain::Microbatch, Grain::Instruction] {
        let start = timeline.next_stop(Nanos(20_000_000), grain, Direction::Forward);
        let before = svg(&scene(&timeline, start));
        let mut at = start;
        for direction in [Direction::Forward, Direction::Back] {
            for _ in 0..4 {
                at = timeline.next_stop(at, grain, direction);
            }
            assert_eq!(svg(&scene(&timeline, at)) == before, at == start, "{grain:?} at {at}");
        }
        assert_eq!(at, start, "{grain:?}");
    }
}

#[test]
fn the_textbook_step_looks_as_it_did() {
    let timeline = timeline(mesh(1, 1, 2), 4, 12_000_000);
    let mut picture = scene(&timeline, Nanos(30_000_000));
    let golden = expect_file!["golden.svg"];
    golden.assert_eq(&svg(&picture));
    // One block of another colour is one line of the document, and so another picture.
    let drawn = svg(&picture);
    let forward = Theme::LIGHT.work(Work::Forward).fill;
    let block = picture.shapes.iter_mut().find_map(|shape| match shape {
        Shape::Fill { fill, .. } if *fill == forward => Some(fill),
        _ => None,
    });
    *block.expect("a forward is drawn") = Theme::LIGHT.work(Work::InputGrad).fill;
    let recoloured = svg(&picture);
    let lines = drawn.lines().zip(recoloured.lines());
    assert_eq!(lines.filter(|(a, b)| a != b).count(), 1);
}
