//! Arrows from what made a message to what waited for it.

use std::collections::BTreeSet;

use super::frame::{Arrows, Frame};
use super::layout::Layout;
use super::row::work_of;
use super::{Half, Level, Target, Timeline};
use crate::mesh::Rank;
use crate::plan::Action;
use crate::trace::Span;
use crate::trace::draw::scene::{Area, Dash, Point, Shape, Sketch};
use crate::units::Nanos;

/// More arrows than this tell nothing; of more, some are drawn.
const MOST: usize = 2_000;

/// A dependency between two ranks: when it was ready, and when it was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Arrow {
    from: (Rank, Nanos),
    to: (Rank, Nanos),
}

pub(super) fn draw(
    sketch: &mut Sketch<'_>,
    timeline: &Timeline,
    frame: &Frame<'_>,
    layout: &Layout,
) {
    let arrows = match (frame.arrows, frame.selected) {
        (Arrows::All, _) => all(timeline, layout),
        (Arrows::Selected, Some(target)) => of(timeline, &target),
        (Arrows::Selected, None) => return,
    };
    let step = arrows.len().div_ceil(MOST).max(1);
    for arrow in arrows.into_iter().step_by(step) {
        paint(sketch, layout, arrow);
    }
}

/// The arrows into and out of a block or a wait.
fn of(timeline: &Timeline, target: &Target) -> BTreeSet<Arrow> {
    let Some(place) = timeline.place(target) else { return BTreeSet::new() };
    let rank = place.rank;
    if let Target::Wait { .. } = target {
        let missing = timeline.missing(target);
        return missing.and_then(|half| arrow(timeline, rank, half)).into_iter().collect();
    }
    let mine: BTreeSet<u32> = match place.pieces.is_empty() {
        true => timeline.instrs(target).into_iter().map(|(_, instr)| instr).collect(),
        false => {
            let pieces = timeline.row(rank).pieces[place.pieces].iter();
            pieces.filter(|piece| work_of(piece).is_some()).filter_map(|p| p.instr).collect()
        }
    };
    let touches = |half: &&Half| {
        mine.contains(&half.instr) || half.work.is_some_and(|work| mine.contains(&work))
    };
    let halves = timeline.halves[rank.index()].iter().filter(touches);
    // Of many messages between the same two blocks one is drawn.
    let mut seen = BTreeSet::new();
    let mut arrows = BTreeSet::new();
    for half in halves {
        let sends = matches!(timeline.line(rank, half.instr).action, Action::Send { .. });
        let Some(arrow) = arrow(timeline, rank, half) else { continue };
        let (other, at) = if sends { arrow.to } else { arrow.from };
        let last = Nanos(at.0.saturating_sub(u64::from(!sends)));
        let block = timeline.row(other).index_at(Level::Pass, last);
        if seen.insert((other, block, sends)) {
            arrows.insert(arrow);
        }
    }
    arrows
}

/// Every arrow of which an end is in sight.
fn all(timeline: &Timeline, layout: &Layout) -> BTreeSet<Arrow> {
    let (start, end) = layout.window;
    let inside = |at: Nanos| start <= at && at <= end;
    let mut arrows = BTreeSet::new();
    for (rank, halves) in (0..).map(Rank).zip(&timeline.halves) {
        let sends = halves.iter().filter(|half| timeline.axis_of(rank, half.instr).is_some());
        let arrow = |half: &Half| arrow(timeline, rank, half);
        arrows.extend(sends.filter_map(arrow).filter(|a| inside(a.from.1) || inside(a.to.1)));
    }
    arrows
}

/// The arrow of a message that one side of `rank` belongs to.
fn arrow(timeline: &Timeline, rank: Rank, half: &Half) -> Option<Arrow> {
    let other = timeline.half(half.other, half.other_instr)?;
    let sends = matches!(timeline.line(rank, half.instr).action, Action::Send { .. });
    let (send, recv) = if sends { (half, other) } else { (other, half) };
    let (from, to) = if sends { (rank, half.other) } else { (half.other, rank) };
    let span = |rank: Rank, instr: u32| -> Span { timeline.span_of(rank, instr) };
    let message = span(from, send.instr);
    let made = send.work.map_or(message.start, |work| span(from, work).end);
    let used = recv.work.map_or(message.end, |work| span(to, work).start);
    Some(Arrow { from: (from, made), to: (to, used.max(message.end)) })
}

