//! Paints the plot of losses: at most a few shapes for each column of points, however many there
//! are.

use std::ops::Range as Span;

use super::{Frame, Layout, Series};
use crate::trace::draw::pen::{On, at_tick, tick};
use crate::trace::draw::scene::{Align, Area, Dash, Point, Shape, Sketch};
use crate::trace::draw::theme::Rgb;

/// Values closer to one rank than this are drawn at the foot of the |Δ| strip.
const LEAST_DELTA: f64 = 1e-9;
/// Values as far from one rank as this are drawn at its top.
const MOST_DELTA: f64 = 1e1;

/// Draws the plot.
pub fn draw(sketch: &mut Sketch<'_>, area: Area, frame: &Frame<'_>) -> Layout {
    let plot = Plot::over(sketch, area, frame);
    plot.grid(sketch, frame);
    plot.target(sketch, frame);
    let theme = sketch.theme();
    let faint = theme.ground.mixed(theme.ink, 0.38);
    for branch in frame.branches {
        plot.line(sketch, branch.series, |p| p.smoothed, (1.5, theme.faint, Dash::Dashed));
    }
    if let Some(reference) = frame.reference {
        plot.line(sketch, reference, |p| p.value, (1.5, theme.faint, Dash::Dotted));
    }
    plot.line(sketch, frame.series, |p| p.value, (1.0, faint, Dash::Solid));
    plot.line(sketch, frame.series, |p| p.smoothed, (2.0, theme.ink, Dash::Solid));
    plot.not_finite(sketch, frame.series);
    plot.held_out(sketch, frame);
    plot.delta(sketch, frame);
    plot.marks(sketch, frame);
    plot.legend(sketch, frame);
    Layout { plot: plot.area, strip: plot.strip, steps: (0, plot.last) }
}

/// The areas of the plot and the scales of its axes.
struct Plot {
    area: Area,
    strip: Area,
    /// Where names of lines stand, above the plot.
    head: Area,
    /// Where marks of steps stand, below the head.
    marks: Area,
    /// Where steps are written, at the foot.
    foot: Area,
    /// Where values are written, at the left.
    left: Area,
    last: u64,
    low: f64,
    high: f64,
}

impl Plot {
    fn over(sketch: &Sketch<'_>, area: Area, frame: &Frame<'_>) -> Self {
        let line = sketch.line_of_text();
        let (head, rest) = area.cut_top(line + 2.0);
        let (marks, rest) = rest.cut_top(line);
        let (foot, rest) = rest.cut_bottom(line + 2.0);
        let has_strip = frame.reference.is_some() && rest.height > 7.0 * line;
        let strip_height = if has_strip { (rest.height * 0.35).max(3.5 * line) } else { 0.0 };
        let (strip, rest) = rest.cut_bottom(strip_height);
        let range = frame.range;
        let step = tick(range.high - range.low, 4);
        let widest = [range.low, range.high, range.low + step]
            .map(|value| sketch.wide(&at_tick(value, step)))
            .into_iter()
            .fold(if has_strip { sketch.wide("1e−9") } else { 0.0 }, f32::max);
        let (left, plot) = rest.cut_left(widest + 8.0);
        let plot = plot.cut_right(8.0).1;
        let across = |area: Area| Area { left: plot.left, width: plot.width, ..area };
        // A line of text between the two, so that their values do not meet.
        let strip = across(strip.cut_top(line).1);
        let last = |series: &Series| series.points().last().map_or(0, |point| point.step);
        let branches = frame.branches.iter().map(|branch| last(branch.series));
        let reached = branches.chain([last(frame.series)]).max().unwrap_or(0);
        let last = frame.steps.max(reached).max(1);
        let (low, high) = (range.low, range.high);
        Self {
            area: plot,
            strip,
            head,
            marks: across(marks),
            foot: across(foot),
            left,
            last,
            low,
            high,
        }
    }

    fn x(&self, step: u64) -> f32 {
        self.area.left + (step as f64 / self.last as f64) as f32 * self.area.width
    }

    /// Kept in the plot where a value is out of range.
    fn y(&self, value: f64) -> f32 {
        let share = ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        self.area.bottom() - share as f32 * self.area.height
    }

    /// The height of a distance in the strip, on a scale of powers of ten.
    fn y_delta(&self, delta: f64) -> f32 {
        let (low, high) = (LEAST_DELTA.log10(), MOST_DELTA.log10());
        let share = ((delta.max(LEAST_DELTA).log10() - low) / (high - low)).clamp(0.0, 1.0);
        self.strip.bottom() - share as f32 * self.strip.height
    }

