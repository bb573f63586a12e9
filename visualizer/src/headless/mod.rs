//! The window without a display: the same app, laid out in memory and painted by an adapter.
//!
//! Time passes by frames of a fixed length, so that nothing depends on how fast the machine is but
//! the times of the run itself. `run` trains what is shown, `shots` writes the pictures of
//! `--screenshot`, `record` the animation of `--record`.

mod record;
mod run;
mod shots;

pub use record::{Take, record};
pub use run::Run;
pub use shots::{Shots, take};

use std::path::Path;
use std::sync::Arc;

use eframe::egui;
use eframe::egui_wgpu::{RenderState, RendererOptions, WgpuConfiguration};
use egui_kittest::Harness;
use egui_kittest::wgpu::{WgpuTestRenderer, default_wgpu_setup};
use egui_system_font_provider::SystemFontProvider;

use crate::app::{App, Start};
use crate::args::{Scale, Size};
use crate::export::ExportError;
use crate::export::film::Estimate;
use crate::export::raster::Image;
use crate::shown::Command;

/// How much time passes in a frame, in seconds: the figures change in each.
const FRAME: f32 = 0.25;

/// Why there are no pictures.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShotError {
    /// The run does not get there.
    #[error("{0}")]
    Run(String),
    /// What was asked for cannot run the ranks.
    #[error("{0}")]
    Device(String),
    /// The file of times cannot be used.
    #[error("{0}")]
    Trace(String),
    /// A picture cannot be made or written.
    #[error(transparent)]
    Export(#[from] ExportError),
}

/// What is told while pictures are made.
#[derive(Clone, Copy, Debug)]
pub enum Told<'a> {
    /// So many steps of so many are trained.
    Trained(u64, u64),
    /// A file is written.
    Written(&'a Path),
    /// No adapter paints, and why.
    NoAdapter(&'a str),
    /// What an animation will be.
    Estimate(Estimate),
    /// So many frames of so many are painted.
    Painted(usize, usize),
}

/// What paints the pixels: an adapter that no window has opened, software before hardware, so that
/// pictures are the same wherever there is the same driver.
pub struct Painter(RenderState);

impl std::fmt::Debug for Painter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Painter").field(&self.name()).finish()
    }
}

impl Painter {
    /// Opens an adapter.
    ///
    /// # Errors
    /// Why there is none.
    pub fn open() -> Result<Self, String> {
        let setup = default_wgpu_setup();
        let instance = pollster::block_on(setup.new_instance());
        let configuration = WgpuConfiguration { wgpu_setup: setup, ..Default::default() };
        let options = RendererOptions::PREDICTABLE;
        let opened = RenderState::create(&configuration, &instance, None, options);
        pollster::block_on(opened).map(Self).map_err(|error| error.to_string())
    }

    /// What the adapter calls itself.
    pub fn name(&self) -> String {
        self.0.adapter.get_info().name
    }
}

/// The window.
pub struct Headless(Harness<'static, Stage>);

impl std::fmt::Debug for Headless {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Headless").field(self.app()).finish()
    }
}

/// The app, which needs a context to start in.
enum Stage {
    Empty(Option<Box<Start>>),
    Open(Box<App>),
}

impl Stage {
    fn show(&mut self, ui: &mut egui::Ui) {
        if let Self::Empty(start) = self
            && let Some(start) = start.take()
        {
            // Names of people may have any letters: asked for as by a real window.
            ui.ctx().add_font_provider(Arc::new(SystemFontProvider::new()));
            *self = Self::Open(Box::new(App::new(ui.ctx(), *start)));
        }
        if let Self::Open(app) = self {
            app.show(ui);
        }
    }
}

impl Headless {
    /// Opens the window; without a painter it has no pixels.
    pub fn open(start: Start, size: Size, scale: Scale, painter: Option<Painter>) -> Self {
        let mut builder = Harness::<Stage>::builder()
            .with_size([f32::from(size.width), f32::from(size.height)])
            .with_pixels_per_point(scale.0)
            .with_step_dt(FRAME)
            .with_max_steps(1)
            // Not every system has all of them.
            .allow_missing_glyphs()
            .with_accessibility_check(false)
            .with_render_cursor(false);
        if let Some(Painter(state)) = painter {
            builder = builder.renderer(WgpuTestRenderer::from_render_state(state));
        }
        let stage = Stage::Empty(Some(Box::new(start)));
        Self(builder.build_ui_state(|ui, stage| stage.show(ui), stage))
    }

    /// The app.
    ///
    /// # Panics
    /// Never: it is opened in the first frame, before there is a window.
    pub fn app(&self) -> &App {
        match self.0.state() {
            Stage::Open(app) => app,
            Stage::Empty(_) => unreachable!("the first frame opens the app"),
        }
    }

    /// The app, to be told something.
    ///
    /// # Panics
    /// Never: it is opened in the first frame, before there is a window.
    pub fn app_mut(&mut self) -> &mut App {
        match self.0.state_mut() {
            Stage::Open(app) => app,
            Stage::Empty(_) => unreachable!("the first frame opens the app"),
        }
    }

    /// Does what a part of the window could ask for.
    pub fn ask(&mut self, command: Command) {
        let ctx = self.0.ctx.clone();
        self.app_mut().ask(&ctx, command);
    }

    /// Presses and releases a key.
    pub fn press(&mut self, modifiers: egui::Modifiers, key: egui::Key) {
        self.0.key_press_modifiers(modifiers, key);
        self.0.step();
    }

    /// Lets frames pass.
    pub fn frames(&mut self, count: usize) {
        self.0.run_steps(count);
    }

    /// The last frame in pixels.
    ///
    /// # Errors
    /// If the adapter fails, or there is none.
    pub fn pixels(&mut self) -> Result<Image, ExportError> {
        let image = self.0.render().map_err(ExportError::Encoding)?;
        let (width, height) = (image.width(), image.height());
        let mut rgba = image.into_raw();
        // What the window leaves open is opaque as well.
        rgba.chunks_exact_mut(4).for_each(|pixel| pixel[3] = u8::MAX);
        Ok(Image::new(width, height, rgba))
    }
}
