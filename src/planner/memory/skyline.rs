//! Packs blocks, each with a size and a life, into as little memory as possible.
//!
//! Memory over time is a strip, and a packing is a skyline that grows from the ground: the lowest
//! roof gets the best block that lives entirely above it, or is raised to its lower neighbour if
//! there is none (Sekiyama et al., arXiv:1804.10001). Three meanings of *best* are tried, each in
//! O(n log n) steps in practice, then first fit by size; the lowest packing wins.
//!
//! ```text
//!  bytes                ┌──────┐
//!    │   ┌────────┐     │  3   │
//!    │   │   2    ├─────┴──┐   │      the lowest roof is the one over block 4
//!    │ ┌─┴────────┤   4    ├───┴─┐
//!    │ │    1     │        │     │
//!    └─┴──────────┴────────┴─────┴─▶ program order
//! ```

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// What is packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// Instructions during which it owns its place; not empty if it has a size.
    pub(super) life: Range<u32>,
    /// Bytes.
    pub(super) size: u64,
}

/// Where the blocks lie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Packing {
    /// First byte of each block; 0 for blocks without size.
    pub(super) offsets: Vec<u64>,
    /// End of the highest block.
    pub(super) height: u64,
}

/// Up to this many blocks first fit, which is quadratic, is tried as well.
const FIRST_FIT_BLOCKS_MAX: usize = 1 << 14;
/// Bytes that a good packing may lose: this part of the live peak.
const GOOD_LOSS: u64 = 128;

/// Packs the blocks; equal blocks give an equal packing.
pub(super) fn pack(blocks: &[Block]) -> Packing {
    let span = |block: &Block| u64::from(block.life.end - block.life.start);
    // How many blocks a way is fast enough for, and the way.
    let ways: [(usize, &dyn Fn() -> Packing); 4] = [
        (usize::MAX, &|| pack_by(blocks, |block| (span(block), block.size))),
        (FIRST_FIT_BLOCKS_MAX, &|| first_fit(blocks)),
        (usize::MAX, &|| pack_by(blocks, |block| (block.size, span(block)))),
        (usize::MAX, &|| pack_by(blocks, |block| (block.size * span(block), block.size))),
    ];
    let peak = live_peak(blocks);
    let mut best: Option<Packing> = None;
    for (_, way) in ways.iter().filter(|(most, _)| blocks.len() <= *most) {
        let packing = way();
        if best.as_ref().is_none_or(|best| packing.height < best.height) {
            best = Some(packing);
        }
        if best.as_ref().is_some_and(|best| best.height <= peak + peak / GOOD_LOSS) {
            break;
        }
    }
    best.unwrap_or_default()
}

/// The most bytes that live at one time: no packing is lower.
pub(super) fn live_peak(blocks: &[Block]) -> u64 {
    let owners = blocks.iter().filter(|block| block.size > 0);
    // Ends sort before starts at the same time: lives are half-open.
    let bounds =
        |Block { life, size }: &Block| [(life.start, true, *size), (life.end, false, *size)];
    let mut changes: Vec<(u32, bool, u64)> = owners.flat_map(bounds).collect();
    changes.sort_unstable();
    let (mut live, mut peak) = (0, 0);
    for (_, begins, size) in changes {
        live = if begins { live + size } else { live - size };
        peak = live.max(peak);
    }
    peak
}

/// Puts each block, the largest first, into the lowest gap that is free for all its life.
fn first_fit(blocks: &[Block]) -> Packing {
    let mut order: Vec<usize> = (0..blocks.len()).filter(|&at| blocks[at].size > 0).collect();
    order.sort_by_key(|&at| (Reverse(blocks[at].size), blocks[at].life.start, at));
    let mut packing = Packing { offsets: vec![0; blocks.len()], height: 0 };
    // (first byte, end, life) by first byte.
    let mut placed: Vec<(u64, u64, Range<u32>)> = Vec::with_capacity(order.len());
    for at in order {
        let Block { life, size } = &blocks[at];
        let mut offset = 0;
        for (start, end, other) in &placed {
            if offset + size <= *start {
                break;
            }
            if life.start < other.end && other.start < life.end {
                offset = offset.max(*end);
            }
        }
        let end = offset + size;
        packing.offsets[at] = offset;
        packing.height = packing.height.max(end);
        let index = placed.partition_point(|&(start, ..)| start < offset);
        placed.insert(index, (offset, end, life.clone()));
    }
    packing
}

