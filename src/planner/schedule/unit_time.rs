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
    /// From the times of the cells; a pair that runs in turn may wait inside.
    fn new(schedule: &Schedule, rows: Vec<Vec<Range<u64>>>, time: impl Fn(Act) -> u64) -> Self {
        let all = || rows.iter().flatten();
        let start = all().map(|cell| cell.start).min().unwrap_or(0);
        let span = all().map(|cell| cell.end).max().unwrap_or(0) - start;
        let busy = (0..rows.len()).flat_map(|row| schedule.acts(row)).map(time).sum();
        Self { span, waiting: span * rows.len() as u64 - busy, busy, rows }
    }

    /// Time in which rows wait between their first and their last cell, of all rows together: what
    /// remains of the waiting if the next step need not wait for the last row.
    pub fn waiting_inside(&self) -> u64 {
        let ends = self.rows.iter().filter_map(|row| Some(row.last()?.end - row.first()?.start));
        ends.sum::<u64>() - self.busy
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

/// Runs each cell as soon as it can run, for `time` of its passes. A pair takes the time of both,
/// starts when both can run and is done as a whole; where that would let rows wait for one another,
/// the passes of pairs run one after the other.
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

/// Whether the passes of every pair can run side by side: none needs what only runs if the other
/// one of its pair, or of another pair, has ended.
pub fn pairs_can_overlap(schedule: &Schedule) -> bool {
    run(schedule, &|_| 1).is_ok()
}

/// The most microbatches of its stages that each row has run forward but not yet backward: a full
/// backward or the weight gradients free the activations.
pub fn in_flight_peaks(schedule: &Schedule) -> Vec<u32> {
    let peak = |row| kept_at_peak(schedule.acts(row)).iter().map(|(_, kept)| kept).sum();
    (0..schedule.rows.len()).map(peak).collect()
}

/// The same for each stage by itself.
pub fn stage_peaks(schedule: &Schedule) -> Vec<u32> {
    let of = |stage| {
        let row = schedule.owner(stage).unwrap_or_default() as usize;
        let acts = schedule.acts(row).filter(|act| act.stage == stage);
        kept_at_peak(acts).iter().map(|(_, kept)| kept).sum()
    };
    (0..schedule.stage_count()).map(of).collect()
}

/// What is kept of each stage when passes in a row keep most: stage and microbatches, ascending.
pub fn kept_at_peak(acts: impl Iterator<Item = Act>) -> Vec<(u32, u32)> {
    let mut kept: BTreeMap<u32, u32> = BTreeMap::new();
    let (mut peak, mut most) = (BTreeMap::new(), 0);
    for act in acts {
        let count = kept.entry(act.stage).or_default();
        match act.pass {
            Pass::F => *count += 1,
            Pass::B | Pass::W => *count = count.saturating_sub(1),
            Pass::I => {}
        }
        let all: u32 = kept.values().sum();
        if all > most {
            (peak, most) = (kept.clone(), all);
        }
    }
    peak.into_iter().filter(|(_, kept)| *kept > 0).collect()
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
    let rows = run(schedule, &time).or_else(|_| {
        let rows = run(&schedule.in_turn(), &time)?.into_iter().zip(&schedule.rows).map(
            |(spans, cells)| {
                let mut spans = spans.into_iter();
                let whole = |cell: &Cell| {
                    let mut own = spans.by_ref().take(cell.acts().count());
                    let first = own.next().expect("a cell has a pass");
                    first.start..own.last().unwrap_or(first).end
                };
                cells.iter().map(whole).collect()
            },
        );
        Ok::<Vec<Vec<_>>, Vec<Stuck>>(rows.collect())
    })?;
    Ok(UnitTimes::new(schedule, rows, time))
}

/// When each cell runs if it starts as soon as all its passes can, by row; or the rows that are stuck.
fn run(
    schedule: &Schedule,
    time: &impl Fn(Act) -> u64,
) -> Result<Vec<Vec<Range<u64>>>, Vec<Stuck>> {
    let last = schedule.stage_count().saturating_sub(1);
    let mut done: BTreeMap<Done, u64> = BTreeMap::new();
    let mut times: Vec<Vec<Range<u64>>> = vec![Vec::new(); schedule.rows.len()];
    loop {
        let (mut stuck, mut moved) = (Vec::new(), false);
        for (row, (cells, times)) in schedule.rows.iter().zip(&mut times).enumerate() {
            for cell in &cells[times.len()..] {
                let missing = |act: Act| {
                    let needs = needs(act, last).find(|need| !done.contains_key(need))?;
                    Some(Stuck { row, at: act, needs })
                };
                if let Some(missing) = cell.acts().find_map(missing) {
                    stuck.push(missing);
                    break;
                }
                let ready = cell.acts().flat_map(|act| needs(act, last)).map(|need| done[&need]);
                let free = times.last().map(|before| before.end);
                let start = ready.max().max(free).unwrap_or(0);
                let end = start + cell.acts().map(time).sum::<u64>();
                done.extend(cell.acts().filter_map(Done::by).map(|what| (what, end)));
                times.push(start..end);
                moved = true;
            }
        }
        if stuck.is_empty() {
            return Ok(times);
        }
        if !moved {
            return Err(stuck);
        }
    }
}
