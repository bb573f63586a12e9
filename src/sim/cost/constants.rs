//! The constants of the cost model: few, each with a physical meaning, and where it comes from.
//!
//! Data sheets are in `config::cluster`. What is here either was measured elsewhere (said beside it)
//! or is fitted to published steps by `predict::fit`: those are listed in [`Constants::FITTED`], one
//! value each for all runs, never one a source.

use crate::config::cluster::Architecture;

/// Rates and overheads that all predictions share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Constants {
    /// The share of the best product's rate that A100s keep up while training.
    pub ampere: f64,
    /// The same of H100s, which their power limit slows down.
    pub hopper: f64,
    /// The same of B200s.
    pub blackwell: f64,
    /// The share of memory bandwidth that pointwise kernels reach.
    pub memory: f64,
    /// Achieved over published rates of fused attention.
    pub attention: f64,
    /// The share of the line rate that collectives between nodes keep up.
    pub network: f64,
    /// Seconds of a step outside of the schedule: data, logging, the host's part of the optimizer.
    pub step_seconds: f64,
    /// Growth of a step with each doubling of the GPUs beyond eight: the slowest of many.
    pub straggler: f64,
    /// Passes over its input that an eager `RMSNorm` makes, forward and backward together.
    pub norm_passes: f64,
    /// Passes over queries and keys that eager rotary positions make, in each direction.
    pub rope_passes: f64,
    /// Spread of the speed of GPUs in a tensor-parallel group, which wait for the slowest.
    pub tensor_skew: f64,
    /// Seconds between two kernels.
    pub kernel_gap: f64,
}

impl Default for Constants {
    fn default() -> Self {
        Self {
            ampere: 0.924,
            hopper: 0.851,
            blackwell: 0.625,
            memory: 0.563,
            attention: 0.952,
            network: 0.664,
            step_seconds: 0.052,
            straggler: 0.0031,
            norm_passes: 59.4,
            rope_passes: 20.5,
            tensor_skew: 0.0107,
            kernel_gap: 4.0e-6,
        }
    }
}

/// Name of a fitted constant, and where it is.
pub type Fitted = (&'static str, fn(&mut Constants) -> &mut f64);

impl Constants {
    /// The constants that were fitted to published steps.
    pub const FITTED: [Fitted; 12] = [
        ("ampere", |c| &mut c.ampere),
        ("hopper", |c| &mut c.hopper),
        ("blackwell", |c| &mut c.blackwell),
        ("memory", |c| &mut c.memory),
        ("attention", |c| &mut c.attention),
        ("network", |c| &mut c.network),
        ("step seconds", |c| &mut c.step_seconds),
        ("straggler", |c| &mut c.straggler),
        ("norm passes", |c| &mut c.norm_passes),
        ("rope passes", |c| &mut c.rope_passes),
        ("tensor skew", |c| &mut c.tensor_skew),
        ("kernel gap", |c| &mut c.kernel_gap),
    ];

    /// What training keeps up of the best product's rate.
    pub const fn sustained(&self, architecture: Architecture) -> f64 {
        match architecture {
            Architecture::Ampere => self.ampere,
            Architecture::Hopper => self.hopper,
            Architecture::Blackwell => self.blackwell,
            // Nothing was fitted to them: what A100s keep up, or all where the rate is a safe one.
            Architecture::Ada => self.ampere,
            Architecture::Volta | Architecture::Apple => 1.0,
        }
    }
}

/// Length of a product's sums at which half of the rate is lost to starting and ending them. From
/// the samples of `gemm_samples` in the published data: on an A100 1024³ reaches 60 TFLOP/s,
/// 8192×4096×16384 reaches 253.
pub(super) const HALF_RATE_K: f64 = 150.0;

/// Tiles of a product, and the share of the rate that each reaches (CUTLASS profiles).
pub(super) const TILES: [(u64, u64, f64); 5] =
    [(256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.9), (128, 64, 0.72), (64, 64, 0.55)];

/// 8-bit products gain this much of the doubled peak: their quantisation moves bytes too.
pub(super) const EIGHT_BIT_GAIN: f64 = 1.6;

/// The share of the node links' measured bus bandwidth that collectives between kernels reach.
pub(super) const NODE_SHARE: f64 = 0.92;

/// Base latency of a collective: NVIDIA/nccl src/graph/tuning.cc, ring, Simple.
pub(super) const BASE_LATENCY: f64 = 8.4e-6;

/// Filling and draining the chunks of a ring: the difference to the above of nccl-tests on 8 A100,
/// between 1 MB and 64 MB.
pub(super) const FILL_LATENCY: f64 = 45.0e-6;

/// Kernels of a rank that start a collective and take its result.
pub(super) const LAUNCH_COLLECTIVE: f64 = 10.0e-6;

/// Latency of a message between stages, on top of its bytes.
pub(super) const MESSAGE_LATENCY: f64 = 20.0e-6;

/// Steps between nodes that a collective makes one after the other at most: then it is a tree.
pub(super) const RING_NODES: u32 = 32;

/// A collective in four chunks beside its products hides three (Transformer Engine's userbuffers).
pub(super) const CHUNKS_HIDDEN: f64 = 0.75;

/// Of attention's time, what hides the blocks of a ring that are on their way.
pub(super) const RING_HIDDEN: f64 = 0.9;

/// Latency of a step of a ring of blocks.
pub(super) const RING_STEP: f64 = 20.0e-6;

/// NCCL's 16 of 132 processors, which compute loses while a collective runs beside it.
pub(super) const CONTENTION: f64 = 0.12;

/// The host starts a kernel in this time: shorter kernels wait for it.
pub(super) const HOST_LAUNCH: f64 = 7.0e-6;
