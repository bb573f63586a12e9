//! Which writes of a Plan can be seen from outside. Goal: tell a fault that nobody can see from one
//! that the tests missed. Method: a backward slice, element by element, from what a step leaves
//! behind (weights, gradients, the norm, the loss) through every instruction and message.

use std::collections::{BTreeMap, VecDeque};

use shardlab::mesh::Rank;
use shardlab::ops::{Access, Kernel, Op};
use shardlab::plan::{Action, Held, Life, Output, Plan, Tag, View};

/// What is followed to the end of the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Follow {
    /// Another finite number.
    Value,
    /// A number that is not finite: it also passes the guard of the norm, `0 · loss`.
    NotFinite,
}

/// For each rank and instruction, for each view that it writes (or sends): whether an element of it
/// reaches weights, gradients, norm or loss.
pub(crate) fn influence(plan: &Plan, follow: Follow) -> Vec<Vec<Vec<bool>>> {
    let mut needed = Needed(observed(plan));
    let mut seen: Vec<Vec<Vec<bool>>> =
        plan.programs.iter().map(|program| vec![Vec::new(); program.instrs.len()]).collect();
    // What is needed of messages whose receive has been passed, walking backwards.
    let mut messages: BTreeMap<(Rank, Rank, Tag), VecDeque<Vec<bool>>> = BTreeMap::new();
    for &(rank, index) in top_to_bottom(plan).iter().rev() {
        let matters = &mut seen[rank.index()][index];
        match &plan.programs[rank.index()].instrs[index].action {
            Action::Launch { op, inputs, outputs } => {
                *matters = outputs.iter().map(|view| needed.any(*view)).collect();
                if !matters.contains(&true) {
                    continue;
                }
                let signature = op.signature();
                // Only Adam reads one of its outputs to write another; the others add to each.
                let mixes = matches!(op, Op::AdamW(_));
                for ((view, (_, access)), wanted) in
                    outputs.iter().zip(&signature.outputs).zip(matters.iter())
                {
                    match access {
                        Access::Write => needed.clear(*view),
                        Access::ReadWrite if mixes || *wanted => needed.mark(*view),
                        Access::ReadWrite => {}
                    }
                }
                let guards = matches!(op, Op::SquaredNorm(norm) if norm.guard);
                let read = if guards && follow == Follow::Value { &inputs[..1] } else { inputs };
                read.iter().for_each(|view| needed.mark(*view));
            }
            Action::Copy { from, to } => {
                let wanted = needed.of(*to).to_vec();
                needed.clear(*to);
                *matters = vec![needed.mark_some(*from, &wanted)];
            }
            Action::Recv { view, from, tag, .. } => {
                let wanted = needed.of(*view).to_vec();
                needed.clear(*view);
                *matters = vec![wanted.contains(&true)];
                messages.entry((*from, rank, *tag)).or_default().push_back(wanted);
            }
            Action::Send { view, to, tag, .. } => {
                let wanted = messages.get_mut(&(rank, *to, *tag)).and_then(VecDeque::pop_front);
                *matters = vec![needed.mark_some(*view, &wanted.expect("it was received"))];
            }
        }
    }
    seen
}

/// What a step leaves behind, by buffer and element.
fn observed(plan: &Plan) -> Vec<Vec<bool>> {
    let decls = plan.buffers.iter().map(|decl| {
        let output = matches!(
            decl.life,
            Life::Output(Output::LossSum { counted: true } | Output::SquaredNorm)
        );
        let mut elements = vec![output; decl.len as usize];
        for piece in &decl.pieces {
            let (start, len) = (piece.offset as usize, piece.flat.len());
            let lasts = decl.life == Life::Persistent || piece.held == Held::Gradient;
            elements[start..start + len].fill(lasts);
        }
        elements
    });
    decls.collect()
}

/// All instructions in an order in which sends precede their receives.
pub(crate) fn top_to_bottom(plan: &Plan) -> Vec<(Rank, usize)> {
    let mut at = vec![0; plan.programs.len()];
    let mut order = Vec::with_capacity(plan.instr_count());
    let mut in_flight: BTreeMap<(Rank, Rank, Tag), u32> = BTreeMap::new();
    while order.len() < plan.instr_count() {
        let before = order.len();
        for rank in plan.mesh.ranks() {
            while let Some(instr) = plan.programs[rank.index()].instrs.get(at[rank.index()]) {
                match &instr.action {
                    Action::Send { to, tag, .. } => {
                        *in_flight.entry((rank, *to, *tag)).or_default() += 1;
                    }
                    Action::Recv { from, tag, .. } => {
                        let count = in_flight.entry((*from, rank, *tag)).or_default();
                        let Some(left) = count.checked_sub(1) else { break };
                        *count = left;
                    }
                    Action::Launch { .. } | Action::Copy { .. } => {}
                }
                order.push((rank, at[rank.index()]));
                at[rank.index()] += 1;
            }
        }
        assert!(order.len() > before, "a sound Plan does not hang");
    }
    order
}

/// Whether the value of an element is still read later, by buffer.
struct Needed(Vec<Vec<bool>>);

impl Needed {
    fn of(&mut self, view: View) -> &mut [bool] {
        let range = view.offset as usize..(view.offset + view.len) as usize;
        &mut self.0[view.buffer.0 as usize][range]
    }

    fn any(&mut self, view: View) -> bool {
        self.of(view).contains(&true)
    }

    fn mark(&mut self, view: View) {
        self.of(view).fill(true);
    }

    fn clear(&mut self, view: View) {
        self.of(view).fill(false);
    }

    /// Marks the elements that are wanted; whether there is one.
    fn mark_some(&mut self, view: View, wanted: &[bool]) -> bool {
        let elements = self.of(view).iter_mut().zip(wanted);
        elements.for_each(|(element, wanted)| *element |= wanted);
        wanted.contains(&true)
    }
}
