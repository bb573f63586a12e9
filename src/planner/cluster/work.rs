//! What a layer costs: products, attention, bytes moved, kernels started, for every pass.
//!
//! Sizes only; how long they take on a GPU is priced by `sim::cost`. Counts of memory passes follow
//! the kernels that the software at hand launches.

use crate::config::workload::{
    AttentionKernel, Fusion, Recomputed, Softmax, Transformer, Workload,
};

/// The work of one kind of pass, as a sum of parts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Work {
    /// How often, and what.
    pub parts: Vec<(f64, Part)>,
    /// Precision of the products: 8-bit floats halve their time at best.
    pub eight_bit: bool,
}

/// Kernels of one layer (or of the head) in one pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    /// Matrix products.
    pub products: Vec<Product>,
    /// Attention that never stores its scores.
    pub flash: Option<Flash>,
    /// Bytes moved by everything else.
    pub traffic: Traffic,
    /// Kernels started.
    pub kernels: f64,
}

/// `batch` products of `[m, k]` by `[k, n]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    /// How many.
    pub batch: u64,
    /// Rows of the result.
    pub m: u64,
    /// Columns of the result.
    pub n: u64,
    /// Length of the sums.
    pub k: u64,
}

impl Product {
    /// Floating-point operations.
    pub const fn flops(self) -> f64 {
        2.0 * self.batch as f64 * self.m as f64 * self.n as f64 * self.k as f64
    }

    /// Bytes of the three matrices in 16 bits.
    pub const fn bytes(self) -> f64 {
        let Self { batch, m, n, k } = self;
        2.0 * batch as f64 * (m as f64 * n as f64 + n as f64 * k as f64 + m as f64 * k as f64)
    }
}

/// Flash attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flash {
    /// Operations, of the causal half alone.
    pub flops: f64,
    /// Which kernel.
    pub kernel: AttentionKernel,
    /// Elements of a head.
    pub head_dim: u64,
    /// Forward or backward.
    pub backward: bool,
    /// Whether atomics are forgone.
    pub deterministic: bool,
}

/// Bytes that pointwise kernels move. Passes over eager chains are counted apart, because how many
/// there are is a fitted constant of `sim::cost`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    /// Bytes of counted passes.
    pub bytes: f64,
    /// Bytes of one pass over the inputs of eager norms, weighted by the direction's share.
    pub norm_pass: f64,
    /// Bytes of one pass over the inputs of eager rotary positions.
    pub rope_pass: f64,
}

/// The passes of a microbatch through one layer, and the ends of the model.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LayerWork {
    pub(super) forward: Part,
    /// Input gradients, without what is computed again.
    pub(super) input_grad: Part,
    pub(super) weight_grad: Part,
    pub(super) head_forward: Part,
    pub(super) head_input_grad: Part,
    pub(super) head_weight_grad: Part,
    pub(super) embedding: Part,
}

/// The share of an eager norm's passes that forward makes; backward makes the rest.
const NORM_FORWARD: f64 = 0.35;
/// Backward starts this many times the kernels of forward, and half of them are weight gradients'.
const BACKWARD_KERNELS: f64 = 1.6;
/// Query rows of a tile of flash attention: the diagonal tile is computed whole.
const FLASH_TILE: f64 = 128.0;

/// Sizes that all parts are made of, on one rank.
struct Sizes<'a> {
    of: &'a Workload,
    tokens: u64,
    tp: u64,
    /// Elements of one pass over the residual stream, in bytes.
    residual: f64,
}

impl LayerWork {
    pub(super) fn of(workload: &Workload) -> Self {
        let Workload { model, split, .. } = workload;
        let tp = u64::from(split.tp);
        let cut = if split.sequence_parallel { tp } else { 1 };
        let tokens = workload.tokens();
        let residual = 2.0 * (tokens * model.hidden / cut) as f64;
        let sizes = Sizes { of: workload, tokens, tp, residual };
        let head = Product { batch: 1, m: tokens, n: model.vocab / tp, k: model.hidden };
        // Logits are turned into probabilities and a gradient in 32 bits.
        let sliced = if workload.software.sliced_loss { tp } else { 1 };
        let logits = (tokens * model.vocab / sliced) as f64;
        let plain = |products: Vec<Product>, bytes: f64, kernels: f64| Part {
            products,
            traffic: Traffic { bytes, ..Traffic::default() },
            kernels,
            flash: None,
        };
        Self {
            forward: sizes.forward(),
            input_grad: sizes.input_grad(),
            weight_grad: sizes.weight_grad(),
            head_forward: plain(vec![head], 8.0 * logits, 6.0),
            head_input_grad: plain(vec![head.input_grad()], 10.0 * logits, 4.0),
            head_weight_grad: plain(vec![head.weight_grad()], 0.0, 2.0),
            embedding: plain(Vec::new(), 6.0 * (tokens * model.hidden) as f64, 2.0),
        }
    }

