//! What is broken on purpose in the run, under which optimizer, and what the two judges say of it.
//!
//! It belongs to the window that is open and to no file: the scenario that is saved is the whole
//! one, so nothing is broken after a restart. `judge` asks the checker and three steps beside one
//! rank, `words` says it in sentences, `changes` what can be done to a rank or a wire.

mod judge;
mod changes;
mod words;

pub use changes::{Change, changes, everywhere};
pub use judge::{Judge, Verdict};
pub use words::{beside, checker, now, steps};

use shardlab::config::{OptimizerKind, Scenario, Training};
use shardlab::mesh::Rank;
use shardlab::sim::Links;
use shardlab::train::faults::Fault;
use shardlab::units::Nanos;

/// All that can be broken, in the order of the museum; of those with a rank or a factor, one of
/// their kind.
pub const EXHIBITS: [Fault; 9] = [
    Fault::SlowRank { rank: Rank(0), factor: 4.0 },
    Fault::SlowLink { from: Rank(0), to: Rank(0), cost: late(Nanos(1_000_000)) },
    Fault::Poison { rank: Rank(0), instr: 0 },
    Fault::SkipMessage { rank: Rank(0), instr: 0 },
    Fault::MUSEUM[0],
    Fault::MUSEUM[1],
    Fault::MUSEUM[2],
    Fault::MUSEUM[3],
    Fault::MUSEUM[4],
];

/// What a message costs that is so much late.
pub const fn late(by: Nanos) -> Links {
    Links { latency: by, bytes_per_sec: None }
}

/// The training under which a fault is looked at: some hide gradients that are too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Under {
    /// Which optimizer.
    pub optimizer: OptimizerKind,
    /// Whether gradients are clipped.
    pub clip: Clip,
}

/// Whether gradients are clipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clip {
    /// They are not.
    Off,
    /// In every step.
    On,
}

/// Hides nothing.
impl Default for Under {
    fn default() -> Self {
        Self { optimizer: OptimizerKind::Sgd, clip: Clip::Off }
    }
}

impl Under {
    /// What a training is under.
    pub fn of(training: &Training) -> Self {
        let clip = if training.clip_norm > 0.0 { Clip::On } else { Clip::Off };
        Self { optimizer: training.optimizer, clip }
    }

    /// The same training under it; as it is, if it is under it already.
    pub fn training(self, base: &Training) -> Training {
        if Self::of(base) == self {
            return base.clone();
        }
        let usual = Training::default();
        let (lr, clip_norm) = match (self.optimizer, self.clip) {
            (OptimizerKind::Sgd, Clip::Off) => (0.1, 0.0),
            // As long a step as without, for a norm of 1, but always clipped.
            (OptimizerKind::Sgd, Clip::On) => (1.0, 0.1),
            (OptimizerKind::AdamW, Clip::Off) => (usual.lr, 0.0),
            (OptimizerKind::AdamW, Clip::On) => (usual.lr, usual.clip_norm),
        };
        let optimizer = self.optimizer;
        let is_other = optimizer != base.optimizer;
        let lr = if is_other || optimizer == OptimizerKind::Sgd { lr } else { base.lr };
        Training { optimizer, lr, clip_norm, warmup: 0, lr_min_ratio: 1.0, ..base.clone() }
    }
}

/// `SGD`, `AdamW and a clip`.
impl std::fmt::Display for Under {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.optimizer {
            OptimizerKind::Sgd => "SGD",
            OptimizerKind::AdamW => "AdamW",
        })?;
        f.write_str(if self.clip == Clip::On { " and a clip" } else { "" })
    }
}

/// What is broken on purpose.
#[derive(Debug, Default)]
pub struct Broken {
    faults: Vec<Fault>,
    under: Under,
    /// The scenario before a fault asked for another training.
    whole: Option<Scenario>,
    judge: Judge,
}

impl Broken {
    /// Whether nothing is.
    pub fn is_empty(&self) -> bool {
        self.faults.is_empty()
    }

    /// What is.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// What is broken in the same way as this.
    pub fn like(&self, kind: Fault) -> Option<Fault> {
        self.faults.iter().copied().find(|fault| fault.is_like(kind))
    }

    /// Under which optimizer faults are looked at.
    pub fn under(&self) -> Under {
        self.under
    }

    /// The scenario as it was chosen, where the run has another training.
    pub fn whole(&self) -> Option<&Scenario> {
        self.whole.as_ref()
    }

