//! Sums over the 64 lanes of a workgroup, in a fixed order: put before every file that reduces rows.
//! All lanes of the workgroup must call these functions together. It holds no kernel.

const LANES: u32 = 64u;

var<workgroup> lane_values: array<f32, LANES>;

/// The sum of `value` over all lanes, on every lane: a tree, so the same bits on every run.
fn sum_over_lanes(lane: u32, value: f32) -> f32 {
    lane_values[lane] = value;
    for (var span = LANES / 2u; span > 0u; span /= 2u) {
        workgroupBarrier();
        if lane < span { lane_values[lane] += lane_values[lane + span]; }
    }
    workgroupBarrier();
    let total = lane_values[0];
    workgroupBarrier(); // The next call may not write before all lanes have read.
    return total;
}

/// The largest `value` of all lanes, on every lane. What it does with NaN is up to the adapter.
fn max_over_lanes(lane: u32, value: f32) -> f32 {
    lane_values[lane] = value;
    for (var span = LANES / 2u; span > 0u; span /= 2u) {
        workgroupBarrier();
        if lane < span { lane_values[lane] = max(lane_values[lane], lane_values[lane + span]); }
    }
    workgroupBarrier();
    let largest = lane_values[0];
    workgroupBarrier();
    return largest;
}