    fn grid(&self, sketch: &mut Sketch<'_>, frame: &Frame<'_>) {
        let line = sketch.line_of_text();
        let on = sketch.faint();
        let raised = sketch.theme().raised;
        sketch.fill(self.area, raised);
        let most = (self.area.height / (1.6 * line)).max(1.0) as usize;
        let step = tick(self.high - self.low, most.min(4));
        let mut value = (self.low / step).ceil() * step;
        while value <= self.high + 1e-9 * step {
            let y = self.y(value);
            sketch.rule(Point { x: self.area.left, y }, Point { x: self.area.right(), y });
            // Kept inside of the picture at both ends.
            let text = Area { top: y - line / 2.0, height: line, ..self.left };
            sketch.write(text.cut_right(6.0).1, &at_tick(value, step), Align::Right, on);
            value += step;
        }
        let most = (self.area.width / sketch.wide("10000   ")).max(1.0) as usize;
        let step = tick(self.last as f64, most.min(6)).max(1.0).round() as u64;
        let mut end = self.foot.left - 8.0;
        for at in (0..=self.last).step_by(step.max(1) as usize) {
            let name = if at == 0 { "step 0".into() } else { at.to_string() };
            let width = sketch.wide(&name);
            let most_left = self.foot.right() + 7.0 - width;
            let left = (self.x(at) - width / 2.0).min(most_left).max(self.foot.left);
            if left < end + 8.0 {
                continue;
            }
            let text = Area::new(left, self.foot.top, width + 0.5, self.foot.height);
            sketch.write(text, &name, Align::Left, on);
            end = left + width;
        }
        if self.strip.height > 0.0 && frame.reference.is_some() {
            sketch.fill(self.strip, raised);
            for power in [-9, -6, -3, 0] {
                let y = self.y_delta(10f64.powi(power));
                sketch.rule(Point { x: self.strip.left, y }, Point { x: self.strip.right(), y });
            }
            let names = [(-9, "0"), (-6, "1e−6"), (0, "1")];
            let mut below = f32::INFINITY;
            for (power, name) in names {
                let y = self.y_delta(10f64.powi(power));
                if below - y < line {
                    continue;
                }
                below = y;
                let text = Area { top: y - line / 2.0, height: line, ..self.left };
                sketch.write(text.cut_right(6.0).1, name, Align::Right, on);
            }
        }
    }

    fn target(&self, sketch: &mut Sketch<'_>, frame: &Frame<'_>) {
        let Some(target) = frame.target.filter(|target| target.value.is_finite()) else { return };
        let y = self.y(target.value);
        let ink = sketch.theme().ink;
        let points = vec![Point { x: self.area.left, y }, Point { x: self.area.right(), y }];
        sketch.push(Shape::Line { points, width: 1.0, ink, dash: Dash::Dashed });
        // In a low plot its name would lie on the curve or on the axis.
        if self.area.height < 2.5 * sketch.line_of_text() {
            return;
        }
        let on = On { ink, ground: sketch.theme().raised };
        let text = match target.name {
            "" => format!("target {:.2}", target.value),
            name => format!("target {:.2}, {name}", target.value),
        };
        let room = self.beside_curves(y, (sketch.wide(&text), sketch.line_of_text()), frame);
        sketch.write(room, &text, Align::Left, on);
    }

    /// Where a text at a level stands with the fewest points of the loss under it: above or below the
    /// level, at the right or at the left.
    fn beside_curves(&self, y: f32, (wide, line): (f32, f32), frame: &Frame<'_>) -> Area {
        let width = (wide + 1.0).min(self.area.width - 8.0).max(0.0);
        // Above and at the right comes first: a loss that falls below its target is never there, so
        // that the text does not move.
        let lefts = [self.area.right() - 4.0 - width, self.area.left + 4.0];
        let tops = [y - line - 1.0, y + 1.0];
        let fits = |top: &f32| *top >= self.area.top && *top + line <= self.area.bottom();
        let places = tops.into_iter().filter(fits);
        let places = places.flat_map(|top| lefts.map(|left| Area::new(left, top, width, line)));
        let covered = |place: &Area| {
            let around = place.shrunk(-6.0, -3.0);
            let points = frame.series.points().iter();
            let values = points.flat_map(|p| [(p.step, p.value), (p.step, p.smoothed)]);
            let at = |(step, value)| Point { x: self.x(step), y: self.y(value) };
            values.map(at).filter(|at| around.contains(*at)).count()
        };
        let otherwise = Area::new(lefts[0], (y - line - 1.0).max(self.area.top), width, line);
        places.min_by_key(covered).unwrap_or(otherwise)
    }

