//! Attention for software adapters whose subgroups have exactly eight lanes: no workgroup memory and
//! no barrier. Comes after blocks.wgsl, eights.wgsl and attention_block.wgsl; attention.wgsl holds
//! the same kernels for GPUs.
//!
//! A workgroup is one subgroup. It owns eight positions of one head of one sequence and walks the
//! positions on the other side in tiles of 32, four a lane: lane l holds the products of all eight
//! owned positions with the positions l, 8 + l, 16 + l and 24 + l of the tile. The second product
//! (probabilities · values) then finds its left factor where `add_eight` wants it: spread over lanes.

/// Positions that a workgroup owns.
const OWNED: u32 = 8u;
const LANES: u32 = 8u;
/// Positions of a tile on the other side.
const TILE: u32 = 32u;

/// One vector for each half of the eight owned positions.
struct Eight {
    low: vec4f,
    high: vec4f,
}

/// Where eight owned positions lie in a tensor.
struct Lines {
    low: vec4u,
    high: vec4u,
}

/// Products of the owned positions with four positions of a lane: `low[r]` belongs to the owned
/// position r, `high[r]` to 4 + r. Transposed, `low[j]` belongs to the lane's position 8 j + lane.
struct Pair {
    low: mat4x4f,
    high: mat4x4f,
}

fn transposed(pair: Pair) -> Pair {
    return Pair(transpose(pair.low), transpose(pair.high));
}

/// The positions t, t + step, t + 2 step, t + 3 step.
fn four(t: u32, step: u32) -> vec4u {
    return vec4u(t, t + step, t + 2u * step, t + 3u * step);
}

/// Rows of positions, the last one for all beyond the end.
fn rows_at(job: Job, t: vec4u) -> vec4u {
    return min(t, vec4u(params.seq - 1u)) * params.batch + job.sequence;
}

fn qkv_at(job: Job, t: vec4u, col: u32) -> vec4u {
    return params.qkv_at + rows_at(job, t) * qkv_width() + col;
}

fn d_out_at(job: Job, t: vec4u) -> vec4u {
    return params.d_out_at + (rows_at(job, t) * params.heads + job.head) * params.head_dim;
}

fn qkv_quad(at: vec4u) -> vec4f {
    return vec4f(qkv[at.x], qkv[at.y], qkv[at.z], qkv[at.w]);
}

fn d_out_quad(at: vec4u) -> vec4f {
    return vec4f(d_out[at.x], d_out[at.y], d_out[at.z], d_out[at.w]);
}

/// Zeroes beyond the end of a head, so that heads of any size are summed eight dims at a time.
fn inside(x: Eight, d: u32) -> Eight {
    let kept = vec4<bool>(d < params.head_dim);
    return Eight(select(vec4f(), x.low, kept), select(vec4f(), x.high, kept));
}

fn qkv_dim(at: vec4u, d: u32) -> vec4f {
    return select(vec4f(), qkv_quad(at + d), vec4<bool>(d < params.head_dim));
}

fn d_out_dim(at: vec4u, d: u32) -> vec4f {
    return select(vec4f(), d_out_quad(at + d), vec4<bool>(d < params.head_dim));
}

/// Eight dims, from d on, of the lane's positions in qkv.
fn qkv_dims(at: vec4u, d: u32) -> Rows {
    return Rows(
        qkv_dim(at, d), qkv_dim(at, d + 1u), qkv_dim(at, d + 2u), qkv_dim(at, d + 3u),
        qkv_dim(at, d + 4u), qkv_dim(at, d + 5u), qkv_dim(at, d + 6u), qkv_dim(at, d + 7u),
    );
}

fn d_out_dims(at: vec4u, d: u32) -> Rows {
    return Rows(
        d_out_dim(at, d), d_out_dim(at, d + 1u), d_out_dim(at, d + 2u), d_out_dim(at, d + 3u),
        d_out_dim(at, d + 4u), d_out_dim(at, d + 5u), d_out_dim(at, d + 6u), d_out_dim(at, d + 7u),
    );
}

/// Owned positions × the lane's positions, both in qkv.
fn qkv_qkv(owned: Lines, other: vec4u, lane: u32) -> Pair {
    var sum: Pair;
    for (var d = 0u; d < params.head_dim; d += 8u) {
        let x = Eight(qkv_quad(owned.low + d + lane), qkv_quad(owned.high + d + lane));
        sum = add_eights(sum, inside(x, d + lane), qkv_dims(other, d));
    }
    return sum;
}

