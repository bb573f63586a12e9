//! Batches: which rows of the data each step trains on.
//!
//! A row is `seq` tokens and, as labels, the same moved by one; neighbouring rows share one token,
//! so that every token after the first is predicted exactly once an epoch. An epoch is a seeded
//! permutation of all rows, epochs follow one another in one stream, and step `k` takes the rows
//! `k · batch ..` of it: a pure function of (seed, step).

use super::shuffle::Shuffle;
use super::{DataError, Dataset};
use crate::config::Training;
use crate::mesh::Mesh;
use crate::random::key;
use crate::shape::part;

/// The global batch of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// `[batch, seq]` row-major.
    pub tokens: Vec<i32>,
    /// `[batch, seq]`: the token that follows each; −100 is ignored.
    pub labels: Vec<i32>,
    /// Which rows of the data these are, in the order of the batch; padding is not listed.
    pub rows: Vec<u32>,
}

impl Batch {
    /// Number of labels that count.
    pub fn valid_labels(&self) -> usize {
        self.labels.iter().filter(|label| **label != Batches::IGNORED).count()
    }
}

/// All batches of a run.
#[derive(Clone, Debug)]
pub struct Batches {
    dataset: Dataset,
    batch: u32,
    seq: u32,
    seed: u64,
    rows: u32,
    /// Data-parallel size, if every data-parallel rank is to read the rows of the first one.
    repeat_rows: Option<u32>,
}

impl Batches {
    /// The label that the loss ignores.
    pub const IGNORED: i32 = -100;

    /// Cuts data into rows.
    ///
    /// # Errors
    /// If a token is not in the vocabulary or not one row fits.
    pub fn new(dataset: Dataset, training: &Training, vocab_size: u32) -> Result<Self, DataError> {
        dataset.check_vocabulary(vocab_size)?;
        let Training { batch, seq, seed, .. } = *training;
        let rows = row_count(dataset.trained().end, seq);
        if rows == 0 {
            return Err(DataError::TooShort {
                name: dataset.name().to_owned(),
                trained: dataset.trained().end,
                tokens: dataset.len(),
                seq,
            });
        }
        Ok(Self { dataset, batch, seq, seed, rows, repeat_rows: None })
    }

    /// A fault on purpose: every one of `dp` data-parallel ranks reads the rows of the first.
    #[must_use]
    pub fn with_repeated_rows(mut self, dp: u32) -> Self {
        self.repeat_rows = Some(dp);
        self
    }

    /// The data.
    pub fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    /// Rows of an epoch.
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// Rows that are held out.
    pub fn held_out_rows(&self) -> u32 {
        row_count(self.dataset.held_out().end - self.dataset.held_out().start, self.seq)
    }

    /// The batch of a step (from 0).
    pub fn batch(&self, step: u64) -> Batch {
        let (batch, rows) = (u64::from(self.batch), u64::from(self.rows));
        let read = (0..self.batch).map(|i| {
            // u128: no step number is too large.
            let at = u128::from(step) * u128::from(batch) + u128::from(self.slot(i));
            let (epoch, index) = ((at / u128::from(rows)) as u64, (at % u128::from(rows)) as u64);
            let epoch_key = key(self.seed, &format!("epoch {epoch}"));
            Shuffle::new(epoch_key, rows).at(index) as u32
        });
        let mut result = self.empty_batch(self.batch);
        for row in read {
            self.push_row(&mut result, 0, row);
        }
        result
    }

    /// The held-out rows in order, in batches of `batch` rows; the last one is padded with rows
    /// whose labels do not count. Take as many as are wanted.
    pub fn held_out(&self, batch: u32) -> impl Iterator<Item = Batch> {
        let rows = self.held_out_rows();
        (0..rows).step_by(batch.max(1) as usize).map(move |first| {
            let mut result = self.empty_batch(batch);
            for row in first..rows.min(first.saturating_add(batch)) {
                self.push_row(&mut result, self.dataset.held_out().start, row);
            }
            let len = batch as usize * self.seq as usize;
            result.tokens.resize(len, 0);
            result.labels.resize(len, Self::IGNORED);
            result
        })
    }

