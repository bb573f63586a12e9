//! Stacked bars of the most that ranks hold, with ticks where the ledger had counted the same: one a
//! rank, or one a pipeline position with a line for each of its ranks below.

use super::{Frame, MOST_ROWS, most};
use crate::ledger::ByRole;
use crate::mesh::Rank;
use crate::plan::Role;
use crate::trace::Badge;
use crate::trace::draw::pen::{self, On, at_tick, tick};
use crate::trace::draw::scene::{Align, Area, Point, Sketch};
use crate::trace::draw::timeline::Target;
use crate::units::Bytes;

/// The share of a row below its bar in which ticks stand.
const TICKS: f32 = 0.22;

/// One row.
struct Row {
    target: Target,
    /// The rank that is drawn large.
    shown: Rank,
    name: String,
    /// All of its ranks, where they are more than one.
    others: Vec<Rank>,
}

impl Row {
    /// Whether a target is this row, or something of one of its ranks.
    fn has(&self, target: Target) -> bool {
        let has_rank = |rank: Rank| rank == self.shown || self.others.contains(&rank);
        target == self.target || target.rank().is_some_and(has_rank)
    }
}

pub(super) fn draw(sketch: &mut Sketch<'_>, area: Area, frame: &Frame<'_>) -> Vec<(Area, Target)> {
    let line = sketch.line_of_text();
    let (head, rest) = area.cut_top(line + 4.0);
    head_of(sketch, head, frame.timeline.trace().clock.into());
    let (foot, body) = rest.cut_bottom(line + 4.0);
    let rows = rows(frame);
    let most = most(frame);
    let unit = pen::unit(most);
    let value_width = sketch.wide(&pen::sized(most, unit)) * 1.1 + 10.0;
    let longest = rows.iter().map(|row| sketch.wide(&row.name)).fold(0.0, f32::max);
    let names = (longest + 15.0).min(area.width * 0.4);
    let height = (body.height / rows.len().max(1) as f32).min(36.0 * sketch.zoom());
    // The axis stands right below the last row.
    let body = body.cut_top(height * rows.len() as f32).0;
    let scale = Scale::over(body, names, value_width, most);
    scale.axis(sketch, Area { top: body.bottom(), ..foot }, unit);
    let mut boxes = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let top = body.top + height * index as f32;
        let place = Area::new(body.left, top, body.width, height);
        scale.row(sketch, place, row, frame);
        boxes.push((place, row.target));
    }
    scale.cap(sketch, frame);
    boxes
}

fn head_of(sketch: &mut Sketch<'_>, head: Area, badge: Badge) {
    let rest = sketch.badge(head, badge);
    let on = sketch.plain();
    sketch.write(rest, "Most that each rank holds in this step", Align::Left, on);
}

/// What the colours and marks mean.
pub(super) fn legend(sketch: &mut Sketch<'_>, legend: Area, cap: Option<Bytes>) {
    let mut rest = legend;
    for role in Role::ALL {
        let paint = sketch.theme().memory(role);
        rest = sketch.swatch(rest, paint, &role.to_string());
    }
    let theme = sketch.theme();
    let (ink, error) = (theme.ink, theme.error);
    let counted = Badge::Counted.word();
    let cap = cap.map(|cap| (format!("cap {cap}"), error, (2.0, 12.0)));
    let marks = [
        (format!("predicted by role, {counted}"), ink, (1.5, 5.0)),
        (format!("placed, {counted}"), ink, (2.0, 12.0)),
    ];
    for (name, ink, (wide, high)) in marks.into_iter().chain(cap) {
        let width = 8.0 + sketch.wide(&name);
        if rest.width <= width {
            break;
        }
        let mark = Area::new(rest.left, rest.centre().y + 6.0 - high, wide, high);
        sketch.fill(mark, ink);
        let on = sketch.plain();
        sketch.write(rest.cut_left(6.0).1, &name, Align::Left, on);
        rest = rest.cut_left(width + 12.0).1;
    }
}

