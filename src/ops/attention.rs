//! Causal grouped-query attention, fused: no `seq × seq` matrix is ever stored.
//!
//! The host kernels take a block of queries at a time against all their keys, in scratch memory of
//! the thread; heads are packed into padded panels first, see `panel.rs`.

use std::ops::Range;

use pulp::{Simd, WithSimd};
use serde::{Deserialize, Serialize};

use super::exp::exp;
use super::lanes::{Fma, SHORT_LANES, fold_short, max, part_count, part_units, with_scratch};
use super::panel::{Left, Out, Right, Sizes, padded, product, stride};
use super::{Access, Args, Kernel, Signature};
use crate::units::Flops;

/// Sizes shared by forward and backward. A row of `qkv` is `[heads | kv_heads keys | kv_heads
/// values] × head_dim`. Local query head `h` reads local key head
/// `(first_head + h) / group − first_kv_head`: shards need not hold whole groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heads {
    /// Positions.
    pub seq: u32,
    /// Sequences; row = t * batch + i.
    pub batch: u32,
    /// Query heads of this rank.
    pub heads: u32,
    /// Key and value heads that this rank holds.
    pub kv_heads: u32,
    /// Elements of a head.
    pub head_dim: u32,
    /// Query heads that share a key head, in the whole model.
    pub group: u32,
    /// Global index of the first query head of this rank.
    pub first_head: u32,
    /// Global index of the first key head of this rank.
    pub first_kv_head: u32,
}

impl Heads {
    /// Elements of a row of `qkv`.
    pub fn qkv_width(&self) -> u32 {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }

    /// Elements of a row of the output.
    pub fn out_width(&self) -> u32 {
        self.heads * self.head_dim
    }

    /// The local key head of a local query head.
    pub fn kv_head(&self, head: u32) -> u32 {
        (self.first_head + head) / self.group - self.first_kv_head
    }

    /// Rows: `seq * batch`.
    pub fn rows(&self) -> u64 {
        u64::from(self.seq) * u64::from(self.batch)
    }

    /// Query–key pairs under the causal mask, over all heads and sequences.
    fn pairs(&self) -> u64 {
        let seq = u64::from(self.seq);
        seq * (seq + 1) / 2 * u64::from(self.batch) * u64::from(self.heads)
    }
}

/// `out = softmax(q·kᵀ / √head_dim, causal) · v`; `lse[row, head]` = log of the sum of exponentials of
/// the scaled scores, kept for backward (`FlashAttention`, arXiv:2205.14135).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attention {
    /// Sizes.
    pub heads: Heads,
}

impl Kernel for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }
    fn signature(&self) -> Signature {
        let (heads, rows) = (&self.heads, self.heads.rows());
        Signature::default()
            .input("qkv", rows * u64::from(heads.qkv_width()))
            .output("out", Access::Write, rows * u64::from(heads.out_width()))
            .output("lse", Access::Write, rows * u64::from(heads.heads))
    }
    fn flops(&self) -> Flops {
        Flops(self.heads.pairs() * (4 * u64::from(self.heads.head_dim) + 4))
    }
    /// Parts are pairs of sequence and query head.
    fn parts(&self) -> u32 {
        part_count(self.heads.batch * self.heads.heads, self.heads.unit_cost(1))
    }
    fn run(&self, part: u32, args: &Args<'_>) {
        let (heads, cost) = (&self.heads, self.heads.unit_cost(1));
        for unit in part_units(heads.batch * heads.heads, cost, part) {
            let (sequence, head) = (unit / heads.heads as usize, unit as u32 % heads.heads);
            with_scratch(heads.forward_scratch(), |scratch| {
                pulp::Arch::new().dispatch(Forward { heads, sequence, head, args, scratch });
            });
        }
    }
}

/// Gradient of queries, keys and values; probabilities are computed again from `lse`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttentionGrad {
    /// Sizes.
    pub heads: Heads,
}

