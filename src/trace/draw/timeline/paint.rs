//! Paints a timeline from the outside in: ground, rows, ruler, arrows, playhead, legend.

use super::arrows;
use super::cells::{Painter, text_room};
use super::layout::{Frame, Layout, RankLines, RowBox, RowKind};
use super::{Target, Timeline};
use crate::ledger::ByRole;
use crate::mesh::{Axis, Rank};
use crate::plan::Role;
use crate::trace::Badge;
use crate::trace::draw::axis;
use crate::trace::draw::scene::{Align, Area, Dash, Face, Point, Shape, Sketch, Text, line_height};
use crate::trace::draw::theme::{Paint, Rgb, Theme};
use crate::trace::draw::{Work, block_at};
use crate::units::{Bytes, Nanos};

/// Paints a frame of a timeline and says where everything lies.
///
/// The cost follows the size of the picture and not the number of blocks: what is narrower than
/// three points is painted as one bar of the kind that takes most of its time.
pub fn draw(sketch: &mut Sketch<'_>, timeline: &Timeline, frame: &Frame<'_>) -> Layout {
    let layout = Layout::new(timeline, frame, sketch.theme());
    sketch.fill(frame.area, sketch.theme().ground);
    let mut roles = Roles::default();
    for row in layout.visible() {
        draw_row(sketch, timeline, (frame, &layout), row, &mut roles);
    }
    draw_ruler(sketch, timeline, frame, &layout);
    arrows::draw(sketch, timeline, frame, &layout);
    for (target, ink, width) in
        [(frame.hovered, sketch.theme().ink, 1.0), (frame.selected, sketch.theme().accent, 2.0)]
    {
        if let Some(target) = target {
            outline(sketch, timeline, &layout, &target, (ink, width));
        }
    }
    draw_playhead(sketch, frame, &layout);
    draw_legend(sketch, &layout, &roles);
    layout
}

/// Which kinds of work a picture shows, and whether it shows waiting.
#[derive(Debug, Default)]
pub(super) struct Roles {
    works: [bool; Work::ALL.len()],
    waits: bool,
    messages: bool,
}

impl Roles {
    pub(super) fn meet(&mut self, work: Option<Work>) {
        match work {
            Some(work) => self.works[work as usize] = true,
            None => self.waits = true,
        }
    }

    pub(super) fn meet_message(&mut self) {
        self.messages = true;
    }
}

/// Size of the theme against the smallest one.
fn unit(theme: &Theme) -> f32 {
    theme.label_size / 12.0
}

