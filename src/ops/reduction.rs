//! Sums: over ranks in rank order, and of squares.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::lanes::{part_count, part_units, sum, vectorized};
use super::{Args, Kernel, Signature, assign_or_add};
use crate::units::Flops;

/// `out = x_0 + x_1 + … + x_{n−1}`, each element added in rank order from the left: the same bits on
/// whichever rank and however the tensor was cut.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SumRanks {
    /// How many tensors are added.
    pub ranks: u32,
    /// The output holds the tensor of this position already and is updated in place; the inputs are
    /// the others in order. `None`: all tensors are inputs.
    pub own: Option<u32>,
    /// Elements of each.
    pub len: u32,
    /// `out += Σ` (the sum is formed first); only with `own: None`.
    pub accumulate: bool,
}

impl Kernel for SumRanks {
    fn name(&self) -> &'static str {
        "sum_ranks"
    }
    fn signature(&self) -> Signature {
        let count = if self.own.is_some() { self.ranks - 1 } else { self.ranks };
        let access = assign_or_add(self.accumulate || self.own.is_some());
        (0..count)
            .fold(Signature::default(), |signature, _| signature.input("x", self.len))
            .output("sum", access, self.len)
    }
    fn flops(&self) -> Flops {
        Flops(u64::from(self.ranks - 1 + u32::from(self.accumulate)) * u64::from(self.len))
    }
    fn parts(&self) -> u32 {
        part_count(self.len, 1)
    }
    fn run(&self, part: u32, args: &Args<'_>) {
        assert!(self.ranks > 0, "a sum over no ranks");
        let range = part_units(self.len, 1, part);
        let sum = args.out(0, range.clone());
        for (block_index, sum) in sum.chunks_mut(BLOCK).enumerate() {
            let start = range.start + block_index * BLOCK;
            let block = start..start + sum.len();
            vectorized(
                #[inline(always)]
                || self.sum_block(args, block, sum),
            );
        }
    }
}

/// Elements that are summed over all ranks before the next: they stay in the fastest cache.
const BLOCK: usize = 1024;

impl SumRanks {
    /// Adds elements `block` of all tensors into a buffer and stores them in `sum`.
    #[inline(always)]
    fn sum_block(&self, args: &Args<'_>, block: Range<usize>, sum: &mut [f32]) {
        let mut buffer = [0f32; BLOCK];
        let total = &mut buffer[..sum.len()];
        let mut inputs = 0..args.input_count();
        for position in 0..self.ranks {
            let term = if self.own == Some(position) {
                &*sum
            } else {
                let input = inputs.next().expect("the signature counts the inputs");
                &args.f32(input)[block.clone()]
            };
            // The first term is copied, not added to zero: 0 + (−0) would lose a sign.
            if position == 0 {
                total.copy_from_slice(term);
            } else {
                total.iter_mut().zip(term).for_each(|(total, term)| *total += term);
            }
        }
        if self.accumulate {
            sum.iter_mut().zip(&*total).for_each(|(sum, total)| *sum += total);
        } else {
            sum.copy_from_slice(total);
        }
    }
}

/// Sum of squares, in fixed blocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SquaredNorm {
    /// Elements.
    pub len: u32,
    /// A second input, one float; `sum += 0 · guard`, so that a loss that is not finite makes the
    /// norm not finite.
    pub guard: bool,
    /// `sum += …`.
    pub accumulate: bool,
}

