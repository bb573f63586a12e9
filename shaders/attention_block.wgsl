//! What all kernels of attention share: sizes, bindings and addresses. The file that comes after it says
//! how many positions a workgroup owns. See src/ops/attention.rs.

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

/// First and end of the query heads, counted in the whole model, that are this rank's and read its
/// key head `kv_head`.
fn heads_of(kv_head: u32) -> vec2u {
    let start = (params.first_kv_head + kv_head) * params.group;
    return vec2u(
        max(start, params.first_head),
        min(start + params.group, params.first_head + params.heads),
    );
}

/// Zeroes the gradients of the positions that a workgroup owns, of a key head that no query head of
/// this rank reads.
fn clear_key_value(kv_head: u32, sequence: u32, t0: u32, lane: u32) {
    for (var at = lane; at < OWNED * params.head_dim; at += LANES) {
        let t = t0 + at / params.head_dim;
        if t < params.seq {
            let key = (params.heads + kv_head) * params.head_dim + at % params.head_dim;
            let to = params.d_qkv_at + (t * params.batch + sequence) * qkv_width() + key;
            d_qkv[to] = 0.0;
            d_qkv[to + params.kv_heads * params.head_dim] = 0.0;
        }
    }
}

/// Adds to an element of the output, after scaling what stands there; the last addition divides by
/// the sum of all weights.
fn add_out(at: u32, value: f32, factor: f32, total: f32, first: bool, col: u32) {
    if col < params.head_dim {
        let before = select(out[at] * factor, 0.0, first);
        out[at] = (value + before) / total;
    }
}

/// Adds to an element of d_qkv, or assigns it.
fn add_d_qkv(at: u32, value: f32, assign: bool, col: u32) {
    if col < params.head_dim { d_qkv[at] = value + select(d_qkv[at], 0.0, assign); }
}
