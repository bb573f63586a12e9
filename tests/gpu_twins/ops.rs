//! Each op on ragged sizes, at aligned and unaligned places.

use shardlab::exec::gpu::{GpuDevice, GpuOptions, KernelFamily};
use shardlab::ops::Op;
use shardlab::ops::attention::{Attention, AttentionGrad, Heads};
use shardlab::ops::cast::Cast;
use shardlab::ops::cross_entropy::{LossGrad, LossMerge, LossStats};
use shardlab::ops::elementwise::{Add, AddAssign, Fill, Scale};
use shardlab::ops::embedding::{Embedding, EmbeddingGrad};
use shardlab::ops::matmul::{Form, Matmul};
use shardlab::ops::norm::{RmsNorm, RmsNormGradInput, RmsNormGradWeight};
use shardlab::ops::optimizer::{AdamW, Sgd};
use shardlab::ops::reduction::{SquaredNorm, SumRanks};
use shardlab::ops::rope::Rope;
use shardlab::ops::swiglu::{SwiGlu, SwiGluGrad};
use shardlab::shape::DType;

use crate::bench::{Case, Random, assert_twins, bits, open, run, shared};

fn matmuls() -> Vec<Case> {
    let mut cases = Vec::new();
    let sizes = [(1, 1, 1), (3, 5, 7), (17, 33, 65), (64, 64, 64), (70, 130, 50), (129, 66, 9)];
    for form in [Form::Nn, Form::Nt, Form::Tn] {
        for (m, n, k) in sizes {
            for accumulate in [false, true] {
                let op = Op::Matmul(Matmul { form, m, n, k, accumulate });
                cases.push(Case::new(op, u64::from(m * n + k)));
            }
        }
        for (m, n, k) in [(0, 3, 2), (3, 0, 2), (3, 2, 0)] {
            cases.push(Case::new(Op::Matmul(Matmul { form, m, n, k, accumulate: false }), 1));
        }
    }
    cases
}

#[test]
fn matrix_products_of_all_forms() {
    let Some(mut device) = shared() else { return };
    assert_twins(&mut device, &matmuls());
}

/// Kernels for other kinds of adapters run here too.
#[test]
fn products_and_attention_of_the_families_that_are_not_chosen_here() {
    let Some(device) = shared() else { return };
    let chosen = device.kernel_family();
    drop(device);
    for family in [KernelFamily::Tiled, KernelFamily::Blocked] {
        if family != chosen {
            let options = GpuOptions { family: Some(family), ..Default::default() };
            let mut device = open(options).expect("opened before");
            assert_twins(&mut device, &matmuls());
            if family == KernelFamily::Tiled {
                assert_twins(&mut device, &attentions(2.0, 1e-5));
                assert_attention_stays_causal(&mut device);
            }
        }
    }
}

#[test]
fn elementwise_ops_and_casts() {
    let Some(mut device) = shared() else { return };
    let mut cases = Vec::new();
    for len in [1, 255, 256, 1000] {
        cases.push(Case::new(Op::Add(Add { len }), 1).tolerance(0.0));
        cases.push(Case::new(Op::AddAssign(AddAssign { len }), 2).tolerance(0.0));
        cases.push(Case::new(Op::Scale(Scale { len, factor: 0.3 }), 3).tolerance(0.0));
        cases.push(Case::new(Op::Fill(Fill { len, value: -2.5 }), 4).tolerance(0.0));
        let floats = Random::new(5).floats(len.into(), 1e3);
        let op = Op::Cast(Cast { from: DType::F32, to: DType::I32, len });
        cases.push(Case::new(op, 6).input(0, floats).tolerance(0.0));
        let integers = Random::new(7).integers(len.into(), -1_000_000_000, 1_000_000_000);
        let op = Op::Cast(Cast { from: DType::I32, to: DType::F32, len });
        cases.push(Case::new(op, 8).input(0, integers).tolerance(0.0));
    }
    cases.push(Case::new(Op::Fill(Fill { len: 0, value: 1.0 }), 9));
    let odd = vec![1e10, -1e10, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 2.0f32.powi(31), -1.9];
    let op = Op::Cast(Cast { from: DType::F32, to: DType::I32, len: 7 });
    cases.push(Case::new(op.clone(), 10).input(0, odd.clone()));
    assert_twins(&mut device, &cases);
    let case = Case::new(op, 11).input(0, odd);
    assert_eq!(bits(&run(&mut device, &case)[0]), bits(&case.expected()[0]));
}