fn draw_row(
    sketch: &mut Sketch<'_>,
    timeline: &Timeline,
    (frame, layout): (&Frame<'_>, &Layout),
    row: &RowBox,
    roles: &mut Roles,
) {
    let theme = *sketch.theme();
    if row.is_first_of_position && row.area.top >= layout.track.top {
        let (left, right) = (row.area.left, row.area.right());
        let y = row.area.top;
        sketch.line(Point { x: left, y }, Point { x: right, y }, 1.0, theme.rule);
    }
    match row.kind {
        RowKind::Rank(rank) => {
            Painter::new(sketch, timeline, layout, roles).row(rank, row);
            draw_name(sketch, timeline, (frame, layout), row, rank);
            draw_memory(sketch, timeline, layout, row, timeline.memory(rank));
        }
        RowKind::Group { position, shown } => {
            let mut painter = Painter::new(sketch, timeline, layout, roles);
            painter.row(shown, row);
            if let Some(lines) = &row.lines {
                painter.lines(lines);
                draw_ends(sketch, timeline, layout, (position, lines));
            }
            draw_group_name(sketch, timeline, layout, row, (position, shown));
            let memory = timeline.position(position).filter_map(|rank| timeline.memory(rank));
            let largest = memory.max_by_key(|memory| memory.total());
            draw_memory(sketch, timeline, layout, row, largest);
        }
        RowKind::Heading { position } => {
            let count = timeline.position(position).count();
            let text = format!("{} · {count} ranks", position_name(timeline, position));
            chevron(sketch, layout, row);
            let inset = 16.0 * unit(&theme);
            let within = row.area.cut_left(inset).1;
            label(sketch, layout.rows_area(), within, &text, Align::Left, theme.ink);
        }
    }
}

/// A label in what is visible of `clip`, where it is visible whole.
fn label(
    sketch: &mut Sketch<'_>,
    clip: Area,
    within: Area,
    text: &str,
    align: Align,
    ink: Rgb,
) -> Option<Area> {
    let theme = *sketch.theme();
    let size = theme.label_size;
    let middle = within.centre().y;
    let half = line_height(size) / 2.0;
    if middle - half < clip.top || middle + half > clip.bottom() {
        return None;
    }
    let text = Text { text, size, face: Face::Sans, align, ink, ground: theme.ground };
    sketch.label(within, text)
}

/// `0  d0 t0 p0`, and a chip with what the rank does at the playhead.
fn draw_name(
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
    label(sketch, clip, number, &rank.to_string(), Align::Left, theme.ink);
    let name = coord_name(timeline, rank);
    if coord.width >= 30.0 * unit && !name.is_empty() {
        label(sketch, clip, coord, &name, Align::Left, theme.faint);
    }
    if let Some(at) = frame.playhead {
        draw_chip(sketch, timeline, (clip, chip), rank, at);
    }
}

/// The coordinates that tell ranks apart: axes of one rank have none.
fn coord_name(timeline: &Timeline, rank: Rank) -> String {
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

/// A sample of a paint; `patterned` with its pattern.
fn swatch(sketch: &mut Sketch<'_>, area: Area, paint: Paint, patterned: bool) {
    let pattern = paint.pattern.filter(|_| patterned).map(|pattern| (pattern, paint.pattern_ink));
    let Paint { fill, edge, .. } = paint;
    sketch.push(Shape::Fill { area, fill, pattern, edge, corner: 3.0 });
}

/// `stage 2`; where positions run several stages, `position 2`.
fn position_name(timeline: &Timeline, position: u32) -> String {
    let word = if timeline.has_chunks() { "position" } else { "stage" };
    format!("{word} {position}")
}

fn draw_group_name(
    sketch: &mut Sketch<'_>,
    timeline: &Timeline,
    layout: &Layout,
    row: &RowBox,
    (position, shown): (u32, Rank),
) {
    let theme = *sketch.theme();
    let unit = unit(&theme);
    chevron(sketch, layout, row);
    let count = timeline.position(position).count();
    let (clip, line) = (layout.rows_area(), line_height(theme.label_size));
    let whole = Area { left: row.area.left, width: layout.labels.width, ..row.area };
    let whole = whole.cut_left(15.0 * unit).1.cut_top(3.0 * unit).1;
    let (first, rest) = whole.cut_top(line);
    let second = rest.cut_top(line).0;
    let name = format!("{} · {count} ranks", position_name(timeline, position));
    label(sketch, clip, first, &name, Align::Left, theme.ink);
    let names = [format!("shown r{shown}, slowest"), format!("r{shown}, slowest")];
    let fits = |name: &&String| {
        sketch.canvas.measure.width(name, theme.label_size, Face::Sans) <= second.width
    };
    let name = names.iter().find(fits).unwrap_or(&names[1]);
    label(sketch, clip, second, name, Align::Left, theme.faint);
}

/// A small triangle: to the right where a group is folded, down where it is open.
fn chevron(sketch: &mut Sketch<'_>, layout: &Layout, row: &RowBox) {
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

/// Marks ranks of a group that end more than 5 % earlier or later than most.
fn draw_ends(
    sketch: &mut Sketch<'_>,
    timeline: &Timeline,
    layout: &Layout,
    (position, lines): (u32, &RankLines),
) {
    let mut ends: Vec<Nanos> =
        timeline.position(position).map(|rank| timeline.done(rank)).collect();
    ends.sort_unstable();
    let Some(&usual) = ends.get(ends.len() / 2) else { return };
    let ink = sketch.theme().warning;
    for (index, &rank) in lines.ranks.iter().enumerate() {
        let done = timeline.done(rank);
        if done.0.abs_diff(usual.0) * 20 > usual.0 {
            let at = Point { x: layout.x_at(done), y: lines.line(index).centre().y };
            let radius = lines.pitch * 1.2;
            let mark = Area::new(at.x - radius, at.y - radius, 2.0 * radius, 2.0 * radius);
            if mark.is_inside(layout.track) {
                sketch.push(Shape::Dot { at, radius, fill: ink });
            }
        }
    }
}

fn draw_memory(
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
    let largest = timeline.largest_peak().0.max(1) as f32;
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
    if row.has_text {
        let ink = theme.ink;
        let words = in_unit_of(memory.total(), timeline.largest_peak());
        label(sketch, layout.rows_area(), text, &words, Align::Right, ink);
    }
}

/// Bytes in the unit that suits the largest of several, so that they can be compared.
fn in_unit_of(bytes: Bytes, largest: Bytes) -> String {
    let (unit, size) = match largest.0 {
        0..1_024 => return bytes.to_string(),
        1_024..1_048_576 => ("KiB", 1_u64 << 10),
        1_048_576..1_073_741_824 => ("MiB", 1 << 20),
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

fn draw_ruler(sketch: &mut Sketch<'_>, timeline: &Timeline, frame: &Frame<'_>, layout: &Layout) {
    let theme = *sketch.theme();
    let unit = unit(&theme);
    let ruler = layout.ruler;
    if ruler.height < line_height(theme.label_size) {
        return;
    }
    let taken = badge(sketch, ruler, frame.badge);
    let most = (ruler.width / (72.0 * unit)).max(1.0) as usize;
    let mut free = ruler.left;
    for (at, text) in axis::ticks(layout.window, most, timeline.unit()) {
        let x = layout.x_at(at);
        if !(ruler.left - 0.5..=ruler.right() + 0.5).contains(&x) {
            continue;
        }
        let mark = Point { x, y: ruler.bottom() };
        sketch.line(Point { y: ruler.bottom() - 5.0 * unit, ..mark }, mark, 1.0, theme.faint);
        let width = sketch.canvas.measure.width(&text, theme.label_size, Face::Sans);
        let left = (x - width / 2.0).max(ruler.left);
        let within = Area::new(left, ruler.top, width + 0.5, ruler.height - 6.0 * unit);
        if left >= free && within.right() <= taken - 4.0 {
            label(sketch, ruler, within, &text, Align::Left, theme.faint);
            free = within.right() + 8.0 * unit;
        }
    }
    if let Some(memory) = layout.memory {
        let head = Area { top: ruler.top, height: ruler.height - 6.0 * unit, ..memory };
        let head = head.shrunk(8.0 * unit, 0.0);
        label(sketch, ruler, head, "Peak memory", Align::Right, theme.faint);
    }
    let from = Point { x: frame.area.left, y: ruler.bottom() };
    let to = Point { x: frame.area.right(), y: ruler.bottom() };
    sketch.line(from, to, 1.0, theme.rule);
}

/// The badge word at the top right of the track; returns where it begins.
fn badge(sketch: &mut Sketch<'_>, ruler: Area, badge: Badge) -> f32 {
    let theme = *sketch.theme();
    let unit = unit(&theme);
    let width = sketch.canvas.measure.width(badge.word(), theme.label_size, Face::Sans);
    let height = line_height(theme.label_size) + 2.0;
    let box_width = width + 10.0 * unit;
    let chip = Area::new(ruler.right() - box_width - 2.0, ruler.top + 2.0, box_width, height);
    if chip.left < ruler.left {
        return ruler.right();
    }
    let edge = Some(theme.rule);
    sketch.push(Shape::Fill { area: chip, fill: theme.raised, pattern: None, edge, corner: 3.0 });
    let text = Text {
        text: badge.word(),
        size: theme.label_size,
        face: Face::Sans,
        align: Align::Middle,
        ink: theme.ink,
        ground: theme.raised,
    };
    sketch.label(chip, text);
    chip.left
}

fn draw_playhead(sketch: &mut Sketch<'_>, frame: &Frame<'_>, layout: &Layout) {
    let Some(at) = frame.playhead else { return };
    let x = layout.x_at(at);
    if !(layout.track.left..=layout.track.right()).contains(&x) {
        return;
    }
    let theme = *sketch.theme();
    let size = 5.0 * unit(&theme);
    let (top, bottom) = (layout.track.top, layout.track.bottom());
    sketch.line(Point { x, y: top }, Point { x, y: bottom }, 2.0, theme.accent);
    let points = vec![
        Point { x: x - size, y: top - size },
        Point { x: x + size, y: top - size },
        Point { x, y: top + 1.0 },
    ];
    sketch.push(Shape::Polygon { points, fill: theme.accent });
}

/// A line around a block or a wait.
fn outline(
    sketch: &mut Sketch<'_>,
    timeline: &Timeline,
    layout: &Layout,
    target: &Target,
    (ink, width): (Rgb, f32),
) {
    let Some((rank, span)) = timeline.span(target) else { return };
    let Some(band) = layout.band_of(rank) else { return };
    let (left, right) =
        (layout.x_at(span.start), layout.x_at(span.end).max(layout.x_at(span.start) + 3.0));
    let whole = Area::new(left, band.top, right - left, band.height);
    let Some(area) = whole.common(layout.track) else { return };
    let corner = |x: f32, y: f32| Point { x, y };
    let points = vec![
        corner(area.left, area.top),
        corner(area.right(), area.top),
        corner(area.right(), area.bottom()),
        corner(area.left, area.bottom()),
        corner(area.left, area.top - width / 2.0),
    ];
    sketch.push(Shape::Line { points, width, ink, dash: Dash::Solid });
}

/// Swatches with letters and, where there is room, words: only of what the picture shows.
fn draw_legend(sketch: &mut Sketch<'_>, layout: &Layout, roles: &Roles) {
    let theme = *sketch.theme();
    let unit = unit(&theme);
    let legend = layout.legend;
    if legend.height < line_height(theme.label_size) {
        return;
    }
    let works = Work::ALL.into_iter().filter(|work| roles.works[*work as usize]);
    let mut items: Vec<(Paint, String, &str)> =
        works.map(|work| (theme.work(work), work.letters().to_owned(), work.meaning())).collect();
    if roles.messages {
        items.push((theme.message(), String::new(), "message"));
    }
    if roles.waits {
        items.push((theme.waiting(), String::new(), "waiting"));
    }
    let size = theme.label_size;
    let width = |text: &str| sketch.canvas.measure.width(text, size, Face::Sans);
    let long = |letters: &str, words: &str| format!("{letters} {words}").trim().to_owned();
    let short = |letters: &str, words: &str| match letters {
        "" => words.to_owned(),
        _ => letters.to_owned(),
    };
    let (sample, gap) = (14.0 * unit, 5.0 * unit);
    let room = legend.width - 16.0 * unit;
    let total = |text: &dyn Fn(&str, &str) -> String| -> f32 {
        let each = items.iter().map(|(_, l, w)| sample + gap + width(&text(l, w)) + 14.0 * unit);
        each.sum()
    };
    let texts: Vec<String> = match total(&long) <= room {
        true => items.iter().map(|(_, l, w)| long(l, w)).collect(),
        false => items.iter().map(|(_, l, w)| short(l, w)).collect(),
    };
    let widths: Vec<f32> = texts.iter().map(|text| width(text)).collect();
    let mut left = legend.left + 8.0 * unit;
    for (((paint, ..), text), width) in items.iter().zip(&texts).zip(widths) {
        if left + sample + gap + width > legend.right() {
            break;
        }
        let top = legend.centre().y - sample / 2.0;
        swatch(sketch, Area::new(left, top, sample, sample), *paint, true);
        left += sample + gap;
        let within = Area::new(left, legend.top, width + 0.5, legend.height);
        label(sketch, legend, within, text, Align::Left, theme.ink);
        left += width + 14.0 * unit;
    }
}