impl Kernel for SquaredNorm {
    fn name(&self) -> &'static str {
        "squared_norm"
    }
    fn signature(&self) -> Signature {
        let signature = Signature::default().input("x", self.len);
        let signature = if self.guard { signature.input("guard", 1u32) } else { signature };
        signature.output("sum", assign_or_add(self.accumulate), 1u32)
    }
    fn flops(&self) -> Flops {
        Flops(2 * u64::from(self.len))
    }
    fn run(&self, _part: u32, args: &Args<'_>) {
        let x = args.f32(0);
        let squares = vectorized(
            #[inline(always)]
            || {
                sum(
                    [x],
                    #[inline(always)]
                    |[x]| x * x,
                )
            },
        );
        let guarded =
            if self.guard { squares as f32 + 0.0 * args.f32(1)[0] } else { squares as f32 };
        let sum = &mut args.out_all(0)[0];
        *sum = if self.accumulate { *sum + guarded } else { guarded };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{Random, bits, run};

    /// Tensors whose sum depends on the order of additions.
    fn tensors(ranks: u32, len: u32) -> Vec<Vec<f32>> {
        let mut random = Random::new(u64::from(ranks * len));
        (0..ranks).map(|_| random.floats(len.into())).collect()
    }

    fn left_to_right(tensors: &[Vec<f32>]) -> Vec<f32> {
        let mut sum = tensors[0].clone();
        for tensor in &tensors[1..] {
            sum.iter_mut().zip(tensor).for_each(|(sum, x)| *sum += x);
        }
        sum
    }

    #[test]
    fn ranks_are_added_from_the_left_bit_for_bit() {
        for (ranks, len) in [(1, 5), (2, 1), (3, 1025), (5, 70_001)] {
            let tensors = tensors(ranks, len);
            let inputs: Vec<&[f32]> = tensors.iter().map(Vec::as_slice).collect();
            let op = SumRanks { ranks, own: None, len, accumulate: false };
            assert_eq!(bits(&run(&op, &inputs, &[])[0]), bits(&left_to_right(&tensors)));
        }
    }

    #[test]
    fn own_tensor_takes_its_place_in_the_order() {
        let (ranks, len) = (4, 1500);
        let tensors = tensors(ranks, len);
        for own in 0..ranks {
            let others: Vec<&[f32]> = (0..ranks)
                .filter(|&rank| rank != own)
                .map(|rank| tensors[rank as usize].as_slice())
                .collect();
            let op = SumRanks { ranks, own: Some(own), len, accumulate: false };
            let sum = run(&op, &others, &[&tensors[own as usize]]);
            assert_eq!(bits(&sum[0]), bits(&left_to_right(&tensors)), "own position {own}");
        }
    }

    #[test]
    fn accumulation_adds_the_finished_sum() {
        let (ranks, len) = (3, 100);
        let tensors = tensors(ranks, len);
        let inputs: Vec<&[f32]> = tensors.iter().map(Vec::as_slice).collect();
        let old = Random::new(9).floats(len.into());
        let op = SumRanks { ranks, own: None, len, accumulate: true };
        let expected: Vec<f32> =
            old.iter().zip(left_to_right(&tensors)).map(|(old, sum)| old + sum).collect();
        assert_eq!(bits(&run(&op, &inputs, &[&old])[0]), bits(&expected));
    }

    #[test]
    fn a_sum_of_ranks_does_not_depend_on_where_it_was_cut() {
        let tensors = tensors(3, 3000);
        let whole = left_to_right(&tensors);
        for cut in [1, 7, 1024, 2999] {
            let inputs: Vec<&[f32]> = tensors.iter().map(|tensor| &tensor[cut..]).collect();
            let op = SumRanks { ranks: 3, own: None, len: 3000 - cut as u32, accumulate: false };
            assert_eq!(bits(&run(&op, &inputs, &[])[0]), bits(&whole[cut..]));
        }
    }

    #[test]
    fn negative_zero_survives_a_sum_over_one_rank() {
        let op = SumRanks { ranks: 1, own: None, len: 1, accumulate: false };
        assert_eq!(bits(&run(&op, &[&[-0.0]], &[])[0]), [1 << 31]);
    }

    #[test]
    fn squared_norm_of_ten_million_elements_is_accurate() {
        let len = 10_000_000;
        let x = Random::new(3).floats(len.into());
        let exact: f64 = x.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
        let op = SquaredNorm { len, guard: false, accumulate: false };
        let sum = f64::from(run(&op, &[&x], &[])[0][0]);
        assert!((sum - exact).abs() < 1e-6 * exact, "{sum} for {exact}");
    }

    #[test]
    fn squared_norm_accumulates_and_is_guarded() {
        let x = [3.0, -4.0];
        let norm = |guard, accumulate| SquaredNorm { len: 2, guard, accumulate };
        assert_eq!(run(&norm(false, false), &[&x], &[])[0], [25.0]);
        assert_eq!(run(&norm(false, true), &[&x], &[&[2.0]])[0], [27.0]);
        assert_eq!(run(&norm(true, true), &[&x, &[-7.0]], &[&[2.0]])[0], [27.0]);
        for loss in [f32::NAN, f32::INFINITY] {
            assert!(run(&norm(true, false), &[&x, &[loss]], &[])[0][0].is_nan());
        }
        let with_nan = [1.0, f32::NAN];
        assert!(run(&norm(false, false), &[&with_nan], &[])[0][0].is_nan());
    }
}
