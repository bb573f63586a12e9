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

/// Positions of a tile, also of those that a workgroup owns.
const TILE: u32 = 32u;
const OWNED: u32 = TILE;
const LANES: u32 = 64u;
/// Quads of a tile's side.
const QUADS: u32 = 8u;

// Two factors of a product, [depth, 32]: four lines in an element.
var<workgroup> left: array<vec4f, 256>;
var<workgroup> right: array<vec4f, 256>;
// Scores or probabilities, [line summed over, 32 owned lines].
var<workgroup> weights: array<vec4f, 256>;
// Of each query of the tile: largest score and Σ exp so far, and the factor for older sums.
var<workgroup> row_max: array<f32, TILE>;
var<workgroup> row_sum: array<f32, TILE>;
var<workgroup> row_factor: array<f32, TILE>;

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
            let rows = vec4u(0u, 1u, 2u, 3u);
            let seen = select(rows <= vec4u(step), rows >= vec4u(step), vec4<bool>(by_key));
            sum += mat4x4f(
                select(vec4f(), x.x * y, seen.x), select(vec4f(), x.y * y, seen.y),
                select(vec4f(), x.z * y, seen.z), select(vec4f(), x.w * y, seen.w),
            );
        }
    }
    return sum;
}

/// Queries × keys of two tiles: the lane's 4 × 4 scores, not scaled.
fn query_key(job: Job, q0: u32, k0: u32) -> mat4x4f {
    var sum: mat4x4f;
    for (var d0 = 0u; d0 < params.head_dim; d0 += TILE) {
        let depth = min(TILE, params.head_dim - d0);
        for (var at = job.lane; at < TILE * TILE; at += LANES) {
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
        for (var at = job.lane; at < TILE * TILE; at += LANES) {
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
    for (var at = job.lane; at < TILE * TILE; at += LANES) {
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
    for (var at = job.lane; at < TILE * TILE; at += LANES) {
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
    let d = d0 + job.lane % QUADS * 4u;
    for (var i = 0u; i < 4u; i++) {
        let row = job.lane / QUADS * 4u + i;
        if q0 + row < params.seq {
            let at = params.out_at + out_place(job, q0 + row, d);
            let factor = row_factor[row];
            let total = select(1.0, row_sum[row], last);
            let sums = pick_row(block, i);
            add_out(at, sums.x, factor, total, first, d);
            add_out(at + 1u, sums.y, factor, total, first, d + 1u);
            add_out(at + 2u, sums.z, factor, total, first, d + 2u);
            add_out(at + 3u, sums.w, factor, total, first, d + 3u);
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
    let score = query_key(job, q0, k0);
    let d_probability = d_out_value(job, q0, k0);
    let q = q0 + job.lane / QUADS * 4u;
    let k = k0 + job.lane % QUADS * 4u;
    let row0 = softmax_row(job, score[0], d_probability[0], q, k);
    let row1 = softmax_row(job, score[1], d_probability[1], q + 1u, k);
    let row2 = softmax_row(job, score[2], d_probability[2], q + 2u, k);
    let row3 = softmax_row(job, score[3], d_probability[3], q + 3u, k);
    return Softmax(
        mat4x4f(row0[0], row1[0], row2[0], row3[0]),
        mat4x4f(row0[1], row1[1], row2[1], row3[1]),
    );
}

/// Probabilities of the keys k…k + 3 for query q, and gradients of their scores; zero where the
/// query does not see the key.
fn softmax_row(job: Job, score: vec4f, d_probability: vec4f, q: u32, k: u32) -> array<vec4f, 2> {
    let at = row_at(job, q) * params.heads + job.head;
    let probability = exp(score * params.scale - lse[params.lse_at + at]);
    let d_score = probability * (d_probability - delta[params.delta_at + at]) * params.scale;
    let seen = (vec4u(k, k + 1u, k + 2u, k + 3u) <= vec4u(q)) & vec4<bool>(q < params.seq);
    return array(select(vec4f(), probability, seen), select(vec4f(), d_score, seen));
}

/// Adds the lane's block to its part of d_qkv, or assigns it.
fn add_to_d_qkv(job: Job, t0: u32, first_col: u32, d0: u32, block: mat4x4f, assign: bool) {
    let d = d0 + job.lane % QUADS * 4u;
    for (var i = 0u; i < 4u; i++) {
        let t = t0 + job.lane / QUADS * 4u + i;
        if t < params.seq {
            let at = params.d_qkv_at + qkv_place(job, t, first_col + d);
            let row = pick_row(block, i);
            add_d_qkv(at, row.x, assign, d);
            add_d_qkv(at + 1u, row.y, assign, d + 1u);
            add_d_qkv(at + 2u, row.z, assign, d + 2u);
            add_d_qkv(at + 3u, row.w, assign, d + 3u);
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
    let heads = heads_of(group.y);
    let head = heads.x + params.member;
    let k0 = group.x * TILE;
    if head < heads.y {
        let job = job_of(group.z, head - params.first_head, lane);
        for (var q0 = k0; q0 < params.seq; q0 += TILE) {
            let assign = params.member == 0u && q0 == k0;
            add_key_value(job, q0, k0, assign);
        }
    } else if params.member == 0u {
        clear_key_value(group.y, group.z, k0, lane);
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
