//! Goal: what PyTorch got. Method: the reference cases with one rank, read top to bottom.

use std::collections::BTreeMap;
use std::path::Path;

use shardlab::checkpoint::{Golden, Tensors};
use shardlab::config::Layout;
use shardlab::plan::Held;
use shardlab::planner::{Purpose, StepSpec, plan_step};

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
