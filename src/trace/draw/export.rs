//! A picture of a step that stands for itself: title, sentence, timeline, legend, and where its
//! times come from are always inside.

use super::scene::{Align, Area, Canvas, Face, Scene, Sketch, Text, line_height};
use super::svg::{self, Document};
use super::theme::Theme;
use super::timeline::{self, Frame, Layout, Timeline};
use crate::trace::Badge;

/// What is written around an exported timeline.
#[derive(Clone, Copy, Debug)]
pub struct Export<'a> {
    /// What the picture shows.
    pub title: &'a str,
    /// One sentence below the title: what is to be seen.
    pub caption: &'a str,
    /// Width in points; the height follows from the number of ranks.
    pub width: f32,
    /// Pixels a point when it opens.
    pub scale: f32,
}

impl Export<'_> {
    /// Draws a frame of a timeline with what belongs around it; the frame's area is chosen here.
    pub fn scene(&self, canvas: Canvas<'_>, timeline: &Timeline, frame: &Frame<'_>) -> Scene {
        let badge: Badge = frame.badge;
        let note = format!("{}: {}", badge.word(), badge.meaning());
        let body = Layout::natural_height(timeline, frame, canvas.theme);
        let (mut sketch, area) = self.around(canvas, body, &note);
        timeline::draw(&mut sketch, timeline, &Frame { area, ..frame.clone() });
        sketch.scene
    }

    /// The ground of a picture with title, caption and a note below, around a body of this height;
    /// also where the body belongs.
    pub fn around<'c>(&self, canvas: Canvas<'c>, body: f32, note: &str) -> (Sketch<'c>, Area) {
        let theme = canvas.theme;
        let unit = theme.label_size / 12.0;
        let margin = 8.0 * unit;
        let lines =
            [(self.title, 16.0 * unit, theme.ink), (self.caption, 13.0 * unit, theme.faint)];
        let lines = lines.into_iter().filter(|(text, ..)| !text.is_empty());
        let footer = line_height(theme.label_size);
        let head: f32 = lines.clone().map(|(_, size, _)| line_height(size) + 2.0).sum();
        let height = margin + head + margin + body + footer + margin;
        let area = Area::sized(self.width.max(320.0 * unit), height.ceil());
        let mut sketch = Sketch::new(canvas, area).with_titles();
        sketch.fill(area, theme.ground);
        let mut rest = area.cut_top(margin).1.cut_bottom(margin).1;
        let (face, align, ground) = (Face::Sans, Align::Left, theme.ground);
        for (text, size, ink) in lines {
            let (line, below) = rest.cut_top(line_height(size) + 2.0);
            rest = below;
            let text = Text { text, size, face, align, ink, ground };
            sketch.label(line.shrunk(margin, 0.0), text);
        }
        let (line, middle) = rest.cut_bottom(footer);
        let (size, ink) = (theme.label_size, theme.faint);
        let note = Text { text: note, size, face, align, ink, ground };
        sketch.label(line.shrunk(margin, 0.0), note);
        (sketch, middle.cut_top(margin).1.cut_right(margin).1)
    }

    /// The same as an SVG document, measured without fonts.
    pub fn svg(&self, theme: &Theme, timeline: &Timeline, frame: &Frame<'_>) -> String {
        let canvas = Canvas { theme, measure: &super::fonts::SansTable };
        let scene = self.scene(canvas, timeline, frame);
        svg::document(&scene, &Document { title: self.title, scale: self.scale })
    }
}
