//! The parallel layout: how training is cut over ranks.
//!
//! Plain sizes and choices, with checks of single values and the arithmetic of batches. Whether
//! the whole can run with a model is the planner's question.

use serde::{Deserialize, Serialize};

use super::error::words;
use super::{ConfigError, ScheduleName};
use crate::mesh::{Mesh, RankOrder};
use crate::shape::part;

/// How training is cut. The same fields as the layout flags of the command line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Layout {
    /// Data-parallel size.
    pub dp: u32,
    /// Tensor-parallel size.
    pub tp: u32,
    /// Pipeline-parallel size: positions.
    pub pp: u32,
    /// Stages per pipeline position.
    pub chunks: u32,
    /// What of the optimizer is sharded over data-parallel ranks.
    pub zero: ZeroStage,
    /// Order of forwards and backwards.
    pub schedule: ScheduleName,
    /// Microbatches of a data-parallel rank in a step.
    pub microbatches: u32,
    /// Norms and residuals cut over the sequence (with tensor parallel).
    pub sequence_parallel: bool,
    /// What is computed again in backward instead of kept.
    pub recompute: Recompute,
    /// How collectives are unfolded.
    pub collective: CollectiveChoice,
    /// Whether gradient reduction overlaps with backward.
    pub overlap: bool,
    /// Which axis runs fastest through the rank numbers.
    pub rank_order: RankOrder,
    /// Gradients are reduced in buckets of at least this many bytes.
    pub bucket_bytes: u64,
    /// Messages of gradient and weight collectives are cut into chunks of at most this many bytes.
    pub chunk_bytes: u64,
    /// Ranks of a node, for hierarchical collectives.
    pub node_size: Option<u32>,
    /// Units (embedding, layers, head) of each stage; balanced by cost if absent.
    pub stage_units: Option<Vec<u32>>,
}

impl Default for Layout {
    fn default() -> Self {
        Self {
            dp: 1,
            tp: 1,
            pp: 1,
            chunks: 1,
            zero: ZeroStage::Zero0,
            schedule: ScheduleName::OneFOneB,
            microbatches: 1,
            sequence_parallel: false,
            recompute: Recompute::None,
            collective: CollectiveChoice::Auto,
            overlap: true,
            rank_order: RankOrder::TpDpPp,
            bucket_bytes: 1 << 20,
            chunk_bytes: 1 << 20,
            node_size: None,
            stage_units: None,
        }
    }
}

impl Layout {
    /// The mesh that the layout spans.
    pub fn mesh(&self) -> Mesh {
        Mesh { dp: self.dp, tp: self.tp, pp: self.pp, order: self.rank_order }
    }

    /// What is wrong with single values; all faults.
    pub fn check(&self) -> Vec<ConfigError> {
        let mut faults = Vec::new();
        let sizes = [
            ("dp", self.dp),
            ("tp", self.tp),
            ("pp", self.pp),
            ("chunks", self.chunks),
            ("microbatches", self.microbatches),
            ("node-size", self.node_size.unwrap_or(1)),
        ];
        for (name, size) in sizes {
            if size == 0 {
                faults.push(ConfigError::value(name, "is 0", "Give at least 1"));
            }
        }
        let ranks = [self.dp, self.tp, self.pp].into_iter().try_fold(1u32, u32::checked_mul);
        if ranks.is_none() {
            let why = format!("{} × {} × {} ranks are too many", self.dp, self.tp, self.pp);
            faults.push(ConfigError::value("dp × tp × pp", why, "Use fewer ranks"));
        }
        for (name, bytes) in
            [("bucket-bytes", self.bucket_bytes), ("chunk-bytes", self.chunk_bytes)]
        {
            if bytes < 4 {
                let why = format!("{bytes} bytes hold no element");
                faults.push(ConfigError::value(name, why, "Give at least 4, for instance 1048576"));
            }
        }
        if self.stage_units.iter().flatten().any(|&units| units == 0) {
            let remedy = "Give every stage at least one of [embedding, layers…, head]";
            faults.push(ConfigError::value("stage-units", "a stage is empty", remedy));
        }
        faults
    }
}

