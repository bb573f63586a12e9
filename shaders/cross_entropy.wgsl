//! Vocabulary-parallel cross entropy: see src/ops/cross_entropy.rs. `loss_stats` and `loss_grad` take a
//! workgroup a row, `loss_merge` one workgroup in all. Comes after finite.wgsl and after lanes.wgsl or
//! lanes_subgroup.wgsl.

struct Params {
    rows: u32,
    vocab_start: u32,
    vocab_len: u32,
    slices: u32,
    accumulate: u32,
    logits_at: u32,
    labels_at: u32,
    stats_at: u32,
    merged_at: u32,
    loss_sum_at: u32,
    scalars_at: u32,
}

/// The label that counts nothing.
const IGNORED: i32 = -100i;
/// Index of 1/valid-labels in the scalars.
const INVERSE_VALID_LABELS: u32 = 3u;
const LOWEST: f32 = -3.4028234e38;

@group(0) @binding(0) var<storage, read> params: Params;
@group(0) @binding(2) var<storage, read_write> labels: array<i32>; // [rows]

// loss_stats
@group(0) @binding(1) var<storage, read_write> logits: array<f32>; // [rows, vocab_len]
@group(0) @binding(3) var<storage, read_write> stats: array<f32>; // [rows, 3]

// loss_merge
@group(0) @binding(1) var<storage, read_write> stats_all: array<f32>; // [slices, rows, 3]
@group(0) @binding(3) var<storage, read_write> merged: array<f32>; // [rows, 2]: max, Σ exp
@group(0) @binding(4) var<storage, read_write> loss_sum: array<f32>; // [1]

// loss_grad
@group(0) @binding(1) var<storage, read_write> merged_in: array<f32>; // [rows, 2]
@group(0) @binding(3) var<storage, read_write> scalars: array<f32>;
@group(0) @binding(4) var<storage, read_write> logits_grad: array<f32>; // [rows, vocab_len]

/// Column of the label in this slice; at least `vocab_len` where it lies in another.
fn label_column(label: i32) -> u32 {
    return bitcast<u32>(label) - params.vocab_start;
}

@compute @workgroup_size(LANES)
fn loss_stats(
    @builtin(workgroup_id) group: vec3u,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = group.x;
    let inside = row < params.rows;
    let at = params.logits_at + row * params.vocab_len;
    var largest = LOWEST;
    var odd = 0.0; // NaN if a logit of this lane is NaN or +∞.
    if inside {
        for (var col = lane; col < params.vocab_len; col += LANES) {
            let logit = logits[at + col];
            // −∞ is a probability of zero; the others spoil the row, and `max` may drop them.
            if is_not_finite(logit) && bitcast<u32>(logit) != 0xff800000u {
                odd = nan_from(logit);
            } else {
                largest = max(largest, logit);
            }
        }
    }
    largest = max_over_lanes(lane, largest);
    var sum = odd;
    if inside {
        for (var col = lane; col < params.vocab_len; col += LANES) {
            sum += exp(logits[at + col] - largest);
        }
    }
    sum = sum_over_lanes(lane, sum);
    if inside && lane == 0u {
        let label = label_column(labels[params.labels_at + row]);
        let to = params.stats_at + 3u * row;
        stats[to] = largest;
        stats[to + 1u] = sum;
        stats[to + 2u] = 0.0;
        if label < params.vocab_len { stats[to + 2u] = logits[at + label]; }
    }
}

@compute @workgroup_size(LANES)
fn loss_merge(@builtin(local_invocation_index) lane: u32) {
    var loss = 0.0;
    for (var row = lane; row < params.rows; row += LANES) {
        var largest = LOWEST;
        for (var slice = 0u; slice < params.slices; slice++) {
            let at = params.stats_at + 3u * (slice * params.rows + row);
            largest = max(largest, stats_all[at]);
        }
        var sum = 0.0;
        var label_logit = 0.0;
        for (var slice = 0u; slice < params.slices; slice++) {
            let at = params.stats_at + 3u * (slice * params.rows + row);
            sum += stats_all[at + 1u] * exp(stats_all[at] - largest);
            label_logit += stats_all[at + 2u];
        }
        merged[params.merged_at + 2u * row] = largest;
        merged[params.merged_at + 2u * row + 1u] = sum;
        if labels[params.labels_at + row] != IGNORED {
            loss += largest + log(sum) - label_logit;
        }
    }
    loss = sum_over_lanes(lane, loss);
    if lane == 0u {
        let to = params.loss_sum_at;
        if params.accumulate != 0u { loss_sum[to] += loss; } else { loss_sum[to] = loss; }
    }
}

@compute @workgroup_size(LANES)
fn loss_grad(
    @builtin(workgroup_id) group: vec3u,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = group.x;
    if params.rows <= row { return; }
    let label = labels[params.labels_at + row];
    let at = params.logits_at + row * params.vocab_len;
    let weight = scalars[params.scalars_at + INVERSE_VALID_LABELS];
    let largest = merged_in[params.merged_at + 2u * row];
    let share = weight / merged_in[params.merged_at + 2u * row + 1u];
    let hit = label_column(label);
    for (var col = lane; col < params.vocab_len; col += LANES) {
        var gradient = exp(logits_grad[at + col] - largest) * share;
        if col == hit { gradient -= weight; }
        if label == IGNORED { gradient = 0.0; }
        logits_grad[at + col] = gradient;
    }
}
