//! Goal: rows that stand for many ranks, and rows of very many blocks, hide nothing that matters.
//! Method: 64 and 1,024 ranks of which one ends early or late, and a step of a million blocks.

use std::collections::BTreeSet;

use super::*;
use crate::ops::Op;
use crate::ops::elementwise::Fill;
use crate::plan::{Lane, Origin, Phase, Program};
use crate::trace::Clock;
use crate::trace::draw::theme::Rgb;
use crate::trace::draw::{Work, block_at};

/// The textbook step of these ranks in which one of them ends so many thousandths later than the
/// others of its position, or earlier: all that it does is slower, or faster.
fn with_one_late(mesh: Mesh, late: Rank, thousandths: i64) -> Timeline {
    let sketch = one_f_one_b(mesh, 4, 1_000_000);
    let (order, mut trace) = sketch.replay();
    let moved = |at: Nanos| Nanos(at.0.strict_add_signed(at.0 as i64 * thousandths / 1000));
    for span in &mut trace.spans[late.index()] {
        *span = Span { start: moved(span.start), end: moved(span.end) };
    }
    Timeline::new(Arc::new(sketch.plan), &order, Arc::new(trace), &[])
}

fn whole(timeline: &Timeline) -> Frame<'static> {
    // With room for those who end late.
    let end = Nanos(timeline.end().0 * 21 / 20);
    Frame::new(Area::sized(1280.0, 376.0), (Nanos(0), end), Badge::Replayed)
}

/// The dots over the rows: where they are.
fn marks(scene: &Scene, layout: &Layout) -> Vec<Point> {
    let dots = scene.shapes.iter().filter_map(|shape| match shape {
        Shape::Dot { at, fill, .. } if *fill == Theme::LIGHT.warning => Some(*at),
        _ => None,
    });
    dots.filter(|at| layout.track.contains(*at)).collect()
}

/// The line that shows a rank, or stands for it, and which rank that line shows.
fn line_of(timeline: &Timeline, layout: &Layout, rank: Rank) -> (Area, Rank) {
    let position = timeline.position_of(rank);
    let row = layout.rows.iter().find(
        |row| matches!(row.kind, RowKind::Group { position: other, .. } if other == position),
    );
    let lines = row.unwrap().lines.as_ref().unwrap();
    let ranks: Vec<Rank> = timeline.position(position).collect();
    let index = ranks.iter().position(|other| *other == rank).unwrap();
    // Lines share the ranks alike: the last one that begins at or before it.
    let begins = |line: &usize| line * ranks.len() / lines.ranks.len() <= index;
    let line = (0..lines.ranks.len()).rev().find(begins).unwrap();
    (lines.line(line), lines.ranks[line])
}

#[test]
fn a_rank_whose_end_differs_by_more_than_a_twentieth_is_marked_and_no_other() {
    for (mesh, late) in [(mesh(4, 4, 4), Rank(37)), (mesh(16, 16, 4), Rank(600))] {
        for thousandths in [-60, -40, 0, 40, 60] {
            let timeline = with_one_late(mesh, late, thousandths);
            let (scene, layout) = drawn(&timeline, &whole(&timeline));
            let found = marks(&scene, &layout);
            let (line, shown) = line_of(&timeline, &layout, late);
            let what = format!("{} ranks, {thousandths} ‰: {found:?}", mesh.size());
            let says = scene.labels().any(|label| label.text == "ends early or late");
            // A line of several shows the one that ends last: who is early is seen alone only.
            let is_seen = shown == late;
            assert!(is_seen || (mesh.size() > 64 && thousandths <= 0), "{what}");
            if is_seen && thousandths.abs() > 50 {
                let expected = Point { x: layout.x_at(timeline.done(late)), y: line.centre().y };
                assert_eq!(found, [expected], "{what}");
                assert!(says, "{what}: the legend explains it");
            } else {
                assert!(found.is_empty() && !says, "{what}");
            }
        }
    }
}

/// The colour that is seen at a point.
fn seen_at(scene: &Scene, at: Point) -> Option<Rgb> {
    let fills = scene.shapes.iter().rev().filter_map(|shape| match shape {
        Shape::Fill { area, fill, .. } if area.contains(at) => Some(*fill),
        _ => None,
    });
    fills.into_iter().next()
}