fn rows(frame: &Frame<'_>) -> Vec<Row> {
    let timeline = frame.timeline;
    let mesh = timeline.plan().mesh;
    if timeline.ranks().len() <= MOST_ROWS {
        let of = |&rank: &Rank| Row {
            target: Target::Rank(rank),
            shown: rank,
            name: format!("{rank}  {}", mesh.coord(rank)),
            others: Vec::new(),
        };
        return timeline.ranks().iter().map(of).collect();
    }
    let of = |position: u32| {
        let others: Vec<Rank> = timeline.position(position).collect();
        let peak = |rank: &Rank| frame.held.get(rank.index()).map(ByRole::total);
        // Of equal ones the first.
        let shown = *others.iter().rev().max_by_key(|rank| peak(rank))?;
        let name = format!("stage {position} · {} ranks", others.len());
        Some(Row { target: Target::Position(position), shown, name, others })
    };
    (0..mesh.pp).filter_map(of).collect()
}

/// Where each role ends that has any bytes, one on top of the other.
pub(super) fn role_ends(memory: &ByRole) -> impl Iterator<Item = Bytes> {
    let mut sum = Bytes(0);
    memory.iter().filter(|(_, bytes)| bytes.0 > 0).map(move |(_, bytes)| {
        sum += bytes;
        sum
    })
}

/// The common scale.
struct Scale {
    /// Where bars lie.
    track: Area,
    names: f32,
    /// What the width of the track stands for.
    most: Bytes,
}

impl Scale {
    fn over(body: Area, names: f32, values: f32, most: Bytes) -> Self {
        let track = body.cut_left(names).1.cut_right(values).1;
        Self { track, names, most: Bytes(most.0.max(1)) }
    }

    fn x(&self, bytes: Bytes) -> f32 {
        self.track.left + (bytes.0 as f64 / self.most.0 as f64) as f32 * self.track.width
    }

    fn axis(&self, sketch: &mut Sketch<'_>, foot: Area, unit: (&str, u64)) {
        let (name, size) = unit;
        let whole = self.most.0 as f64 / size as f64;
        let most = (self.track.width / (2.2 * sketch.wide("000"))).max(1.0) as usize;
        let step = tick(whole, most.min(5));
        let on = sketch.faint();
        let mut end = f32::NEG_INFINITY;
        let mut value = 0.0;
        while value <= whole * 1.000_001 {
            let x = self.x(Bytes((value * size as f64) as u64));
            sketch.rule(Point { x, y: self.track.top }, Point { x, y: self.track.bottom() + 2.0 });
            let text = match value == 0.0 {
                true => format!("0 {name}"),
                false => at_tick(value, step),
            };
            let width = sketch.wide(&text) + 0.5;
            let left = (x - width / 2.0).clamp(foot.left, (foot.right() - width).max(foot.left));
            if left > end + 6.0 {
                let place = Area::new(left, foot.top, width, foot.height);
                sketch.write(place, &text, Align::Left, on);
                end = left + width;
            }
            value += step;
        }
    }

    fn row(&self, sketch: &mut Sketch<'_>, place: Area, row: &Row, frame: &Frame<'_>) {
        let theme = sketch.theme();
        let hovered = [Some(row.target), Some(Target::Rank(row.shown))].contains(&frame.hovered);
        let ground = match hovered {
            true => theme.ground.mixed(theme.ink, 0.06),
            false => theme.ground,
        };
        if hovered {
            sketch.fill(place, ground);
        }
        let line = sketch.line_of_text();
        let on = On { ink: theme.ink, ground };
        let Some(held) = frame.held.get(row.shown.index()) else { return };
        // Lines of the other ranks take the lower part of the row.
        let below = if row.others.is_empty() { 0.0 } else { place.height * 0.48 };
        let (lines, upper) = place.cut_bottom(below);
        let band = Area { left: self.track.left, width: self.track.width, ..upper };
        let band = band.shrunk(0.0, 2.0);
        let (ticks, bar) = band.cut_bottom((band.height * TICKS).min(5.0 * sketch.zoom()));
        let bar = Area { height: bar.height.max(1.0), ..bar };
        self.bar(sketch, bar, held, frame.cap);
        self.counted(sketch, (bar, ticks), row.shown, frame);
        if upper.height >= line {
            let name =
                |place: Area| Area { left: place.left + 7.0, width: self.names - 15.0, ..place };
            sketch.write(name(upper), &row.name, Align::Left, on);
            if below > 0.0 && lines.height >= line {
                let largest = format!("largest r{}", row.shown);
                sketch.write(name(lines), &largest, Align::Left, on);
            }
            let text = pen::sized(held.total(), pen::unit(self.most));
            let value = Area::new(
                self.track.right() + 6.0,
                upper.top,
                place.right() - self.track.right() - 6.0,
                upper.height,
            );
            sketch.write(value, &text, Align::Right, on);
        }
        self.lines(sketch, lines, row, frame);
        if frame.selected.is_some_and(|target| row.has(target)) {
            sketch.fill(
                Area::new(place.left, place.top + 1.0, 3.0, place.height - 2.0),
                theme.accent,
            );
        }
    }