#[test]
fn embedding_of_a_slice_and_its_gradient() {
    let Some(mut device) = shared() else { return };
    let mut cases = Vec::new();
    for (rows, dim, vocab_start, vocab_len) in
        [(1, 1, 0, 1), (37, 20, 0, 50), (90, 65, 30, 12), (130, 7, 40, 10), (20, 5, 3, 0)]
    {
        // Tokens repeat, and some lie in other slices.
        let tokens = Random::new(3).integers(rows, 0, 50);
        let rows = rows as u32;
        let op = Op::Embedding(Embedding { rows, dim, vocab_start, vocab_len });
        cases.push(Case::new(op, 4).input(0, tokens.clone()).tolerance(0.0));
        for accumulate in [false, true] {
            let op = EmbeddingGrad { rows, dim, vocab_start, vocab_len, accumulate };
            // The same additions in the same order: the same bits.
            let case = Case::new(Op::EmbeddingGrad(op), 5).input(0, tokens.clone());
            cases.push(case.tolerance(0.0));
        }
    }
    assert_twins(&mut device, &cases);
}

#[test]
fn norms_and_their_gradients() {
    let Some(mut device) = shared() else { return };
    let mut cases = Vec::new();
    for (rows, dim) in [(1, 1), (3, 5), (40, 64), (33, 100), (9, 515), (300, 33)] {
        cases.push(Case::new(Op::RmsNorm(RmsNorm { rows, dim, eps: 1e-5 }), 1));
        for accumulate in [false, true] {
            cases.push(Case::new(
                Op::RmsNormGradInput(RmsNormGradInput { rows, dim, accumulate }),
                2,
            ));
            cases.push(Case::new(
                Op::RmsNormGradWeight(RmsNormGradWeight { rows, dim, accumulate }),
                3,
            ));
        }
    }
    let nothing = RmsNormGradWeight { rows: 0, dim: 3, accumulate: false };
    cases.push(Case::new(Op::RmsNormGradWeight(nothing), 4));
    assert_twins(&mut device, &cases);
}

#[test]
fn rotary_embedding_forth_and_back() {
    let Some(mut device) = shared() else { return };
    let mut cases = Vec::new();
    for (seq, batch, heads, head_dim, width) in
        [(1, 1, 1, 2, 2), (9, 3, 5, 16, 112), (33, 1, 2, 6, 18)]
    {
        for inverse in [false, true] {
            let op = Rope { seq, batch, heads, head_dim, width, inverse };
            cases.push(Case::new(Op::Rope(op), 1));
        }
    }
    assert_twins(&mut device, &cases);
}

/// Heads whole, grouped, and cut by shards through groups.
fn heads() -> Vec<Heads> {
    let sizes = |seq, batch, head_dim| Heads {
        seq,
        batch,
        heads: 1,
        kv_heads: 1,
        head_dim,
        group: 1,
        first_head: 0,
        first_kv_head: 0,
    };
    vec![
        sizes(1, 1, 1),
        Heads { heads: 3, kv_heads: 3, ..sizes(33, 2, 8) },
        Heads { heads: 4, kv_heads: 2, group: 2, ..sizes(70, 1, 40) },
        // Query heads 3, 4 of groups of three: the last of one group and the first of the next.
        Heads { heads: 2, kv_heads: 2, group: 3, first_head: 2, ..sizes(40, 3, 16) },
        // Two ranks share a key head.
        Heads {
            heads: 2,
            kv_heads: 1,
            group: 4,
            first_head: 6,
            first_kv_head: 1,
            ..sizes(97, 1, 64)
        },
        // A key head that no query head of this rank reads.
        Heads { heads: 2, kv_heads: 2, group: 2, ..sizes(35, 1, 4) },
    ]
}

/// `lse` and `out` of forward go into backward.
fn attention_grad(heads: &Heads, qkv: &[f32]) -> Case {
    let forward = Case::new(Op::Attention(Attention { heads: heads.clone() }), 1);
    let outputs = forward.input(0, qkv.to_vec()).expected();
    Case::new(Op::AttentionGrad(AttentionGrad { heads: heads.clone() }), 2)
        .input(0, qkv.to_vec())
        .input(1, outputs[0].clone())
        .input(2, outputs[1].clone())
}

/// Forward and backward of all kinds of heads.
fn attentions(scale: f32, tolerance: f32) -> Vec<Case> {
    let mut cases = Vec::new();
    for heads in heads() {
        let forward = Case::new(Op::Attention(Attention { heads: heads.clone() }), 1);
        let len = forward.inputs[0].len() as u64;
        let qkv = Random::new(3).floats(len, scale);
        cases.push(attention_grad(&heads, &qkv).tolerance(tolerance));
        cases.push(forward.input(0, qkv).tolerance(tolerance));
    }
    cases
}

#[test]
fn attention_of_whole_grouped_and_cut_heads() {
    let Some(mut device) = shared() else { return };
    assert_twins(&mut device, &attentions(2.0, 1e-5));
}

