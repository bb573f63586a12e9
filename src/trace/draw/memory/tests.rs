//! Bars and curve agree with the ledger; what is above the cap is crossed out; everything that is
//! drawn can be pointed at.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::*;
use crate::ledger::Ledger;
use crate::mesh::{Axis, Mesh, RankOrder};
use crate::plan::Role;
use crate::trace::draw::audit;
use crate::trace::draw::fonts::SansTable;
use crate::trace::draw::scene::{Canvas, Pattern, Scene, Shape};
use crate::trace::draw::sketch::one_f_one_b;
use crate::trace::draw::theme::Theme;
use crate::trace::draw::timeline::Level;
use crate::trace::held::Held;

struct Step {
    timeline: Timeline,
    held: Vec<ByRole>,
    counted: Vec<RankMemory>,
}

fn step(dp: u32, tp: u32, pp: u32) -> Step {
    let mesh = Mesh { dp, tp, pp, order: RankOrder::TpDpPp };
    let sketch = one_f_one_b(mesh, 4, 1_000_000);
    let (order, trace) = sketch.replay();
    let ledger = Ledger::of(&sketch.plan);
    let counted: Vec<RankMemory> = ledger.ranks.iter().map(|rank| rank.memory).collect();
    let peaks: Vec<_> = counted.iter().map(|rank| rank.at_peak).collect();
    let held = Held::of(&sketch.plan, &trace).peaks();
    let timeline = Timeline::new(Arc::new(sketch.plan), &order, Arc::new(trace), &peaks);
    Step { timeline, held, counted }
}

fn frame<'a>(step: &'a Step, over_time: Option<&'a OverTime>) -> Frame<'a> {
    Frame {
        timeline: &step.timeline,
        held: &step.held,
        counted: &step.counted,
        cap: None,
        over_time,
        playhead: Some(Nanos(3_000_000)),
        selected: Some(Target::Rank(Rank(0))),
        hovered: None,
    }
}

fn drawn(frame: &Frame<'_>) -> (Scene, Layout) {
    let area = Area::sized(794.0, 214.0);
    let mut sketch = Sketch::new(Canvas { theme: &Theme::LIGHT, measure: &SansTable }, area);
    let layout = draw(&mut sketch, area, frame);
    (sketch.scene, layout)
}

#[test]
fn the_highest_point_of_the_curve_is_the_peak_of_the_bar() {
    let step = step(1, 1, 4);
    for rank in step.timeline.ranks() {
        let over_time = OverTime::new(&step.timeline, *rank);
        let most = over_time.changes.iter().map(|(_, live)| live.total()).max();
        assert_eq!(most, Some(step.held[rank.index()].total()), "rank {rank}");
        assert!(over_time.changes.windows(2).all(|pair| pair[0].0 <= pair[1].0));
        assert_eq!(over_time.changes[0].0, Nanos(0));
    }
}

#[test]
fn a_microbatch_keeps_its_activations_from_its_forward_to_its_backward() {
    let step = step(1, 1, 2);
    // The second stage of two: F0 B0 F1 B1 … of 1 and 2 ms, from the first millisecond on.
    let lives = OverTime::new(&step.timeline, Rank(1)).lifetimes;
    let spans: Vec<(u64, u64)> =
        lives.iter().map(|life| (life.start.0 / 1_000_000, life.end.0 / 1_000_000)).collect();
    assert_eq!(lives.len(), 4);
    // A backward is written as two launches of 2 ms each.
    assert_eq!(spans[0].0, 1);
    assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0), "one at a time: {spans:?}");
    // The first stage keeps two at once.
    let lives = OverTime::new(&step.timeline, Rank(0)).lifetimes;
    assert!(lives[0].end > lives[1].start);
}

#[test]
fn only_what_is_above_the_cap_is_crossed_out() {
    let step = step(1, 1, 4);
    // The bars in which something is crossed out.
    let crossed = |cap: u64| {
        let (scene, _) = drawn(&Frame { cap: Some(Bytes(cap)), ..frame(&step, None) });
        let error = Theme::LIGHT.error;
        let top = |shape: &Shape| match shape {
            Shape::Fill { area, pattern: Some((Pattern::Rising, ink)), .. } if *ink == error => {
                Some(area.top as u32)
            }
            _ => None,
        };
        scene.shapes.iter().filter_map(top).collect::<BTreeSet<u32>>().len()
    };
    let held: Vec<u64> = step.held.iter().map(|held| held.total().0).collect();
    assert!(held.iter().min() < held.iter().max());
    for cap in held.iter().flat_map(|held| [*held, held - 1]) {
        assert_eq!(crossed(cap), held.iter().filter(|held| **held > cap).count(), "{cap}");
    }
}

/// The left edges of all ticks, from top to bottom.
fn ticks(frame: &Frame<'_>) -> Vec<f32> {
    let (scene, _) = drawn(frame);
    let is_tick = |shape: &Shape| match shape {
        Shape::Fill { area, fill, pattern: None, .. } => {
            (*fill == Theme::LIGHT.ink && area.width == 1.5).then_some(area.left)
        }
        _ => None,
    };
    // The first one is the sample in the legend.
    scene.shapes.iter().filter_map(is_tick).skip(1).collect()
}

