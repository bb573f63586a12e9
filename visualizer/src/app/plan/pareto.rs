//! The layouts that no other one beats in both time and memory, searched beside the window and drawn
//! as points: who points at one reads what it is, who presses it plans it.

use std::ops::ControlFlow;

use eframe::egui;
use shardlab::config::Cluster;
use shardlab::exec::cores;
use shardlab::search::{Candidate, Cut, Found, Search, Space};
use shardlab::sim::cost::Constants;
use shardlab::trace::Badge;
use shardlab::trace::draw::axis;
use shardlab::trace::draw::scene::{Area, Dash, Point, Shape};
use shardlab::train::driver::lower_priority;
use shardlab::units::{Bytes, Nanos, grouped};

use super::{Pace, Wish};
use crate::board::{Board, Control, Style};
use crate::latest::{Cancel, Latest};
use crate::play::Direction;
use crate::shown::Command;

/// The front of what is wished, and its search.
#[derive(Debug)]
pub(super) struct Pareto {
    worker: Latest<Terms, Answer>,
    /// What the front must be of.
    wished: Option<Terms>,
    answer: Option<Answer>,
}

/// What a front depends on.
#[derive(Clone, Debug, PartialEq)]
struct Terms {
    space: Space,
    cluster: Cluster,
}

/// What has come of it.
#[derive(Debug)]
struct Answer {
    terms: Terms,
    found: Found,
}

impl Default for Pareto {
    fn default() -> Self {
        Self { worker: Latest::new(search), wished: None, answer: None }
    }
}

fn search(terms: Terms, cancel: &Cancel) -> Option<Answer> {
    // A search of minutes steps back behind the window and what it predicts.
    lower_priority();
    // The window keeps a core.
    let threads = cores().saturating_sub(1).max(1);
    let (space, cluster, constants) = (&terms.space, &terms.cluster, &Constants::default());
    let found =
        Search { space, cluster, constants, threads }.run(&mut |_| match cancel.is_asked() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        });
    // Of a search that was ended nothing is known.
    found.is_complete.then_some(Answer { terms, found })
}

impl Pareto {
    /// Whether a search is under way.
    pub(super) fn is_busy(&self) -> bool {
        self.worker.is_busy()
    }

    /// The front, the fastest first; empty while it is searched.
    pub(super) fn front(&self) -> &[Candidate] {
        self.found().map(|found| found.front.as_slice()).unwrap_or_default()
    }

    /// What was found for what is wished.
    fn found(&self) -> Option<&Found> {
        let answer = self.answer.as_ref()?;
        (Some(&answer.terms) == self.wished.as_ref()).then_some(&answer.found)
    }

    /// Whether there are layouts to choose from.
    ///
    /// # Errors
    /// Why not; `None` of the text where they are still searched.
    pub(super) fn offers(&self) -> Result<usize, Option<String>> {
        match self.found() {
            None => Err(None),
            Some(found) => match found.front.len() {
                0 => Err(Some(nothing(found))),
                count => Ok(count),
            },
        }
    }

    /// Searches for what is wished, once that is settled; a search for anything else ends, and what it
    /// found is shown no more.
    pub(super) fn follow(
        &mut self,
        ctx: &egui::Context,
        (wish, pace): (&Wish, Pace),
    ) -> std::io::Result<()> {
        self.wished = wish.space().map(|(space, cluster)| Terms { space, cluster });
        let goes_on = pace == Pace::Settled || self.worker.wanted() == self.wished.as_ref();
        let wanted = self.wished.clone().filter(|_| goes_on && self.found().is_none());
        self.worker.follow(ctx, wanted)?;
        if let Some(answer) = self.worker.answer(ctx)? {
            self.answer = Some(answer);
        }
        Ok(())
    }

    /// The next layout on the front, or the one before; from anywhere else the fastest.
    pub(super) fn next(&self, now: Option<&Cut>, direction: Direction) -> Option<Cut> {
        let front = self.front();
        let at = front.iter().position(|candidate| Some(&candidate.cut) == now);
        let next = match (at, direction) {
            (None, _) => 0,
            (Some(at), Direction::Forward) => (at + 1).min(front.len() - 1),
            (Some(at), Direction::Back) => at.saturating_sub(1),
        };
        front.get(next).map(|candidate| candidate.cut.clone())
    }

