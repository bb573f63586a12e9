//! Paints a [`Scene`] with egui: fills, patterns and lines as few meshes, texts as galleys.
//!
//! Nothing here decides what is drawn. Patterns are cut to their area by arithmetic, not by clip
//! rectangles, so that a whole picture is one draw call.

use std::f32::consts::FRAC_PI_2;
use std::sync::Arc;

use eframe::egui;
use egui::epaint::{Mesh, Shape as Painted, TextShape, Vertex, WHITE_UV};
use egui::{Color32, FontId, Pos2, Rect, Stroke, Vec2, pos2, vec2};
use shardlab::trace::draw::scene::{
    Area, Dash, Face, Label, Measure, Pattern, Point, Scene, Shape, line_height,
};
use shardlab::trace::draw::theme::Rgb;

use crate::style::colour;

/// Distance of pattern lines in points.
const PITCH: f32 = 6.0;

/// Measures texts with the fonts of a window.
#[derive(Clone, Copy, Debug)]
pub struct Fonts<'a>(pub &'a egui::Context);

impl Measure for Fonts<'_> {
    fn width(&self, text: &str, size: f32, face: Face) -> f32 {
        galley(self.0, text, size, face).size().x
    }
}

fn galley(ctx: &egui::Context, text: &str, size: f32, face: Face) -> Arc<egui::Galley> {
    let font = match face {
        Face::Sans => FontId::proportional(size),
        Face::Mono => FontId::monospace(size),
    };
    ctx.fonts_mut(|fonts| fonts.layout_no_wrap(text.to_owned(), font, Color32::PLACEHOLDER))
}

/// A rectangle as egui has it.
pub fn rect(area: Area) -> Rect {
    Rect::from_min_size(pos2(area.left, area.top), vec2(area.width, area.height))
}

/// A rectangle as scenes have it.
pub fn area(rect: Rect) -> Area {
    Area::new(rect.left(), rect.top(), rect.width(), rect.height())
}

/// The shapes of a scene, ready for a painter.
pub fn shapes(ctx: &egui::Context, scene: &Scene) -> Vec<Painted> {
    let mut brush = Brush { ctx, mesh: Mesh::default(), done: Vec::new() };
    for shape in &scene.shapes {
        brush.shape(shape);
    }
    brush.flush();
    brush.done
}

/// Paints a scene in the coordinates of the window.
pub fn paint(painter: &egui::Painter, scene: &Scene) {
    painter.extend(shapes(painter.ctx(), scene));
}

fn place(point: Point) -> Pos2 {
    pos2(point.x, point.y)
}

/// Points around an area, each as it is where the area fades and where it has faded, and how many
/// segments a corner has.
struct Outline {
    points: Vec<(Pos2, Pos2)>,
    segments: usize,
}

struct Brush<'a> {
    ctx: &'a egui::Context,
    /// Plain shapes since the last text or round shape.
    mesh: Mesh,
    done: Vec<Painted>,
}

