//! Writes scenes as SVG documents that any browser, `LibreOffice`, librsvg or resvg opens.
//!
//! Texts carry the width that they were measured with, so that they keep it in any font; patterns
//! are patterns, so that a document stays a drawing that can be edited. What a picture shows is
//! decided elsewhere: here shapes become elements, one by one.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};

use super::fonts::{FAMILIES, MONO_FAMILIES};
use super::scene::{Area, Dash, Face, Label, Pattern, Point, Scene, Shape};
use super::theme::Rgb;

/// What a document says of itself.
#[derive(Clone, Copy, Debug)]
pub struct Document<'a> {
    /// What the picture shows, for who cannot see it.
    pub title: &'a str,
    /// How large it opens: 1 for a point a pixel. The drawing is the same at every scale.
    pub scale: f32,
}

/// A scene of a picture that is made of several, each cut to its own place.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// What is seen of the scene.
    pub clip: Area,
    /// The scene, in the coordinates of the whole picture.
    pub scene: &'a Scene,
}

/// A whole SVG document of one scene.
///
/// # Panics
/// Never: text can always be appended.
pub fn document(scene: &Scene, document: &Document<'_>) -> String {
    let part = Part { clip: scene.area, scene };
    document_of_parts(scene.area, &[part], document)
}

/// A whole SVG document of several scenes, the first one at the bottom.
///
/// # Panics
/// Never: text can always be appended.
pub fn document_of_parts(area: Area, parts: &[Part<'_>], document: &Document<'_>) -> String {
    let mut svg = Svg { text: String::new(), parts };
    svg.write(area, document).expect("a String takes everything");
    svg.text
}

struct Svg<'a> {
    text: String,
    parts: &'a [Part<'a>],
}

