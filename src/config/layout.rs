//! The parallel layout: how training is cut over ranks.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::mesh::{Mesh, RankOrder};

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

/// A pipeline schedule by name or file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ScheduleName {
    /// All forwards, then all backwards (arXiv:1811.06965).
    #[serde(rename = "gpipe")]
    GPipe,
    /// One forward, one backward (arXiv:1806.03377, 2104.04473).
    #[default]
    #[serde(rename = "1f1b")]
    OneFOneB,
    /// A table in the CSV grammar of torch.distributed.pipelining.
    #[serde(rename = "file")]
    File(PathBuf),
}

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