#[test]
fn the_band_of_a_thousand_ranks_is_a_density_in_which_each_line_is_what_its_rank_does() {
    let timeline = timeline(mesh(16, 16, 4), 4, 1_000_000);
    let frame = whole(&timeline);
    let (scene, layout) = drawn(&timeline, &frame);
    assert_eq!(layout.rows.len(), 4);
    let theme = &Theme::LIGHT;
    for row in &layout.rows {
        let lines = row.lines.as_ref().expect("a group of many has lines");
        assert!(lines.ranks.len() >= 16 && lines.area.height >= 24.0, "{lines:?}");
        assert!(lines.area.is_inside(row.area));
        for (index, &rank) in lines.ranks.iter().enumerate() {
            let y = lines.line(index).centre().y;
            for column in 1..100 {
                let at = Point { x: layout.track.left + 10.0 * column as f32, y };
                let (before, after) = (layout.time_at(at.x - 3.0), layout.time_at(at.x + 3.0));
                let work = |time| block_at(timeline.blocks(rank), time).map(Block::work);
                // Beside an edge either may be seen.
                let Some(work) = work(before).filter(|found| Some(*found) == work(after)) else {
                    continue;
                };
                let expected = work.map_or(theme.waiting(), |work| theme.work(work)).fill;
                assert_eq!(seen_at(&scene, at), Some(expected), "rank {rank} at {at:?}");
            }
        }
    }
    // It costs what 64 ranks cost.
    let few = super::timeline(mesh(4, 4, 4), 4, 1_000_000);
    let (fewer, _) = drawn(&few, &whole(&few));
    assert!(scene.shapes.len() < 2 * fewer.shapes.len(), "{} shapes", scene.shapes.len());
}

/// 16 ranks that each run 31,250 forwards and as many backwards, with a wait in every hundredth.
fn a_million_blocks() -> Timeline {
    let mesh = mesh(4, 4, 1);
    let (mut programs, mut spans) = (Vec::new(), Vec::new());
    for rank in mesh.ranks() {
        let (mut program, mut times, mut at) = (Program::default(), Vec::new(), 0);
        for pass in 0..62_500_u32 {
            let phase = if pass % 2 == 0 { Phase::Forward } else { Phase::Backward };
            let microbatch = Some(pass / 2);
            let origin = Origin { phase, stage: Some(0), microbatch, ..Origin::default() };
            let op = Op::Fill(Fill { len: 1, value: 0.0 });
            let action = Action::Launch { op, inputs: Vec::new(), outputs: Vec::new() };
            program.instrs.push(crate::plan::Instr { lane: Lane::Compute, action, origin });
            at += u64::from(pass % 100 == 0) * 5_000;
            let takes = 1_000 + u64::from(pass * 7 + rank.0) % 300;
            times.push(Span { start: Nanos(at), end: Nanos(at + takes) });
            at += takes;
        }
        programs.push(program);
        spans.push(times);
    }
    let plan = Plan { mesh, tensors: Vec::new(), buffers: Vec::new(), programs };
    let order = crate::plan::order::derive(&plan);
    let trace = Trace { clock: Clock::Replayed, step: 0, spans, paths: Vec::new() };
    Timeline::new(Arc::new(plan), &order, Arc::new(trace), &[])
}

#[test]
fn a_million_blocks_are_one_frame_of_few_shapes_without_a_hole_and_each_is_found_by_zooming() {
    let timeline = a_million_blocks();
    assert!(timeline.count(Level::Pass) >= 1_000_000);
    let end = timeline.end();
    let area = Area::sized(1280.0, 376.0);
    let (scene, layout) = drawn(&timeline, &Frame::new(area, (Nanos(0), end), Badge::Replayed));
    assert_eq!(layout.rows.len(), 16);
    // To every three points of a row a bar of what lies in them, and the block on their edge.
    let most = 16 * 2 * (layout.track.width as usize / 3 + 2) + 200;
    assert!((1_000..most).contains(&scene.shapes.len()), "{} of {most}", scene.shapes.len());
    let ground = [Theme::LIGHT.ground, Theme::LIGHT.track];
    for row in &layout.rows {
        let RowKind::Rank(rank) = row.kind else { panic!("{row:?}") };
        let last = layout.x_at(timeline.done(rank)) - 1.0;
        let mut x = layout.track.left + 1.0;
        while x < last {
            let seen = seen_at(&scene, Point { x, y: row.blocks.centre().y });
            let is_seen = seen.is_some_and(|fill| !ground.contains(&fill));
            assert!(is_seen, "rank {rank} is blank at {x}");
            x += 7.0;
        }
    }
    // Any block is on the screen with its name when its time is.
    for (rank, index) in [(Rank(0), 0), (Rank(9), 31_415), (Rank(15), 62_000)] {
        let block = &timeline.blocks(rank)[index];
        let around = (Nanos(block.start.0.saturating_sub(9_000)), Nanos(block.end.0 + 9_000));
        let (scene, layout) = drawn(&timeline, &Frame::new(area, around, Badge::Replayed));
        let middle = Nanos(block.start.0.midpoint(block.end.0));
        let band = layout.band_of(rank).unwrap();
        let at = Point { x: layout.x_at(middle), y: band.centre().y };
        let target = layout.hit(&timeline, at).expect("it lies there");
        let span = Span { start: block.start, end: block.end };
        assert_eq!(timeline.span(&target), Some((rank, span)));
        assert!(seen_at(&scene, at).is_some());
        let texts: BTreeSet<&str> = scene.labels().map(|label| label.text.as_str()).collect();
        let letters = block.work().map_or("waiting", Work::letters);
        assert!(texts.iter().any(|text| text.starts_with(letters)), "{texts:?}");
    }
}
