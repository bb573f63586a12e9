//! The instant of a step at which a picture says most.

use shardlab::mesh::Rank;
use shardlab::trace::draw::timeline::{Level, Target};
use shardlab::trace::draw::{BlockKind, block_at};
use shardlab::units::Nanos;

use crate::shown::Step;

/// Instants that are looked at.
const LOOKED_AT: u64 = 400;

/// The instant of a step at which its ranks do most different things and some of them wait, of equal
/// ones the one nearest to the middle.
pub fn telling(step: &Step) -> Nanos {
    let end = step.timeline.end().0;
    // Nothing much happens at the very ends.
    let instants = (LOOKED_AT / 8..LOOKED_AT * 7 / 8).map(|index| end / LOOKED_AT * index);
    let far = |at: u64| at.abs_diff(end / 2);
    let best = instants.max_by_key(|at| (worth(step, Nanos(*at)), std::cmp::Reverse(far(*at))));
    Nanos(best.unwrap_or_default())
}

/// How much there is to see at an instant.
fn worth(step: &Step, at: Nanos) -> usize {
    let ranks = step.timeline.ranks();
    let mut kinds: Vec<BlockKind> = Vec::new();
    let mut waiting = 0;
    for rank in ranks {
        let Some(block) = block_at(step.timeline.blocks(*rank), at) else { continue };
        waiting += usize::from(block.work().is_none());
        if block.work().is_some() && !kinds.contains(&block.kind) {
            kinds.push(block.kind);
        }
    }
    // Some wait, but most work.
    let some_wait = waiting > 0 && 2 * waiting <= ranks.len();
    2 * kinds.len() + usize::from(some_wait)
}

/// What works at an instant, of the first rank that works.
pub fn working(step: &Step, at: Nanos) -> Option<Target> {
    let works = |rank: &&Rank| {
        block_at(step.timeline.blocks(**rank), at).is_some_and(|block| block.work().is_some())
    };
    let rank = step.timeline.ranks().iter().find(works)?;
    step.timeline.target_at(*rank, Level::Pass, at)
}
