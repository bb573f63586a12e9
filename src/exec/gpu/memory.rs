//! Memory of a rank on a device: one wgpu buffer for each arena, or a few where one would exceed
//! what the adapter allows.
//!
//! All wgpu buffers of the backend are made here or in [`super::staging`], labelled.

use std::ops::Range;
use std::sync::Arc;

use super::fault::{Fault, one_line};
use crate::exec::ExecError;
use crate::mesh::Rank;
use crate::plan::{Arena, Life, Plan};
use crate::units::Bytes;

/// The buffers of one arena of one rank.
#[derive(Debug)]
pub(super) struct ArenaMemory {
    slabs: Vec<Slab>,
}

/// A stretch of an arena in a buffer of its own.
#[derive(Debug)]
struct Slab {
    bytes: Range<u64>,
    buffer: wgpu::Buffer,
}

impl ArenaMemory {
    /// The buffer that holds `bytes` of the arena, and where they start in it.
    pub(super) fn locate(&self, bytes: &Range<u64>) -> (&wgpu::Buffer, u64) {
        let slab = self.slabs.iter().find(|slab| holds(&slab.bytes, bytes));
        let slab = slab.unwrap_or_else(|| panic!("{bytes:?} lie in no buffer of the arena"));
        (&slab.buffer, bytes.start - slab.bytes.start)
    }

    /// Whether each of `needed` lies in one buffer.
    fn covers(&self, needed: &[Range<u64>]) -> bool {
        needed.iter().all(|bytes| self.slabs.iter().any(|slab| holds(&slab.bytes, bytes)))
    }

    fn bytes(&self) -> u64 {
        self.slabs.iter().map(|slab| slab.buffer.size()).sum()
    }
}

fn holds(outer: &Range<u64>, inner: &Range<u64>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

/// The arenas of one rank as one Plan sees them.
#[derive(Debug)]
pub(super) struct RankMemory {
    arenas: [Arc<ArenaMemory>; 3],
}

impl RankMemory {
    pub(super) fn arena(&self, arena: Arena) -> &ArenaMemory {
        &self.arenas[arena as usize]
    }

    /// Bytes of all arenas of `memories`, each counted once.
    pub(super) fn allocated<'a>(memories: impl Iterator<Item = &'a Self>) -> Bytes {
        let mut seen: Vec<&Arc<ArenaMemory>> = Vec::new();
        for arena in memories.flat_map(|memory| &memory.arenas) {
            if !seen.iter().any(|other| Arc::ptr_eq(other, arena)) {
                seen.push(arena);
            }
        }
        Bytes(seen.into_iter().map(|arena| arena.bytes()).sum())
    }
}

/// What is allowed, and whom to blame.
#[derive(Debug)]
pub(super) struct Allocator<'a> {
    pub(super) device: &'a wgpu::Device,
    pub(super) fault: &'a Fault,
    pub(super) name: &'a str,
    /// Bytes that a rank may place.
    pub(super) cap: Option<Bytes>,
}

impl Allocator<'_> {
    /// Memory for `rank` of a Plan. Persistent arenas are shared with the Plans loaded before, and
    /// so are arenas that live inside a step, where they are large enough.
    pub(super) fn rank(
        &self,
        plan: &Plan,
        rank: Rank,
        loaded: &[&RankMemory],
    ) -> Result<RankMemory, ExecError> {
        let needed: Vec<Vec<Range<u64>>> =
            Arena::ALL.map(|arena| places(plan, rank, arena)).into_iter().collect();
        let ends = needed.iter().map(|places| places.iter().map(|bytes| bytes.end).max());
        let need = Bytes(ends.map(|end| end.unwrap_or(0)).sum());
        if let Some(have) = self.cap.filter(|&have| have < need) {
            return Err(ExecError::Memory { rank, device: self.name.to_owned(), need, have });
        }
        let arena = |arena: Arena| -> Result<Arc<ArenaMemory>, ExecError> {
            let places = &needed[arena as usize];
            let old = loaded.iter().map(|memory| &memory.arenas[arena as usize]);
            // Inputs of a step are written once a load, so every Plan has its own.
            let shared = old.filter(|_| arena != Arena::Io).find(|old| old.covers(places));
            if let Some(shared) = shared {
                return Ok(Arc::clone(shared));
            }
            assert!(
                arena != Arena::Persistent || loaded.is_empty(),
                "rank {rank}: the Plans of a run declare the same persistent buffers"
            );
            self.arena(rank, arena, places).map(Arc::new)
        };
        let [persistent, io, step] = Arena::ALL.map(arena);
        Ok(RankMemory { arenas: [persistent?, io?, step?] })
    }

    fn arena(
        &self,
        rank: Rank,
        arena: Arena,
        places: &[Range<u64>],
    ) -> Result<ArenaMemory, ExecError> {
        let most = self.device.limits().max_buffer_size;
        let slabs = cut_slabs(places, most).map_err(|bytes| {
            self.fault.error(
                format!(
                    "rank {rank} needs {} in one piece, and a buffer of this adapter holds {} \
                     (max_buffer_size)",
                    Bytes(bytes),
                    Bytes(most)
                ),
                "Use more ranks, recompute, or fewer rows in a microbatch",
            )
        })?;
        let scope = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let usage = wgpu::BufferUsages::STORAGE
            | wgpu::BufferUsages::COPY_SRC
            | wgpu::BufferUsages::COPY_DST;
        let slab = |bytes: Range<u64>| {
            let label = format!("rank {rank} {arena:?}");
            Slab { buffer: buffer(self.device, &label, bytes.end - bytes.start, usage), bytes }
        };
        let memory = ArenaMemory { slabs: slabs.into_iter().map(slab).collect() };
        match pollster::block_on(scope.pop()) {
            None => Ok(memory),
            Some(error) => Err(self.fault.error(
                format!(
                    "rank {rank} could not get {} for its {arena:?} arena: {}",
                    Bytes(memory.bytes()),
                    one_line(&error.to_string())
                ),
                "Close other programs, or use more ranks, a higher ZeRO stage, recompute, or \
                 fewer rows in a microbatch",
            )),
        }
    }
}

