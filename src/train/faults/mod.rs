//! Faults on purpose: what can be broken for show, what it is, and who notices.
//!
//! A [`Fault`] only says what is wished. It becomes a function of `plan::mutate`, a delay of
//! `exec` or the switch of `data`, and nothing else, so whatever is broken for a lesson is broken
//! as in the tests. [`examine`] asks the two judges: the checker of Plans, and three steps beside
//! one rank.
//!
//! `places` finds the instruction that a person means, `remedy` the nearest layout that can have a
//! fault, `unsent` who waits for a message that never comes, `aside` asks on another thread.

mod aside;
pub mod places;
mod remedy;
mod unsent;

#[cfg(test)]
mod tests;

pub use aside::examine_aside;
pub use remedy::that_shows;
pub use unsent::Unsent;

use std::fmt;

use serde::{Deserialize, Serialize};

use super::TrainError;
use super::session::{Options, Session};
use super::verify::{self, Verification};
use crate::config::Scenario;
use crate::exec::{Delays, ExecError, NonFinite, RankDelay};
use crate::mesh::Rank;
use crate::plan::mutate::{self, Bug, Mutated};
use crate::plan::{Plan, check};
use crate::planner::{Purpose, StepSpec, plan_step};
use crate::sim::Links;

/// A fault on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Fault {
    /// The kernels of a rank take longer.
    SlowRank {
        /// Which rank.
        rank: Rank,
        /// How many times as long.
        factor: f64,
    },
    /// Messages between two ranks, one way, take longer.
    SlowLink {
        /// The sender.
        from: Rank,
        /// The receiver.
        to: Rank,
        /// What each message costs more.
        cost: Links,
    },
    /// A launch writes not-a-number.
    Poison {
        /// Whose.
        rank: Rank,
        /// Which instruction of the Plan without faults.
        instr: u32,
    },
    /// A message is never sent.
    SkipMessage {
        /// Whose half of the message is named.
        rank: Rank,
        /// That half, an instruction of the Plan without faults.
        instr: u32,
    },
    /// Every replica divides its loss by its own labels, and the sum over replicas by nothing.
    ForgetDivision,
    /// Every microbatch divides its loss by its own labels, and their sum by nothing.
    ScaleByMicrobatches,
    /// The two gradients of a tied table are not added.
    SplitTied,
    /// Norm gradients are not summed under sequence parallel.
    SplitNorms,
    /// All replicas read the rows of the first.
    RepeatRows,
}

impl Fault {
    /// Those that need no place, in the order of the bug museum.
    pub const MUSEUM: [Self; 5] = [
        Self::ForgetDivision,
        Self::ScaleByMicrobatches,
        Self::SplitTied,
        Self::SplitNorms,
        Self::RepeatRows,
    ];