impl Kernel for AttentionGrad {
    fn name(&self) -> &'static str {
        "attention_grad"
    }
    fn signature(&self) -> Signature {
        let (heads, rows) = (&self.heads, self.heads.rows());
        let (out, qkv) = (rows * u64::from(heads.out_width()), rows * u64::from(heads.qkv_width()));
        Signature::default()
            .input("qkv", qkv)
            .input("out", out)
            .input("lse", rows * u64::from(heads.heads))
            .input("d_out", out)
            .output("d_qkv", Access::Write, qkv)
    }
    fn flops(&self) -> Flops {
        Flops(self.heads.pairs() * (10 * u64::from(self.heads.head_dim) + 6))
    }
    /// Parts are pairs of sequence and key head, whose gradients are sums over query heads.
    fn parts(&self) -> u32 {
        let group = self.heads.heads.div_ceil(self.heads.kv_heads.max(1));
        part_count(self.heads.batch * self.heads.kv_heads, self.heads.unit_cost(3 * group))
    }
    fn run(&self, part: u32, args: &Args<'_>) {
        let heads = &self.heads;
        let cost = heads.unit_cost(3 * heads.heads.div_ceil(heads.kv_heads.max(1)));
        for unit in part_units(heads.batch * heads.kv_heads, cost, part) {
            let (sequence, kv_head) =
                (unit / heads.kv_heads as usize, unit as u32 % heads.kv_heads);
            with_scratch(heads.backward_scratch(), |scratch| {
                pulp::Arch::new().dispatch(Backward { heads, sequence, kv_head, args, scratch });
            });
        }
    }
}

/// Queries that are taken together.
const QUERIES: usize = 16;

impl Heads {
    /// Cost of a query head, in the unit of [`part_count`]; `passes` times that of forward.
    fn unit_cost(&self, passes: u32) -> u32 {
        (self.seq / 8).saturating_mul(self.seq).saturating_mul(self.head_dim).saturating_mul(passes)
    }

    fn forward_scratch(&self) -> usize {
        let [seq, dim] = [self.seq, self.head_dim].map(|x| x as usize);
        dim * stride(seq) + seq * stride(dim) + QUERIES * (stride(seq) + stride(dim))
    }

    fn backward_scratch(&self) -> usize {
        let [seq, dim] = [self.seq, self.head_dim].map(|x| x as usize);
        2 * dim * stride(seq)
            + 5 * seq * stride(dim)
            + QUERIES * (2 * stride(seq) + stride(dim))
            + padded(seq)
    }

    /// `1 / √head_dim`.
    fn scale(&self) -> f32 {
        (1.0 / f64::from(self.head_dim).sqrt()) as f32
    }

    /// Column of `qkv` where a query head starts.
    fn query_column(&self, head: u32) -> usize {
        (head * self.head_dim) as usize
    }

    /// Column of `qkv` where a key head starts.
    fn key_column(&self, kv_head: u32) -> usize {
        ((self.heads + kv_head) * self.head_dim) as usize
    }

    /// Column of `qkv` where a value head starts.
    fn value_column(&self, kv_head: u32) -> usize {
        ((self.heads + self.kv_heads + kv_head) * self.head_dim) as usize
    }
}

/// One head of one sequence inside a matrix of activations.
#[derive(Clone, Copy, Debug)]
struct Head<'a> {
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
    fn new(heads: &Heads, data: &'a [f32], sequence: usize, width: u32, column: usize) -> Self {
        let (width, batch) = (width as usize, heads.batch as usize);
        Self {
            data,
            start: sequence * width + column,
            step: batch * width,
            dim: heads.head_dim as usize,
        }
    }

    #[inline(always)]
    fn range(&self, position: usize) -> Range<usize> {
        let start = self.start + position * self.step;
        start..start + self.dim
    }

    #[inline(always)]
    fn row(&self, position: usize) -> &'a [f32] {
        &self.data[self.range(position)]
    }

    /// The rows from `position` on as the left operand of a product.
    #[inline(always)]
    fn left(&self, position: usize) -> Left<'a> {
        Left { data: &self.data[self.range(position).start..], row: self.step, column: 1 }
    }

    /// Copies the head into a panel `[seq, dim]`.
    #[inline(always)]
    fn pack(&self, panel: &mut [f32]) {
        for (position, row) in panel.chunks_exact_mut(stride(self.dim)).enumerate() {
            row[..self.dim].copy_from_slice(self.row(position));
        }
    }

    /// Copies the head into a panel `[dim, seq]`, some positions at a time.
    #[inline(always)]
    fn pack_transposed(&self, seq: usize, panel: &mut [f32]) {
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
fn take<'a>(memory: &mut &'a mut [f32], len: usize) -> &'a mut [f32] {
    memory.split_off_mut(..len).expect("scratch holds all panels")
}

/// Forward of one query head of one sequence.
struct Forward<'a> {
    heads: &'a Heads,
    sequence: usize,
    head: u32,
    args: &'a Args<'a>,
    scratch: &'a mut [f32],
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

