//! A picture as a list of shapes, in the order in which they are painted.
//!
//! Every picture of a step is a function that returns a [`Scene`]; the SVG painter of this room and
//! the app paint the same list. Units are points, the origin is the top left corner, y points
//! down. Text is measured by whoever paints it ([`Measure`]), because fonts differ; all text goes
//! through [`Sketch::label`], so that no label leaves its container and every one can be audited.

use super::theme::{Rgb, Theme};

/// A point.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// From the left edge.
    pub x: f32,
    /// From the top edge.
    pub y: f32,
}

/// A rectangle with edges parallel to the axes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Area {
    /// Left edge.
    pub left: f32,
    /// Top edge.
    pub top: f32,
    /// Never negative.
    pub width: f32,
    /// Never negative.
    pub height: f32,
}

impl Area {
    /// From its left top corner and its size; negative sizes become 0.
    pub fn new(left: f32, top: f32, width: f32, height: f32) -> Self {
        Self { left, top, width: width.max(0.0), height: height.max(0.0) }
    }

    /// From the origin.
    pub fn sized(width: f32, height: f32) -> Self {
        Self::new(0.0, 0.0, width, height)
    }

    /// Right edge.
    pub fn right(self) -> f32 {
        self.left + self.width
    }

    /// Bottom edge.
    pub fn bottom(self) -> f32 {
        self.top + self.height
    }

    /// Its four edges as one closed line.
    pub fn outline(self) -> Vec<Point> {
        let (left, right, top, bottom) = (self.left, self.right(), self.top, self.bottom());
        let corners = [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)];
        corners.map(|(x, y)| Point { x, y }).to_vec()
    }

    /// Middle.
    pub fn centre(self) -> Point {
        Point { x: self.left + self.width / 2.0, y: self.top + self.height / 2.0 }
    }

    /// Smaller by `x` on the left and right and by `y` above and below.
    #[must_use]
    pub fn shrunk(self, x: f32, y: f32) -> Self {
        Self::new(self.left + x, self.top + y, self.width - 2.0 * x, self.height - 2.0 * y)
    }

    /// Whether a point lies in it; the right and bottom edges do not belong to it.
    pub fn contains(self, at: Point) -> bool {
        (self.left..self.right()).contains(&at.x) && (self.top..self.bottom()).contains(&at.y)
    }

    /// Whether it lies wholly in `outer`, up to a tenth of a point.
    pub fn is_inside(self, outer: Self) -> bool {
        self.left >= outer.left - 0.1
            && self.top >= outer.top - 0.1
            && self.right() <= outer.right() + 0.1
            && self.bottom() <= outer.bottom() + 0.1
    }

    /// What two rectangles have in common, if that is more than an edge.
    pub fn common(self, other: Self) -> Option<Self> {
        let (left, top) = (self.left.max(other.left), self.top.max(other.top));
        let (right, bottom) = (self.right().min(other.right()), self.bottom().min(other.bottom()));
        (left < right && top < bottom).then(|| Self::new(left, top, right - left, bottom - top))
    }

    /// Cuts `height` from the top: the part cut off, and the rest.
    #[must_use]
    pub fn cut_top(self, height: f32) -> (Self, Self) {
        let height = height.clamp(0.0, self.height);
        let rest = Self::new(self.left, self.top + height, self.width, self.height - height);
        (Self { height, ..self }, rest)
    }

    /// Cuts `height` from the bottom: the part cut off, and the rest.
    #[must_use]
    pub fn cut_bottom(self, height: f32) -> (Self, Self) {
        let height = height.clamp(0.0, self.height);
        let rest = Self { height: self.height - height, ..self };
        (Self { top: rest.bottom(), height, ..self }, rest)
    }

    /// Cuts `width` from the left: the part cut off, and the rest.
    #[must_use]
    pub fn cut_left(self, width: f32) -> (Self, Self) {
        let width = width.clamp(0.0, self.width);
        let rest = Self::new(self.left + width, self.top, self.width - width, self.height);
        (Self { width, ..self }, rest)
    }

    /// Cuts `width` from the right: the part cut off, and the rest.
    #[must_use]
    pub fn cut_right(self, width: f32) -> (Self, Self) {
        let width = width.clamp(0.0, self.width);
        let rest = Self { width: self.width - width, ..self };
        (Self { left: rest.right(), width, ..self }, rest)
    }
}

/// What lies over a fill, so that roles can be told apart without colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pattern {
    /// Lines from the top left to the bottom right, as for waiting.
    Falling,
    /// Lines from the bottom left to the top right.
    Rising,
    /// Upright lines.
    Bars,
    /// Points.
    Dots,
    /// One line near the upper edge.
    TopLine,
}