    /// A short name for buttons and lists.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SlowRank { .. } => "Slow rank",
            Self::SlowLink { .. } => "Slow link",
            Self::Poison { .. } => "Not a number",
            Self::SkipMessage { .. } => "Skipped message",
            Self::ForgetDivision => "Forgot to divide by the ranks",
            Self::ScaleByMicrobatches => "Forgot to divide by the microbatches",
            Self::SplitTied => "Tied table not summed",
            Self::SplitNorms => "Norm gradients not summed",
            Self::RepeatRows => "Every replica reads the same rows",
        }
    }

    /// What is wrong, in one sentence.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::SlowRank { .. } => {
                "Every kernel of one rank takes longer, as on a hot or shared device."
            }
            Self::SlowLink { .. } => {
                "Every message from one rank to another takes longer, as over a bad cable."
            }
            Self::Poison { .. } => "One kernel writes a value that is not a number.",
            Self::SkipMessage { .. } => {
                "One rank skips a message that another one waits for, as after a branch that only \
                 it takes."
            }
            Self::ForgetDivision => {
                "Each replica divides its loss by its own labels, and nobody divides the sum by \
                 the number of replicas."
            }
            Self::ScaleByMicrobatches => {
                "Each microbatch divides its loss by its own labels, and nobody divides the sum \
                 by the number of microbatches."
            }
            Self::SplitTied => {
                "The embedding and the head share a table, but each updates it with its own \
                 gradient only."
            }
            Self::SplitNorms => {
                "Under sequence parallel each tensor rank sees some positions, and norm weights \
                 are updated with their gradient only."
            }
            Self::RepeatRows => {
                "The loader was not told its rank, so all replicas read the rows of the first."
            }
        }
    }

    /// What one will see, in one sentence.
    pub const fn sight(self) -> &'static str {
        match self {
            Self::SlowRank { .. } => {
                "All others wait for it, and the loss stays the same to the bit."
            }
            Self::SlowLink { .. } => {
                "The receiver waits where work does not hide the message; the loss stays the same \
                 to the bit."
            }
            Self::Poison { .. } => {
                "The run stops on this step with weights untouched, and names the first rank and \
                 tensor."
            }
            Self::SkipMessage { .. } => {
                "The step hangs; the checker had said so, and the report says who waits for whom."
            }
            Self::ForgetDivision | Self::ScaleByMicrobatches => {
                "Gradients are too large by a constant: SGD takes larger steps; AdamW and a clip \
                 that always acts hardly notice."
            }
            Self::SplitTied | Self::SplitNorms => {
                "The loss still falls; copies of one weight drift apart, and one rank beside \
                 shows another loss."
            }
            Self::RepeatRows => {
                "The loss still falls, on fewer rows than it seems; one rank beside shows another \
                 loss."
            }
        }
    }

    /// Who has met it, in one sentence: public reports by repository and number.
    pub const fn met(self) -> &'static str {
        match self {
            Self::SlowRank { .. } => "How does one find the slow node of a ring: NVIDIA/nccl#349.",
            Self::SlowLink { .. } => {
                "Some pairs of machines had half the bandwidth of others: NVIDIA/nccl-tests#106."
            }
            Self::Poison { .. } => {
                "Weights were updated before anybody looked: pytorch/torchtitan#4226."
            }
            Self::SkipMessage { .. } => {
                "A branch that data chose on one rank only, and all hung: deepspeedai/DeepSpeed#7998."
            }
            Self::ForgetDivision => {
                "Mean or sum over replicas? NVIDIA/apex#696, ultralytics/ultralytics#18616."
            }
            Self::ScaleByMicrobatches => {
                "The gradient grew with the number of pieces: deepspeedai/DeepSpeed#7773."
            }
            Self::SplitTied => "The two copies of the table drifted: NVIDIA/Megatron-LM#299.",
            Self::SplitNorms => {
                "The loss stood still near 8: NVIDIA/Megatron-LM#1446, EleutherAI/gpt-neox#1257."
            }
            Self::RepeatRows => {
                "Replicas read the same rows: huggingface/accelerate#3092, pytorch/torchtitan#48."
            }
        }
    }

    /// Whether it takes hold of a run as it stands. The others make another training, which is
    /// compared from its first step on.
    pub const fn joins_a_run(self) -> bool {
        match self {
            Self::SlowRank { .. }
            | Self::SlowLink { .. }
            | Self::Poison { .. }
            | Self::SkipMessage { .. } => true,
            Self::ForgetDivision
            | Self::ScaleByMicrobatches
            | Self::SplitTied
            | Self::SplitNorms
            | Self::RepeatRows => false,
        }
    }

    /// Whether it is of the same kind as another one, whatever its rank and factor.
    pub fn is_like(self, other: Self) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }

    /// What time it costs; none for a fault of numbers.
    fn delay(self, delays: &mut Delays) {
        match self {
            Self::SlowRank { rank, factor } => {
                let slowed: &mut RankDelay = delays.ranks.entry(rank).or_default();
                slowed.factor *= factor.max(1.0);
            }
            Self::SlowLink { from, to, cost } => {
                delays.links.insert((from, to), cost);
            }
            Self::Poison { .. }
            | Self::SkipMessage { .. }
            | Self::ForgetDivision
            | Self::ScaleByMicrobatches
            | Self::SplitTied
            | Self::SplitNorms
            | Self::RepeatRows => {}
        }
    }

    /// Why a layout cannot have this fault, and what to do; `None` for one without a Plan's part.
    fn missing(self) -> [&'static str; 2] {
        match self {
            Self::Poison { .. } => {
                ["the instruction is no kernel that writes floats", "Choose a block that computes"]
            }
            Self::SkipMessage { .. } => {
                ["the instruction is no half of a message", "Choose a send or a receive"]
            }
            Self::ForgetDivision | Self::RepeatRows => {
                ["there is one replica", "Use at least 2 data-parallel ranks"]
            }
            Self::ScaleByMicrobatches => ["there is one microbatch", "Use at least 2 microbatches"],
            Self::SplitTied => ["no table is tied", "Use a model with tied embeddings"],
            Self::SplitNorms => [
                "norm gradients are whole on every rank",
                "Use sequence parallel and at least 2 tensor ranks",
            ],
            Self::SlowRank { .. } | Self::SlowLink { .. } => {
                ["the rank does not exist", "Choose one of the ranks of the layout"]
            }
        }
    }
}

