//! Vocabulary-parallel cross entropy: each rank sees the logits of its slice of the vocabulary.
//!
//! Statistics of three floats a row are gathered over the slices and merged in slice order, so
//! no max-reduction is needed. Labels of −100 count nothing. Stable for logits of ±1e4.

use serde::{Deserialize, Serialize};

use super::exp::exp;
use super::lanes::{elements, max, part_count, part_units, sum, vectorized_fma};
use super::{Access, Args, Kernel, Scalar, Signature, assign_or_add};
use crate::shape::DType;
use crate::units::Flops;

/// The label that counts nothing, as in `torch`.
const IGNORED: i32 = -100;

/// Column of `label` in a slice of the logits, if it lies there.
#[inline(always)]
fn local_label(label: i32, vocab_start: u32, vocab_len: u32) -> Option<usize> {
    let local = u32::try_from(label).ok()?.checked_sub(vocab_start)?;
    (local < vocab_len).then_some(local as usize)
}

/// Per row `(max, Σ exp(logit − max), logit of the label)` of this slice; the third is zero where the
/// label lies elsewhere. `stats` is `[rows, 3]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossStats {
    /// Rows (tokens).
    pub rows: u32,
    /// First token of this slice of the logits.
    pub vocab_start: u32,
    /// Columns of the slice.
    pub vocab_len: u32,
}

impl Kernel for LossStats {
    fn name(&self) -> &'static str {
        "loss_stats"
    }
    fn signature(&self) -> Signature {
        Signature::default()
            .input("logits", u64::from(self.rows) * u64::from(self.vocab_len))
            .typed_input("labels", DType::I32, self.rows)
            .output("stats", Access::Write, 3 * u64::from(self.rows))
    }
    fn flops(&self) -> Flops {
        Flops(3 * u64::from(self.rows) * u64::from(self.vocab_len))
    }
    fn parts(&self) -> u32 {
        part_count(self.rows, self.vocab_len)
    }
    fn run(&self, part: u32, args: &Args<'_>) {
        let columns = self.vocab_len as usize;
        let rows = part_units(self.rows, self.vocab_len, part);
        let logits = &args.f32(0)[elements(&rows, columns)];
        let labels = &args.i32(1)[rows.clone()];
        let (stats, _) = args.out(0, elements(&rows, 3)).as_chunks_mut::<3>();
        vectorized_fma(
            #[inline(always)]
            |fma| {
                for (i, stats) in stats.iter_mut().enumerate() {
                    let logits = &logits[i * columns..][..columns];
                    let max = max(logits);
                    // A slice of −inf alone, or of no columns, weighs nothing. NaN is passed over
                    // by the maximum and shows in the sum.
                    let shift = if max == f32::NEG_INFINITY { 0.0 } else { max };
                    let total = sum(
                        [logits],
                        #[inline(always)]
                        |[x]| exp(fma, x - shift),
                    );
                    let label = local_label(labels[i], self.vocab_start, self.vocab_len);
                    *stats = [max, total as f32, label.map_or(0.0, |label| logits[label])];
                }
            },
        );
    }
}

/// Merges `stats [slices, rows, 3]` into `merged [rows, 2]` = (max, Σ exp) over the whole vocabulary and
/// adds `max + ln Σ − target` of all rows whose label is not −100 to `loss_sum`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossMerge {
    /// Rows (tokens).
    pub rows: u32,
    /// Slices of the vocabulary, in rank order.
    pub slices: u32,
    /// `loss_sum += …`.
    pub accumulate: bool,
}

impl Kernel for LossMerge {
    fn name(&self) -> &'static str {
        "loss_merge"
    }
    fn signature(&self) -> Signature {
        let rows = u64::from(self.rows);
        Signature::default()
            .input("stats", 3 * rows * u64::from(self.slices))
            .typed_input("labels", DType::I32, self.rows)
            .output("merged", Access::Write, 2 * rows)
            .output("loss_sum", assign_or_add(self.accumulate), 1u32)
    }
    fn flops(&self) -> Flops {
        Flops(u64::from(self.rows) * (4 * u64::from(self.slices) + 3))
    }
    fn run(&self, _part: u32, args: &Args<'_>) {
        let rows = self.rows as usize;
        let (stats, _) = args.f32(0).as_chunks::<3>();
        let (merged, _) = args.out_all(0).as_chunks_mut::<2>();
        let loss = vectorized_fma(
            #[inline(always)]
            |fma| {
                let mut loss = 0.0;
                for (row, (merged, &label)) in merged.iter_mut().zip(args.i32(1)).enumerate() {
                    let slices = stats[row..].iter().step_by(rows);
                    let larger = |a: f32, b: f32| if b > a { b } else { a };
                    let max =
                        slices.clone().fold(f32::NEG_INFINITY, |max, stats| larger(max, stats[0]));
                    let (mut total, mut target) = (0f32, 0f32);
                    for [slice_max, slice_total, slice_target] in slices {
                        total += slice_total * exp(fma, slice_max - max);
                        target += slice_target;
                    }
                    *merged = [max, total];
                    if label != IGNORED {
                        loss += f64::from(max) + f64::from(total).ln() - f64::from(target);
                    }
                }
                loss
            },
        );
        let loss_sum = &mut args.out_all(1)[0];
        *loss_sum = if self.accumulate { *loss_sum + loss as f32 } else { loss as f32 };
    }
}