    /// Draws the front around what is wished now: `(seconds, bytes)`.
    pub(super) fn show(
        &self,
        board: &mut Board<'_>,
        area: Area,
        (now, usable): (Option<(f64, Bytes)>, Option<Bytes>),
    ) -> Vec<Command> {
        let look = board.look();
        let small = Style::sized(look.small());
        let faint = small.ink(look.theme.faint);
        let inner = area.shrunk(look.gap(3), look.gap(1));
        let (heading, body) = inner.cut_top((look.small() * 1.5).ceil());
        let (badge, heading) = heading.cut_right(look.gap(24));
        board.write(badge, Badge::Predicted.word(), faint.right());
        let front = self.front();
        board.write(heading, &self.caption(), small);
        if front.is_empty() {
            return Vec::new();
        }
        let (names, body) = body.cut_top((look.small() * 1.5).ceil());
        legend(board, names, now.is_some());
        let field = Field::of(body, front, now, board);
        field.axes(board, usable);
        let points: Vec<Point> =
            front.iter().map(|c| field.at(c.step_seconds, c.memory_bytes)).collect();
        let (width, dash) = (1.5, Dash::Solid);
        let line = Shape::Line { points: points.clone(), width, ink: look.theme.faint, dash };
        board.push(line);
        let mut commands = Vec::new();
        for (candidate, point) in front.iter().zip(&points) {
            commands.extend(dot(board, candidate, *point));
        }
        if let Some((seconds, bytes)) = now {
            let at = field.at(seconds, bytes.0 as f64);
            board.push(Shape::Dot { at, radius: look.gap(1) + 1.0, fill: look.theme.accent });
        }
        commands
    }

    fn caption(&self) -> String {
        let Some(found) = self.found() else {
            return "Layouts of these GPUs are searched: time against memory …".into();
        };
        let all = grouped(found.counts.enumerated);
        match found.front.len() {
            0 => nothing(found),
            best => {
                format!("{best} of {all} layouts are best in time or memory. Press one to plan it.")
            }
        }
    }
}

/// Why nothing was found.
fn nothing(found: &Found) -> String {
    match found.counts.enumerated {
        0 => "The GPUs and the rows of the batch can be cut in no way.".into(),
        all => format!("None of {} layouts fits into these GPUs.", grouped(all)),
    }
}

/// What the axes and the dots are, as far as there is room.
fn legend(board: &mut Board<'_>, area: Area, is_planned: bool) {
    let look = board.look();
    let faint = Style::sized(look.small()).ink(look.theme.faint);
    let dot = |fill| Some((look.gap(1), fill));
    let parts = [
        (None, "up: memory of a GPU"),
        (None, "right: time of a step"),
        (dot(look.theme.ink), "best layouts"),
        (is_planned.then_some((look.gap(1) + 1.0, look.theme.accent)), "planned now"),
    ];
    let shown = if is_planned { 4 } else { 3 };
    let mut rest = area;
    for (mark, text) in parts.into_iter().take(shown) {
        let sign = if mark.is_some() { look.gap(4) } else { 0.0 };
        let width = board.width(text, look.small()).ceil() + 1.0;
        if rest.width < sign + width {
            return;
        }
        let (place, right) = rest.cut_left(sign);
        if let Some((radius, fill)) = mark {
            board.push(Shape::Dot { at: place.centre(), radius, fill });
        }
        let (place, right) = right.cut_left(width);
        board.write(place, text, faint);
        rest = right.cut_left(look.gap(4)).1;
    }
}

