//! The vocabulary-parallel embedding table: rank r holds the rows `vocab_start..` of it.

use serde::{Deserialize, Serialize};

use super::lanes::{elements, part_count, part_units, vectorized};
use super::{Access, Args, Kernel, Signature, assign_or_add};
use crate::shape::DType;
use crate::units::Flops;

/// `x[row] = table[token - vocab_start]`, zero where the token lies in another slice: the sum over the
/// slices is the embedding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Embedding {
    /// Rows (tokens).
    pub rows: u32,
    /// Elements of a row.
    pub dim: u32,
    /// First token of this slice of the table.
    pub vocab_start: u32,
    /// Number of tokens of the slice.
    pub vocab_len: u32,
}

impl Kernel for Embedding {
    fn name(&self) -> &'static str {
        "embedding"
    }
    fn signature(&self) -> Signature {
        let table = u64::from(self.vocab_len) * u64::from(self.dim);
        Signature::default()
            .typed_input("tokens", DType::I32, self.rows)
            .input("table", table)
            .output("x", Access::Write, u64::from(self.rows) * u64::from(self.dim))
    }
    fn flops(&self) -> Flops {
        Flops(0)
    }
    fn parts(&self) -> u32 {
        part_count(self.rows, self.dim)
    }
    fn run(&self, part: u32, args: &Args<'_>) {
        let (dim, table) = (self.dim as usize, args.f32(1));
        let rows = part_units(self.rows, self.dim, part);
        let x = args.out(0, elements(&rows, dim));
        if dim == 0 {
            return;
        }
        for (x, &token) in x.chunks_exact_mut(dim).zip(&args.i32(0)[rows]) {
            match local_token(token, self.vocab_start, self.vocab_len) {
                Some(token) => x.copy_from_slice(&table[token * dim..][..dim]),
                None => x.fill(0.0),
            }
        }
    }
}

/// Columns of a part of [`EmbeddingGrad`]: a few cache lines of each row.
const GRAD_COLUMNS: u32 = 128;

/// Row of `token` in this slice of the table, if it lies there.
#[inline(always)]
fn local_token(token: i32, vocab_start: u32, vocab_len: u32) -> Option<usize> {
    let local = u32::try_from(token).ok()?.checked_sub(vocab_start)?;
    (local < vocab_len).then_some(local as usize)
}

/// `d_table[token - vocab_start] += d_x[row]`, rows in ascending order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EmbeddingGrad {
    /// Rows (tokens).
    pub rows: u32,
    /// Elements of a row.
    pub dim: u32,
    /// First token of this slice of the table.
    pub vocab_start: u32,
    /// Number of tokens of the slice.
    pub vocab_len: u32,
    /// `+=`; otherwise the whole table gradient is assigned (zero where no token fell).
    pub accumulate: bool,
}

impl Kernel for EmbeddingGrad {
    fn name(&self) -> &'static str {
        "embedding_grad"
    }
    fn signature(&self) -> Signature {
        let table = u64::from(self.vocab_len) * u64::from(self.dim);
        Signature::default()
            .typed_input("tokens", DType::I32, self.rows)
            .input("d_x", u64::from(self.rows) * u64::from(self.dim))
            .output("d_table", assign_or_add(self.accumulate), table)
    }
    fn flops(&self) -> Flops {
        Flops(u64::from(self.rows) * u64::from(self.dim))
    }
    /// Parts are ranges of columns: tokens fall unevenly over the rows of the table.
    fn parts(&self) -> u32 {
        self.dim.div_ceil(GRAD_COLUMNS).max(1)
    }
    fn run(&self, part: u32, args: &Args<'_>) {
        let dim = self.dim as usize;
        let start = (part * GRAD_COLUMNS) as usize;
        let columns = start..(start + GRAD_COLUMNS as usize).min(dim);
        let row =
            |token: usize| args.out(0, token * dim + columns.start..token * dim + columns.end);
        if !self.accumulate {
            (0..self.vocab_len as usize).for_each(|token| row(token).fill(0.0));
        }
        let (tokens, d_x) = (args.i32(0), args.f32(1));
        vectorized(
            #[inline(always)]
            || {
                for (i, &token) in tokens.iter().enumerate() {
                    if let Some(token) = local_token(token, self.vocab_start, self.vocab_len) {
                        let d_x = &d_x[i * dim..][columns.clone()];
                        row(token).iter_mut().zip(d_x).for_each(|(sum, d_x)| *sum += d_x);
                    }
                }
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{Random, bits, run, to_i32};

    const VOCAB: i32 = 50;

    /// Tokens of which some lie outside of the vocabulary.
    fn tokens(random: &mut Random, rows: u32) -> Vec<f32> {
        random.integers(rows.into(), -3, VOCAB + 4)
    }

    #[test]
    fn slices_of_the_table_add_up_to_the_embedding() {
        for (rows, dim) in [(1, 1), (40, 7), (501, 130)] {
            let mut random = Random::new(rows.into());
            let tokens = tokens(&mut random, rows);
            let table = random.floats(50 * u64::from(dim));
            let mut sum = vec![0.0; (rows * dim) as usize];
            for (vocab_start, vocab_len) in [(0, 20), (20, 0), (20, 29), (49, 1)] {
                let op = Embedding { rows, dim, vocab_start, vocab_len };
                let slice =
                    (vocab_start * dim) as usize..((vocab_start + vocab_len) * dim) as usize;
                let x = run(&op, &[&tokens, &table[slice]], &[]);
                sum.iter_mut().zip(&x[0]).for_each(|(sum, x)| *sum += x);
            }
            for (x, &token) in sum.chunks(dim as usize).zip(&tokens) {
                let token = to_i32(token);
                if (0..VOCAB).contains(&token) {
                    assert_eq!(x, &table[token as usize * dim as usize..][..dim as usize]);
                } else {
                    assert!(x.iter().all(|&x| x == 0.0), "token {token} has no embedding");
                }
            }
        }
    }

    #[test]
    fn gradient_adds_rows_in_ascending_order_bit_for_bit() {
        for (rows, dim) in [(1, 1), (300, 7), (501, 130), (64, 300)] {
            let mut random = Random::new(rows.into());
            let tokens = tokens(&mut random, rows);
            let d_x = random.floats(u64::from(rows * dim));
            for (vocab_start, vocab_len) in [(0, 50), (13, 20), (49, 1)] {
                for accumulate in [false, true] {
                    let op = EmbeddingGrad { rows, dim, vocab_start, vocab_len, accumulate };
                    let old = random.floats(u64::from(vocab_len * dim));
                    let mut expected = if accumulate { old.clone() } else { vec![0.0; old.len()] };
                    for (d_x, &token) in d_x.chunks(dim as usize).zip(&tokens) {
                        let local = to_i32(token) - vocab_start as i32;
                        if (0..vocab_len as i32).contains(&local) {
                            let row = &mut expected[local as usize * dim as usize..];
                            row.iter_mut().zip(d_x).for_each(|(sum, d_x)| *sum += d_x);
                        }
                    }
                    let before: &[&[f32]] = if accumulate { &[&old] } else { &[] };
                    let d_table = run(&op, &[&tokens, &d_x], before);
                    assert_eq!(bits(&d_table[0]), bits(&expected));
                }
            }
        }
    }
}
