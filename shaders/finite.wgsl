//! What is not finite, told from its bits: adapters may assume that neither infinities nor NaN exist,
//! so comparisons of floats would not do. It holds no kernel.

/// Whether `value` is an infinity or NaN.
fn is_not_finite(value: f32) -> bool {
    return (bitcast<u32>(value) & 0x7f800000u) == 0x7f800000u;
}

/// NaN made of a value that is not finite: no shader may hold NaN as a constant.
fn nan_from(value: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(value) | 0x7fc00000u);
}
