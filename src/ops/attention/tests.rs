//! The kernels against the definition of attention in double precision.

use super::*;
use crate::ops::testing::{Random, assert_close, finite_differences, run, wide};

fn heads(sizes: [u32; 8]) -> Heads {
    let [seq, batch, heads, kv_heads, head_dim, group, first_head, first_kv_head] = sizes;
    Heads { seq, batch, heads, kv_heads, head_dim, group, first_head, first_kv_head }
}

/// Plain heads, groups, and shards that cut a group or hold key heads that nobody reads.
fn cases() -> Vec<Heads> {
    [
        [1, 1, 1, 1, 1, 1, 0, 0],
        [5, 2, 2, 2, 4, 1, 0, 0],
        [33, 3, 4, 2, 8, 2, 0, 0],
        [50, 1, 2, 2, 17, 3, 2, 0],
        [17, 2, 3, 1, 32, 4, 4, 1],
        [70, 2, 1, 3, 5, 2, 3, 0],
        [129, 1, 2, 1, 48, 2, 2, 1],
    ]
    .map(heads)
    .to_vec()
}

fn lens(heads: &Heads) -> (u64, u64) {
    (heads.rows() * u64::from(heads.qkv_width()), heads.rows() * u64::from(heads.out_width()))
}

/// `(out, lse, gradient of qkv)` in double precision, straight from the definition.
fn reference(h: &Heads, qkv: &[f64], d_out: &[f64]) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let [seq, batch, dim] = [h.seq, h.batch, h.head_dim].map(|x| x as usize);
    let (width, out_width) = (h.qkv_width() as usize, h.out_width() as usize);
    let scale = 1.0 / (dim as f64).sqrt();
    let mut out = vec![0.0; seq * batch * out_width];
    let mut lse = vec![0.0; seq * batch * h.heads as usize];
    let mut d_qkv = vec![0.0; qkv.len()];
    for i in 0..batch {
        for head in 0..h.heads as usize {
            let kv = (h.first_head as usize + head) / h.group as usize - h.first_kv_head as usize;
            let q_at = |t: usize| (t * batch + i) * width + head * dim;
            let k_at = |t: usize| (t * batch + i) * width + (h.heads as usize + kv) * dim;
            let v_at = |t: usize| k_at(t) + h.kv_heads as usize * dim;
            let o_at = |t: usize| (t * batch + i) * out_width + head * dim;
            let dot = |a: &[f64], b: &[f64]| -> f64 {
                a[..dim].iter().zip(&b[..dim]).map(|(a, b)| a * b).sum()
            };
            for t in 0..seq {
                let scores: Vec<f64> =
                    (0..=t).map(|u| scale * dot(&qkv[q_at(t)..], &qkv[k_at(u)..])).collect();
                let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let total: f64 = scores.iter().map(|s| (s - max).exp()).sum();
                lse[(t * batch + i) * h.heads as usize + head] = max + total.ln();
                let p: Vec<f64> = scores.iter().map(|s| (s - max).exp() / total).collect();
                let d_p: Vec<f64> =
                    (0..=t).map(|u| dot(&d_out[o_at(t)..], &qkv[v_at(u)..])).collect();
                let delta: f64 = p.iter().zip(&d_p).map(|(p, d)| p * d).sum();
                for u in 0..=t {
                    let d_score = p[u] * (d_p[u] - delta) * scale;
                    for j in 0..dim {
                        out[o_at(t) + j] += p[u] * qkv[v_at(u) + j];
                        d_qkv[v_at(u) + j] += p[u] * d_out[o_at(t) + j];
                        d_qkv[q_at(t) + j] += d_score * qkv[k_at(u) + j];
                        d_qkv[k_at(u) + j] += d_score * qkv[q_at(t) + j];
                    }
                }
            }
        }
    }
    (out, lse, d_qkv)
}

#[test]
fn forward_and_backward_equal_their_definitions() {
    for heads in cases() {
        let mut random = Random::new(u64::from(heads.seq));
        let (qkv_len, out_len) = lens(&heads);
        let qkv: Vec<f32> = random.floats(qkv_len).iter().map(|x| 2.0 * x).collect();
        let d_out = random.floats(out_len);
        let (out, lse, d_qkv) = reference(&heads, &wide(&qkv), &wide(&d_out));

        let forward = run(&Attention { heads: heads.clone() }, &[&qkv], &[]);
        assert_close(&forward[0], &out, 1e-6, &format!("out of {heads:?}"));
        assert_close(&forward[1], &lse, 1e-6, &format!("lse of {heads:?}"));

        let inputs = [&qkv, &forward[0], &forward[1], &d_out].map(Vec::as_slice);
        let backward = run(&AttentionGrad { heads: heads.clone() }, &inputs, &[]);
        assert_close(&backward[0], &d_qkv, 3e-6, &format!("d_qkv of {heads:?}"));
    }
}

