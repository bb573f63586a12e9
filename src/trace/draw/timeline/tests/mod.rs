//! Goal: rows cover the step at every level, what is drawn can be pointed at, and names outlive
//! the step. Method: textbook pipelines with known times, and layouts of many sizes.

mod audit;
mod many;
mod snapshot;

use super::*;
use crate::mesh::{Axis, Mesh, RankOrder};
use crate::plan::{Lane, Origin, Phase};
use crate::trace::Badge;
use crate::trace::draw::fonts::SansTable;
use crate::trace::draw::scene::{Area, Canvas, Point, Scene, Shape, Sketch as Drawing};
use crate::trace::draw::sketch::{Sketch, one_f_one_b};
use crate::trace::draw::theme::Theme;

fn mesh(dp: u32, tp: u32, pp: u32) -> Mesh {
    Mesh { dp, tp, pp, order: RankOrder::TpDpPp }
}

fn timeline(mesh: Mesh, microbatches: u32, unit: u64) -> Timeline {
    let sketch = one_f_one_b(mesh, microbatches, unit);
    let (order, trace) = sketch.replay();
    Timeline::new(Arc::new(sketch.plan), &order, Arc::new(trace), &[])
}

fn drawn(timeline: &Timeline, frame: &Frame<'_>) -> (Scene, Layout) {
    drawn_in(timeline, frame, &Theme::LIGHT)
}

fn drawn_in(timeline: &Timeline, frame: &Frame<'_>, theme: &Theme) -> (Scene, Layout) {
    let canvas = Canvas { theme, measure: &SansTable };
    let mut sketch = Drawing::new(canvas, frame.area);
    let layout = draw(&mut sketch, timeline, frame);
    (sketch.scene, layout)
}

#[test]
fn rows_cover_the_step_at_every_level_and_busy_is_the_same() {
    // The last one has more pieces than lie between two sums.
    for (at, microbatches) in [(mesh(2, 2, 2), 4), (mesh(1, 1, 7), 3), (mesh(1, 2, 3), 90)] {
        let timeline = timeline(at, microbatches, 7_919);
        for rank in at.ranks() {
            let row = timeline.row(rank);
            let busy: Nanos = timeline.blocks(rank).iter().map(Block::busy).sum();
            for level in Level::ALL {
                let (mut end, mut works) = (Nanos(0), Nanos(0));
                for index in 0..row.len(level) {
                    let part = row.part(level, index);
                    assert_eq!(part.span.start, end, "rank {rank}, {level:?}");
                    assert!(part.span.start < part.span.end);
                    end = part.span.end;
                    let waits = row.before(end).waiting_since(row.before(part.span.start));
                    works += part.span.duration() - waits;
                    assert!(part.work.is_some() || waits == part.span.duration());
                }
                assert_eq!((end, works), (timeline.end(), busy), "rank {rank}, {level:?}");
            }
        }
    }
}

#[test]
fn every_block_that_is_drawn_is_what_lies_under_its_middle() {
    for (at, microbatches) in [(mesh(2, 2, 2), 4), (mesh(4, 4, 4), 8)] {
        let timeline = timeline(at, microbatches, 1_000_000);
        let frame =
            Frame::new(Area::sized(1280.0, 376.0), (Nanos(0), timeline.end()), Badge::Replayed);
        let (_, layout) = drawn(&timeline, &frame);
        let mut pointed = 0;
        for row in &layout.rows {
            let (RowKind::Rank(rank) | RowKind::Group { shown: rank, .. }) = row.kind else {
                continue;
            };
            for block in timeline.blocks(rank) {
                let middle = Nanos(u64::midpoint(block.start.0, block.end.0));
                let at = Point { x: layout.x_at(middle), y: row.blocks.centre().y };
                let target = layout.hit(&timeline, at).expect("a block lies there");
                let span = Span { start: block.start, end: block.end };
                assert_eq!(timeline.span(&target), Some((rank, span)), "{block} is {target:?}");
                pointed += 1;
            }
        }
        assert!(pointed > 50);
    }
}

#[test]
fn a_target_is_the_same_block_in_a_slower_step_of_the_same_plan() {
    let [fast, slow] = [1_000, 1_700].map(|unit| timeline(mesh(1, 1, 4), 8, unit));
    for rank in fast.ranks() {
        for (index, block) in fast.blocks(*rank).iter().enumerate() {
            let target = fast.target_at(*rank, Level::Pass, block.start).unwrap();
            let (_, span) = slow.span(&target).expect("it is there as well");
            let other = &slow.blocks(*rank)[index];
            assert_eq!((span.start, span.end), (other.start, other.end));
            assert_eq!(block.to_string(), other.to_string());
        }
    }
}