/// Packs with the best block being the one with the greatest key.
fn pack_by(blocks: &[Block], key: impl Fn(&Block) -> (u64, u64)) -> Packing {
    let mut ranked: Vec<usize> = (0..blocks.len()).filter(|&at| blocks[at].size > 0).collect();
    ranked.sort_by_key(|&at| (Reverse(key(&blocks[at])), blocks[at].life.start, at));
    let mut packing = Packing { offsets: vec![0; blocks.len()], height: 0 };
    let Some(end) = ranked.iter().map(|&at| blocks[at].life.end).max() else {
        return packing;
    };
    let mut waiting = Waiting::new(blocks, &ranked);
    let mut skyline = Skyline::new(end);
    for _ in 0..ranked.len() {
        let (roof, rank) = loop {
            let roof = skyline.lowest();
            match waiting.take_best(skyline.roofs[roof].life.clone()) {
                Some(rank) => break (roof, rank),
                None => skyline.raise(roof),
            }
        };
        let (at, height) = (ranked[rank], skyline.roofs[roof].height);
        packing.offsets[at] = height;
        packing.height = packing.height.max(height + blocks[at].size);
        skyline.build(roof, &blocks[at]);
    }
    packing
}

/// The blocks not yet packed: a tree over them in order of their first instruction.
#[derive(Debug)]
struct Waiting {
    /// First instructions in ascending order: the leaves.
    starts: Vec<u32>,
    /// Leaf of each rank.
    leaves: Vec<usize>,
    /// Nodes as in a heap, root 1: the earliest end and the best rank below each.
    nodes: Vec<(u32, u32)>,
}

impl Waiting {
    const NONE: (u32, u32) = (u32::MAX, u32::MAX);

    fn new(blocks: &[Block], ranked: &[usize]) -> Self {
        let mut order: Vec<usize> = (0..ranked.len()).collect();
        order.sort_by_key(|&rank| (blocks[ranked[rank]].life.start, rank));
        let first = ranked.len().next_power_of_two();
        let mut waiting = Self {
            starts: order.iter().map(|&rank| blocks[ranked[rank]].life.start).collect(),
            leaves: vec![0; ranked.len()],
            nodes: vec![Self::NONE; 2 * first],
        };
        for (leaf, &rank) in order.iter().enumerate() {
            waiting.leaves[rank] = leaf;
            waiting.nodes[first + leaf] = (blocks[ranked[rank]].life.end, rank as u32);
        }
        for node in (1..first).rev() {
            waiting.update(node);
        }
        waiting
    }

    fn update(&mut self, node: usize) {
        let ((end_a, rank_a), (end_b, rank_b)) = (self.nodes[2 * node], self.nodes[2 * node + 1]);
        self.nodes[node] = (end_a.min(end_b), rank_a.min(rank_b));
    }

    /// Removes the best block that lives inside `window` and returns its rank.
    fn take_best(&mut self, window: Range<u32>) -> Option<usize> {
        let leaves = self.starts.partition_point(|&start| start < window.start)
            ..self.starts.partition_point(|&start| start < window.end);
        let mut best = u32::MAX;
        let all = 0..self.nodes.len() / 2;
        self.search(1, all, &leaves, window.end, &mut best);
        if best == u32::MAX {
            return None;
        }
        let mut node = self.nodes.len() / 2 + self.leaves[best as usize];
        self.nodes[node] = Self::NONE;
        while node > 1 {
            node /= 2;
            self.update(node);
        }
        Some(best as usize)
    }

