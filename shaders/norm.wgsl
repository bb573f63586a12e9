//! Root-mean-square norm and its gradients: see src/ops/norm.rs. A workgroup takes one row; for the
//! weight gradient it takes 32 columns. Comes after lanes.wgsl
//! or lanes_subgroup.wgsl.

struct Params {
    rows: u32,
    dim: u32,
    eps: f32,
    accumulate: u32,
    x_at: u32,
    w_at: u32,
    y_at: u32,
    rstd_at: u32,
    d_y_at: u32,
    d_x_at: u32,
    d_w_at: u32,
}

@group(0) @binding(0) var<storage, read> params: Params;

// rms_norm
@group(0) @binding(1) var<storage, read_write> x: array<f32>; // [rows, dim]
@group(0) @binding(2) var<storage, read_write> w: array<f32>; // [dim]
@group(0) @binding(3) var<storage, read_write> y: array<f32>; // [rows, dim]
@group(0) @binding(4) var<storage, read_write> rstd: array<f32>; // [rows]

// rms_norm_grad_input; `rstd` as above
@group(0) @binding(1) var<storage, read_write> d_y: array<f32>; // [rows, dim]
@group(0) @binding(2) var<storage, read_write> x_grad: array<f32>; // [rows, dim]
@group(0) @binding(3) var<storage, read_write> w_grad: array<f32>; // [dim]
@group(0) @binding(5) var<storage, read_write> d_x: array<f32>; // [rows, dim]

// rms_norm_grad_weight; `d_y` and `x_grad` as above
@group(0) @binding(3) var<storage, read_write> rstd_grad: array<f32>; // [rows]
@group(0) @binding(4) var<storage, read_write> d_w: array<f32>; // [dim]

const COLUMNS: u32 = 32u;
const ROW_BLOCKS: u32 = 8u;

var<workgroup> block_sums: array<f32, 256>; // [ROW_BLOCKS, COLUMNS]

@compute @workgroup_size(LANES)
fn rms_norm(
    @builtin(workgroup_id) group: vec3u,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = group.x;
    let inside = row < params.rows;
    let at = row * params.dim;
    var squares = 0.0;
    if inside {
        for (var col = lane; col < params.dim; col += LANES) {
            let value = x[params.x_at + at + col];
            squares += value * value;
        }
    }
    let mean = sum_over_lanes(lane, squares) / f32(params.dim);
    let scale = 1.0 / sqrt(mean + params.eps);
    if inside {
        for (var col = lane; col < params.dim; col += LANES) {
            y[params.y_at + at + col] = x[params.x_at + at + col] * scale * w[params.w_at + col];
        }
        if lane == 0u { rstd[params.rstd_at + row] = scale; }
    }
}

@compute @workgroup_size(LANES)
fn rms_norm_grad_input(
    @builtin(workgroup_id) group: vec3u,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = group.x;
    let inside = row < params.rows;
    let at = row * params.dim;
    var products = 0.0;
    if inside {
        for (var col = lane; col < params.dim; col += LANES) {
            let weighted = d_y[params.d_y_at + at + col] * w_grad[params.w_at + col];
            products += weighted * x_grad[params.x_at + at + col];
        }
    }
    let mean = sum_over_lanes(lane, products) / f32(params.dim);
    if inside {
        let scale = rstd[params.rstd_at + row];
        let shrink = scale * scale * mean;
        for (var col = lane; col < params.dim; col += LANES) {
            let weighted = d_y[params.d_y_at + at + col] * w_grad[params.w_at + col];
            let gradient = scale * (weighted - x_grad[params.x_at + at + col] * shrink);
            let to = params.d_x_at + at + col;
            if params.accumulate != 0u { d_x[to] += gradient; } else { d_x[to] = gradient; }
        }
    }
}

/// Eight blocks of rows, interleaved, are summed side by side and then added in ascending order.
@compute @workgroup_size(32, 8)
fn rms_norm_grad_weight(
    @builtin(global_invocation_id) id: vec3u,
    @builtin(local_invocation_id) local: vec3u,
) {
    let col = id.x;
    var sum = 0.0;
    if col < params.dim {
        for (var row = local.y; row < params.rows; row += ROW_BLOCKS) {
            let at = row * params.dim + col;
            let x_hat = x_grad[params.x_at + at] * rstd_grad[params.rstd_at + row];
            sum += d_y[params.d_y_at + at] * x_hat;
        }
    }
    block_sums[local.y * COLUMNS + local.x] = sum;
    workgroupBarrier();
    if local.y == 0u && col < params.dim {
        for (var block = 1u; block < ROW_BLOCKS; block++) {
            sum += block_sums[block * COLUMNS + local.x];
        }
        let to = params.d_w_at + col;
        if params.accumulate != 0u { d_w[to] += sum; } else { d_w[to] = sum; }
    }
}
