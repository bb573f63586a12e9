//! Goal: a gradient is the same number whatever the cut. Method: layouts that single out one cause
//! each, against one rank.

use shardlab::config::{Layout, Model, OptimizerKind, Training, ZeroStage};
use shardlab::exec::ExecOptions;
use shardlab::planner::{StepSpec, plan_step};

use super::{assert_close, assert_trains_like_one_rank, model, sgd, spec};
use crate::layouts::unsplit;
use crate::machine::{attempt, batches, run, same_bits, train};

const STAGES: [ZeroStage; 4] =
    [ZeroStage::Zero0, ZeroStage::Zero1, ZeroStage::Zero2, ZeroStage::Zero3];

#[test]
fn a_gradient_does_not_depend_on_how_the_batch_is_cut() {
    let one = train(&spec(model(), Layout::default(), sgd(32, 6)), 1);
    for pp in [1, 2] {
        for microbatches in [1, 2, 4, 16, 32] {
            let layout = Layout { pp, microbatches, ..Layout::default() };
            let cut = train(&spec(model(), layout, sgd(32, 6)), 1);
            assert_close(&one, &cut, &format!("pp {pp}, {microbatches} microbatches"));
        }
    }
}

#[test]
fn many_rounds_of_accumulation_are_added_once_and_scaled_once() {
    // Four rounds of a pipeline that is filled with two microbatches; six steps show a scale that
    // is applied again in each of them.
    for zero in STAGES {
        let layout = Layout { dp: 2, pp: 2, microbatches: 8, zero, ..Layout::default() };
        let spec = spec(model(), layout, Training { lr: 0.3, ..sgd(32, 5) });
        let steps = |spec: &StepSpec| {
            run(plan_step(spec).unwrap(), spec, 2, ExecOptions::default(), 6).unwrap()
        };
        assert_close(&steps(&unsplit(&spec)), &steps(&spec), &format!("ZeRO {zero}"));
    }
}

#[test]
fn the_loss_is_the_mean_over_the_labels_that_count_wherever_they_lie() {
    let training = sgd(8, 6);
    // Seven labels count, none of them in the second half of the batch.
    let counts = [0, 1, 5, 9, 10, 17, 20];
    for (dp, pp, microbatches) in [(1, 2, 1), (1, 2, 2), (2, 2, 2), (4, 1, 2), (2, 1, 4)] {
        let layout = Layout { dp, pp, microbatches, ..Layout::default() };
        let spec = spec(model(), layout, training.clone());
        let trained = |spec: &StepSpec| {
            let mut batches = batches(spec, 3, 2);
            for batch in &mut batches {
                for (index, label) in batch.labels.iter_mut().enumerate() {
                    *label = if counts.contains(&index) { batch.tokens[index] } else { -100 };
                }
            }
            let plan = plan_step(spec).unwrap();
            attempt(plan, spec, 3, ExecOptions::default(), &batches).unwrap()
        };
        let (one, many) = (trained(&unsplit(&spec)), trained(&spec));
        assert_close(&one, &many, &format!("{:?}", spec.layout));
        // A mean over seven labels, not a sum: about ln(vocabulary).
        assert!((2.0..6.0).contains(&many.scalars[0]), "{:?}", many.scalars);
    }
}

#[test]
fn norms_under_sequence_parallel_get_the_gradient_of_all_positions() {
    for (tp, seq) in [(2, 6), (2, 5), (4, 7)] {
        let layout = Layout { tp, sequence_parallel: true, ..Layout::default() };
        let spec = spec(model(), layout, sgd(3, seq));
        // That the copies of all ranks have equal bits is checked too.
        let many = assert_trains_like_one_rank(&spec, 4);
        let norms = many.gradients.iter().filter(|(name, _)| name.ends_with("norm.weight"));
        let norms: Vec<_> = norms.collect();
        assert_eq!(norms.len(), 5);
        for (name, tensor) in norms {
            assert!(tensor.data.iter().all(|x| *x != 0.0), "{name} has a gradient: {tensor:?}");
        }
    }
}

#[test]
fn what_tensor_ranks_replicate_gets_the_gradient_of_all_its_consumers() {
    // Norms and residuals are whole on every tensor rank and feed the slices of all; a key head
    // feeds query heads of several ranks.
    for (tp, key_heads) in [(2, 4), (4, 4), (4, 2), (2, 1), (4, 1)] {
        let model = Model { num_key_value_heads: key_heads, ..model() };
        let layout = Layout { tp, ..Layout::default() };
        let spec = spec(model, layout, sgd(4, 6));
        let (one, many) = (train(&unsplit(&spec), 5), train(&spec, 5));
        for (name, tensor) in &one.gradients {
            let largest = tensor.data.iter().fold(0.0, |max: f32, x| max.max(x.abs()));
            for (a, b) in tensor.data.iter().zip(&many.gradients[name].data) {
                assert!((a - b).abs() <= 1e-5 * largest, "tp {tp}: {name}: {a} is not {b}");
            }
        }
    }
}

#[test]
fn fewer_key_heads_than_tensor_ranks_are_replicated_and_summed() {
    for (key_heads, tp) in [(2, 4), (1, 4), (1, 2), (2, 8), (4, 8)] {
        let (heads, head_dim) = (8, 2);
        let model = Model {
            num_key_value_heads: key_heads,
            num_attention_heads: heads,
            head_dim,
            ..model()
        };
        for zero in [ZeroStage::Zero0, ZeroStage::Zero2] {
            let layout = Layout { dp: 2, tp, zero, microbatches: 2, ..Layout::default() };
            assert_trains_like_one_rank(&spec(model.clone(), layout, sgd(4, 5)), 6);
        }
    }
}

