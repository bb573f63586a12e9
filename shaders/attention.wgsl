//! Causal grouped-query attention and its gradient, in tiles of 32 queries × 32 keys: see
//! src/ops/attention.rs. No `seq × seq` matrix is ever stored (FlashAttention, arXiv:2205.14135).
//!
//! A workgroup of 64 lanes owns one tile of rows of one head of one sequence and walks the tiles on
//! the other side. Lane (i, j) of its 8 × 8 lanes owns the 4 × 4 block of scores (i, j). Sums over
//! tiles live in the output itself: an element is always read and written by the same lane.
//!
//! 1. `attention`: owns queries, walks keys; the softmax is rescaled as it goes.
//! 2. `attention_grad_delta`: Σ d_out · out of each row and head.
//! 3. `attention_grad_query`: owns queries, walks keys.
//! 4. `attention_grad_key_value`: owns keys, walks the queries of one head of their group.

struct Params {
    seq: u32,
    batch: u32,
    heads: u32,
    kv_heads: u32,
    head_dim: u32,
    group: u32,
    first_head: u32,
    first_kv_head: u32,
    /// `attention_grad_key_value`: which query head of each group.
    member: u32,
    /// `attention_grad_delta`: where this dispatch starts.
    first_row: u32,
    /// 1 / √head_dim
    scale: f32,
    qkv_at: u32,
    out_at: u32,
    lse_at: u32,
    d_out_at: u32,
    d_qkv_at: u32,
    delta_at: u32,
}

const TILE: u32 = 32u;
/// Quads of a tile's side.
const QUADS: u32 = 8u;
const LOWEST: f32 = -3.4028234e38;

@group(0) @binding(0) var<storage, read> params: Params;
// A row of qkv is [heads | kv_heads keys | kv_heads values] × head_dim.
@group(0) @binding(1) var<storage, read_write> qkv: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>; // [rows, heads · head_dim]
@group(0) @binding(3) var<storage, read_write> lse: array<f32>; // [rows, heads]

// The gradients.
@group(0) @binding(4) var<storage, read_write> d_out: array<f32>; // [rows, heads · head_dim]
@group(0) @binding(5) var<storage, read_write> d_qkv: array<f32>; // as qkv
@group(0) @binding(6) var<storage, read_write> delta: array<f32>; // [rows, heads]

// Two factors of a product, [depth, 32]: four lines in an element.
var<workgroup> left: array<vec4f, 256>;
var<workgroup> right: array<vec4f, 256>;
// Scores or probabilities, [line summed over, 32 owned lines].
var<workgroup> weights: array<vec4f, 256>;
// Of each query of the tile: largest score and Σ exp so far, and the factor for older sums.
var<workgroup> row_max: array<f32, TILE>;
var<workgroup> row_sum: array<f32, TILE>;
var<workgroup> row_factor: array<f32, TILE>;

/// What a workgroup works on.
struct Job {
    /// Which sequence.
    sequence: u32,
    /// Query head.
    head: u32,
    /// Columns of qkv at which the query, key and value of the head start.
    query: u32,
    key: u32,
    value: u32,
    lane: u32,
}

fn job_of(sequence: u32, head: u32, lane: u32) -> Job {
    let kv_head = (params.first_head + head) / params.group - params.first_kv_head;
    let key = (params.heads + kv_head) * params.head_dim;
    let value = key + params.kv_heads * params.head_dim;
    return Job(sequence, head, head * params.head_dim, key, value, lane);
}

/// Row of position `t`, the last one for all beyond the end.
fn row_at(job: Job, t: u32) -> u32 {
    return min(t, params.seq - 1u) * params.batch + job.sequence;
}

fn qkv_width() -> u32 {
    return (params.heads + 2u * params.kv_heads) * params.head_dim;
}

/// Address of column `col` of position `t` in qkv, counted from its start.
fn qkv_place(job: Job, t: u32, col: u32) -> u32 {
    return row_at(job, t) * qkv_width() + col;
}

/// Address of column `col` of the job's head at position `t` in out, counted from its start.
fn out_place(job: Job, t: u32, col: u32) -> u32 {
    return (row_at(job, t) * params.heads + job.head) * params.head_dim + col;
}

/// Row r of the result is `x[r] · y`.
fn outer(x: vec4f, y: vec4f) -> mat4x4f {
    return mat4x4f(x.x * y, x.y * y, x.z * y, x.w * y);
}

/// The lane's 4 × 4 block of left · rightᵀ over `depth` dims of both.
fn multiply(job: Job, depth: u32) -> mat4x4f {
    var sum: mat4x4f;
    let i = job.lane / QUADS;
    let j = job.lane % QUADS;
    for (var d = 0u; d < depth; d++) {
        sum += outer(left[d * QUADS + i], right[d * QUADS + j]);
    }
    return sum;
}