    /// What the judges have said of what is broken.
    pub fn verdict(&self) -> Option<&Verdict> {
        self.judge.verdict()
    }

    /// Breaks something, in place of what is broken in the same way.
    pub(crate) fn add(&mut self, fault: Fault) {
        self.faults.retain(|other| !other.is_like(fault));
        self.faults.push(fault);
    }

    /// Mends what is broken in the same way, or everything; what was mended.
    pub(crate) fn take(&mut self, kind: Option<Fault>) -> Vec<Fault> {
        let is_meant = |fault: &Fault| kind.is_none_or(|kind| kind.is_like(*fault));
        let (taken, kept) = self.faults.iter().partition(|fault| is_meant(fault));
        self.faults = kept;
        taken
    }

    /// Another optimizer from now on.
    pub(crate) fn set_under(&mut self, under: Under) {
        self.under = under;
    }

    /// Another run, in which nothing is broken.
    pub(crate) fn clear(&mut self) {
        self.faults.clear();
        self.whole = None;
        self.judge.forget();
    }

    /// What is trained from the beginning with what is broken now, instead of `scenario`.
    pub(crate) fn training_of(&mut self, scenario: &Scenario) -> Scenario {
        if self.faults.iter().all(|fault| fault.joins_a_run()) {
            return self.whole.take().unwrap_or_else(|| scenario.clone());
        }
        let whole = self.whole.get_or_insert_with(|| scenario.clone());
        Scenario { training: self.under.training(&whole.training), ..whole.clone() }
    }

    /// Asks the judges about what is broken now; `wake` is called when they have answered.
    pub(crate) fn ask(&mut self, scenario: &Scenario, wake: impl Fn() + Send + Sync + 'static) {
        if self.faults.is_empty() {
            self.judge.forget();
            return;
        }
        let whole = self.whole.as_ref().unwrap_or(scenario);
        let training = self.under.training(&whole.training);
        let training = Training { steps: 3, warmup: 0, lr_min_ratio: 1.0, ..training };
        self.judge.ask(Scenario { training, ..whole.clone() }, self.faults.clone(), wake);
    }

    /// Takes over what the judges have said since the last call.
    pub(crate) fn listen(&mut self) {
        self.judge.listen();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets;

    const SLOW: Fault = Fault::SlowRank { rank: Rank(1), factor: 2.0 };

    #[test]
    fn what_is_broken_in_the_same_way_is_replaced_and_all_is_mended_at_once() {
        let mut broken = Broken::default();
        broken.add(SLOW);
        broken.add(Fault::RepeatRows);
        broken.add(Fault::SlowRank { rank: Rank(3), factor: 4.0 });
        let slow = Fault::SlowRank { rank: Rank(3), factor: 4.0 };
        assert_eq!((broken.faults().len(), broken.like(SLOW)), (2, Some(slow)));
        assert_eq!(broken.take(Some(SLOW)), [slow]);
        assert_eq!(broken.take(None), [Fault::RepeatRows]);
        assert!(broken.is_empty());
    }

    #[test]
    fn a_mended_run_is_the_scenario_as_it_was_chosen() {
        let chosen = presets::quickstart();
        let mut broken = Broken::default();
        broken.add(Fault::RepeatRows);
        let trained = broken.training_of(&chosen);
        assert_eq!(Under::of(&trained.training), Under::default());
        assert_eq!(broken.whole(), Some(&chosen));
        // The run has another training by now; another fault still starts from the chosen one.
        broken.set_under(Under { clip: Clip::On, ..Under::default() });
        let clipped = broken.training_of(&trained);
        assert_eq!((clipped.training.lr, clipped.training.clip_norm), (1.0, 0.1));
        broken.take(None);
        assert_eq!(broken.training_of(&clipped), chosen);
        assert_eq!(broken.whole(), None);
    }

    #[test]
    fn every_optimizer_is_what_its_name_says_and_the_scenarios_own_stays_as_it_is() {
        let base = presets::quickstart().training;
        for optimizer in [OptimizerKind::Sgd, OptimizerKind::AdamW] {
            for clip in [Clip::Off, Clip::On] {
                let under = Under { optimizer, clip };
                assert_eq!(Under::of(&under.training(&base)), under);
            }
        }
        assert_eq!(Under::of(&base).training(&base), base);
    }
}