/// A labelled buffer; never empty, as wgpu binds no empty buffers.
pub(super) fn buffer(
    device: &wgpu::Device,
    label: &str,
    bytes: u64,
    usage: wgpu::BufferUsages,
) -> wgpu::Buffer {
    let size = bytes.next_multiple_of(wgpu::COPY_BUFFER_ALIGNMENT).max(16);
    device.create_buffer(&wgpu::BufferDescriptor {
        label: Some(label),
        size,
        usage,
        mapped_at_creation: false,
    })
}

/// The bytes of every buffer of `rank` in an arena.
fn places(plan: &Plan, rank: Rank, arena: Arena) -> Vec<Range<u64>> {
    let decls = plan.buffers_of(rank).map(|(_, decl)| decl);
    decls
        .filter(|decl| decl.place.arena == arena)
        .inspect(|decl| {
            assert!(
                (arena == Arena::Persistent) == (decl.life == Life::Persistent),
                "rank {rank}: {} lies in the wrong arena",
                decl.label
            );
        })
        .map(|decl| decl.place.offset..decl.place.offset + decl.bytes().0)
        .collect()
}

/// Cuts an arena into stretches of at most `most` bytes, so that no buffer of the Plan is cut.
/// Buffers that share memory stay together.
///
/// # Errors
/// The size of what cannot be cut.
fn cut_slabs(places: &[Range<u64>], most: u64) -> Result<Vec<Range<u64>>, u64> {
    let mut places = places.to_vec();
    places.sort_by_key(|bytes| (bytes.start, bytes.end));
    // Runs of buffers that overlap.
    let mut runs: Vec<Range<u64>> = Vec::new();
    for bytes in places {
        match runs.last_mut() {
            Some(run) if bytes.start < run.end => run.end = run.end.max(bytes.end),
            _ => runs.push(bytes),
        }
    }
    let mut slabs: Vec<Range<u64>> = Vec::new();
    for run in runs {
        if most < run.end - run.start {
            return Err(run.end - run.start);
        }
        match slabs.last_mut() {
            Some(slab) if run.end - slab.start <= most => slab.end = run.end,
            _ => slabs.push(run),
        }
    }
    Ok(slabs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arena_that_fits_is_one_buffer() {
        let one = std::iter::once(0..700).collect();
        assert_eq!(cut_slabs(&[0..100, 256..300, 512..700], 1000), Ok(one));
        assert_eq!(cut_slabs(&[], 1000), Ok(vec![]));
    }

    #[test]
    fn an_arena_is_cut_between_buffers_and_never_through_one() {
        assert_eq!(
            cut_slabs(&[512..700, 0..256, 256..300, 768..1000], 500),
            Ok(vec![0..300, 512..1000])
        );
    }

    #[test]
    fn buffers_that_share_memory_stay_together() {
        assert_eq!(
            cut_slabs(&[0..256, 0..100, 200..300, 512..513], 400),
            Ok(vec![0..300, 512..513])
        );
        assert_eq!(cut_slabs(&[0..256, 200..500, 400..600], 400), Err(600));
    }
}
