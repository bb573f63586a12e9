//! Messages that are waited for and never sent: who should have sent them, and who waits for it in
//! the end.

use std::collections::BTreeSet;
use std::fmt;

use crate::mesh::Rank;
use crate::plan::order::{Graph, Order};
use crate::plan::{Action, Plan};
use crate::trace::cause::what;

/// Ranks that are named one by one at most.
const NAMED_MOST: usize = 8;

/// A message that is never sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsent {
    /// Who does not send it.
    pub from: Rank,
    /// Who would have received it.
    pub to: Rank,
    /// What it would have brought: `B2`, `RS`.
    pub what: String,
    /// All other ranks that cannot end the step without it, ascending.
    pub waiting: Vec<Rank>,
}

impl Unsent {
    /// All such messages of a Plan.
    pub fn all(plan: &Plan, order: &Order, graph: &Graph) -> Vec<Self> {
        let mut found = Vec::new();
        for (rank, program) in (0..).map(Rank).zip(&plan.programs) {
            for (index, instr) in program.instrs.iter().enumerate() {
                let Action::Recv { from, .. } = instr.action else { continue };
                if order.peer[rank.index()][index].is_some() {
                    continue;
                }
                let mut waiting = ranks_behind(graph, graph.node_of[rank.index()][index]);
                waiting.remove(&from);
                let waiting = waiting.into_iter().collect();
                found.push(Self { from, to: rank, what: what(instr.origin), waiting });
            }
        }
        found
    }
}

/// `Rank 1 never sent RS to rank 0. Ranks 0, 2, 3 wait for it.`
impl fmt::Display for Unsent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, what, waiting } = self;
        write!(f, "Rank {from} never sent {what} to rank {to}. ")?;
        match waiting.as_slice() {
            [] => f.write_str("Nobody else waits for it."),
            [one] => write!(f, "Rank {one} waits for it."),
            many if many.len() > NAMED_MOST => write!(f, "{} ranks wait for it.", many.len()),
            many => {
                let names: Vec<String> = many.iter().map(Rank::to_string).collect();
                write!(f, "Ranks {} wait for it.", names.join(", "))
            }
        }
    }
}

/// The ranks that have an instruction which a node must end before.
fn ranks_behind(graph: &Graph, node: u32) -> BTreeSet<Rank> {
    let mut seen = vec![false; graph.len()];
    let mut next = vec![node];
    let mut ranks = BTreeSet::new();
    while let Some(node) = next.pop() {
        if std::mem::replace(&mut seen[node as usize], true) {
            continue;
        }
        ranks.extend(graph.nodes[node as usize].instrs().map(|(rank, _)| rank));
        next.extend(graph.successors(node));
    }
    ranks
}