/// Turns logits into their gradient in place: `(exp(logit − max) / Σ − [column is the label]) ·
/// inverse_valid_labels`, zero for rows whose label is −100.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossGrad {
    /// Rows (tokens).
    pub rows: u32,
    /// First token of this slice of the logits.
    pub vocab_start: u32,
    /// Columns of the slice.
    pub vocab_len: u32,
}

impl Kernel for LossGrad {
    fn name(&self) -> &'static str {
        "loss_grad"
    }
    fn signature(&self) -> Signature {
        Signature::default()
            .input("merged", 2 * u64::from(self.rows))
            .typed_input("labels", DType::I32, self.rows)
            .input("scalars", Scalar::COUNT)
            .output("logits", Access::ReadWrite, u64::from(self.rows) * u64::from(self.vocab_len))
    }
    fn flops(&self) -> Flops {
        Flops(4 * u64::from(self.rows) * u64::from(self.vocab_len))
    }
    fn parts(&self) -> u32 {
        part_count(self.rows, self.vocab_len)
    }
    fn run(&self, part: u32, args: &Args<'_>) {
        let columns = self.vocab_len as usize;
        let rows = part_units(self.rows, self.vocab_len, part);
        let (merged, _) = args.f32(0)[elements(&rows, 2)].as_chunks::<2>();
        let labels = &args.i32(1)[rows.clone()];
        let weight = args.f32(2)[Scalar::InverseValidLabels as usize];
        let logits = args.out(0, elements(&rows, columns));
        vectorized_fma(
            #[inline(always)]
            |fma| {
                for (i, [max, total]) in merged.iter().enumerate() {
                    let logits = &mut logits[i * columns..][..columns];
                    if labels[i] == IGNORED {
                        logits.fill(0.0);
                        continue;
                    }
                    let share = weight / total;
                    logits.iter_mut().for_each(|x| *x = exp(fma, *x - max) * share);
                    if let Some(label) = local_label(labels[i], self.vocab_start, self.vocab_len) {
                        logits[label] -= weight;
                    }
                }
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{
        Random, assert_close, finite_differences, from_i32, run, to_i32, wide,
    };

    /// A batch of logits with labels of which some are ignored.
    struct Case {
        rows: u32,
        vocab: u32,
        logits: Vec<f32>,
        labels: Vec<f32>,
    }

    impl Case {
        fn new(rows: u32, vocab: u32, scale: f32) -> Self {
            let mut random = Random::new(u64::from(rows * vocab));
            let logits = random.floats(u64::from(rows * vocab));
            let mut labels = random.integers(rows.into(), 0, vocab as i32);
            labels.iter_mut().skip(2).step_by(3).for_each(|label| *label = from_i32(IGNORED));
            Self { rows, vocab, logits: logits.iter().map(|x| x * scale).collect(), labels }
        }

        /// Columns `start..start + len` of the logits.
        fn slice(&self, start: u32, len: u32) -> Vec<f32> {
            let rows = self.logits.chunks(self.vocab as usize);
            rows.flat_map(|row| &row[start as usize..(start + len) as usize]).copied().collect()
        }

        fn valid(&self) -> usize {
            self.labels.iter().filter(|&&label| to_i32(label) != IGNORED).count()
        }

        /// Sum of the losses, in double precision.
        fn loss(&self, logits: &[f64]) -> f64 {
            let rows = logits.chunks(self.vocab as usize).zip(&self.labels);
            rows.filter(|(_, label)| to_i32(**label) != IGNORED)
                .map(|(row, &label)| {
                    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    let total: f64 = row.iter().map(|x| (x - max).exp()).sum();
                    max + total.ln() - row[to_i32(label) as usize]
                })
                .sum()
        }

        /// The gradient in double precision.
        fn gradient(&self, inverse_valid_labels: f64) -> Vec<f64> {
            let logits = wide(&self.logits);
            let rows = logits.chunks(self.vocab as usize).zip(&self.labels);
            rows.flat_map(|(row, &label)| {
                let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let total: f64 = row.iter().map(|x| (x - max).exp()).sum();
                row.iter().enumerate().map(move |(column, x)| {
                    let hit = f64::from(u8::from(column as i32 == to_i32(label)));
                    let weight = if to_i32(label) == IGNORED { 0.0 } else { inverse_valid_labels };
                    ((x - max).exp() / total - hit) * weight
                })
            })
            .collect()
        }

        /// Loss sum and gradient by the kernels, over slices `(start, len)` of the vocabulary.
        fn run(&self, slices: &[(u32, u32)], inverse_valid_labels: f32) -> (f32, Vec<f32>) {
            let rows = self.rows;
            let mut stats = Vec::new();
            for &(vocab_start, vocab_len) in slices {
                let logits = self.slice(vocab_start, vocab_len);
                let op = LossStats { rows, vocab_start, vocab_len };
                stats.extend(run(&op, &[&logits, &self.labels], &[]).remove(0));
            }
            let op = LossMerge { rows, slices: slices.len() as u32, accumulate: false };
            let merged = run(&op, &[&stats, &self.labels], &[]);
            let scalars = [f32::NAN, f32::NAN, f32::NAN, inverse_valid_labels];
            let mut gradient = vec![f32::NAN; self.logits.len()];
            for &(vocab_start, vocab_len) in slices {
                let op = LossGrad { rows, vocab_start, vocab_len };
                let logits = self.slice(vocab_start, vocab_len);
                let part = run(&op, &[&merged[0], &self.labels, &scalars], &[&logits]);
                for row in 0..rows as usize {
                    let (start, len) = (vocab_start as usize, vocab_len as usize);
                    gradient[row * self.vocab as usize + start..][..len]
                        .copy_from_slice(&part[0][row * len..][..len]);
                }
            }
            (merged[1][0], gradient)
        }
    }

    #[test]
    fn loss_and_gradient_equal_their_definitions() {
        for (rows, vocab) in [(1, 1), (5, 33), (301, 257), (4, 5000)] {
            let case = Case::new(rows, vocab, 3.0);
            let weight = 1.0 / case.valid() as f32;
            let (loss, gradient) = case.run(&[(0, vocab)], weight);
            let expected = case.loss(&wide(&case.logits));
            assert!((f64::from(loss) - expected).abs() <= 1e-6 * expected, "{loss} for {expected}");
            assert_close(&gradient, &case.gradient(weight.into()), 1e-6, "d_logits");
        }
    }

    #[test]
    fn gradient_equals_finite_differences() {
        let case = Case::new(4, 11, 3.0);
        let (_, gradient) = case.run(&[(0, 11)], 1.0);
        let expected = finite_differences(&wide(&case.logits), |logits| case.loss(logits));
        assert_close(&gradient, &expected, 1e-5, "d_logits");
    }

    #[test]
    fn slices_of_the_vocabulary_merge_into_the_whole() {
        let case = Case::new(50, 101, 5.0);
        let (loss, gradient) = case.run(&[(0, 101)], 0.1);
        for slices in [&[(0, 60), (60, 41)][..], &[(0, 1), (1, 99), (100, 1), (101, 0)]] {
            let (sliced_loss, sliced_gradient) = case.run(slices, 0.1);
            assert!((sliced_loss - loss).abs() <= 1e-6 * loss, "{sliced_loss} for {loss}");
            assert_close(&sliced_gradient, &wide(&gradient), 1e-6, "d_logits");
        }
    }

    #[test]
    fn huge_logits_are_stable() {
        let case = Case::new(60, 90, 1e4);
        let expected = case.loss(&wide(&case.logits));
        for slices in [&[(0, 90)][..], &[(0, 45), (45, 45)]] {
            let (loss, gradient) = case.run(slices, 1.0);
            assert!((f64::from(loss) - expected).abs() <= 1e-6 * expected, "{loss} for {expected}");
            assert_close(&gradient, &case.gradient(1.0), 1e-6, "d_logits");
        }
    }

    #[test]
    fn a_batch_of_ignored_labels_costs_nothing() {
        let mut case = Case::new(7, 20, 1.0);
        case.labels.fill(from_i32(IGNORED));
        let (loss, gradient) = case.run(&[(0, 12), (12, 8)], f32::INFINITY);
        assert_eq!(loss, 0.0);
        assert!(gradient.iter().all(|&d| d == 0.0));
    }

    #[test]
    fn loss_adds_to_the_sum_of_earlier_microbatches() {
        let stats = [2.0, 1.0, 1.5, 3.0, 1.0, 3.0];
        let labels = [from_i32(0), from_i32(1)];
        let op = LossMerge { rows: 2, slices: 1, accumulate: true };
        assert_eq!(run(&op, &[&stats, &labels], &[&[10.0]])[1], [10.5]);
    }

    #[test]
    fn impossible_logits_weigh_nothing_and_nan_shows() {
        let mut case = Case::new(2, 6, 1.0);
        case.labels.fill(from_i32(1));
        case.logits[3..6].fill(f32::NEG_INFINITY);
        let (loss, _) = case.run(&[(0, 3), (3, 3)], 1.0);
        let expected = case.loss(&wide(&case.logits));
        assert!((f64::from(loss) - expected).abs() <= 1e-6 * expected, "{loss} for {expected}");

        case.logits[9] = f32::NAN;
        for slices in [&[(0, 6)][..], &[(0, 3), (3, 3)]] {
            let (loss, gradient) = case.run(slices, 1.0);
            assert!(loss.is_nan());
            assert!(gradient[..6].iter().all(|d| d.is_finite()));
            assert!(gradient[6..].iter().all(|d| d.is_nan()));
        }
        case.logits[6..].fill(f32::NAN);
        assert!(case.run(&[(0, 6)], 1.0).0.is_nan());
    }
}
