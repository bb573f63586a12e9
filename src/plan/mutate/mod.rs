//! Plants faults: pure functions from a Plan to a Plan that is wrong in one known way.
//!
//! Tests, the app's fault buttons and the lessons use these and nothing else, so that whatever is
//! broken for show is broken the same way everywhere. Each [`Mutation`] has a number of places
//! where it fits; a seed picks one. [`poison_at`] and [`drop_send_at`] plant at a given
//! instruction, and the famous bugs of `museum` wherever they belong.

mod museum;

pub use museum::{Bug, keep_norm_gradients_apart, keep_tied_gradients_apart, scale_loss_gradients};

use super::text::describe;
use super::{Action, Instr, Lane, Origin, Phase, Plan, View};
use crate::mesh::Rank;
use crate::ops::elementwise::{Fill, Scale};
use crate::ops::{Kernel as _, Op};
use crate::shape::DType;

/// A Plan with a planted fault.
#[derive(Clone, Debug, PartialEq)]
pub struct Mutated {
    /// The wrong Plan.
    pub plan: Plan,
    /// The rank at fault.
    pub rank: Rank,
    /// The instruction of the *original* Plan at which the fault was planted.
    pub instr: u32,
    /// What was done, in words.
    pub description: String,
}

/// Kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mutation {
    /// A message never happens: neither send nor receive.
    DropMessage,
    /// A message is never sent, but waited for.
    DropSend,
    /// A message is sent, but nobody receives it.
    DropRecv,
    /// The output of a launch is multiplied.
    ScaleOutput {
        /// By how much.
        factor: f32,
    },
    /// A sum over microbatches or ranks forgets what was there before.
    SkipAccumulation,
    /// An output is overwritten with not-a-number.
    Poison,
    /// Two neighbouring cells of a schedule change places on one rank.
    SwapCells,
}

impl Mutation {
    /// One of each kind, for tests that draw.
    pub const ALL: [Self; 7] = [
        Self::DropMessage,
        Self::DropSend,
        Self::DropRecv,
        Self::ScaleOutput { factor: 2.0 },
        Self::SkipAccumulation,
        Self::Poison,
        Self::SwapCells,
    ];

    /// At how many places of a Plan the fault can be planted.
    pub fn count(self, plan: &Plan) -> usize {
        match self {
            Self::DropMessage | Self::DropSend => places(plan, is_send).count(),
            Self::DropRecv => places(plan, is_recv).count(),
            Self::ScaleOutput { .. } | Self::Poison => float_outputs(plan).count(),
            Self::SkipAccumulation => accumulations(plan).count(),
            Self::SwapCells => neighbours(plan).len(),
        }
    }

    /// Plants the fault at place `nth`, counted by rank and program order from 0. `None` if there
    /// are fewer places.
    pub fn plant(self, plan: &Plan, nth: usize) -> Option<Mutated> {
        match self {
            Self::DropMessage => drop_message(plan, nth),
            Self::DropSend => drop_send(plan, nth),
            Self::DropRecv => drop_recv(plan, nth),
            Self::ScaleOutput { factor } => scale_output(plan, nth, factor),
            Self::SkipAccumulation => skip_accumulation(plan, nth),
            Self::Poison => poison(plan, nth),
            Self::SwapCells => swap_cells(plan, nth),
        }
    }
}

/// Drops both halves of the `nth` message, counted by its send.
pub fn drop_message(plan: &Plan, nth: usize) -> Option<Mutated> {
    let (rank, instr) = places(plan, is_send).nth(nth)?;
    let peer = super::order::derive(plan).peer[rank.index()][instr as usize];
    let mut mutated = removed(plan, rank, instr, "drops both halves of");
    if let Some((to, recv)) = peer {
        let dropped_before = u32::from(to == rank && instr < recv);
        let instrs = &mut mutated.plan.programs[to.index()].instrs;
        instrs.remove((recv - dropped_before) as usize);
    }
    Some(mutated)
}

/// Drops the `nth` send: its receive waits for ever.
pub fn drop_send(plan: &Plan, nth: usize) -> Option<Mutated> {
    let (rank, instr) = places(plan, is_send).nth(nth)?;
    Some(removed(plan, rank, instr, "drops"))
}

/// Drops a send, given by either half of its message: its receive waits for ever. `None` if the
/// instruction is no half of a message.
pub fn drop_send_at(plan: &Plan, rank: Rank, instr: u32) -> Option<Mutated> {
    let line = plan.programs.get(rank.index())?.instrs.get(instr as usize)?;
    if is_send(line) {
        return Some(removed(plan, rank, instr, "drops"));
    }
    let (from, send) = super::order::derive(plan).peer[rank.index()][instr as usize]?;
    Some(removed(plan, from, send, "drops"))
}

