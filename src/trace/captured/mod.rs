//! One collective of a step, opened: who sends which chunk to whom, who adds what, and the first
//! true numbers of every chunk on the way.
//!
//! What happens is read from the Plan alone ([`Captured::of`]); the numbers come from whoever runs
//! the step: it reads the view of each of [`Captured::samples`] at the moment that the sample
//! names, and stores what it found. The picture of it is `draw::collective`.

mod outline;

use std::fmt;
use std::ops::Range;

use crate::mesh::{Axis, Rank};
use crate::plan::order::Order;
use crate::plan::{Collective, Origin, Phase, Plan, View};
use crate::units::Bytes;

/// How many first elements of a chunk are kept.
pub const VALUES: u32 = 3;

/// A collective: its members, its chunks, and what happens to them round by round.
#[derive(Clone, Debug, PartialEq)]
pub struct Captured {
    /// Which collective.
    pub collective: Collective,
    /// The axis that its bytes count for.
    pub axis: Axis,
    /// Why it is there.
    pub origin: Origin,
    /// Its ranks, ascending; a *member* is an index into this list.
    pub members: Vec<Rank>,
    /// The elements of each chunk of the data, ascending and without holes.
    pub chunks: Vec<Range<u32>>,
    /// Before the first message, `[member][chunk]`; `None` where a member has nothing yet.
    pub start: Vec<Vec<Option<Cell>>>,
    /// What happens, in rounds: a message of a round needs one of the round before.
    pub rounds: Vec<Round>,
    /// The places whose first elements are worth reading.
    pub samples: Vec<Sample>,
}

/// What a member holds of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Whose contributions are summed in it.
    pub summed: Members,
    /// Its first elements: an index into [`Captured::samples`].
    pub sample: usize,
}

/// Messages that may be under way at the same time, and what becomes of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// What is sent, by (from, to, first chunk).
    pub messages: Vec<Message>,
    /// What members hold afterwards, in the order in which it comes about.
    pub changes: Vec<Change>,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The member that sends.
    pub from: usize,
    /// The member that receives.
    pub to: usize,
    /// Which chunks.
    pub chunks: Range<usize>,
    /// Payload.
    pub bytes: Bytes,
    /// What it carries of each of the chunks.
    pub cells: Vec<Cell>,
    /// The send as an instruction of the Plan.
    pub send: (Rank, u32),
}

/// A member holds something new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The member.
    pub member: usize,
    /// Of which chunk.
    pub chunk: usize,
    /// What it holds now.
    pub cell: Cell,
    /// Whether it added; otherwise what it received is in its place.
    pub adds: bool,
}

/// A place whose first elements are worth reading, and when.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Right after this instruction has ended and before any other one writes; for what arrives,
    /// its send. `None`: before the step.
    pub after: Option<(Rank, u32)>,
    /// The first elements.
    pub view: View,
    /// What was read; empty until then.
    pub values: Vec<f32>,
}

/// A set of members of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Members(Vec<u64>);

impl Members {
    /// One member.
    pub fn one(member: usize) -> Self {
        let mut words = vec![0; member / 64 + 1];
        words[member / 64] = 1 << (member % 64);
        Self(words)
    }

    /// Adds all members of another set.
    pub fn join(&mut self, other: &Self) {
        self.0.resize(self.0.len().max(other.0.len()), 0);
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine |= theirs;
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The members, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        let bits = |(index, word): (usize, &u64)| {
            let word = *word;
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| 64 * index + bit)
        };
        self.0.iter().enumerate().flat_map(bits)
    }
}

/// What a member has sent and received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes sent.
    pub sent: Bytes,
    /// Bytes received.
    pub received: Bytes,
}

impl Captured {
    /// The collective to which an instruction belongs, without numbers. `None` if it belongs to
    /// none that sends anything.
    ///
    /// # Cost
    /// Linear in the instructions of the members.
    pub fn of(plan: &Plan, order: &Order, at: (Rank, u32)) -> Option<Self> {
        outline::outline(plan, order, at)
    }

    /// What every member holds after `rounds` rounds, `[member][chunk]`.
    pub fn cells(&self, rounds: usize) -> Vec<Vec<Option<&Cell>>> {
        let rows = self.start.iter().map(|row| row.iter().map(Option::as_ref).collect());
        let mut cells: Vec<Vec<Option<&Cell>>> = rows.collect();
        for change in self.rounds.iter().take(rounds).flat_map(|round| &round.changes) {
            cells[change.member][change.chunk] = Some(&change.cell);
        }
        cells
    }

