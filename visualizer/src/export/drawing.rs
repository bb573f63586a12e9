//! A vector picture of a part of the window: what was painted, as one document.

use shardlab::trace::draw::scene::{Area, Scene};
use shardlab::trace::draw::svg::{self, Document, Part};

use super::ExportError;
use super::raster::{self, Image};
use crate::audit::Painted;

/// A picture that stands for itself.
#[derive(Clone, Debug)]
pub struct Drawing {
    /// What it shows, for who cannot see it.
    title: String,
    area: Area,
    painted: Vec<Painted>,
}

impl Drawing {
    /// From what was painted in a frame, the first scene at the bottom.
    pub fn new(title: String, area: Area, painted: Vec<Painted>) -> Self {
        Self { title, area, painted }
    }

    /// From one scene.
    pub fn of(title: String, scene: Scene) -> Self {
        let area = scene.area;
        Self { title, area, painted: vec![Painted { zone: "picture", clip: area, scene }] }
    }

    /// The same with more painted over it.
    #[must_use]
    pub fn with(mut self, mut painted: Vec<Painted>) -> Self {
        self.painted.append(&mut painted);
        self
    }

    /// How large it is, in points.
    pub fn area(&self) -> Area {
        self.area
    }

    /// As a document that opens `scale` times its size.
    pub fn svg(&self, scale: f32) -> String {
        let seen = self.painted.iter().filter_map(|painted| {
            let clip = painted.clip.common(self.area)?;
            Some(Part { clip, scene: &painted.scene })
        });
        let parts: Vec<Part<'_>> = seen.collect();
        let document = Document { title: &self.title, scale };
        svg::document_of_parts(self.area, &parts, &document)
    }

    /// In pixels, `scale` to a point.
    ///
    /// # Errors
    /// If that is too large.
    pub fn image(&self, scale: f32) -> Result<Image, ExportError> {
        raster::paint(&self.svg(1.0), scale)
    }
}
