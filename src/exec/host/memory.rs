//! Arenas of host ranks, and the addresses that every task of a Plan touches.
//!
//! The only file of `exec` with unsafe code. Workers touch one arena at the same time, which no
//! borrow can express, so views are resolved to addresses once and the order of the Plan does
//! what the borrow checker cannot.
//!
//! INVARIANT (why this is sound): a task runs at most once in a step, and only after all its
//! predecessors have ended. `plan::order` makes any two instructions of a rank of which one
//! writes bytes that the other touches ordered, and gives no byte to two ranks: so while a task
//! runs, nothing else writes what it reads or touches what it writes, except other parts of the
//! same op, which write disjoint elements. `exec::validate` holds every view inside its arena
//! and keeps outputs apart from the other arguments of one launch. Between steps the executor
//! is borrowed mutably and no task runs.
#![expect(unsafe_code, reason = "workers share arenas; the Plan's order keeps them apart")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::ops::args::RawSlice;
use crate::ops::{Args, Kernel, Op};

/// Alignment of an arena: a cache line, and what any vector load accepts.
const ALIGN: usize = 64;

/// A zeroed allocation that never moves.
#[derive(Debug)]
pub(in crate::exec) struct Arena {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an Arena is plain memory; who touches which byte of it when is the module's INVARIANT.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Zeroed memory of `bytes` bytes, or `None` if the machine has no more.
    pub(in crate::exec) fn zeroed(bytes: u64) -> Option<Self> {
        let bytes = usize::try_from(bytes).ok()?;
        let layout = Self::layout(bytes)?;
        // SAFETY: the layout's size is not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self { start, bytes })
    }

    /// Size.
    pub(in crate::exec) fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Copies `range` out; only while no task runs.
    pub(in crate::exec) fn read(&self, range: Range<u64>, into: &mut [u8]) {
        let region = self.region(range);
        assert_eq!(region.bytes, into.len(), "a read fills its destination");
        // SAFETY: the region is inside the arena, `into` is borrowed uniquely, lengths are equal.
        unsafe { region.start.copy_to_nonoverlapping(into.as_mut_ptr(), region.bytes) };
    }

    /// Copies `from` into `range`; only while no task runs.
    pub(in crate::exec) fn write(&self, range: Range<u64>, from: &[u8]) {
        let region = self.region(range);
        assert_eq!(region.bytes, from.len(), "a write fills its range");
        // SAFETY: as in `read`.
        unsafe { region.start.copy_from_nonoverlapping(from.as_ptr(), region.bytes) };
    }

    fn layout(bytes: usize) -> Option<Layout> {
        Layout::from_size_align(bytes.max(1), ALIGN).ok()
    }

    fn region(&self, range: Range<u64>) -> Region {
        assert!(
            range.start <= range.end && range.end <= self.bytes(),
            "bytes {range:?} of an arena of {}",
            self.bytes
        );
        // SAFETY: the start is inside the allocation (asserted).
        let start = unsafe { self.start.as_ptr().add(range.start as usize) };
        Region { start, bytes: (range.end - range.start) as usize }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let layout = Self::layout(self.bytes).expect("it was allocated with this layout");
        // SAFETY: allocated by `zeroed` with the same layout; every Region is kept together with
        // its arena.
        unsafe { dealloc(self.start.as_ptr(), layout) };
    }
}

/// Bytes of an arena, by address.
#[derive(Clone, Copy, Debug)]
struct Region {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: as for Arena.
unsafe impl Send for Region {}
// SAFETY: as for Arena.
unsafe impl Sync for Region {}

/// Bytes of one of the arenas that a [`Bindings`] holds.
#[derive(Clone, Debug)]
pub(in crate::exec) struct Extent {
    /// Index of the arena.
    pub(in crate::exec) arena: usize,
    /// Bytes inside it.
    pub(in crate::exec) bytes: Range<u64>,
}

/// What a task touches in host memory.
#[derive(Clone, Copy, Debug)]
enum Bound {
    /// Nothing: it runs on a device.
    Nothing,
    /// Arguments: inputs `first..outputs`, outputs `outputs..end` of the list of slices.
    Launch { first: u32, outputs: u32, end: u32 },
    /// One copy.
    Copy { from: Region, to: Region },
    /// Bytes that go to a device.
    Source(Region),
    /// Bytes that come from a device.
    Destination(Region),
}

/// The addresses of every task of a loaded Plan, in the order of the tasks.
#[derive(Debug)]
pub(in crate::exec) struct Bindings {
    bounds: Vec<Bound>,
    slices: Vec<RawSlice>,
    /// Holds the memory behind all addresses.
    arenas: Vec<Arc<Arena>>,
}

impl Bindings {
    /// No tasks yet, over `arenas`.
    pub(in crate::exec) fn new(arenas: Vec<Arc<Arena>>) -> Self {
        Self { bounds: Vec::new(), slices: Vec::new(), arenas }
    }

