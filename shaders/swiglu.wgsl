//! Gated activation and its gradient: one invocation a column of `act`. See src/ops/swiglu.rs.

struct Params {
    rows: u32,
    ffn: u32,
    gate_up_at: u32,
    act_at: u32,
    d_act_at: u32,
    d_gate_up_at: u32,
}

@group(0) @binding(0) var<storage, read> params: Params;
@group(0) @binding(1) var<storage, read_write> gate_up: array<f32>; // [rows, 2 ffn]

// swiglu
@group(0) @binding(2) var<storage, read_write> act: array<f32>; // [rows, ffn]

// swiglu_grad
@group(0) @binding(2) var<storage, read_write> d_act: array<f32>; // [rows, ffn]
@group(0) @binding(3) var<storage, read_write> d_gate_up: array<f32>; // [rows, 2 ffn]

/// 1 / (1 + exp(−x)), without the exponential of a large number.
fn sigmoid(x: f32) -> f32 {
    let e = exp(-abs(x));
    return select(1.0, e, x < 0.0) / (1.0 + e);
}

@compute @workgroup_size(64)
fn swiglu(@builtin(global_invocation_id) id: vec3u) {
    let col = id.x;
    let row = id.y;
    if params.ffn <= col || params.rows <= row { return; }
    let at = params.gate_up_at + row * 2u * params.ffn + col;
    let gate = gate_up[at];
    act[params.act_at + row * params.ffn + col] = gate * sigmoid(gate) * gate_up[at + params.ffn];
}

@compute @workgroup_size(64)
fn swiglu_grad(@builtin(global_invocation_id) id: vec3u) {
    let col = id.x;
    let row = id.y;
    if params.ffn <= col || params.rows <= row { return; }
    let at = params.gate_up_at + row * 2u * params.ffn + col;
    let gate = gate_up[at];
    let up = gate_up[at + params.ffn];
    let d = d_act[params.d_act_at + row * params.ffn + col];
    let s = sigmoid(gate);
    let to = params.d_gate_up_at + row * 2u * params.ffn + col;
    // d silu(g)/dg = s · (1 + g · (1 − s))
    d_gate_up[to] = d * up * s * (1.0 + gate * (1.0 - s));
    d_gate_up[to + params.ffn] = d * gate * s;
}
