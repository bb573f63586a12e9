//! Sums over the 64 lanes of a workgroup, in a fixed order: put before every file that reduces rows.
//! All lanes of the workgroup must call these functions together. It holds no kernel.

const LANES: u32 = 64u;
/// Lanes are reduced eight at a time, twice: a tree of two levels needs two barriers.
const LANE_GROUP: u32 = 8u;

var<workgroup> lane_values: array<f32, LANES>;
var<workgroup> group_values: array<f32, LANE_GROUP>;

/// The sum of `value` over all lanes, on every lane: the same bits on every run.
fn sum_over_lanes(lane: u32, value: f32) -> f32 {
    lane_values[lane] = value;
    workgroupBarrier();
    if lane < LANE_GROUP {
        var sum = lane_values[lane * LANE_GROUP];
        for (var i = 1u; i < LANE_GROUP; i++) { sum += lane_values[lane * LANE_GROUP + i]; }
        group_values[lane] = sum;
    }
    // The next call writes `group_values` only after its first barrier, when all have read.
    workgroupBarrier();
    var total = group_values[0];
    for (var i = 1u; i < LANE_GROUP; i++) { total += group_values[i]; }
    return total;
}

/// The largest `value` of all lanes, on every lane. What it does with NaN is up to the adapter.
fn max_over_lanes(lane: u32, value: f32) -> f32 {
    lane_values[lane] = value;
    workgroupBarrier();
    if lane < LANE_GROUP {
        var largest = lane_values[lane * LANE_GROUP];
        for (var i = 1u; i < LANE_GROUP; i++) {
            largest = max(largest, lane_values[lane * LANE_GROUP + i]);
        }
        group_values[lane] = largest;
    }
    workgroupBarrier();
    var largest = group_values[0];
    for (var i = 1u; i < LANE_GROUP; i++) { largest = max(largest, group_values[i]); }
    return largest;
}