/// Scores of several thousands: the softmax is all or nothing.
#[test]
fn attention_with_huge_scores_stays_finite() {
    let Some(mut device) = shared() else { return };
    let cases = attentions(100.0, 1e-3);
    let finite = |case: &Case| case.expected().iter().flatten().all(|x| x.is_finite());
    assert!(cases.iter().all(finite));
    assert_twins(&mut device, &cases);
}

#[test]
fn gated_activation_and_its_gradient() {
    let Some(mut device) = shared() else { return };
    let mut cases = Vec::new();
    for (rows, ffn) in [(1, 1), (7, 64), (13, 131)] {
        let gates = Random::new(1).floats(u64::from(2 * rows * ffn), 10.0);
        cases.push(Case::new(Op::SwiGlu(SwiGlu { rows, ffn }), 2).input(0, gates.clone()));
        cases.push(Case::new(Op::SwiGluGrad(SwiGluGrad { rows, ffn }), 3).input(0, gates));
    }
    let huge = vec![1e4, -1e4, 1.0, -1.0];
    cases.push(Case::new(Op::SwiGlu(SwiGlu { rows: 1, ffn: 2 }), 4).input(0, huge.clone()));
    cases.push(Case::new(Op::SwiGluGrad(SwiGluGrad { rows: 1, ffn: 2 }), 5).input(0, huge));
    assert_twins(&mut device, &cases);
}

/// The three ops of the loss, each with what the one before gives.
fn losses(rows: u32, slices: u32, columns: u32, scale: f32) -> Vec<Case> {
    let mut random = Random::new(u64::from(rows + columns));
    let vocab = slices * columns;
    let mut labels = random.integers(rows.into(), 0, vocab as i32);
    labels.iter_mut().step_by(3).for_each(|label| *label = f32::from_bits(-100i32 as u32));
    let mut cases = Vec::new();
    let mut stats = Vec::new();
    let mut logits = Vec::new();
    for slice in 0..slices {
        let op = LossStats { rows, vocab_start: slice * columns, vocab_len: columns };
        let x = random.floats(u64::from(rows * columns), scale);
        let case = Case::new(Op::LossStats(op), 1).input(0, x.clone()).input(1, labels.clone());
        stats.extend(case.expected().remove(0));
        logits.push(x);
        cases.push(case);
    }
    for accumulate in [false, true] {
        let op = Op::LossMerge(LossMerge { rows, slices, accumulate });
        cases.push(Case::new(op, 2).input(0, stats.clone()).input(1, labels.clone()));
    }
    let merged = cases[slices as usize].expected().remove(0);
    for (slice, x) in (0..slices).zip(logits) {
        let op = LossGrad { rows, vocab_start: slice * columns, vocab_len: columns };
        let case = Case::new(Op::LossGrad(op), 3).input(0, merged.clone());
        cases.push(case.input(1, labels.clone()).output(0, x));
    }
    cases
}

#[test]
fn loss_of_a_cut_vocabulary() {
    let Some(mut device) = shared() else { return };
    let mut cases = losses(1, 1, 1, 1.0);
    cases.extend(losses(40, 3, 37, 5.0));
    cases.extend(losses(9, 2, 300, 1e4));
    assert_twins(&mut device, &cases);
}

#[test]
fn sums_over_ranks_have_the_bits_of_the_host() {
    let Some(mut device) = shared() else { return };
    let mut cases = Vec::new();
    // Six inputs fit into a dispatch.
    for ranks in [1, 2, 6, 7, 8, 13, 18] {
        let own = (0..ranks).step_by(5).map(Some).chain([None]);
        for own in own {
            let op = SumRanks { ranks, own, len: 700, accumulate: false };
            cases.push(Case::new(Op::SumRanks(op), ranks.into()).tolerance(0.0));
        }
        let op = SumRanks { ranks, own: None, len: 300, accumulate: true };
        cases.push(Case::new(Op::SumRanks(op), 1).tolerance(0.0));
    }
    let zero = SumRanks { ranks: 1, own: None, len: 1, accumulate: false };
    cases.push(Case::new(Op::SumRanks(zero), 1).input(0, vec![-0.0]).tolerance(0.0));
    assert_twins(&mut device, &cases);
}

#[test]
fn squared_norms_of_one_and_several_blocks() {
    let Some(mut device) = shared() else { return };
    let mut cases = Vec::new();
    for len in [0, 1, 100, 16_384, 50_001] {
        for (guard, accumulate) in [(false, false), (true, false), (false, true), (true, true)] {
            let op = SquaredNorm { len, guard, accumulate };
            cases.push(Case::new(Op::SquaredNorm(op), len.into()));
        }
    }
    for guard in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let op = SquaredNorm { len: 5, guard: true, accumulate: true };
        cases.push(Case::new(Op::SquaredNorm(op), 1).input(1, vec![guard]));
    }
    assert_twins(&mut device, &cases);
}

