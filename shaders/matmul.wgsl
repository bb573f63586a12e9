//! Matrix products in all three forms: see src/ops/matmul.rs. A form is nothing but two strides for
//! each operand, so one kernel serves the three. This file holds
//!
//! 1. `matmul_tiled`: 64 × 64 tiles in workgroup memory, for GPUs;
//! 2. `matmul_blocked`: 8 × 8 blocks in registers and no barrier, for software adapters.
//!
//! A third, for software adapters with subgroups of eight, is in matmul_subgroup.wgsl. All three add
//! the products of an element in ascending k. Comes after matmul_block.wgsl.

const TILE: u32 = 64u;
/// Depth of a tile.
const DEPTH: u32 = 16u;
/// Quads from one k to the next in a tile; the odd one spreads the columns over memory banks.
const PITCH: u32 = TILE / 4u + 1u;

// [DEPTH, TILE] of A and of B, four rows or columns in an element.
var<workgroup> a_tile: array<vec4f, DEPTH * PITCH>;
var<workgroup> b_tile: array<vec4f, DEPTH * PITCH>;

/// Where element `index` of a tile lies, (line, k): neighbours run along the dimension whose
/// stride is one, so that they are read together.
fn tile_place(index: u32, k_stride: u32) -> vec2u {
    if k_stride == 1u { return vec2u(index / DEPTH, index % DEPTH); }
    return vec2u(index % TILE, index / TILE);
}

@compute @workgroup_size(64)
fn matmul_tiled(
    @builtin(workgroup_id) group: vec3u,
    @builtin(local_invocation_index) lane: u32,
) {
    let row0 = group.y * TILE;
    let col0 = group.x * TILE;
    let x_quad = lane / 8u * 2u;
    let y_quad = lane % 8u * 2u;
    var block: Block;
    for (var k0 = 0u; k0 < params.k; k0 += DEPTH) {
        for (var step = 0u; step < TILE * DEPTH / 64u; step++) {
            let a_place = tile_place(step * 64u + lane, params.a_k);
            let b_place = tile_place(step * 64u + lane, params.b_k);
            // Zeroes stand where k has ended; lines past the edge are read twice and never stored.
            var a_value = 0.0;
            var b_value = 0.0;
            if k0 + a_place.y < params.k { a_value = a[a_line(row0 + a_place.x) + (k0 + a_place.y) * params.a_k]; }
            if k0 + b_place.y < params.k { b_value = b[b_line(col0 + b_place.x) + (k0 + b_place.y) * params.b_k]; }
            a_tile[a_place.y * PITCH + a_place.x / 4u][a_place.x % 4u] = a_value;
            b_tile[b_place.y * PITCH + b_place.x / 4u][b_place.x % 4u] = b_value;
        }
        workgroupBarrier();
        for (var k = 0u; k < DEPTH; k++) {
            let at = k * PITCH;
            add_outer(
                &block,
                a_tile[at + x_quad], a_tile[at + x_quad + 1u],
                b_tile[at + y_quad], b_tile[at + y_quad + 1u],
            );
        }
        workgroupBarrier();
    }
    store(&block, row0 + x_quad * 4u, col0 + y_quad * 4u);
}

@compute @workgroup_size(8)
fn matmul_blocked(@builtin(global_invocation_id) id: vec3u) {
    let row0 = id.y * 8u;
    let col0 = id.x * 8u;
    var x_at0 = a_lines(row0);
    var x_at1 = a_lines(row0 + 4u);
    var y_at0 = b_lines(col0);
    var y_at1 = b_lines(col0 + 4u);
    let x_step = vec4u(params.a_k);
    let y_step = vec4u(params.b_k);
    var block: Block;
    for (var k = 0u; k < params.k; k++) {
        add_outer(&block, a_quad(x_at0), a_quad(x_at1), b_quad(y_at0), b_quad(y_at1));
        x_at0 += x_step;
        x_at1 += x_step;
        y_at0 += y_step;
        y_at1 += y_step;
    }
    store(&block, row0, col0);
}
