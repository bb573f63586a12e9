//! Pictures in files: the timeline of a schedule in textbook units (`plan --svg`), and of a step
//! (`simulate --svg`).

use std::path::Path;

use super::Failure;
use super::output::{self, OutputFile};
use crate::planner::schedule::Schedule;
use crate::planner::schedule::unit_time::UnitTimes;
use crate::sim::textbook;
use crate::trace::Badge;
use crate::trace::draw::export::Export;
use crate::trace::draw::theme::Theme;
use crate::trace::draw::timeline::{Frame, Timeline};
use crate::units::Nanos;

/// Writes the picture.
///
/// # Errors
/// If the file cannot be written.
///
/// # Panics
/// If the schedule hangs: ask its `check` first.
pub(super) fn write(
    path: &Path,
    (schedule, times): (&Schedule, &UnitTimes),
    title: &str,
) -> Result<(), Failure> {
    let timeline = textbook::timeline(schedule);
    let caption = format!(
        "A row is a pipeline position: colour works, hatching waits. \
         {} units, waiting {:.1} % of them.",
        times.span,
        100.0 * times.waiting_over_span()
    );
    // Wide enough for the names of the shortest passes, as far as that makes sense.
    let name = 1 + schedule.microbatch_count().saturating_sub(1).to_string().len();
    let stage = if schedule.stage_count() as usize > 2 * schedule.rows.len() { 4 } else { 0 };
    let unit = 8.0 * (name + stage) as f32 + 8.0;
    let picture = Picture { title, caption: &caption, badge: Badge::Formula };
    picture.write(path, &timeline, 150.0 + unit * times.span as f32)
}

/// What stands around a timeline in a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Picture<'a> {
    /// What is shown.
    pub(super) title: &'a str,
    /// A sentence about it.
    pub(super) caption: &'a str,
    /// Where its times come from.
    pub(super) badge: Badge,
}

impl Picture<'_> {
    /// Writes a whole timeline, about as wide as is wished.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn write(self, path: &Path, timeline: &Timeline, width: f32) -> Result<(), Failure> {
        let Self { title, caption, badge } = self;
        let export = Export { title, caption, width: width.clamp(960.0, 4_000.0), scale: 1.0 };
        let frame = Frame::new(Default::default(), (Nanos(0), timeline.end()), badge);
        OutputFile::create(path)?.write(&export.svg(&Theme::LIGHT, timeline, &frame))?;
        output::wrote(path);
        Ok(())
    }
}
