//! The members on a circle, and the messages of the round that comes next between them.

use std::f32::consts::TAU;

use super::{Frame, Layout, Part};
use crate::trace::draw::Work;
use crate::trace::draw::pen::On;
use crate::trace::draw::scene::{Align, Area, Dash, Point, Shape, Sketch};

pub(super) fn draw(sketch: &mut Sketch<'_>, area: Area, frame: &Frame<'_>, layout: &mut Layout) {
    let captured = frame.captured;
    let count = captured.members.len();
    let line = sketch.line_of_text();
    let node = (line * 0.5 + 7.0).min(area.height * 0.14).max(line * 0.5 + 2.0);
    let (foot, circle) = area.cut_bottom(line + 2.0);
    let radius = (circle.width.min(circle.height) / 2.0 - node - 1.0).max(node);
    let centre = circle.centre();
    let at = |member: usize| {
        // The first at the top, then clockwise.
        let angle = TAU * member as f32 / count as f32 - TAU / 4.0;
        Point { x: centre.x + radius * angle.cos(), y: centre.y + radius * angle.sin() }
    };
    let theme = sketch.theme();
    // The messages of the round that was just shown; before the first, those that come.
    let round = captured.rounds.get(frame.over.saturating_sub(1));
    let messages = round.map_or(&[][..], |round| round.messages.as_slice());
    let moved = frame.over > 0;
    let mut pairs: Vec<(usize, usize, String)> = Vec::new();
    for message in messages {
        let chunks = &message.chunks;
        let name = match chunks.len() {
            1 => format!("chunk {}", chunks.start),
            _ => format!("chunks {}–{}", chunks.start, chunks.end - 1),
        };
        match pairs.last_mut() {
            Some((from, to, names)) if (*from, *to) == (message.from, message.to) => {
                *names = format!("{names}, …");
            }
            _ => pairs.push((message.from, message.to, name)),
        }
    }
    let has_names = pairs.len() <= count && radius >= 3.6 * line;
    for (from, to, name) in &pairs {
        let ends = (at(*from), at(*to));
        arrow(sketch, ends, node, moved);
        if has_names {
            caption(sketch, circle, ends, name);
        }
    }
    let paint = theme.work(Work::AllReduce);
    for member in 0..count {
        let place = at(member);
        sketch.push(Shape::Dot { at: place, radius: node, fill: paint.fill });
        let on = On { ink: paint.ink, ground: paint.fill };
        let side = node * 1.8;
        let text = Area::new(place.x - side / 2.0, place.y - line / 2.0, side, line);
        sketch.write_whole(text, &captured.members[member].to_string(), Align::Middle, on);
        let target = Area::new(place.x - node, place.y - node, 2.0 * node, 2.0 * node);
        layout.parts.push((target, Part::Member(member)));
    }
    let on = sketch.faint();
    let what = match (messages.len(), moved) {
        (0, _) => String::new(),
        (1, false) => "1 message comes next".into(),
        (1, true) => "1 message".into(),
        (count, false) => format!("{count} messages come next"),
        (count, true) => format!("{count} messages"),
    };
    sketch.write(foot, &what, Align::Middle, on);
}

/// What is sent, beside the middle of its arrow and outside of the ring.
fn caption(sketch: &mut Sketch<'_>, area: Area, (from, to): (Point, Point), name: &str) {
    let (dx, dy) = (to.x - from.x, to.y - from.y);
    let length = dx.hypot(dy).max(1.0);
    let (nx, ny) = (dy / length, -dx / length);
    let (width, line) = (sketch.wide(name) + 1.0, sketch.line_of_text());
    let off = 5.0 + (nx.abs() * width + ny.abs() * line) / 2.0;
    let centre = Point { x: (from.x + to.x) / 2.0 + nx * off, y: (from.y + to.y) / 2.0 + ny * off };
    let place = Area::new(centre.x - width / 2.0, centre.y - line / 2.0, width, line);
    if place.is_inside(area) {
        let on = sketch.plain();
        sketch.write_whole(place, name, Align::Middle, on);
    }
}

/// From the edge of one node to that of another; two that go both ways lie beside each other.
fn arrow(sketch: &mut Sketch<'_>, (from, to): (Point, Point), node: f32, moved: bool) {
    let (dx, dy) = (to.x - from.x, to.y - from.y);
    let length = dx.hypot(dy);
    if length <= 2.0 * node + 6.0 {
        return;
    }
    let (ux, uy) = (dx / length, dy / length);
    let aside = -3.0;
    let place = |along: f32, across: f32| Point {
        x: from.x + ux * along - uy * across,
        y: from.y + uy * along + ux * across,
    };
    let end = length - node - 2.0;
    let theme = sketch.theme();
    let ink = if moved { theme.ink } else { theme.faint };
    let dash = if moved { Dash::Solid } else { Dash::Dashed };
    let points = vec![place(node + 1.0, aside), place(end - 5.0, aside)];
    sketch.push(Shape::Line { points, width: 1.5, ink, dash });
    let head = [(end, aside), (end - 7.0, aside - 3.5), (end - 7.0, aside + 3.5)];
    let points = head.map(|(along, across)| place(along, across)).to_vec();
    sketch.push(Shape::Polygon { points, fill: ink });
}