    /// The place in the batch whose row stands at place `i`: `i` itself, but for the fault.
    fn slot(&self, i: u32) -> u32 {
        let Some(dp) = self.repeat_rows else { return i };
        let owner = (0..dp).map(|rank| part(self.batch, dp, rank)).find(|rows| rows.contains(&i));
        i - owner.expect("the parts cover the batch").start
    }

    fn empty_batch(&self, rows: u32) -> Batch {
        let len = rows as usize * self.seq as usize;
        Batch {
            tokens: Vec::with_capacity(len),
            labels: Vec::with_capacity(len),
            rows: Vec::with_capacity(rows as usize),
        }
    }

    /// Appends a row; `origin` is the position of row 0.
    fn push_row(&self, batch: &mut Batch, origin: u64, row: u32) {
        let seq = u64::from(self.seq);
        let start = origin + u64::from(row) * seq;
        // The vocabulary check keeps tokens below the number of rows of a matrix.
        batch.tokens.extend(self.dataset.tokens(start..start + seq).map(|token| token as i32));
        batch.labels.extend(self.dataset.tokens(start + 1..start + seq + 1).map(|t| t as i32));
        batch.rows.push(row);
    }
}

/// Rows of `seq` tokens and one more label in a stretch of tokens.
fn row_count(tokens: u64, seq: u32) -> u32 {
    let rows = tokens.saturating_sub(1) / u64::from(seq.max(1));
    // Nobody trains on 2^32 rows; what lies beyond is not used.
    u32::try_from(rows).unwrap_or(u32::MAX)
}

