//! Goal: what `PyTorch` got. Method: the reference cases with one rank, read top to bottom, and
//! with every layout of a list on the executor. Whether a pair of case and layout can run at all is
//! judged here from its sizes, independently of the planner.

use std::collections::BTreeMap;
use std::path::Path;

use shardlab::checkpoint::{Golden, Tensors};
use shardlab::config::{Layout, Recompute, ScheduleName, ZeroStage};
use shardlab::exec::ExecOptions;
use shardlab::plan::Held;
use shardlab::planner::{PlanError, Purpose, StepSpec, plan_step};
use shardlab::train::{DeviceRequest, TrainError, verify};

use crate::equivalence::difference;
use crate::interpreter::{Batch, Interpreter};

pub(crate) const CASES: [&str; 5] = ["plain", "gqa-tied", "uneven", "masked", "sgd-tied-masked"];

pub(crate) fn read(case: &str) -> Golden {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(case);
    Golden::read(&dir).unwrap()
}

fn plain(tensors: &Tensors) -> BTreeMap<String, Vec<f32>> {
    tensors.iter().map(|(name, tensor)| (name.clone(), tensor.data.clone())).collect()
}

#[test]
fn one_rank_read_top_to_bottom_trains_as_pytorch_does() {
    for case in CASES {
        let golden = read(case);
        let spec = StepSpec {
            model: golden.model.clone(),
            layout: Layout { microbatches: 2, ..Layout::default() },
            training: golden.training.clone(),
            purpose: Purpose::Train,
            device_kinds: Vec::new(),
        };
        let plan = plan_step(&spec).unwrap();
        let mut machine = Interpreter::new(&plan);
        machine.scatter(Held::Weight, &plain(&golden.weights));
        for (step, expected) in (0..).zip(&golden.steps) {
            let batch = Batch {
                tokens: expected.tokens.clone(),
                labels: expected.labels.clone(),
                seq: golden.training.seq,
                lr: golden.training.lr_at(step),
                bias_corrections: golden.training.bias_corrections(step),
            };
            let (loss, squared_norm) = machine.run(&batch);
            let relative = |a: f64, b: f64| ((a - b) / b).abs();
            assert!(relative(loss, expected.loss) <= 1e-5, "{case} step {step}: loss {loss}");
            let norm = squared_norm.sqrt();
            assert!(relative(norm, expected.grad_norm) <= 1e-5, "{case} step {step}: norm {norm}");
            if step == 0 {
                let (gradient, name) =
                    difference(&plain(&golden.gradients), &machine.gather(Held::Gradient));
                assert!(gradient <= 1e-5, "{case}: gradient of {name} is off by {gradient:e}");
            }
        }
        let (weight, name) =
            difference(&plain(&golden.final_weights), &machine.gather(Held::Weight));
        let allowed = if case.starts_with("sgd") { 1e-5 } else { 5e-3 };
        assert!(weight <= allowed, "{case}: {name} is off by {weight:e}");
    }
}

/// The layouts that every case is held against, by name.
fn layouts() -> Vec<(String, Layout)> {
    let base = || Layout { microbatches: 2, ..Layout::default() };
    let mut layouts = vec![
        ("1".into(), Layout::default()),
        ("dp 2".into(), Layout { dp: 2, ..base() }),
        ("dp 4".into(), Layout { dp: 4, ..base() }),
        ("dp 3".into(), Layout { dp: 3, ..base() }),
        ("tp 2".into(), Layout { tp: 2, ..base() }),
        ("tp 2, sp".into(), Layout { tp: 2, sequence_parallel: true, ..base() }),
        ("tp 3".into(), Layout { tp: 3, ..base() }),
        ("tp 3, sp".into(), Layout { tp: 3, sequence_parallel: true, ..base() }),
        ("pp 2".into(), Layout { pp: 2, ..base() }),
        ("pp 4".into(), Layout { pp: 4, microbatches: 4, ..base() }),
        ("pp 5".into(), Layout { pp: 5, microbatches: 4, ..base() }),
        ("2×2×2".into(), Layout { dp: 2, tp: 2, pp: 2, ..base() }),
    ];
    for zero in [ZeroStage::Zero1, ZeroStage::Zero2, ZeroStage::Zero3] {
        for dp in [2, 4] {
            layouts.push((format!("zero {zero}, dp {dp}"), Layout { dp, zero, ..base() }));
        }
    }
    for (schedule, pp, chunks) in [
        (ScheduleName::GPipe, 3, 1),
        (ScheduleName::OneFOneB, 3, 1),
        (ScheduleName::Interleaved1F1B, 2, 3),
        (ScheduleName::LoopedBfs, 2, 2),
        (ScheduleName::ZbH1, 4, 1),
        (ScheduleName::ZbH2, 3, 1),
        (ScheduleName::InterleavedZeroBubble, 3, 2),
        (ScheduleName::ZbV, 2, 2),
        (ScheduleName::DualPipeV, 2, 2),
    ] {
        let name = format!("{schedule}, {pp}·{chunks}");
        layouts.push((name, Layout { pp, chunks, schedule, microbatches: 4, ..base() }));
    }
    let zero_bubble = Layout { pp: 2, chunks: 2, schedule: ScheduleName::ZbV, ..base() };
    let (zero, recompute) = (ZeroStage::Zero3, Recompute::Full);
    let all = Layout { dp: 2, tp: 2, zero, recompute, sequence_parallel: true, ..zero_bubble };
    layouts.push(("zb-v, all axes".into(), all));
    for (dp, pp) in [(1, 1), (1, 2), (2, 1)] {
        for microbatches in [1, 2, 4, 8] {
            let name = format!("dp {dp}, pp {pp}, m {microbatches}");
            layouts.push((name, Layout { dp, pp, microbatches, ..base() }));
        }
    }
    for recompute in [Recompute::Selective, Recompute::Full] {
        let name = format!("recompute {recompute}");
        layouts.push((name, Layout { tp: 2, pp: 2, recompute, ..base() }));
    }
    layouts
}

