//! Counts how often a loop really runs: one software driver stops silently after 65,535 trips. See
//! src/exec/gpu/self_test.rs.

struct Params {
    trips: u32,
    counted_at: u32,
}

@group(0) @binding(0) var<storage, read> params: Params;
@group(0) @binding(1) var<storage, read_write> counted: array<u32>; // [2]: trips, chain

@compute @workgroup_size(1)
fn count_trips() {
    var trips = 0u;
    // A chain of numbers that no compiler can shorten.
    var chain = 1u;
    for (var i = 0u; i < params.trips; i++) {
        trips++;
        chain = chain * 1664525u + 1013904223u;
    }
    counted[params.counted_at] = trips;
    counted[params.counted_at + 1u] = chain;
}