impl Pattern {
    /// Distance between lines or points; they lie on one grid in the whole picture.
    pub const PITCH: f32 = 6.0;
    /// Width of lines.
    pub const LINE: f32 = 1.25;
    /// Radius of points.
    pub const DOT: f32 = 1.1;

    /// The line of [`Self::TopLine`] in a filled area.
    pub fn top_line(area: Area) -> Area {
        let (_, rest) = area.cut_top(2.0);
        rest.cut_top(1.5).0
    }
}

/// How a line is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dash {
    /// Without gaps.
    #[default]
    Solid,
    /// Long strokes.
    Dashed,
    /// Points.
    Dotted,
}

/// Which font a text is set in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Face {
    /// Proportional.
    #[default]
    Sans,
    /// All glyphs equally wide: figures that change in place.
    Mono,
}

/// Where a text lies in the box it is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Align {
    /// At its left edge.
    #[default]
    Left,
    /// In the middle.
    Middle,
    /// At its right edge.
    Right,
}

/// A text as it stands in a picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Label {
    /// What is written: `full`, or a shortened form.
    pub text: String,
    /// What it would be with room enough.
    pub full: String,
    /// The box that the glyphs fill: as wide as measured, as high as a line.
    pub area: Area,
    /// What it must not leave.
    pub within: Area,
    /// Height of the font in points.
    pub size: f32,
    /// Font.
    pub face: Face,
    /// Colour of the glyphs.
    pub ink: Rgb,
    /// Colour of what lies under them: ink and ground give the contrast.
    pub ground: Rgb,
}

/// One shape.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// A filled rectangle.
    Fill {
        /// Where.
        area: Area,
        /// Colour.
        fill: Rgb,
        /// Lines or points over the fill, and their colour.
        pattern: Option<(Pattern, Rgb)>,
        /// Colour of a line of one point along the inside of its edges.
        edge: Option<Rgb>,
        /// Radius of its corners.
        corner: f32,
    },
    /// A line through points.
    Line {
        /// At least two.
        points: Vec<Point>,
        /// In points.
        width: f32,
        /// Colour.
        ink: Rgb,
        /// Stroke.
        dash: Dash,
    },
    /// A filled polygon, convex, without edge.
    Polygon {
        /// At least three.
        points: Vec<Point>,
        /// Colour.
        fill: Rgb,
    },
    /// A filled circle.
    Dot {
        /// Centre.
        at: Point,
        /// In points.
        radius: f32,
        /// Colour.
        fill: Rgb,
    },
    /// A text.
    Label(Label),
}

/// A picture.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scene {
    /// Everything lies in it.
    pub area: Area,
    /// In the order in which they are painted.
    pub shapes: Vec<Shape>,
    /// What shapes are, in words: for documents and for those who cannot see them.
    pub titles: Vec<Title>,
}

/// What a shape is, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Title {
    /// Index of the shape.
    pub shape: usize,
    /// One sentence.
    pub text: String,
}

impl Scene {
    /// All texts.
    pub fn labels(&self) -> impl Iterator<Item = &Label> {
        self.shapes.iter().filter_map(|shape| match shape {
            Shape::Label(label) => Some(label),
            _ => None,
        })
    }
}

/// How wide texts are: the fonts of whoever paints.
pub trait Measure {
    /// Width of one line in points.
    fn width(&self, text: &str, size: f32, face: Face) -> f32;
}

/// Height of a line of text of a font size.
pub fn line_height(size: f32) -> f32 {
    (size * 1.25).ceil()
}

/// A text that is to be written, see [`Sketch::label`].
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    /// What is to be written.
    pub text: &'a str,
    /// Height of the font in points.
    pub size: f32,
    /// Font.
    pub face: Face,
    /// Where in its container.
    pub align: Align,
    /// Colour of the glyphs.
    pub ink: Rgb,
    /// Colour of what lies under them.
    pub ground: Rgb,
}

/// A scene in the making.
#[derive(Clone, Copy)]
pub struct Canvas<'a> {
    /// Colours and sizes.
    pub theme: &'a Theme,
    /// Fonts.
    pub measure: &'a dyn Measure,
}

impl std::fmt::Debug for Canvas<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Canvas").field("theme", self.theme).finish_non_exhaustive()
    }
}

/// Collects the shapes of a scene.
#[derive(Debug)]
pub struct Sketch<'a> {
    /// Colours and fonts.
    pub canvas: Canvas<'a>,
    /// What has been drawn.
    pub scene: Scene,
    titles: Titles,
}

/// Whether shapes are put into words as well, which costs more than drawing them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Titles {
    #[default]
    Without,
    With,
}

impl<'a> Sketch<'a> {
    /// An empty picture.
    pub fn new(canvas: Canvas<'a>, area: Area) -> Self {
        let scene = Scene { area, shapes: Vec::new(), titles: Vec::new() };
        Self { canvas, scene, titles: Titles::Without }
    }

