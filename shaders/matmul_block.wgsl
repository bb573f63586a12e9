//! What all matrix products share: bindings, addresses, and an 8 × 8 block of C in registers. Comes
//! after blocks.wgsl.

struct Params {
    m: u32,
    n: u32,
    k: u32,
    accumulate: u32,
    a_at: u32,
    b_at: u32,
    c_at: u32,
    /// Elements from one row of C to the next in A, and from one k to the next.
    a_i: u32,
    a_k: u32,
    /// Elements from one k to the next in B, and from one column of C to the next.
    b_k: u32,
    b_j: u32,
    /// Elements from one row of C to the next.
    c_i: u32,
}

@group(0) @binding(0) var<storage, read> params: Params;
@group(0) @binding(1) var<storage, read_write> a: array<f32>;
@group(0) @binding(2) var<storage, read_write> b: array<f32>;
@group(0) @binding(3) var<storage, read_write> c: array<f32>;

/// Four sub-blocks of 4 × 4; `c01[r]` is a row of four: rows 0–3, columns 4–7.
struct Block {
    c00: mat4x4f,
    c01: mat4x4f,
    c10: mat4x4f,
    c11: mat4x4f,
}

/// Where the row of A for row `i` of C starts; the last one stands for all beyond the edge.
fn a_line(i: u32) -> u32 {
    return params.a_at + min(i, params.m - 1u) * params.a_i;
}

/// Where the column of B for column `j` of C starts.
fn b_line(j: u32) -> u32 {
    return params.b_at + min(j, params.n - 1u) * params.b_j;
}

fn a_lines(i: u32) -> vec4u {
    return vec4u(a_line(i), a_line(i + 1u), a_line(i + 2u), a_line(i + 3u));
}

fn b_lines(j: u32) -> vec4u {
    return vec4u(b_line(j), b_line(j + 1u), b_line(j + 2u), b_line(j + 3u));
}

fn a_quad(at: vec4u) -> vec4f {
    return vec4f(a[at.x], a[at.y], a[at.z], a[at.w]);
}

fn b_quad(at: vec4u) -> vec4f {
    return vec4f(b[at.x], b[at.y], b[at.z], b[at.w]);
}

fn add_outer(block: ptr<function, Block>, x0: vec4f, x1: vec4f, y0: vec4f, y1: vec4f) {
    (*block).c00 += outer(x0, y0);
    (*block).c01 += outer(x0, y1);
    (*block).c10 += outer(x1, y0);
    (*block).c11 += outer(x1, y1);
}

/// Writes or adds four rows of four columns, as far as they lie inside C.
fn store_quads(quads: mat4x4f, row0: u32, col0: u32) {
    for (var i = 0u; i < min(4u, params.m - min(row0, params.m)); i++) {
        let row = pick_row(quads, i);
        let at = params.c_at + (row0 + i) * params.c_i + col0;
        put(at, col0, row.x);
        put(at + 1u, col0 + 1u, row.y);
        put(at + 2u, col0 + 2u, row.z);
        put(at + 3u, col0 + 3u, row.w);
    }
}

fn put(at: u32, col: u32, value: f32) {
    if col < params.n {
        if params.accumulate != 0u { c[at] += value; } else { c[at] = value; }
    }
}

fn store(block: ptr<function, Block>, row0: u32, col0: u32) {
    store_quads((*block).c00, row0, col0);
    store_quads((*block).c01, row0, col0 + 4u);
    store_quads((*block).c10, row0 + 4u, col0);
    store_quads((*block).c11, row0 + 4u, col0 + 4u);
}