/// The lane's 4 × 4 block of weightsᵀ · right, summed over `lines` keys (or queries, if not `by_key`).
/// On the diagonal, where both tiles hold the same positions, a key after the query is left out
/// rather than weighed with zero: what stands there may not be finite.
fn weigh(job: Job, lines: u32, diagonal: bool, by_key: bool) -> mat4x4f {
    var sum: mat4x4f;
    let i = job.lane / QUADS;
    let j = job.lane % QUADS;
    var start = 0u;
    var end = lines;
    if diagonal && by_key { end = min(lines, 4u * i); }
    if diagonal && !by_key { start = 4u * i + 4u; }
    for (var line = start; line < end; line++) {
        sum += outer(weights[line * QUADS + i], right[line * QUADS + j]);
    }
    if diagonal {
        for (var step = 0u; step < min(4u, lines - min(lines, 4u * i)); step++) {
            let line = 4u * i + step;
            let x = weights[line * QUADS + i];
            let y = right[line * QUADS + j];
            let first = select(0u, step, by_key);
            let last = select(step, 3u, by_key);
            for (var row = first; row <= last; row++) { sum[row] += x[row] * y; }
        }
    }
    return sum;
}

/// Queries × keys of two tiles: the lane's 4 × 4 scores, not scaled.
fn query_key(job: Job, q0: u32, k0: u32) -> mat4x4f {
    var sum: mat4x4f;
    for (var d0 = 0u; d0 < params.head_dim; d0 += TILE) {
        let depth = min(TILE, params.head_dim - d0);
        for (var at = job.lane; at < TILE * TILE; at += 64u) {
            let line = at / TILE;
            let d = at % TILE;
            if d < depth {
                let slot = d * QUADS + line / 4u;
                left[slot][line % 4u] = qkv[params.qkv_at + qkv_place(job, q0 + line, job.query + d0 + d)];
                right[slot][line % 4u] = qkv[params.qkv_at + qkv_place(job, k0 + line, job.key + d0 + d)];
            }
        }
        workgroupBarrier();
        sum += multiply(job, depth);
        workgroupBarrier();
    }
    return sum;
}

/// Gradients of the output × values of two tiles: the gradients of the lane's 4 × 4 probabilities.
fn d_out_value(job: Job, q0: u32, k0: u32) -> mat4x4f {
    var sum: mat4x4f;
    for (var d0 = 0u; d0 < params.head_dim; d0 += TILE) {
        let depth = min(TILE, params.head_dim - d0);
        for (var at = job.lane; at < TILE * TILE; at += 64u) {
            let line = at / TILE;
            let d = at % TILE;
            if d < depth {
                let slot = d * QUADS + line / 4u;
                left[slot][line % 4u] = d_out[params.d_out_at + out_place(job, q0 + line, d0 + d)];
                right[slot][line % 4u] = qkv[params.qkv_at + qkv_place(job, k0 + line, job.value + d0 + d)];
            }
        }
        workgroupBarrier();
        sum += multiply(job, depth);
        workgroupBarrier();
    }
    return sum;
}

/// Reads 32 positions × up to 32 columns of qkv into `right`, one line a position.
fn stage_qkv(job: Job, t0: u32, col: u32, width: u32) {
    for (var at = job.lane; at < TILE * TILE; at += 64u) {
        let line = at / TILE;
        let d = at % TILE;
        if d < width {
            right[line * QUADS + d / 4u][d % 4u] = qkv[params.qkv_at + qkv_place(job, t0 + line, col + d)];
        }
    }
    workgroupBarrier();
}

/// The same of d_out.
fn stage_d_out(job: Job, t0: u32, col: u32, width: u32) {
    for (var at = job.lane; at < TILE * TILE; at += 64u) {
        let line = at / TILE;
        let d = at % TILE;
        if d < width {
            right[line * QUADS + d / 4u][d % 4u] = d_out[params.d_out_at + out_place(job, t0 + line, col + d)];
        }
    }
    workgroupBarrier();
}

/// Writes the lane's block into `weights`, one line a key.
fn keep_by_key(job: Job, block: mat4x4f) {
    let i = job.lane / QUADS;
    let j = job.lane % QUADS;
    let by_key = transpose(block);
    weights[(4u * j) * QUADS + i] = by_key[0];
    weights[(4u * j + 1u) * QUADS + i] = by_key[1];
    weights[(4u * j + 2u) * QUADS + i] = by_key[2];
    weights[(4u * j + 3u) * QUADS + i] = by_key[3];
}