/// Overwrites the first float output of a launch with not-a-number right after it. `None` if the
/// instruction is no launch that writes floats.
pub fn poison_at(plan: &Plan, rank: Rank, instr: u32) -> Option<Mutated> {
    let nth = float_outputs(plan).position(|(of, index, _)| (of, index) == (rank, instr))?;
    poison(plan, nth)
}

/// Drops the `nth` receive: its send waits for ever.
pub fn drop_recv(plan: &Plan, nth: usize) -> Option<Mutated> {
    let (rank, instr) = places(plan, is_recv).nth(nth)?;
    Some(removed(plan, rank, instr, "drops"))
}

/// Multiplies the `nth` float output of a launch by `factor` right after the launch.
pub fn scale_output(plan: &Plan, nth: usize, factor: f32) -> Option<Mutated> {
    let (rank, instr, view) = float_outputs(plan).nth(nth)?;
    let op = Op::Scale(Scale { len: view.len, factor });
    Some(followed(plan, (rank, instr), view, op, &format!("multiplies by {factor}")))
}

/// Overwrites the `nth` float output of a launch with not-a-number right after the launch.
pub fn poison(plan: &Plan, nth: usize) -> Option<Mutated> {
    let (rank, instr, view) = float_outputs(plan).nth(nth)?;
    let op = Op::Fill(Fill { len: view.len, value: f32::NAN });
    Some(followed(plan, (rank, instr), view, op, "overwrites with NaN"))
}

/// Makes the `nth` accumulating launch assign instead; an addition in place is dropped.
pub fn skip_accumulation(plan: &Plan, nth: usize) -> Option<Mutated> {
    let (rank, instr) = accumulations(plan).nth(nth)?;
    let mut mutated = removed(plan, rank, instr, "drops the addition");
    let line = &plan.programs[rank.index()].instrs[instr as usize];
    if let Action::Launch { op, inputs, outputs } = &line.action
        && let Some(op) = assigning(op)
    {
        let action = Action::Launch { op, inputs: inputs.clone(), outputs: outputs.clone() };
        let line = Instr { action, ..line.clone() };
        mutated.plan.programs[rank.index()].instrs.insert(instr as usize, line);
        mutated.description = format!("does not accumulate in {}", describe(plan, rank, instr));
    }
    Some(mutated)
}

/// Swaps the `nth` pair of neighbouring cells of a rank: the passes of a stage and microbatch that
/// follow one another in its program, with all their launches and messages.
pub fn swap_cells(plan: &Plan, nth: usize) -> Option<Mutated> {
    let (rank, [start, middle, end]) = neighbours(plan).into_iter().nth(nth)?;
    let mut plan = plan.clone();
    let cells = &mut plan.programs[rank.index()].instrs[start as usize..end as usize];
    let second = (middle - start) as usize;
    let name = |instr: &Instr| {
        let Origin { phase, stage, microbatch, .. } = instr.origin;
        let number = |n: Option<u32>| n.map_or("?".into(), |n| n.to_string());
        format!("{phase:?} of stage {}, microbatch {}", number(stage), number(microbatch))
    };
    let (one, other) = (name(&cells[0]), name(&cells[second]));
    cells.rotate_left(second);
    let description = format!("rank {rank} runs {other} before {one}");
    Some(Mutated { plan, rank, instr: start, description })
}

/// Instructions that satisfy a predicate, by rank and program order.
fn places(plan: &Plan, wanted: impl Fn(&Instr) -> bool) -> impl Iterator<Item = (Rank, u32)> {
    let ranks = (0..).map(Rank).zip(&plan.programs);
    let lines = ranks.flat_map(|(rank, program)| {
        (0..).zip(&program.instrs).map(move |(index, instr)| (rank, index, instr))
    });
    lines.filter(move |(.., instr)| wanted(instr)).map(|(rank, index, _)| (rank, index))
}

fn is_send(instr: &Instr) -> bool {
    matches!(instr.action, Action::Send { .. })
}

fn is_recv(instr: &Instr) -> bool {
    matches!(instr.action, Action::Recv { .. })
}