#[test]
fn a_tick_stands_where_the_ledger_has_counted_the_end_of_each_role_and_nowhere_else() {
    let step = step(1, 1, 4);
    let frame = frame(&step, None);
    let found = ticks(&frame);
    // Each number of the ledger has one place on the common scale.
    let ends: Vec<Bytes> =
        step.counted.iter().flat_map(|rank| bars::role_ends(&rank.at_peak)).collect();
    assert_eq!(found.len(), ends.len());
    let (first, last) = (found[0], found[ends.len() - 1]);
    assert!(ends[0] != ends[ends.len() - 1], "two places give the scale");
    let a_byte = f64::from(last - first) / (ends[ends.len() - 1].0 as f64 - ends[0].0 as f64);
    for (x, bytes) in found.iter().zip(&ends) {
        let expected = f64::from(first) + a_byte * (bytes.0 as f64 - ends[0].0 as f64);
        assert!((f64::from(*x) - expected).abs() < 0.01, "{bytes} is at {x}, not {expected}");
    }
    // One number of one role is another one: the ticks of that rank move, from that role on.
    let mut other = step.counted.clone();
    let mut roles = other[2].at_peak.bytes().map(Bytes);
    let less = Bytes(roles[Role::Activations as usize].0 / 2);
    roles[Role::Activations as usize] = less;
    other[2].at_peak = ByRole::new(roles);
    let moved = ticks(&Frame { counted: &other, ..frame });
    let changed: Vec<usize> = (0..found.len()).filter(|at| found[*at] != moved[*at]).collect();
    let before: usize =
        (0..2).map(|rank| bars::role_ends(&step.counted[rank].at_peak).count()).sum();
    let of_rank = bars::role_ends(&step.counted[2].at_peak).count();
    assert!(!changed.is_empty());
    assert!(changed.iter().all(|at| (before..before + of_rank).contains(at)), "{changed:?}");
}

#[test]
fn a_sentence_says_what_is_held_and_predicted_and_which_role_differs() {
    let step = step(1, 1, 2);
    let frame = frame(&step, None);
    let said = frame.sentence(&Target::Rank(Rank(0))).expect("a rank");
    assert!(said.starts_with("Rank 0 holds ") && said.contains("(predicted "), "{said}");
    let mut held = step.held.clone();
    let mut roles = held[0].bytes().map(Bytes);
    roles[Role::Activations as usize] += Bytes(1 << 20);
    held[0] = ByRole::new(roles);
    let said = Frame { held: &held, ..frame }.sentence(&Target::Rank(Rank(0))).expect("a rank");
    let activations = said.split("activations ").nth(1).expect("the role is named");
    assert!(activations.contains(" (predicted "), "{said}");
}

#[test]
fn the_row_of_what_is_chosen_is_marked_and_no_other() {
    for (step, grouped) in [(step(2, 2, 2), false), (step(4, 4, 4), true)] {
        let mesh = step.timeline.plan().mesh;
        let last = Rank(mesh.size() - 1);
        let ends = Nanos(step.timeline.done(last).0 - 1);
        let block = step.timeline.target_at(last, Level::Pass, ends);
        assert!(matches!(block, Some(Target::Block { .. })), "{block:?}");
        let wait = step.timeline.target_at(last, Level::Pass, Nanos(0));
        assert!(matches!(wait, Some(Target::Wait { .. })), "it begins late: {wait:?}");
        let link = Target::Link { from: Rank(0), to: last, axis: Axis::Pp };
        let row_of = |rank: Rank| match grouped {
            true => Target::Position(mesh.coord(rank).pp),
            false => Target::Rank(rank),
        };
        for (selected, expected) in [
            (None, None),
            (Some(link), None),
            (Some(Target::Rank(Rank(1))), Some(row_of(Rank(1)))),
            (block, Some(row_of(last))),
            (wait, Some(row_of(last))),
        ] {
            let (scene, layout) = drawn(&Frame { selected, ..frame(&step, None) });
            let marked = scene.shapes.iter().filter_map(|shape| match shape {
                Shape::Fill { area, fill, .. } if *fill == Theme::LIGHT.accent => {
                    layout.target_at(area.centre())
                }
                _ => None,
            });
            assert_eq!(marked.collect::<Vec<_>>(), Vec::from_iter(expected), "{selected:?}");
        }
    }
}

#[test]
fn rows_and_instants_can_be_pointed_at() {
    let step = step(2, 2, 2);
    let over_time = OverTime::new(&step.timeline, Rank(0));
    let (_, layout) = drawn(&frame(&step, Some(&over_time)));
    assert_eq!(layout.rows.len(), 8);
    for (area, target) in &layout.rows {
        assert_eq!(layout.target_at(area.centre()), Some(*target));
    }
    let curve = layout.curve.expect("there is room for it");
    let middle = layout.time_at(curve.centre()).expect("a time");
    assert!(middle.0.abs_diff(step.timeline.end().0 / 2) < step.timeline.end().0 / 100);
    let frame = frame(&step, Some(&over_time));
    let sentence = frame.sentence(&Target::Rank(Rank(1))).expect("a rank");
    assert!(
        sentence.starts_with("Rank 1 holds ") && sentence.contains("activations"),
        "{sentence}"
    );
}

#[test]
fn many_ranks_are_a_row_for_each_pipeline_position() {
    let step = step(4, 4, 4);
    let (_, layout) = drawn(&frame(&step, None));
    let targets: Vec<Target> = layout.rows.iter().map(|row| row.1).collect();
    assert_eq!(targets, [0, 1, 2, 3].map(Target::Position));
}

#[test]
fn texts_hold_at_every_size_in_every_theme() {
    for (dp, tp, pp) in [(1, 1, 1), (2, 2, 2), (16, 1, 1), (4, 4, 4), (64, 4, 4)] {
        let step = step(dp, tp, pp);
        let over_time = OverTime::new(&step.timeline, Rank(0));
        audit::every_theme_and_size(|sketch, area| {
            draw(sketch, area, &frame(&step, Some(&over_time)));
        });
    }
}
