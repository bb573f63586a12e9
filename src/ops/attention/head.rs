//! One head of one sequence inside a matrix of activations, and how it is packed into panels.

use std::ops::Range;

use super::Heads;
use crate::ops::panel::{Left, stride};

impl Heads {
    /// `1 / √head_dim`.
    pub(super) fn scale(&self) -> f32 {
        (1.0 / f64::from(self.head_dim).sqrt()) as f32
    }

    /// Column of `qkv` where a query head starts.
    pub(super) fn query_column(&self, head: u32) -> usize {
        (head * self.head_dim) as usize
    }

    /// Column of `qkv` where a key head starts.
    pub(super) fn key_column(&self, kv_head: u32) -> usize {
        ((self.heads + kv_head) * self.head_dim) as usize
    }

    /// Column of `qkv` where a value head starts.
    pub(super) fn value_column(&self, kv_head: u32) -> usize {
        ((self.heads + self.kv_heads + kv_head) * self.head_dim) as usize
    }
}

/// One head of one sequence inside a matrix of activations.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head<'a> {
    data: &'a [f32],
    /// Place of the head in row 0.
    start: usize,
    /// Elements from one position to the next.
    step: usize,
    /// Elements of the head.
    dim: usize,
}

impl<'a> Head<'a> {
    /// The head at `column` of a matrix of rows of `width` elements.
    pub(super) fn new(
        heads: &Heads,
        data: &'a [f32],
        sequence: usize,
        width: u32,
        column: usize,
    ) -> Self {
        let (width, batch) = (width as usize, heads.batch as usize);
        Self {
            data,
            start: sequence * width + column,
            step: batch * width,
            dim: heads.head_dim as usize,
        }
    }

    #[inline(always)]
    pub(super) fn range(&self, position: usize) -> Range<usize> {
        let start = self.start + position * self.step;
        start..start + self.dim
    }

    #[inline(always)]
    pub(super) fn row(&self, position: usize) -> &'a [f32] {
        &self.data[self.range(position)]
    }

    /// The rows from `position` on as the left operand of a product.
    #[inline(always)]
    pub(super) fn left(&self, position: usize) -> Left<'a> {
        Left { data: &self.data[self.range(position).start..], row: self.step, column: 1 }
    }

    /// Copies the head into a panel `[seq, dim]`.
    #[inline(always)]
    pub(super) fn pack(&self, panel: &mut [f32]) {
        for (position, row) in panel.chunks_exact_mut(stride(self.dim)).enumerate() {
            row[..self.dim].copy_from_slice(self.row(position));
        }
    }

    /// Copies the head into a panel `[dim, seq]`, some positions at a time.
    #[inline(always)]
    pub(super) fn pack_transposed(&self, seq: usize, panel: &mut [f32]) {
        const POSITIONS: usize = 8;
        let stride = stride(seq);
        let whole = seq / POSITIONS * POSITIONS;
        for start in (0..whole).step_by(POSITIONS) {
            let rows: [&[f32]; POSITIONS] = std::array::from_fn(|i| self.row(start + i));
            for (column, panel) in panel.chunks_exact_mut(stride).enumerate() {
                for (x, row) in panel[start..start + POSITIONS].iter_mut().zip(rows) {
                    *x = row[column];
                }
            }
        }
        for position in whole..seq {
            for (panel, x) in panel.chunks_exact_mut(stride).zip(self.row(position)) {
                panel[position] = *x;
            }
        }
    }
}

/// Takes `len` elements off the front of `memory`.
pub(super) fn take<'a>(memory: &mut &'a mut [f32], len: usize) -> &'a mut [f32] {
    memory.split_off_mut(..len).expect("scratch holds all panels")
}
