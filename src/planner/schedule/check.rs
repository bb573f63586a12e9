//! Says what is wrong with a schedule, all of it and in words.
//!
//! A table is right if every stage lives in one row, every microbatch passes forward and backward
//! through every stage once, and no rows wait for one another. Whether its messages can wait for
//! one another is a question about a Plan: see `plan::check`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::unit_time::{Done, Stuck, kept_at_peak, walk};
use super::{Act, Cell, Pass, Schedule};

/// Something wrong with a schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleFault {
    /// A pipeline position without work.
    #[error("row {row} runs nothing: give it a stage, or use fewer pipeline positions")]
    IdleRow {
        /// The row.
        row: u32,
    },
    /// A stage that no row runs.
    #[error("stage {stage} is in no row: each of the {stages} stages must be in exactly one")]
    StageWithoutRow {
        /// The stage.
        stage: u32,
        /// Number of stages.
        stages: u32,
    },
    /// A stage that several rows run.
    #[error("stage {stage} is in rows {}: its weights can only be in one", list(rows))]
    StageInSeveralRows {
        /// The stage.
        stage: u32,
        /// The rows that run it.
        rows: Vec<u32>,
    },
    /// A stage that the model does not have.
    #[error("row {row}: stage {stage} does not exist ({})", counted(*stages, "stage", "stages"))]
    UnknownStage {
        /// The row.
        row: u32,
        /// The stage.
        stage: u32,
        /// Number of stages.
        stages: u32,
    },
    /// A stage whose passes are not those of the microbatches.
    #[error(transparent)]
    Passes(#[from] PassesFault),
    /// A pair whose passes need each other.
    #[error(
        "row {row}: {pair} pairs microbatch {microbatch} with itself: its passes need one another. \
         Pair two microbatches",
        microbatch = pair.acts().next().map_or(0, |act| act.microbatch)
    )]
    PairWithItself {
        /// The row.
        row: u32,
        /// The pair.
        pair: Cell,
    },
    /// A row that keeps more activations than there is room for.
    #[error(
        "row {row} keeps {} at once, but {have} fit. Use a schedule that keeps fewer, more \
         microbatches of fewer rows, or recompute",
        kept(stages)
    )]
    Activations {
        /// The row.
        row: u32,
        /// Its stages, and the microbatches that each of them keeps at the row's peak.
        stages: Vec<(u32, u32)>,
        /// Activations of one microbatch in one stage for which there is room.
        have: u32,
    },
    /// Rows that wait for one another.
    #[error("rows wait for one another: {}", Waits(cycle))]
    Deadlock {
        /// Each waits for the next one's row, the last for the first's.
        cycle: Vec<Wait>,
    },
}

/// What is wrong with the passes of one stage; each microbatch needs one F and either one B or
/// one I and one W.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("stage {stage}: {}", self.in_words())]
pub struct PassesFault {
    /// The stage.
    pub stage: u32,
    /// Number of microbatches.
    pub microbatches: u32,
    /// Microbatches without what is named.
    pub missing: BTreeMap<Missing, Vec<u32>>,
    /// Microbatches that run forward more than once.
    pub forward_again: Vec<u32>,
    /// Microbatches that run backward, or a half of it, more than once.
    pub backward_again: Vec<u32>,
    /// Microbatches that do not exist.
    pub unknown: Vec<u32>,
}

/// A pass that a microbatch lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Missing {
    /// F.
    Forward,
    /// B, or I and W.
    Backward,
    /// I, where W is there.
    InputGrad,
    /// W, where I is there.
    WeightGrad,
}

/// A row that stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The row.
    pub row: u32,
    /// The pass at which it stands.
    pub at: Act,
    /// The pass that it needs.
    pub needs: Act,
    /// The row in which that comes later.
    pub in_row: u32,
}

