//! Wires carry exactly what the step sends, cards lie where the mesh says and nowhere else, and
//! what is drawn can be pointed at.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::*;
use crate::mesh::{Coord, Mesh, RankOrder};
use crate::plan::{CollectiveKind, Phase};
use crate::trace::draw::audit;
use crate::trace::draw::fonts::SansTable;
use crate::trace::draw::scene::{Canvas, Scene};
use crate::trace::draw::sketch::{collective, one_f_one_b};
use crate::trace::draw::theme::Theme;

const AREA: Area = Area { left: 0.0, top: 0.0, width: 794.0, height: 214.0 };

/// 1F1B, and then every rank sends one element to each other rank of its data and tensor groups.
fn step(dp: u32, tp: u32, pp: u32, takes: u64) -> Timeline {
    let mesh = Mesh { dp, tp, pp, order: RankOrder::TpDpPp };
    let mut sketch = one_f_one_b(mesh, 2, 1_000_000);
    for axis in [Axis::Dp, Axis::Tp] {
        let origin = collective(Phase::GradReduce, CollectiveKind::ReduceScatter);
        for rank in mesh.ranks() {
            for other in mesh.group(rank, axis).into_iter().filter(|other| *other != rank) {
                sketch.send((rank, other), axis, origin, takes, &format!("{axis}.{rank}.{other}"));
            }
        }
        for rank in mesh.ranks() {
            for other in mesh.group(rank, axis).into_iter().filter(|other| *other != rank) {
                sketch.recv((rank, other), axis, origin, takes, &format!("{axis}.{other}.{rank}"));
            }
        }
    }
    let (order, trace) = sketch.replay();
    Timeline::new(Arc::new(sketch.plan), &order, Arc::new(trace), &[])
}

fn frame<'a>(timeline: &'a Timeline, wires: &'a Wires) -> Frame<'a> {
    let playhead = timeline.end();
    Frame { timeline, wires, playhead, speed: None, selected: None, hovered: None }
}

fn drawn(frame: &Frame<'_>, area: Area) -> (Scene, Layout) {
    let mut sketch = Sketch::new(Canvas { theme: &Theme::LIGHT, measure: &SansTable }, area);
    let layout = draw(&mut sketch, area, frame);
    (sketch.scene, layout)
}

#[test]
fn a_wire_carries_what_has_arrived_by_then() {
    let timeline = step(2, 2, 2, 700);
    let wires = Wires::new(&timeline);
    for share in 0..=4 {
        let at = Nanos(timeline.end().0 * share / 4);
        for axis in Axis::ALL {
            let mut expected = [Bytes(0), Bytes(0)];
            for (rank, program) in (0..).map(Rank).zip(&timeline.plan().programs) {
                for (index, instr) in program.instrs.iter().enumerate() {
                    let (Action::Send { .. }, Lane::Out(of, _)) = (&instr.action, instr.lane)
                    else {
                        continue;
                    };
                    if of == axis {
                        expected[1] += Bytes(4);
                        if timeline.trace().span(rank, index).end <= at {
                            expected[0] += Bytes(4);
                        }
                    }
                }
            }
            assert_eq!(wires.on(axis, at), expected.into(), "{axis} at {at}");
            let single: Bytes =
                wires.flows.iter().filter(|(wire, _)| wire.2 == axis).map(|(_, f)| f.at(at)).sum();
            let bundled: Bytes =
                wires.bundles.iter().filter(|(key, _)| key.2 == axis).map(|(_, f)| f.at(at)).sum();
            assert_eq!((single, bundled), (expected[0], expected[0]));
        }
    }
}

#[test]
fn cards_lie_in_the_picture_apart_from_one_another_and_never_move() {
    for (dp, tp, pp) in
        [(1, 1, 1), (2, 2, 2), (8, 1, 1), (1, 8, 1), (1, 1, 8), (3, 1, 2), (16, 1, 1)]
    {
        let timeline = step(dp, tp, pp, 0);
        let wires = Wires::new(&timeline);
        let at = |playhead| drawn(&Frame { playhead, ..frame(&timeline, &wires) }, AREA).1;
        let layout = at(timeline.end());
        let what = format!("{dp} × {tp} × {pp}");
        let ranks: BTreeSet<Target> = layout.cards.iter().map(|card| card.1).collect();
        assert_eq!(ranks.len(), timeline.ranks().len(), "{what}");
        for (index, (card, _)) in layout.cards.iter().enumerate() {
            assert!(card.is_inside(AREA), "{what}: {card:?}");
            for (other, _) in &layout.cards[index + 1..] {
                assert_eq!(card.common(*other), None, "{what}");
            }
        }
        assert_eq!(at(Nanos(0)).cards, layout.cards, "{what}");
    }
}

#[test]
fn stages_go_right_tensor_ranks_too_and_replicas_down() {
    let timeline = step(2, 2, 2, 0);
    let wires = Wires::new(&timeline);
    let (_, layout) = drawn(&frame(&timeline, &wires), AREA);
    let mesh = timeline.plan().mesh;
    let card = |dp, tp, pp| {
        let target = Target::Rank(mesh.rank(Coord { dp, tp, pp }));
        layout.cards.iter().find(|card| card.1 == target).expect("a card").0
    };
    assert!(card(0, 0, 0).right() < card(0, 1, 0).left);
    assert!(card(0, 1, 0).right() < card(0, 0, 1).left);
    assert!(card(0, 0, 0).bottom() < card(1, 0, 0).top);
    assert_eq!((card(0, 0, 0).width, card(0, 0, 0).height), (104.0, 48.0));
}