impl Svg<'_> {
    fn write(&mut self, area: Area, document: &Document<'_>) -> fmt::Result {
        let [wide, high] = [area.width, area.height].map(|side| Number(side * document.scale));
        writeln!(
            self.text,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{wide}\" height=\"{high}\" \
             viewBox=\"{}\" role=\"img\">",
            ViewBox(area)
        )?;
        writeln!(self.text, "<title>{}</title>", Escaped(document.title))?;
        self.patterns()?;
        for part in self.parts {
            self.part(part, area)?;
        }
        writeln!(self.text, "</svg>")
    }

    /// A scene; one that is not as large as the picture is cut by a viewport of its own.
    fn part(&mut self, part: &Part<'_>, whole: Area) -> fmt::Result {
        let is_cut = part.clip != whole;
        if is_cut {
            let Area { left, top, width, height } = part.clip;
            let [x, y, w, h] = [left, top, width, height].map(Number);
            writeln!(
                self.text,
                "<svg x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" viewBox=\"{}\">",
                ViewBox(part.clip)
            )?;
        }
        let scene = part.scene;
        let mut titles = scene.titles.iter().peekable();
        for (index, shape) in scene.shapes.iter().enumerate() {
            let mut title = None;
            while let Some(next) = titles.next_if(|title| title.shape <= index) {
                title = (next.shape == index).then_some(next.text.as_str());
            }
            match title {
                Some(title) => {
                    write!(self.text, "<g><title>{}</title>", Escaped(title))?;
                    self.shape(shape)?;
                    writeln!(self.text, "</g>")?;
                }
                None => {
                    self.shape(shape)?;
                    self.text.push('\n');
                }
            }
        }
        if is_cut { writeln!(self.text, "</svg>") } else { Ok(()) }
    }

    /// The patterns that shapes use, each once for every colour.
    fn patterns(&mut self) -> fmt::Result {
        let used: BTreeSet<(Pattern, Rgb)> = self
            .parts
            .iter()
            .flat_map(|part| &part.scene.shapes)
            .filter_map(|shape| match shape {
                Shape::Fill { pattern, .. } => *pattern,
                _ => None,
            })
            .filter(|(pattern, _)| *pattern != Pattern::TopLine)
            .collect();
        if used.is_empty() {
            return Ok(());
        }
        let side = Number(Pattern::PITCH);
        writeln!(self.text, "<defs>")?;
        for (pattern, ink) in used {
            let id = pattern_id(pattern, ink);
            write!(
                self.text,
                "<pattern id=\"{id}\" width=\"{side}\" height=\"{side}\" \
                 patternUnits=\"userSpaceOnUse\">"
            )?;
            self.tile(pattern, ink)?;
            writeln!(self.text, "</pattern>")?;
        }
        writeln!(self.text, "</defs>")
    }

    /// One tile of a pattern; slanting lines come in again from the neighbouring tiles.
    fn tile(&mut self, pattern: Pattern, ink: Rgb) -> fmt::Result {
        let (p, width) = (Pattern::PITCH, Number(Pattern::LINE));
        let line = |text: &mut String, points: [f32; 4]| {
            let [x1, y1, x2, y2] = points.map(Number);
            write!(
                text,
                "<path d=\"M{x1} {y1}L{x2} {y2}\" stroke=\"{}\" stroke-width=\"{width}\" \
                 fill=\"none\"/>",
                Hex(ink)
            )
        };
        match pattern {
            Pattern::Falling => {
                line(&mut self.text, [-1.0, -1.0, p + 1.0, p + 1.0])?;
                line(&mut self.text, [p - 1.0, -1.0, p + 1.0, 1.0])?;
                line(&mut self.text, [-1.0, p - 1.0, 1.0, p + 1.0])
            }
            Pattern::Rising => {
                line(&mut self.text, [-1.0, p + 1.0, p + 1.0, -1.0])?;
                line(&mut self.text, [-1.0, 1.0, 1.0, -1.0])?;
                line(&mut self.text, [p - 1.0, p + 1.0, p + 1.0, p - 1.0])
            }
            Pattern::Bars => line(&mut self.text, [p / 2.0, 0.0, p / 2.0, p]),
            Pattern::Dots => write!(
                self.text,
                "<circle cx=\"{0}\" cy=\"{0}\" r=\"{1}\" fill=\"{2}\"/>",
                Number(p / 2.0),
                Number(Pattern::DOT),
                Hex(ink)
            ),
            Pattern::TopLine => Ok(()),
        }
    }

    fn shape(&mut self, shape: &Shape) -> fmt::Result {
        match shape {
            Shape::Fill { area, fill, pattern, edge, corner } => {
                self.rect(*area, *corner, &Hex(*fill).to_string())?;
                match *pattern {
                    Some((Pattern::TopLine, ink)) => {
                        self.rect(Pattern::top_line(*area), 0.0, &Hex(ink).to_string())?;
                    }
                    Some((pattern, ink)) => {
                        let paint = format!("url(#{})", pattern_id(pattern, ink));
                        self.rect(*area, *corner, &paint)?;
                    }
                    None => {}
                }
                edge.map_or(Ok(()), |edge| self.edge(*area, *corner, edge))
            }
            Shape::Line { points, width, ink, dash } => self.line(points, (*width, *ink), *dash),
            Shape::Polygon { points, fill } => {
                write!(self.text, "<polygon points=\"")?;
                self.points(points)?;
                write!(self.text, "\" fill=\"{}\"/>", Hex(*fill))
            }
            Shape::Dot { at, radius, fill } => write!(
                self.text,
                "<circle cx=\"{}\" cy=\"{}\" r=\"{}\" fill=\"{}\"/>",
                Number(at.x),
                Number(at.y),
                Number(*radius),
                Hex(*fill)
            ),
            Shape::Label(label) => self.label(label),
        }
    }

    fn rect(&mut self, area: Area, corner: f32, paint: &str) -> fmt::Result {
        let Area { left, top, width, height } = area;
        let [x, y, w, h] = [left, top, width, height].map(Number);
        write!(self.text, "<rect x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\"")?;
        if corner > 0.0 {
            write!(self.text, " rx=\"{}\"", Number(corner))?;
        }
        write!(self.text, " fill=\"{paint}\"/>")
    }

    /// A line of one point inside the edges.
    fn edge(&mut self, area: Area, corner: f32, ink: Rgb) -> fmt::Result {
        let inner = area.shrunk(0.5, 0.5);
        let [x, y, w, h] = [inner.left, inner.top, inner.width, inner.height].map(Number);
        write!(
            self.text,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" rx=\"{}\" fill=\"none\" \
             stroke=\"{}\"/>",
            Number((corner - 0.5).max(0.0)),
            Hex(ink)
        )
    }

    fn line(&mut self, points: &[Point], (width, ink): (f32, Rgb), dash: Dash) -> fmt::Result {
        write!(self.text, "<polyline points=\"")?;
        self.points(points)?;
        write!(
            self.text,
            "\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\"",
            Hex(ink),
            Number(width)
        )?;
        match dash {
            Dash::Solid => {}
            Dash::Dashed => {
                let [stroke, gap] = [4.0 * width, 3.0 * width].map(Number);
                write!(self.text, " stroke-dasharray=\"{stroke} {gap}\"")?;
            }
            Dash::Dotted => {
                let [stroke, gap] = [width, 2.0 * width].map(Number);
                write!(self.text, " stroke-dasharray=\"{stroke} {gap}\"")?;
            }
        }
        write!(self.text, "/>")
    }

    fn points(&mut self, points: &[Point]) -> fmt::Result {
        for (index, at) in points.iter().enumerate() {
            let space = if index == 0 { "" } else { " " };
            write!(self.text, "{space}{},{}", Number(at.x), Number(at.y))?;
        }
        Ok(())
    }

    fn label(&mut self, label: &Label) -> fmt::Result {
        let Label { text, area, size, face, ink, .. } = label;
        // The baseline: capitals, 0.73 of the size high, stand in the middle of the line.
        let baseline = area.centre().y + 0.365 * size;
        let family = match face {
            Face::Sans => FAMILIES,
            Face::Mono => MONO_FAMILIES,
        };
        write!(
            self.text,
            "<text x=\"{}\" y=\"{}\" font-family=\"{family}\" font-size=\"{}\" fill=\"{}\" \
             textLength=\"{}\" lengthAdjust=\"spacingAndGlyphs\" xml:space=\"preserve\">{}</text>",
            Number(area.left),
            Number(baseline),
            Number(*size),
            Hex(*ink),
            Number(area.width),
            Escaped(text)
        )
    }
}

