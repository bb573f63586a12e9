//! More than 16 ranks: a card for each pipeline position with a field for each of its ranks, and
//! one wire for an axis between or inside positions, with the sum of its bytes.

use super::{Flow, Frame, Layout, Mark, strand};
use crate::mesh::{Axis, Coord, Mesh};
use crate::trace::draw::pen::{self, On};
use crate::trace::draw::scene::{Align, Area, Point, Shape, Sketch};
use crate::trace::draw::timeline::Target;
use crate::trace::draw::{BlockKind, block_at};
use crate::units::Bytes;

/// Cards of positions in rows and columns.
struct Grid {
    area: Area,
    columns: u32,
    card: (f32, f32),
    gap: (f32, f32),
    /// Positions that are drawn.
    shown: u32,
}

impl Grid {
    fn over(sketch: &Sketch<'_>, area: Area, mesh: Mesh) -> Self {
        let (zoom, line) = (sketch.zoom(), sketch.line_of_text());
        let gap = (64.0 * zoom, 10.0 * zoom);
        let widest = ["position 0000", "tensor 1000.0 MiB"].map(|text| sketch.wide(text));
        let least = (widest[0].max(widest[1]) + 20.0 * zoom, 3.6 * line);
        let columns = (((area.width + gap.0) / (least.0 + gap.0)) as u32).clamp(1, mesh.pp);
        let most = (((area.height - line + gap.1) / (least.1 + gap.1)) as u32).max(1);
        let rows = mesh.pp.div_ceil(columns).min(most);
        let shown = mesh.pp.min(rows * columns);
        let share =
            |room: f32, count: u32, gap: f32| (room - (count - 1) as f32 * gap) / count as f32;
        let foot = if shown < mesh.pp { line + 2.0 } else { 0.0 };
        let width = share(area.width, columns, gap.0).min(2.2 * least.0);
        let height = share(area.height - foot, rows, gap.1).min(260.0 * zoom);
        Self { area, columns, card: (width, height), gap, shown }
    }

    fn card(&self, position: u32) -> Area {
        let (column, row) = (position % self.columns, position / self.columns);
        let left = self.area.left + column as f32 * (self.card.0 + self.gap.0);
        let top = self.area.top + row as f32 * (self.card.1 + self.gap.1);
        Area::new(left, top, self.card.0, self.card.1)
    }
}

pub(super) fn draw(sketch: &mut Sketch<'_>, area: Area, frame: &Frame<'_>) -> Layout {
    let mesh = frame.timeline.plan().mesh;
    let mut layout = Layout::default();
    let grid = Grid::over(sketch, area, mesh);
    let most = frame.wires.bundles.values().map(Flow::total).max().unwrap_or_default();
    between(sketch, &grid, frame, most);
    for position in 0..grid.shown {
        card(sketch, grid.card(position), position, (frame, most), &mut layout);
    }
    if grid.shown < mesh.pp {
        let foot = area.cut_bottom(sketch.line_of_text()).0;
        let on = sketch.faint();
        let text = format!("{} more pipeline positions", mesh.pp - grid.shown);
        sketch.write(foot, &text, Align::Left, on);
    }
    layout
}

/// Bundles of the pipeline between neighbouring cards, with their bytes.
fn between(sketch: &mut Sketch<'_>, grid: &Grid, frame: &Frame<'_>, most: Bytes) {
    let line = sketch.line_of_text();
    for (&(from, to, axis), flow) in &frame.wires.bundles {
        if from == to || from.max(to) >= grid.shown {
            continue;
        }
        let (start, end) = (grid.card(from), grid.card(to));
        let forth = from < to;
        let aside = if forth { -7.0 } else { 7.0 } * sketch.zoom();
        let is_next = from.abs_diff(to) == 1 && start.top == end.top;
        let y = start.centre().y + aside;
        let points = match is_next {
            true if forth => vec![Point { x: start.right(), y }, Point { x: end.left, y }],
            true => vec![Point { x: start.left, y }, Point { x: end.right(), y }],
            false => vec![start.centre(), end.centre()],
        };
        let sent = flow.at(frame.playhead);
        strand(sketch, &points, (sent, most), axis, Mark::Plain);
        if is_next {
            let on = sketch.plain();
            let left = points[0].x.min(points[1].x);
            let top = if forth { y - line - 6.0 } else { y + 6.0 };
            let place = Area::new(left + 2.0, top, grid.gap.0 - 4.0, line);
            if top >= grid.area.top && place.bottom() <= grid.area.bottom() {
                let text = pen::sized(sent, pen::unit(flow.total()));
                sketch.write_whole(place, &text, Align::Middle, on);
            }
        }
    }
}

