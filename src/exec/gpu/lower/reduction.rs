//! Sums over ranks and of squares.

use super::{Bound, List, chunks};
use crate::exec::gpu::kernels::KernelId;
use crate::exec::gpu::params;
use crate::ops::reduction;

/// Inputs of the kernel `sum_ranks`.
const SLOTS: usize = 6;
/// Its mark for "the old value of the sum is no summand".
const NO_OWN: u32 = u32::MAX;
/// Elements of a partial sum over ranks in scratch.
const PARTIAL: u32 = 1 << 18;
/// Elements that a workgroup of `squared_norm_blocks` adds.
const BLOCK: u32 = 16_384;

impl List<'_> {
    /// More ranks than the kernel has inputs are added six at a time, still from the left: the sum
    /// so far is the first input of the next dispatch.
    pub(super) fn sum_ranks(
        &mut self,
        op: &reduction::SumRanks,
        inputs: &[Bound],
        outputs: &[Bound],
    ) {
        assert!(op.ranks > 0, "a sum over no ranks");
        let own = op.own.map(|own| own as usize);
        let mut terms = inputs.to_vec();
        if let Some(own) = own {
            terms.insert(own, outputs[0]);
        }
        let whole = terms.len() - usize::from(own.is_some()) <= SLOTS;
        let most = if whole { u32::MAX } else { PARTIAL };
        for range in chunks(op.len, self.elements_at_once().min(most)) {
            let part: Vec<Bound> = terms.iter().map(|term| term.slice(range.clone())).collect();
            self.sum_terms(&part, own, op.accumulate, outputs[0].slice(range.clone()));
        }
    }

    fn sum_terms(&mut self, terms: &[Bound], own: Option<usize>, accumulate: bool, sum: Bound) {
        let len = match sum {
            Bound::View(view) => view.len,
            Bound::Scratch { len, .. } => len,
        };
        let mut start = 0;
        let mut partial: Option<Bound> = None;
        loop {
            let mut group: Vec<Bound> = partial.into_iter().collect();
            let rest = &terms[start..];
            let own_left = own.filter(|&own| own >= start);
            if group.len() + rest.len() - usize::from(own_left.is_some()) <= SLOTS {
                let position = own_left.map(|own| own - start + group.len());
                group.extend(rest);
                if let Some(position) = position {
                    group.remove(position);
                }
                let own_position = position.map_or(NO_OWN, |position| position as u32);
                self.push_sum(&group, own_position, accumulate, (sum, len));
                return;
            }
            let taken = SLOTS - group.len();
            group.extend(&rest[..taken]);
            start += taken;
            // Two places by turns: none is read and written by the same dispatch.
            let first = Bound::Scratch { start: 0, len };
            let second = Bound::Scratch { start: PARTIAL, len };
            let next = if partial == Some(first) { second } else { first };
            self.push_sum(&group, NO_OWN, false, (next, len));
            partial = Some(next);
        }
    }

    fn push_sum(
        &mut self,
        group: &[Bound],
        own_position: u32,
        accumulate: bool,
        (sum, len): (Bound, u32),
    ) {
        let params = params::Reduction {
            len,
            count: group.len() as u32,
            own_position,
            accumulate: accumulate.into(),
            ..Default::default()
        };
        // Inputs beyond the count are bound to something and never read.
        let x = |index: usize| group.get(index).or(group.first()).copied().unwrap_or(sum);
        if (1..=2).contains(&group.len()) {
            self.push_line(KernelId::SumFewRanks, params, [x(0), x(1), sum], len);
        } else {
            let bindings = [x(0), x(1), x(2), x(3), x(4), x(5), sum];
            self.push_line(KernelId::SumRanks, params, bindings, len);
        }
    }

    pub(super) fn squared_norm(
        &mut self,
        op: &reduction::SquaredNorm,
        inputs: &[Bound],
        outputs: &[Bound],
    ) {
        let blocks_at_once = (self.budget.elements / BLOCK).clamp(1, self.budget.groups);
        let blocks = op.len.div_ceil(BLOCK);
        for blocks in chunks(blocks, blocks_at_once) {
            let start = blocks.start * BLOCK;
            let end = op.len.min(blocks.end.saturating_mul(BLOCK));
            let params = params::Reduction { len: end - start, ..Default::default() };
            let count = blocks.len() as u32;
            let partials = Bound::Scratch { start: blocks.start, len: count };
            let bindings = [inputs[0].slice(start..end), partials];
            self.push(KernelId::SquaredNormBlocks, params, bindings, [count, 1, 1]);
        }
        let partials = Bound::Scratch { start: 0, len: blocks };
        let params = params::Reduction {
            len: blocks,
            accumulate: op.accumulate.into(),
            has_guard: op.guard.into(),
            ..Default::default()
        };
        let guard = if op.guard { inputs[1] } else { partials };
        self.push(KernelId::SquaredNormTotal, params, [partials, guard, outputs[0]], [1, 1, 1]);
    }
}
