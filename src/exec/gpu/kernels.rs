//! The table of all WGSL kernels: file, entry point, bindings and params of each.
//!
//! It only describes; [`super::pipelines`] compiles and [`super::lower`] says which op runs which.
//! `tests/shaders.rs` holds every line of the table against the shaders.

use super::params::{self, Field};

/// A WGSL file together with the pieces that are put before it.
#[derive(Debug, PartialEq, Eq)]
pub struct Source {
    /// Its own name: a file may be compiled after other pieces as well.
    pub name: &'static str,
    /// Name of the file in `shaders/`, without its ending.
    pub stem: &'static str,
    /// The whole text.
    pub wgsl: &'static str,
    /// Whether it needs subgroup operations.
    pub subgroups: bool,
}

macro_rules! sources {
    ($($(#[$doc:meta])* $name:ident = $stem:literal $(after $before:literal)* $(, subgroups: $subgroups:literal)?;)*) => {
        $($(#[$doc])* static $name: Source = Source {
            name: stringify!($name),
            stem: $stem,
            wgsl: concat!(
                $(include_str!(concat!("../../../shaders/", $before, ".wgsl")), "\n",)*
                include_str!(concat!("../../../shaders/", $stem, ".wgsl"))
            ),
            subgroups: false $(|| $subgroups)?,
        };)*
    };
}

sources! {
    MATMUL = "matmul" after "blocks" after "matmul_block";
    MATMUL_SUBGROUP = "matmul_subgroup" after "blocks" after "eights" after "matmul_block",
        subgroups: true;
    EMBEDDING = "embedding";
    NORM = "norm" after "lanes";
    NORM_SUBGROUP = "norm" after "lanes_subgroup", subgroups: true;
    ROPE = "rope";
    ATTENTION = "attention" after "blocks" after "attention_block";
    ATTENTION_SUBGROUP = "attention_subgroup" after "blocks" after "eights"
        after "attention_block", subgroups: true;
    SWIGLU = "swiglu";
    CROSS_ENTROPY = "cross_entropy" after "finite" after "lanes";
    CROSS_ENTROPY_SUBGROUP = "cross_entropy" after "finite" after "lanes_subgroup",
        subgroups: true;
    ELEMENTWISE = "elementwise";
    REDUCTION = "reduction" after "finite" after "lanes";
    OPTIMIZER = "optimizer" after "finite";
    CAST = "cast";
    SELF_TEST = "self_test";
}

/// What the table says of one kernel.
#[derive(Debug)]
pub struct KernelSpec {
    /// Its file.
    pub source: &'static Source,
    /// Name of the entry point.
    pub entry: &'static str,
    /// Names of the bindings 1, 2, …; binding 0 holds the params. The WGSL variable of binding `x`
    /// is called `x`, or `x_…` where several kernels of a file bind it differently.
    pub bindings: &'static [&'static str],
    /// Members of the params struct.
    pub fields: &'static [Field],
    /// Its size.
    pub params_bytes: usize,
    /// Invocations of a workgroup.
    pub workgroup: [u32; 3],
}

impl KernelSpec {
    /// Byte of the params at which the first element of a binding is written.
    pub(super) fn at_offset(&self, binding: usize) -> usize {
        let name = self.bindings[binding];
        let named = |field: &&Field| field.name.strip_suffix("_at") == Some(name);
        self.fields.iter().find(named).expect("tests hold the table against the params").offset
    }
}

macro_rules! kernels {
    ($($id:ident = $source:ident.$entry:ident($($binding:ident),*) $params:ident, [$x:literal, $y:literal];)*) => {
        /// A kernel: an entry point of a WGSL file.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[expect(missing_docs, reason = "named as the entry points of the shaders")]
        pub enum KernelId { $($id),* }

        /// All kernels, in the order of [`KernelId`].
        pub static KERNELS: &[KernelSpec] = &[$(KernelSpec {
            source: &$source,
            entry: stringify!($entry),
            bindings: &[$(stringify!($binding)),*],
            fields: params::$params::FIELDS,
            params_bytes: size_of::<params::$params>(),
            workgroup: [$x, $y, 1],
        }),*];
    };
}

kernels! {
    MatmulTiled = MATMUL.matmul_tiled(a, b, c) Matmul, [64, 1];
    MatmulBlocked = MATMUL.matmul_blocked(a, b, c) Matmul, [8, 1];
    MatmulSubgroup = MATMUL_SUBGROUP.matmul_subgroup(a, b, c) Matmul, [8, 1];
    Embedding = EMBEDDING.embedding(tokens, table, x) Embedding, [64, 1];
    EmbeddingLinks = EMBEDDING.embedding_links(tokens, links) Embedding, [64, 1];
    EmbeddingGrad = EMBEDDING.embedding_grad(tokens, d_x, d_table, links) Embedding, [64, 1];
    RmsNorm = NORM.rms_norm(x, w, y, rstd) Norm, [64, 1];
    RmsNormGradInput = NORM.rms_norm_grad_input(d_y, x, w, rstd, d_x) Norm, [64, 1];
    RmsNormGradWeight = NORM.rms_norm_grad_weight(d_y, x, rstd, d_w) Norm, [32, 8];
    RmsNormSubgroup = NORM_SUBGROUP.rms_norm(x, w, y, rstd) Norm, [8, 1];
    RmsNormGradInputSubgroup = NORM_SUBGROUP.rms_norm_grad_input(d_y, x, w, rstd, d_x) Norm, [8, 1];
    Rope = ROPE.rope(table, qkv) Rope, [64, 1];
    Attention = ATTENTION.attention(qkv, out, lse) Attention, [64, 1];
    AttentionGradDelta = ATTENTION.attention_grad_delta(qkv, out, lse, d_out, d_qkv, delta) Attention, [64, 1];
    AttentionGradQuery = ATTENTION.attention_grad_query(qkv, out, lse, d_out, d_qkv, delta) Attention, [64, 1];
    AttentionGradKeyValue = ATTENTION.attention_grad_key_value(qkv, out, lse, d_out, d_qkv, delta) Attention, [64, 1];
    AttentionSubgroup = ATTENTION_SUBGROUP.attention_subgroup(qkv, out, lse) Attention, [8, 1];
    AttentionGradQuerySubgroup = ATTENTION_SUBGROUP.attention_grad_query_subgroup(qkv, out, lse, d_out, d_qkv, delta) Attention, [8, 1];
    AttentionGradKeyValueSubgroup = ATTENTION_SUBGROUP.attention_grad_key_value_subgroup(qkv, out, lse, d_out, d_qkv, delta) Attention, [8, 1];
    SwiGlu = SWIGLU.swiglu(gate_up, act) SwiGlu, [64, 1];
    SwiGluGrad = SWIGLU.swiglu_grad(gate_up, d_act, d_gate_up) SwiGlu, [64, 1];
    LossStats = CROSS_ENTROPY.loss_stats(logits, labels, stats) CrossEntropy, [64, 1];
    LossMerge = CROSS_ENTROPY.loss_merge(stats, labels, merged, loss_sum) CrossEntropy, [64, 1];
    LossGrad = CROSS_ENTROPY.loss_grad(merged, labels, scalars, logits) CrossEntropy, [64, 1];
    LossStatsSubgroup = CROSS_ENTROPY_SUBGROUP.loss_stats(logits, labels, stats) CrossEntropy, [8, 1];
    LossGradSubgroup = CROSS_ENTROPY_SUBGROUP.loss_grad(merged, labels, scalars, logits) CrossEntropy, [8, 1];
    Add = ELEMENTWISE.add(a, b, c) Elementwise, [256, 1];
    AddAssign = ELEMENTWISE.add_assign(x, y) Elementwise, [256, 1];
    Scale = ELEMENTWISE.scale(x) Elementwise, [256, 1];
    Fill = ELEMENTWISE.fill(x) Elementwise, [256, 1];
    Copy = ELEMENTWISE.copy(x, y) Elementwise, [256, 1];
    SumRanks = REDUCTION.sum_ranks(x0, x1, x2, x3, x4, x5, sum) Reduction, [256, 1];
    SumFewRanks = REDUCTION.sum_few_ranks(x0, x1, sum) Reduction, [256, 1];
    SquaredNormBlocks = REDUCTION.squared_norm_blocks(x, partials) Reduction, [64, 1];
    SquaredNormTotal = REDUCTION.squared_norm_total(partials, guard, sum) Reduction, [64, 1];
    AdamW = OPTIMIZER.adamw(g, squared_norm, scalars, w, m, v) Optimizer, [256, 1];
    Sgd = OPTIMIZER.sgd(g, squared_norm, scalars, w) Optimizer, [256, 1];
    CastF32ToI32 = CAST.cast_f32_to_i32(x, y) Cast, [256, 1];
    CastI32ToF32 = CAST.cast_i32_to_f32(x, y) Cast, [256, 1];
    CountTrips = SELF_TEST.count_trips(counted) SelfTest, [1, 1];
}

impl KernelId {
    /// Its line of the table.
    pub fn spec(self) -> &'static KernelSpec {
        &KERNELS[self as usize]
    }
}
