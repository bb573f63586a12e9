//! Who holds what: a row for each member, a column for each chunk; the more contributions are
//! summed in a cell, the deeper its colour.

use std::collections::BTreeSet;

use super::{Frame, Layout, MOST_MEMBERS, Part, number};
use crate::trace::captured::{Captured, Cell};
use crate::trace::draw::Work;
use crate::trace::draw::pen::{self, On, ink_on};
use crate::trace::draw::scene::{Align, Area, Pattern, Shape, Sketch};
use crate::units::Bytes;

pub(super) fn draw(sketch: &mut Sketch<'_>, area: Area, frame: &Frame<'_>, layout: &mut Layout) {
    let captured = frame.captured;
    let (members, line) = (frame.members(), sketch.line_of_text());
    let largest = captured.traffic(captured.rounds.len());
    let largest = largest.iter().map(|traffic| traffic.sent.max(traffic.received)).max();
    let unit = pen::unit(largest.unwrap_or_default());
    let last_rank = captured.members.iter().max().map_or(0, |rank| rank.0);
    let names = sketch.wide(&format!("rank {last_rank}")) + 10.0;
    let widest =
        sketch.wide(&pen::sized(largest.unwrap_or(Bytes(0)), unit)).max(sketch.wide("received"));
    let has_traffic = area.width > names + 2.0 * (widest + 12.0) + 5.0 * line;
    let traffic = if has_traffic { 2.0 * (widest + 12.0) } else { 0.0 };
    let (head, body) = area.cut_top(line + 4.0);
    let columns = |place: Area| {
        let (names, rest) = place.cut_left(names);
        let (traffic, cells) = rest.cut_right(traffic);
        (names, cells, traffic)
    };
    let (_, cells, counters) = columns(head);
    let chunks = chunks_shown(sketch, cells.width, captured.chunks.len());
    let width = cells.width / chunks as f32;
    let on = sketch.faint();
    for chunk in 0..chunks {
        let place = Area { left: cells.left + width * chunk as f32, width, ..cells };
        let long = format!("chunk {chunk}");
        if sketch.write_whole(place, &long, Align::Middle, on).is_none() {
            sketch.write_whole(place, &chunk.to_string(), Align::Middle, on);
        }
    }
    if has_traffic {
        let (sent, received) = counters.cut_left(counters.width / 2.0);
        sketch.write(sent, "sent", Align::Right, on);
        sketch.write(received, "received", Align::Right, on);
    }
    // A cell is as high as its numbers need.
    let numbers = captured.samples.iter().map(|sample| sample.values.len()).max().unwrap_or(0);
    let lines = 3.2_f32.max(2.2 + numbers as f32);
    let height = (body.height / members.max(1) as f32).min(lines * line);
    let held = captured.cells(frame.over);
    let traffic = captured.traffic(frame.over);
    let last = frame.over.checked_sub(1).and_then(|round| captured.rounds.get(round));
    let changed: BTreeSet<(usize, usize)> =
        last.iter().flat_map(|round| &round.changes).map(|c| (c.member, c.chunk)).collect();
    // What only moves is whole wherever it is.
    let whole = if captured.summing_rounds() == 0 { 1 } else { captured.members.len() };
    for member in 0..members {
        let row = Area::new(body.left, body.top + height * member as f32, body.width, height);
        let (names, cells, counters) = columns(row);
        let plain = sketch.plain();
        if row.height >= line {
            let text = format!("rank {}", captured.members[member]);
            sketch.write(names.cut_right(8.0).1, &text, Align::Left, plain);
        }
        layout.parts.push((names, Part::Member(member)));
        for (chunk, cell) in held[member].iter().copied().enumerate().take(chunks) {
            let place =
                Area { left: cells.left + width * chunk as f32, width, ..cells }.shrunk(1.5, 1.5);
            let is_new = changed.contains(&(member, chunk));
            let part = Part::Cell { member, chunk };
            draw_cell(sketch, place, (captured, whole), cell);
            let mark = if is_new || frame.hovered == Some(part) { 2.0 } else { 0.0 };
            outline(sketch, place, mark);
            layout.parts.push((place, part));
        }
        if has_traffic && row.height >= line {
            let (sent, received) = counters.cut_left(counters.width / 2.0);
            for (place, bytes) in
                [(sent, traffic[member].sent), (received, traffic[member].received)]
            {
                sketch.write(place, &pen::sized(bytes, unit), Align::Right, plain);
            }
        }
    }
}

/// How many chunks have room to be seen.
fn chunks_shown(sketch: &Sketch<'_>, room: f32, count: usize) -> usize {
    ((room / (12.0 * sketch.zoom())) as usize).clamp(1, count.clamp(1, 4 * MOST_MEMBERS))
}

fn draw_cell(
    sketch: &mut Sketch<'_>,
    place: Area,
    (captured, whole): (&Captured, usize),
    cell: Option<&Cell>,
) {
    let theme = sketch.theme();
    let Some(cell) = cell else {
        sketch.fill(place, theme.track);
        return;
    };
    let deepest = theme.work(Work::AllReduce).fill;
    let full = (cell.summed.count() as f32 / whole as f32).min(1.0);
    // One contribution is pale already, all of them are the whole colour.
    let ground = theme.raised.mixed(deepest, 0.12 + 0.88 * full.powf(1.4));
    let pattern = (full >= 1.0 && place.width > 14.0).then(|| (Pattern::TopLine, ink_on(ground)));
    sketch.push(Shape::Fill {
        area: place,
        fill: ground,
        pattern,
        edge: Some(theme.rule),
        corner: 2.0,
    });
    let on = On { ink: ink_on(ground), ground };
    let line = sketch.line_of_text();
    let inner = place.shrunk(3.0, 0.0);
    let values: Vec<String> = captured.values(cell).iter().map(|value| number(*value)).collect();
    let ranks: Vec<String> =
        cell.summed.iter().map(|member| captured.members[member].to_string()).collect();
    let tag = match ranks.len() {
        1 => format!("of rank {}", ranks[0]),
        count if count == captured.members.len() => "sum of all".into(),
        _ => format!("sum of {{{}}}", ranks.join(",")),
    };
    let room = (inner.height / line) as usize;
    // The last line says whose sum the numbers are; where there is one line, a number says more.
    let numbers = values.len().min(if room > 1 { room - 1 } else { room });
    let tagged = numbers == 0 || room > numbers;
    let lines = numbers + usize::from(tagged);
    if room < lines {
        return;
    }
    let top = inner.centre().y - line * lines as f32 / 2.0;
    let place = |index: usize| Area { top: top + line * index as f32, height: line, ..inner };
    for (index, value) in values.iter().take(numbers).enumerate() {
        sketch.write_whole(place(index), value, Align::Middle, on);
    }
    if tagged
        && sketch.write_whole(place(numbers), &tag, Align::Middle, on).is_none()
        && numbers > 0
    {
        let short = format!("{{{}}}", ranks.join(","));
        sketch.write_whole(place(numbers), &short, Align::Middle, on);
    }
}

fn outline(sketch: &mut Sketch<'_>, place: Area, width: f32) {
    if width == 0.0 {
        return;
    }
    let accent = sketch.theme().accent;
    let Area { left, top, .. } = place;
    let (right, bottom) = (place.right(), place.bottom());
    for side in [
        Area::new(left, top, place.width, width),
        Area::new(left, bottom - width, place.width, width),
        Area::new(left, top, width, place.height),
        Area::new(right - width, top, width, place.height),
    ] {
        sketch.fill(side, accent);
    }
}
