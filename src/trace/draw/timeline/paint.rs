//! Paints a timeline from the outside in: ground, rows, ruler, arrows, playhead, legend.

use super::cells::Painter;
use super::frame::Frame;
use super::layout::{Layout, RowBox, RowKind};
use super::margins::{Roles, draw_legend, draw_ruler};
use super::sides::{chevron, draw_ends, draw_group_name, draw_memory, draw_name, group_name};
use super::{Target, Timeline, arrows};
use crate::trace::draw::scene::{Align, Area, Dash, Face, Point, Shape, Sketch, Text, line_height};
use crate::trace::draw::scroll;
use crate::trace::draw::theme::{Paint, Rgb, Theme};

/// Paints a frame of a timeline and says where everything lies.
///
/// The cost follows the size of the picture and not the number of blocks: what is narrower than
/// three points is painted as one bar of the kind that takes most of its time.
pub fn draw(sketch: &mut Sketch<'_>, timeline: &Timeline, frame: &Frame<'_>) -> Layout {
    let mut layout = Layout::new(timeline, frame, sketch.theme());
    sketch.fill(frame.area, sketch.theme().ground);
    let mut roles = Roles::new(sketch.theme(), timeline, &layout);
    for row in layout.visible() {
        draw_row(sketch, timeline, (frame, &layout), row, &mut roles);
    }
    draw_positions(sketch, timeline, &layout);
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
    draw_scroll(sketch, &layout);
    draw_legend(sketch, layout.legend, &roles.shows);
    layout.shows = roles.shows;
    layout
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
                if draw_ends(sketch, timeline, layout, (position, lines)) {
                    roles.note_ends();
                }
            }
            draw_group_name(sketch, timeline, layout, row, (position, shown));
            let memory = timeline.position(position).filter_map(|rank| timeline.memory(rank));
            let largest = memory.max_by_key(|memory| memory.total());
            draw_memory(sketch, timeline, layout, row, largest);
        }
        RowKind::Heading { position } => {
            let text = group_name(timeline, position);
            chevron(sketch, layout, row);
            let inset = 16.0 * unit(&theme);
            let within = row.area.cut_left(inset).1;
            label(sketch, layout.rows_area(), within, &text, Align::Left, theme.ink);
        }
    }
}

/// Where rows of ranks are too low for names, the name of their position beside all of them.
fn draw_positions(sketch: &mut Sketch<'_>, timeline: &Timeline, layout: &Layout) {
    let theme = *sketch.theme();
    let clip = layout.rows_area();
    for position in 0..timeline.positions() {
        let rows = layout.visible().filter(|row| match row.kind {
            RowKind::Rank(rank) => !row.has_text && timeline.position_of(rank) == position,
            RowKind::Group { .. } | RowKind::Heading { .. } => false,
        });
        let rows: Vec<&RowBox> = rows.collect();
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else { continue };
        let top = first.area.top.max(clip.top);
        let height = last.area.bottom().min(clip.bottom()) - top;
        let place = Area { top, height, width: layout.labels.width, ..first.area };
        let place = place.cut_left(8.0 * unit(&theme)).1;
        if place.height >= line_height(theme.label_size) {
            let text = group_name(timeline, position);
            label(sketch, clip, place, &text, Align::Left, theme.ink);
        }
    }
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

/// Where rows are out of sight, how many and where.
fn draw_scroll(sketch: &mut Sketch<'_>, layout: &Layout) {
    let theme = *sketch.theme();
    let width = scroll::WIDTH * unit(&theme);
    let rows = (layout.scrolled, layout.content_height);
    if let Some([track, thumb]) = scroll::bar(layout.rows_area(), rows, width) {
        sketch.fill(track, theme.ground.mixed(theme.ink, 0.08));
        sketch.fill(thumb, theme.faint);
    }
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
    let mut points = area.outline();
    // Closes the corner where the line began.
    points[4].y -= width / 2.0;
    sketch.push(Shape::Line { points, width, ink, dash: Dash::Solid });
}

/// A label in what is visible of `clip`, where it is visible whole.
pub(super) fn label(
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

/// A sample of a paint; `patterned` with its pattern.
pub(super) fn swatch(sketch: &mut Sketch<'_>, area: Area, paint: Paint, patterned: bool) {
    let pattern = paint.pattern.filter(|_| patterned).map(|pattern| (pattern, paint.pattern_ink));
    let Paint { fill, edge, .. } = paint;
    sketch.push(Shape::Fill { area, fill, pattern, edge, corner: 3.0 });
}

/// Size of the theme against the smallest one.
pub(super) fn unit(theme: &Theme) -> f32 {
    theme.label_size / 12.0
}
