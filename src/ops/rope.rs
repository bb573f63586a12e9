//! Rotary position embedding (`RoFormer`, arXiv:2104.09864) in the half-split form of Hugging Face
//! Llama.

use serde::{Deserialize, Serialize};

use super::lanes::{part_count, part_units, vectorized};
use super::{Access, Args, Kernel, Signature};
use crate::units::Flops;

/// Rotates the pairs `(i, i + head_dim/2)` of each head by the angle of its position, in place.
/// The table is [`crate::plan::Input::RopeTable`]: `[seq, head_dim/2, 2]` of (cos, sin).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rope {
    /// Positions.
    pub seq: u32,
    /// Sequences; row = t * batch + i.
    pub batch: u32,
    /// Rotated heads at the start of a row: query heads, then key heads.
    pub heads: u32,
    /// Elements of a head, even.
    pub head_dim: u32,
    /// Elements of a row; those after the rotated heads (values) stay.
    pub width: u32,
    /// Rotate back: what backward does to the gradients of q and k.
    pub inverse: bool,
}

impl Kernel for Rope {
    fn name(&self) -> &'static str {
        "rope"
    }
    fn signature(&self) -> Signature {
        let rows = u64::from(self.seq) * u64::from(self.batch);
        Signature::default().input("table", u64::from(self.seq) * u64::from(self.head_dim)).output(
            "qkv",
            Access::ReadWrite,
            rows * u64::from(self.width),
        )
    }
    fn flops(&self) -> Flops {
        Flops(
            3 * u64::from(self.seq) * u64::from(self.batch) * u64::from(self.heads * self.head_dim),
        )
    }
    fn parts(&self) -> u32 {
        part_count(self.seq, self.batch * self.heads * self.head_dim)
    }
    fn run(&self, part: u32, args: &Args<'_>) {
        let [batch, width, head_dim] = [self.batch, self.width, self.head_dim].map(|x| x as usize);
        let rotated = self.heads as usize * head_dim;
        assert!(rotated <= width && head_dim % 2 == 0, "rope: heads and width do not fit");
        if rotated == 0 {
            return;
        }
        for position in part_units(self.seq, self.batch * self.heads * self.head_dim, part) {
            let table = &args.f32(0)[position * head_dim..][..head_dim];
            let rows = args.out(0, position * batch * width..(position + 1) * batch * width);
            vectorized(
                #[inline(always)]
                || {
                    for row in rows.chunks_exact_mut(width) {
                        for head in row[..rotated].chunks_exact_mut(head_dim) {
                            rotate(head, table, self.inverse);
                        }
                    }
                },
            );
        }
    }
}

/// Rotates one head by the angles of its position; `table` holds (cos, sin) of each pair.
#[inline(always)]
fn rotate(head: &mut [f32], table: &[f32], inverse: bool) {
    let (low, high) = head.split_at_mut(head.len() / 2);
    let sign = if inverse { -1.0 } else { 1.0 };
    let (angles, _) = table.as_chunks::<2>();
    for ((a, b), [cos, sin]) in low.iter_mut().zip(high).zip(angles) {
        let sin = sign * sin;
        (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{Random, assert_close, bits, run, wide};

    const OP: Rope = Rope { seq: 7, batch: 3, heads: 4, head_dim: 10, width: 57, inverse: false };

    /// Angles of a base of 10000, as (cos, sin).
    fn table(op: &Rope) -> Vec<f64> {
        let half = op.head_dim / 2;
        (0..op.seq * half)
            .flat_map(|i| {
                let frequency = 10_000f64.powf(-f64::from(i % half) / f64::from(half));
                let angle = f64::from(i / half) * frequency;
                [angle.cos(), angle.sin()]
            })
            .collect()
    }

    fn narrow(x: &[f64]) -> Vec<f32> {
        x.iter().map(|&x| x as f32).collect()
    }

    #[test]
    fn pairs_turn_as_complex_numbers_and_values_stay() {
        for (seq, batch) in [(7, 3), (1, 1), (300, 5)] {
            let op = Rope { seq, batch, ..OP };
            let table = table(&op);
            let x = Random::new(1).floats(op.signature().outputs[0].0.len);
            let mut expected = wide(&x);
            for (row, values) in expected.chunks_mut(op.width as usize).enumerate() {
                let position = row / op.batch as usize;
                for head in values[..40].chunks_mut(10) {
                    for i in 0..5 {
                        let (re, im) = (head[i], head[i + 5]);
                        let (cos, sin) =
                            (table[position * 10 + 2 * i], table[position * 10 + 2 * i + 1]);
                        head[i] = re * cos - im * sin;
                        head[i + 5] = re * sin + im * cos;
                    }
                }
            }
            let y = run(&op, &[&narrow(&table)], &[&x]);
            assert_close(&y[0], &expected, 2e-7, "qkv");
            for (y, x) in y[0].chunks(57).zip(x.chunks(57)) {
                assert_eq!(bits(&y[40..]), bits(&x[40..]));
            }
        }
    }

    #[test]
    fn the_inverse_turns_back() {
        let table = narrow(&table(&OP));
        let x = Random::new(2).floats(OP.signature().outputs[0].0.len);
        let there = run(&OP, &[&table], &[&x]);
        let back = run(&Rope { inverse: true, ..OP }, &[&table], &[&there[0]]);
        assert_close(&back[0], &wide(&x), 3e-7, "qkv");
    }
}
