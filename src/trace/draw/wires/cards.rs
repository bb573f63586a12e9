//! Up to 16 ranks: a card for each, a wire for each pair that talks.

use super::place::{Places, Size};
use super::{Flow, Frame, Layout, Mark, flights, memory_bar, routes, strand};
use crate::mesh::Rank;
use crate::trace::draw::pen::On;
use crate::trace::draw::scene::{Align, Area, Shape, Sketch};
use crate::trace::draw::timeline::Target;
use crate::trace::draw::{Block, BlockKind, block_at};

pub(super) fn draw(sketch: &mut Sketch<'_>, frame: &Frame<'_>, places: &Places) -> Layout {
    let mut layout = Layout::default();
    let mesh = frame.timeline.plan().mesh;
    let marked = flights::marked(frame);
    let most = frame.wires.flows.values().map(Flow::total).max().unwrap_or_default();
    let of = |&(from, to, axis): &super::Wire| Target::Link { from, to, axis };
    let mark = |wire: &super::Wire| match of(wire) {
        link if marked.contains(wire) || frame.selected == Some(link) => Mark::Selected,
        link if frame.hovered == Some(link) => Mark::Hovered,
        _ => Mark::Plain,
    };
    // What stands out is drawn last.
    let mut wires: Vec<_> =
        frame.wires.flows.iter().map(|(wire, flow)| (mark(wire), wire, flow)).collect();
    wires.sort_by_key(|(mark, ..)| *mark as u8);
    for (mark, wire, flow) in wires {
        let points = routes::course(places, mesh, *wire);
        let sent = flow.at(frame.playhead);
        let width = strand(sketch, &points, (sent, most), wire.2, mark);
        layout.wires.push((points, width, of(wire)));
    }
    for &rank in frame.timeline.ranks() {
        let place = places.card(rank);
        card(sketch, place, rank, frame, places.size);
        layout.cards.push((place, Target::Rank(rank)));
    }
    flights::draw(sketch, frame, |wire| Some(routes::course(places, mesh, wire)));
    layout
}

/// Rank, coordinates, what it does at the playhead, its memory.
fn card(sketch: &mut Sketch<'_>, place: Area, rank: Rank, frame: &Frame<'_>, size: Size) {
    let theme = sketch.theme();
    let target = Target::Rank(rank);
    let chosen = frame.selected.and_then(|target| target.rank()) == Some(rank);
    let edge = match (chosen, frame.hovered == Some(target)) {
        (true, _) => theme.accent,
        (_, true) => theme.ink,
        _ => theme.rule,
    };
    let fill = theme.raised;
    sketch.push(Shape::Fill { area: place, fill, pattern: None, edge: Some(edge), corner: 4.0 });
    if chosen {
        let inner = place.shrunk(1.0, 1.0);
        sketch.push(Shape::Fill {
            area: inner,
            fill,
            pattern: None,
            edge: Some(edge),
            corner: 3.0,
        });
    }
    let (zoom, line) = (sketch.zoom(), sketch.line_of_text());
    let on = On { ink: theme.ink, ground: fill };
    let faint = On { ink: theme.faint, ground: fill };
    let block = block_at(frame.timeline.blocks(rank), frame.playhead);
    let inner = place.shrunk(5.0 * zoom, 2.0 * zoom);
    let coord = frame.timeline.plan().mesh.coord(rank).to_string();
    let number = sketch.wide(&rank.to_string()) + 6.0 * zoom;
    if size == Size::Small {
        let (name, rest) = inner.cut_left(number);
        sketch.write(name, &rank.to_string(), Align::Left, on);
        state(sketch, rest, block);
        return;
    }
    let (upper, rest) = inner.cut_top(line);
    let (name, right) = upper.cut_left(number);
    sketch.write(name, &rank.to_string(), Align::Left, on);
    if size != Size::Narrow {
        sketch.write(right, &coord, Align::Right, faint);
    }
    let (lower, rest) = rest.cut_top(line + 1.0);
    state(sketch, lower.shrunk(0.0, 0.5), block);
    if let Some(memory) = frame.timeline.memory(rank).filter(|_| size != Size::Medium) {
        let bar = rest.cut_bottom(6.0 * zoom).0;
        memory_bar(sketch, bar.shrunk(0.0, 0.5), memory, frame.timeline.largest_peak());
    }
}

/// What a rank does: `F3` on its colour, or `waits` hatched.
fn state(sketch: &mut Sketch<'_>, place: Area, block: Option<&Block>) {
    let Some(block) = block else {
        let track = sketch.theme().track;
        let on = On { ink: sketch.theme().faint, ground: track };
        sketch.fill(place, track);
        sketch.write_whole(place, "done", Align::Middle, on);
        return;
    };
    let text = match block.kind {
        BlockKind::Work(_) => block.to_string(),
        BlockKind::Waiting(cause) => match cause {
            crate::trace::cause::Cause::StepEnd => "done".into(),
            _ => "waits".into(),
        },
    };
    let paint = sketch.theme().block(block.kind);
    sketch.painted(place, paint);
    // Letters on a hatch are read only on a plain ground.
    let on = sketch.on_paint(paint);
    let width = sketch.wide(&text) + 6.0;
    let spare = (place.width - width) / 2.0;
    if paint.pattern.is_some() && spare > 0.0 {
        sketch.fill(place.shrunk(spare, 0.0), paint.fill);
    }
    sketch.write_whole(place, &text, Align::Middle, on);
}
