//! What stands beside the blocks of a row: who it is, what it does now, what memory it takes.

use super::Timeline;
use super::cells::text_room;
use super::frame::Frame;
use super::layout::{Layout, RankLines, RowBox, RowKind};
use super::paint::{label, swatch, unit};
use crate::ledger::ByRole;
use crate::mesh::{Axis, Rank};
use crate::plan::Role;
use crate::trace::draw::block_at;
use crate::trace::draw::scene::{Align, Area, Face, Point, Shape, Sketch, Text, line_height};
use crate::units::{Bytes, Nanos, grouped};

/// `0  d0 t0 p0`, and a chip with what the rank does at the playhead.
pub(super) fn draw_name(
    sketch: &mut Sketch<'_>,
    timeline: &Timeline,
    (frame, layout): (&Frame<'_>, &Layout),
    row: &RowBox,
    rank: Rank,
) {
    if !row.has_text {
        return;
    }
    let theme = *sketch.theme();
    let unit = unit(&theme);
    let clip = layout.rows_area();
    // On one line with the names of blocks.
    let line = text_room(row.blocks, theme.label_size + 1.0);
    let whole = Area { left: row.area.left, width: layout.labels.width, ..line };
    let whole = whole.cut_left(8.0 * unit).1.cut_right(6.0 * unit).1;
    let (chip, rest) = whole.cut_right(24.0 * unit);
    let (number, coord) = rest.cut_left(34.0 * unit);
    label(sketch, clip, number, &timeline.number(rank).to_string(), Align::Left, theme.ink);
    let name = coord_name(timeline, rank);
    if coord.width >= 30.0 * unit && !name.is_empty() {
        label(sketch, clip, coord, &name, Align::Left, theme.faint);
    }
    if let Some(at) = frame.playhead {
        draw_chip(sketch, timeline, (clip, chip), rank, at);
    }
}

/// The coordinates that tell ranks apart: axes of one rank have none. Of a row that stands for
/// several, how many.
fn coord_name(timeline: &Timeline, rank: Rank) -> String {
    if timeline.has_alike() {
        return format!("× {}", grouped(timeline.weight(rank)));
    }
    let mesh = timeline.plan().mesh;
    let at = mesh.coord(rank);
    let letter = |axis: Axis| match axis {
        Axis::Dp => 'd',
        Axis::Tp => 't',
        Axis::Pp => 'p',
    };
    let axes = Axis::ALL.into_iter().filter(|axis| mesh.len(*axis) > 1);
    let names: Vec<String> = axes.map(|axis| format!("{}{}", letter(axis), at.on(axis))).collect();
    names.join(" ")
}

fn draw_chip(
    sketch: &mut Sketch<'_>,
    timeline: &Timeline,
    (clip, within): (Area, Area),
    rank: Rank,
    at: Nanos,
) {
    let theme = *sketch.theme();
    let Some(block) = block_at(timeline.blocks(rank), at) else { return };
    let paint = theme.block(block.kind);
    let height = line_height(theme.label_size) + 2.0;
    let chip = Area::new(within.left, within.centre().y - height / 2.0, within.width, height);
    let chip = chip.common(clip).unwrap_or(chip);
    if !chip.is_inside(clip) {
        return;
    }
    let waits = block.work().is_none();
    swatch(sketch, chip, paint, waits);
    if let Some(work) = block.work() {
        let size = theme.label_size;
        let face = Face::Sans;
        let (ink, ground) = (paint.ink, paint.fill);
        let text = work.letters();
        sketch.label(chip, Text { text, size, face, align: Align::Middle, ink, ground });
    }
}

pub(super) fn draw_group_name(
    sketch: &mut Sketch<'_>,
    timeline: &Timeline,
    layout: &Layout,
    row: &RowBox,
    (position, shown): (u32, Rank),
) {
    if !row.has_text {
        return;
    }
    let theme = *sketch.theme();
    let unit = unit(&theme);
    let opens = timeline.position(position).nth(1).is_some();
    if opens {
        chevron(sketch, layout, row);
    }
    let (clip, line) = (layout.rows_area(), line_height(theme.label_size));
    let whole = Area { left: row.area.left, width: layout.labels.width, ..row.area };
    let whole = whole.cut_left(8.0 * unit).1;
    let name = group_name(timeline, position);
    if whole.height < 2.0 * line + 3.0 * unit {
        // On one line with the names of blocks.
        let first = Area {
            left: whole.left,
            width: whole.width,
            ..text_room(row.blocks, theme.label_size + 1.0)
        };
        label(
            sketch,
            clip,
            first.cut_left(if opens { 7.0 * unit } else { 0.0 }).1,
            &name,
            Align::Left,
            theme.ink,
        );
        return;
    }
    let (first, rest) = whole.cut_top(3.0 * unit).1.cut_top(line);
    let first = first.cut_left(if opens { 7.0 * unit } else { 0.0 }).1;
    let second = rest.cut_top(line).0;
    label(sketch, clip, first, &name, Align::Left, theme.ink);
    if !opens {
        label(sketch, clip, second, "all alike", Align::Left, theme.faint);
        return;
    }
    let shown = timeline.number(shown);
    let names = [format!("shown r{shown}, slowest"), format!("r{shown}, slowest")];
    let fits = |name: &&String| {
        sketch.canvas.measure.width(name, theme.label_size, Face::Sans) <= second.width
    };
    let name = names.iter().find(fits).unwrap_or(&names[1]);
    label(sketch, clip, second, name, Align::Left, theme.faint);
}

/// A position and its ranks: `stage 2 · 8 ranks`; of thousands the number alone has room.
pub(super) fn group_name(timeline: &Timeline, position: u32) -> String {
    let name = position_name(timeline, position);
    match timeline.ranks_at(position) {
        1 => format!("{name} · 1 rank"),
        count @ 2..1000 => format!("{name} · {count} ranks"),
        count => format!("{name} × {}", grouped(count)),
    }
}

/// `stage 2`; where positions run several stages, `position 2`.
pub(super) fn position_name(timeline: &Timeline, position: u32) -> String {
    let word = if timeline.has_chunks() { "position" } else { "stage" };
    format!("{word} {position}")
}

/// A small triangle: to the right where a group is folded, down where it is open.
pub(super) fn chevron(sketch: &mut Sketch<'_>, layout: &Layout, row: &RowBox) {
    let theme = *sketch.theme();
    let unit = unit(&theme);
    let size = 4.0 * unit;
    let at = Point { x: row.area.left + 8.0 * unit, y: row.area.top + 11.0 * unit };
    if at.y - size < layout.track.top || at.y + size > layout.track.bottom() {
        return;
    }
    let corner = |x: f32, y: f32| Point { x: at.x + x * size, y: at.y + y * size };
    let points = match row.kind {
        RowKind::Heading { .. } => vec![corner(-1.0, -0.6), corner(1.0, -0.6), corner(0.0, 0.8)],
        RowKind::Group { .. } | RowKind::Rank(_) => {
            vec![corner(-0.6, -1.0), corner(0.8, 0.0), corner(-0.6, 1.0)]
        }
    };
    sketch.push(Shape::Polygon { points, fill: theme.faint });
}

/// Marks ranks of a group that end more than 5 % earlier or later than most; whether there are any.
pub(super) fn draw_ends(
    sketch: &mut Sketch<'_>,
    timeline: &Timeline,
    layout: &Layout,
    (position, lines): (u32, &RankLines),
) -> bool {
    let mut any = false;
    let mut ends: Vec<Nanos> =
        timeline.position(position).map(|rank| timeline.done(rank)).collect();
    ends.sort_unstable();
    let Some(&usual) = ends.get(ends.len() / 2) else { return any };
    let ink = sketch.theme().warning;
    for (index, &rank) in lines.ranks.iter().enumerate() {
        let done = timeline.done(rank);
        if done.0.abs_diff(usual.0) * 20 > usual.0 {
            let at = Point { x: layout.x_at(done), y: lines.line(index).centre().y };
            let radius = lines.pitch * 1.2;
            let mark = Area::new(at.x - radius, at.y - radius, 2.0 * radius, 2.0 * radius);
            if mark.is_inside(layout.track) {
                sketch.push(Shape::Dot { at, radius, fill: ink });
                any = true;
            }
        }
    }
    any
}

pub(super) fn draw_memory(
    sketch: &mut Sketch<'_>,
    timeline: &Timeline,
    layout: &Layout,
    row: &RowBox,
    memory: Option<&ByRole>,
) {
    let (Some(column), Some(memory)) = (layout.memory, memory) else { return };
    let theme = *sketch.theme();
    let unit = unit(&theme);
    let line = text_room(row.blocks, theme.label_size + 1.0);
    let band = Area { left: column.left, width: column.width, ..line };
    let band = band.shrunk(8.0 * unit, 0.0);
    let (text, bar) = band.cut_right(62.0 * unit);
    let bar = bar.cut_right(4.0 * unit).1;
    let capacity = timeline.capacity();
    let largest = timeline.largest_peak().max(capacity.unwrap_or_default()).0.max(1) as f32;
    let height = (band.height * 0.5).min(12.0 * unit);
    let mut left = bar.left;
    for (role, bytes) in memory.iter() {
        let width = bar.width * bytes.0 as f32 / largest;
        let part = Area::new(left, band.centre().y - height / 2.0, width, height);
        left += width;
        if let Some(area) = part.common(column) {
            fill_memory(sketch, area, role);
        }
    }
    let is_over = capacity.is_some_and(|capacity| memory.total() > capacity);
    if let Some(capacity) = capacity {
        let x = bar.left + bar.width * capacity.0 as f32 / largest;
        let (top, bottom) =
            (bar.centre().y - height / 2.0 - 3.0, bar.centre().y + height / 2.0 + 3.0);
        let mark = Area::new(x - 1.0, top, 2.0, bottom - top);
        if let Some(mark) = mark.common(column) {
            sketch.fill(mark, if is_over { theme.error } else { theme.ink });
        }
    }
    if row.has_text {
        let ink = if is_over { theme.error } else { theme.ink };
        let words = in_unit_of(memory.total(), timeline.largest_peak());
        label(sketch, layout.rows_area(), text, &words, Align::Right, ink);
    }
}

/// Bytes in the unit that suits the largest of several, so that they can be compared.
fn in_unit_of(bytes: Bytes, largest: Bytes) -> String {
    let (unit, size) = match largest.0 {
        0..1_000 => return bytes.to_string(),
        1_000..1_024_000 => ("KiB", 1_u64 << 10),
        1_024_000..1_048_576_000 => ("MiB", 1 << 20),
        _ => ("GiB", 1 << 30),
    };
    format!("{:.1} {unit}", bytes.0 as f64 / size as f64)
}

fn fill_memory(sketch: &mut Sketch<'_>, area: Area, role: Role) {
    let paint = sketch.theme().memory(role);
    let wide = area.width >= 10.0;
    let pattern = paint.pattern.filter(|_| wide).map(|pattern| (pattern, paint.pattern_ink));
    let edge = paint.edge.filter(|_| area.width >= 6.0);
    sketch.push(Shape::Fill { area, fill: paint.fill, pattern, edge, corner: 0.0 });
}