fn pattern_id(pattern: Pattern, ink: Rgb) -> String {
    let word = match pattern {
        Pattern::Falling => "falling",
        Pattern::Rising => "rising",
        Pattern::Bars => "bars",
        Pattern::Dots => "dots",
        Pattern::TopLine => "top-line",
    };
    let Rgb(red, green, blue) = ink;
    format!("{word}-{red:02x}{green:02x}{blue:02x}")
}

/// Left, top, width and height.
struct ViewBox(Area);

impl fmt::Display for ViewBox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Area { left, top, width, height } = self.0;
        let [left, top, width, height] = [left, top, width, height].map(Number);
        write!(f, "{left} {top} {width} {height}")
    }
}

/// A number with at most two decimals and no needless zeros; what is no number is 0.
struct Number(f32);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rounded = (f64::from(self.0) * 100.0).round() / 100.0;
        let rounded = if rounded.is_finite() { rounded } else { 0.0 };
        // −0 is 0.
        write!(f, "{}", rounded + 0.0)
    }
}

/// `#1e4999`.
struct Hex(Rgb);

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rgb(red, green, blue) = self.0;
        write!(f, "#{red:02x}{green:02x}{blue:02x}")
    }
}

/// Text inside an element or an attribute; characters that XML forbids are left out.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for glyph in self.0.chars() {
            match glyph {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\t' | '\n' | '\r' => f.write_char(' ')?,
                '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => {}
                _ => f.write_char(glyph)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::fonts::SansTable;
    use super::super::scene::{Align, Canvas, Sketch, Text};
    use super::super::theme::Theme;
    use super::*;

    fn with_text(text: &str) -> String {
        let theme = Theme::LIGHT;
        let canvas = Canvas { theme: &theme, measure: &SansTable };
        let mut sketch = Sketch::new(canvas, Area::sized(400.0, 40.0)).with_titles();
        let waiting = theme.waiting();
        let pattern = waiting.pattern.map(|pattern| (pattern, waiting.pattern_ink));
        let area = Area::new(10.0, 10.0, 100.0, 20.0);
        sketch.title(0, text.to_owned());
        sketch.push(Shape::Fill { area, fill: waiting.fill, pattern, edge: None, corner: 2.0 });
        let (size, face, align) = (12.0, Face::Sans, Align::Left);
        let (ink, ground) = (theme.ink, theme.ground);
        sketch.label(Area::sized(400.0, 20.0), Text { text, size, face, align, ink, ground });
        document(&sketch.scene, &Document { title: text, scale: 2.0 })
    }

    #[test]
    fn names_of_people_cannot_break_the_document() {
        let text = with_text("a<b> & \"c\" 'd' \u{1} 模型\n");
        assert!(
            text.contains("a&lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;  模型 </text>"),
            "{text}"
        );
        assert_eq!(text.matches("<title>").count(), 2);
        assert!(!text.contains('\u{1}'));
    }

    #[test]
    fn texts_keep_their_width_and_patterns_are_patterns() {
        let text = with_text("0123");
        assert!(text.contains("width=\"800\" height=\"80\" viewBox=\"0 0 400 40\""), "{text}");
        assert!(text.contains("textLength=\"30.53\""), "{text}");
        assert_eq!(text.matches("<pattern ").count(), 1);
        assert_eq!(text.matches("url(#falling-").count(), 1);
    }

    #[test]
    fn a_picture_of_parts_cuts_each_to_its_place_and_names_a_pattern_once() {
        let theme = Theme::LIGHT;
        let waiting = theme.waiting();
        let pattern = waiting.pattern.map(|pattern| (pattern, waiting.pattern_ink));
        let area = Area::new(-5.0, 0.0, 100.0, 10.0);
        let (fill, edge, corner) = (waiting.fill, None, 0.0);
        let shapes = vec![Shape::Fill { area, fill, pattern, edge, corner }];
        let scene = Scene { area, shapes, titles: Vec::new() };
        let whole = Area::sized(60.0, 20.0);
        let lower = Area::new(10.0, 10.0, 20.0, 10.0);
        let parts = [whole, lower].map(|clip| Part { clip, scene: &scene });
        let text = document_of_parts(whole, &parts, &Document { title: "", scale: 1.0 });
        assert_eq!(text.matches("<pattern ").count(), 1, "{text}");
        assert_eq!(text.matches("<svg ").count(), 2, "{text}");
        let cut = "<svg x=\"10\" y=\"10\" width=\"20\" height=\"10\" viewBox=\"10 10 20 10\">";
        assert!(text.contains(cut), "{text}");
    }

    #[test]
    fn numbers_are_short_and_never_break_a_document() {
        let text = |number| Number(number).to_string();
        let found = [1.0, 0.125, -0.001, f32::NAN, f32::INFINITY, 1016.005].map(text);
        assert_eq!(found, ["1", "0.13", "0", "0", "0", "1016.01"]);
    }
}