/// Owned positions in d_out × the lane's positions in qkv.
fn d_out_qkv(owned: Lines, other: vec4u, lane: u32) -> Pair {
    var sum: Pair;
    for (var d = 0u; d < params.head_dim; d += 8u) {
        let x = Eight(d_out_quad(owned.low + d + lane), d_out_quad(owned.high + d + lane));
        sum = add_eights(sum, inside(x, d + lane), qkv_dims(other, d));
    }
    return sum;
}

/// Owned positions in qkv × the lane's positions in d_out.
fn qkv_d_out(owned: Lines, other: vec4u, lane: u32) -> Pair {
    var sum: Pair;
    for (var d = 0u; d < params.head_dim; d += 8u) {
        let x = Eight(qkv_quad(owned.low + d + lane), qkv_quad(owned.high + d + lane));
        sum = add_eights(sum, inside(x, d + lane), d_out_dims(other, d));
    }
    return sum;
}

/// Four columns of eight positions in qkv, from `col` on; what lies beyond the head is never stored.
fn qkv_columns(job: Job, t: u32, col: u32) -> Rows {
    let low = qkv_at(job, four(t, 1u), col);
    let high = qkv_at(job, four(t + 4u, 1u), col);
    return Rows(
        qkv_quad(four(low.x, 1u)), qkv_quad(four(low.y, 1u)),
        qkv_quad(four(low.z, 1u)), qkv_quad(four(low.w, 1u)),
        qkv_quad(four(high.x, 1u)), qkv_quad(four(high.y, 1u)),
        qkv_quad(four(high.z, 1u)), qkv_quad(four(high.w, 1u)),
    );
}

fn d_out_columns(job: Job, t: u32, col: u32) -> Rows {
    let low = d_out_at(job, four(t, 1u)) + col;
    let high = d_out_at(job, four(t + 4u, 1u)) + col;
    return Rows(
        d_out_quad(four(low.x, 1u)), d_out_quad(four(low.y, 1u)),
        d_out_quad(four(low.z, 1u)), d_out_quad(four(low.w, 1u)),
        d_out_quad(four(high.x, 1u)), d_out_quad(four(high.y, 1u)),
        d_out_quad(four(high.z, 1u)), d_out_quad(four(high.w, 1u)),
    );
}

/// Four owned queries weigh the same four positions as keys: query r the keys 0…r. A later key is
/// left out rather than weighed with zero: what stands there may not be finite.
fn add_earlier(
    sum: mat4x4f,
    x0: vec4f, x1: vec4f, x2: vec4f, x3: vec4f,
    y0: vec4f, y1: vec4f, y2: vec4f, y3: vec4f,
) -> mat4x4f {
    return mat4x4f(
        sum[0] + x0.x * y0,
        sum[1] + x0.y * y0 + x1.y * y1,
        sum[2] + x0.z * y0 + x1.z * y1 + x2.z * y2,
        sum[3] + x0.w * y0 + x1.w * y1 + x2.w * y2 + x3.w * y3,
    );
}

/// Four owned keys weigh the same four positions as queries: key r the queries r…3.
fn add_later(
    sum: mat4x4f,
    x0: vec4f, x1: vec4f, x2: vec4f, x3: vec4f,
    y0: vec4f, y1: vec4f, y2: vec4f, y3: vec4f,
) -> mat4x4f {
    return mat4x4f(
        sum[0] + x0.x * y0 + x1.x * y1 + x2.x * y2 + x3.x * y3,
        sum[1] + x1.y * y1 + x2.y * y2 + x3.y * y3,
        sum[2] + x2.z * y2 + x3.z * y3,
        sum[3] + x3.w * y3,
    );
}