/// Which rows of the data each rank reads of a batch; index = rank. Data-parallel ranks read
/// different rows, the others of a replica read the same.
pub fn rows_by_rank(mesh: Mesh, batch: &Batch) -> Vec<Vec<u32>> {
    let total = batch.rows.len() as u32;
    mesh.ranks()
        .map(|rank| part(total, mesh.dp, mesh.coord(rank).dp))
        .map(|rows| batch.rows[rows.start as usize..rows.end as usize].to_vec())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh::{Axis, RankOrder};

    /// Data in which token `p` is at position `p`.
    fn counting(tokens: u32, batch: u32, seq: u32) -> Batches {
        let dataset = Dataset::from_tokens("counting", &(0..tokens).collect::<Vec<_>>());
        let training = Training { batch, seq, seed: 3, ..Training::default() };
        Batches::new(dataset, &training, tokens).unwrap()
    }

    fn sorted(mut rows: Vec<u32>) -> Vec<u32> {
        rows.sort_unstable();
        rows
    }

    #[test]
    fn an_epoch_reads_every_row_and_predicts_every_token_exactly_once() {
        // 901 tokens to train on: 225 rows of 4 and one left over.
        let batches = counting(1001, 9, 4);
        assert_eq!((batches.rows(), batches.held_out_rows()), (225, 24));
        let epoch: Vec<Batch> = (0..25).map(|step| batches.batch(step)).collect();
        let rows = epoch.iter().flat_map(|batch| batch.rows.clone()).collect();
        assert!(sorted(rows).into_iter().eq(0..225));
        let labels = epoch.iter().flat_map(|batch| &batch.labels).map(|label| *label as u32);
        assert!(sorted(labels.collect()).into_iter().eq(1..=900));
    }

    #[test]
    fn labels_are_the_tokens_moved_by_one() {
        let batches = counting(1001, 9, 4);
        for batch in (0..60).map(|step| batches.batch(step)).chain(batches.held_out(9)) {
            for (token, label) in batch.tokens.iter().zip(&batch.labels) {
                assert!(*label == token + 1 || *label == Batches::IGNORED);
            }
        }
        let batch = batches.batch(7);
        assert_eq!((batch.tokens.len(), batch.valid_labels()), (36, 36));
        assert_eq!(batch.tokens[..4], [0, 1, 2, 3].map(|t| batch.rows[0] as i32 * 4 + t));
    }

    #[test]
    fn epochs_follow_one_another_in_one_stream_with_orders_of_their_own() {
        // 7 rows an epoch in batches of 3: batches reach over the ends of epochs.
        let batches = counting(32, 3, 4);
        assert_eq!(batches.rows(), 7);
        let stream: Vec<u32> = (0..14).flat_map(|step| batches.batch(step).rows).collect();
        let epochs: Vec<&[u32]> = stream.chunks(7).collect();
        assert!(epochs.iter().all(|epoch| sorted(epoch.to_vec()).into_iter().eq(0..7)));
        assert!(epochs.windows(2).any(|pair| pair[0] != pair[1]), "{epochs:?}");
        // A batch of more rows than the data has goes round.
        assert_eq!(counting(32, 70, 4).batch(0).rows.len(), 70);
    }

    #[test]
    fn a_batch_depends_on_seed_and_step_alone() {
        let batches = counting(1001, 9, 4);
        let late = batches.batch(1_000_000_007);
        batches.batch(3);
        assert_eq!(batches.batch(1_000_000_007), late);
        assert_eq!(batches.batch(u64::MAX).rows.len(), 9);
        let other = Batches { seed: 4, ..batches.clone() };
        assert_ne!(other.batch(0).rows, batches.batch(0).rows);
    }

    #[test]
    fn held_out_rows_come_in_order_and_the_last_batch_is_padded() {
        let batches = counting(1001, 9, 4);
        let held_out: Vec<Batch> = batches.held_out(10).collect();
        let rows: Vec<u32> = held_out.iter().flat_map(|batch| batch.rows.clone()).collect();
        assert!(rows.into_iter().eq(0..24));
        assert_eq!(held_out[0].tokens[0], 901);
        assert_eq!(held_out.iter().map(Batch::valid_labels).sum::<usize>(), 24 * 4);
        assert!(held_out.iter().all(|batch| batch.labels.len() == 40 && batch.tokens.len() == 40));
        assert_eq!(batches.held_out(10).take(2).count(), 2);
        assert_eq!(counting(32, 3, 4).held_out(5).count(), 0);
    }

    #[test]
    fn data_ranks_read_distinct_rows_and_the_ranks_of_a_replica_the_same() {
        // 64 rows on 2×2×2, for both orders of the ranks, and an uneven cut.
        for (dp, order) in [(2, RankOrder::TpDpPp), (2, RankOrder::TpPpDp), (3, RankOrder::TpDpPp)]
        {
            let batches = counting(288, 16, 4);
            let mesh = Mesh { dp, tp: 2, pp: 2, order };
            let mut read = Vec::new();
            for step in 0..4 {
                let by_rank = rows_by_rank(mesh, &batches.batch(step));
                for rank in mesh.ranks() {
                    for axis in [Axis::Tp, Axis::Pp] {
                        for peer in mesh.group(rank, axis) {
                            assert_eq!(by_rank[rank.index()], by_rank[peer.index()]);
                        }
                    }
                }
                let replicas = mesh.group(crate::mesh::Rank(0), Axis::Dp);
                read.extend(replicas.iter().flat_map(|rank| by_rank[rank.index()].clone()));
            }
            assert_eq!(batches.rows(), 64);
            assert!(sorted(read).into_iter().eq(0..64), "an epoch reads each row once");
        }
    }

    #[test]
    fn repeated_rows_give_every_data_rank_the_rows_of_the_first() {
        let right = counting(1001, 8, 4);
        let mesh = Mesh { dp: 3, tp: 1, pp: 1, order: RankOrder::TpDpPp };
        let wrong = rows_by_rank(mesh, &right.clone().with_repeated_rows(3).batch(2));
        let right = rows_by_rank(mesh, &right.batch(2));
        assert_eq!(wrong[0], right[0]);
        assert_eq!(wrong[1], right[0]);
        assert_eq!(wrong[2], right[0][..2]); // 8 rows over 3 ranks: 3, 3, 2
        assert_ne!(right[1], right[0]);
    }

    #[test]
    fn data_without_one_whole_row_is_refused_with_the_numbers() {
        let training = Training { seq: 128, ..Training::default() };
        let short = Dataset::from_text("short.txt", vec![b'a'; 140]);
        let error = Batches::new(short, &training, 256).unwrap_err().to_string();
        assert!(error.starts_with("short.txt: 126 tokens to train on (of 140;"), "{error}");
        assert!(error.contains("row of seq 128 + 1"), "{error}");
        let enough = Dataset::from_text("enough", vec![b'a'; 143]);
        assert_eq!(Batches::new(enough, &training, 256).unwrap().rows(), 1);
    }
}
