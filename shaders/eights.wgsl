//! Products over eight lines at once for subgroups of exactly eight lanes: each lane has read the
//! left factor for another line and hands it to the others. Comes after blocks.wgsl.

/// Eight lines of the right factor, four columns of a lane.
struct Rows {
    y0: vec4f, y1: vec4f, y2: vec4f, y3: vec4f,
    y4: vec4f, y5: vec4f, y6: vec4f, y7: vec4f,
}

/// Adds eight products to each element of four rows, in ascending order; lane k holds the four rows'
/// elements of the left factor for line k.
fn add_eight(sum: mat4x4f, x: vec4f, rows: Rows) -> mat4x4f {
    var total = sum;
    total += outer(subgroupBroadcast(x, 0u), rows.y0);
    total += outer(subgroupBroadcast(x, 1u), rows.y1);
    total += outer(subgroupBroadcast(x, 2u), rows.y2);
    total += outer(subgroupBroadcast(x, 3u), rows.y3);
    total += outer(subgroupBroadcast(x, 4u), rows.y4);
    total += outer(subgroupBroadcast(x, 5u), rows.y5);
    total += outer(subgroupBroadcast(x, 6u), rows.y6);
    total += outer(subgroupBroadcast(x, 7u), rows.y7);
    return total;
}
