//! Blocks of 4 × 4 products in registers: the unit of matrix products and of attention.

/// Row r of the result is `x[r] · y`.
fn outer(x: vec4f, y: vec4f) -> mat4x4f {
    return mat4x4f(x.x * y, x.y * y, x.z * y, x.w * y);
}

/// Element i. An index that is no constant would make compilers keep the vector in memory.
fn pick(values: vec4f, i: u32) -> f32 {
    let pair = select(values.xz, values.yw, vec2<bool>((i & 1u) != 0u));
    return select(pair.x, pair.y, (i & 2u) != 0u);
}

/// Row i of a block.
fn pick_row(block: mat4x4f, i: u32) -> vec4f {
    let odd = vec4<bool>((i & 1u) != 0u);
    let first = select(block[0], block[1], odd);
    let second = select(block[2], block[3], odd);
    return select(first, second, vec4<bool>((i & 2u) != 0u));
}