/// A position: its ranks as fields, and what flows inside it.
fn card(
    sketch: &mut Sketch<'_>,
    place: Area,
    position: u32,
    (frame, most): (&Frame<'_>, Bytes),
    layout: &mut Layout,
) {
    let theme = sketch.theme();
    let mesh = frame.timeline.plan().mesh;
    let target = Target::Position(position);
    let edge = match (frame.selected == Some(target), frame.hovered == Some(target)) {
        (true, _) => theme.accent,
        (_, true) => theme.ink,
        _ => theme.rule,
    };
    let fill = theme.raised;
    sketch.push(Shape::Fill { area: place, fill, pattern: None, edge: Some(edge), corner: 4.0 });
    let (zoom, line) = (sketch.zoom(), sketch.line_of_text());
    let inner = place.shrunk(8.0 * zoom, 4.0 * zoom);
    let on = On { ink: theme.ink, ground: fill };
    let (head, rest) = inner.cut_top(line + 2.0);
    let count = mesh.dp * mesh.tp;
    let name = format!("stage {position} · {count} ranks");
    if sketch.write_whole(head, &name, Align::Left, on).is_none() {
        sketch.write(head, &format!("stage {position}"), Align::Left, on);
    }
    let inside: Vec<(Axis, &Flow)> = [Axis::Tp, Axis::Dp]
        .into_iter()
        .filter_map(|axis| Some((axis, frame.wires.bundles.get(&(position, position, axis))?)))
        .filter(|(_, flow)| flow.total().0 > 0)
        .collect();
    let foot_height = (inside.len() as f32 * (line + 2.0)).min((rest.height - 2.0 * line).max(0.0));
    let (foot, fields) = rest.cut_bottom(foot_height);
    ranks(sketch, fields.cut_bottom(4.0).1, position, frame, layout);
    for (index, (axis, flow)) in inside.into_iter().enumerate() {
        let row = Area { top: foot.top + index as f32 * (line + 2.0), height: line, ..foot };
        if row.bottom() > place.bottom() {
            break;
        }
        let (wire, text) = row.cut_left(28.0 * zoom);
        let y = wire.centre().y;
        let points = [Point { x: wire.left, y }, Point { x: wire.right() - 6.0, y }];
        let sent = flow.at(frame.playhead);
        strand(sketch, &points, (sent, most), axis, Mark::Plain);
        let words = format!("{} {}", axis.word(), pen::sized(sent, pen::unit(flow.total())));
        sketch.write(text, &words, Align::Left, on);
    }
    layout.cards.push((place, target));
}

/// A field for each rank: tensor ranks side by side, replicas below one another, in the colour of
/// what it does.
fn ranks(
    sketch: &mut Sketch<'_>,
    area: Area,
    position: u32,
    frame: &Frame<'_>,
    layout: &mut Layout,
) {
    let theme = sketch.theme();
    let mesh = frame.timeline.plan().mesh;
    // Flat positions are turned where that makes larger fields.
    let (mut columns, mut rows) = (mesh.tp, mesh.dp);
    let side =
        |columns: u32, rows: u32| (area.width / columns as f32).min(area.height / rows as f32);
    let turned = side(rows, columns) > 1.5 * side(columns, rows);
    if turned {
        (columns, rows) = (rows, columns);
    }
    let pitch = side(columns, rows).min(30.0 * sketch.zoom());
    let gap = if pitch > 6.0 { 2.0 } else { 0.0 };
    let chosen = frame.selected.and_then(|target| target.rank());
    for dp in 0..mesh.dp {
        for tp in 0..mesh.tp {
            let rank = mesh.rank(Coord { dp, tp, pp: position });
            let (column, row) = if turned { (dp, tp) } else { (tp, dp) };
            let left = area.left + column as f32 * pitch;
            let top = area.top + row as f32 * pitch;
            let field = Area::new(left, top, pitch - gap, pitch - gap);
            let kind =
                block_at(frame.timeline.blocks(rank), frame.playhead).map(|block| block.kind);
            match kind {
                Some(kind @ (BlockKind::Work(_) | BlockKind::Waiting(_))) => {
                    let mut paint = theme.block(kind);
                    if pitch < 10.0 {
                        paint.pattern = None;
                    }
                    sketch.painted(field, paint);
                }
                None => sketch.fill(field, theme.track),
            }
            if chosen == Some(rank) && pitch >= 4.0 {
                let accent = theme.accent;
                let mark = Area::new(field.left, field.bottom() - 2.0, field.width, 2.0);
                sketch.fill(mark, accent);
            }
            // What is too small to be met by a pointer is not one's own target.
            if pitch >= 6.0 {
                layout.cards.push((field, Target::Rank(rank)));
            }
        }
    }
}