impl Brush<'_> {
    fn shape(&mut self, shape: &Shape) {
        match shape {
            Shape::Fill { area, fill, pattern, edge, corner } => {
                self.fill(*area, *fill, *corner);
                if let Some((pattern, ink)) = pattern {
                    self.pattern(*area, *pattern, colour(*ink));
                }
                if let Some(edge) = edge {
                    self.edge(*area, colour(*edge), *corner);
                }
            }
            Shape::Line { points, width, ink, dash } => self.line(points, *width, *ink, *dash),
            Shape::Polygon { points, fill } => {
                let points = points.iter().map(|point| place(*point)).collect();
                let polygon = Painted::convex_polygon(points, colour(*fill), Stroke::NONE);
                self.push(polygon);
            }
            Shape::Dot { at, radius, fill } => {
                self.push(Painted::circle_filled(place(*at), *radius, colour(*fill)));
            }
            Shape::Label(label) => self.label(label),
        }
    }

    fn push(&mut self, shape: Painted) {
        self.flush();
        self.done.push(shape);
    }

    fn flush(&mut self) {
        if !self.mesh.is_empty() {
            self.done.push(Painted::mesh(std::mem::take(&mut self.mesh)));
        }
    }

    fn fill(&mut self, area: Area, fill: Rgb, corner: f32) {
        if corner > 0.0 {
            let outline = self.outline(rect(area), corner, self.segments(corner));
            self.inside(&outline, colour(fill));
        } else {
            self.mesh.add_colored_rect(rect(area), colour(fill));
        }
    }

    fn edge(&mut self, area: Area, ink: Color32, corner: f32) {
        let rect = rect(area);
        if corner > 0.0 {
            let segments = self.segments(corner);
            let outer = self.outline(rect, corner, segments);
            let inner = self.outline(rect.shrink(1.0), corner - 1.0, segments);
            self.between(&outer, &inner, ink);
            return;
        }
        let one = 1.0_f32.min(rect.width() / 2.0).min(rect.height() / 2.0);
        let Rect { min, max } = rect;
        for (from, to) in [
            (min, pos2(max.x, min.y + one)),
            (pos2(min.x, max.y - one), max),
            (min, pos2(min.x + one, max.y)),
            (pos2(max.x - one, min.y), max),
        ] {
            self.mesh.add_colored_rect(Rect::from_min_max(from, to), ink);
        }
    }

    /// Segments of a round corner: none is further than a third of a pixel from its arc.
    fn segments(&self, radius: f32) -> usize {
        if radius * self.ctx.pixels_per_point() <= 4.0 { 2 } else { 4 }
    }

    /// The outline of a rectangle with round corners, its sides on pixels: so only the corners need
    /// soft edges, and a block few triangles.
    fn outline(&self, rect: Rect, radius: f32, segments: usize) -> Outline {
        let per_point = self.ctx.pixels_per_point();
        let snap = |at: Pos2| pos2((at.x * per_point).round(), (at.y * per_point).round());
        let (min, max) = (snap(rect.min), snap(rect.max));
        let most = (max - min).min_elem() / 2.0;
        let radius = (radius * per_point).clamp(0.0, most.max(0.0));
        let corners = [
            (pos2(min.x + radius, min.y + radius), 2.0),
            (pos2(max.x - radius, min.y + radius), 3.0),
            (pos2(max.x - radius, max.y - radius), 0.0),
            (pos2(min.x + radius, max.y - radius), 1.0),
        ];
        let points = corners.into_iter().flat_map(|(centre, quarter)| {
            (0..=segments).map(move |index| {
                let angle = FRAC_PI_2 * (quarter + index as f32 / segments as f32);
                let out = vec2(angle.cos(), angle.sin());
                // Where an arc meets a side it is on a pixel.
                let soft = if index == 0 || index == segments { 0.0 } else { radius.min(0.5) };
                let at = |radius: f32| ((centre + out * radius).to_vec2() / per_point).to_pos2();
                (at(radius - soft), at(radius + soft))
            })
        });
        Outline { points: points.collect(), segments }
    }

    fn corner(&mut self, pos: Pos2, color: Color32) -> u32 {
        self.mesh.vertices.push(Vertex { pos, uv: WHITE_UV, color });
        self.mesh.vertices.len() as u32 - 1
    }

    /// Fills an outline.
    fn inside(&mut self, outline: &Outline, ink: Color32) {
        let first = self.mesh.vertices.len() as u32;
        for (at, _) in &outline.points {
            self.corner(*at, ink);
        }
        for index in 2..outline.points.len() as u32 {
            self.mesh.add_triangle(first, first + index - 1, first + index);
        }
        self.soften(outline, ink);
    }

    /// Fills what is between two outlines with as many points.
    fn between(&mut self, outer: &Outline, inner: &Outline, ink: Color32) {
        let first = self.mesh.vertices.len() as u32;
        let pairs = outer.points.iter().zip(&inner.points);
        for ((outer, _), (inner, _)) in pairs.clone().chain(pairs.take(1)) {
            self.corner(*outer, ink);
            self.corner(*inner, ink);
        }
        for at in (first..self.mesh.vertices.len() as u32 - 2).step_by(2) {
            self.mesh.add_triangle(at, at + 1, at + 2);
            self.mesh.add_triangle(at + 1, at + 2, at + 3);
        }
        self.soften(outer, ink);
    }

    /// Lets the corners of an outline fade over a pixel.
    fn soften(&mut self, outline: &Outline, ink: Color32) {
        for corner in outline.points.chunks(outline.segments + 1) {
            for pair in corner.windows(2) {
                let &[(a, a_out), (b, b_out)] = pair else { continue };
                let [near, far] = [a, b].map(|at| self.corner(at, ink));
                let [near_out, far_out] =
                    [a_out, b_out].map(|at| self.corner(at, Color32::TRANSPARENT));
                if b != b_out {
                    self.mesh.add_triangle(near, far, far_out);
                }
                if a != a_out {
                    self.mesh.add_triangle(near, near_out, far_out);
                }
            }
        }
    }

    fn pattern(&mut self, area: Area, pattern: Pattern, ink: Color32) {
        let Rect { min, max } = rect(area);
        let (width, height) = (max.x - min.x, max.y - min.y);
        // Lines of neighbouring areas meet, because they are counted from the window's corner.
        match pattern {
            Pattern::Falling | Pattern::Rising => {
                let slope = if pattern == Pattern::Falling { 1.0 } else { -1.0 };
                // The lines x − slope · y = PITCH · k that cross the area.
                let sums =
                    [min, pos2(min.x, max.y), pos2(max.x, min.y), max].map(|p| p.x - slope * p.y);
                let least = sums.into_iter().fold(f32::INFINITY, f32::min);
                let most = sums.into_iter().fold(f32::NEG_INFINITY, f32::max);
                let mut sum = (least / PITCH).floor() * PITCH;
                while sum <= most {
                    let y_at = |x: f32| (x - sum) / slope;
                    let x_at = |y: f32| sum + slope * y;
                    let (left, right) = match slope > 0.0 {
                        true => (min.x.max(x_at(min.y)), max.x.min(x_at(max.y))),
                        false => (min.x.max(x_at(max.y)), max.x.min(x_at(min.y))),
                    };
                    if left < right {
                        self.stroke(pos2(left, y_at(left)), pos2(right, y_at(right)), 1.0, ink);
                    }
                    sum += PITCH;
                }
            }
            Pattern::Bars => {
                let mut x = (min.x / PITCH).ceil() * PITCH;
                while x + 1.0 <= max.x {
                    let bar = Rect::from_min_max(pos2(x, min.y), pos2(x + 1.0, max.y));
                    self.mesh.add_colored_rect(bar, ink);
                    x += PITCH;
                }
            }
            Pattern::Dots => {
                let mut y = min.y + 3.0;
                while y + 1.5 <= max.y {
                    let mut x = (min.x / PITCH).ceil() * PITCH;
                    while x + 1.5 <= max.x {
                        let dot = Rect::from_min_size(pos2(x, y), Vec2::splat(1.5));
                        self.mesh.add_colored_rect(dot, ink);
                        x += PITCH;
                    }
                    y += PITCH;
                }
            }
            Pattern::TopLine => {
                let top = Rect::from_min_size(
                    pos2(min.x, min.y + 2.0_f32.min(height / 4.0)),
                    vec2(width, 2.0_f32.min(height / 4.0)),
                );
                self.mesh.add_colored_rect(top, ink);
            }
        }
    }

    fn line(&mut self, points: &[Point], width: f32, ink: Rgb, dash: Dash) {
        let points: Vec<Pos2> = points.iter().map(|point| place(*point)).collect();
        let stroke = Stroke::new(width, colour(ink));
        let (on, off) = match dash {
            Dash::Solid => {
                match points.as_slice() {
                    [from, to] => self.segment(*from, *to, stroke),
                    _ => self.push(Painted::line(points, stroke)),
                }
                return;
            }
            Dash::Dashed => (6.0 * width.max(1.0), 4.0 * width.max(1.0)),
            Dash::Dotted => (width.max(1.0), 3.0 * width.max(1.0)),
        };
        for dash in Painted::dashed_line(&points, stroke, on, off) {
            match dash {
                Painted::LineSegment { points: [from, to], .. } => self.segment(from, to, stroke),
                other => self.push(other),
            }
        }
    }

    fn segment(&mut self, from: Pos2, to: Pos2, Stroke { width, color }: Stroke) {
        if from.x == to.x || from.y == to.y {
            self.upright(from, to, width, color);
        } else {
            self.stroke(from, to, width, color);
        }
    }

    /// A line along an axis, its edges on pixels: it must not blur.
    fn upright(&mut self, from: Pos2, to: Pos2, width: f32, ink: Color32) {
        let per_point = self.ctx.pixels_per_point();
        let half = width / 2.0;
        let snapped = |v: f32| (v * per_point).round() / per_point;
        let rect = if from.x == to.x {
            let left = snapped(from.x - half);
            let (top, bottom) = (from.y.min(to.y), from.y.max(to.y));
            Rect::from_min_max(pos2(left, top), pos2(left + width, bottom))
        } else {
            let top = snapped(from.y - half);
            let (left, right) = (from.x.min(to.x), from.x.max(to.x));
            Rect::from_min_max(pos2(left, top), pos2(right, top + width))
        };
        self.mesh.add_colored_rect(rect, ink);
    }

    /// A slanted line with soft edges.
    fn stroke(&mut self, from: Pos2, to: Pos2, width: f32, ink: Color32) {
        let along = (to - from).normalized();
        let across = vec2(-along.y, along.x);
        let soft = 0.5 / self.ctx.pixels_per_point();
        let (inner, outer) = ((width / 2.0 - soft).max(0.0), width / 2.0 + soft);
        let first = self.mesh.vertices.len() as u32;
        let steps = [
            (-outer, Color32::TRANSPARENT),
            (-inner, ink),
            (inner, ink),
            (outer, Color32::TRANSPARENT),
        ];
        for end in [from, to] {
            for (aside, color) in steps {
                self.mesh.vertices.push(Vertex { pos: end + across * aside, uv: WHITE_UV, color });
            }
        }
        // A thin line has no middle.
        for strip in (0..3).filter(|strip| *strip != 1 || inner > 0.0) {
            let [a, b, c, d] = [strip, strip + 1, strip + 4, strip + 5].map(|index| first + index);
            self.mesh.add_triangle(a, b, c);
            self.mesh.add_triangle(b, c, d);
        }
    }

    fn label(&mut self, label: &Label) {
        let galley = galley(self.ctx, &label.text, label.size, label.face);
        // The box is as high as a line of the library; fonts differ by a point.
        let spare = (line_height(label.size) - galley.size().y) / 2.0;
        let at = rect(label.area).min + vec2(0.0, spare);
        self.push(Painted::Text(TextShape::new(at, galley, colour(label.ink))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mesh_of(shape: Shape) -> Mesh {
        let ctx = egui::Context::default();
        let scene =
            Scene { area: Area::sized(100.0, 100.0), shapes: vec![shape], ..Scene::default() };
        let mut painted = shapes(&ctx, &scene);
        assert_eq!(painted.len(), 1, "one mesh");
        match painted.remove(0) {
            Painted::Mesh(mesh) => (*mesh).clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn patterns_stay_inside_their_area() {
        let area = Area::new(3.0, 5.0, 40.0, 17.0);
        let patterns =
            [Pattern::Falling, Pattern::Rising, Pattern::Bars, Pattern::Dots, Pattern::TopLine];
        for pattern in patterns {
            let ink = Rgb(255, 0, 0);
            let fill = Rgb(0, 0, 255);
            let mesh = mesh_of(Shape::Fill {
                area,
                fill,
                pattern: Some((pattern, ink)),
                edge: None,
                corner: 0.0,
            });
            // Slanted lines have soft edges of half a point; their middle ends inside.
            let within = rect(area).expand(1.1);
            let inked: Vec<Pos2> = mesh
                .vertices
                .iter()
                .filter(|vertex| vertex.color != colour(fill))
                .map(|vertex| vertex.pos)
                .collect();
            assert!(inked.len() >= 4, "{pattern:?} draws something");
            assert!(inked.iter().all(|pos| within.contains(*pos)), "{pattern:?}: {inked:?}");
        }
    }

    #[test]
    fn the_bundled_fonts_have_every_sign_that_texts_use() {
        let ctx = egui::Context::default();
        ctx.set_fonts(crate::style::fonts());
        let mut missing = String::new();
        let mut output = ctx.run_ui(egui::RawInput::default(), |ui| {
            let font = FontId::proportional(14.0);
            for sign in "→←↑↓×·–−…≤≥µ▾%()²".chars() {
                if !ui.ctx().fonts_mut(|fonts| fonts.has_glyph(&font, sign)) {
                    missing.push(sign);
                }
            }
            let digits = "0123456789".chars();
            let widths: Vec<f32> =
                digits.map(|digit| ui.ctx().fonts_mut(|f| f.glyph_width(&font, digit))).collect();
            assert!(widths.iter().all(|width| (width - widths[0]).abs() < 1e-4), "{widths:?}");
        });
        output.textures_delta.clear();
        assert_eq!(missing, "");
    }

    #[test]
    fn lines_along_an_axis_lie_on_pixels() {
        let line = |x| Shape::Line {
            points: vec![Point { x, y: 0.0 }, Point { x, y: 9.0 }],
            width: 1.0,
            ink: Rgb(1, 2, 3),
            dash: Dash::Solid,
        };
        for x in [0.0, 0.3, 7.5, 99.9] {
            let mesh = mesh_of(line(x));
            for vertex in mesh.vertices {
                assert_eq!(vertex.pos.x.fract(), 0.0);
            }
        }
    }
}