fn paint(sketch: &mut Sketch<'_>, layout: &Layout, arrow: Arrow) {
    let ends = [arrow.from, arrow.to];
    let [Some(from), Some(to)] = ends.map(|(rank, _)| layout.band_of(rank)) else { return };
    let [start, end] = ends.map(|(_, at)| layout.x_at(at));
    let down = from.top < to.top;
    let (y0, y1) = if down { (from.bottom(), to.top) } else { (from.top, to.bottom()) };
    let (from, to) = (Point { x: start, y: y0 }, Point { x: end, y: y1 });
    let Some((from, to)) = clipped(layout.track, from, to) else { return };
    let ink = sketch.theme().ink;
    sketch.push(Shape::Line { points: vec![from, to], width: 1.25, ink, dash: Dash::Solid });
    let (dx, dy) = (to.x - from.x, to.y - from.y);
    let long = (dx * dx + dy * dy).sqrt();
    if long > 8.0 && (to.y - y1).abs() < 0.5 {
        let (ux, uy) = (dx / long, dy / long);
        let side = |sign: f32| Point {
            x: to.x - 7.0 * ux + sign * 3.0 * uy,
            y: to.y - 7.0 * uy - sign * 3.0 * ux,
        };
        sketch.push(Shape::Polygon { points: vec![to, side(1.0), side(-1.0)], fill: ink });
    }
}

