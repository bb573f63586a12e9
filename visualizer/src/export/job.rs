//! Makes a file beside the window: on a thread of its own, from what the window has handed over.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use shardlab::ledger;
use shardlab::trace::export::kineto::{Kineto, Size};
use shardlab::trace::export::rows::{Detail, Row, rows, within};
use shardlab::trace::export::{csv, jsonl};
use shardlab::trace::{Clock, Span, Trace};
use shardlab::train::driver::Facts;
use shardlab::units::Bytes;

use super::drawing::Drawing;
use super::order::Existing;
use super::{ExportError, film, write, write_with};

/// What a file is made from.
#[derive(Debug)]
pub enum Material {
    /// A picture in pixels, so many to a point.
    Pixels(Drawing, f32),
    /// A vector picture.
    Vector(Drawing),
    /// The pictures of an animation, as they come, and for how long each is shown.
    Film(Receiver<Drawing>, u16),
    /// A table of a step.
    Csv(Shown),
    /// The same, one object a line.
    Jsonl(Shown),
    /// A trace of all ranks.
    Trace(Shown),
    /// A trace of each rank, in a folder.
    TraceOfRanks(Shown),
}

/// The step on the screen.
#[derive(Clone, Debug)]
pub struct Shown {
    /// What does not change from step to step.
    pub facts: Arc<Facts>,
    /// Its times.
    pub trace: Arc<Trace>,
    /// Which part of it; all if not said.
    pub stretch: Option<Span>,
}

/// A file that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Where it is.
    pub path: PathBuf,
    /// How large it is; of a folder, all its files.
    pub bytes: Bytes,
}

/// An export that runs.
#[derive(Debug)]
pub struct Job(Receiver<Result<Written, ExportError>>);

impl Job {
    /// Starts it; `wake` is called at its end.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn start(
        path: PathBuf,
        existing: Existing,
        material: Material,
        wake: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let (answer, answers) = channel();
        let work = move || {
            // Nobody listens any more if the window was closed meanwhile.
            answer.send(make(&path, existing, material)).ok();
            wake();
        };
        std::thread::Builder::new().name("export".into()).spawn(work)?;
        Ok(Self(answers))
    }

    /// What has come of it; `None` while it runs.
    pub fn answer(&self) -> Option<Result<Written, ExportError>> {
        match self.0.try_recv() {
            Ok(answer) => Some(answer),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                Some(Err(ExportError::Encoding("the export has ended without a result".into())))
            }
        }
    }
}

/// Makes a file.
///
/// # Errors
/// If it cannot be made or written, or is there and must not be replaced.
pub fn make(path: &Path, existing: Existing, material: Material) -> Result<Written, ExportError> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let is_free = || match existing {
        Existing::Kept if path.exists() => Err(ExportError::Exists { path: path.clone() }),
        Existing::Kept | Existing::Replaced => Ok(()),
    };
    // Told before the work as well as after it.
    is_free()?;
    let bytes = match material {
        Material::Pixels(drawing, scale) => drawing.image(scale)?.png()?,
        Material::Vector(drawing) => drawing.svg(1.0).into_bytes(),
        Material::Film(drawings, centiseconds) => {
            let drawings: Vec<Drawing> = drawings.iter().collect();
            film::develop(&drawings, centiseconds, |_| ())?
        }
        Material::Csv(shown) => shown.table(csv::table).into_bytes(),
        Material::Jsonl(shown) => shown.table(jsonl::lines).into_bytes(),
        Material::Trace(shown) => {
            let bytes = shown.traces(&path, false)?;
            return Ok(Written { path, bytes });
        }
        Material::TraceOfRanks(shown) => {
            let bytes = shown.traces(&path, true)?;
            return Ok(Written { path, bytes });
        }
    };
    is_free()?;
    write(&path, &bytes)?;
    Ok(Written { path, bytes: Bytes(bytes.len() as u64) })
}

impl Shown {
    fn table(&self, format: fn(&[Row], Clock) -> String) -> String {
        let Self { facts, trace, stretch } = self;
        let rows = rows(&facts.plan, &facts.order, trace, Detail::Blocks);
        format(&within(rows, *stretch), trace.clock)
    }

    /// The step in the form of trace viewers.
    fn kineto<T>(&self, read: impl FnOnce(Kineto<'_>) -> T) -> T {
        let plan = &self.facts.plan;
        let devices: Vec<String> = self.facts.devices.iter().map(|d| d.name.clone()).collect();
        let memory = ledger::live(plan);
        read(Kineto::new(plan, &self.trace, &devices, &memory))
    }

    /// How large a trace of all ranks will be about, and one of the stretch.
    pub fn estimates(&self) -> (Size, Option<Size>) {
        self.kineto(|kineto| {
            let whole = kineto.estimate();
            (whole, self.stretch.map(|stretch| kineto.within(Some(stretch)).estimate()))
        })
    }

    /// Writes all ranks into a file, or a file for each into a folder; how many bytes.
    fn traces(&self, path: &Path, of_ranks: bool) -> Result<Bytes, ExportError> {
        self.kineto(|kineto| {
            let kineto = kineto.within(self.stretch);
            if !of_ranks {
                return write_with(path, |out| kineto.write_all(out)).map(|size| size.bytes);
            }
            let files = self.facts.plan.mesh.ranks().map(|rank| {
                let file = path.join(format!("rank{rank}.pt.trace.json"));
                write_with(&file, |out| kineto.write_rank(rank, out)).map(|size| size.bytes)
            });
            files.sum()
        })
    }
}