#[test]
fn cards_and_wires_can_be_pointed_at() {
    for (dp, tp, pp) in [(2, 2, 2), (4, 1, 1), (1, 4, 1), (1, 1, 4)] {
        let timeline = step(dp, tp, pp, 0);
        let wires = Wires::new(&timeline);
        let (_, layout) = drawn(&frame(&timeline, &wires), AREA);
        for (card, target) in &layout.cards {
            assert_eq!(layout.target_at(card.centre()), Some(*target));
        }
        let mut found = BTreeSet::new();
        for (points, _, target) in &layout.wires {
            let hit = points.windows(2).any(|pair| {
                [0.35, 0.5].into_iter().any(|share| {
                    let between = |a: f32, b: f32| a + (b - a) * share;
                    let x = between(pair[0].x, pair[1].x);
                    layout.target_at(Point { x, y: between(pair[0].y, pair[1].y) }) == Some(*target)
                })
            });
            if hit {
                found.insert(*target);
            }
        }
        let all = layout.wires.len();
        assert!(
            found.len() * 10 >= all * 9,
            "{} of {all} wires of {dp} × {tp} × {pp}",
            found.len()
        );
        assert_eq!(layout.target_at(Point { x: -9.0, y: -9.0 }), None);
    }
}

#[test]
fn messages_move_only_where_they_can_be_followed() {
    let timeline = step(2, 2, 1, 400_000);
    let wires = Wires::new(&timeline);
    let start =
        wires.messages.iter().map(|message| message.span).find(|span| span.start < span.end);
    let middle = start.map(|span| Nanos((span.start.0 + span.end.0) / 2)).expect("a message");
    let count = |power: i8| {
        let speed = Some(Speed::new(power));
        flights::under_way(&Frame { playhead: middle, speed, ..frame(&timeline, &wires) }).len()
    };
    // 0.4 ms are seen for 200 ms at 1/512, and for 100 ms at 1/256.
    assert!(count(-9) > 0);
    assert_eq!(count(-8), 0);
    assert_eq!(flights::under_way(&frame(&timeline, &wires)).len(), 0);
    // All at once are no longer followed by anybody.
    let timeline = step(6, 1, 1, 400_000);
    let wires = Wires::new(&timeline);
    let frame = Frame { playhead: middle, speed: Some(Speed::new(-9)), ..frame(&timeline, &wires) };
    let span = |message: &&Message| message.span.start <= middle && middle < message.span.end;
    assert!(wires.messages.iter().filter(span).count() > MOST_FLIGHTS);
    assert_eq!(flights::under_way(&frame).len(), 0);
}

#[test]
fn a_selected_block_marks_the_wires_of_its_messages() {
    let timeline = step(1, 1, 3, 0);
    let wires = Wires::new(&timeline);
    // Rank 0 sends its first forward to rank 1.
    let selected = timeline.target_at(Rank(0), crate::trace::draw::timeline::Level::Pass, Nanos(1));
    let marked = flights::marked(&Frame { selected, ..frame(&timeline, &wires) });
    assert_eq!(marked.into_iter().collect::<Vec<_>>(), [(Rank(0), Rank(1), Axis::Pp)]);
    assert!(flights::marked(&frame(&timeline, &wires)).is_empty());
}

#[test]
fn the_same_frame_is_the_same_picture() {
    for (dp, tp, pp) in [(2, 2, 2), (4, 4, 4)] {
        let timeline = step(dp, tp, pp, 700);
        let (one, other) = (Wires::new(&timeline), Wires::new(&timeline));
        let [one, other] = [one, other].map(|wires| {
            let playhead = Nanos(timeline.end().0 / 2);
            drawn(&Frame { playhead, ..frame(&timeline, &wires) }, AREA)
        });
        assert_eq!(one, other);
    }
}

#[test]
fn many_ranks_are_a_card_for_each_position_with_a_field_for_each_rank() {
    let timeline = step(4, 4, 4, 0);
    let wires = Wires::new(&timeline);
    let (scene, layout) = drawn(&frame(&timeline, &wires), AREA);
    let positions =
        layout.cards.iter().filter(|card| matches!(card.1, Target::Position(_))).count();
    let ranks = layout.cards.iter().filter(|card| matches!(card.1, Target::Rank(_))).count();
    assert_eq!((positions, ranks), (4, 64));
    assert!(layout.cards.iter().all(|(card, _)| card.is_inside(AREA)));
    // Tensor ranks of a position: 4 · 4 · 3 messages of 4 bytes.
    assert!(scene.labels().any(|label| label.text == "tensor 192 B"));
}

#[test]
fn texts_hold_at_every_size_in_every_theme() {
    for (dp, tp, pp) in [(1, 1, 1), (2, 2, 2), (1, 1, 16), (4, 4, 4), (8, 8, 16), (1, 1, 300)] {
        let timeline = step(dp, tp, pp, 0);
        let wires = Wires::new(&timeline);
        audit::every_theme_and_size(|sketch, area| {
            let playhead = Nanos(timeline.end().0 / 2);
            draw(sketch, area, &Frame { playhead, ..frame(&timeline, &wires) });
        });
    }
}