#[test]
fn every_mesh_of_up_to_sixteen_ranks_and_every_zero_stage_trains_like_one_rank() {
    let mut ran = 0;
    let one = train(&spec(model(), Layout::default(), sgd(16, 4)), 7);
    for dp in 1..=16 {
        for tp in [1, 2, 4].into_iter().filter(|tp| dp * tp <= 16) {
            for pp in (1..=4).filter(|pp| dp * tp * pp <= 16) {
                let stages = if dp == 1 { &STAGES[..1] } else { &STAGES };
                for &zero in stages {
                    let sequence_parallel = (dp + pp) % 2 == 0;
                    let layout =
                        Layout { dp, tp, pp, zero, sequence_parallel, ..Layout::default() };
                    let many = train(&spec(model(), layout, sgd(16, 4)), 7);
                    assert_close(&one, &many, &format!("{dp}×{tp}×{pp}, ZeRO {zero}"));
                    ran += 1;
                }
            }
        }
    }
    assert_eq!(ran, 57 + 3 * 45);
}

#[test]
fn the_global_norm_counts_every_parameter_once_on_every_mesh() {
    for tie_word_embeddings in [false, true] {
        let model = Model { tie_word_embeddings, num_key_value_heads: 2, ..model() };
        let clipped = Training { clip_norm: 0.05, ..sgd(4, 6) };
        let one = train(&spec(model.clone(), Layout::default(), clipped.clone()), 8);
        for bits in 0..8 {
            let [dp, tp, pp] = [1, 2, 4].map(|bit| if bits & bit == 0 { 1 } else { 2 });
            for sequence_parallel in [false, true] {
                let layout = Layout { dp, tp, pp, sequence_parallel, ..Layout::default() };
                let many = train(&spec(model.clone(), layout, clipped.clone()), 8);
                let (norm, reference) = (many.scalars[1], one.scalars[1]);
                assert!(reference > 0.05, "the limit binds: {reference}");
                let off = (norm - reference).abs() / reference;
                assert!(off <= 1e-6, "{dp}×{tp}×{pp}: {norm} is not {reference}");
                assert_close(&one, &many, &format!("{dp}×{tp}×{pp}, clipped"));
            }
        }
    }
}

#[test]
fn every_zero_stage_reports_the_same_norm() {
    for clip_norm in [0.0, 0.05] {
        let norms = STAGES.map(|zero| {
            let layout = Layout { dp: 4, zero, microbatches: 2, ..Layout::default() };
            let spec = spec(model(), layout, Training { clip_norm, ..sgd(8, 6) });
            train(&spec, 9).scalars[1]
        });
        for norm in norms {
            assert!((norm - norms[0]).abs() <= 1e-6 * norms[0], "{norms:?}");
        }
    }
}

#[test]
fn zero_stages_with_a_tied_table_and_accumulation_have_the_same_losses_for_twenty_steps() {
    let tied = Model { tie_word_embeddings: true, ..model() };
    for optimizer in [OptimizerKind::Sgd, OptimizerKind::AdamW] {
        let training = Training { lr: 0.05, optimizer, ..sgd(8, 6) };
        let runs = STAGES.map(|zero| {
            let layout = Layout { dp: 2, zero, microbatches: 4, ..Layout::default() };
            let spec = spec(tied.clone(), layout, training.clone());
            run(plan_step(&spec).unwrap(), &spec, 10, ExecOptions::default(), 20).unwrap()
        });
        // Adam divides by the gradient's own size: differences of rounding grow in its losses.
        let compared = if optimizer == OptimizerKind::Sgd { &STAGES[..] } else { &STAGES[..2] };
        for (run, zero) in runs.iter().zip(compared) {
            for (a, b) in runs[0].scalars.iter().zip(&run.scalars).step_by(2) {
                assert!((a - b).abs() <= 1e-5 * a, "ZeRO {zero}, {optimizer}: {a} is not {b}");
            }
        }
        assert_eq!(same_bits(&runs[0].weights, &runs[1].weights), Ok(()));
        assert_eq!(same_bits(&runs[2].weights, &runs[3].weights), Ok(()));
    }
}

#[test]
fn parameters_that_do_not_divide_by_the_ranks_are_not_counted_twice() {
    // Norms of three elements over four data ranks; no other length divides by four either.
    let odd = Model {
        vocab_size: 19,
        hidden_size: 3,
        intermediate_size: 5,
        num_attention_heads: 2,
        num_key_value_heads: 2,
        head_dim: 2,
        ..model()
    };
    for zero in STAGES {
        for (tp, sequence_parallel) in [(1, false), (2, true)] {
            let layout =
                Layout { dp: 4, tp, zero, sequence_parallel, bucket_bytes: 4, ..Layout::default() };
            let training = Training { lr: 0.1, ..sgd(5, 4) };
            assert_trains_like_one_rank(&spec(odd.clone(), layout, training), 11);
        }
    }
}

#[test]
fn rows_that_do_not_divide_by_microbatches_weigh_what_they_hold() {
    // 8 rows are cut 3, 3, 2; 7 rows over two ranks 4 and 3, then 2, 1, 1 and 1, 1, 1.
    for (batch, dp, pp) in [(8, 1, 1), (8, 1, 3), (7, 2, 1), (7, 2, 2)] {
        let layout = Layout { dp, pp, microbatches: 3, ..Layout::default() };
        assert_trains_like_one_rank(&spec(model(), layout, sgd(batch, 5)), 12);
    }
}
