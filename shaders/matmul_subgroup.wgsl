//! The matrix product for software adapters whose subgroups have exactly eight lanes: a workgroup is
//! one subgroup and takes 16 rows × 32 columns of C, four columns a lane. Each lane reads another k
//! of A and hands it to the others, which saves seven of eight reads: on such adapters a read costs
//! as much as ten multiplications. Comes after eights.wgsl and matmul_block.wgsl; see matmul.wgsl for
//! the others.

@compute @workgroup_size(8)
fn matmul_subgroup(
    @builtin(workgroup_id) group: vec3u,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let row0 = group.y * 16u;
    let col0 = group.x * 32u + lane * 4u;
    let x_at0 = a_lines(row0);
    let x_at1 = a_lines(row0 + 4u);
    let x_at2 = a_lines(row0 + 8u);
    let x_at3 = a_lines(row0 + 12u);
    let y_at = b_lines(col0);
    let step = params.b_k;
    var c0: mat4x4f;
    var c1: mat4x4f;
    var c2: mat4x4f;
    var c3: mat4x4f;
    let whole = params.k / 8u * 8u;
    for (var k = 0u; k < whole; k += 8u) {
        let x_k = vec4u((k + lane) * params.a_k);
        let y = y_at + vec4u(k * step);
        let x0 = a_quad(x_at0 + x_k);
        let x1 = a_quad(x_at1 + x_k);
        let x2 = a_quad(x_at2 + x_k);
        let x3 = a_quad(x_at3 + x_k);
        let rows = Rows(
            b_quad(y), b_quad(y + vec4u(step)),
            b_quad(y + vec4u(2u * step)), b_quad(y + vec4u(3u * step)),
            b_quad(y + vec4u(4u * step)), b_quad(y + vec4u(5u * step)),
            b_quad(y + vec4u(6u * step)), b_quad(y + vec4u(7u * step)),
        );
        c0 = add_eight(c0, x0, rows);
        c1 = add_eight(c1, x1, rows);
        c2 = add_eight(c2, x2, rows);
        c3 = add_eight(c3, x3, rows);
    }
    for (var k = whole; k < params.k; k++) {
        let x_k = vec4u(k * params.a_k);
        let y = b_quad(y_at + vec4u(k * step));
        c0 += outer(a_quad(x_at0 + x_k), y);
        c1 += outer(a_quad(x_at1 + x_k), y);
        c2 += outer(a_quad(x_at2 + x_k), y);
        c3 += outer(a_quad(x_at3 + x_k), y);
    }
    store_quads(c0, row0, col0);
    store_quads(c1, row0 + 4u, col0);
    store_quads(c2, row0 + 8u, col0);
    store_quads(c3, row0 + 12u, col0);
}
