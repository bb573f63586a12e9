//! Forward of one query head of one sequence, a block of queries at a time against all their keys.

use pulp::{Simd, WithSimd};

use super::head::{Head, take};
use super::{Heads, QUERIES};
use crate::ops::Args;
use crate::ops::exp::exp;
use crate::ops::lanes::{Fma, SHORT_LANES, fold_short, max};
use crate::ops::panel::{Left, Out, Right, Sizes, padded, product, stride};

impl Heads {
    /// Elements of scratch memory of [`Forward`].
    pub(super) fn forward_scratch(&self) -> usize {
        let [seq, dim] = [self.seq, self.head_dim].map(|x| x as usize);
        dim * stride(seq) + seq * stride(dim) + QUERIES * (stride(seq) + stride(dim))
    }
}

/// Forward of one query head of one sequence.
pub(super) struct Forward<'a> {
    pub heads: &'a Heads,
    pub sequence: usize,
    pub head: u32,
    pub args: &'a Args<'a>,
    pub scratch: &'a mut [f32],
}

impl WithSimd for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { heads, sequence, head, args, mut scratch } = self;
        let [seq, dim] = [heads.seq, heads.head_dim].map(|x| x as usize);
        let (seq_stride, dim_stride) = (stride(seq), stride(dim));
        let (qkv, width) = (args.f32(0), heads.qkv_width());
        let kv_head = heads.kv_head(head);
        let in_qkv = |column| Head::new(heads, qkv, sequence, width, column);
        let q = in_qkv(heads.query_column(head));

        let k_transposed = take(&mut scratch, dim * seq_stride);
        let v = take(&mut scratch, seq * dim_stride);
        let scores = take(&mut scratch, QUERIES * seq_stride);
        let block_out = take(&mut scratch, QUERIES * dim_stride);
        in_qkv(heads.key_column(kv_head)).pack_transposed(seq, k_transposed);
        in_qkv(heads.value_column(kv_head)).pack(v);

        let out = Head::new(heads, &[], sequence, heads.out_width(), heads.query_column(head));
        for start in (0..seq).step_by(QUERIES) {
            let end = seq.min(start + QUERIES);
            // Queries start..end see the keys 0..end, the first of them fewer.
            product(
                simd,
                Sizes { m: end - start, n: padded(end), k: dim },
                q.left(start),
                Right { data: k_transposed, stride: seq_stride },
                Out { data: scores, stride: seq_stride, add: false },
            );
            let mut totals = [0f32; QUERIES];
            for query in start..end {
                let row = &mut scores[(query - start) * seq_stride..][..padded(end)];
                row[query + 1..].fill(f32::NEG_INFINITY);
                let max = max(row) * heads.scale();
                let total = exponentials(Fma::of(simd), row, heads.scale(), max);
                totals[query - start] = total;
                let place = (query * heads.batch as usize + sequence) * heads.heads as usize;
                let place = place + head as usize;
                args.out(1, place..place + 1)[0] = max + total.ln();
            }
            product(
                simd,
                Sizes { m: end - start, n: padded(dim), k: end },
                Left { data: scores, row: seq_stride, column: 1 },
                Right { data: v, stride: dim_stride },
                Out { data: block_out, stride: dim_stride, add: false },
            );
            for query in start..end {
                let share = 1.0 / totals[query - start];
                let row = &block_out[(query - start) * dim_stride..][..dim];
                let out = args.out(0, out.range(query));
                out.iter_mut().zip(row).for_each(|(out, x)| *out = x * share);
            }
        }
    }
}

/// Replaces each score by `exp(score · scale − shift)` and adds them up in a fixed order.
#[inline(always)]
fn exponentials(fma: Fma, row: &mut [f32], scale: f32, shift: f32) -> f32 {
    let mut lanes = [0f32; SHORT_LANES];
    for chunk in row.as_chunks_mut::<SHORT_LANES>().0 {
        for lane in 0..SHORT_LANES {
            chunk[lane] = exp(fma, fma.mul_add(chunk[lane], scale, -shift));
            lanes[lane] += chunk[lane];
        }
    }
    fold_short(lanes, |a, b| a + b)
}