impl Schedule {
    /// All faults of the schedule for a model of `stages` and a step of `microbatches`; deadlocks
    /// only if there is no other fault.
    pub fn check(&self, stages: u32, microbatches: u32) -> Vec<ScheduleFault> {
        let mut faults = Vec::new();
        let mut rows_of: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        let mut counts: BTreeMap<u32, BTreeMap<u32, Counts>> = BTreeMap::new();
        for row in 0..self.rows.len() {
            if self.rows[row].is_empty() {
                faults.push(ScheduleFault::IdleRow { row: row as u32 });
            }
            let with_itself = self.rows[row].iter().filter(
                |cell| matches!(cell, Cell::Pair(one, other) if one.microbatch == other.microbatch),
            );
            faults.extend(
                with_itself.map(|&pair| ScheduleFault::PairWithItself { row: row as u32, pair }),
            );
            for Act { stage, pass, microbatch } in self.acts(row) {
                rows_of.entry(stage).or_default().insert(row as u32);
                counts.entry(stage).or_default().entry(microbatch).or_default().add(pass);
            }
        }
        for stage in (0..stages).filter(|stage| !rows_of.contains_key(stage)) {
            faults.push(ScheduleFault::StageWithoutRow { stage, stages });
        }
        for (&stage, rows) in &rows_of {
            if stage >= stages {
                let unknown = |&row| ScheduleFault::UnknownStage { row, stage, stages };
                faults.extend(rows.iter().map(unknown));
                continue;
            }
            if rows.len() > 1 {
                let rows = rows.iter().copied().collect();
                faults.push(ScheduleFault::StageInSeveralRows { stage, rows });
            }
            let passes = PassesFault::new(stage, microbatches, &counts[&stage]);
            faults.extend(passes.map(ScheduleFault::Passes));
        }
        if faults.is_empty() {
            let stuck = walk(self, |_| 1).err();
            faults.extend(stuck.map(|stuck| ScheduleFault::Deadlock { cycle: self.cycle(&stuck) }));
        }
        faults
    }

    /// The rows of a schedule that keep the activations of more microbatches and stages at once than
    /// `have`, each with what its stages keep at that moment.
    pub fn check_activations(&self, have: u32) -> Vec<ScheduleFault> {
        let rows = (0..).zip(0..self.rows.len());
        let faults = rows.filter_map(|(row, index)| {
            let stages = kept_at_peak(self.acts(index));
            let need: u32 = stages.iter().map(|(_, kept)| kept).sum();
            (need > have).then_some(ScheduleFault::Activations { row, stages, have })
        });
        faults.collect()
    }

    /// Who waits for whom, in a circle: every stuck row needs a pass of a stuck row.
    fn cycle(&self, stuck: &[Stuck]) -> Vec<Wait> {
        let find = |done: Done| {
            let by = |row| self.acts(row).find(|&act| Done::by(act) == Some(done));
            let found = (0..self.rows.len()).find_map(|row| Some((row, by(row)?)));
            found.expect("no pass is missing, or that fault would have been found before")
        };
        let wait = |row: usize| {
            let stuck = stuck.iter().find(|stuck| stuck.row == row);
            let stuck = stuck.expect("what is needed comes later in a row that is stuck itself");
            let (in_row, needs) = find(stuck.needs);
            Wait { row: row as u32, at: stuck.at, needs, in_row: in_row as u32 }
        };
        let mut waits = vec![wait(stuck[0].row)];
        loop {
            let next = waits[waits.len() - 1].in_row;
            if let Some(start) = waits.iter().position(|wait| wait.row == next) {
                return waits.split_off(start);
            }
            waits.push(wait(next as usize));
        }
    }
}

/// How often a microbatch passes through a stage.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    f: u32,
    b: u32,
    i: u32,
    w: u32,
}

impl Counts {
    fn add(&mut self, pass: Pass) {
        match pass {
            Pass::F => self.f += 1,
            Pass::B => self.b += 1,
            Pass::I => self.i += 1,
            Pass::W => self.w += 1,
        }
    }

