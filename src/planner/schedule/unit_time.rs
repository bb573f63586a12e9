//! Runs a schedule on paper: every pass takes a given time and messages take none.
//!
//! This is the arithmetic behind the textbook bubble; real and predicted times come from Traces.
//! A pass starts when its row is free and what it needs is done, so the result is unique.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{Act, Cell, Pass, Schedule};

/// When each cell of a schedule runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitTimes {
    /// Start and end of each cell, by row.
    pub rows: Vec<Vec<Range<u64>>>,
    /// From the start of the first cell to the end of the last one.
    pub span: u64,
    /// Time in which rows wait, of all rows together.
    pub waiting: u64,
    /// Time in which rows run cells, of all rows together.
    pub busy: u64,
}

impl UnitTimes {
    /// From the times of the single passes.
    fn new(schedule: &Schedule, passes: &[Vec<Range<u64>>]) -> Self {
        let row = |(cells, mut passes): (&Vec<Cell>, &[Range<u64>])| {
            let cell = |cell: &Cell| {
                let (mine, rest) = passes.split_at(cell.acts().count());
                passes = rest;
                mine[0].start..mine[mine.len() - 1].end
            };
            cells.iter().map(cell).collect()
        };
        let rows = schedule.rows.iter().zip(passes.iter().map(Vec::as_slice)).map(row).collect();
        let all = || passes.iter().flatten();
        let start = all().map(|pass| pass.start).min().unwrap_or(0);
        let span = all().map(|pass| pass.end).max().unwrap_or(0) - start;
        let busy = all().map(|pass| pass.end - pass.start).sum();
        Self { rows, span, waiting: span * passes.len() as u64 - busy, busy }
    }

    /// The share of the span in which rows wait: (p−1)/(m+p−1) for `GPipe` and 1F1B.
    pub fn waiting_over_span(&self) -> f64 {
        self.waiting as f64 / (self.waiting + self.busy).max(1) as f64
    }

    /// Waiting over the time that the work alone takes: (p−1)/m for `GPipe` and 1F1B.
    pub fn waiting_over_ideal(&self) -> f64 {
        self.waiting as f64 / self.busy.max(1) as f64
    }
}

/// Runs each pass as soon as it can run, for `time` of it; a pair takes both times.
///
/// `None` if rows wait for one another: [`Schedule::check`] says where.
///
/// ```
/// use shardlab::planner::schedule::{Pass, one_f_one_b::one_f_one_b, unit_time::unit_times};
/// let times = unit_times(&one_f_one_b(4, 8), |act| if act.pass == Pass::F { 1 } else { 2 });
/// assert_eq!(times.unwrap().span, 3 * (8 + 4 - 1));
/// ```
pub fn unit_times(schedule: &Schedule, time: impl Fn(Act) -> u64) -> Option<UnitTimes> {
    walk(schedule, time).ok()
}

/// The most microbatches of its stages that each row has run forward but not yet backward: a full
/// backward or the weight gradients free the activations.
pub fn in_flight_peaks(schedule: &Schedule) -> Vec<u32> {
    let peak = |row| {
        let (mut held, mut peak) = (0_u32, 0);
        for act in schedule.acts(row) {
            match act.pass {
                Pass::F => held += 1,
                Pass::B | Pass::W => held = held.saturating_sub(1),
                Pass::I => {}
            }
            peak = held.max(peak);
        }
        peak
    };
    (0..schedule.rows.len()).map(peak).collect()
}

/// What a pass must wait for; `last` is the last stage.
pub(super) fn needs(act: Act, last: u32) -> impl Iterator<Item = Done> {
    let Act { stage, pass, microbatch } = act;
    let done = |what, stage| Done { what, stage, microbatch };
    let (first, second) = match pass {
        Pass::F => (stage.checked_sub(1).map(|before| done(What::Forward, before)), None),
        Pass::B | Pass::I => (
            Some(done(What::Forward, stage)),
            (stage < last).then(|| done(What::InputGrad, stage + 1)),
        ),
        Pass::W => (Some(done(What::InputGrad, stage)), None),
    };
    first.into_iter().chain(second)
}

/// What a pass has done that others wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Done {
    what: What,
    stage: u32,
    microbatch: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Forward,
    InputGrad,
}

impl Done {
    /// By this pass, if others wait for it.
    pub(super) fn by(act: Act) -> Option<Self> {
        let what = match act.pass {
            Pass::F => What::Forward,
            Pass::B | Pass::I => What::InputGrad,
            Pass::W => return None,
        };
        Some(Self { what, stage: act.stage, microbatch: act.microbatch })
    }
}

/// A row that cannot go on: it stands at a pass and needs what is not done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stuck {
    pub(super) row: usize,
    pub(super) at: Act,
    pub(super) needs: Done,
}

/// As [`unit_times`], or the rows that are stuck.
pub(super) fn walk(
    schedule: &Schedule,
    time: impl Fn(Act) -> u64,
) -> Result<UnitTimes, Vec<Stuck>> {
    let last = schedule.stage_count().saturating_sub(1);
    let acts: Vec<Vec<Act>> =
        (0..schedule.rows.len()).map(|row| schedule.acts(row).collect()).collect();
    let mut done: BTreeMap<Done, u64> = BTreeMap::new();
    let mut times: Vec<Vec<Range<u64>>> = vec![Vec::new(); acts.len()];
    loop {
        let (mut stuck, mut moved) = (Vec::new(), false);
        for (row, (acts, times)) in acts.iter().zip(&mut times).enumerate() {
            for &act in &acts[times.len()..] {
                if let Some(needs) = needs(act, last).find(|need| !done.contains_key(need)) {
                    stuck.push(Stuck { row, at: act, needs });
                    break;
                }
                let ready = needs(act, last).map(|need| done[&need]).max();
                let free = times.last().map(|before| before.end);
                let start = ready.max(free).unwrap_or(0);
                let end = start + time(act);
                done.extend(Done::by(act).map(|what| (what, end)));
                times.push(start..end);
                moved = true;
            }
        }
        if stuck.is_empty() {
            return Ok(UnitTimes::new(schedule, &times));
        }
        if !moved {
            return Err(stuck);
        }
    }
}
