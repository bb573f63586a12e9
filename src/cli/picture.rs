//! `shardlab plan --svg`: the timeline of a schedule in textbook units, as a picture in a file.

use std::path::Path;

use super::Failure;
use super::output::OutputFile;
use crate::planner::schedule::Schedule;
use crate::planner::schedule::unit_time::UnitTimes;
use crate::sim::textbook::timeline;
use crate::trace::Badge;
use crate::trace::draw::export::Export;
use crate::trace::draw::theme::Theme;
use crate::trace::draw::timeline::Frame;
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
    let timeline = timeline(schedule);
    let caption = format!(
        "A row is a pipeline position: colour works, hatching waits. \
         {} units, waiting {:.1} % of them.",
        times.span,
        100.0 * times.waiting_over_span()
    );
    // Wide enough for the names of all blocks, as far as that makes sense.
    let passes = schedule.rows.iter().map(|row| 3 * row.len()).max().unwrap_or(0);
    let width = (132.0 + 10.0 * passes as f32).clamp(960.0, 4_000.0);
    let export = Export { title, caption: &caption, width, scale: 1.0 };
    let frame = Frame::new(Default::default(), (Nanos(0), timeline.end()), Badge::Formula);
    let svg = export.svg(&Theme::LIGHT, &timeline, &frame);
    OutputFile::create(path)?.write(&svg)
}