    /// One bar; what lies above the cap is crossed out.
    fn bar(&self, sketch: &mut Sketch<'_>, bar: Area, memory: &ByRole, cap: Option<Bytes>) {
        let track = sketch.theme().track;
        sketch.fill(bar, track);
        let mut sum = Bytes(0);
        for (role, bytes) in memory.iter().filter(|(_, bytes)| bytes.0 > 0) {
            let paint = sketch.theme().memory(role);
            let (from, to) = (self.x(sum), self.x(sum + bytes));
            sketch.painted(Area::new(from, bar.top, to - from, bar.height), paint);
            let over = cap.filter(|cap| sum + bytes > *cap).map(|cap| self.x(cap).max(from));
            if let Some(left) = over {
                sketch.crossed(Area::new(left, bar.top, to - left, bar.height), paint.fill);
            }
            sum += bytes;
        }
    }

    /// What was counted for the rank before: below the bar a tick where each role ends, and across it
    /// a line where its place ends.
    fn counted(
        &self,
        sketch: &mut Sketch<'_>,
        (bar, below): (Area, Area),
        rank: Rank,
        frame: &Frame<'_>,
    ) {
        let Some(memory) = frame.counted.get(rank.index()) else { return };
        let ink = sketch.theme().ink;
        let placed = self.x(memory.placed) - 1.0;
        sketch.fill(Area::new(placed, bar.top - 1.0, 2.0, bar.height + 1.0), ink);
        for end in role_ends(&memory.at_peak) {
            let left = self.x(end) - 0.75;
            sketch.fill(Area::new(left, below.top + 1.0, 1.5, below.height - 1.0), ink);
        }
    }

    /// A line for each rank of a position; where they are too many, one for each line of pixels.
    fn lines(&self, sketch: &mut Sketch<'_>, place: Area, row: &Row, frame: &Frame<'_>) {
        if row.others.is_empty() || place.height < 2.0 {
            return;
        }
        let ink = sketch.theme().memory(Role::Activations);
        let pitch = ((place.height - 2.0) / row.others.len() as f32).clamp(1.0, 3.0);
        let slots = ((place.height / pitch) as usize).clamp(1, row.others.len());
        for slot in 0..slots {
            let (first, end) =
                (slot * row.others.len() / slots, (slot + 1) * row.others.len() / slots);
            let peaks =
                row.others[first..end].iter().filter_map(|rank| frame.held.get(rank.index()));
            let Some(peak) = peaks.map(ByRole::total).max() else { continue };
            let top = place.top + pitch * slot as f32;
            let width = self.x(peak) - self.track.left;
            let fill = ink.edge.unwrap_or(ink.fill);
            sketch.fill(Area::new(self.track.left, top, width, (pitch * 0.6).max(0.75)), fill);
        }
    }

    fn cap(&self, sketch: &mut Sketch<'_>, frame: &Frame<'_>) {
        let Some(cap) = frame.cap else { return };
        let x = self.x(cap);
        let error = sketch.theme().error;
        sketch.line(
            Point { x, y: self.track.top - 4.0 },
            Point { x, y: self.track.bottom() },
            2.0,
            error,
        );
    }
}
