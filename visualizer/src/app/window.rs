//! Which part of a step is as wide as the timeline: zooming and panning as arithmetic.

use shardlab::trace::Span;
use shardlab::units::Nanos;

use crate::play::Direction;

/// Shortest stretch that is worth the whole width.
const SHORTEST: u64 = 1_000;
/// What one press of a key zooms by.
const FACTOR: f64 = 1.5;

/// `window` zoomed by `factor` (more than 1: closer), so that the instant `at` stays where it is.
/// `None` where all of `0..end` is in sight again.
pub(super) fn zoomed(window: Span, factor: f64, at: Nanos, end: Nanos) -> Option<Span> {
    let width = window.duration().0 as f64 / factor.max(1e-3);
    let width = (width.round() as u64).max(SHORTEST.min(end.0));
    if width >= end.0 {
        return None;
    }
    let part = (at.0 as f64 - window.start.0 as f64) / window.duration().0.max(1) as f64;
    let start = at.0 as f64 - part.clamp(0.0, 1.0) * width as f64;
    Some(placed(start, width, end))
}

/// `window` moved by `time` (negative: to earlier ones).
pub(super) fn panned(window: Span, time: f64, end: Nanos) -> Option<Span> {
    let width = window.duration().0;
    if width >= end.0 {
        return None;
    }
    Some(placed(window.start.0 as f64 + time, width, end))
}

/// One press of a zoom key.
pub(super) fn zoom_key(window: Span, direction: Direction, at: Nanos, end: Nanos) -> Option<Span> {
    let factor = match direction {
        Direction::Forward => FACTOR,
        Direction::Back => 1.0 / FACTOR,
    };
    zoomed(window, factor, at, end)
}

/// One press of a pan key: an eighth of what is in sight.
pub(super) fn pan_key(window: Span, direction: Direction, end: Nanos) -> Option<Span> {
    let eighth = window.duration().0 as f64 / 8.0;
    let time = match direction {
        Direction::Forward => eighth,
        Direction::Back => -eighth,
    };
    panned(window, time, end)
}

/// `span` with a little room on both sides; `None` where that is everything.
pub(super) fn around(span: Span, end: Nanos) -> Option<Span> {
    let width = (span.duration().0 as f64 * 1.2).max(SHORTEST as f64) as u64;
    if width >= end.0 {
        return None;
    }
    Some(placed(span.start.0 as f64 - span.duration().0 as f64 * 0.1, width, end))
}

/// The same window moved so far that `at` is in sight; `None` if it is already.
pub(super) fn following(window: Span, at: Nanos, end: Nanos) -> Option<Span> {
    if (window.start..=window.end).contains(&at) {
        return None;
    }
    let width = window.duration().0;
    Some(placed(at.0 as f64 - width as f64 * 0.1, width, end))
}

fn placed(start: f64, width: u64, end: Nanos) -> Span {
    let most = end.0.saturating_sub(width);
    let start = (start.max(0.0).round() as u64).min(most);
    Span { start: Nanos(start), end: Nanos(start + width) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: Nanos = Nanos(1_000_000);
    const ALL: Span = Span { start: Nanos(0), end: END };

    #[test]
    fn zooming_keeps_the_instant_under_the_pointer_and_ends_at_the_whole() {
        let at = Nanos(250_000);
        let near = zoomed(ALL, 4.0, at, END).unwrap();
        assert_eq!(near.duration(), Nanos(250_000));
        let part = |window: Span| (at.0 - window.start.0) as f64 / window.duration().0 as f64;
        assert!((part(near) - part(ALL)).abs() < 1e-3);
        assert_eq!(zoomed(near, 0.25, at, END), None);
        let nearest = (0..100).try_fold(ALL, |window, _| zoomed(window, 2.0, at, END)).unwrap();
        assert_eq!(nearest.duration(), Nanos(SHORTEST));
    }

    #[test]
    fn panning_stops_at_both_ends_and_the_whole_does_not_move() {
        let near = zoomed(ALL, 4.0, Nanos(0), END).unwrap();
        assert_eq!(panned(near, -1e9, END).unwrap().start, Nanos(0));
        assert_eq!(panned(near, 1e9, END).unwrap().end, END);
        assert_eq!(panned(ALL, 1e3, END), None);
        let right = pan_key(near, Direction::Forward, END).unwrap();
        assert_eq!(pan_key(right, Direction::Back, END), Some(near));
    }

    #[test]
    fn a_span_is_framed_with_room_on_both_sides() {
        let span = Span { start: Nanos(400_000), end: Nanos(500_000) };
        let window = around(span, END).unwrap();
        assert_eq!(window, Span { start: Nanos(390_000), end: Nanos(510_000) });
        assert_eq!(around(ALL, END), None);
    }

    #[test]
    fn the_playhead_is_followed_only_where_it_leaves() {
        let window = Span { start: Nanos(0), end: Nanos(100_000) };
        assert_eq!(following(window, Nanos(50_000), END), None);
        let moved = following(window, Nanos(150_000), END).unwrap();
        assert!((moved.start..moved.end).contains(&Nanos(150_000)));
        assert_eq!(moved.duration(), window.duration());
    }
}
