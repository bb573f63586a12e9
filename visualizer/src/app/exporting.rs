//! Exports of the window: what is shown is handed to a [`Job`], which makes the file elsewhere.
//!
//! Of an animation one picture is drawn in each frame, so that the window stays alive.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use eframe::egui;
use shardlab::trace::Span;
use shardlab::units::Nanos;

use super::picture::{Paper, Wanted};
use super::{App, Step};
use crate::export::drawing::Drawing;
use crate::export::film::{Estimate, Film};
use crate::export::job::{Job, Material, Shown};
use crate::export::order::{Colours, Form, Order};
use crate::over::Offer;
use crate::shown::Notice;

/// The last export, and what of it is still to be drawn.
#[derive(Debug, Default)]
pub(super) struct Exporting {
    job: Option<Job>,
    film: Option<Rest>,
    paper: Option<Paper>,
    /// What was said of the last file, and where it is.
    written: Option<(String, PathBuf)>,
}

/// The rest of an animation.
#[derive(Debug)]
struct Rest {
    wanted: Wanted,
    instants: std::vec::IntoIter<Nanos>,
    count: usize,
    sender: Sender<Drawing>,
}

impl Exporting {
    /// Where the file is that `notice` tells of.
    pub(super) fn path(&self, notice: Option<&Notice>) -> Option<&Path> {
        let (said, path) = self.written.as_ref()?;
        (said == &notice?.text).then_some(path.as_path())
    }
}

impl App {
    /// What there is to export now.
    pub(super) fn offer(&self) -> Offer {
        let (size, stretch) = (self.window_size(), self.stretch());
        let sizes = self.step.as_ref().map(|step| shown(step, stretch).estimates());
        Offer {
            scenario: self.run.scenario().name.clone(),
            step: self.step.as_ref().map(Step::number),
            workspace: self.view.workspace,
            size,
            film: self.film().map(|film| -> Estimate { film.estimate(size) }),
            stretch,
            trace: sizes.map(|(whole, _)| whole),
            part: sizes.and_then(|(_, part)| part),
        }
    }

    /// The loop, else what is marked, else what is chosen.
    fn stretch(&self) -> Option<Span> {
        let step = self.step.as_ref()?;
        let chosen = || Some(step.timeline.span(&self.sight.selection?)?.1);
        self.play.section().or(self.sight.marked).or_else(chosen)
    }

    fn window_size(&self) -> (f32, f32) {
        (self.zones.transport.width, self.zones.transport.bottom())
    }

    /// An animation of the loop, else of what is marked, else of what is chosen, else of the whole
    /// step; `None` before the first.
    pub fn film(&self) -> Option<Film> {
        let step = self.step.as_ref()?;
        let whole = Span { start: Nanos(0), end: step.timeline.end() };
        Some(Film::new(self.stretch().unwrap_or(whole), self.play.speed()))
    }

    /// Begins an export.
    pub(super) fn export(&mut self, ctx: &egui::Context, order: Order) {
        if self.exporting.job.is_some() {
            self.notice = Some("An export is being written. Wait for its end.".into());
            return;
        }
        let Some(material) = self.material(&order) else {
            self.notice = Some("No step has ended yet, so there is nothing to export.".into());
            return;
        };
        let wake = {
            let ctx = ctx.clone();
            move || ctx.request_repaint()
        };
        match Job::start(order.path, order.existing, material, wake) {
            Ok(job) => {
                self.exporting.job = Some(job);
                self.notice = Some("The file is being written …".into());
            }
            Err(error) => {
                self.notice = Some(Notice::failure(format!("The export cannot start: {error}")));
            }
        }
    }

    /// What the file is made from.
    fn material(&mut self, order: &Order) -> Option<Material> {
        let shown = |step| shown(step, order.stretch);
        let kind = match order.colours {
            Colours::AsShown => self.desk.look.theme.kind,
            Colours::Of(kind) => kind,
        };
        let wanted = Wanted { part: order.part, kind, size: self.window_size(), at: None };
        let step = self.step.as_ref();
        Some(match order.form {
            Form::Png(scale) => Material::Pixels(self.on_paper(wanted), f32::from(scale)),
            Form::Svg => Material::Vector(self.on_paper(wanted)),
            Form::Gif => {
                let film = self.film()?;
                let (sender, drawings) = channel();
                let count = film.instants.len();
                let instants = film.instants.into_iter();
                self.exporting.film = Some(Rest { wanted, instants, count, sender });
                Material::Film(drawings, film.centiseconds)
            }
            Form::Csv => Material::Csv(shown(step?)),
            Form::Jsonl => Material::Jsonl(shown(step?)),
            Form::Trace => Material::Trace(shown(step?)),
            Form::TraceOfRanks => Material::TraceOfRanks(shown(step?)),
        })
    }

    fn on_paper(&mut self, wanted: Wanted) -> Drawing {
        let paper = self.exporting.paper.take().unwrap_or_default();
        let drawing = self.drawing(&paper, wanted);
        self.exporting.paper = Some(paper);
        drawing
    }

    /// Draws the next picture of an animation, and hears what has come of the export.
    pub(super) fn go_on_exporting(&mut self, ctx: &egui::Context) {
        if let Some(mut film) = self.exporting.film.take()
            && let Some(at) = film.instants.next()
        {
            let drawing = self.on_paper(Wanted { at: Some(at), ..film.wanted });
            let (left, count) = (film.instants.len(), film.count);
            self.notice =
                Some(format!("Drawing the animation: {} of {count} …", count - left).into());
            // An export that has failed meanwhile takes no more of them.
            if film.sender.send(drawing).is_ok() && left > 0 {
                self.exporting.film = Some(film);
            }
            ctx.request_repaint();
        }
        let Some(answer) = self.exporting.job.as_ref().and_then(Job::answer) else { return };
        (self.exporting.job, self.exporting.film) = (None, None);
        match answer {
            Ok(written) => {
                let said = format!("Saved {} to {}", written.bytes, written.path.display());
                self.notice = Some(said.clone().into());
                self.exporting.written = Some((said, written.path));
            }
            Err(error) => self.notice = Some(Notice::failure(error.to_string())),
        }
    }

    /// Puts the path of the last export where it can be pasted.
    pub(super) fn copy_path(&mut self, ctx: &egui::Context) {
        if let Some((_, path)) = &self.exporting.written {
            ctx.copy_text(path.display().to_string());
        }
    }
}

/// A step, or a part of it, for an export.
fn shown(step: &Step, stretch: Option<Span>) -> Shown {
    let (facts, trace) = (&step.facts, step.timeline.trace());
    Shown { facts: Arc::clone(facts), trace: Arc::clone(trace), stretch }
}