/// A point of the front; the layout, if it was pressed.
fn dot(board: &mut Board<'_>, candidate: &Candidate, at: Point) -> Option<Command> {
    let look = board.look();
    let Candidate { cut, step_seconds, memory_bytes, .. } = candidate;
    let (time, bytes) = (Nanos((step_seconds * 1e9) as u64), Bytes(*memory_bytes as u64));
    let text = format!("{time}, {bytes} (PREDICTED): {cut}.");
    let radius = look.gap(1);
    let reach = 2.0 * radius;
    let place = Area::new(at.x - reach, at.y - reach, 2.0 * reach, 2.0 * reach);
    let id = format!("front {cut}");
    let response = board.interact(place, Control { text: "", ..Control::text(&id, "", &text) });
    let held = response.hovered() || response.has_focus();
    let (radius, fill) =
        if held { (radius + 1.5, look.theme.accent) } else { (radius, look.theme.ink) };
    board.push(Shape::Dot { at, radius, fill });
    response.clicked().then(|| Command::Cut(Box::new(cut.clone())))
}

/// Time to the right, memory up; both from a little below the least to a little above the most.
struct Field {
    area: Area,
    seconds: (f64, f64),
    bytes: (f64, f64),
}

impl Field {
    fn of(body: Area, front: &[Candidate], now: Option<(f64, Bytes)>, board: &Board<'_>) -> Self {
        let look = board.look();
        let (body, _) = body.cut_top(body.height - (look.small() * 1.4).ceil());
        let area = body.cut_left(look.gap(16)).1.shrunk(look.gap(3), look.gap(2));
        let around = |values: Vec<f64>| {
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = values.iter().copied().fold(0.0, f64::max);
            let margin = (0.05 * (most - least)).max(0.01 * most);
            ((least - margin).max(0.0), most + margin)
        };
        let mut seconds: Vec<f64> = front.iter().map(|c| c.step_seconds).collect();
        let mut bytes: Vec<f64> = front.iter().map(|c| c.memory_bytes).collect();
        // What is far off the front would press it into a corner.
        let slowest = seconds.iter().copied().fold(0.0, f64::max);
        if let Some((now, held)) = now {
            seconds.push(now.min(1.5 * slowest));
            bytes.push(held.0 as f64);
        }
        Self { area, seconds: around(seconds), bytes: around(bytes) }
    }

    fn at(&self, seconds: f64, bytes: f64) -> Point {
        let part = |value: f64, (from, to): (f64, f64)| {
            ((value - from) / (to - from).max(f64::MIN_POSITIVE)).clamp(0.0, 1.0) as f32
        };
        Point {
            x: self.area.left + self.area.width * part(seconds, self.seconds),
            y: self.area.bottom() - self.area.height * part(bytes, self.bytes),
        }
    }

    /// Ticks below and beside, and what a rank may hold.
    fn axes(&self, board: &mut Board<'_>, usable: Option<Bytes>) {
        let look = board.look();
        let faint = Style::sized(look.small()).ink(look.theme.faint);
        let area = self.area;
        let (left, bottom) = (area.left, area.bottom() + look.gap(1));
        board.rule(Point { x: left, y: bottom }, Point { x: area.right(), y: bottom });
        let nanos = |seconds: f64| Nanos((seconds * 1e9) as u64);
        let window = (nanos(self.seconds.0), nanos(self.seconds.1));
        let wide = look.gap(18);
        let most = (area.width / wide).max(1.0) as usize;
        for (at, text) in axis::ticks(window, most, None) {
            let x = self.at(at.as_secs(), 0.0).x;
            let place = Area::new(x - wide / 2.0, bottom, wide, (look.small() * 1.4).ceil());
            if place.left >= left - wide / 2.0 && place.right() <= area.right() + look.gap(3) {
                board.write(place, &text, faint.middle());
            }
        }
        let (least, most) = self.bytes;
        for bytes in [least, f64::midpoint(least, most), most] {
            let y = self.at(0.0, bytes).y;
            let height = (look.small() * 1.4).ceil();
            let place = Area::new(left - look.gap(17), y - height / 2.0, look.gap(16), height);
            board.write(place, &Bytes(bytes as u64).to_string(), faint.right());
        }
        if let Some(usable) = usable.filter(|usable| (usable.0 as f64) < most) {
            let y = self.at(0.0, usable.0 as f64).y;
            let points = vec![Point { x: left, y }, Point { x: area.right(), y }];
            let ink = look.theme.warning;
            board.push(Shape::Line { points, width: 1.0, ink, dash: Dash::Dashed });
        }
    }
}
