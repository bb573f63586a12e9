//! What lanes.wgsl says, for adapters whose subgroups have exactly eight lanes: a workgroup is one
//! subgroup, and no barrier is needed. It holds no kernel.

const LANES: u32 = 8u;

/// The sum of `value` over all lanes, on every lane: the same bits on every run.
fn sum_over_lanes(lane: u32, value: f32) -> f32 {
    return subgroupAdd(value);
}

/// The largest `value` of all lanes, on every lane. What it does with NaN is up to the adapter.
fn max_over_lanes(lane: u32, value: f32) -> f32 {
    return subgroupMax(value);
}
