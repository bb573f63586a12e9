//! Gradients of one key head of one sequence, and of all query heads that read it: as many as a part
//! must write so that no two parts write the same element.

use pulp::{Simd, WithSimd};

use super::head::{Head, take};
use super::{Heads, QUERIES};
use crate::ops::Args;
use crate::ops::exp::exp;
use crate::ops::lanes::{Fma, sum};
use crate::ops::panel::{Left, Out, Right, Sizes, padded, product, stride};

impl Heads {
    /// Elements of scratch memory of [`Backward`].
    pub(super) fn backward_scratch(&self) -> usize {
        let [seq, dim] = [self.seq, self.head_dim].map(|x| x as usize);
        2 * dim * stride(seq) + 5 * seq * stride(dim) + QUERIES * (2 * stride(seq) + stride(dim))
    }
}

/// Gradients of one key head of one sequence, and of all query heads that read it.
pub(super) struct Backward<'a> {
    pub heads: &'a Heads,
    pub sequence: usize,
    pub kv_head: u32,
    pub args: &'a Args<'a>,
    pub scratch: &'a mut [f32],
}

impl WithSimd for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { heads, sequence, kv_head, args, mut scratch } = self;
        let [seq, dim] = [heads.seq, heads.head_dim].map(|x| x as usize);
        let (seq_stride, dim_stride) = (stride(seq), stride(dim));
        let width = heads.qkv_width();
        let in_qkv = |column| Head::new(heads, args.f32(0), sequence, width, column);
        let key = in_qkv(heads.key_column(kv_head));
        let value = in_qkv(heads.value_column(kv_head));

        let k = take(&mut scratch, seq * dim_stride);
        let k_transposed = take(&mut scratch, dim * seq_stride);
        let v_transposed = take(&mut scratch, dim * seq_stride);
        let d_k = take(&mut scratch, seq * dim_stride);
        let d_v = take(&mut scratch, seq * dim_stride);
        key.pack(k);
        key.pack_transposed(seq, k_transposed);
        value.pack_transposed(seq, v_transposed);
        d_k.fill(0.0);
        d_v.fill(0.0);
        let mut query = QueryGrad {
            heads,
            sequence,
            args,
            k: Right { data: k, stride: dim_stride },
            k_transposed: Right { data: k_transposed, stride: seq_stride },
            v_transposed: Right { data: v_transposed, stride: seq_stride },
            d_k,
            d_v,
            scratch,
        };
        for head in (0..heads.heads).filter(|&head| heads.kv_head(head) == kv_head) {
            query.add(simd, head);
        }
        for (head, gradient) in [(key, query.d_k), (value, query.d_v)] {
            for (position, row) in gradient.chunks_exact(dim_stride).enumerate() {
                args.out(0, head.range(position)).copy_from_slice(&row[..dim]);
            }
        }
    }
}

/// The gradients of a query head, and its share in those of its key head.
struct QueryGrad<'a> {
    heads: &'a Heads,
    sequence: usize,
    args: &'a Args<'a>,
    k: Right<'a>,
    k_transposed: Right<'a>,
    v_transposed: Right<'a>,
    d_k: &'a mut [f32],
    d_v: &'a mut [f32],
    scratch: &'a mut [f32],
}

impl QueryGrad<'_> {
    #[inline(always)]
    fn add<S: Simd>(&mut self, simd: S, head: u32) {
        let (heads, sequence, args) = (self.heads, self.sequence, self.args);
        let [seq, dim] = [heads.seq, heads.head_dim].map(|x| x as usize);
        let (seq_stride, dim_stride) = (stride(seq), stride(dim));
        let column = heads.query_column(head);
        let query = Head::new(heads, args.f32(0), sequence, heads.qkv_width(), column);
        let in_out = |data| Head::new(heads, data, sequence, heads.out_width(), column);
        let (out, lse, d_out) = (in_out(args.f32(1)), args.f32(2), in_out(args.f32(3)));

        let mut scratch = &mut *self.scratch;
        let q = take(&mut scratch, seq * dim_stride);
        let d_o = take(&mut scratch, seq * dim_stride);
        let probabilities = take(&mut scratch, QUERIES * seq_stride);
        let d_scores = take(&mut scratch, QUERIES * seq_stride);
        let d_q = take(&mut scratch, QUERIES * dim_stride);
        query.pack(q);
        d_out.pack(d_o);
        for start in (0..seq).step_by(QUERIES) {
            let end = seq.min(start + QUERIES);
            let scores = Sizes { m: end - start, n: padded(end), k: dim };
            let in_scores = |data| Out { data, stride: seq_stride, add: false };
            product(simd, scores, query.left(start), self.k_transposed, in_scores(probabilities));
            product(simd, scores, d_out.left(start), self.v_transposed, in_scores(d_scores));
            for position in start..end {
                let row = (position - start) * seq_stride;
                let row = row..row + padded(end);
                let (p, d_p) = (&mut probabilities[row.clone()], &mut d_scores[row]);
                let place = (position * heads.batch as usize + sequence) * heads.heads as usize;
                let lse = lse[place + head as usize];
                let delta = dot(out.row(position), d_out.row(position));
                score_gradient(Fma::of(simd), p, d_p, heads.scale(), lse, delta);
                // Keys that the query does not see, and padding.
                p[position + 1..].fill(0.0);
                d_p[position + 1..].fill(0.0);
            }
            product(
                simd,
                Sizes { m: end - start, n: padded(dim), k: end },
                Left { data: d_scores, row: seq_stride, column: 1 },
                self.k,
                Out { data: d_q, stride: dim_stride, add: false },
            );
            for position in start..end {
                let row = &d_q[(position - start) * dim_stride..][..dim];
                args.out(0, query.range(position)).copy_from_slice(row);
            }
            let keys = Sizes { m: end, n: padded(dim), k: end - start };
            for (left, right, out) in
                [(&*d_scores, &*q, &mut *self.d_k), (&*probabilities, &*d_o, &mut *self.d_v)]
            {
                let left = Left { data: left, row: 1, column: seq_stride };
                let right = Right { data: &right[start * dim_stride..], stride: dim_stride };
                let out = Out { data: out, stride: dim_stride, add: true };
                product(simd, keys, left, right, out);
            }
        }
    }
}

/// Turns a row of scores into probabilities `p` and a row of `d_p` into the gradient of the scores:
/// `p · (d_p − delta) · scale`, where `delta` = `Σ p · d_p` = `out · d_out`.
#[inline(always)]
fn score_gradient(fma: Fma, row: &mut [f32], d_row: &mut [f32], scale: f32, lse: f32, delta: f32) {
    for (p, d) in row.iter_mut().zip(d_row) {
        *p = exp(fma, fma.mul_add(*p, scale, -lse));
        *d = *p * (*d - delta) * scale;
    }
}

/// `Σ a · b`, in a fixed order.
#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    sum(
        [a, b],
        #[inline(always)]
        |[a, b]| a * b,
    ) as f32
}
