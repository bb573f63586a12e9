//! Small limits: what does not fit into one dispatch is cut, with the same results, or refused.

use shardlab::exec::Device;
use shardlab::exec::gpu::GpuOptions;
use shardlab::mesh::Rank;
use shardlab::ops::Op;
use shardlab::ops::attention::{Attention, Heads};
use shardlab::ops::cross_entropy::{LossGrad, LossStats};
use shardlab::ops::elementwise::{Add, Fill};
use shardlab::ops::embedding::{Embedding, EmbeddingGrad};
use shardlab::ops::matmul::{Form, Matmul};
use shardlab::ops::norm::{RmsNorm, RmsNormGradWeight};
use shardlab::ops::reduction::{SquaredNorm, SumRanks};
use shardlab::ops::swiglu::SwiGlu;
use shardlab::units::Bytes;

use crate::bench::{Bench, Case, Random, assert_twins, open, run, shared};

/// Elements of a binding of one MiB.
const MIB: u32 = 1 << 18;

#[test]
fn tensors_larger_than_a_binding_are_cut() {
    let options = GpuOptions {
        portable_limits: true,
        binding_bytes_max: Some(Bytes(1 << 20)),
        ..Default::default()
    };
    let Some(mut device) = open(options) else { return };
    let matmul = |form, m, n, k| Op::Matmul(Matmul { form, m, n, k, accumulate: true });
    let tokens = |rows| Random::new(1).integers(rows, 0, 3000);
    let embedding = Embedding { rows: 3000, dim: 100, vocab_start: 0, vocab_len: 3000 };
    let embedding_grad =
        EmbeddingGrad { rows: 3000, dim: 100, vocab_start: 0, vocab_len: 3000, accumulate: false };
    let cases = [
        Case::new(Op::Add(Add { len: 2 * MIB + 77 }), 1).tolerance(0.0),
        // C, A and B too long, in turn.
        Case::new(matmul(Form::Nt, 900, 500, 5), 2),
        Case::new(matmul(Form::Nn, 700, 9, 500), 3),
        Case::new(matmul(Form::Nn, 9, 700, 500), 4),
        Case::new(matmul(Form::Nt, 9, 700, 500), 5),
        Case::new(matmul(Form::Tn, 40, 30, 9000), 6),
        Case::new(Op::Embedding(embedding), 7).input(0, tokens(3000)).tolerance(0.0),
        Case::new(Op::EmbeddingGrad(embedding_grad), 8).input(0, tokens(3000)).tolerance(0.0),
        Case::new(Op::RmsNorm(RmsNorm { rows: 1000, dim: 300, eps: 1e-5 }), 9),
        Case::new(
            Op::RmsNormGradWeight(RmsNormGradWeight { rows: 9000, dim: 60, accumulate: false }),
            10,
        ),
        Case::new(Op::SwiGlu(SwiGlu { rows: 900, ffn: 200 }), 11),
        Case::new(Op::LossStats(LossStats { rows: 90, vocab_start: 0, vocab_len: 4000 }), 12)
            .input(1, Random::new(2).integers(90, 0, 4000)),
        Case::new(Op::LossGrad(LossGrad { rows: 90, vocab_start: 0, vocab_len: 4000 }), 13)
            .input(1, Random::new(2).integers(90, 0, 4000)),
        Case::new(
            Op::SumRanks(SumRanks { ranks: 8, own: Some(2), len: MIB + 9, accumulate: false }),
            14,
        )
        .tolerance(0.0),
        Case::new(
            Op::SquaredNorm(SquaredNorm { len: 3 * MIB, guard: false, accumulate: false }),
            15,
        ),
    ];
    assert_twins(&mut device, &cases);

    // What cannot be cut is refused with the limit.
    let heads = Heads {
        seq: 200,
        batch: 10,
        heads: 2,
        kv_heads: 2,
        head_dim: 32,
        group: 1,
        first_head: 0,
        first_kv_head: 0,
    };
    for (case, word) in [
        (Case::new(Op::Attention(Attention { heads }), 1), "attention"),
        (Case::new(Op::RmsNorm(RmsNorm { rows: 1, dim: MIB + 1, eps: 1e-5 }), 1), "a row"),
    ] {
        let bench = Bench::of(&[case], 0);
        let error = device.load(0, &bench.plan, &[Rank(0)]).unwrap_err().to_string();
        assert!(error.contains("max_storage_buffer_binding_size"), "{error}");
        assert!(error.contains(word) && error.contains("rank 0, instruction 0"), "{error}");
    }
}

#[test]
fn more_than_65535_workgroups_are_spread_over_dispatches() {
    let Some(mut device) = shared() else { return };
    // One workgroup a row; one workgroup for 256 elements.
    let rows = Case::new(Op::RmsNorm(RmsNorm { rows: 70_000, dim: 3, eps: 1e-5 }), 1);
    let grid = Case::new(Op::SwiGlu(SwiGlu { rows: 66_000, ffn: 2 }), 2);
    for case in [rows, grid] {
        for (got, expected) in run(&mut device, &case).iter().zip(case.expected()) {
            let wrong = got.iter().zip(&expected).position(|(a, b)| (a - b).abs() > 1e-5);
            assert_eq!(wrong, None, "{}", case.op);
        }
    }
    let len = 65_536 * 256 + 5;
    let case = Case {
        op: Op::Fill(Fill { len, value: 2.0 }),
        inputs: vec![],
        outputs: vec![vec![0.0; len as usize]],
        tolerance: 0.0,
    };
    assert!(run(&mut device, &case)[0].iter().all(|&x| x == 2.0));
}

/// Longer sums than the 65,535 trips that some software adapters run.
#[test]
fn long_loops_are_not_cut_short() {
    let Some(mut device) = shared() else { return };
    let ones = |case: Case| {
        let inputs = case.inputs.iter().map(|input| vec![1.0; input.len()]).collect();
        Case { inputs, ..case }
    };
    let k = 140_000;
    let product = Matmul { form: Form::Tn, m: 2, n: 3, k, accumulate: false };
    let got = run(&mut device, &ones(Case::new(Op::Matmul(product), 1)));
    assert_eq!(got[0], [k as f32; 6]);
    let norm = RmsNormGradWeight { rows: 600_000, dim: 1, accumulate: false };
    let got = run(&mut device, &ones(Case::new(Op::RmsNormGradWeight(norm), 1)));
    assert_eq!(got[0], [600_000.0]);
}