/// Microbatches of a rank from the two ways of saying them: their number, or the rows of the
/// largest one (`--micro-batch-size`). `None` if neither is given.
///
/// ```
/// use shardlab::config::layout::microbatches;
/// assert_eq!(microbatches(32, 2, None, Some(4)).unwrap(), Some(4));
/// let error = microbatches(32, 2, Some(8), Some(4)).unwrap_err().to_string();
/// assert!(error.contains("batch 32 / dp 2 = 16 rows a rank; 16 / micro-batch-size 4 = 4"));
/// ```
///
/// # Errors
/// If the two contradict each other, or if the rows of a rank are not divisible by the size.
pub fn microbatches(
    batch: u32,
    dp: u32,
    count: Option<u32>,
    size: Option<u32>,
) -> Result<Option<u32>, ConfigError> {
    let Some(size) = size else { return Ok(count) };
    if size == 0 || dp == 0 {
        let what = if size == 0 { "micro-batch-size" } else { "dp" };
        return Err(ConfigError::value(what, "is 0", "Give at least 1"));
    }
    if batch < dp {
        let why = format!("batch {batch} / dp {dp} leaves a rank without rows");
        return Err(ConfigError::value("batch", why, format!("Use a batch of at least {dp}")));
    }
    // The first rank holds one row more where the batch is not divisible.
    let (rows, rows_least) =
        (part(batch, dp, 0).len() as u32, part(batch, dp, dp - 1).len() as u32);
    let sum = if rows == rows_least {
        format!("batch {batch} / dp {dp} = {rows} rows a rank")
    } else {
        format!("batch {batch} / dp {dp} = {rows} or {rows_least} rows a rank")
    };
    if rows % size != 0 {
        let sizes: Vec<_> =
            (1..=rows).filter(|s| rows.is_multiple_of(*s)).map(|s| s.to_string()).collect();
        let why = format!("{sum}; {rows} / micro-batch-size {size} is not a whole number");
        let remedy =
            format!("Use a micro-batch-size of {}, or say --microbatches", sizes.join(", "));
        return Err(ConfigError::value("micro-batch-size", why, remedy));
    }
    let sized = rows / size;
    match count {
        Some(count) if count != sized => {
            let why = format!(
                "{sum}; {rows} / micro-batch-size {size} = {sized} microbatches, \
                 but --microbatches says {count}"
            );
            let remedy = "Leave one of the two out";
            Err(ConfigError::value("micro-batch-size and microbatches", why, remedy))
        }
        _ => Ok(Some(sized)),
    }
}

/// What is sharded over data-parallel ranks (`ZeRO`, arXiv:1910.02054).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(try_from = "u8", into = "u8")]
pub enum ZeroStage {
    /// Nothing.
    #[default]
    Zero0,
    /// Optimizer state.
    Zero1,
    /// Optimizer state and gradients.
    Zero2,
    /// Optimizer state, gradients and weights.
    Zero3,
}

impl TryFrom<u8> for ZeroStage {
    type Error = String;
    fn try_from(stage: u8) -> Result<Self, String> {
        match stage {
            0 => Ok(Self::Zero0),
            1 => Ok(Self::Zero1),
            2 => Ok(Self::Zero2),
            3 => Ok(Self::Zero3),
            _ => Err(format!("ZeRO stage {stage} does not exist: use 0, 1, 2 or 3")),
        }
    }
}

impl From<ZeroStage> for u8 {
    fn from(stage: ZeroStage) -> Self {
        stage as Self
    }
}

words!(ZeroStage, "zero", [
    "0" => Self::Zero0,
    "1" => Self::Zero1,
    "2" => Self::Zero2,
    "3" => Self::Zero3,
]);

/// What is computed again in backward instead of kept (arXiv:2205.05198).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Recompute {
    /// Everything is kept.
    #[default]
    None,
    /// Attention, activation and norm outputs are computed again: no communication.
    Selective,
    /// Only the input of each layer is kept.
    Full,
}

words!(Recompute, "recompute", [
    "none" => Self::None,
    "selective" => Self::Selective,
    "full" => Self::Full,
]);

/// How collectives are unfolded into messages.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum CollectiveChoice {
    /// By size and links.
    #[default]
    Auto,
    /// Around a ring, 2(N−1) steps.
    Ring,
    /// Halving-doubling where N is a power of two, else a binary tree.
    Tree,
    /// Inside the nodes, then across, then inside.
    Hierarchical,
    /// The owner of a piece receives the others' pieces and adds them in rank order.
    Direct,
}