    /// What every member has sent and received after `rounds` rounds.
    pub fn traffic(&self, rounds: usize) -> Vec<Traffic> {
        let mut traffic = vec![Traffic::default(); self.members.len()];
        for message in self.rounds.iter().take(rounds).flat_map(|round| &round.messages) {
            traffic[message.from].sent += message.bytes;
            traffic[message.to].received += message.bytes;
        }
        traffic
    }

    /// Bytes of all messages.
    pub fn bytes(&self) -> Bytes {
        self.traffic(self.rounds.len()).iter().map(|traffic| traffic.sent).sum()
    }

    /// How many first rounds still sum; the rest share finished sums: reduce-scatter, then
    /// all-gather.
    pub fn summing_rounds(&self) -> usize {
        let all = self.members.len();
        let sums = |round: &Round| {
            let cells = round.messages.iter().flat_map(|message| &message.cells);
            cells.into_iter().any(|cell| cell.summed.count() < all)
        };
        let adds = self.rounds.iter().flat_map(|round| &round.changes).any(|change| change.adds);
        if adds { self.rounds.iter().take_while(|round| sums(round)).count() } else { 0 }
    }

    /// The first elements of a cell; empty if nobody has read them.
    pub fn values(&self, cell: &Cell) -> &[f32] {
        &self.samples[cell.sample].values
    }

    /// What a cell is: `from rank 2`, `sum of ranks {0,2}`.
    pub fn tag(&self, cell: &Cell) -> String {
        let ranks: Vec<String> =
            cell.summed.iter().map(|member| self.members[member].to_string()).collect();
        match ranks.as_slice() {
            [rank] => format!("from rank {rank}"),
            _ if ranks.len() == self.members.len() && ranks.len() > 4 => {
                format!("sum of all {} ranks", ranks.len())
            }
            _ => format!("sum of ranks {{{}}}", ranks.join(",")),
        }
    }
}

/// Writes `reduce-scatter of gradients, data`.
impl fmt::Display for Captured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.collective.kind;
        let of = match self.origin.phase {
            Phase::GradReduce => "gradients".into(),
            Phase::WeightGather => "weights".into(),
            Phase::Norm => "the squared norm".into(),
            Phase::Optimizer | Phase::Other => "data".into(),
            Phase::Forward | Phase::Recompute => self.passed("activations"),
            Phase::Backward | Phase::InputGrad | Phase::WeightGrad => self.passed("gradients"),
        };
        write!(f, "{kind} of {of}, {} axis", self.axis.word())
    }
}

impl Captured {
    /// Something of a pass, with its layer and microbatch.
    fn passed(&self, what: &str) -> String {
        let layer = self.origin.layer.map(|layer| format!(", layer {layer}"));
        let of = self.origin.microbatch.map(|number| format!(" of microbatch {number}"));
        format!("{what}{}{}", of.unwrap_or_default(), layer.unwrap_or_default())
    }
}

/// The first collective of a step that sends something, gradients before all else: what to open
/// where nothing is selected.
pub fn first(plan: &Plan, order: &Order) -> Option<(Rank, u32)> {
    let lines = || {
        let ranks = (0..).map(Rank).zip(&plan.programs);
        ranks.flat_map(|(rank, program)| {
            (0..).zip(&program.instrs).map(move |(index, instr)| ((rank, index), instr.origin))
        })
    };
    let sends = |at: (Rank, u32)| order.peer[at.0.index()][at.1 as usize].is_some();
    let find = |wanted: &dyn Fn(Phase) -> bool| {
        let collective = |origin: Origin| origin.collective.is_some() && wanted(origin.phase);
        lines().find(|(at, origin)| collective(*origin) && sends(*at)).map(|(at, _)| at)
    };
    find(&|phase| phase == Phase::GradReduce).or_else(|| find(&|_| true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_members_join_and_are_listed_in_order() {
        let mut set = Members::one(70);
        set.join(&Members::one(3));
        set.join(&Members::one(70));
        assert_eq!(set.iter().collect::<Vec<_>>(), [3, 70]);
        assert_eq!(set.count(), 2);
        let mut other = Members::one(3);
        other.join(&Members::one(70));
        assert_eq!(set, other);
    }
}