/// Float outputs of launches that are not empty.
fn float_outputs(plan: &Plan) -> impl Iterator<Item = (Rank, u32, View)> {
    places(plan, |_| true).flat_map(|(rank, instr)| {
        let action = &plan.programs[rank.index()].instrs[instr as usize].action;
        let outputs = match action {
            Action::Launch { outputs, .. } => outputs.as_slice(),
            Action::Send { .. } | Action::Recv { .. } | Action::Copy { .. } => &[],
        };
        let floats = outputs
            .iter()
            .filter(|view| view.len > 0 && plan.buffer(view.buffer).dtype == DType::F32);
        floats.map(move |view| (rank, instr, *view))
    })
}

/// Launches that add to what their output holds.
fn accumulations(plan: &Plan) -> impl Iterator<Item = (Rank, u32)> {
    places(plan, |instr| match &instr.action {
        Action::Launch { op, .. } => matches!(op, Op::AddAssign(_)) || assigning(op).is_some(),
        Action::Send { .. } | Action::Recv { .. } | Action::Copy { .. } => false,
    })
}

/// The op with its accumulation switched off; `None` if it has none or does not accumulate.
fn assigning(op: &Op) -> Option<Op> {
    let mut op = op.clone();
    let accumulate = match &mut op {
        Op::Matmul(op) => &mut op.accumulate,
        Op::EmbeddingGrad(op) => &mut op.accumulate,
        Op::RmsNormGradInput(op) => &mut op.accumulate,
        Op::RmsNormGradWeight(op) => &mut op.accumulate,
        Op::LossMerge(op) => &mut op.accumulate,
        Op::SumRanks(op) => &mut op.accumulate,
        Op::SquaredNorm(op) => &mut op.accumulate,
        Op::Embedding(_)
        | Op::RmsNorm(_)
        | Op::Rope(_)
        | Op::Attention(_)
        | Op::AttentionGrad(_)
        | Op::SwiGlu(_)
        | Op::SwiGluGrad(_)
        | Op::LossStats(_)
        | Op::LossGrad(_)
        | Op::Add(_)
        | Op::AddAssign(_)
        | Op::Scale(_)
        | Op::Fill(_)
        | Op::AdamW(_)
        | Op::Sgd(_)
        | Op::Cast(_)
        | Op::Coarse(_) => return None,
    };
    std::mem::take(accumulate).then_some(op)
}

/// Neighbouring cells as instruction indices: start of the first, of the second, and their end.
fn neighbours(plan: &Plan) -> Vec<(Rank, [u32; 3])> {
    // Backward may be one cell or an input part and a weight part: phase tells cells apart too.
    let cell = |instr: &Instr| -> Option<(Phase, Option<u32>, u32)> {
        instr.origin.microbatch.map(|m| (instr.origin.phase, instr.origin.stage, m))
    };
    let mut pairs = Vec::new();
    for (rank, program) in (0..).map(Rank).zip(&plan.programs) {
        // Where each cell starts; what is in no cell separates, and so does the end.
        let cells = program.instrs.iter().map(cell).chain([None]);
        let mut starts: Vec<(u32, Option<_>)> = Vec::new();
        for (index, cell) in (0u32..).zip(cells) {
            if starts.last().is_none_or(|(_, last)| *last != cell) {
                starts.push((index, cell));
            }
        }
        let both = |w: &&[(u32, Option<_>)]| w[0].1.is_some() && w[1].1.is_some();
        let windows = starts.windows(3).filter(both);
        pairs.extend(windows.map(|w| (rank, [w[0].0, w[1].0, w[2].0])));
    }
    pairs
}

fn removed(plan: &Plan, rank: Rank, instr: u32, verb: &str) -> Mutated {
    let description = format!("{verb} {}", describe(plan, rank, instr));
    let mut plan = plan.clone();
    plan.programs[rank.index()].instrs.remove(instr as usize);
    Mutated { plan, rank, instr, description }
}

