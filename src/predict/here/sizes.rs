//! By which sizes a kernel's duration is known, and in which unit its work is counted.
//!
//! Between measured sizes the time of one unit is interpolated, so the unit is what a kernel's time
//! grows with: operations of products and attention, elements of everything else.

use crate::ops::attention::Heads;
use crate::ops::{Kernel as _, Op};
use crate::units::Bytes;

/// A kernel with the sizes that decide how long it takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    /// Its name: that of the op, `copy` or `message`.
    pub kernel: &'static str,
    /// What a measured curve is read at; as many as the curve has axes, each at least 1.
    pub at: Vec<f64>,
    /// How much work it is.
    pub units: f64,
}

impl Sizes {
    /// The sizes of an op; none for what never runs on a machine.
    pub fn of(op: &Op) -> Option<Self> {
        let (at, units) = match op {
            Op::Matmul(op) => (sizes([op.m, op.n, op.k]), op.flops().0 as f64),
            Op::Attention(op) => (per_head(&op.heads), op.flops().0 as f64),
            Op::AttentionGrad(op) => (per_head(&op.heads), op.flops().0 as f64),
            Op::Embedding(op) => rows(op.rows, op.dim),
            Op::EmbeddingGrad(op) => rows(op.rows, op.dim),
            Op::RmsNorm(op) => rows(op.rows, op.dim),
            Op::RmsNormGradInput(op) => rows(op.rows, op.dim),
            Op::RmsNormGradWeight(op) => rows(op.rows, op.dim),
            Op::Rope(op) => {
                let positions = f64::from(op.seq) * f64::from(op.batch);
                let units = positions * f64::from(op.heads) * f64::from(op.head_dim);
                (vec![units, f64::from(op.head_dim)], units)
            }
            Op::SwiGlu(op) => elements(f64::from(op.rows) * f64::from(op.ffn)),
            Op::SwiGluGrad(op) => elements(f64::from(op.rows) * f64::from(op.ffn)),
            Op::LossStats(op) => rows(op.rows, op.vocab_len),
            Op::LossMerge(op) => (sizes([op.rows, op.slices]), f64::from(op.rows)),
            Op::LossGrad(op) => rows(op.rows, op.vocab_len),
            Op::Add(op) => elements(op.len.into()),
            Op::AddAssign(op) => elements(op.len.into()),
            Op::Scale(op) => elements(op.len.into()),
            Op::Fill(op) => elements(op.len.into()),
            Op::SumRanks(op) => (sizes([op.len, op.ranks]), op.len.into()),
            Op::SquaredNorm(op) => elements(op.len.into()),
            Op::AdamW(op) => elements(op.len.into()),
            Op::Sgd(op) => elements(op.len.into()),
            Op::Cast(_) | Op::Coarse(_) => return None,
        };
        let at = at.into_iter().map(|size: f64| size.max(1.0)).collect();
        Some(Self { kernel: op.kernel().name(), at, units })
    }

    /// A copy inside a rank.
    pub fn of_copy(bytes: Bytes) -> Self {
        Self { kernel: "copy", at: vec![(bytes.0 as f64).max(1.0)], units: bytes.0 as f64 }
    }

    /// A message from one rank to another.
    pub fn of_message(bytes: Bytes) -> Self {
        Self { kernel: "message", ..Self::of_copy(bytes) }
    }
}

fn sizes<const N: usize>(sizes: [u32; N]) -> Vec<f64> {
    sizes.map(f64::from).to_vec()
}

/// Attention: positions and the size of a head; how many heads there are only repeats them.
fn per_head(heads: &Heads) -> Vec<f64> {
    sizes([heads.seq, heads.head_dim])
}

/// Elements of a matrix, and of one of its rows.
fn rows(rows: u32, columns: u32) -> (Vec<f64>, f64) {
    let units = f64::from(rows) * f64::from(columns);
    (vec![units, columns.into()], units)
}

fn elements(count: f64) -> (Vec<f64>, f64) {
    (vec![count], count)
}