#[test]
fn the_reference_gradient_equals_finite_differences() {
    let heads = heads([4, 2, 3, 2, 3, 2, 1, 0]);
    let mut random = Random::new(5);
    let (qkv_len, out_len) = lens(&heads);
    let (qkv, d_out) = (wide(&random.floats(qkv_len)), wide(&random.floats(out_len)));
    let loss = |qkv: &[f64]| crate::ops::testing::dot(&reference(&heads, qkv, &d_out).0, &d_out);
    let d_qkv: Vec<f32> = reference(&heads, &qkv, &d_out).2.iter().map(|&d| d as f32).collect();
    assert_close(&d_qkv, &finite_differences(&qkv, loss), 1e-7, "d_qkv");
}

#[test]
fn key_heads_that_nobody_reads_have_zero_gradients() {
    let heads = heads([9, 1, 1, 3, 4, 1, 1, 0]);
    let mut random = Random::new(6);
    let (qkv_len, out_len) = lens(&heads);
    let (qkv, d_out) = (random.floats(qkv_len), random.floats(out_len));
    let forward = run(&Attention { heads: heads.clone() }, &[&qkv], &[]);
    let inputs = [&qkv, &forward[0], &forward[1], &d_out].map(Vec::as_slice);
    let d_qkv = run(&AttentionGrad { heads: heads.clone() }, &inputs, &[]).remove(0);
    for row in d_qkv.chunks(heads.qkv_width() as usize) {
        for unread in [4..8, 12..16, 16..20, 24..28] {
            assert!(row[unread].iter().all(|&d| d == 0.0));
        }
    }
}

#[test]
fn huge_scores_are_stable() {
    let heads = heads([40, 1, 1, 1, 16, 1, 0, 0]);
    let mut random = Random::new(7);
    let (qkv_len, out_len) = lens(&heads);
    let qkv: Vec<f32> = random.floats(qkv_len).iter().map(|x| 200.0 * x).collect();
    let d_out = random.floats(out_len);
    let (out, lse, _) = reference(&heads, &wide(&qkv), &wide(&d_out));
    assert!(lse.iter().any(|lse| lse.abs() > 1e4), "the scores are huge");
    let forward = run(&Attention { heads: heads.clone() }, &[&qkv], &[]);
    // A score of 1e4 has an error of 1e-3, and so have the probabilities.
    assert_close(&forward[0], &out, 1e-2, "out");
    assert_close(&forward[1], &lse, 1e-6, "lse");
    let inputs = [&qkv, &forward[0], &forward[1], &d_out].map(Vec::as_slice);
    let d_qkv = run(&AttentionGrad { heads }, &inputs, &[]);
    assert!(d_qkv[0].iter().all(|d| d.is_finite()));
}

#[test]
fn nan_shows_where_it_is_seen_and_nowhere_else() {
    let heads = heads([40, 1, 1, 1, 4, 1, 0, 0]);
    let mut qkv = Random::new(8).floats(lens(&heads).0);
    qkv[20 * 12 + 5] = f32::NAN; // a key at position 20
    let out = run(&Attention { heads }, &[&qkv], &[]);
    for (position, row) in out[0].chunks(4).enumerate() {
        assert!(row.iter().all(|x| x.is_nan() == (position >= 20)), "position {position}");
    }
}

#[test]
fn a_sequence_does_not_depend_on_its_neighbours_in_the_batch() {
    let (one, three) = (heads([30, 1, 4, 2, 8, 2, 0, 0]), heads([30, 3, 4, 2, 8, 2, 0, 0]));
    let mut random = Random::new(9);
    let qkv = random.floats(lens(&three).0);
    let width = three.qkv_width() as usize;
    let middle: Vec<f32> = qkv.chunks(width).skip(1).step_by(3).flatten().copied().collect();
    let all = run(&Attention { heads: three }, &[&qkv], &[]);
    let alone = run(&Attention { heads: one }, &[&middle], &[]);
    let middle_out: Vec<f32> = all[0].chunks(32).skip(1).step_by(3).flatten().copied().collect();
    assert_eq!(middle_out, alone[0]);
}
