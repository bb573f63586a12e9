//! The course of a wire between two cards: straight between neighbours, else around what stands
//! between them. The two directions lie side by side.

use super::Wire;
use super::place::Places;
use crate::mesh::{Axis, Mesh};
use crate::trace::draw::scene::{Area, Point};

/// From the edge of one card to that of the other.
pub(super) fn course(places: &Places, mesh: Mesh, (from, to, axis): Wire) -> Vec<Point> {
    let (start, end) = (places.card(from), places.card(to));
    let forth = from < to;
    // Who goes forth keeps to one side, who comes back to the other.
    let aside = if forth { -places.pitch() * 0.75 } else { places.pitch() * 0.75 };
    let apart = mesh.coord(from).on(axis).abs_diff(mesh.coord(to).on(axis));
    match axis {
        Axis::Tp if same_row(start, end) => match apart {
            1 => level(start, end, aside),
            _ => over(places, (start, end), (apart, mesh.tp), forth),
        },
        Axis::Dp if start.left == end.left => match apart {
            1 => upright(start, end, aside),
            _ => beside(places, (start, end), (apart, mesh.dp), forth),
        },
        Axis::Pp if same_row(start, end) && !places.is_wide() => match apart {
            1 => level(start, end, aside),
            _ => over(places, (start, end), (apart, mesh.pp), forth),
        },
        Axis::Pp if same_row(start, end) => below(places, start, end, (places.lane(from), forth)),
        _ => straight(start, end, aside),
    }
}

fn same_row(one: Area, other: Area) -> bool {
    one.top == other.top
}

/// Between cards side by side.
fn level(start: Area, end: Area, aside: f32) -> Vec<Point> {
    let y = start.centre().y + aside;
    let (a, b) =
        if start.left < end.left { (start.right(), end.left) } else { (start.left, end.right()) };
    vec![Point { x: a, y }, Point { x: b, y }]
}

/// Between cards below one another.
fn upright(start: Area, end: Area, aside: f32) -> Vec<Point> {
    let x = start.left + start.width * 0.5 + aside;
    let (a, b) =
        if start.top < end.top { (start.bottom(), end.top) } else { (start.top, end.bottom()) };
    vec![Point { x, y: a }, Point { x, y: b }]
}

/// How high an arc is over `apart` of at most `most` cards, in the room that there is for all.
fn height(room: f32, (apart, most): (u32, u32), forth: bool, pitch: f32) -> f32 {
    let share = apart as f32 / (most.max(2) - 1) as f32;
    // Who comes back goes below who goes forth.
    (room * share - if forth { 0.0 } else { pitch }).max(3.0)
}

/// The points of half an ellipse.
fn arc(point: impl Fn(f32, f32) -> Point) -> Vec<Point> {
    let turn = |step: u32| {
        let angle = std::f32::consts::PI * step as f32 / 20.0;
        // From 0 to 1 along, and from 0 up to 1 and back across.
        point((1.0 - angle.cos()) / 2.0, angle.sin())
    };
    (0..=20).map(turn).collect()
}

/// Over the cards between two of a row.
fn over(places: &Places, (start, end): (Area, Area), reach: (u32, u32), forth: bool) -> Vec<Point> {
    let is_first = start.top - places.margin.1 <= places.top() + 0.1;
    let room = if is_first { places.margin.1.min(60.0 * places.zoom()) } else { places.gaps[1] };
    let high = height((room - 4.0).max(4.0), reach, forth, places.pitch());
    let aside = if forth { -places.pitch() } else { places.pitch() };
    let (a, b) = (start.centre().x + aside, end.centre().x + aside);
    arc(|along, across| Point { x: a + (b - a) * along, y: start.top - high * across })
}

/// Beside the cards between two of a column.
fn beside(
    places: &Places,
    (start, end): (Area, Area),
    reach: (u32, u32),
    forth: bool,
) -> Vec<Point> {
    let is_first = start.left - places.margin.0 <= places.left() + 0.1;
    let between = if places.is_wide() { places.gaps[0] } else { places.gaps[2] };
    let room = if is_first { places.margin.0.min(60.0 * places.zoom()) } else { between };
    let far = height((room - 4.0).max(4.0), reach, forth, places.pitch());
    let aside = if forth { -places.pitch() } else { places.pitch() };
    let (a, b) = (start.centre().y + aside, end.centre().y + aside);
    arc(|along, across| Point { x: start.left - far * across, y: a + (b - a) * along })
}

/// Below the cards between two of a row: the way of the pipeline past tensor ranks.
fn below(places: &Places, start: Area, end: Area, (lane, forth): (u32, bool)) -> Vec<Point> {
    let pitch = places.pitch();
    let lane = 2.0 * lane as f32 + if forth { 0.0 } else { 1.0 };
    let y = start.bottom() + 6.0 + pitch * lane;
    // Down and up again left of the middle, where no wire of a replica goes.
    let x = |card: Area| card.left + card.width * 0.22 + pitch * lane * 0.8;
    let (a, b) = (x(start), x(end));
    vec![
        Point { x: a, y: start.bottom() },
        Point { x: a, y },
        Point { x: b, y },
        Point { x: b, y: end.bottom() },
    ]
}

fn straight(start: Area, end: Area, aside: f32) -> Vec<Point> {
    let (a, b) = (start.centre(), end.centre());
    // Both directions are seen from the same side.
    let (dx, dy) = ((b.x - a.x) * aside.signum(), (b.y - a.y) * aside.signum());
    let length = dx.hypot(dy).max(1.0);
    let (x, y) = (dy / length * aside, -dx / length * aside);
    vec![Point { x: a.x + x, y: a.y + y }, Point { x: b.x + x, y: b.y + y }]
}