    /// One value of a series as a line; a point without finite neighbours is a dot.
    fn line(
        &self,
        sketch: &mut Sketch<'_>,
        series: &Series,
        of: impl Fn(&super::Sample) -> f64,
        (width, ink, dash): (f32, Rgb, Dash),
    ) {
        let points = series.points();
        // Where there is room, each point is seen by itself.
        let is_sparse = (points.len() as f32) < self.area.width / 8.0;
        let mut last = Point { x: f32::NEG_INFINITY, y: 0.0 };
        for run in runs(points.len(), |index| of(&points[index]).is_finite()) {
            let at = |index: usize| Point {
                x: self.x(points[index].step),
                y: self.y(of(&points[index])),
            };
            if run.len() == 1 {
                let at = at(run.start);
                // One that lies on the dot before it cannot be seen.
                if (at.x - last.x).abs() >= 1.0 || (at.y - last.y).abs() >= 1.0 {
                    sketch.push(Shape::Dot { at, radius: width + 1.5, fill: ink });
                    last = at;
                }
                continue;
            }
            if is_sparse && width <= 1.0 {
                for index in run.clone() {
                    sketch.push(Shape::Dot { at: at(index), radius: 2.0, fill: ink });
                }
            }
            let points = thinned(run.map(at));
            sketch.push(Shape::Line { points, width, ink, dash });
        }
    }

    /// Steps whose value is not finite, as triangles on the axis.
    fn not_finite(&self, sketch: &mut Sketch<'_>, series: &Series) {
        let fill = sketch.theme().error;
        let mut last = f32::NEG_INFINITY;
        for point in series.points().iter().filter(|point| !point.value.is_finite()) {
            let (x, y) = (self.x(point.step), self.area.bottom());
            if x - last < 4.0 {
                continue;
            }
            last = x;
            let corners = [(x - 5.0, y), (x + 5.0, y), (x, y - 9.0)];
            sketch.push(Shape::Polygon {
                points: corners.map(|(x, y)| Point { x, y }).to_vec(),
                fill,
            });
        }
    }

    fn held_out(&self, sketch: &mut Sketch<'_>, frame: &Frame<'_>) {
        let (fill, ring) = (sketch.theme().raised, sketch.theme().ink);
        for (step, loss) in frame.held_out.iter().filter(|(_, loss)| loss.is_finite()) {
            let at = Point { x: self.x(*step), y: self.y(*loss) };
            sketch.push(Shape::Dot { at, radius: 4.5, fill: ring });
            sketch.push(Shape::Dot { at, radius: 2.5, fill });
        }
    }

    /// The distance from one rank, on a scale of powers of ten.
    fn delta(&self, sketch: &mut Sketch<'_>, frame: &Frame<'_>) {
        let (Some(reference), true) = (frame.reference, self.strip.height > 0.0) else { return };
        let deltas: Vec<(u64, f64)> = frame
            .series
            .points()
            .iter()
            .filter_map(|own| {
                let other = reference.at(own.step)?;
                Some((own.step, (own.value - other.value).abs()))
            })
            .collect();
        let ink = sketch.theme().ink;
        for run in runs(deltas.len(), |index| deltas[index].1.is_finite()) {
            let at = |index: usize| {
                let (step, delta) = deltas[index];
                Point { x: self.x(step), y: self.y_delta(delta) }
            };
            if run.len() == 1 {
                sketch.push(Shape::Dot { at: at(run.start), radius: 2.5, fill: ink });
            } else {
                let points = thinned(run.map(at));
                sketch.push(Shape::Line { points, width: 1.5, ink, dash: Dash::Solid });
            }
        }
        let line = sketch.line_of_text();
        let on = On { ink: sketch.theme().ink, ground: sketch.theme().raised };
        let room =
            Area::new(self.strip.left + 4.0, self.strip.top + 1.0, self.strip.width - 8.0, line);
        sketch.write_whole(room, "|Δ| to one rank", Align::Right, on);
    }