/// Gradients of one key head of one sequence, and of all query heads that read it.
struct Backward<'a> {
    heads: &'a Heads,
    sequence: usize,
    kv_head: u32,
    args: &'a Args<'a>,
    scratch: &'a mut [f32],
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
    super::lanes::sum(
        [a, b],
        #[inline(always)]
        |[a, b]| a * b,
    ) as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{Random, assert_close, finite_differences, run, wide};

    fn heads(sizes: [u32; 8]) -> Heads {
        let [seq, batch, heads, kv_heads, head_dim, group, first_head, first_kv_head] = sizes;
        Heads { seq, batch, heads, kv_heads, head_dim, group, first_head, first_kv_head }
    }

    /// Plain heads, groups, and shards that cut a group or hold key heads that nobody reads.
    fn cases() -> Vec<Heads> {
        [
            [1, 1, 1, 1, 1, 1, 0, 0],
            [5, 2, 2, 2, 4, 1, 0, 0],
            [33, 3, 4, 2, 8, 2, 0, 0],
            [50, 1, 2, 2, 17, 3, 2, 0],
            [17, 2, 3, 1, 32, 4, 4, 1],
            [70, 2, 1, 3, 5, 2, 3, 0],
            [129, 1, 2, 1, 48, 2, 2, 1],
        ]
        .map(heads)
        .to_vec()
    }

    fn lens(heads: &Heads) -> (u64, u64) {
        (heads.rows() * u64::from(heads.qkv_width()), heads.rows() * u64::from(heads.out_width()))
    }

    /// `(out, lse, gradient of qkv)` in double precision, straight from the definition.
    fn reference(h: &Heads, qkv: &[f64], d_out: &[f64]) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
        let [seq, batch, dim] = [h.seq, h.batch, h.head_dim].map(|x| x as usize);
        let (width, out_width) = (h.qkv_width() as usize, h.out_width() as usize);
        let scale = 1.0 / (dim as f64).sqrt();
        let mut out = vec![0.0; seq * batch * out_width];
        let mut lse = vec![0.0; seq * batch * h.heads as usize];
        let mut d_qkv = vec![0.0; qkv.len()];
        for i in 0..batch {
            for head in 0..h.heads as usize {
                let kv =
                    (h.first_head as usize + head) / h.group as usize - h.first_kv_head as usize;
                let q_at = |t: usize| (t * batch + i) * width + head * dim;
                let k_at = |t: usize| (t * batch + i) * width + (h.heads as usize + kv) * dim;
                let v_at = |t: usize| k_at(t) + h.kv_heads as usize * dim;
                let o_at = |t: usize| (t * batch + i) * out_width + head * dim;
                let dot = |a: &[f64], b: &[f64]| -> f64 {
                    a[..dim].iter().zip(&b[..dim]).map(|(a, b)| a * b).sum()
                };
                for t in 0..seq {
                    let scores: Vec<f64> =
                        (0..=t).map(|u| scale * dot(&qkv[q_at(t)..], &qkv[k_at(u)..])).collect();
                    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    let total: f64 = scores.iter().map(|s| (s - max).exp()).sum();
                    lse[(t * batch + i) * h.heads as usize + head] = max + total.ln();
                    let p: Vec<f64> = scores.iter().map(|s| (s - max).exp() / total).collect();
                    let d_p: Vec<f64> =
                        (0..=t).map(|u| dot(&d_out[o_at(t)..], &qkv[v_at(u)..])).collect();
                    let delta: f64 = p.iter().zip(&d_p).map(|(p, d)| p * d).sum();
                    for u in 0..=t {
                        let d_score = p[u] * (d_p[u] - delta) * scale;
                        for j in 0..dim {
                            out[o_at(t) + j] += p[u] * qkv[v_at(u) + j];
                            d_qkv[v_at(u) + j] += p[u] * d_out[o_at(t) + j];
                            d_qkv[q_at(t) + j] += d_score * qkv[k_at(u) + j];
                            d_qkv[k_at(u) + j] += d_score * qkv[q_at(t) + j];
                        }
                    }
                }
            }
        }
        (out, lse, d_qkv)
    }

    #[test]
    fn forward_and_backward_equal_their_definitions() {
        for heads in cases() {
            let mut random = Random::new(u64::from(heads.seq));
            let (qkv_len, out_len) = lens(&heads);
            let qkv: Vec<f32> = random.floats(qkv_len).iter().map(|x| 2.0 * x).collect();
            let d_out = random.floats(out_len);
            let (out, lse, d_qkv) = reference(&heads, &wide(&qkv), &wide(&d_out));

            let forward = run(&Attention { heads: heads.clone() }, &[&qkv], &[]);
            assert_close(&forward[0], &out, 1e-6, &format!("out of {heads:?}"));
            assert_close(&forward[1], &lse, 1e-6, &format!("lse of {heads:?}"));

            let inputs = [&qkv, &forward[0], &forward[1], &d_out].map(Vec::as_slice);
            let backward = run(&AttentionGrad { heads: heads.clone() }, &inputs, &[]);
            assert_close(&backward[0], &d_qkv, 3e-6, &format!("d_qkv of {heads:?}"));
        }
    }

    #[test]
    fn the_reference_gradient_equals_finite_differences() {
        let heads = heads([4, 2, 3, 2, 3, 2, 1, 0]);
        let mut random = Random::new(5);
        let (qkv_len, out_len) = lens(&heads);
        let (qkv, d_out) = (wide(&random.floats(qkv_len)), wide(&random.floats(out_len)));
        let loss =
            |qkv: &[f64]| crate::ops::testing::dot(&reference(&heads, qkv, &d_out).0, &d_out);
        let d_qkv: Vec<f32> = reference(&heads, &qkv, &d_out).2.iter().map(|&d| d as f32).collect();
        assert_close(&d_qkv, &finite_differences(&qkv, loss), 1e-7, "d_qkv");
    }

    #[test]
    fn key_heads_that_nobody_reads_have_zero_gradients() {
        let heads = heads([9, 1, 1, 3, 4, 1, 1, 0]);
        let mut random = Random::new(6);
        let (qkv_len, out_len) = lens(&heads);
        let (qkv, d_out) = (random.floats(qkv_len), random.floats(out_len));
        let forward = run(&Attention { heads: heads.clone() }, &[&qkv], &[]);
        let inputs = [&qkv, &forward[0], &forward[1], &d_out].map(Vec::as_slice);
        let d_qkv = run(&AttentionGrad { heads: heads.clone() }, &inputs, &[]).remove(0);
        for row in d_qkv.chunks(heads.qkv_width() as usize) {
            for unread in [4..8, 12..16, 16..20, 24..28] {
                assert!(row[unread].iter().all(|&d| d == 0.0));
            }
        }
    }

    #[test]
    fn huge_scores_are_stable() {
        let heads = heads([40, 1, 1, 1, 16, 1, 0, 0]);
        let mut random = Random::new(7);
        let (qkv_len, out_len) = lens(&heads);
        let qkv: Vec<f32> = random.floats(qkv_len).iter().map(|x| 200.0 * x).collect();
        let d_out = random.floats(out_len);
        let (out, lse, _) = reference(&heads, &wide(&qkv), &wide(&d_out));
        assert!(lse.iter().any(|lse| lse.abs() > 1e4), "the scores are huge");
        let forward = run(&Attention { heads: heads.clone() }, &[&qkv], &[]);
        // A score of 1e4 has an error of 1e-3, and so have the probabilities.
        assert_close(&forward[0], &out, 1e-2, "out");
        assert_close(&forward[1], &lse, 1e-6, "lse");
        let inputs = [&qkv, &forward[0], &forward[1], &d_out].map(Vec::as_slice);
        let d_qkv = run(&AttentionGrad { heads }, &inputs, &[]);
        assert!(d_qkv[0].iter().all(|d| d.is_finite()));
    }

    #[test]
    fn nan_shows_where_it_is_seen_and_nowhere_else() {
        let heads = heads([40, 1, 1, 1, 4, 1, 0, 0]);
        let mut qkv = Random::new(8).floats(lens(&heads).0);
        qkv[20 * 12 + 5] = f32::NAN; // a key at position 20
        let out = run(&Attention { heads }, &[&qkv], &[]);
        for (position, row) in out[0].chunks(4).enumerate() {
            assert!(row.iter().all(|x| x.is_nan() == (position >= 20)), "position {position}");
        }
    }

    #[test]
    fn a_sequence_does_not_depend_on_its_neighbours_in_the_batch() {
        let (one, three) = (heads([30, 1, 4, 2, 8, 2, 0, 0]), heads([30, 3, 4, 2, 8, 2, 0, 0]));
        let mut random = Random::new(9);
        let qkv = random.floats(lens(&three).0);
        let width = three.qkv_width() as usize;
        let middle: Vec<f32> = qkv.chunks(width).skip(1).step_by(3).flatten().copied().collect();
        let all = run(&Attention { heads: three }, &[&qkv], &[]);
        let alone = run(&Attention { heads: one }, &[&middle], &[]);
        let middle_out: Vec<f32> =
            all[0].chunks(32).skip(1).step_by(3).flatten().copied().collect();
        assert_eq!(middle_out, alone[0]);
    }
}
