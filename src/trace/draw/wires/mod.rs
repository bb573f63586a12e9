//! Ranks on their mesh and what flows between them: pipeline positions from left to right, tensor
//! ranks side by side in each, replicas below one another.
//!
//! [`Wires`] is prepared once for a step; [`draw`] is a pure function of it, the playhead and the
//! size. Where cards lie is decided by the mesh and the size alone, so nothing ever moves but the
//! width of wires, which is what has been sent so far, and messages that last long enough to be
//! followed.

mod cards;
mod flights;
mod groups;
mod place;
mod routes;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use self::place::Places;
use super::pen;
use super::playback::Speed;
use super::scene::{Align, Area, Dash, Point, Shape, Sketch};
use super::timeline::{Target, Timeline};
use crate::ledger::ByRole;
use crate::mesh::{Axis, Rank};
use crate::plan::{Action, Lane};
use crate::trace::{Badge, Span};
use crate::units::{Bytes, Nanos};

/// Up to this many ranks each one has a card.
const MOST_CARDS: usize = 16;
/// Messages are drawn moving where one is seen for this long.
const LEAST_FLIGHT: Nanos = Nanos(150_000_000);
/// More than this many at once are no longer followed by anybody.
const MOST_FLIGHTS: usize = 24;

/// From which rank to which, and what for.
pub(super) type Wire = (Rank, Rank, Axis);

/// What flows in a step.
#[derive(Debug)]
pub struct Wires {
    /// Each wire with what has crossed it at the end of each message, ascending.
    flows: BTreeMap<Wire, Flow>,
    /// Between pipeline positions, and inside of them.
    bundles: BTreeMap<(u32, u32, Axis), Flow>,
    /// By axis, in the order of [`Axis::ALL`].
    axes: [Flow; 3],
    /// All messages, ascending by start.
    messages: Vec<Message>,
}

/// Bytes that have arrived at an instant.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Flow {
    /// Instant and sum up to it, ascending.
    arrived: Vec<(Nanos, Bytes)>,
}

/// One message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) wire: Wire,
    pub(super) span: Span,
    /// Its send.
    pub(super) instr: u32,
}

impl Flow {
    fn of(mut ends: Vec<(Nanos, Bytes)>) -> Self {
        ends.sort_unstable();
        let mut sum = Bytes(0);
        for (_, bytes) in &mut ends {
            sum += *bytes;
            *bytes = sum;
        }
        // Of one instant the last sum counts.
        ends.reverse();
        ends.dedup_by_key(|(end, _)| *end);
        ends.reverse();
        Self { arrived: ends }
    }

    /// What has arrived at an instant.
    pub(super) fn at(&self, time: Nanos) -> Bytes {
        let after = self.arrived.partition_point(|(end, _)| *end <= time);
        after.checked_sub(1).map_or(Bytes(0), |last| self.arrived[last].1)
    }

    /// What crosses in the whole step.
    pub(super) fn total(&self) -> Bytes {
        self.arrived.last().map_or(Bytes(0), |(_, sum)| *sum)
    }
}

