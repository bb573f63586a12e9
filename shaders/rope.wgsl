//! Rotary position embedding, in place: one invocation a pair of elements. See src/ops/rope.rs.

struct Params {
    rows: u32,
    /// Row of the whole tensor that is row 0 here: it decides the position.
    first_row: u32,
    batch: u32,
    heads: u32,
    /// Pairs of a head: head_dim / 2.
    half: u32,
    width: u32,
    /// 1, or −1 to rotate back.
    direction: f32,
    table_at: u32,
    qkv_at: u32,
}

@group(0) @binding(0) var<storage, read> params: Params;
@group(0) @binding(1) var<storage, read_write> table: array<f32>; // [seq, half, 2]: cos, sin
@group(0) @binding(2) var<storage, read_write> qkv: array<f32>; // [rows, width]

@compute @workgroup_size(64)
fn rope(@builtin(global_invocation_id) id: vec3u) {
    let row = id.y;
    if params.heads * params.half <= id.x || params.rows <= row { return; }
    let head = id.x / params.half;
    let i = id.x % params.half;
    let t = (params.first_row + row) / params.batch;
    let angle = params.table_at + 2u * (t * params.half + i);
    let cosine = table[angle];
    let sine = params.direction * table[angle + 1u];
    let low = params.qkv_at + row * params.width + head * 2u * params.half + i;
    let high = low + params.half;
    let x = qkv[low];
    let y = qkv[high];
    qkv[low] = x * cosine - y * sine;
    qkv[high] = y * cosine + x * sine;
}
