//! Changes of element type, with the rules of Rust's `as`: see src/ops/cast.rs.

struct Params {
    len: u32,
    x_at: u32,
    y_at: u32,
}

@group(0) @binding(0) var<storage, read> params: Params;

// cast_f32_to_i32
@group(0) @binding(1) var<storage, read_write> x_float: array<f32>;
@group(0) @binding(2) var<storage, read_write> y_int: array<i32>;

// cast_i32_to_f32
@group(0) @binding(1) var<storage, read_write> x_int: array<i32>;
@group(0) @binding(2) var<storage, read_write> y_float: array<f32>;

/// Rounds towards zero and saturates; NaN becomes 0.
fn saturating_i32(value: f32) -> i32 {
    let magnitude = bitcast<u32>(value) & 0x7fffffffu;
    if 0x7f800000u < magnitude { return 0i; }
    // 0x4f000000 is 2^31: what is not smaller does not fit.
    if 0x4f000000u <= magnitude {
        return select(2147483647i, -2147483647i - 1i, bitcast<i32>(value) < 0i);
    }
    return i32(value);
}

@compute @workgroup_size(256)
fn cast_f32_to_i32(@builtin(global_invocation_id) id: vec3u) {
    if params.len <= id.x { return; }
    y_int[params.y_at + id.x] = saturating_i32(x_float[params.x_at + id.x]);
}

@compute @workgroup_size(256)
fn cast_i32_to_f32(@builtin(global_invocation_id) id: vec3u) {
    if params.len <= id.x { return; }
    y_float[params.y_at + id.x] = f32(x_int[params.x_at + id.x]);
}
