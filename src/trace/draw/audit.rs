//! Holds the texts of panels to what can be read: size, contrast, container, overlap; for tests.

use super::fonts::SansTable;
use super::pen;
use super::scene::{Area, Canvas, Label, Scene, Sketch};
use super::theme::{Kind, Theme};

/// Sizes that a panel may have, from a small window to a large screen.
const SIZES: [(f32, f32); 6] = [
    (300.0, 160.0),
    (496.0, 152.0),
    (700.0, 216.0),
    (794.0, 240.0),
    (1180.0, 600.0),
    (2400.0, 900.0),
];

/// Draws a panel in all themes and sizes, and holds all of its texts.
pub(crate) fn every_theme_and_size(draw: impl Fn(&mut Sketch<'_>, Area)) {
    for kind in [Kind::Light, Kind::Dark, Kind::Print] {
        for theme in [Theme::of(kind), Theme::of(kind).projected()] {
            for (width, height) in SIZES {
                let area = Area::new(3.0, 5.0, width, height);
                let mut sketch = Sketch::new(Canvas { theme: &theme, measure: &SansTable }, area);
                draw(&mut sketch, area);
                let what = format!("{kind:?}, {} pt, {width} × {height}", theme.label_size);
                holds(&sketch.scene, &theme, &what);
            }
        }
    }
}

/// Fails where a text is too small, too faint, out of its container or of the picture, or over
/// another one.
pub(crate) fn holds(scene: &Scene, theme: &Theme, what: &str) {
    let labels: Vec<&Label> = scene.labels().collect();
    let least = if theme.label_size > 12.0 { 18.0 } else { 12.0 };
    for label in &labels {
        let text = &label.text;
        assert!(label.size >= least, "{what}: “{text}” is {} points high", label.size);
        let contrast = label.ink.contrast(label.ground);
        assert!(contrast >= 4.5, "{what}: “{text}” has a contrast of {contrast:.1}");
        assert!(label.area.is_inside(label.within), "{what}: “{text}” leaves its container");
        assert!(
            label.within.is_inside(scene.area),
            "{what}: “{text}” leaves the picture: {:?}",
            label.within
        );
    }
    for (index, one) in labels.iter().enumerate() {
        for other in &labels[index + 1..] {
            let common = one.area.shrunk(0.5, 0.5).common(other.area.shrunk(0.5, 0.5));
            assert!(
                common.is_none(),
                "{what}: “{}” lies over “{}”: {one:?} {other:?}",
                one.text,
                other.text
            );
        }
    }
}

#[test]
#[should_panic(expected = "lies over")]
fn two_texts_in_one_place_are_found() {
    let area = Area::sized(100.0, 40.0);
    let mut sketch = Sketch::new(Canvas { theme: &Theme::LIGHT, measure: &SansTable }, area);
    for text in ["one", "other"] {
        let on = pen::On { ink: Theme::LIGHT.ink, ground: Theme::LIGHT.ground };
        sketch.write(area, text, super::scene::Align::Left, on);
    }
    holds(&sketch.scene, &Theme::LIGHT, "two");
}
