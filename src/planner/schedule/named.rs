//! Which schedules there are by name, what positions hold by them, and the table of a layout: one of
//! them, or a file's.

use std::collections::BTreeSet;

use super::csv::{self, CsvError};
use super::dual_pipe_v::dual_pipe_v;
use super::gpipe::gpipe;
use super::interleaved_1f1b::{self, interleaved_1f1b};
use super::interleaved_zero_bubble::{self, interleaved_zero_bubble};
use super::looped_bfs::looped_bfs;
use super::one_f_one_b::one_f_one_b;
use super::unit_time::in_flight_peaks;
use super::zb_h1::zb_h1;
use super::zb_h2::{self, zb_h2};
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

/// What a pipeline position holds and keeps by a schedule, whatever the sizes of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its stages, ascending.
    pub stages: Vec<u32>,
    /// The most microbatches of these stages that wait for their backward.
    pub in_flight: u32,
}

impl Held {
    /// By position, from the table of the whole step.
    pub fn of(table: &Schedule) -> Vec<Self> {
        let kept = in_flight_peaks(table);
        let mut held: Vec<Self> =
            kept.iter().map(|kept| Self { stages: Vec::new(), in_flight: *kept }).collect();
        for (stage, owner) in (0..).zip(table.owners()) {
            held[owner as usize].stages.push(stage);
        }
        held
    }
}

/// What each pipeline position holds and keeps by a named schedule; `None` for a file. Sizes as in
/// [`named`].
///
/// The table says the same, but is as long as the step: where a schedule's own file knows how much
/// runs ahead, no table is written.
///
/// # Panics
/// As [`named`].
pub fn held(
    name: &ScheduleName,
    positions: u32,
    chunks: u32,
    microbatches: u32,
) -> Option<Vec<Held>> {
    let sizes = [positions, chunks, microbatches];
    let one = [positions, 1, microbatches];
    let in_loop = |most_kept: &dyn Fn(u32) -> u32, chunks: u32| {
        let position = |position| Held {
            stages: (0..chunks).map(|chunk| position + chunk * positions).collect(),
            in_flight: most_kept(position),
        };
        (0..positions).map(position).collect()
    };
    Some(match name {
        ScheduleName::GPipe => in_loop(&|_| microbatches, 1),
        ScheduleName::OneFOneB => in_loop(&|at| interleaved_1f1b::most_kept(at, one), 1),
        ScheduleName::Interleaved1F1B => {
            in_loop(&|at| interleaved_1f1b::most_kept(at, sizes), chunks)
        }
        ScheduleName::LoopedBfs => in_loop(&|_| chunks * microbatches, chunks),
        ScheduleName::ZbH1 => in_loop(&|at| interleaved_zero_bubble::most_kept(at, one), 1),
        ScheduleName::ZbH2 => in_loop(&|at| zb_h2::most_kept(at, positions, microbatches), 1),
        ScheduleName::InterleavedZeroBubble => {
            in_loop(&|at| interleaved_zero_bubble::most_kept(at, sizes), chunks)
        }
        ScheduleName::ZbV | ScheduleName::DualPipeV => {
            Held::of(&named(name, positions, chunks, microbatches)?)
        }
        ScheduleName::File(_) => return None,
    })
}

/// Whether a schedule of several positions runs some weight gradients apart from input gradients;
/// `None` for a file.
pub const fn splits_backward(name: &ScheduleName) -> Option<bool> {
    match name {
        ScheduleName::GPipe
        | ScheduleName::OneFOneB
        | ScheduleName::Interleaved1F1B
        | ScheduleName::LoopedBfs => Some(false),
        ScheduleName::ZbH1
        | ScheduleName::ZbH2
        | ScheduleName::InterleavedZeroBubble
        | ScheduleName::ZbV
        | ScheduleName::DualPipeV => Some(true),
        ScheduleName::File(_) => None,
    }
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

    /// Number of stages that a file means: a number far beyond all others is a slip of the pen.
    pub fn meant_stage_count(&self) -> u32 {
        self.meant(self.stage_count(), |act| act.stage)
    }

    /// Number of microbatches that a file means.
    pub fn meant_microbatch_count(&self) -> u32 {
        self.meant(self.microbatch_count(), |act| act.microbatch)
    }

    fn meant(&self, count: u32, of: impl Fn(Act) -> u32) -> u32 {
        let acts = self.rows.iter().flatten().flat_map(|cell| cell.acts());
        let different = acts.map(of).collect::<BTreeSet<u32>>().len() as u32;
        if count > 2 * different { different } else { count }
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