/// Writes what is broken, with its rank and factor, as the end of a sentence.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SlowRank { rank, factor } => {
                write!(f, "rank {rank} computes {factor} times as long")
            }
            Self::SlowLink { from, to, .. } => {
                write!(f, "messages from rank {from} to rank {to} are late")
            }
            Self::Poison { rank, .. } => write!(f, "rank {rank} writes a value that is no number"),
            Self::SkipMessage { rank, .. } => write!(f, "a message of rank {rank} is never sent"),
            Self::ForgetDivision => f.write_str("nobody divides by the number of replicas"),
            Self::ScaleByMicrobatches => {
                f.write_str("nobody divides by the number of microbatches")
            }
            Self::SplitTied => f.write_str("the gradients of the tied table are not summed"),
            Self::SplitNorms => f.write_str("norm gradients are not summed"),
            Self::RepeatRows => f.write_str("all replicas read the same rows"),
        }
    }
}

/// A step with its faults.
#[derive(Clone, Debug)]
pub(super) struct Planted {
    /// The Plan that runs.
    pub(super) plan: Plan,
    /// The instructions of the Plan without faults that are changed or missing.
    pub(super) places: Vec<(Rank, u32)>,
    /// Whether all replicas read the rows of the first.
    pub(super) repeats_rows: bool,
}

/// Plants faults in a Plan.
///
/// # Errors
/// If the layout cannot have one of them.
pub(super) fn plant(plan: &Plan, faults: &[Fault]) -> Result<Planted, TrainError> {
    let mut planted = Planted { plan: plan.clone(), places: Vec::new(), repeats_rows: false };
    // Those that name an instruction come first, the last instruction first: so that none has
    // moved before its turn.
    let (mut placed, spread): (Vec<Fault>, Vec<Fault>) =
        faults.iter().partition(|fault| place(**fault).is_some());
    placed.sort_by_key(|fault| std::cmp::Reverse(place(*fault)));
    for fault in placed.into_iter().chain(spread) {
        let one = planted.one(fault);
        one.ok_or_else(|| refusal(fault))?;
    }
    planted.places.sort_unstable();
    Ok(planted)
}

/// The instruction that a fault names.
fn place(fault: Fault) -> Option<(Rank, u32)> {
    match fault {
        Fault::Poison { rank, instr } | Fault::SkipMessage { rank, instr } => Some((rank, instr)),
        Fault::SlowRank { .. }
        | Fault::SlowLink { .. }
        | Fault::ForgetDivision
        | Fault::ScaleByMicrobatches
        | Fault::SplitTied
        | Fault::SplitNorms
        | Fault::RepeatRows => None,
    }
}

fn refusal(fault: Fault) -> TrainError {
    let [why, remedy] = fault.missing();
    let what = format!("the fault \"{}\"", fault.name());
    TrainError::Exec(ExecError::Input { what, why: why.into(), remedy: remedy.into() })
}