    /// The step that is shown, and the one under the pointer.
    fn marks(&self, sketch: &mut Sketch<'_>, frame: &Frame<'_>) {
        let accent = sketch.theme().accent;
        let bottom = if self.strip.height > 0.0 { self.strip.bottom() } else { self.area.bottom() };
        if let Some(step) = frame.hover {
            let x = self.x(step.min(self.last));
            sketch.rule(Point { x, y: self.area.top }, Point { x, y: bottom });
        }
        let Some(step) = frame.shown else { return };
        let (x, y) = (self.x(step.min(self.last)), self.area.top);
        let corners = [(x - 5.0, y - 8.0), (x + 5.0, y - 8.0), (x, y)];
        sketch.push(Shape::Polygon {
            points: corners.map(|(x, y)| Point { x, y }).to_vec(),
            fill: accent,
        });
        sketch.line(Point { x, y }, Point { x, y: bottom }, 1.0, accent);
        let text = format!("shown: step {step}");
        let width = sketch.wide(&text) + 1.0;
        // Beside the mark, on whichever side has room.
        let right = x + 9.0;
        let left = if right + width <= self.marks.right() { right } else { x - 9.0 - width };
        if left >= self.marks.left {
            let on = sketch.plain();
            sketch.write(
                Area::new(left, self.marks.top, width, self.marks.height),
                &text,
                Align::Left,
                on,
            );
        }
    }

    fn legend(&self, sketch: &mut Sketch<'_>, frame: &Frame<'_>) {
        let theme = sketch.theme();
        let faint = theme.ground.mixed(theme.ink, 0.38);
        let mut entries =
            vec![("loss", 1.0, faint, Dash::Solid), ("smoothed", 2.0, theme.ink, Dash::Solid)];
        if frame.reference.is_some() {
            entries.push(("one rank", 1.5, theme.faint, Dash::Dotted));
        }
        entries.extend(frame.branches.iter().map(|b| (b.name, 1.5, theme.faint, Dash::Dashed)));
        let on = sketch.plain();
        let mut rest = self.head.cut_left(4.0).1;
        for (name, width, ink, dash) in entries {
            let wide = 18.0 + 4.0 + sketch.wide(name) + 14.0;
            if wide > rest.width {
                break;
            }
            let (entry, more) = rest.cut_left(wide);
            let y = entry.centre().y;
            let points = [entry.left, entry.left + 18.0].map(|x| Point { x, y }).to_vec();
            sketch.push(Shape::Line { points, width, ink, dash });
            sketch.write(entry.cut_left(22.0).1, name, Align::Left, on);
            rest = more;
        }
        let name = "held-out";
        if !frame.held_out.is_empty() && 14.0 + sketch.wide(name) < rest.width {
            let at = Point { x: rest.left + 5.0, y: rest.centre().y };
            sketch.push(Shape::Dot { at, radius: 4.5, fill: theme.ink });
            sketch.push(Shape::Dot { at, radius: 2.5, fill: theme.ground });
            sketch.write(rest.cut_left(14.0).1, name, Align::Left, on);
            rest = rest.cut_left(14.0 + sketch.wide(name)).1;
        }
        if sketch.wide(frame.unit) + 14.0 < rest.width {
            let faint = sketch.faint();
            sketch.write(rest.cut_right(8.0).1, frame.unit, Align::Right, faint);
        }
    }
}

/// Stretches of indices for which something holds.
fn runs(count: usize, holds: impl Fn(usize) -> bool) -> Vec<Span<usize>> {
    let mut found: Vec<Span<usize>> = Vec::new();
    for index in (0..count).filter(|index| holds(*index)) {
        match found.last_mut() {
            Some(last) if last.end == index => last.end = index + 1,
            _ => found.push(index..index + 1),
        }
    }
    found
}

/// Of the points in a column of one point's width, the first, the lowest, the highest and the last.
fn thinned(points: impl Iterator<Item = Point>) -> Vec<Point> {
    let mut kept: Vec<Point> = Vec::new();
    let mut column: Vec<Point> = Vec::new();
    let mut flush = |column: &mut Vec<Point>| {
        let by_height = |a: &&Point, b: &&Point| a.y.total_cmp(&b.y);
        let extremes = [column.iter().min_by(by_height), column.iter().max_by(by_height)];
        let ends = [column.first(), column.last()];
        let mut all: Vec<Point> = match column.len() {
            0..=4 => column.clone(),
            _ => [ends[0], extremes[0], extremes[1], ends[1]]
                .into_iter()
                .flatten()
                .copied()
                .collect(),
        };
        all.sort_by(|a, b| a.x.total_cmp(&b.x));
        kept.extend(all);
        column.clear();
    };
    for point in points {
        if column.first().is_some_and(|first| point.x.floor() > first.x.floor()) {
            flush(&mut column);
        }
        column.push(point);
    }
    flush(&mut column);
    kept
}
