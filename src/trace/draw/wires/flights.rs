//! Messages that are under way, and those of what is selected.

use std::collections::BTreeSet;

use super::{Frame, LEAST_FLIGHT, MOST_FLIGHTS, Message, Wire};
use crate::plan::Action;
use crate::trace::draw::scene::{Point, Shape, Sketch};
use crate::trace::draw::timeline::Target;
use crate::units::Nanos;

/// The wires of the messages that the selected block sends or receives.
pub(super) fn marked(frame: &Frame<'_>) -> BTreeSet<Wire> {
    let Some(target @ (Target::Block { .. } | Target::Wait { .. })) = frame.selected else {
        return BTreeSet::new();
    };
    let plan = frame.timeline.plan();
    let mut found = BTreeSet::new();
    for (rank, instr) in frame.timeline.instrs(&target) {
        let line = &plan.programs[rank.index()].instrs[instr as usize];
        let Some(axis) = line.origin.axis else { continue };
        match line.action {
            Action::Send { to, .. } => found.insert((rank, to, axis)),
            Action::Recv { from, .. } => found.insert((from, rank, axis)),
            Action::Launch { .. } | Action::Copy { .. } => false,
        };
    }
    found
}

/// The messages that are under way and last long enough to be followed; none where they are many.
pub(super) fn under_way(frame: &Frame<'_>) -> Vec<Message> {
    let Some(speed) = frame.speed else { return Vec::new() };
    let least = speed.played(LEAST_FLIGHT);
    let at = frame.playhead;
    let messages = &frame.wires.messages;
    let started = messages.partition_point(|message| message.span.start <= at);
    let is_seen = |message: &&Message| {
        at < message.span.end && message.span.duration() >= least.max(Nanos(1))
    };
    // One more than are drawn tells that they are too many.
    let seen: Vec<Message> =
        messages[..started].iter().filter(is_seen).take(MOST_FLIGHTS + 1).copied().collect();
    if seen.len() > MOST_FLIGHTS { Vec::new() } else { seen }
}

/// Draws messages as dots on their wires.
pub(super) fn draw(
    sketch: &mut Sketch<'_>,
    frame: &Frame<'_>,
    course: impl Fn(Wire) -> Option<Vec<Point>>,
) {
    for message in under_way(frame) {
        let Some(points) = course(message.wire) else { continue };
        let passed = frame.playhead - message.span.start;
        let share = passed.0 as f64 / message.span.duration().0.max(1) as f64;
        let at = along(&points, share as f32);
        let (fill, ring) = (sketch.theme().ink, sketch.theme().ground);
        sketch.push(Shape::Dot { at, radius: 5.0, fill: ring });
        sketch.push(Shape::Dot { at, radius: 4.0, fill });
    }
}

/// The point of a course after a share of its length.
fn along(points: &[Point], share: f32) -> Point {
    let length = |pair: &[Point]| (pair[1].x - pair[0].x).hypot(pair[1].y - pair[0].y);
    let mut left = share.clamp(0.0, 1.0) * points.windows(2).map(length).sum::<f32>();
    for pair in points.windows(2) {
        let long = length(pair);
        if left <= long {
            let part = left / long.max(1e-6);
            let (dx, dy) = (pair[1].x - pair[0].x, pair[1].y - pair[0].y);
            return Point { x: pair[0].x + part * dx, y: pair[0].y + part * dy };
        }
        left -= long;
    }
    points.last().copied().unwrap_or_default()
}
