//! What one rank holds over the step, by role, and how long each microbatch keeps its activations.

use std::collections::BTreeMap;

use super::Frame;
use crate::ledger::ByRole;
use crate::mesh::Rank;
use crate::plan::Role;
use crate::trace::Badge;
use crate::trace::draw::axis::TimeAxis;
use crate::trace::draw::pen::{self, at_tick, tick};
use crate::trace::draw::scene::{Align, Area, Point, Sketch};
use crate::trace::draw::timeline::Timeline;
use crate::trace::draw::{Work, block_at};
use crate::trace::held::Held;
use crate::units::{Bytes, Nanos};

/// One rank over one step.
#[derive(Clone, Debug, PartialEq)]
pub struct OverTime {
    /// Whose memory it is.
    pub rank: Rank,
    /// What is held from an instant on, ascending.
    pub changes: Vec<(Nanos, ByRole)>,
    /// From the forward of each microbatch to its backward, by stage and microbatch.
    pub lifetimes: Vec<Lifetime>,
    /// Where the numbers of time come from.
    pub badge: Badge,
}

/// How long a microbatch keeps its activations in a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// Which stage.
    pub stage: u32,
    /// Which microbatch.
    pub microbatch: u32,
    /// Where its forward begins.
    pub start: Nanos,
    /// Where its backward ends.
    pub end: Nanos,
}

impl OverTime {
    /// Prepares a rank of a step.
    pub fn new(timeline: &Timeline, rank: Rank) -> Self {
        let (plan, trace) = (timeline.plan(), timeline.trace());
        Self {
            rank,
            changes: Held::of(plan, trace).over_time(rank),
            lifetimes: lifetimes(timeline, rank),
            badge: trace.clock.into(),
        }
    }

    /// What is live at an instant.
    pub fn at(&self, time: Nanos) -> ByRole {
        let after = self.changes.partition_point(|(start, _)| *start <= time);
        self.changes[..after]
            .last()
            .or(self.changes.first())
            .map(|(_, live)| *live)
            .unwrap_or_default()
    }

    /// The most that is live at any instant of a stretch of time.
    fn most_in(&self, start: Nanos, end: Nanos) -> ByRole {
        let after = self.changes.partition_point(|(at, _)| *at <= start);
        let inside = self.changes[after..].iter().take_while(|(at, _)| *at < end);
        let all = inside.map(|(_, live)| *live).chain([self.at(start)]);
        all.max_by_key(ByRole::total).unwrap_or_default()
    }

    /// What is live at an instant, in one sentence.
    pub fn sentence(&self, timeline: &Timeline, time: Nanos) -> String {
        let live = self.at(time);
        let unit = pen::unit(live.total());
        let roles = live.iter().filter(|(_, bytes)| bytes.0 > 0);
        let roles: Vec<String> =
            roles.map(|(role, bytes)| format!("{role} {}", pen::sized(bytes, unit))).collect();
        let doing = match block_at(timeline.blocks(self.rank), time) {
            Some(block) => format!(" ({block})"),
            None => String::new(),
        };
        let (rank, total) = (self.rank, pen::sized(live.total(), unit));
        format!("Rank {rank} holds {total} at {time}{doing}: {}.", roles.join(", "))
    }
}

fn lifetimes(timeline: &Timeline, rank: Rank) -> Vec<Lifetime> {
    let mut found: BTreeMap<(u32, u32), (Option<Nanos>, Option<Nanos>)> = BTreeMap::new();
    for block in timeline.blocks(rank) {
        let (Some(work), Some(stage), Some(microbatch)) =
            (block.work(), block.stage, block.microbatch)
        else {
            continue;
        };
        let life = found.entry((stage, microbatch)).or_default();
        match work {
            Work::Forward => life.0 = life.0.or(Some(block.start)),
            Work::Backward | Work::InputGrad | Work::WeightGrad => life.1 = Some(block.end),
            _ => {}
        }
    }
    let lives = found.into_iter().filter_map(|((stage, microbatch), life)| {
        let (start, end) = (life.0?, life.1?);
        Some(Lifetime { stage, microbatch, start, end })
    });
    lives.collect()
}

/// Draws the curve with its axis, and the lifetimes below; returns where the curve lies.
pub(super) fn draw(
    sketch: &mut Sketch<'_>,
    area: Area,
    over_time: &OverTime,
    frame: &Frame<'_>,
) -> Option<Area> {
    let end = frame.timeline.end();
    let line = sketch.line_of_text();
    let (head, rest) = area.cut_top(line + 4.0);
    let (foot, rest) = rest.cut_bottom(line + 4.0);
    let most = over_time.changes.iter().map(|(_, live)| live.total()).max()?;
    let unit = pen::unit(most);
    let names =
        sketch.wide(&at_tick(most.0 as f64 / unit.1 as f64, 0.1)).max(sketch.wide("0 MiB")) + 8.0;
    let (names, body) = rest.cut_left(names);
    let strip_height = strip_height(sketch, body.height, over_time.lifetimes.len());
    let (strip, plot) = body.cut_bottom(strip_height);
    if plot.height < line || end.0 == 0 {
        return None;
    }
    let badged = sketch.badge(head, over_time.badge);
    let on = sketch.plain();
    let title = format!("Rank {} over the step", over_time.rank);
    sketch.write(badged, &title, Align::Left, on);
    let plotted = Plot { plot, end, most, unit };
    plotted.values(sketch, Area { top: names.top, height: plot.height, ..names });
    plotted.live(sketch, over_time);
    plotted.times(sketch, foot);
    plotted.strip(sketch, strip, over_time);
    if let Some(at) = frame.playhead {
        let x = plotted.x(at.min(end));
        let accent = sketch.theme().accent;
        sketch.line(Point { x, y: plot.top }, Point { x, y: strip.bottom() }, 1.5, accent);
    }
    Some(Area { height: body.height, ..plot })
}