    /// With [`Scene::titles`]: for documents, not for every frame of a screen.
    #[must_use]
    pub fn with_titles(mut self) -> Self {
        self.titles = Titles::With;
        self
    }

    /// Whether titles are wanted.
    pub fn has_titles(&self) -> bool {
        self.titles == Titles::With
    }

    /// Says what a shape is.
    pub fn title(&mut self, shape: usize, text: String) {
        self.scene.titles.push(Title { shape, text });
    }

    /// The colours.
    pub fn theme(&self) -> &'a Theme {
        self.canvas.theme
    }

    /// A plain rectangle.
    pub fn fill(&mut self, area: Area, fill: Rgb) {
        self.push(Shape::Fill { area, fill, pattern: None, edge: None, corner: 0.0 });
    }

    /// A solid line between two points.
    pub fn line(&mut self, from: Point, to: Point, width: f32, ink: Rgb) {
        self.push(Shape::Line { points: vec![from, to], width, ink, dash: Dash::Solid });
    }

    /// Any shape.
    pub fn push(&mut self, shape: Shape) {
        self.scene.shapes.push(shape);
    }

    /// Writes one line of text, vertically in the middle of `within`, and returns the box that the
    /// glyphs fill. What does not fit is elided in the middle; where not even three characters
    /// fit, nothing is written.
    pub fn label(&mut self, within: Area, text: Text<'_>) -> Option<Area> {
        let Text { text: full, size, face, align, ink, ground } = text;
        let shown = self.elided(full, within.width, size, face)?;
        let width = self.canvas.measure.width(&shown, size, face);
        let height = line_height(size);
        if height > within.height + 0.1 {
            return None;
        }
        let spare = within.width - width;
        let left = within.left
            + match align {
                Align::Left => 0.0,
                Align::Middle => spare / 2.0,
                Align::Right => spare,
            };
        let top = within.top + (within.height - height) / 2.0;
        let area = Area::new(left, top, width, height);
        let full = full.to_owned();
        self.push(Shape::Label(Label { text: shown, full, area, within, size, face, ink, ground }));
        Some(area)
    }

    /// `text` as it fits into `room`: whole, or with `…` in place of its middle.
    fn elided(&self, text: &str, room: f32, size: f32, face: Face) -> Option<String> {
        elide(text, room, |text| self.canvas.measure.width(text, size, face))
    }
}

/// `text` as it fits into `room`: whole, or with `…` in place of its middle, so that both ends can
/// be read; `None` where fewer than three characters would be left.
pub fn elide(text: &str, room: f32, width: impl Fn(&str) -> f32) -> Option<String> {
    if text.is_empty() {
        return None;
    }
    if width(text) <= room {
        return Some(text.to_owned());
    }
    let chars: Vec<char> = text.chars().collect();
    let kept = |count: usize| -> String {
        let head = count.div_ceil(2);
        let tail = count - head;
        let ends = chars[..head].iter().chain(&['…']).chain(&chars[chars.len() - tail..]);
        ends.collect()
    };
    // The longest that fits, by halving: widths grow with the number of characters.
    let (mut fits, mut too_long) = (0, chars.len());
    while fits + 1 < too_long {
        let middle = usize::midpoint(fits, too_long);
        if width(&kept(middle)) <= room {
            fits = middle;
        } else {
            too_long = middle;
        }
    }
    (fits >= 3).then(|| kept(fits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_elided_in_the_middle_and_never_wider_than_their_room() {
        let width = |text: &str| text.chars().count() as f32;
        assert_eq!(elide("weights", 7.0, width).as_deref(), Some("weights"));
        assert_eq!(elide("model.layers.11.mlp.up", 11.0, width).as_deref(), Some("model…lp.up"));
        assert_eq!(elide("模型的一个很长的名字", 6.0, width).as_deref(), Some("模型的…名字"));
        assert_eq!(elide("weights", 3.9, width), None);
        assert_eq!(elide("", 10.0, width), None);
    }

    #[test]
    fn cutting_an_area_loses_nothing() {
        let area = Area::new(10.0, 20.0, 100.0, 50.0);
        for by in [-1.0, 0.0, 30.0, 500.0] {
            let (top, rest) = area.cut_top(by);
            assert_eq!(top.height + rest.height, area.height);
            assert_eq!(rest.bottom(), area.bottom());
            let (bottom, rest) = area.cut_bottom(by);
            assert_eq!(bottom.top, rest.bottom());
            let (left, rest) = area.cut_left(by);
            assert_eq!(left.right(), rest.left);
            let (right, rest) = area.cut_right(by);
            assert_eq!((right.left, right.right()), (rest.right(), area.right()));
        }
    }
}
