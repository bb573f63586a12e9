//! The vocabulary-parallel embedding table and its gradient: see src/ops/embedding.rs.
//!
//! The gradient takes two kernels and no atomics. `embedding_links` finds for every row the next row
//! with the same token, and whether it is the first; `embedding_grad` then walks each token's rows
//! in ascending order, so the bits are those of the plain loop.

struct Params {
    rows: u32,
    dim: u32,
    vocab_start: u32,
    vocab_len: u32,
    /// `embedding`: 1 leaves rows of other tokens alone instead of zeroing them.
    keep: u32,
    tokens_at: u32,
    table_at: u32,
    x_at: u32,
    d_x_at: u32,
    d_table_at: u32,
    links_at: u32,
}

/// Marks a row that is not the first of its token.
const NOT_FIRST: u32 = 0xffffffffu;

@group(0) @binding(0) var<storage, read> params: Params;

@group(0) @binding(1) var<storage, read_write> tokens: array<i32>; // [rows]

// embedding
@group(0) @binding(2) var<storage, read_write> table: array<f32>; // [vocab_len, dim]
@group(0) @binding(3) var<storage, read_write> x: array<f32>; // [rows, dim]

// embedding_grad
@group(0) @binding(2) var<storage, read_write> d_x: array<f32>; // [rows, dim]
@group(0) @binding(3) var<storage, read_write> d_table: array<f32>; // [vocab_len, dim]
@group(0) @binding(4) var<storage, read_write> links: array<u32>; // [2, rows]: next row, start

// embedding_links
@group(0) @binding(2) var<storage, read_write> links_out: array<u32>;

/// The row of the table that holds `token`; at least `vocab_len` where another slice does.
fn table_row(token: i32) -> u32 {
    return bitcast<u32>(token) - params.vocab_start;
}

@compute @workgroup_size(64)
fn embedding(@builtin(global_invocation_id) id: vec3u) {
    let col = id.x;
    let row = id.y;
    if params.dim <= col || params.rows <= row { return; }
    let entry = table_row(tokens[params.tokens_at + row]);
    let at = params.x_at + row * params.dim + col;
    if entry < params.vocab_len {
        x[at] = table[params.table_at + entry * params.dim + col];
    } else if params.keep == 0u {
        x[at] = 0.0;
    }
}

@compute @workgroup_size(64)
fn embedding_links(@builtin(global_invocation_id) id: vec3u) {
    let row = id.x;
    if params.rows <= row { return; }
    let token = tokens[params.tokens_at + row];
    var start = row;
    for (var other = 0u; other < row; other++) {
        if tokens[params.tokens_at + other] == token {
            start = NOT_FIRST;
            break;
        }
    }
    var next = row + 1u;
    while next < params.rows {
        if tokens[params.tokens_at + next] == token { break; }
        next++;
    }
    links_out[params.links_at + row] = next;
    links_out[params.links_at + params.rows + row] = start;
}

/// Adds to the table gradient; the caller clears it first where it shall be assigned.
@compute @workgroup_size(64)
fn embedding_grad(@builtin(global_invocation_id) id: vec3u) {
    let col = id.x;
    let first = id.y;
    if params.dim <= col || params.rows <= first { return; }
    let entry = table_row(tokens[params.tokens_at + first]);
    if params.vocab_len <= entry || links[params.links_at + params.rows + first] != first { return; }
    let at = params.d_table_at + entry * params.dim + col;
    var sum = d_table[at];
    var row = first;
    while row < params.rows {
        sum += d_x[params.d_x_at + row * params.dim + col];
        row = links[params.links_at + row];
    }
    d_table[at] = sum;
}
