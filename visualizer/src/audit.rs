//! A record of what a frame shows: every text with its place, size and colours, and every scene.
//!
//! All text of the window goes through [`shardlab::trace::draw::scene::Sketch::label`], so the
//! labels of the painted scenes are all there is. Tests switch the record of texts on and read it;
//! exports take the scenes, which are the whole window as a vector picture. Else both are off.

use shardlab::trace::draw::scene::{Area, Label, Scene};

/// One text as it was painted; places are points of the window.
#[derive(Clone, Debug)]
pub struct Written {
    /// Which part of the window wrote it.
    pub zone: &'static str,
    /// The text with its box and its container.
    pub label: Label,
}

/// A scene as it was painted.
#[derive(Clone, Debug)]
pub struct Painted {
    /// Which part of the window painted it.
    pub zone: &'static str,
    /// What is seen of it.
    pub clip: Area,
    /// The scene, in points of the window.
    pub scene: Scene,
}

/// The texts and the scenes of one frame.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    record: Option<Vec<Written>>,
    painted: Option<Vec<Painted>>,
}

impl Audit {
    /// Records from now on.
    pub fn switch_on(&mut self) {
        self.record.get_or_insert_default();
    }

    /// Keeps the scenes of each frame from now on.
    pub fn keep_scenes(&mut self) {
        self.painted.get_or_insert_default();
    }

    /// The scenes of the last frame, in the order in which they are seen over one another.
    pub fn scenes(&self) -> Vec<Painted> {
        let mut painted = self.painted.clone().unwrap_or_default();
        // What lies over the window is drawn before the line that explains it.
        painted.sort_by_key(|painted| painted.zone.starts_with("over "));
        painted
    }

    /// Forgets the frame before.
    pub fn begin(&mut self) {
        if let Some(painted) = &mut self.painted {
            painted.clear();
        }
        if let Some(record) = &mut self.record {
            record.clear();
        }
    }

    /// Notes a scene in the coordinates of the window, cut to `clip`.
    pub fn note(&mut self, zone: &'static str, clip: Area, scene: &Scene) {
        if let Some(painted) = &mut self.painted
            && !scene.shapes.is_empty()
        {
            painted.push(Painted { zone, clip, scene: scene.clone() });
        }
        if let Some(record) = &mut self.record {
            record.extend(scene.labels().map(|label| Written { zone, label: label.clone() }));
        }
    }

    /// The texts of the last frame.
    pub fn written(&self) -> &[Written] {
        self.record.as_deref().unwrap_or_default()
    }

    /// What is wrong with the texts of the last frame, for people who mend it: too small, too
    /// faint, outside of their container or of the window, or over one another.
    pub fn faults(&self, window: Area, least_size: f32) -> Vec<String> {
        let written = self.written();
        let mut faults = Vec::new();
        for Written { zone, label } in written {
            let text = &label.text;
            if label.size < least_size {
                faults.push(format!("{zone}: {text:?} is {} points high", label.size));
            }
            let contrast = label.ink.contrast(label.ground);
            if contrast < 4.5 {
                faults.push(format!("{zone}: {text:?} has a contrast of {contrast:.1}"));
            }
            if !label.area.is_inside(label.within) {
                let (area, within) = (label.area, label.within);
                faults.push(format!("{zone}: {text:?} at {area:?} leaves {within:?}"));
            }
            if !label.area.is_inside(window) {
                faults.push(format!("{zone}: {text:?} at {:?} leaves the window", label.area));
            }
        }
        for (index, one) in written.iter().enumerate() {
            for other in &written[index + 1..] {
                // Half a point of glyph boxes may touch; letters do not.
                let shrunk = [one, other].map(|written| written.label.area.shrunk(0.5, 1.5));
                let (a, b) = (&one.label.text, &other.label.text);
                if one.zone.starts_with("over ") == other.zone.starts_with("over ")
                    && shrunk[0].common(shrunk[1]).is_some()
                {
                    faults.push(format!("{}: {a:?} lies on {b:?} ({})", one.zone, other.zone));
                }
            }
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eframe::egui;
    use shardlab::trace::draw::scene::{Align, Canvas, Face, Sketch, Text};
    use shardlab::trace::draw::theme::{Rgb, Theme};

    use crate::paint::Fonts;

    /// The faults of some texts in a window of 200 × 100 points.
    fn faults(texts: &[(Area, f32, Rgb)]) -> Vec<String> {
        let ctx = egui::Context::default();
        let mut audit = Audit::default();
        audit.switch_on();
        let mut output = ctx.run_ui(egui::RawInput::default(), |ui| {
            let fonts = Fonts(ui.ctx());
            let canvas = Canvas { theme: &Theme::LIGHT, measure: &fonts };
            let mut sketch = Sketch::new(canvas, Area::sized(200.0, 100.0));
            for &(within, size, ink) in texts {
                let (face, align, ground) = (Face::Sans, Align::Left, Theme::LIGHT.ground);
                sketch.label(within, Text { text: "text", size, face, align, ink, ground });
            }
            audit.begin();
            audit.note("zone", Area::sized(200.0, 100.0), &sketch.scene);
        });
        output.textures_delta.clear();
        audit.faults(Area::sized(200.0, 100.0), 12.0)
    }

    #[test]
    fn each_kind_of_fault_is_found_and_nothing_else() {
        let ink = Theme::LIGHT.ink;
        let (left, right) = (Area::new(0.0, 0.0, 90.0, 20.0), Area::new(100.0, 0.0, 90.0, 20.0));
        assert_eq!(faults(&[(left, 12.0, ink), (right, 14.0, ink)]), Vec::<String>::new());
        let one = |texts: &[(Area, f32, Rgb)], what: &str| {
            let found = faults(texts);
            assert!(found.len() == 1 && found[0].contains(what), "{what}: {found:?}");
        };
        one(&[(left, 11.0, ink)], "points high");
        one(&[(left, 12.0, Rgb(180, 180, 180))], "contrast");
        one(&[(left, 12.0, ink), (left, 12.0, ink)], "lies on");
        one(&[(Area::new(190.0, 0.0, 60.0, 20.0), 12.0, ink)], "leaves the window");
    }
}
