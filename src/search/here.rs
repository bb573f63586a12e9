//! The layouts of a scenario for the ranks of this machine: each planned as it would run, refused in
//! the planner's own words, and predicted from what `doctor --calibrate` measured.
//!
//! All of them are: planning takes milliseconds, and where ranks share a few cores nothing is known
//! of a step before its instructions are.

use std::mem::{Discriminant, discriminant};

use serde::Serialize;

use super::front::Point;
use super::parallel::in_parallel;
use super::simulated::Simulated;
use super::{Counts, Cut, Phase, Progress, Refusal, Space, Tell};
use crate::config::Layout;
use crate::config::workload::Precision;
use crate::ledger::Ledger;
use crate::planner::{PlanError, StepSpec, plan_step};
use crate::predict::here::{Calibration, HereError, predict_plan};
use crate::units::Bytes;

/// Layouts that are planned between two reports of progress.
const ROUND: usize = 16;

/// A search, to be [run](HereSearch::run).
#[derive(Clone, Copy, Debug)]
pub struct HereSearch<'a> {
    /// What is trained; all of its layout that is not searched stays.
    pub spec: &'a StepSpec,
    /// How many ranks.
    pub ranks: u32,
    /// What the machine was measured to take.
    pub calibration: &'a Calibration,
    /// Threads that plan; they change nothing but how long it takes.
    pub threads: usize,
}

/// A layout that runs here, and its prediction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HereCandidate {
    /// The layout.
    pub cut: Cut,
    /// All of it, to be trained.
    #[serde(skip)]
    pub layout: Layout,
    /// Predicted seconds of a step.
    pub step_seconds: f64,
    /// Bytes that the fullest rank places, counted in its Plan.
    pub memory_bytes: Bytes,
}

/// Layouts that were refused alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HereRefused {
    /// How many.
    pub count: u64,
    /// Why the first of them was.
    pub example: String,
}

/// What a search has found.
#[derive(Clone, Debug, PartialEq)]
pub struct HereFound {
    /// The fastest, at most [`super::BEST`].
    pub best: Vec<HereCandidate>,
    /// What no other layout beats in both time and memory, up to [`super::SLOWEST`] times the best.
    pub front: Vec<HereCandidate>,
    /// What has become of all layouts.
    pub counts: Counts,
    /// By reason.
    pub refused: Vec<HereRefused>,
    /// Whether the search came to its end.
    pub is_complete: bool,
}

/// Why a layout was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Why {
    Space(Refusal),
    Planner(Discriminant<PlanError>),
}

/// What came of a layout.
enum Looked {
    Refused(Why, String),
    /// Seconds and bytes.
    Predicted(f64, Bytes),
}

