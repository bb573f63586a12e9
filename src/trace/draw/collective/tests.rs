//! A ring all-reduce written by hand: cells say whose sums they are, rounds can be pointed at, and
//! texts hold for groups of any size.

use super::*;
use crate::mesh::{Axis, Rank};
use crate::plan::{BufferId, Collective, CollectiveKind, Origin, Phase, View};
use crate::trace::captured::{Cell, Change, Members, Message, Round, Sample};
use crate::trace::draw::audit;
use crate::trace::draw::fonts::SansTable;
use crate::trace::draw::scene::{Canvas, Scene, Shape};
use crate::trace::draw::theme::Theme;
use crate::units::Bytes;

/// An all-reduce around a ring of `count` ranks in which rank r brings the number r + 0.5.
fn ring(count: usize) -> Captured {
    let all = |up_to: usize, owner: usize| {
        // The member behind the owner begins, and each one on the way adds its own.
        let mut set = Members::default();
        for hop in 0..=up_to {
            set.join(&Members::one((owner + 1 + hop) % count));
        }
        set
    };
    let mut samples: Vec<Sample> = Vec::new();
    let mut cell = |summed: Members| {
        let sum: f32 = summed.iter().map(|member| member as f32 + 0.5).sum();
        let view = View { buffer: BufferId(0), offset: 0, len: 1 };
        samples.push(Sample { after: None, view, values: vec![sum] });
        Cell { summed, sample: samples.len() - 1 }
    };
    let start: Vec<Vec<Option<Cell>>> = (0..count)
        .map(|member| (0..count).map(|_| Some(cell(Members::one(member)))).collect())
        .collect();
    let mut rounds = Vec::new();
    for round in 0..2 * (count - 1) {
        let (mut messages, mut changes) = (Vec::new(), Vec::new());
        for from in 0..count {
            let to = (from + 1) % count;
            let adds = round < count - 1;
            let chunk = match adds {
                true => (from + 2 * count - 1 - round) % count,
                false => (from + 2 * count - (round - (count - 1))) % count,
            };
            let sent = cell(all(if adds { round } else { count - 1 }, chunk));
            let held = cell(all(if adds { round + 1 } else { count - 1 }, chunk));
            let (chunks, bytes, cells) = (chunk..chunk + 1, Bytes(40), vec![sent]);
            messages.push(Message { from, to, chunks, bytes, cells, send: (Rank(0), 0) });
            changes.push(Change { member: to, chunk, cell: held, adds });
        }
        rounds.push(Round { messages, changes });
    }
    Captured {
        collective: Collective { kind: CollectiveKind::AllReduce, id: 1 },
        axis: Axis::Dp,
        origin: Origin { phase: Phase::GradReduce, ..Origin::default() },
        members: (0..count as u32).map(|rank| Rank(2 * rank)).collect(),
        chunks: (0..count as u32).map(|chunk| 10 * chunk..10 * chunk + 10).collect(),
        start,
        rounds,
        samples,
    }
}

fn drawn(captured: &Captured, over: usize) -> (Scene, Layout) {
    let area = Area::sized(900.0, 300.0);
    let mut sketch = Sketch::new(Canvas { theme: &Theme::LIGHT, measure: &SansTable }, area);
    let layout = draw(&mut sketch, area, &Frame { captured, over, hovered: None });
    (sketch.scene, layout)
}

fn texts(scene: &Scene) -> Vec<&str> {
    scene.labels().map(|label| label.text.as_str()).collect()
}

#[test]
fn cells_show_true_numbers_and_whose_sums_they_are() {
    let captured = ring(4);
    let (scene, _) = drawn(&captured, 1);
    // After one step, member 1 has added its own to what member 0 sent of chunk 3.
    assert!(texts(&scene).contains(&"sum of {0,2}"), "{:?}", texts(&scene));
    assert!(texts(&scene).contains(&"2.0"));
    let (scene, _) = drawn(&captured, 6);
    let finished = texts(&scene).iter().filter(|text| **text == "sum of all").count();
    assert_eq!(finished, 16);
    // 0.5 + 1.5 + 2.5 + 3.5.
    assert_eq!(texts(&scene).iter().filter(|text| **text == "8.0").count(), 16);
}

#[test]
fn an_all_reduce_is_two_halves_of_equal_bytes() {
    let captured = ring(4);
    assert_eq!((captured.rounds.len(), captured.summing_rounds()), (6, 3));
    let state = |over| Frame { captured: &captured, over, hovered: None }.state();
    assert_eq!(state(0), "before round 1 of 6");
    assert_eq!(state(3), "after round 3 of 6, reduce-scatter");
    assert_eq!(state(4), "after round 4 of 6, all-gather");
    let half = captured.traffic(3);
    assert!(half.iter().all(|t| t.sent == Bytes(120) && t.received == Bytes(120)));
    assert_eq!(captured.bytes(), Bytes(2 * 3 * 4 * 40));
}

#[test]
fn going_on_and_back_gives_the_same_picture() {
    let captured = ring(5);
    let before = drawn(&captured, 3);
    let _after = drawn(&captured, 4);
    assert_eq!(drawn(&captured, 3), before);
}

#[test]
fn what_is_drawn_can_be_pointed_at() {
    let captured = ring(4);
    let (_, layout) = drawn(&captured, 2);
    for (area, part) in &layout.parts {
        assert_eq!(layout.part_at(area.centre()), Some(*part));
    }
    let frame = Frame { captured: &captured, over: 1, hovered: None };
    let say = |part| frame.sentence(part).expect("it is there");
    assert_eq!(
        say(Part::Cell { member: 1, chunk: 3 }),
        "Rank 2, chunk 3 (elements 30–39): sum of ranks {0,2}: 2.0 …."
    );
    assert_eq!(
        say(Part::Member(0)),
        "Rank 0 has sent 40 B and received 40 B after round 1 of 6, reduce-scatter."
    );
    assert_eq!(frame.sentence(Part::Cell { member: 1, chunk: 99 }), None);
}

#[test]
fn the_messages_of_a_step_are_arrows() {
    let (scene, _) = drawn(&ring(4), 1);
    let heads = scene.shapes.iter().filter(|shape| matches!(shape, Shape::Polygon { .. })).count();
    assert_eq!(heads, 4);
}

#[test]
fn numbers_have_two_digits_that_count() {
    let written: Vec<String> =
        [-0.13, 0.0, 0.04, 12.34, 123.4, 1e-7, f32::NAN].map(number).to_vec();
    assert_eq!(written, ["−0.13", "0", "0.040", "12", "123", "1.0e−7", "NaN"]);
}

#[test]
fn texts_hold_at_every_size_in_every_theme() {
    for count in [2, 4, 8, 40, 66] {
        let captured = ring(count);
        for over in [0, 1, captured.rounds.len()] {
            audit::every_theme_and_size(|sketch, area| {
                let hovered = Some(Part::Cell { member: 1, chunk: 1 });
                draw(sketch, area, &Frame { captured: &captured, over, hovered });
            });
        }
    }
}
