//! AdamW and SGD with global-norm clipping inside: see src/ops/optimizer.rs. One invocation an
//! element; nothing is touched if the squared norm is not finite. Comes after finite.wgsl.

struct Params {
    len: u32,
    beta1: f32,
    beta2: f32,
    eps: f32,
    weight_decay: f32,
    /// 0: no clipping.
    clip_norm: f32,
    g_at: u32,
    squared_norm_at: u32,
    scalars_at: u32,
    w_at: u32,
    m_at: u32,
    v_at: u32,
}

// Indices into the scalars.
const LEARNING_RATE: u32 = 0u;
const BIAS_CORRECTION_1: u32 = 1u;
const BIAS_CORRECTION_2: u32 = 2u;

@group(0) @binding(0) var<storage, read> params: Params;
@group(0) @binding(1) var<storage, read_write> g: array<f32>;
@group(0) @binding(2) var<storage, read_write> squared_norm: array<f32>; // [1]
@group(0) @binding(3) var<storage, read_write> scalars: array<f32>;
@group(0) @binding(4) var<storage, read_write> w: array<f32>;
@group(0) @binding(5) var<storage, read_write> m: array<f32>;
@group(0) @binding(6) var<storage, read_write> v: array<f32>;

/// min(1, clip_norm / (norm + 1e-6))
fn clip_factor(norm_squared: f32) -> f32 {
    if params.clip_norm == 0.0 { return 1.0; }
    return min(1.0, params.clip_norm / (sqrt(norm_squared) + 1e-6));
}

@compute @workgroup_size(256)
fn adamw(@builtin(global_invocation_id) id: vec3u) {
    if params.len <= id.x { return; }
    let norm_squared = squared_norm[params.squared_norm_at];
    if is_not_finite(norm_squared) { return; }
    let gradient = g[params.g_at + id.x] * clip_factor(norm_squared);
    let rate = scalars[params.scalars_at + LEARNING_RATE];
    let bias1 = scalars[params.scalars_at + BIAS_CORRECTION_1];
    let bias2 = scalars[params.scalars_at + BIAS_CORRECTION_2];
    let old = m[params.m_at + id.x];
    let first = old + (1.0 - params.beta1) * (gradient - old);
    let second = params.beta2 * v[params.v_at + id.x] + (1.0 - params.beta2) * gradient * gradient;
    m[params.m_at + id.x] = first;
    v[params.v_at + id.x] = second;
    let decayed = w[params.w_at + id.x] * (1.0 - rate * params.weight_decay);
    let root = sqrt(second) / sqrt(bias2) + params.eps;
    w[params.w_at + id.x] = decayed - rate / bias1 * first / root;
}

@compute @workgroup_size(256)
fn sgd(@builtin(global_invocation_id) id: vec3u) {
    if params.len <= id.x { return; }
    let norm_squared = squared_norm[params.squared_norm_at];
    if is_not_finite(norm_squared) { return; }
    let rate = scalars[params.scalars_at + LEARNING_RATE];
    w[params.w_at + id.x] -= rate * (clip_factor(norm_squared) * g[params.g_at + id.x]);
}