/// The Plan with a launch of `op` on `view` right after an instruction, in its lane.
fn followed(plan: &Plan, at: (Rank, u32), view: View, op: Op, what: &str) -> Mutated {
    let (rank, instr) = at;
    let label = &plan.buffer(view.buffer).label;
    let description = format!("{what} the output {label} of {}", describe(plan, rank, instr));
    let mut plan = plan.clone();
    let instrs = &mut plan.programs[rank.index()].instrs;
    let Instr { lane, origin, .. } = instrs[instr as usize];
    debug_assert!(op.signature().inputs.is_empty() && lane != Lane::Posted, "a launch in place");
    let action = Action::Launch { op, inputs: Vec::new(), outputs: vec![view] };
    instrs.insert(instr as usize + 1, Instr { lane, action, origin });
    Mutated { plan, rank, instr, description }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::check::{FaultKind, check};
    use crate::plan::sample::{one_f_one_b, pipeline};

    fn sample() -> Plan {
        pipeline(&one_f_one_b(2, 3))
    }

    #[test]
    fn every_mutation_changes_the_plan_at_each_of_its_places() {
        let plan = sample();
        for mutation in Mutation::ALL {
            let count = mutation.count(&plan);
            assert!(count > 0, "{mutation:?} has a place");
            let mut seen: Vec<String> = Vec::new();
            for nth in 0..count {
                let mutated = mutation.plant(&plan, nth).unwrap();
                assert_ne!(mutated.plan, plan, "{mutation:?} {nth}");
                assert!(
                    (mutated.instr as usize) < plan.programs[mutated.rank.index()].instrs.len()
                );
                assert!(!seen.contains(&mutated.description), "{}", mutated.description);
                seen.push(mutated.description);
            }
            assert_eq!(mutation.plant(&plan, count), None);
        }
    }

    #[test]
    fn half_a_message_is_found_by_check_and_a_whole_one_leaves_its_reader_without_data() {
        let plan = sample();
        let kinds = |mutated: Mutated| -> Vec<FaultKind> {
            check(&mutated.plan).into_iter().map(|fault| fault.kind).collect()
        };
        let no_send = kinds(drop_send(&plan, 0).unwrap());
        assert!(matches!(no_send[..], [FaultKind::UnmatchedRecv { .. }]), "{no_send:?}");
        let no_recv = kinds(drop_recv(&plan, 0).unwrap());
        assert!(matches!(no_recv[0], FaultKind::UnmatchedSend { .. }), "{no_recv:?}");
        let neither = drop_message(&plan, 0).unwrap();
        assert_eq!(neither.plan.instr_count(), plan.instr_count() - 2);
        assert_eq!(
            neither.description,
            "drops both halves of rank 0 #1 send y.m0 to rank 1 (64 f32, tag 0)"
        );
        let neither = kinds(neither);
        assert!(matches!(neither[..], [FaultKind::ReadBeforeWrite { .. }]), "{neither:?}");
    }

    #[test]
    fn wrong_numbers_are_no_faults_of_the_plan() {
        let plan = sample();
        for mutation in [Mutation::ScaleOutput { factor: 2.0 }, Mutation::Poison] {
            for nth in 0..mutation.count(&plan) {
                let mutated = mutation.plant(&plan, nth).unwrap();
                assert_eq!(check(&mutated.plan), [], "{}", mutated.description);
                assert_eq!(mutated.plan.instr_count(), plan.instr_count() + 1);
            }
        }
        // Two of three microbatches add to the first on each of two ranks.
        assert_eq!(Mutation::SkipAccumulation.count(&plan), 4);
        let skipped = skip_accumulation(&plan, 1).unwrap();
        assert_eq!(check(&skipped.plan), []);
        assert_eq!(Mutation::SkipAccumulation.count(&skipped.plan), 3);
        assert_eq!(skipped.plan.instr_count(), plan.instr_count());
    }

    #[test]
    fn swapped_cells_keep_all_instructions_and_two_swaps_can_hang() {
        let plan = sample();
        for nth in 0..Mutation::SwapCells.count(&plan) {
            let swapped = swap_cells(&plan, nth).unwrap();
            let mut lines = [&plan, &swapped.plan].map(|plan| {
                let instrs = plan.programs[swapped.rank.index()].instrs.iter();
                instrs.map(|instr| format!("{instr:?}")).collect::<Vec<_>>()
            });
            assert_ne!(lines[0], lines[1]);
            lines.iter_mut().for_each(|lines| lines.sort());
            assert_eq!(lines[0], lines[1]);
        }
        let swap = |plan: &Plan, description: &str| {
            let all = (0..Mutation::SwapCells.count(plan)).filter_map(|nth| swap_cells(plan, nth));
            all.into_iter().find(|swapped| swapped.description == description).unwrap().plan
        };
        let cycles = |plan: &Plan| {
            let faults = check(plan).into_iter();
            faults.filter(|fault| matches!(fault.kind, FaultKind::Cycle { .. })).count()
        };
        // Each alone is another schedule; together, rank 0 waits for a gradient before it runs the
        // forward that rank 1 runs first.
        let first =
            "rank 0 runs Backward of stage 0, microbatch 0 before Forward of stage 0, microbatch 1";
        let second =
            "rank 1 runs Forward of stage 1, microbatch 1 before Backward of stage 1, microbatch 0";
        assert_eq!(cycles(&swap(&plan, first)), 0);
        assert_eq!(cycles(&swap(&plan, second)), 0);
        assert_eq!(cycles(&swap(&swap(&plan, first), second)), 1);
    }
}
