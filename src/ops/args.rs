//! The arguments of a kernel call: typed slices over a rank's memory.
//!
//! One of the few files with unsafe code: parts of one op run on several threads and write
//! disjoint elements of the same output, which a plain `&mut [f32]` cannot say.
#![expect(unsafe_code, reason = "parts of an op write disjoint ranges of one output in parallel")]

use std::marker::PhantomData;
use std::ops::Range;

/// The arguments of one kernel call, in the order of its signature.
#[derive(Debug)]
pub struct Args<'a> {
    inputs: &'a [RawSlice],
    outputs: &'a [RawSlice],
    memory: PhantomData<&'a mut [f32]>,
}

/// A range of a rank's memory, 4 bytes an element.
#[derive(Clone, Copy, Debug)]
pub struct RawSlice {
    start: *mut f32,
    len: usize,
}

// SAFETY: a RawSlice is only turned into a reference through `Args`, whose constructor's contract
// rules out data races.
unsafe impl Send for RawSlice {}
// SAFETY: as above.
unsafe impl Sync for RawSlice {}

impl RawSlice {
    /// A slice of `len` 4-byte elements from `start`.
    pub fn new(start: *mut f32, len: usize) -> Self {
        Self { start, len }
    }
}

impl<'a> Args<'a> {
    /// Arguments over raw memory.
    ///
    /// # Safety
    /// For the life `'a` every slice is valid, aligned to 4 bytes, no output overlaps another
    /// argument, and nothing else writes an input or touches an output, except other parts of the
    /// same op.
    pub unsafe fn new(inputs: &'a [RawSlice], outputs: &'a [RawSlice]) -> Self {
        Self { inputs, outputs, memory: PhantomData }
    }

    /// Calls `run` with arguments over ordinary slices: for tests and callers with their own memory.
    pub fn with(inputs: &[&[f32]], outputs: &mut [&mut [f32]], run: impl FnOnce(&Args<'_>)) {
        let inputs: Vec<RawSlice> =
            inputs.iter().map(|s| RawSlice::new(s.as_ptr().cast_mut(), s.len())).collect();
        let outputs: Vec<RawSlice> =
            outputs.iter_mut().map(|s| RawSlice::new(s.as_mut_ptr(), s.len())).collect();
        // SAFETY: the borrow checker holds the contract: outputs are borrowed uniquely.
        run(&unsafe { Args::new(&inputs, &outputs) });
    }

    /// Number of inputs.
    pub fn input_count(&self) -> usize {
        self.inputs.len()
    }

    /// Input `index` as floats.
    pub fn f32(&self, index: usize) -> &'a [f32] {
        let RawSlice { start, len } = self.inputs[index];
        // SAFETY: valid and not written during 'a, by the contract of `new`.
        unsafe { std::slice::from_raw_parts(start, len) }
    }

    /// Input `index` as integers.
    pub fn i32(&self, index: usize) -> &'a [i32] {
        let RawSlice { start, len } = self.inputs[index];
        // SAFETY: as in `f32`; every bit pattern is an i32.
        unsafe { std::slice::from_raw_parts(start.cast::<i32>(), len) }
    }

    /// Elements `range` of output `index`.
    ///
    /// INVARIANT: a kernel never holds two overlapping ranges of one output, neither inside a part
    /// nor over parts; every kernel's doc says how its parts cut the outputs.
    ///
    /// # Panics
    /// If the range does not lie inside the output.
    pub fn out(&self, index: usize, range: Range<usize>) -> &'a mut [f32] {
        let RawSlice { start, len } = self.outputs[index];
        assert!(range.start <= range.end && range.end <= len, "output {index}: {range:?} of {len}");
        // SAFETY: inside the slice (asserted) and disjoint from all other live ranges (INVARIANT).
        unsafe { std::slice::from_raw_parts_mut(start.add(range.start), range.len()) }
    }

    /// The whole output `index`: for kernels of one part.
    pub fn out_all(&self, index: usize) -> &'a mut [f32] {
        self.out(index, 0..self.outputs[index].len)
    }
}