#[test]
fn explanations_name_the_rank_that_is_waited_for() {
    let timeline = timeline(mesh(1, 1, 2), 4, 12_000_000);
    let at = |rank: u32, units: u64| {
        let time = Nanos(units * 12_000_000 + 1);
        timeline.explain(&timeline.target_at(Rank(rank), Level::Pass, time).unwrap())
    };
    assert_eq!(at(0, 0), "Rank 0 runs forward of microbatch 0: 12.0 ms, 1 message, 4 B sent.");
    assert_eq!(
        at(0, 2),
        "Rank 0 waits 24.0 ms for B0 from rank 1 (pipeline), which is computing B0."
    );
    assert_eq!(at(1, 16), "Rank 1 is done; the step ends 24.0 ms later.");
    // The end of the step is as long, and no wait for anybody.
    assert_eq!(
        timeline.longest_wait().unwrap(),
        "Rank 0 waits longest: 24.0 ms for B0 from rank 1 (pipeline)."
    );
    assert_eq!(at(0, 17), "Rank 0 shares weights (AG): 12.0 ms.");
    assert_eq!(timeline.now(Nanos(30_000_000)), at(0, 2));
    assert_eq!(timeline.now(Nanos(13_000_000)), "All 2 ranks work: F1 on 1, F0 on 1.");
    let link = Target::Link { from: Rank(0), to: Rank(1), axis: Axis::Pp };
    assert_eq!(timeline.explain(&link), "Rank 0 → 1, pipeline: 16 B this step in 4 messages: F.");
    for level in Level::ALL {
        for rank in [Rank(0), Rank(1)] {
            for index in 0..timeline.row(rank).len(level) {
                let part = timeline.row(rank).part(level, index);
                let text = timeline.explain(&timeline.target_of(rank, level, &part.pieces));
                assert!(text.chars().count() <= LONGEST && text.ends_with('.'), "{text}");
            }
        }
    }
}

#[test]
fn as_many_steps_back_as_forward_lead_to_the_same_instant() {
    let timeline = timeline(mesh(2, 1, 4), 8, 1_001);
    for grain in [Grain::Block, Grain::Microbatch, Grain::Instruction] {
        let mut stops = vec![Nanos(0)];
        while *stops.last().unwrap() < timeline.end() {
            let last = *stops.last().unwrap();
            let next = timeline.next_stop(last, grain, Direction::Forward);
            assert!(next > last);
            stops.push(next);
        }
        assert!(stops.len() > 10, "{grain:?} has {} stops", stops.len());
        for pair in stops.windows(2) {
            assert_eq!(timeline.next_stop(pair[1], grain, Direction::Back), pair[0], "{grain:?}");
        }
        assert_eq!(timeline.next_stop(timeline.end(), grain, Direction::Forward), timeline.end());
        assert_eq!(timeline.next_stop(Nanos(0), grain, Direction::Back), Nanos(0));
    }
}

#[test]
fn a_wait_is_followed_to_a_rank_that_works() {
    let timeline = timeline(mesh(1, 1, 4), 8, 10);
    // Rank 0 has done its four forwards; B0 comes up from rank 3 by way of ranks 2 and 1.
    let wait = timeline.target_at(Rank(0), Level::Pass, Nanos(55)).unwrap();
    let said: Vec<String> = timeline.chain(&wait).iter().map(|hop| timeline.explain(hop)).collect();
    assert_eq!(said[0], timeline.explain(&wait));
    assert!(said[0].ends_with("rank 1 (pipeline), which waits too: rank 3 is computing B0."));
    assert!(said[1].starts_with("Rank 1 waits 40 ns for B0 from rank 2"), "{said:?}");
    assert!(said[2].starts_with("Rank 2 waits 20 ns for B0 from rank 3"), "{said:?}");
    assert!(said[3].starts_with("Rank 3 runs backward of microbatch 0"), "{said:?}");
    assert_eq!(said.len(), 4);
    let done = timeline.target_at(Rank(3), Level::Pass, Nanos(timeline.end().0 - 1)).unwrap();
    assert_eq!(timeline.chain(&done), [done]);
}

/// What is said of rank 0 at an instant of a step that is written by hand.
fn said(sketch: Sketch, change: impl FnOnce(&mut Trace), at: u64) -> String {
    let (order, mut trace) = sketch.replay();
    change(&mut trace);
    let timeline = Timeline::new(Arc::new(sketch.plan), &order, Arc::new(trace), &[]);
    timeline.explain(&timeline.target_at(Rank(0), Level::Instr, Nanos(at)).unwrap())
}

#[test]
fn a_wait_for_own_work_beside_and_one_for_the_device_are_told_as_what_they_are() {
    let origin =
        Origin { phase: Phase::Forward, stage: Some(0), microbatch: Some(0), ..Origin::default() };
    let rank = Rank(0);
    // Within a pass the rank waits while it gathers weights on another lane.
    let gather = Origin { phase: Phase::WeightGather, ..Origin::default() };
    let mut sketch = Sketch::new(mesh(1, 1, 1));
    sketch.launch((rank, Lane::Compute), origin, 3, &[], "half");
    sketch.launch((rank, Lane::Reduce), gather, 2, &["half"], "sum");
    sketch.launch((rank, Lane::Compute), origin, 4, &["sum"], "whole");
    assert_eq!(said(sketch, |_| (), 4), "Rank 0 waits 2 ns for its own AG.");
    // On the clock of a run that shares its device nothing may be missing but a turn.
    let mut sketch = Sketch::new(mesh(1, 1, 1));
    sketch.launch((rank, Lane::Compute), origin, 3, &[], "half");
    sketch.launch((rank, Lane::Compute), origin, 4, &["half"], "whole");
    let late = |trace: &mut Trace| {
        let span = &mut trace.spans[0][1];
        *span = Span { start: Nanos(span.start.0 + 5), end: Nanos(span.end.0 + 5) };
    };
    assert_eq!(said(sketch, late, 5), "Rank 0 waits 5 ns for its turn on the device.");
}