/// The part of a line that lies in an area (Liang and Barsky).
fn clipped(area: Area, from: Point, to: Point) -> Option<(Point, Point)> {
    let (dx, dy) = (to.x - from.x, to.y - from.y);
    let (mut first, mut last) = (0.0_f32, 1.0_f32);
    let edges = [
        (-dx, from.x - area.left),
        (dx, area.right() - from.x),
        (-dy, from.y - area.top),
        (dy, area.bottom() - from.y),
    ];
    for (slope, room) in edges {
        if slope == 0.0 {
            if room < 0.0 {
                return None;
            }
            continue;
        }
        let at = room / slope;
        if slope < 0.0 {
            first = first.max(at);
        } else {
            last = last.min(at);
        }
    }
    let at = |part: f32| Point { x: from.x + part * dx, y: from.y + part * dy };
    (first <= last).then(|| (at(first), at(last)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::mesh::{Mesh, RankOrder};
    use crate::trace::Badge;
    use crate::trace::draw::fonts::SansTable;
    use crate::trace::draw::scene::Canvas;
    use crate::trace::draw::sketch::one_f_one_b;
    use crate::trace::draw::theme::Theme;

    const STAGES: u32 = 4;
    const MICROBATCHES: u32 = 5;

    /// A pipeline and nothing else: each pass sends one message on, but those at its ends.
    fn pipeline() -> Timeline {
        let mesh = Mesh { dp: 1, tp: 1, pp: STAGES, order: RankOrder::TpDpPp };
        let sketch = one_f_one_b(mesh, MICROBATCHES, 1_000);
        let (order, trace) = sketch.replay();
        Timeline::new(Arc::new(sketch.plan), &order, Arc::new(trace), &[])
    }

    /// The passes: rank, what stands on it, target, and from when to when it lasts.
    fn passes(timeline: &Timeline) -> Vec<(Rank, String, Target, Span)> {
        let of_rank = |rank: &Rank| {
            let rank = *rank;
            timeline.blocks(rank).iter().filter_map(move |block| {
                let text = block.to_string();
                let target = timeline.target_at(rank, Level::Pass, block.start)?;
                let span = Span { start: block.start, end: block.end };
                text.starts_with(['F', 'B']).then_some((rank, text, target, span))
            })
        };
        timeline.ranks().iter().flat_map(of_rank).collect()
    }

    /// Shapes of a frame with these arrows, and its layout.
    fn drawn(timeline: &Timeline, change: impl FnOnce(&mut Frame<'_>)) -> (usize, Layout) {
        let area = Area::sized(1280.0, 376.0);
        let mut frame = Frame::new(area, (Nanos(0), timeline.end()), Badge::Replayed);
        change(&mut frame);
        let mut sketch = Sketch::new(Canvas { theme: &Theme::LIGHT, measure: &SansTable }, area);
        let layout = super::super::draw(&mut sketch, timeline, &frame);
        (sketch.scene.shapes.len(), layout)
    }

    #[test]
    fn a_chosen_pass_has_the_arrow_that_it_waited_for_and_the_one_that_it_sends() {
        let timeline = pipeline();
        let passes = passes(&timeline);
        assert_eq!(passes.len() as u32, 2 * STAGES * MICROBATCHES);
        for (rank, text, target, span) in passes {
            let forward = text.starts_with('F');
            let (before, after) = if forward { (-1, 1) } else { (1, -1) };
            let neighbour = |by: i32| {
                let at = rank.0.checked_add_signed(by).filter(|at| *at < STAGES);
                at.map(Rank)
            };
            let (mut into, mut out) = (Vec::new(), Vec::new());
            for Arrow { from, to } in of(&timeline, &target) {
                if to.0 == rank {
                    assert_eq!(to.1, span.start, "{text} of rank {rank} begins with it");
                    assert!(from.1 <= to.1);
                    into.push(from.0);
                } else {
                    assert_eq!(from, (rank, span.end), "{text} of rank {rank} ends with it");
                    out.push(to.0);
                }
            }
            let expected = [before, after].map(|by| neighbour(by).into_iter().collect::<Vec<_>>());
            assert_eq!([into, out], expected, "{text} of rank {rank}");
        }
    }

    #[test]
    fn a_chosen_wait_has_the_arrow_that_ends_it() {
        let timeline = pipeline();
        let mut waits = 0;
        for rank in timeline.ranks() {
            for block in timeline.blocks(*rank).iter().filter(|block| block.cause().is_some()) {
                let target = timeline.target_at(*rank, Level::Pass, block.start).unwrap();
                for arrow in of(&timeline, &target) {
                    assert_eq!(arrow.to, (*rank, block.end));
                    waits += 1;
                }
            }
        }
        assert!(waits >= 6, "{waits}");
    }

    #[test]
    fn all_arrows_are_those_of_all_passes_and_of_a_part_of_time_those_with_an_end_in_it() {
        let timeline = pipeline();
        let (_, layout) = drawn(&timeline, |_| ());
        let every = all(&timeline, &layout);
        let messages = 2 * (STAGES - 1) * MICROBATCHES;
        assert_eq!(every.len() as u32, messages);
        let each = passes(&timeline).into_iter().flat_map(|(.., target, _)| of(&timeline, &target));
        assert_eq!(every, each.collect());
        let end = timeline.end().0;
        let window = (Nanos(end / 4), Nanos(end / 3));
        let (_, layout) = drawn(&timeline, |frame| frame.window = window);
        let some = all(&timeline, &layout);
        let inside = |at: Nanos| window.0 <= at && at <= window.1;
        assert!(!some.is_empty() && some.len() < every.len());
        for arrow in every {
            let is_in_sight = inside(arrow.from.1) || inside(arrow.to.1);
            assert_eq!(some.contains(&arrow), is_in_sight, "{arrow:?}");
        }
    }

    #[test]
    fn nothing_is_drawn_unless_something_is_chosen_or_all_are_asked_for() {
        let timeline = pipeline();
        let (none, _) = drawn(&timeline, |_| ());
        let (every, _) = drawn(&timeline, |frame| frame.arrows = Arrows::All);
        assert!(every >= none + (2 * (STAGES - 1) * MICROBATCHES) as usize, "{none}, {every}");
        let middle = |wanted: &str| {
            let found = passes(&timeline).into_iter();
            let is_it = |(rank, text, ..): &(Rank, String, Target, Span)| {
                *rank == Rank(1) && text == wanted
            };
            found.filter(is_it).map(|(.., target, _)| target).next()
        };
        let (chosen, _) = drawn(&timeline, |frame| frame.selected = middle("F2"));
        assert!(chosen > none && chosen < every, "{none}, {chosen}, {every}");
    }
}