    fn missing(self) -> impl Iterator<Item = Missing> {
        let forward = (self.f == 0).then_some(Missing::Forward);
        let backward = match (self.b, self.i, self.w) {
            (0, 0, 0) => Some(Missing::Backward),
            (0, 0, _) => Some(Missing::InputGrad),
            (0, _, 0) => Some(Missing::WeightGrad),
            _ => None,
        };
        forward.into_iter().chain(backward)
    }
}

impl PassesFault {
    fn new(stage: u32, microbatches: u32, counts: &BTreeMap<u32, Counts>) -> Option<Self> {
        let mut fault = Self { stage, microbatches, ..Self::default() };
        for microbatch in 0..microbatches {
            let counts = counts.get(&microbatch).copied().unwrap_or_default();
            for missing in counts.missing() {
                fault.missing.entry(missing).or_default().push(microbatch);
            }
            if counts.f > 1 {
                fault.forward_again.push(microbatch);
            }
            if counts.b + counts.i > 1 || counts.b + counts.w > 1 {
                fault.backward_again.push(microbatch);
            }
        }
        fault.unknown = counts.range(microbatches..).map(|(&microbatch, _)| microbatch).collect();
        (fault != Self { stage, microbatches, ..Self::default() }).then_some(fault)
    }

    fn in_words(&self) -> String {
        let are = |some: &[u32], one: &str, more: &str| {
            let (word, verb) = if some.len() == 1 { ("", one) } else { ("es", more) };
            format!("microbatch{word} {} {verb}", list(some))
        };
        let mut parts = Vec::new();
        for (missing, some) in &self.missing {
            let is = format!("is missing its {missing}");
            parts.push(are(some, &is, &format!("are missing their {missing}")));
        }
        let again = [(&self.forward_again, "forward"), (&self.backward_again, "backward")];
        for (some, pass) in again.into_iter().filter(|(some, _)| !some.is_empty()) {
            let (one, more) = (format!("runs {pass} again"), format!("run {pass} again"));
            parts.push(are(some, &one, &more));
        }
        if !self.unknown.is_empty() {
            let which = counted(self.microbatches, "microbatch", "microbatches");
            let exist = are(&self.unknown, "does not exist", "do not exist");
            parts.push(format!("{exist} ({which})"));
        }
        parts.join("; ")
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::InputGrad => "input gradient (I)",
            Self::WeightGrad => "weight gradient (W)",
        })
    }
}

/// Waits in words: who stands where, and for what.
struct Waits<'a>(&'a [Wait]);

impl fmt::Display for Waits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Wait { row, at, needs, in_row }) in self.0.iter().enumerate() {
            let comma = if index > 0 { "; " } else { "" };
            write!(
                f,
                "{comma}row {row} stands at {at} for {needs}, which comes later in row {in_row}"
            )?;
        }
        Ok(())
    }
}

/// `4 microbatches of stage 0, 1 of stage 7`.
pub(crate) fn kept(stages: &[(u32, u32)]) -> String {
    let mut words = Vec::new();
    for (number, (stage, count)) in stages.iter().enumerate() {
        let what = match (number, count) {
            (0, 1) => "1 microbatch".to_owned(),
            (0, _) => format!("{count} microbatches"),
            _ => count.to_string(),
        };
        words.push(format!("{what} of stage {stage}"));
    }
    words.join(", ")
}

/// Ascending numbers for people: `0–3, 5`.
fn list(numbers: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let run = |(first, last)| {
        if first == last { format!("{first}") } else { format!("{first}–{last}") }
    };
    runs.into_iter().map(run).collect::<Vec<_>>().join(", ")
}

/// `7 microbatches: 0–6`.
fn counted(count: u32, one: &str, many: &str) -> String {
    match count {
        0 => format!("no {many}"),
        1 => format!("1 {one}: 0"),
        _ => format!("{count} {many}: 0–{}", count - 1),
    }
}