/// Writes the lane's block into `weights`, one line a query.
fn keep_by_query(job: Job, block: mat4x4f) {
    let i = job.lane / QUADS;
    let j = job.lane % QUADS;
    weights[(4u * i) * QUADS + j] = block[0];
    weights[(4u * i + 1u) * QUADS + j] = block[1];
    weights[(4u * i + 2u) * QUADS + j] = block[2];
    weights[(4u * i + 3u) * QUADS + j] = block[3];
}

/// Turns a tile of scores in `weights` into exp(score − largest so far), query by query, and updates
/// the statistics. One lane a query; half of the lanes rest.
fn soften(job: Job, q0: u32, k0: u32) {
    let row = job.lane;
    if row < TILE {
        // Keys up to the query itself; the others weigh nothing.
        let seen = min(TILE, q0 + row + 1u - k0);
        var largest = row_max[row];
        for (var k = 0u; k < seen; k++) {
            largest = max(largest, weights[k * QUADS + row / 4u][row % 4u]);
        }
        var sum = 0.0;
        for (var k = 0u; k < TILE; k++) {
            var weight = 0.0;
            if k < seen { weight = exp(weights[k * QUADS + row / 4u][row % 4u] - largest); }
            weights[k * QUADS + row / 4u][row % 4u] = weight;
            sum += weight;
        }
        let factor = exp(row_max[row] - largest);
        row_max[row] = largest;
        row_sum[row] = row_sum[row] * factor + sum;
        row_factor[row] = factor;
    }
    workgroupBarrier();
}

@compute @workgroup_size(64)
fn attention(
    @builtin(workgroup_id) group: vec3u,
    @builtin(local_invocation_index) lane: u32,
) {
    let job = job_of(group.z, group.y, lane);
    let q0 = group.x * TILE;
    if lane < TILE {
        row_max[lane] = LOWEST;
        row_sum[lane] = 0.0;
    }
    for (var k0 = 0u; k0 < min(q0 + TILE, params.seq); k0 += TILE) {
        keep_by_key(job, query_key(job, q0, k0) * params.scale);
        workgroupBarrier();
        soften(job, q0, k0);
        let last = q0 <= k0;
        for (var d0 = 0u; d0 < params.head_dim; d0 += TILE) {
            stage_qkv(job, k0, job.value + d0, min(TILE, params.head_dim - d0));
            let sum = weigh(job, min(TILE, params.seq - k0), last, true);
            workgroupBarrier();
            add_to_out(job, q0, d0, sum, k0 == 0u, last);
        }
    }
    if lane < TILE && q0 + lane < params.seq {
        lse[params.lse_at + row_at(job, q0 + lane) * params.heads + job.head] =
            row_max[lane] + log(row_sum[lane]);
    }
}

/// Adds the lane's block of one tile of keys to its part of the output.
fn add_to_out(job: Job, q0: u32, d0: u32, block: mat4x4f, first: bool, last: bool) {
    var rows = block;
    let col = d0 + job.lane % QUADS * 4u;
    let col_count = min(4u, params.head_dim - min(col, params.head_dim));
    for (var i = 0u; i < 4u; i++) {
        let row = job.lane / QUADS * 4u + i;
        if q0 + row < params.seq {
            let at = params.out_at + out_place(job, q0 + row, col);
            for (var j = 0u; j < col_count; j++) {
                var sum = rows[i][j];
                if !first { sum += out[at + j] * row_factor[row]; }
                if last { sum /= row_sum[row]; }
                out[at + j] = sum;
            }
        }
    }
}

@compute @workgroup_size(64)
fn attention_grad_delta(@builtin(global_invocation_id) id: vec3u) {
    let head = id.x;
    let row = params.first_row + id.y;
    if params.heads <= head || params.seq * params.batch <= row { return; }
    let at = (row * params.heads + head) * params.head_dim;
    var sum = 0.0;
    for (var d = 0u; d < params.head_dim; d++) {
        sum += d_out[params.d_out_at + at + d] * out[params.out_at + at + d];
    }
    delta[params.delta_at + row * params.heads + head] = sum;
}

/// The lane's 4 × 4 probabilities, computed again.
struct Softmax {
    probability: mat4x4f,
    /// Gradient of the scores before scaling.
    d_score: mat4x4f,
}