/// Owned queries weigh the eight keys at their own positions.
fn add_earlier_eight(sum: Pair, x: Eight, y: Rows) -> Pair {
    var high = sum.high;
    high += outer(subgroupBroadcast(x.high, 0u), y.y0);
    high += outer(subgroupBroadcast(x.high, 1u), y.y1);
    high += outer(subgroupBroadcast(x.high, 2u), y.y2);
    high += outer(subgroupBroadcast(x.high, 3u), y.y3);
    return Pair(
        add_earlier(
            sum.low,
            subgroupBroadcast(x.low, 0u), subgroupBroadcast(x.low, 1u),
            subgroupBroadcast(x.low, 2u), subgroupBroadcast(x.low, 3u),
            y.y0, y.y1, y.y2, y.y3,
        ),
        add_earlier(
            high,
            subgroupBroadcast(x.high, 4u), subgroupBroadcast(x.high, 5u),
            subgroupBroadcast(x.high, 6u), subgroupBroadcast(x.high, 7u),
            y.y4, y.y5, y.y6, y.y7,
        ),
    );
}

/// Owned keys weigh the eight queries at their own positions.
fn add_later_eight(sum: Pair, x: Eight, y: Rows) -> Pair {
    var low = add_later(
        sum.low,
        subgroupBroadcast(x.low, 0u), subgroupBroadcast(x.low, 1u),
        subgroupBroadcast(x.low, 2u), subgroupBroadcast(x.low, 3u),
        y.y0, y.y1, y.y2, y.y3,
    );
    low += outer(subgroupBroadcast(x.low, 4u), y.y4);
    low += outer(subgroupBroadcast(x.low, 5u), y.y5);
    low += outer(subgroupBroadcast(x.low, 6u), y.y6);
    low += outer(subgroupBroadcast(x.low, 7u), y.y7);
    let high = add_later(
        sum.high,
        subgroupBroadcast(x.high, 4u), subgroupBroadcast(x.high, 5u),
        subgroupBroadcast(x.high, 6u), subgroupBroadcast(x.high, 7u),
        y.y4, y.y5, y.y6, y.y7,
    );
    return Pair(low, high);
}

fn add_eights(sum: Pair, x: Eight, y: Rows) -> Pair {
    return Pair(add_eight(sum.low, x.low, y), add_eight(sum.high, x.high, y));
}

/// One of two pairs. Both are computed: reading is what takes time here.
fn choose(one: Pair, other: Pair, take_other: bool) -> Pair {
    let which = vec4<bool>(take_other);
    return Pair(
        mat4x4f(
            select(one.low[0], other.low[0], which), select(one.low[1], other.low[1], which),
            select(one.low[2], other.low[2], which), select(one.low[3], other.low[3], which),
        ),
        mat4x4f(
            select(one.high[0], other.high[0], which), select(one.high[1], other.high[1], which),
            select(one.high[2], other.high[2], which), select(one.high[3], other.high[3], which),
        ),
    );
}

/// Owned queries q0… weigh the keys t… of a tile, keys or values of qkv. `weights` is transposed.
fn weigh_keys(job: Job, weights: Pair, q0: u32, t: u32, col: u32) -> Pair {
    var sum: Pair;
    // Eights of keys before the queries, then the one at the queries. The bound is no constant, so
    // that compilers keep the loop.
    let before = (q0 - t) / 8u;
    for (var j = 0u; j < min(4u, before + 1u); j++) {
        let x = Eight(pick_row(weights.low, j), pick_row(weights.high, j));
        let y = qkv_columns(job, t + 8u * j, col);
        sum = choose(add_eights(sum, x, y), add_earlier_eight(sum, x, y), j == before);
    }
    return sum;
}

/// Owned keys k0… weigh the queries t… of a tile, in qkv.
fn weigh_queries(job: Job, weights: Pair, k0: u32, t: u32, col: u32) -> Pair {
    var sum: Pair;
    for (var j = 0u; j < min(4u, (params.seq - t + 7u) / 8u); j++) {
        let x = Eight(pick_row(weights.low, j), pick_row(weights.high, j));
        let y = qkv_columns(job, t + 8u * j, col);
        sum = choose(add_eights(sum, x, y), add_later_eight(sum, x, y), t + 8u * j == k0);
    }
    return sum;
}

/// Owned keys k0… weigh the queries t… of a tile, in d_out.
fn weigh_outputs(job: Job, weights: Pair, k0: u32, t: u32, col: u32) -> Pair {
    var sum: Pair;
    for (var j = 0u; j < min(4u, (params.seq - t + 7u) / 8u); j++) {
        let x = Eight(pick_row(weights.low, j), pick_row(weights.high, j));
        let y = d_out_columns(job, t + 8u * j, col);
        sum = choose(add_eights(sum, x, y), add_later_eight(sum, x, y), t + 8u * j == k0);
    }
    return sum;
}

