//! The icons of the window as polygons: sharp at every size, in no font, the same on every system.

use shardlab::trace::draw::scene::{Area, Dash, Point, Shape};
use shardlab::trace::draw::theme::Rgb;

/// What a control shows instead of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Icon {
    /// To the start.
    First,
    /// One back.
    Back,
    /// Play.
    Play,
    /// Pause.
    Pause,
    /// One on.
    Forward,
    /// To the end.
    Last,
    /// Slower, smaller.
    Minus,
    /// Faster, larger.
    Plus,
    /// Opens a list below.
    Down,
    /// Light or dark.
    HalfMoon,
    /// Training is followed: a full dot.
    Dot(Rgb),
    /// Closes.
    Cross,
}

/// Draws an icon of `size` points around `at`.
pub fn draw(shapes: &mut Vec<Shape>, icon: Icon, at: Point, size: f32, ink: Rgb) {
    let half = (size * 0.42).round();
    let point = |x: f32, y: f32| Point { x: at.x + x * half, y: at.y + y * half };
    let mut polygon = |points: Vec<Point>, fill: Rgb| shapes.push(Shape::Polygon { points, fill });
    let bar = |x: f32| {
        vec![
            point(x - 0.16, -1.0),
            point(x + 0.16, -1.0),
            point(x + 0.16, 1.0),
            point(x - 0.16, 1.0),
        ]
    };
    match icon {
        Icon::Play => polygon(vec![point(-0.7, -1.0), point(1.0, 0.0), point(-0.7, 1.0)], ink),
        Icon::Pause => {
            for x in [-0.5, 0.5] {
                let wide = 0.24;
                let (left, right) = (x - wide, x + wide);
                polygon(
                    vec![
                        point(left, -1.0),
                        point(right, -1.0),
                        point(right, 1.0),
                        point(left, 1.0),
                    ],
                    ink,
                );
            }
        }
        Icon::Forward => {
            polygon(vec![point(-0.9, -0.9), point(0.5, 0.0), point(-0.9, 0.9)], ink);
            polygon(bar(0.8), ink);
        }
        Icon::Back => {
            polygon(vec![point(0.9, -0.9), point(0.9, 0.9), point(-0.5, 0.0)], ink);
            polygon(bar(-0.8), ink);
        }
        Icon::Last => {
            for x in [-1.1, -0.2] {
                polygon(vec![point(x, -0.9), point(x + 0.9, 0.0), point(x, 0.9)], ink);
            }
            polygon(bar(0.95), ink);
        }
        Icon::First => {
            for x in [1.1, 0.2] {
                polygon(vec![point(x, -0.9), point(x, 0.9), point(x - 0.9, 0.0)], ink);
            }
            polygon(bar(-0.95), ink);
        }
        Icon::Minus | Icon::Plus => {
            let wide = Area::new(at.x - half * 0.8, at.y - 1.0, half * 1.6, 2.0);
            let fill =
                |area| Shape::Fill { area, fill: ink, pattern: None, edge: None, corner: 0.0 };
            shapes.push(fill(wide));
            if icon == Icon::Plus {
                shapes.push(fill(Area::new(at.x - 1.0, at.y - half * 0.8, 2.0, half * 1.6)));
            }
        }
        Icon::Down => {
            polygon(vec![point(-0.8, -0.4), point(0.8, -0.4), point(0.0, 0.6)], ink);
        }
        Icon::HalfMoon => {
            let arc = |from: f32, steps: usize| {
                (0..=steps).map(move |step| {
                    let angle = from + std::f32::consts::PI * step as f32 / steps as f32;
                    point(angle.cos(), angle.sin())
                })
            };
            polygon(arc(std::f32::consts::FRAC_PI_2, 16).collect(), ink);
            let points = arc(-std::f32::consts::FRAC_PI_2, 16).collect();
            shapes.push(Shape::Line { points, width: 1.5, ink, dash: Dash::Solid });
        }
        Icon::Dot(fill) => shapes.push(Shape::Dot { at, radius: half * 0.75, fill }),
        Icon::Cross => {
            for (a, b) in [((-0.7, -0.7), (0.7, 0.7)), ((-0.7, 0.7), (0.7, -0.7))] {
                let points = vec![point(a.0, a.1), point(b.0, b.1)];
                shapes.push(Shape::Line { points, width: 1.5, ink, dash: Dash::Solid });
            }
        }
    }
}
