//! How far back what an instruction touches was touched last: the bytes that all ranks touched since.
//!
//! What lies a few megabytes back is still in the caches that cores share, what lies a step back
//! comes from memory: of kernels that do little more than to read and to write, that is the time.

use std::collections::BTreeMap;

use crate::mesh::Rank;
use crate::plan::{Action, Arena, Plan, Program, View};

/// The distances at which kernels are measured; nearer and farther ones are not told apart.
pub(crate) const DISTANCES: [u32; 2] = [4 << 20, 64 << 20];
/// Bytes that are looked at together.
const PAGE: u64 = 4096;

/// The distance of each instruction, `[rank][instruction]`: the mean over its bytes of the logarithms
/// of theirs. Ranks take turns, so for each byte of its own a rank lets one of every other pass.
pub(super) fn distances(plan: &Plan) -> Vec<Vec<f64>> {
    let ranks = f64::from(plan.mesh.size());
    plan.programs.iter().map(|program| of_rank(plan, program, ranks)).collect()
}

fn of_rank(plan: &Plan, program: &Program, ranks: f64) -> Vec<f64> {
    let mut pages = Pages::default();
    let distance = |instr: &crate::plan::Instr| {
        let views = match &instr.action {
            Action::Launch { inputs, outputs, .. } => [&inputs[..], outputs].concat(),
            Action::Send { view, .. } | Action::Recv { view, .. } => vec![*view],
            Action::Copy { from, to } => vec![*from, *to],
        };
        pages.touch(plan, &views, ranks)
    };
    program.instrs.iter().map(distance).collect()
}

/// When each page of a rank was touched last, on a clock of bytes.
#[derive(Default)]
struct Pages {
    last: BTreeMap<Arena, Vec<Option<u64>>>,
    clock: u64,
}

impl Pages {
    /// Touches some views; their mean distance.
    fn touch(&mut self, plan: &Plan, views: &[View], ranks: f64) -> f64 {
        let [near, far] = DISTANCES.map(f64::from);
        let (mut sum, mut count) = (0.0, 0.0);
        for view in views.iter().filter(|view| view.len > 0) {
            let (arena, bytes) = plan.view_place(*view);
            let pages = (bytes.start / PAGE) as usize..bytes.end.div_ceil(PAGE) as usize;
            let last = self.last.entry(arena).or_default();
            if last.len() < pages.end {
                last.resize(pages.end, None);
            }
            for page in &mut last[pages] {
                // What this step has not touched was touched in the one before.
                let back = page.map_or(far, |then| (self.clock - then) as f64 * ranks);
                sum += back.clamp(near, far).ln();
                count += 1.0;
                *page = Some(self.clock);
            }
            self.clock += bytes.end - bytes.start;
        }
        if count > 0.0 { (sum / count).exp() } else { near }
    }
}

/// Of a node of the step's graph: of a message the mean of what is sent and of where it arrives.
pub(super) fn of_node(distances: &[Vec<f64>], halves: impl Iterator<Item = (Rank, u32)>) -> f64 {
    let halves: Vec<f64> =
        halves.map(|(rank, instr)| distances[rank.index()][instr as usize].ln()).collect();
    (halves.iter().sum::<f64>() / halves.len().max(1) as f64).exp()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::sample::Sample;

    #[test]
    fn what_was_just_touched_is_near_and_what_is_touched_first_or_after_much_is_far() {
        let mut sample = Sample::new(1);
        let [a, b] = ["a", "b"].map(|label| sample.step(0, label, 1 << 20));
        let huge = sample.step(0, "huge", 32 << 20);
        for view in [a, a, b, a, huge, a] {
            sample.fill(0, view);
        }
        let found = distances(&sample.plan).remove(0);
        let [near, far] = DISTANCES.map(f64::from);
        // First: a step ago. Then at once. `b` first, and `a` past the 4 MiB of both. At the end
        // past all of `huge`.
        let expected = [far, near, far, 2.0 * near, far, far];
        for (found, expected) in found.iter().zip(expected) {
            assert!((found / expected - 1.0).abs() < 1e-9, "{found} is not {expected}");
        }
    }

    #[test]
    fn other_ranks_push_things_away_and_a_message_lies_between_its_halves() {
        let mut sample = Sample::new(2);
        let x = [0, 1].map(|rank| sample.step(rank, "x", 1 << 20));
        for rank in [0, 1] {
            sample.fill(rank, x[rank as usize]);
        }
        sample.send(0, x[0], 1, 0);
        let other = sample.step(1, "other", 1 << 20);
        sample.recv(1, other, 0, 0);
        let found = distances(&sample.plan);
        let [near, far] = DISTANCES.map(f64::from);
        assert!((found[0][1] / (2.0 * near) - 1.0).abs() < 1e-9, "4 MiB of each of two ranks");
        let halves = [(Rank(0), 1), (Rank(1), 1)].into_iter();
        let message = of_node(&found, halves);
        assert!((message / (2.0 * near * far).sqrt() - 1.0).abs() < 1e-9);
    }
}
