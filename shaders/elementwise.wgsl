//! Additions and other elementwise work, and copies inside a rank: one invocation an element. The
//! mathematics is written down in src/ops/elementwise.rs.

struct Params {
    len: u32,
    a_at: u32,
    b_at: u32,
    c_at: u32,
    x_at: u32,
    y_at: u32,
    /// Factor of `scale`, value of `fill`.
    value: f32,
}

@group(0) @binding(0) var<storage, read> params: Params;

// add
@group(0) @binding(1) var<storage, read_write> a: array<f32>;
@group(0) @binding(2) var<storage, read_write> b: array<f32>;
@group(0) @binding(3) var<storage, read_write> c: array<f32>;

// add_assign, scale, fill
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

// copy: as integers, so that no bit of a NaN changes.
@group(0) @binding(1) var<storage, read_write> x_bits: array<u32>;
@group(0) @binding(2) var<storage, read_write> y_bits: array<u32>;

@compute @workgroup_size(256)
fn add(@builtin(global_invocation_id) id: vec3u) {
    if params.len <= id.x { return; }
    c[params.c_at + id.x] = a[params.a_at + id.x] + b[params.b_at + id.x];
}

@compute @workgroup_size(256)
fn add_assign(@builtin(global_invocation_id) id: vec3u) {
    if params.len <= id.x { return; }
    y[params.y_at + id.x] += x[params.x_at + id.x];
}

@compute @workgroup_size(256)
fn scale(@builtin(global_invocation_id) id: vec3u) {
    if params.len <= id.x { return; }
    x[params.x_at + id.x] *= params.value;
}

@compute @workgroup_size(256)
fn fill(@builtin(global_invocation_id) id: vec3u) {
    if params.len <= id.x { return; }
    x[params.x_at + id.x] = params.value;
}

@compute @workgroup_size(256)
fn copy(@builtin(global_invocation_id) id: vec3u) {
    if params.len <= id.x { return; }
    y_bits[params.y_at + id.x] = x_bits[params.x_at + id.x];
}
