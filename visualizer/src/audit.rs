//! A record of every text that a frame shows: where, how large, in which colours, shortened or not.
//!
//! All text of the window goes through [`shardlab::trace::draw::scene::Sketch::label`], so the
//! labels of the painted scenes are all there is. Tests switch the record on and read it; the app
//! itself keeps it off.

use shardlab::trace::draw::scene::{Area, Label, Scene};

/// One text as it was painted; places are points of the window.
#[derive(Clone, Debug)]
pub struct Written {
    /// Which part of the window wrote it.
    pub zone: &'static str,
    /// The text with its box and its container.
    pub label: Label,
}

/// The texts of one frame.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    record: Option<Vec<Written>>,
}

impl Audit {
    /// Records from now on.
    pub fn switch_on(&mut self) {
        self.record.get_or_insert_default();
    }

    /// Forgets the frame before.
    pub fn begin(&mut self) {
        if let Some(record) = &mut self.record {
            record.clear();
        }
    }

    /// Notes all texts of a scene in the coordinates of the window.
    pub fn note(&mut self, zone: &'static str, scene: &Scene) {
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
