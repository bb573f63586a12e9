//! Sums over ranks in rank order, and of squares in fixed blocks: see src/ops/reduction.rs. Comes
//! after finite.wgsl and lanes.wgsl.

struct Params {
    len: u32,
    /// `sum_ranks`: how many of `x0…x5` are added.
    count: u32,
    /// `sum_ranks`: how many of them come before the old value of `sum`; `NO_OWN` if it is no summand.
    own_position: u32,
    /// `sum += …`, after the sum was formed.
    accumulate: u32,
    /// `squared_norm_total`: 1 if `guard` is bound.
    has_guard: u32,
    x0_at: u32,
    x1_at: u32,
    x2_at: u32,
    x3_at: u32,
    x4_at: u32,
    x5_at: u32,
    x_at: u32,
    partials_at: u32,
    guard_at: u32,
    sum_at: u32,
}

const NO_OWN: u32 = 0xffffffffu;
/// Elements that one workgroup of `squared_norm_blocks` adds.
const BLOCK: u32 = 16384u;

@group(0) @binding(0) var<storage, read> params: Params;

// sum_ranks: up to six inputs, so that the eight buffers of plain WebGPU suffice.
@group(0) @binding(1) var<storage, read_write> x0: array<f32>;
@group(0) @binding(2) var<storage, read_write> x1: array<f32>;
@group(0) @binding(3) var<storage, read_write> x2: array<f32>;
@group(0) @binding(4) var<storage, read_write> x3: array<f32>;
@group(0) @binding(5) var<storage, read_write> x4: array<f32>;
@group(0) @binding(6) var<storage, read_write> x5: array<f32>;
@group(0) @binding(7) var<storage, read_write> sum: array<f32>;

// sum_few_ranks: two of them, as in most layouts.
@group(0) @binding(3) var<storage, read_write> sum_few: array<f32>;

// squared_norm_blocks
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> partials: array<f32>;

// squared_norm_total
@group(0) @binding(1) var<storage, read_write> partials_in: array<f32>;
@group(0) @binding(2) var<storage, read_write> guard: array<f32>;
@group(0) @binding(3) var<storage, read_write> sum_total: array<f32>;

@compute @workgroup_size(256)
fn sum_ranks(@builtin(global_invocation_id) id: vec3u) {
    if params.len <= id.x { return; }
    let to = params.sum_at + id.x;
    let own = params.own_position;
    let old = sum[to];
    // From the left. Written out: a loop over bindings would read all six in every round.
    var total = x0[params.x0_at + id.x];
    if own == 0u { total = old + total; }
    if own == 1u { total += old; }
    if 1u < params.count { total += x1[params.x1_at + id.x]; }
    if own == 2u { total += old; }
    if 2u < params.count { total += x2[params.x2_at + id.x]; }
    if own == 3u { total += old; }
    if 3u < params.count { total += x3[params.x3_at + id.x]; }
    if own == 4u { total += old; }
    if 4u < params.count { total += x4[params.x4_at + id.x]; }
    if own == 5u { total += old; }
    if 5u < params.count { total += x5[params.x5_at + id.x]; }
    if own == 6u { total += old; }
    // A rank alone with its own tensor: nothing is added.
    if params.count == 0u { total = old; }
    if params.accumulate != 0u { total = old + total; }
    sum[to] = total;
}

/// `sum_ranks` of one or two inputs.
@compute @workgroup_size(256)
fn sum_few_ranks(@builtin(global_invocation_id) id: vec3u) {
    if params.len <= id.x { return; }
    let to = params.sum_at + id.x;
    let own = params.own_position;
    let old = sum_few[to];
    var total = x0[params.x0_at + id.x];
    if own == 0u { total = old + total; }
    if own == 1u { total += old; }
    if 1u < params.count { total += x1[params.x1_at + id.x]; }
    if own == 2u { total += old; }
    if params.accumulate != 0u { total = old + total; }
    sum_few[to] = total;
}

@compute @workgroup_size(LANES)
fn squared_norm_blocks(
    @builtin(workgroup_id) group: vec3u,
    @builtin(local_invocation_index) lane: u32,
) {
    let end = min(params.len, (group.x + 1u) * BLOCK);
    var squares = 0.0;
    for (var at = group.x * BLOCK + lane; at < end; at += LANES) {
        let value = x[params.x_at + at];
        squares += value * value;
    }
    squares = sum_over_lanes(lane, squares);
    if lane == 0u && group.x * BLOCK < params.len { partials[params.partials_at + group.x] = squares; }
}

@compute @workgroup_size(LANES)
fn squared_norm_total(@builtin(local_invocation_index) lane: u32) {
    var total = 0.0;
    for (var at = lane; at < params.len; at += LANES) { total += partials_in[params.partials_at + at]; }
    total = sum_over_lanes(lane, total);
    if lane != 0u { return; }
    if params.has_guard != 0u {
        let guarding = guard[params.guard_at];
        if is_not_finite(guarding) { total = nan_from(guarding); }
    }
    let to = params.sum_at;
    if params.accumulate != 0u { sum_total[to] += total; } else { sum_total[to] = total; }
}
