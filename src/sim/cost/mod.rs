//! What coarse work costs on a described cluster: products, attention, memory passes, collectives.
//!
//! The sizes come from `planner::cluster`; here they become seconds. Shapes decide: a product pays
//! for the tiles that its last wave leaves empty and for short sums, a collective for its steps.

mod collective;
mod constants;

pub use constants::{Constants, Fitted};

use crate::config::Cluster;
use crate::config::cluster::Architecture;
use crate::config::workload::AttentionKernel;
use crate::planner::cluster::work::{Flash, Part, Product, Traffic, Work};

/// Prices work on one cluster.
#[derive(Clone, Copy, Debug)]
pub struct Pricer<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// Rates and overheads.
    pub constants: &'a Constants,
}

/// Whole nanoseconds.
pub(crate) fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

impl Pricer<'_> {
    /// Seconds of kernels that take `work` alone while collectives of so many seconds run.
    pub(crate) fn beside(&self, work: f64, collectives: f64) -> f64 {
        work + constants::CONTENTION * work.min(collectives)
    }

    /// Seconds of a pass, without its collectives.
    pub fn work(&self, work: &Work) -> f64 {
        work.parts.iter().map(|(times, part)| times * self.part(part, work.eight_bit)).sum()
    }

    /// Seconds of flash attention in a pass.
    pub fn flash_in(&self, work: &Work) -> f64 {
        let flash = |part: &Part| part.flash.map_or(0.0, |flash| self.flash(flash));
        work.parts.iter().map(|(times, part)| times * flash(part)).sum()
    }

    fn part(&self, part: &Part, eight_bit: bool) -> f64 {
        let products: f64 = part.products.iter().map(|p| self.product(*p, eight_bit)).sum();
        let flash = part.flash.map_or(0.0, |flash| self.flash(flash));
        let on_gpu = products + flash + self.traffic(part.traffic);
        let gaps = part.kernels * self.constants.kernel_gap;
        (on_gpu + gaps).max(part.kernels * constants::HOST_LAUNCH)
    }

    /// Operations a second of a product that fills the GPU.
    fn rate(&self) -> f64 {
        let gpu = &self.cluster.gpu;
        let fitted = self.constants.sustained(gpu.architecture);
        let sustained = gpu.sustained_share.unwrap_or(fitted);
        // Dynamic power grows with the clock and the square of the voltage that it needs: near the
        // limit the clock follows the root of the power.
        gpu.tflops_16bit * 1e12 * gpu.matmul_share * sustained * gpu.power_share.sqrt()
    }

    fn memory(&self) -> f64 {
        self.cluster.gpu.memory_gb_per_sec * 1e9 * self.constants.memory
    }

    fn product(&self, product: Product, eight_bit: bool) -> f64 {
        let k = product.k as f64;
        let full = self.filled(product) * k / (k + constants::HALF_RATE_K);
        let can = eight_bit && self.cluster.gpu.tflops_8bit.is_some();
        let gain = if can { constants::EIGHT_BIT_GAIN } else { 1.0 };
        let seconds = product.flops() / (self.rate() * full * gain);
        seconds.max(product.bytes() / self.memory())
    }

    /// The share of the rate that is left after waves of tiles, for the best tile.
    fn filled(&self, product: Product) -> f64 {
        let Product { batch, m, n, .. } = product;
        let processors = u64::from(self.cluster.gpu.multiprocessors);
        let elements = (batch * m * n) as f64;
        let share = |(rows, cols, rate): (u64, u64, f64)| {
            let tiles = batch * m.div_ceil(rows) * n.div_ceil(cols);
            let waves = tiles.div_ceil(processors);
            elements * rate / (waves * processors * rows * cols) as f64
        };
        constants::TILES.map(share).into_iter().fold(0.0, f64::max)
    }

    fn traffic(&self, traffic: Traffic) -> f64 {
        let Traffic { bytes, norm_pass, rope_pass } = traffic;
        let Constants { norm_passes, rope_passes, .. } = self.constants;
        // Both norms of a layer are in `norm_pass`.
        (bytes + norm_passes * norm_pass + rope_passes * rope_pass) / self.memory()
    }

    fn flash(&self, flash: Flash) -> f64 {
        let (forward, backward) = flash_share(flash.kernel, self.cluster.gpu.architecture);
        let share = if flash.backward { backward } else { forward };
        // Short heads leave parts of the tensor cores idle (both FlashAttention papers).
        let head = match flash.head_dim {
            128.. => 1.0,
            96.. => 0.95,
            _ => 0.9,
        };
        let peak = self.cluster.gpu.tflops_16bit * 1e12;
        // Without atomics backward takes half as long again (flash-attn's README).
        let slower = if flash.deterministic && flash.backward { 1.5 } else { 1.0 };
        slower * flash.flops / (peak * share * head * self.constants.attention)
    }
}

/// Shares of the peak that attention reaches forward and backward on long causal sequences:
/// arXiv:2307.08691 (figures 4 to 6) for A100 and for its kernels on H100, arXiv:2407.08608 for
/// kernels written for H100; FlashAttention 1 on H100 is its rate on A100 times 1.7. Others are as
/// their nearest relative.
const fn flash_share(kernel: AttentionKernel, architecture: Architecture) -> (f64, f64) {
    match (architecture, kernel) {
        (Architecture::Ampere | Architecture::Ada, AttentionKernel::Flash1) => (0.42, 0.33),
        (Architecture::Ampere | Architecture::Ada, _) => (0.66, 0.55),
        (Architecture::Hopper, AttentionKernel::Flash1) => (0.22, 0.17),
        (Architecture::Hopper, AttentionKernel::Flash2) => (0.38, 0.32),
        (Architecture::Hopper, _) => (0.60, 0.50),
        (Architecture::Blackwell, AttentionKernel::Flash1 | AttentionKernel::Flash2) => {
            (0.20, 0.15)
        }
        (Architecture::Blackwell, _) => (0.50, 0.36),
        (Architecture::Volta | Architecture::Apple, _) => (0.30, 0.20),
    }
}