impl HereSearch<'_> {
    /// Searches. `tell` hears how far it is, and may end it.
    ///
    /// # Errors
    /// If a kernel of a layout was not measured.
    pub fn run(&self, tell: &mut Tell<'_>) -> Result<HereFound, HereError> {
        let space = self.space();
        let cuts = space.all();
        let all = cuts.len() as u64;
        let mut tell = |counts: Counts| tell(&Progress { phase: Phase::Simulating, counts });
        let mut counts = Counts { enumerated: all, open: all, ..Counts::default() };
        let mut refused: Vec<(Why, HereRefused)> = Vec::new();
        let mut simulated = Simulated::default();
        let mut is_complete = tell(counts).is_continue();
        for (round, some) in cuts.chunks(ROUND).enumerate() {
            if !is_complete {
                break;
            }
            let looked = in_parallel(self.threads, some, |cut| self.look_at(&space, cut));
            for (at, looked) in looked.into_iter().enumerate() {
                counts.open -= 1;
                match looked? {
                    Looked::Refused(why, example) => {
                        counts.refused += 1;
                        match refused.iter_mut().find(|(known, _)| *known == why) {
                            Some((_, known)) => known.count += 1,
                            None => refused.push((why, HereRefused { count: 1, example })),
                        }
                    }
                    Looked::Predicted(seconds, memory) => {
                        counts.simulated += 1;
                        let index = (round * ROUND + at) as u32;
                        let memory = memory.0 as f64;
                        simulated.insert(Point { seconds, memory, index });
                    }
                }
            }
            is_complete = tell(counts).is_continue() || counts.open == 0;
        }
        let candidate = |point: &Point| {
            let cut = cuts[point.index as usize].clone();
            HereCandidate {
                layout: self.layout(&space, &cut),
                cut,
                step_seconds: point.seconds,
                memory_bytes: Bytes(point.memory as u64),
            }
        };
        Ok(HereFound {
            best: simulated.best.iter().map(candidate).collect(),
            front: simulated.front().map(candidate).collect(),
            counts,
            refused: refused.into_iter().map(|(_, refused)| refused).collect(),
            is_complete,
        })
    }

    fn space(&self) -> Space {
        let training = &self.spec.training;
        Space {
            model: (&self.spec.model).into(),
            gpus: self.ranks,
            batch: training.batch,
            seq: training.seq.into(),
            precision: Precision::Half,
        }
    }

    fn layout(&self, space: &Space, cut: &Cut) -> Layout {
        Layout {
            dp: cut.dp,
            tp: cut.tp,
            pp: cut.pp,
            chunks: cut.chunks,
            zero: cut.zero,
            schedule: cut.schedule.clone(),
            microbatches: space.microbatches(cut),
            recompute: cut.recompute,
            sequence_parallel: cut.sequence_parallel,
            stage_units: None,
            ..self.spec.layout.clone()
        }
    }

    fn look_at(&self, space: &Space, cut: &Cut) -> Result<Looked, HereError> {
        if let Some(refusal) = space.refuses_batch(cut) {
            return Ok(Looked::Refused(Why::Space(refusal), space.example(refusal, cut)));
        }
        let spec = StepSpec { layout: self.layout(space, cut), ..self.spec.clone() };
        let plan = match plan_step(&spec) {
            Ok(plan) => plan,
            Err(error) => {
                let why = Why::Planner(discriminant(&error));
                return Ok(Looked::Refused(why, error.to_string()));
            }
        };
        let seconds = predict_plan(&plan, self.calibration)?.end().as_secs();
        let ranks = Ledger::of(&plan).ranks;
        let memory = ranks.iter().map(|rank| rank.memory.peak()).max();
        Ok(Looked::Predicted(seconds, memory.unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    //! A machine on which a unit of every kernel takes a nanosecond, and every layout looked at twice.
    use std::ops::ControlFlow;

    use super::*;
    use crate::config::{Model, Training, ZeroStage};
    use crate::plan::Action;
    use crate::predict::here::{Curve, Sizes};
    use crate::sim::Workers;
    use crate::units::Nanos;

    fn spec() -> StepSpec {
        StepSpec {
            model: Model::preset("tiny").unwrap(),
            layout: Layout::default(),
            training: Training { batch: 8, seq: 8, ..Training::default() },
            purpose: crate::planner::Purpose::Train,
            device_kinds: Vec::new(),
        }
    }

    fn unmeasured() -> Calibration {
        let workers = Workers { count: 2, wake: Nanos(0), patience: Nanos(0) };
        Calibration::new("by hand".into(), &workers, u64::MAX)
    }

    /// Every layout that the planner takes, with its Plan; and the machine, measured for all of them.
    fn all(search: &HereSearch<'_>) -> (Vec<(Cut, crate::plan::Plan)>, Calibration) {
        let space = search.space();
        let (mut plans, mut calibration) = (Vec::new(), search.calibration.clone());
        for cut in space.all() {
            if space.refuses_batch(&cut).is_none() {
                let layout = search.layout(&space, &cut);
                let spec = StepSpec { layout, ..search.spec.clone() };
                plans.extend(plan_step(&spec).ok().map(|plan| (cut, plan)));
            }
        }
        let launches = plans.iter().flat_map(|(_, plan)| &plan.programs);
        let launches = launches.flat_map(|program| &program.instrs).filter_map(|instr| {
            let Action::Launch { op, .. } = &instr.action else { return None };
            Sizes::of(op)
        });
        for sizes in launches.chain([Sizes::of_copy(Bytes(4)), Sizes::of_message(Bytes(4))]) {
            let axes = vec![vec![1.0]; sizes.at.len()];
            let curve = Curve { axes, alone: vec![1.0], crowded: vec![1.0] };
            calibration.kernels.insert(sizes.kernel.to_owned(), curve);
        }
        (plans, calibration)
    }

    #[test]
    fn every_layout_is_planned_or_refused_in_words_and_the_best_are_found() {
        let (spec, nothing) = (spec(), unmeasured());
        let search = HereSearch { spec: &spec, ranks: 4, calibration: &nothing, threads: 2 };
        let (plans, calibration) = all(&search);
        let on = |threads| {
            let search = HereSearch { calibration: &calibration, threads, ..search };
            search.run(&mut |_| ControlFlow::Continue(())).unwrap()
        };
        let found = on(2);
        assert_eq!(found, on(1), "threads change nothing");
        let Counts { enumerated, refused, bounded, simulated, open } = found.counts;
        assert_eq!((bounded, open), (0, 0));
        assert_eq!(enumerated, refused + simulated);
        assert_eq!(simulated, plans.len() as u64);
        assert_eq!(refused, found.refused.iter().map(|refused| refused.count).sum::<u64>());
        let words = "8 stages need 8 units, but the model has 4 (embedding, 2 layers, head)";
        assert!(found.refused.iter().any(|of| of.example.starts_with(words)), "{found:?}");

        let seconds = |plan| predict_plan(plan, &calibration).unwrap().end().as_secs();
        let mut all: Vec<f64> = plans.iter().map(|(_, plan)| seconds(plan)).collect();
        all.sort_by(f64::total_cmp);
        let best: Vec<f64> = found.best.iter().map(|best| best.step_seconds).collect();
        assert_eq!(best, all[..super::super::BEST]);
        for candidate in found.best.iter().chain(&found.front) {
            let (_, plan) = plans.iter().find(|(cut, _)| *cut == candidate.cut).unwrap();
            assert_eq!(seconds(plan), candidate.step_seconds);
            let spec = StepSpec { layout: candidate.layout.clone(), ..spec.clone() };
            assert_eq!(plan_step(&spec).unwrap(), *plan, "the layout is the one that was planned");
        }
    }

    #[test]
    fn what_was_not_measured_is_told_and_a_search_can_be_ended() {
        let (spec, nothing) = (spec(), unmeasured());
        let search = HereSearch { spec: &spec, ranks: 2, calibration: &nothing, threads: 1 };
        let error = search.run(&mut |_| ControlFlow::Continue(())).unwrap_err().to_string();
        assert!(error.contains("was not measured on this machine"), "{error}");
        let ended = search.run(&mut |_| ControlFlow::Break(())).unwrap();
        assert!(!ended.is_complete && ended.best.is_empty());
        assert_eq!(ended.counts.open, ended.counts.enumerated);
        let cut = Cut { zero: ZeroStage::Zero3, ..first(&search) };
        assert_eq!(search.layout(&search.space(), &cut).zero, ZeroStage::Zero3);
    }

    fn first(search: &HereSearch<'_>) -> Cut {
        search.space().all().swap_remove(0)
    }
}