impl Planted {
    /// Plants one fault; `None` if it has no place.
    fn one(&mut self, fault: Fault) -> Option<()> {
        let plan = &self.plan;
        let exists = |rank: Rank| rank.0 < plan.mesh.size();
        match fault {
            Fault::SlowRank { rank, .. } => exists(rank).then_some(()),
            Fault::SlowLink { from, to, .. } => (exists(from) && exists(to)).then_some(()),
            Fault::Poison { rank, instr } => self.mutated(mutate::poison_at(plan, rank, instr)?),
            Fault::SkipMessage { rank, instr } => {
                self.mutated(mutate::drop_send_at(plan, rank, instr)?)
            }
            Fault::ForgetDivision => self.scaled(plan.mesh.dp),
            Fault::ScaleByMicrobatches => self.scaled(microbatches(plan)),
            Fault::SplitTied => self.bug(mutate::keep_tied_gradients_apart(plan)?),
            Fault::SplitNorms => self.bug(mutate::keep_norm_gradients_apart(plan)?),
            Fault::RepeatRows => {
                self.repeats_rows = true;
                (plan.mesh.dp > 1).then_some(())
            }
        }
    }

    fn scaled(&mut self, count: u32) -> Option<()> {
        let scaled = mutate::scale_loss_gradients(&self.plan, count as f32);
        self.bug(scaled.filter(|_| count > 1)?)
    }

    fn mutated(&mut self, mutated: Mutated) -> Option<()> {
        let Mutated { plan, rank, instr, .. } = mutated;
        self.bug(Bug { plan, places: vec![(rank, instr)] })
    }

    fn bug(&mut self, bug: Bug) -> Option<()> {
        self.plan = bug.plan;
        self.places.extend(bug.places);
        Some(())
    }
}

/// Microbatches of a step.
fn microbatches(plan: &Plan) -> u32 {
    let instrs = plan.programs.iter().flat_map(|program| &program.instrs);
    instrs.filter_map(|instr| instr.origin.microbatch).max().map_or(1, |last| last + 1)
}

/// Delays with those of faults.
pub(super) fn delays(delays: &Delays, faults: &[Fault]) -> Delays {
    let mut all = delays.clone();
    for fault in faults {
        fault.delay(&mut all);
    }
    all
}

/// Whether a scenario can have a fault: its steps are planned for it.
///
/// # Errors
/// If it cannot, or the layout cannot run.
pub fn check_fit(scenario: &Scenario, fault: Fault) -> Result<(), TrainError> {
    let spec = StepSpec {
        model: scenario.model.resolve()?,
        layout: scenario.layout.clone(),
        training: scenario.training.clone(),
        purpose: Purpose::Train,
        device_kinds: Vec::new(),
    };
    check_plan(&plan_step(&spec)?, fault)
}

/// Whether a step that is planned already can have a fault.
///
/// # Errors
/// If it cannot.
pub fn check_plan(plan: &Plan, fault: Fault) -> Result<(), TrainError> {
    plant(plan, &[fault]).map(|_| ())
}

/// What the two judges say of a scenario with faults.
#[derive(Clone, Debug)]
pub struct Examination {
    /// What the checker of Plans finds; empty: the Plan passes, it is legal, though it may be wrong.
    pub checker: Vec<check::Fault>,
    /// What three steps beside one rank show.
    pub steps: Steps,
}

/// What became of the steps that were trained beside one rank.
#[derive(Clone, Debug)]
pub enum Steps {
    /// They ended, so far from one rank.
    Compared(Verification),
    /// One of them does not end.
    Hang {
        /// Who waits for what, one line a rank.
        report: Vec<String>,
    },
    /// A number is not finite.
    NotFinite {
        /// In which step.
        step: u64,
        /// Where first, in program order.
        first: Option<Box<NonFinite>>,
    },
}

/// Asks the checker, and trains the scenario beside one rank without faults, with the training
/// settings as they are: [`verify::checked_training`] gives three steps of plain SGD.
///
/// # Errors
/// If the layout cannot have one of the faults, or cannot be trained at all.
pub fn examine(scenario: &Scenario, options: &Options) -> Result<Examination, TrainError> {
    let session = Session::start(scenario.clone(), options.clone())?;
    let checker = check::check(session.plan());
    let steps = match verify::beside_one_rank(session, options.clone(), &mut || true) {
        Ok(verification) => Steps::Compared(verification),
        Err(TrainError::Exec(ExecError::Hang { waiting })) => Steps::Hang { report: waiting },
        Err(TrainError::NotFinite { step, first }) => Steps::NotFinite { step, first },
        Err(error) => return Err(error),
    };
    Ok(Examination { checker, steps })
}