    /// Lowers `best` to the best rank below `node`, whose leaves are `span`, among `leaves` that
    /// end by `end`. A subtree is skipped if its earliest end is too late or its best no better.
    fn search(
        &self,
        node: usize,
        span: Range<usize>,
        leaves: &Range<usize>,
        end: u32,
        best: &mut u32,
    ) {
        let (earliest, rank) = self.nodes[node];
        let outside = span.end <= leaves.start || leaves.end <= span.start;
        if outside || earliest > end || rank >= *best {
            return;
        }
        if span.len() == 1 {
            *best = rank;
            return;
        }
        let middle = span.start.midpoint(span.end);
        let halves = [(2 * node, span.start..middle), (2 * node + 1, middle..span.end)];
        let swap = self.nodes[2 * node + 1].1 < self.nodes[2 * node].1;
        let [a, b] = halves;
        for (child, span) in if swap { [b, a] } else { [a, b] } {
            self.search(child, span, leaves, end, best);
        }
    }
}

/// The tops of what is packed: roofs that cover all of time, side by side.
#[derive(Debug)]
struct Skyline {
    roofs: Vec<Roof>,
    /// (height, start, roof), with entries of roofs that have changed since.
    queue: BinaryHeap<Reverse<(u64, u32, usize)>>,
}

/// A flat piece of the skyline.
#[derive(Clone, Debug)]
struct Roof {
    life: Range<u32>,
    height: u64,
    left: Option<usize>,
    right: Option<usize>,
}

impl Skyline {
    fn new(end: u32) -> Self {
        let mut skyline = Self { roofs: Vec::new(), queue: BinaryHeap::new() };
        skyline.add(Roof { life: 0..end, height: 0, left: None, right: None });
        skyline
    }

    fn add(&mut self, roof: Roof) -> usize {
        let index = self.roofs.len();
        self.roofs.push(roof);
        self.enqueue(index);
        index
    }

    fn enqueue(&mut self, roof: usize) {
        let Roof { life, height, .. } = &self.roofs[roof];
        self.queue.push(Reverse((*height, life.start, roof)));
    }

    /// The lowest roof, the earliest of several.
    fn lowest(&mut self) -> usize {
        loop {
            let Reverse((height, start, index)) =
                *self.queue.peek().expect("roofs cover all of time");
            let roof = &self.roofs[index];
            if !roof.life.is_empty() && (roof.height, roof.life.start) == (height, start) {
                return index;
            }
            self.queue.pop();
        }
    }

    /// Raises a roof to its lower neighbour.
    fn raise(&mut self, roof: usize) {
        let Roof { left, right, .. } = self.roofs[roof];
        let neighbours = [left, right].into_iter().flatten();
        let height = neighbours.map(|index| self.roofs[index].height).min();
        self.roofs[roof].height = height.expect("what fits nowhere fits over all of time");
        self.settle(roof);
    }

    /// Puts a block on a roof that is at least as long.
    fn build(&mut self, roof: usize, block: &Block) {
        let Roof { life, height, left, right } = self.roofs[roof].clone();
        if life.start < block.life.start {
            let before =
                Roof { life: life.start..block.life.start, height, left, right: Some(roof) };
            let before = self.add(before);
            self.link(left, Some(before));
            self.link(Some(before), Some(roof));
        }
        if block.life.end < life.end {
            let after = Roof { life: block.life.end..life.end, height, left: Some(roof), right };
            let after = self.add(after);
            self.link(Some(after), right);
            self.link(Some(roof), Some(after));
        }
        self.roofs[roof].life = block.life.clone();
        self.roofs[roof].height = height + block.size;
        self.settle(roof);
    }

    fn link(&mut self, left: Option<usize>, right: Option<usize>) {
        if let Some(left) = left {
            self.roofs[left].right = right;
        }
        if let Some(right) = right {
            self.roofs[right].left = left;
        }
    }

    /// Joins a roof with neighbours of its height and queues it.
    fn settle(&mut self, roof: usize) {
        let Roof { height, left, right, .. } = self.roofs[roof];
        if let Some(left) = left.filter(|&left| self.roofs[left].height == height) {
            self.roofs[roof].life.start = self.roofs[left].life.start;
            self.remove(left);
        }
        if let Some(right) = right.filter(|&right| self.roofs[right].height == height) {
            self.roofs[roof].life.end = self.roofs[right].life.end;
            self.remove(right);
        }
        self.enqueue(roof);
    }

    fn remove(&mut self, roof: usize) {
        let Roof { left, right, .. } = self.roofs[roof];
        self.link(left, right);
        self.roofs[roof].life.end = self.roofs[roof].life.start;
    }
}
