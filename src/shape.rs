//! Element types, tensor shapes and the one rule by which anything is cut into parts.
//!
//! Dimension letters, global to the project: b batch rows, t time (sequence), d model (hidden),
//! h heads, k head size, f ffn (intermediate), v vocabulary. Activations are stored time-major,
//! `[t, b, d]`, so that a slice of the sequence is one contiguous range.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// The type of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// 32-bit float: what is trained.
    F32,
    /// 32-bit integer: tokens and labels.
    I32,
    /// 16-bit brain float: sizes in predictions, and casts.
    Bf16,
    /// 16-bit IEEE float: sizes in predictions.
    F16,
}

impl DType {
    /// Bytes of one element.
    pub const fn size(self) -> u64 {
        match self {
            Self::F32 | Self::I32 => 4,
            Self::Bf16 | Self::F16 => 2,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::I32 => "i32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        })
    }
}

/// Sizes of a tensor, outermost dimension first, stored row-major.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Shape(pub Vec<u64>);

impl Shape {
    /// Number of elements.
    pub fn len(&self) -> u64 {
        self.0.iter().product()
    }

    /// Whether the tensor has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims: Vec<String> = self.0.iter().map(u64::to_string).collect();
        write!(f, "[{}]", dims.join(", "))
    }
}

/// The part `index` of `total` things cut into `parts`: the first parts hold one more.
///
/// Every cut in the project follows this rule: rows over data-parallel ranks, microbatches,
/// sequence positions, vocabulary, ffn columns, pieces of a collective.
///
/// ```
/// use shardlab::shape::part;
/// assert_eq!([part(7, 3, 0), part(7, 3, 1), part(7, 3, 2)], [0..3, 3..5, 5..7]);
/// ```
pub fn part(total: u32, parts: u32, index: u32) -> Range<u32> {
    debug_assert!(index < parts, "part {index} of {parts}");
    let (size, more) = (total / parts, total % parts);
    let start = index * size + index.min(more);
    start..start + size + u32::from(index < more)
}

/// All parts of `total` cut into `parts` by the rule of [`part`].
pub fn parts(total: u32, parts: u32) -> Vec<Range<u32>> {
    (0..parts).map(|index| part(total, parts, index)).collect()
}