/// Statistics of the softmax of the owned queries.
struct Softmax {
    largest: Eight,
    /// Σ exp over the keys of this lane, and over all.
    sum: Eight,
    total: Eight,
    /// For what was summed before the last tile.
    factor: Eight,
}

/// Largest score over all keys of a tile, and so far.
fn largest_of(scores: mat4x4f, before: vec4f) -> vec4f {
    let of_lane = max(max(scores[0], scores[1]), max(scores[2], scores[3]));
    return max(before, subgroupMax(of_lane));
}

/// exp(score − largest) of seen keys, 0 of others.
fn exponentials(scores: mat4x4f, largest: vec4f, q: vec4u, k: vec4u) -> mat4x4f {
    let zero = vec4f();
    return mat4x4f(
        select(zero, exp(scores[0] - largest), vec4u(k.x) <= q),
        select(zero, exp(scores[1] - largest), vec4u(k.y) <= q),
        select(zero, exp(scores[2] - largest), vec4u(k.z) <= q),
        select(zero, exp(scores[3] - largest), vec4u(k.w) <= q),
    );
}

/// Scores of keys that a query does not see become the lowest number.
fn masked(scores: mat4x4f, q: vec4u, k: vec4u) -> mat4x4f {
    let lowest = vec4f(LOWEST);
    return mat4x4f(
        select(lowest, scores[0] * params.scale, vec4u(k.x) <= q),
        select(lowest, scores[1] * params.scale, vec4u(k.y) <= q),
        select(lowest, scores[2] * params.scale, vec4u(k.z) <= q),
        select(lowest, scores[3] * params.scale, vec4u(k.w) <= q),
    );
}

@compute @workgroup_size(8)
fn attention_subgroup(
    @builtin(workgroup_id) group: vec3u,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let job = job_of(group.z, group.y, lane);
    let q0 = group.x * OWNED;
    let q_low = four(q0, 1u);
    let q_high = four(q0 + 4u, 1u);
    let queries = Lines(qkv_at(job, q_low, job.query), qkv_at(job, q_high, job.query));
    let zero = Eight(vec4f(), vec4f());
    var softmax = Softmax(Eight(vec4f(LOWEST), vec4f(LOWEST)), zero, zero, zero);
    for (var k0 = 0u; k0 < min(q0 + OWNED, params.seq); k0 += TILE) {
        let k = four(k0 + lane, 8u);
        let scores = transposed(qkv_qkv(queries, qkv_at(job, k, job.key), lane));
        let low = masked(scores.low, q_low, k);
        let high = masked(scores.high, q_high, k);
        let largest = Eight(
            largest_of(low, softmax.largest.low),
            largest_of(high, softmax.largest.high),
        );
        softmax.factor = Eight(
            exp(softmax.largest.low - largest.low),
            exp(softmax.largest.high - largest.high),
        );
        let weights = Pair(
            exponentials(low, largest.low, q_low, k),
            exponentials(high, largest.high, q_high, k),
        );
        softmax.largest = largest;
        softmax.sum = Eight(
            softmax.sum.low * softmax.factor.low + over_keys(weights.low),
            softmax.sum.high * softmax.factor.high + over_keys(weights.high),
        );
        softmax.total = Eight(subgroupAdd(softmax.sum.low), subgroupAdd(softmax.sum.high));
        let last = q0 + OWNED <= k0 + TILE;
        for (var d0 = 0u; d0 < params.head_dim; d0 += TILE) {
            let col = d0 + 4u * lane;
            let sum = weigh_keys(job, weights, q0, k0, job.value + col);
            add_to_out(job, q0, col, sum, softmax, k0 == 0u, last);
        }
    }
    for (var r = lane; r < owned_count(q0); r += LANES) {
        lse[params.lse_at + row_at(job, q0 + r) * params.heads + job.head] =
            owned_value(softmax.largest, r) + log(owned_value(softmax.total, r));
    }
}

fn over_keys(weights: mat4x4f) -> vec4f {
    return weights[0] + weights[1] + weights[2] + weights[3];
}