words!(CollectiveChoice, "collective", [
    "auto" => Self::Auto,
    "ring" => Self::Ring,
    "tree" => Self::Tree,
    "hierarchical" => Self::Hierarchical,
    "direct" => Self::Direct,
]);

words!(RankOrder, "rank-order", [
    "tp-dp-pp" => Self::TpDpPp,
    "tp-pp-dp" => Self::TpPpDp,
]);

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt;
    use std::str::FromStr;

    /// Each word is the value's name in TOML too, and comes back through `FromStr`.
    #[track_caller]
    fn check_words<T>(words: &[&str])
    where
        T: FromStr<Err = ConfigError> + fmt::Display + Serialize,
    {
        for word in words {
            let value: T = word.parse().unwrap();
            assert_eq!(value.to_string(), *word);
            let toml = toml::Value::try_from(&value).unwrap();
            assert_eq!(toml.to_string().trim_matches('"'), *word);
        }
    }

    #[test]
    fn flags_and_toml_use_the_same_words() {
        check_words::<ZeroStage>(ZeroStage::WORDS);
        check_words::<ScheduleName>(ScheduleName::WORDS);
        check_words::<ScheduleName>(&["mine/zb.csv"]);
        check_words::<Recompute>(Recompute::WORDS);
        check_words::<CollectiveChoice>(CollectiveChoice::WORDS);
        check_words::<RankOrder>(RankOrder::WORDS);
    }

    #[test]
    fn an_unknown_word_is_refused_with_the_nearest_and_all_known_ones() {
        let error = "1f1".parse::<ScheduleName>().unwrap_err().to_string();
        let known = ScheduleName::WORDS.join(", ");
        assert_eq!(
            error,
            format!("schedule: `1f1` is not known. Did you mean `1f1b`? Known: {known}, FILE.csv")
        );
        let error = "4".parse::<ZeroStage>().unwrap_err().to_string();
        assert!(error.contains("0, 1, 2, 3"), "{error}");
        let error = "star".parse::<CollectiveChoice>().unwrap_err().to_string();
        assert!(error.contains("auto, ring, tree, hierarchical, direct"), "{error}");
    }

    #[test]
    fn a_size_of_zero_is_refused_by_name_and_all_faults_are_told() {
        let layout = Layout { tp: 0, microbatches: 0, chunk_bytes: 0, ..Layout::default() };
        let text = ConfigError::collect(layout.check()).unwrap_err().to_string();
        for part in ["tp: is 0", "microbatches: is 0", "chunk-bytes: 0 bytes"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(Layout::default().check().is_empty());
        let layout = Layout { dp: 1 << 16, tp: 1 << 16, ..Layout::default() };
        assert_eq!(layout.check().len(), 1);
    }

    #[test]
    fn microbatches_and_their_size_say_the_same_or_are_refused_with_the_sum() {
        let of = |batch, dp, count, size| {
            microbatches(batch, dp, count, size).map_err(|error| error.to_string())
        };
        assert_eq!(of(32, 2, None, None), Ok(None));
        assert_eq!(of(32, 2, Some(8), None), Ok(Some(8)));
        assert_eq!(of(32, 2, None, Some(2)), Ok(Some(8)));
        assert_eq!(of(32, 2, Some(8), Some(2)), Ok(Some(8)));
        assert_eq!(of(10, 3, None, Some(2)), Ok(Some(2)));
        let error = of(32, 2, Some(8), Some(4)).unwrap_err();
        let sum = "batch 32 / dp 2 = 16 rows a rank; 16 / micro-batch-size 4 = 4 microbatches, \
                   but --microbatches says 8";
        assert!(error.contains(sum), "{error}");
        let error = of(32, 2, None, Some(5)).unwrap_err();
        assert!(error.contains("16 / micro-batch-size 5 is not a whole number"), "{error}");
        assert!(error.contains("1, 2, 4, 8, 16"), "{error}");
        assert!(of(32, 2, None, Some(0)).unwrap_err().contains("micro-batch-size: is 0"));
    }
}