/// How high the lifetimes are: 7 points each where that is at most a third of the plot.
fn strip_height(sketch: &Sketch<'_>, height: f32, count: usize) -> f32 {
    match count {
        0 => 0.0,
        _ => (count as f32 * 7.0 * sketch.zoom() + 8.0).min(height * 0.34),
    }
}

struct Plot {
    plot: Area,
    end: Nanos,
    most: Bytes,
    unit: (&'static str, u64),
}

impl Plot {
    fn x(&self, time: Nanos) -> f32 {
        self.plot.left + (time.0 as f64 / self.end.0 as f64) as f32 * self.plot.width
    }

    fn y(&self, bytes: Bytes) -> f32 {
        let share = bytes.0 as f64 / self.most.0.max(1) as f64;
        self.plot.bottom() - share as f32 * self.plot.height
    }

    fn values(&self, sketch: &mut Sketch<'_>, names: Area) {
        let line = sketch.line_of_text();
        let raised = sketch.theme().raised;
        sketch.fill(self.plot, raised);
        let on = sketch.faint();
        let (name, size) = self.unit;
        let whole = self.most.0 as f64 / size as f64;
        let step = tick(whole, ((self.plot.height / (1.5 * line)) as usize).clamp(1, 4));
        let mut value = 0.0;
        while value <= whole * 1.000_001 {
            let y = self.y(Bytes((value * size as f64) as u64));
            sketch.rule(Point { x: self.plot.left, y }, Point { x: self.plot.right(), y });
            let text = if value == 0.0 { format!("0 {name}") } else { at_tick(value, step) };
            // The lowest one stands on the axis, the highest one below its line.
            let top = (y - line / 2.0).clamp(names.top, (names.bottom() - line).max(names.top));
            let place = Area { top, height: line, ..names };
            sketch.write(place.cut_right(6.0).1, &text, Align::Right, on);
            value += step;
        }
    }

    /// Columns as wide as a point or two; equal neighbours are one.
    fn live(&self, sketch: &mut Sketch<'_>, over_time: &OverTime) {
        let columns = (self.plot.width / 1.5).max(1.0) as u64;
        let at = |column: u64| {
            Nanos((u128::from(self.end.0) * u128::from(column) / u128::from(columns)) as u64)
        };
        let mut column = 0;
        while column < columns {
            let live = over_time.most_in(at(column), at(column + 1));
            let mut next = column + 1;
            while next < columns && over_time.most_in(at(next), at(next + 1)) == live {
                next += 1;
            }
            let (left, right) = (self.x(at(column)), self.x(at(next)));
            let mut sum = Bytes(0);
            for role in Role::ALL.into_iter().filter(|role| live[*role].0 > 0) {
                let paint = sketch.theme().memory(role);
                let (bottom, top) = (self.y(sum), self.y(sum + live[role]));
                // Columns are narrow: the colour alone, and no edge that would make a wall.
                // Half a point over the next one, so that no ground shines through between them.
                let width = (right - left + 0.5).min(self.plot.right() - left);
                sketch.fill(Area::new(left, top, width, bottom - top), paint.fill);
                sum += live[role];
            }
            column = next;
        }
    }

    fn times(&self, sketch: &mut Sketch<'_>, foot: Area) {
        let on = sketch.faint();
        let mut free = foot.left;
        for (at, text) in TimeAxis::holding(self.end).labels() {
            if at > self.end {
                continue;
            }
            let width = sketch.wide(&text) + 0.5;
            let left = (self.x(at) - width / 2.0).max(free);
            if left + width <= foot.right() {
                sketch.write(Area::new(left, foot.top, width, foot.height), &text, Align::Left, on);
                free = left + width + 8.0;
            }
        }
    }

    fn strip(&self, sketch: &mut Sketch<'_>, strip: Area, over_time: &OverTime) {
        let strip = strip.cut_top(6.0).1;
        let count = over_time.lifetimes.len();
        if count == 0 || strip.height < 3.0 {
            return;
        }
        let paint = sketch.theme().memory(Role::Activations);
        let pitch = strip.height / count as f32;
        for (index, life) in over_time.lifetimes.iter().enumerate() {
            let (left, right) = (self.x(life.start), self.x(life.end));
            let top = strip.top + pitch * index as f32;
            let bar = Area::new(left, top, (right - left).max(1.0), (pitch - 1.0).max(pitch * 0.6));
            sketch.painted(bar, paint);
        }
    }
}
