//! Which schedules there are by name, and the table of a layout: one of them, or a file's.

use std::collections::BTreeSet;

use super::csv::{self, CsvError};
use super::dual_pipe_v::dual_pipe_v;
use super::gpipe::gpipe;
use super::interleaved_1f1b::interleaved_1f1b;
use super::interleaved_zero_bubble::interleaved_zero_bubble;
use super::looped_bfs::looped_bfs;
use super::one_f_one_b::one_f_one_b;
use super::zb_h1::zb_h1;
use super::zb_h2::zb_h2;
use super::zb_v::zb_v;
use super::{Act, Schedule};
use crate::config::schedule::Stages;
use crate::config::{Layout, ScheduleName};
use crate::planner::PlanError;

/// The table of a named schedule for pipeline positions, stages a position and microbatches;
/// `None` for a file.
///
/// # Panics
/// If a size is zero. The stages a position must be those that [`ScheduleName::stages`] allows:
/// others are taken for 1, or for 2 in a V.
pub fn named(
    name: &ScheduleName,
    positions: u32,
    chunks: u32,
    microbatches: u32,
) -> Option<Schedule> {
    assert!(positions > 0 && chunks > 0 && microbatches > 0, "a schedule of nothing");
    Some(match name {
        ScheduleName::GPipe => gpipe(positions, microbatches),
        ScheduleName::OneFOneB => one_f_one_b(positions, microbatches),
        ScheduleName::Interleaved1F1B => interleaved_1f1b(positions, chunks, microbatches),
        ScheduleName::LoopedBfs => looped_bfs(positions, chunks, microbatches),
        ScheduleName::ZbH1 => zb_h1(positions, microbatches),
        ScheduleName::ZbH2 => zb_h2(positions, microbatches),
        ScheduleName::InterleavedZeroBubble => {
            interleaved_zero_bubble(positions, chunks, microbatches)
        }
        ScheduleName::ZbV => zb_v(positions, microbatches),
        ScheduleName::DualPipeV => dual_pipe_v(positions, microbatches),
        ScheduleName::File(_) => return None,
    })
}

/// The table of a layout.
///
/// # Errors
/// If the schedule does not take so many stages a position, or if its file cannot be read.
///
/// # Panics
/// If a size is zero.
pub fn table(layout: &Layout) -> Result<Schedule, PlanError> {
    let Layout { schedule: name, pp, chunks, microbatches, .. } = layout;
    let takes = match name.stages() {
        Stages::One => *chunks == 1,
        Stages::V => *chunks == 2,
        Stages::Loop | Stages::Given => true,
    };
    if !takes {
        return Err(PlanError::Chunks { schedule: name.clone(), chunks: *chunks });
    }
    if let ScheduleName::File(path) = name {
        return read(path);
    }
    let table = named(name, *pp, *chunks, *microbatches);
    Ok(table.expect("only files have no table"))
}

fn read(path: &std::path::Path) -> Result<Schedule, PlanError> {
    let unreadable =
        |why: String| PlanError::ScheduleFile { path: path.display().to_string(), why };
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
    let parsed = csv::parse(&text);
    let schedule = parsed.map_err(|error: CsvError| unreadable(error.to_string()))?;
    if schedule.rows.is_empty() {
        return Err(unreadable("it is empty".into()));
    }
    Ok(schedule)
}

impl Schedule {
    /// Number of microbatches: one more than the highest that any row runs.
    pub fn microbatch_count(&self) -> u32 {
        let acts = self.rows.iter().flatten().flat_map(|cell| cell.acts());
        acts.map(|Act { microbatch, .. }| microbatch.saturating_add(1)).max().unwrap_or(0)
    }

    /// Number of different stages in all rows: that of the stages, if none is left out.
    pub fn distinct_stage_count(&self) -> u32 {
        self.distinct(|act| act.stage)
    }

    /// Number of different microbatches in all rows.
    pub fn distinct_microbatch_count(&self) -> u32 {
        self.distinct(|act| act.microbatch)
    }

    fn distinct(&self, of: impl Fn(Act) -> u32) -> u32 {
        let acts = self.rows.iter().flatten().flat_map(|cell| cell.acts());
        acts.map(of).collect::<BTreeSet<u32>>().len() as u32
    }

    /// The named schedule that has these very cells, the simplest if there are several.
    pub fn known(&self) -> Option<ScheduleName> {
        let positions = u32::try_from(self.rows.len()).ok().filter(|rows| *rows > 0)?;
        let (stages, microbatches) = (self.stage_count(), self.microbatch_count());
        if stages == 0 || !stages.is_multiple_of(positions) {
            return None;
        }
        let chunks = stages / positions;
        // Numbers from a file may be anything: a table of that many cells is not built to compare.
        let cells: usize = self.rows.iter().map(Vec::len).sum();
        if u64::from(stages) * u64::from(microbatches) > cells as u64 {
            return None;
        }
        let fits = |name: &&ScheduleName| name.stages().allows(chunks);
        let is_this = |name: &&ScheduleName| {
            named(name, positions, chunks, microbatches).as_ref() == Some(self)
        };
        ScheduleName::NAMED.iter().filter(fits).find(is_this).cloned()
    }
}