/// Four columns of the owned position r.
fn owned_row(block: Pair, r: u32) -> vec4f {
    let which = vec4<bool>(4u <= r);
    return select(pick_row(block.low, r), pick_row(block.high, r), which);
}

/// What belongs to the owned position r.
fn owned_value(values: Eight, r: u32) -> f32 {
    return select(pick(values.low, r), pick(values.high, r), 4u <= r);
}

/// How many of the owned positions from `t0` on there are.
fn owned_count(t0: u32) -> u32 {
    return min(OWNED, params.seq - t0);
}

/// Adds four columns of all owned queries to the output, after scaling what stands there; the last
/// tile divides by the sum of all weights.
fn add_to_out(job: Job, q0: u32, col: u32, block: Pair, softmax: Softmax, first: bool, last: bool) {
    for (var r = 0u; r < owned_count(q0); r++) {
        let row = owned_row(block, r);
        let factor = owned_value(softmax.factor, r);
        let total = select(1.0, owned_value(softmax.total, r), last);
        let at = params.out_at + out_place(job, q0 + r, col);
        add_out(at, row.x, factor, total, first, col);
        add_out(at + 1u, row.y, factor, total, first, col + 1u);
        add_out(at + 2u, row.z, factor, total, first, col + 2u);
        add_out(at + 3u, row.w, factor, total, first, col + 3u);
    }
}

fn lse_of(at: vec4u) -> vec4f {
    return vec4f(lse[at.x], lse[at.y], lse[at.z], lse[at.w]);
}

fn delta_of(at: vec4u) -> vec4f {
    return vec4f(delta[at.x], delta[at.y], delta[at.z], delta[at.w]);
}

/// Gradient of the scores before scaling: queries are owned, `k` is the lane's key.
fn d_scores(score: vec4f, d_weight: vec4f, log_sum: vec4f, offset: vec4f, q: vec4u, k: u32) -> vec4f {
    let weight = exp(score * params.scale - log_sum);
    return select(vec4f(), weight * (d_weight - offset) * params.scale, vec4u(k) <= q);
}

@compute @workgroup_size(8)
fn attention_grad_query_subgroup(
    @builtin(workgroup_id) group: vec3u,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let job = job_of(group.z, group.y, lane);
    let q0 = group.x * OWNED;
    let q_low = four(q0, 1u);
    let q_high = four(q0 + 4u, 1u);
    let queries = Lines(qkv_at(job, q_low, job.query), qkv_at(job, q_high, job.query));
    let outputs = Lines(d_out_at(job, q_low), d_out_at(job, q_high));
    let stats_low = rows_at(job, q_low) * params.heads + job.head;
    let stats_high = rows_at(job, q_high) * params.heads + job.head;
    let log_sum = Eight(lse_of(params.lse_at + stats_low), lse_of(params.lse_at + stats_high));
    let offset = Eight(delta_of(params.delta_at + stats_low), delta_of(params.delta_at + stats_high));
    for (var k0 = 0u; k0 < min(q0 + OWNED, params.seq); k0 += TILE) {
        let k = four(k0 + lane, 8u);
        let s = transposed(qkv_qkv(queries, qkv_at(job, k, job.key), lane));
        let d = transposed(d_out_qkv(outputs, qkv_at(job, k, job.value), lane));
        let low = mat4x4f(
            d_scores(s.low[0], d.low[0], log_sum.low, offset.low, q_low, k.x),
            d_scores(s.low[1], d.low[1], log_sum.low, offset.low, q_low, k.y),
            d_scores(s.low[2], d.low[2], log_sum.low, offset.low, q_low, k.z),
            d_scores(s.low[3], d.low[3], log_sum.low, offset.low, q_low, k.w),
        );
        let high = mat4x4f(
            d_scores(s.high[0], d.high[0], log_sum.high, offset.high, q_high, k.x),
            d_scores(s.high[1], d.high[1], log_sum.high, offset.high, q_high, k.y),
            d_scores(s.high[2], d.high[2], log_sum.high, offset.high, q_high, k.z),
            d_scores(s.high[3], d.high[3], log_sum.high, offset.high, q_high, k.w),
        );
        for (var d0 = 0u; d0 < params.head_dim; d0 += TILE) {
            let col = d0 + 4u * lane;
            let sum = weigh_keys(job, Pair(low, high), q0, k0, job.key + col);
            add_to_d_qkv(job, q0, job.query, col, sum, k0 == 0u);
        }
    }
}