    /// What of forward is computed again before backward.
    pub(super) fn recomputed(&self, what: Recomputed) -> Option<(f64, Part)> {
        let forward = &self.forward;
        match what {
            Recomputed::Nothing => None,
            Recomputed::Layers(share) => Some((share, forward.clone())),
            Recomputed::Attention => Some((1.0, forward.attention_core())),
            Recomputed::HalfOfProducts => {
                let products: Vec<Product> =
                    forward.products.iter().copied().filter(|p| p.batch == 1).collect();
                let half = Part { products, kernels: forward.kernels, ..Part::default() };
                // Half of the products, but all that is cheap.
                let traffic = Traffic {
                    bytes: 2.0 * forward.traffic.bytes,
                    norm_pass: 2.0 * forward.traffic.norm_pass,
                    rope_pass: 2.0 * forward.traffic.rope_pass,
                };
                Some((0.5, Part { traffic, ..half }))
            }
        }
    }
}

impl Part {
    /// Scores, softmax and sums alone.
    fn attention_core(&self) -> Self {
        let products: Vec<Product> =
            self.products.iter().copied().filter(|product| product.batch > 1).collect();
        // Softmax and mask move each score four times, the dropout of its weights twice more.
        let scores = products.first().map_or(0.0, |p| 2.0 * (p.batch * p.m * p.n) as f64);
        let traffic = Traffic { bytes: 4.5 * scores, ..Traffic::default() };
        Self { products, flash: self.flash, traffic, kernels: 6.0 }
    }

    /// Operations of its products and its attention.
    pub fn flops(&self) -> f64 {
        let products: f64 = self.products.iter().map(|product| product.flops()).sum();
        products + self.flash.map_or(0.0, |flash| flash.flops)
    }
}

impl Product {
    const fn input_grad(self) -> Self {
        Self { n: self.k, k: self.n, ..self }
    }

    const fn weight_grad(self) -> Self {
        Self { m: self.n, n: self.k, k: self.m, ..self }
    }
}