fn optimizers(clip_norm: f32) -> Vec<Op> {
    let adamw =
        AdamW { len: 501, beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.1, clip_norm };
    vec![Op::AdamW(adamw), Op::Sgd(Sgd { len: 501, clip_norm })]
}

fn optimizer_case(op: Op, squared_norm: f32) -> Case {
    let case = Case::new(op, 9).input(1, vec![squared_norm]).input(2, vec![1e-2, 0.1, 0.05, 0.5]);
    if case.outputs.len() == 3 {
        let second = case.outputs[2].iter().map(|x| x.abs()).collect();
        return case.output(2, second);
    }
    case
}

#[test]
fn optimizers_with_and_without_clipping() {
    let Some(mut device) = shared() else { return };
    let ops = [0.0, 1.0, 100.0].into_iter().flat_map(optimizers);
    let cases: Vec<Case> = ops.map(|op| optimizer_case(op, 16.0)).collect();
    assert_twins(&mut device, &cases);
}

#[test]
fn a_norm_that_is_not_finite_touches_nothing() {
    let Some(mut device) = shared() else { return };
    for op in optimizers(1.0).into_iter().chain(optimizers(0.0)) {
        for norm in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let case = optimizer_case(op.clone(), norm);
            for (after, before) in run(&mut device, &case).iter().zip(&case.outputs) {
                assert_eq!(bits(after), bits(before), "{op}: {norm}");
            }
        }
    }
}

/// NaN in the key and in the value of one position spoils the positions from it on, and no earlier
/// one: keys after a query are left out, not weighed with zero.
fn assert_attention_stays_causal(device: &mut GpuDevice) {
    let heads = Heads { heads: 2, kv_heads: 1, group: 2, ..heads()[2].clone() };
    let (width, dim) = (heads.qkv_width() as usize, heads.head_dim as usize);
    let forward = Case::new(Op::Attention(Attention { heads: heads.clone() }), 4);
    let clean = forward.inputs[0].clone();
    for (position, column) in
        [(0, 2 * dim), (29, 2 * dim + 1), (45, 3 * dim + 7), (69, 4 * dim - 1)]
    {
        let mut data = clean.clone();
        data[position * width + column] = f32::NAN;
        let outputs = run(device, &forward.clone().input(0, data.clone()));
        for (t, row) in outputs[0].chunks(2 * dim).enumerate() {
            // A value spoils its own column, a key all of the row.
            let nans = row.iter().filter(|x| x.is_nan()).count();
            let expected = if column < 3 * dim { 2 * dim } else { 2 };
            assert_eq!(nans, if t < position { 0 } else { expected }, "row {t}, NaN at {position}");
        }
        let grad = attention_grad(&heads, &clean).input(0, data);
        let d_qkv = run(device, &grad).remove(0);
        for (t, row) in d_qkv.chunks(width).enumerate() {
            let spoiled = row[..2 * dim].iter().any(|x| x.is_nan());
            assert_eq!(spoiled, position <= t, "gradient of query {t}, NaN at {position}");
        }
    }
}

#[test]
fn what_is_not_finite_shows_where_it_does_on_the_host() {
    let Some(mut device) = shared() else { return };
    let matmul = Matmul { form: Form::Nt, m: 20, n: 9, k: 12, accumulate: false };
    let labels = Random::new(1).integers(6, 0, 8);
    let cases = [
        Case::new(Op::Matmul(matmul), 1),
        Case::new(Op::RmsNorm(RmsNorm { rows: 6, dim: 8, eps: 1e-5 }), 2),
        Case::new(Op::SwiGlu(SwiGlu { rows: 6, ffn: 4 }), 3),
        Case::new(Op::LossStats(LossStats { rows: 6, vocab_start: 0, vocab_len: 8 }), 5)
            .input(1, labels),
        Case::new(Op::SquaredNorm(SquaredNorm { len: 48, guard: false, accumulate: false }), 6),
        Case::new(Op::Add(Add { len: 48 }), 7),
    ];
    for case in cases {
        let mut data = case.inputs[0].clone();
        data[29] = f32::NAN;
        let case = case.input(0, data);
        for (got, expected) in run(&mut device, &case).iter().zip(case.expected()) {
            let differs = |(got, expected): (&f32, &f32)| got.is_nan() != expected.is_nan();
            assert_eq!(got.iter().zip(&expected).position(differs), None, "{}", case.op);
        }
        assert!(case.expected().iter().flatten().any(|x| x.is_nan()), "{}", case.op);
    }
}

#[test]
fn nan_in_attention_never_reaches_an_earlier_position() {
    let Some(mut device) = shared() else { return };
    assert_attention_stays_causal(&mut device);
}