/// Adds four columns of all owned positions to d_qkv, or assigns them.
fn add_to_d_qkv(job: Job, t0: u32, first_col: u32, col: u32, block: Pair, assign: bool) {
    for (var r = 0u; r < owned_count(t0); r++) {
        let row = owned_row(block, r);
        let at = params.d_qkv_at + qkv_place(job, t0 + r, first_col + col);
        add_d_qkv(at, row.x, assign, col);
        add_d_qkv(at + 1u, row.y, assign, col + 1u);
        add_d_qkv(at + 2u, row.z, assign, col + 2u);
        add_d_qkv(at + 3u, row.w, assign, col + 3u);
    }
}

/// Of the lane's query q: weights of four owned keys and gradients of their scores.
struct Column {
    weight: vec4f,
    d_score: vec4f,
}

fn column(score: vec4f, d_weight: vec4f, log_sum: f32, offset: f32, k: vec4u, q: u32) -> Column {
    let weight = exp(score * params.scale - log_sum);
    let seen = (k <= vec4u(q)) & vec4<bool>(q < params.seq);
    return Column(
        select(vec4f(), weight, seen),
        select(vec4f(), weight * (d_weight - offset) * params.scale, seen),
    );
}

@compute @workgroup_size(8)
fn attention_grad_key_value_subgroup(
    @builtin(workgroup_id) group: vec3u,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let k0 = group.x * OWNED;
    let heads = heads_of(group.y);
    let head = heads.x + params.member;
    if heads.y <= head {
        if params.member == 0u { clear_key_value(group.y, group.z, k0, lane); }
        return;
    }
    let job = job_of(group.z, head - params.first_head, lane);
    let k_low = four(k0, 1u);
    let k_high = four(k0 + 4u, 1u);
    let keys = Lines(qkv_at(job, k_low, job.key), qkv_at(job, k_high, job.key));
    let values = Lines(qkv_at(job, k_low, job.value), qkv_at(job, k_high, job.value));
    for (var q0 = k0; q0 < params.seq; q0 += TILE) {
        let q = four(q0 + lane, 8u);
        let s = transposed(qkv_qkv(keys, qkv_at(job, q, job.query), lane));
        let d = transposed(qkv_d_out(values, d_out_at(job, q), lane));
        let stats = rows_at(job, q) * params.heads + job.head;
        let log_sum = lse_of(params.lse_at + stats);
        let offset = delta_of(params.delta_at + stats);
        let low0 = column(s.low[0], d.low[0], log_sum.x, offset.x, k_low, q.x);
        let low1 = column(s.low[1], d.low[1], log_sum.y, offset.y, k_low, q.y);
        let low2 = column(s.low[2], d.low[2], log_sum.z, offset.z, k_low, q.z);
        let low3 = column(s.low[3], d.low[3], log_sum.w, offset.w, k_low, q.w);
        let high0 = column(s.high[0], d.high[0], log_sum.x, offset.x, k_high, q.x);
        let high1 = column(s.high[1], d.high[1], log_sum.y, offset.y, k_high, q.y);
        let high2 = column(s.high[2], d.high[2], log_sum.z, offset.z, k_high, q.z);
        let high3 = column(s.high[3], d.high[3], log_sum.w, offset.w, k_high, q.w);
        let weights = Pair(
            mat4x4f(low0.weight, low1.weight, low2.weight, low3.weight),
            mat4x4f(high0.weight, high1.weight, high2.weight, high3.weight),
        );
        let gradients = Pair(
            mat4x4f(low0.d_score, low1.d_score, low2.d_score, low3.d_score),
            mat4x4f(high0.d_score, high1.d_score, high2.d_score, high3.d_score),
        );
        let assign = params.member == 0u && q0 == k0;
        for (var d0 = 0u; d0 < params.head_dim; d0 += TILE) {
            let col = d0 + 4u * lane;
            let d_value = weigh_outputs(job, weights, k0, q0, col);
            add_to_d_qkv(job, k0, job.value, col, d_value, assign);
            let d_key = weigh_queries(job, gradients, k0, q0, job.query + col);
            add_to_d_qkv(job, k0, job.key, col, d_key, assign);
        }
    }
}