impl Sizes<'_> {
    fn model(&self) -> &Transformer {
        &self.of.model
    }

    /// Queries, keys and values; the attention's output; into and out of the feed-forward.
    fn matrices(&self) -> [Product; 4] {
        let model = self.model();
        let product = |n, k| Product { batch: 1, m: self.tokens, n, k };
        let (q, kv) = (model.query_width(), model.key_width());
        let into = if model.gated { 2 } else { 1 };
        let Self { tp, .. } = self;
        [
            product((q + 2 * kv) / tp, model.hidden),
            product(model.hidden, q / tp),
            product(into * model.ffn / tp, model.hidden),
            product(model.hidden, model.ffn / tp),
        ]
    }

    /// Scores and their sums where attention is not fused.
    fn score_products(&self) -> [Product; 2] {
        let model = self.model();
        let batch = self.of.batch.rows * model.heads / self.tp;
        let (seq, k) = (self.of.batch.seq, model.head_dim);
        [Product { batch, m: seq, n: seq, k }, Product { batch, m: seq, n: k, k: seq }]
    }

    /// Bytes of one pass over all scores.
    fn scores(&self) -> f64 {
        let [scores, _] = self.score_products();
        2.0 * (scores.batch * scores.m * scores.n) as f64
    }

    fn flash(&self, backward: bool) -> Option<Flash> {
        let (model, software) = (self.model(), &self.of.software);
        if matches!(software.attention, AttentionKernel::Unfused(_)) {
            return None;
        }
        let seq = self.of.batch.seq as f64;
        let rows = (self.of.batch.rows * self.of.batch.seq) as f64 / f64::from(self.of.split.cp);
        let causal = 0.5 * (1.0 + FLASH_TILE / seq);
        let forward = 4.0 * rows * seq * (model.query_width() / self.tp) as f64 * causal;
        // Backward computes the scores again and has five products for two (arXiv:2205.14135).
        let flops = if backward { 2.5 * forward } else { forward };
        Some(Flash {
            flops,
            kernel: software.attention,
            head_dim: model.head_dim,
            backward,
            deterministic: software.deterministic,
        })
    }

    fn kernels(&self) -> f64 {
        let software = &self.of.software;
        if software.compiled {
            return 14.0;
        }
        let attention = match software.attention {
            AttentionKernel::Unfused(Softmax::Fused) => 6.0,
            AttentionKernel::Unfused(Softmax::Eager) => 14.0,
            _ => 2.0,
        };
        let chain = |fusion, fused, eager| if fusion == Fusion::Eager { eager } else { fused };
        let rope = software.rope.map_or(4.0, |rope| chain(rope, 4.0, 12.0));
        let split = if self.tp > 1 { 4.0 } else { 0.0 };
        4.0 + attention
            + chain(software.norm, 6.0, 16.0)
            + chain(software.activation, 2.0, 6.0)
            + rope
            + split
    }

    /// Bytes of pointwise kernels; `passes`: of norms, residuals, activation and rotary positions.
    fn traffic(&self, backward: bool) -> Traffic {
        let (model, software) = (self.model(), &self.of.software);
        let pick = |forward: f64, back: f64| if backward { back } else { forward };
        let share = pick(NORM_FORWARD, 1.0 - NORM_FORWARD);
        let (norms, norm_pass) = match software.norm {
            Fusion::Fused => (pick(2.0, 4.0), 0.0),
            Fusion::Cast => (pick(4.0, 6.0), 0.0),
            Fusion::Eager => (0.0, 2.0 * share * self.residual),
        };
        // Residual additions; GPT-like models also add biases and dropout.
        let residuals = pick(if model.gated { 6.0 } else { 9.0 }, 4.0);
        let eager = software.activation != Fusion::Fused;
        let activation = match (model.gated, eager) {
            (true, false) => pick(3.0, 5.0),
            (true, true) => pick(5.0, 8.0),
            (false, false) => pick(2.0, 3.0),
            (false, true) => pick(4.0, 5.0),
        };
        let ffn = 2.0 * (self.tokens * model.ffn / self.tp) as f64;
        let qk = (model.query_width() + model.key_width()) / self.tp;
        let qk = 2.0 * (self.tokens * qk) as f64;
        let (rope, rope_pass) = match software.rope {
            None => (0.0, 0.0),
            Some(Fusion::Eager) => (0.0, qk),
            Some(_) => (2.0 * qk, 0.0),
        };
        let softmax = match software.attention {
            // Dropout of the weights moves them two and a half times more in GPT-like models.
            AttentionKernel::Unfused(kind) => {
                let passes = match kind {
                    Softmax::Fused => pick(2.0, 3.0),
                    Softmax::Eager => 10.0,
                };
                (passes + if model.gated { 0.0 } else { 2.5 }) * self.scores()
            }
            _ => 0.0,
        };
        let bytes = (2.0 * norms + residuals) * self.residual + activation * ffn + rope + softmax;
        Traffic { bytes, norm_pass, rope_pass }
    }

    fn forward(&self) -> Part {
        let mut products = self.matrices().to_vec();
        if self.flash(false).is_none() {
            products.extend(self.score_products());
        }
        Part {
            products,
            flash: self.flash(false),
            traffic: self.traffic(false),
            kernels: self.kernels(),
        }
    }

    fn input_grad(&self) -> Part {
        let mut products: Vec<Product> = self.matrices().map(Product::input_grad).to_vec();
        if self.flash(true).is_none() {
            // Each of the two products has two gradients.
            products.extend([self.score_products(), self.score_products()].concat());
        }
        Part {
            products,
            flash: self.flash(true),
            traffic: self.traffic(true),
            kernels: self.kernels() * (BACKWARD_KERNELS - 0.5),
        }
    }

    fn weight_grad(&self) -> Part {
        let Workload { batch, software, .. } = self.of;
        let weights = (self.model().layer_parameters() / self.tp) as f64;
        // With one microbatch there is nothing to add to; it is only laid out for the reduction.
        let adds = if batch.microbatches > 1 { 1.0 } else { 0.4 };
        let bytes = adds * weights * software.accumulate_bytes as f64;
        Part {
            products: self.matrices().map(Product::weight_grad).to_vec(),
            flash: None,
            traffic: Traffic { bytes, ..Traffic::default() },
            kernels: self.kernels() * 0.5,
        }
    }
}