impl Wires {
    /// Prepares a step.
    pub fn new(timeline: &Timeline) -> Self {
        let (plan, trace) = (timeline.plan(), timeline.trace());
        let position = |rank: Rank| plan.mesh.coord(rank).pp;
        let mut ends: BTreeMap<Wire, Vec<(Nanos, Bytes)>> = BTreeMap::new();
        let mut messages = Vec::new();
        for (from, program) in (0..).map(Rank).zip(&plan.programs) {
            for (instr, line) in (0u32..).zip(&program.instrs) {
                let (Action::Send { view, to, hops, .. }, Lane::Out(axis, _)) =
                    (&line.action, line.lane)
                else {
                    continue;
                };
                let (wire, span) = ((from, *to, axis), trace.span(from, instr as usize));
                let bytes = plan.view_bytes(*view) * u64::from(*hops);
                ends.entry(wire).or_default().push((span.end, bytes));
                messages.push(Message { wire, span, instr });
            }
        }
        messages.sort_by_key(|message| (message.span.start, message.wire, message.instr));
        let mut bundles: BTreeMap<(u32, u32, Axis), Vec<(Nanos, Bytes)>> = BTreeMap::new();
        let mut axes: [Vec<(Nanos, Bytes)>; 3] = Default::default();
        for (&(from, to, axis), ends) in &ends {
            bundles.entry((position(from), position(to), axis)).or_default().extend(ends);
            axes[axis as usize].extend(ends);
        }
        let flows = |(key, ends)| (key, Flow::of(ends));
        Self {
            flows: ends.into_iter().map(flows).collect(),
            bundles: bundles.into_iter().map(|(key, ends)| (key, Flow::of(ends))).collect(),
            axes: axes.map(Flow::of),
            messages,
        }
    }

    /// What has crossed for an axis at an instant, and what crosses in the whole step.
    pub fn on(&self, axis: Axis, at: Nanos) -> (Bytes, Bytes) {
        let flow = &self.axes[axis as usize];
        (flow.at(at), flow.total())
    }
}

/// What is drawn.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The step, its blocks and memory.
    pub timeline: &'a Timeline,
    /// What flows in it.
    pub wires: &'a Wires,
    /// The instant that is being shown; the end of the step shows all of it.
    pub playhead: Nanos,
    /// How fast it is shown, as long as it is.
    pub speed: Option<Speed>,
    /// What is selected: its messages are marked.
    pub selected: Option<Target>,
    /// What the pointer is on.
    pub hovered: Option<Target>,
}

/// Where things lie.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layout {
    /// Cards of ranks or of pipeline positions, and dots of ranks, the smallest first.
    pub cards: Vec<(Area, Target)>,
    /// Wires with their width.
    pub wires: Vec<(Vec<Point>, f32, Target)>,
}

impl Layout {
    /// What lies at a point: a card, or the nearest wire within a few points.
    pub fn target_at(&self, at: Point) -> Option<Target> {
        if let Some((_, target)) = self.cards.iter().find(|(area, _)| area.contains(at)) {
            return Some(*target);
        }
        let mut nearest: Option<(f32, Target)> = None;
        for (points, width, target) in &self.wires {
            let parts = points.windows(2);
            let distance =
                parts.map(|pair| distance(at, pair[0], pair[1])).fold(f32::MAX, f32::min);
            let is_near = distance <= width / 2.0 + 4.0;
            if is_near && nearest.is_none_or(|(best, _)| distance < best) {
                nearest = Some((distance, *target));
            }
        }
        nearest.map(|(_, target)| target)
    }
}

/// From a point to a stretch between two others.
fn distance(at: Point, from: Point, to: Point) -> f32 {
    let (dx, dy) = (to.x - from.x, to.y - from.y);
    let along = (at.x - from.x) * dx + (at.y - from.y) * dy;
    let share = (along / (dx * dx + dy * dy).max(1e-6)).clamp(0.0, 1.0);
    (from.x + share * dx - at.x).hypot(from.y + share * dy - at.y)
}

/// Draws ranks and wires.
pub fn draw(sketch: &mut Sketch<'_>, area: Area, frame: &Frame<'_>) -> Layout {
    let line = sketch.line_of_text();
    let (head, body) = area.cut_top(line + 6.0);
    legend(sketch, head, frame);
    let body = body.cut_top(4.0).1;
    let mesh = frame.timeline.plan().mesh;
    let cards = frame.timeline.ranks().len() <= MOST_CARDS;
    match Places::over(mesh, body, sketch.zoom()).filter(|_| cards) {
        Some(places) => cards::draw(sketch, frame, &places),
        None => groups::draw(sketch, body, frame),
    }
}