    /// The next task is a kernel.
    pub(in crate::exec) fn push_launch(&mut self, inputs: Vec<Extent>, outputs: Vec<Extent>) {
        let count = |list: &Vec<RawSlice>| u32::try_from(list.len()).expect("fewer than 2^32");
        let first = count(&self.slices);
        self.push_slices(inputs);
        let at = count(&self.slices);
        self.push_slices(outputs);
        self.bounds.push(Bound::Launch { first, outputs: at, end: count(&self.slices) });
    }

    /// The next task copies bytes.
    pub(in crate::exec) fn push_copy(&mut self, from: Extent, to: Extent) {
        let (from, to) = (self.region(from), self.region(to));
        assert_eq!(from.bytes, to.bytes, "a copy has one length");
        self.bounds.push(Bound::Copy { from, to });
    }

    /// The next task hands bytes to a device.
    pub(in crate::exec) fn push_source(&mut self, from: Extent) {
        let bound = Bound::Source(self.region(from));
        self.bounds.push(bound);
    }

    /// The next task gets bytes from a device.
    pub(in crate::exec) fn push_destination(&mut self, to: Extent) {
        let bound = Bound::Destination(self.region(to));
        self.bounds.push(bound);
    }

    /// The next task touches no host memory.
    pub(in crate::exec) fn push_nothing(&mut self) {
        self.bounds.push(Bound::Nothing);
    }

    /// Runs one part of a launch that is ready.
    pub(in crate::exec) fn launch(&self, task: u32, op: &Op, part: u32) {
        let Bound::Launch { first, outputs, end } = self.bounds[task as usize] else {
            panic!("task {task} is no kernel on the host");
        };
        let inputs = &self.slices[first as usize..outputs as usize];
        let outputs = &self.slices[outputs as usize..end as usize];
        // SAFETY: addresses lie in arenas that `self` holds and are aligned (asserted when they
        // were made); the rest is the module's INVARIANT, as the task is ready and not yet ended.
        op.run(part, &unsafe { Args::new(inputs, outputs) });
    }

    /// Makes the copy of a task that is ready, and says how many bytes that were.
    pub(in crate::exec) fn copy(&self, task: u32) -> u64 {
        let Bound::Copy { from, to } = self.bounds[task as usize] else {
            panic!("task {task} is no copy on the host");
        };
        // SAFETY: both regions lie in arenas that `self` holds, have one length (asserted) and do
        // not overlap (validated inside a rank, and ranks share no bytes); the rest is the
        // module's INVARIANT.
        unsafe { from.start.copy_to_nonoverlapping(to.start, from.bytes) };
        from.bytes as u64
    }

    /// The bytes that a task that is ready hands to a device.
    pub(in crate::exec) fn source(&self, task: u32) -> &[u8] {
        let Bound::Source(from) = self.bounds[task as usize] else {
            panic!("task {task} hands nothing to a device");
        };
        // SAFETY: the module's INVARIANT: nothing writes these bytes before the task has ended,
        // and the driver drops the slice before it ends the task.
        unsafe { std::slice::from_raw_parts(from.start, from.bytes) }
    }

    /// Calls `fill` with the bytes that a task gets from a device; the task has not ended.
    pub(in crate::exec) fn fill<T>(&self, task: u32, fill: impl FnOnce(&mut [u8]) -> T) -> T {
        let Bound::Destination(to) = self.bounds[task as usize] else {
            panic!("task {task} gets nothing from a device");
        };
        // SAFETY: staging bytes belong to one download; whoever reads them waits for it to end.
        fill(unsafe { std::slice::from_raw_parts_mut(to.start, to.bytes) })
    }

    fn push_slices(&mut self, extents: Vec<Extent>) {
        for extent in extents {
            let region = self.region(extent);
            assert!(
                region.start.addr().is_multiple_of(4) && region.bytes.is_multiple_of(4),
                "kernels read elements of 4 bytes"
            );
            self.slices.push(RawSlice::new(region.start.cast(), region.bytes / 4));
        }
    }

    fn region(&self, extent: Extent) -> Region {
        self.arenas[extent.arena].region(extent.bytes)
    }
}