fn softmax_grad(job: Job, q0: u32, k0: u32) -> Softmax {
    var probability = query_key(job, q0, k0);
    var d_score = d_out_value(job, q0, k0);
    for (var i = 0u; i < 4u; i++) {
        let q = q0 + job.lane / QUADS * 4u + i;
        let at = row_at(job, q) * params.heads + job.head;
        let log_sum = lse[params.lse_at + at];
        let offset = delta[params.delta_at + at];
        for (var j = 0u; j < 4u; j++) {
            let k = k0 + job.lane % QUADS * 4u + j;
            if k <= q && q < params.seq {
                let p = exp(probability[i][j] * params.scale - log_sum);
                d_score[i][j] = p * (d_score[i][j] - offset) * params.scale;
                probability[i][j] = p;
            } else {
                d_score[i][j] = 0.0;
                probability[i][j] = 0.0;
            }
        }
    }
    return Softmax(probability, d_score);
}

/// Adds the lane's block to its part of d_qkv, or assigns it.
fn add_to_d_qkv(job: Job, t0: u32, first_col: u32, d0: u32, block: mat4x4f, assign: bool) {
    var rows = block;
    let d = d0 + job.lane % QUADS * 4u;
    let col_count = min(4u, params.head_dim - min(d, params.head_dim));
    for (var i = 0u; i < 4u; i++) {
        let t = t0 + job.lane / QUADS * 4u + i;
        if t < params.seq {
            let at = params.d_qkv_at + qkv_place(job, t, first_col + d);
            for (var j = 0u; j < col_count; j++) {
                if assign { d_qkv[at + j] = rows[i][j]; } else { d_qkv[at + j] += rows[i][j]; }
            }
        }
    }
}

@compute @workgroup_size(64)
fn attention_grad_query(
    @builtin(workgroup_id) group: vec3u,
    @builtin(local_invocation_index) lane: u32,
) {
    let job = job_of(group.z, group.y, lane);
    let q0 = group.x * TILE;
    for (var k0 = 0u; k0 < min(q0 + TILE, params.seq); k0 += TILE) {
        let softmax = softmax_grad(job, q0, k0);
        keep_by_key(job, softmax.d_score);
        for (var d0 = 0u; d0 < params.head_dim; d0 += TILE) {
            stage_qkv(job, k0, job.key + d0, min(TILE, params.head_dim - d0));
            let sum = weigh(job, min(TILE, params.seq - k0), q0 == k0, true);
            workgroupBarrier();
            add_to_d_qkv(job, q0, job.query, d0, sum, k0 == 0u);
        }
    }
}

@compute @workgroup_size(64)
fn attention_grad_key_value(
    @builtin(workgroup_id) group: vec3u,
    @builtin(local_invocation_index) lane: u32,
) {
    // Query heads of this rank that read the key head.
    let kv_head = params.first_kv_head + group.y;
    let start = max(kv_head * params.group, params.first_head);
    let end = min((kv_head + 1u) * params.group, params.first_head + params.heads);
    let head = start + params.member;
    let k0 = group.x * TILE;
    if head < end {
        let job = job_of(group.z, head - params.first_head, lane);
        for (var q0 = k0; q0 < params.seq; q0 += TILE) {
            let assign = params.member == 0u && q0 == k0;
            add_key_value(job, q0, k0, assign);
        }
    } else if params.member == 0u {
        clear_key_value(group, lane);
    }
}

/// Adds what one tile of queries gives to the keys and values of a tile.
fn add_key_value(job: Job, q0: u32, k0: u32, assign: bool) {
    let softmax = softmax_grad(job, q0, k0);
    keep_by_query(job, softmax.probability);
    for (var d0 = 0u; d0 < params.head_dim; d0 += TILE) {
        stage_d_out(job, q0, d0, min(TILE, params.head_dim - d0));
        let sum = weigh(job, min(TILE, params.seq - q0), q0 == k0, false);
        workgroupBarrier();
        add_to_d_qkv(job, k0, job.value, d0, sum, assign);
    }
    keep_by_query(job, softmax.d_score);
    for (var d0 = 0u; d0 < params.head_dim; d0 += TILE) {
        stage_qkv(job, q0, job.query + d0, min(TILE, params.head_dim - d0));
        let sum = weigh(job, min(TILE, params.seq - q0), q0 == k0, false);
        workgroupBarrier();
        add_to_d_qkv(job, k0, job.key, d0, sum, assign);
    }
}

/// Zeroes the gradients of a key head that no query head of this rank reads.
fn clear_key_value(group: vec3u, lane: u32) {
    for (var at = lane; at < TILE * params.head_dim; at += 64u) {
        let t = group.x * TILE + at / params.head_dim;
        if t < params.seq {
            let key = (params.heads + group.y) * params.head_dim + at % params.head_dim;
            let row = (t * params.batch + group.z) * qkv_width();
            d_qkv[params.d_qkv_at + row + key] = 0.0;
            d_qkv[params.d_qkv_at + row + key + params.kv_heads * params.head_dim] = 0.0;
        }
    }
}