/// What each axis has sent, with its stroke.
fn legend(sketch: &mut Sketch<'_>, head: Area, frame: &Frame<'_>) {
    let mut rest = sketch.badge(head, Badge::Counted);
    let on = sketch.plain();
    for axis in Axis::ALL {
        let (sent, all) = frame.wires.on(axis, frame.playhead);
        if all.0 == 0 {
            continue;
        }
        let unit = pen::unit(all);
        let now = pen::sized(sent, unit);
        // What grows keeps its room, so that nothing behind it moves.
        let whole = pen::sized(all, unit);
        let text = match sent == all {
            true => format!("{} {whole}", axis.word()),
            false => format!(
                "{} {} of {whole}",
                axis.word(),
                now.trim_end_matches(&format!(" {}", unit.0))
            ),
        };
        let widest = format!(
            "{} {} of {whole}",
            axis.word(),
            whole.trim_end_matches(&format!(" {}", unit.0))
        );
        let width = 26.0 + 6.0 + sketch.wide(&widest) + 16.0;
        if width > rest.width {
            break;
        }
        let (entry, more) = rest.cut_left(width);
        let y = entry.centre().y;
        let points = [entry.left, entry.left + 26.0].map(|x| Point { x, y }).to_vec();
        let (ink, dash) = (sketch.theme().ink, sketch.theme().axis(axis));
        sketch.push(Shape::Line { points, width: 2.0, ink, dash });
        sketch.write(entry.cut_left(32.0).1, &text, Align::Left, on);
        rest = more;
    }
    if frame.wires.messages.is_empty() {
        sketch.write(rest, "One rank: nothing is sent", Align::Left, on);
    } else if sketch.wide("sent per step") < rest.width {
        let faint = sketch.faint();
        sketch.write_whole(rest, "sent in this step", Align::Left, faint);
    }
}

/// How wide a wire is: up to 6 points for the most that any of its kind carries in the step.
fn width(sent: Bytes, most: Bytes) -> f32 {
    6.0 * (sent.0 as f64 / most.0.max(1) as f64) as f32
}

/// A wire: its whole course faintly, and what has crossed it over that.
fn strand(
    sketch: &mut Sketch<'_>,
    points: &[Point],
    (sent, most): (Bytes, Bytes),
    axis: Axis,
    mark: Mark,
) -> f32 {
    let theme = sketch.theme();
    let dash = theme.axis(axis);
    let faint = theme.ground.mixed(theme.ink, 0.22);
    sketch.push(Shape::Line { points: points.to_vec(), width: 1.0, ink: faint, dash: Dash::Solid });
    let wide = width(sent, most).max(if sent.0 > 0 { 1.0 } else { 0.0 });
    let ink = match mark {
        Mark::Selected => theme.accent,
        Mark::Hovered => theme.ink,
        Mark::Plain => theme.ground.mixed(theme.ink, 0.62),
    };
    let wide = match mark {
        Mark::Plain => wide,
        Mark::Selected | Mark::Hovered => wide.max(2.0),
    };
    if wide > 0.0 {
        sketch.push(Shape::Line { points: points.to_vec(), width: wide, ink, dash });
    }
    wide.max(1.0)
}

/// How a wire stands out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Plain,
    Hovered,
    Selected,
}

/// The bar of what a rank holds at its peak, on the scale of all ranks.
fn memory_bar(sketch: &mut Sketch<'_>, bar: Area, memory: &ByRole, most: Bytes) {
    let track = sketch.theme().track;
    sketch.fill(bar, track);
    let x = |bytes: Bytes| bar.left + bar.width * (bytes.0 as f64 / most.0.max(1) as f64) as f32;
    let mut sum = Bytes(0);
    for (role, bytes) in memory.iter() {
        let paint = sketch.theme().memory(role);
        let (left, right) = (x(sum), x(sum + bytes));
        sketch.fill(Area::new(left, bar.top, right - left, bar.height), paint.fill);
        sum += bytes;
    }
}
