//! Explains a schedule: which one it is, how long it takes on paper, how much waits, what is kept.
//!
//! Formulas of the textbook stand beside what the table gives, where they hold exactly; a test
//! holds both against each other.

use super::unit_time::{UnitTimes, in_flight_peaks, stage_peaks, unit_times};
use super::{Act, Pass, Schedule};
use crate::config::ScheduleName;

/// What there is to say about a schedule that can run.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The named schedule with these cells.
    pub known: Option<ScheduleName>,
    /// When each cell runs, in the units of [`textbook`].
    pub times: UnitTimes,
    /// The work of the busiest row: the makespan if nobody ever waited.
    pub ideal: u64,
    /// What the textbook says of a known schedule, where its formula is exact.
    pub formula: Option<Formula>,
    /// The most microbatches that are in flight, by row; a row may hold several stages.
    pub row_peaks: Vec<u32>,
    /// The most microbatches that are in flight, by stage.
    pub stage_peaks: Vec<u32>,
}

/// The textbook's waiting of every row, in units of its work: equal stages, free messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Formula {
    /// Waiting over span, in words of p positions, m microbatches and v stages a position.
    pub over_span: &'static str,
    /// Waiting over ideal.
    pub over_ideal: &'static str,
    /// What a row waits.
    pub waiting: u64,
    /// What a row works, in the same unit.
    pub work: u64,
}

impl Formula {
    /// The share of the span in which rows wait.
    pub fn waiting_over_span(&self) -> f64 {
        self.waiting as f64 / (self.waiting + self.work) as f64
    }

    /// Waiting over the time that the work alone takes.
    pub fn waiting_over_ideal(&self) -> f64 {
        self.waiting as f64 / self.work as f64
    }

    /// The formula of a schedule for `positions`, stages a position and microbatches; `None` where
    /// none is known to be exact: with too few microbatches to fill the pipeline.
    pub fn of(name: &ScheduleName, positions: u32, chunks: u32, microbatches: u32) -> Option<Self> {
        let [p, v, m] = [positions, chunks, microbatches].map(u64::from);
        // (p−1) units of waiting beside `work` units of work, from `least` microbatches on.
        let (least, work, over_span, over_ideal) = match name {
            ScheduleName::GPipe | ScheduleName::OneFOneB => (1, m, "(p−1)/(m+p−1)", "(p−1)/m"),
            ScheduleName::Interleaved1F1B | ScheduleName::LoopedBfs => {
                (p, v * m, "(p−1)/(v·m+p−1)", "(p−1)/(v·m)")
            }
            ScheduleName::ZbH1 => (p, 3 * m, "(p−1)/(3m+p−1)", "(p−1)/(3m)"),
            ScheduleName::ZbH2 => (2 * p - 1, 3 * m, "(p−1)/(3m+p−1)", "(p−1)/(3m)"),
            ScheduleName::InterleavedZeroBubble => {
                (p, 3 * v * m, "(p−1)/(3v·m+p−1)", "(p−1)/(3v·m)")
            }
            ScheduleName::ZbV => (2 * p - 1, 6 * m, "(p−1)/(6m+p−1)", "(p−1)/(6m)"),
            ScheduleName::DualPipeV => (2 * p, 3 * m, "(p−1)/(3m+p−1)", "(p−1)/(3m)"),
            ScheduleName::File(_) => return None,
        };
        (m >= least).then_some(Self { over_span, over_ideal, waiting: p - 1, work })
    }
}

/// Units of the textbook: a full backward takes two, everything else one.
pub fn textbook(act: Act) -> u64 {
    match act.pass {
        Pass::B => 2,
        Pass::F | Pass::I | Pass::W => 1,
    }
}

impl Schedule {
    /// Explains the schedule; `None` if its rows wait for one another.
    ///
    /// ```
    /// use shardlab::planner::schedule::csv;
    /// let schedule = csv::parse("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n").unwrap();
    /// let explanation = schedule.explain().unwrap();
    /// assert_eq!(explanation.known.unwrap().to_string(), "1f1b");
    /// assert_eq!((explanation.times.span, explanation.stage_peaks), (9, vec![2, 1]));
    /// ```
    pub fn explain(&self) -> Option<Explanation> {
        let times = unit_times(self, textbook)?;
        let known = self.known();
        let positions = self.rows.len() as u32;
        let chunks = self.stage_count() / positions.max(1);
        let formula = known
            .as_ref()
            .and_then(|name| Formula::of(name, positions, chunks, self.microbatch_count()));
        let work = |row| self.acts(row).map(textbook).sum::<u64>();
        Some(Explanation {
            known,
            ideal: (0..self.rows.len()).map(work).max().unwrap_or(0),
            times,
            formula,
            row_peaks: in_flight_peaks(self),
            stage_peaks: stage_peaks(self),
        })
    }
}