/// Why a pair cannot run, from the sizes alone; `None` if it can.
fn reason_against(golden: &Golden, layout: &Layout) -> Option<&'static str> {
    let rows_least = golden.training.batch / layout.dp;
    if !golden.model.num_attention_heads.is_multiple_of(layout.tp) {
        Some("heads")
    } else if rows_least < layout.microbatches {
        Some("rows")
    } else if layout.pp * layout.chunks > golden.model.num_hidden_layers + 2 {
        Some("stages")
    } else {
        None
    }
}

/// The reason that a refusal gives.
fn reason_given(error: &TrainError) -> &'static str {
    match error {
        TrainError::Plan(PlanError::Heads { .. }) => "heads",
        TrainError::Plan(PlanError::TooFewRows { .. }) => "rows",
        TrainError::Plan(PlanError::TooManyStages { .. }) => "stages",
        other => panic!("this is no refusal: {other}"),
    }
}

#[test]
fn every_layout_trains_as_pytorch_does_or_is_refused_with_reason() {
    let goldens = CASES.map(read);
    let (mut ran, mut matrix) = (0, format!("{:28}", "largest gradient error"));
    for golden in &goldens {
        matrix += &format!("{:>17}", golden.name);
    }
    for (name, layout) in layouts() {
        matrix += &format!("\n{name:28}");
        for golden in &goldens {
            let (devices, exec) = (DeviceRequest::cpu(), ExecOptions::default());
            let result = verify::against_golden(golden, &layout, &devices, &exec);
            let against = reason_against(golden, &layout);
            match result {
                Ok(result) => {
                    assert_eq!(against, None, "{} ran with {name}", golden.name);
                    assert!(result.pass, "{} with {name}: {result:?}", golden.name);
                    assert!(result.tolerance[0] <= 1e-5, "{result:?}");
                    assert_eq!(result.steps, golden.steps.len() as u64);
                    ran += 1;
                    matrix += &format!("{:>17.1e}", result.grad_rel_max);
                }
                Err(error) => {
                    let given = reason_given(&error);
                    assert_eq!(Some(given), against, "{} with {name}: {error}", golden.name);
                    matrix += &format!("{:>17}", format!("no: {given}"));
                }
            }
        }
    }
    println!("{matrix}\n{ran} pairs ran");
    assert!(ran >= 60, "{ran} pairs of case and layout ran");
}

#[test]
fn a_wrong_reference_does_not_pass_and_the_first_tensor_is_named() {
    let mut golden = read("plain");
    let layout = Layout { dp: 2, tp: 2, ..Layout::default() };
    let check = |golden: &Golden| {
        let (devices, exec) = (DeviceRequest::cpu(), ExecOptions::default());
        verify::against_golden(golden, &layout, &devices, &exec).unwrap()
    };
    // Two wrong gradients: the first one in the order of the model, not of the alphabet.
    let name = "model.layers.1.mlp.up_proj.weight";
    for wrong in ["lm_head.weight", name] {
        let tensor = golden.gradients.get_mut(wrong).unwrap();
        let largest = tensor.data.iter().fold(0.0, |max: f32, x| max.max(x.abs()));
        tensor.data[5] += 5e-5 * largest;
    }
    let result = check(&golden);
    assert!(!result.pass);
    let first = result.first_difference.unwrap();
    assert!(first.starts_with(&format!("gradient of {name}: ")), "{first}");
    golden.steps[1].loss *= 1.0 + 5e-5;
    let first = check(&golden).first_difference.unwrap();
    assert!(first.starts_with("loss of step 1: "), "{first}");
}
