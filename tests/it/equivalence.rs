//! Goal: every layout trains the same model. Method: drawn layouts against one rank, two SGD steps,
//! with masked labels; the plan read top to bottom.

use std::collections::BTreeMap;

use shardlab::plan::Held;
use shardlab::plan::check::check;
use shardlab::planner::{StepSpec, plan_step};

use crate::interpreter::{Batch, Interpreter};
use crate::layouts::{Draw, draw_spec, unsplit};

type Tensors = BTreeMap<String, Vec<f32>>;

/// Weights that are anything but special: uniform, norms around one.
pub(crate) fn weights(spec: &StepSpec, seed: u64) -> Tensors {
    let mut draw = Draw(seed ^ 0xabcd);
    let mut uniform = |scale: f32| (draw.below(2001) as f32 / 1000.0 - 1.0) * scale;
    let tensors = spec.model.tensors().into_iter().map(|(name, shape)| {
        let norm = shape.0.len() == 1;
        let value = |_| if norm { 1.0 + uniform(0.2) } else { uniform(0.3) };
        (name, (0..shape.len()).map(value).collect())
    });
    tensors.collect()
}

pub(crate) fn batch(spec: &StepSpec, seed: u64) -> Batch {
    let mut draw = Draw(seed ^ 0x1234);
    let len = spec.training.batch * spec.training.seq;
    let vocab = u64::from(spec.model.vocab_size);
    let mut token = || i32::try_from(draw.below(vocab)).unwrap();
    let tokens = (0..len).map(|_| token()).collect();
    let labels = (0..len).map(|i| if i % 5 == 2 { -100 } else { token() }).collect();
    let bias_corrections = [0.1, 0.05];
    Batch { tokens, labels, seq: spec.training.seq, lr: spec.training.lr, bias_corrections }
}

/// max|Δ| / max|reference| of the worst tensor, with its name.
pub(crate) fn difference(reference: &Tensors, other: &Tensors) -> (f64, String) {
    assert!(reference.keys().eq(other.keys()), "the same tensors");
    let mut worst = (0.0, String::new());
    for (name, a) in reference {
        let largest = a.iter().fold(1e-12, |m: f32, x| m.max(x.abs()));
        for (x, y) in a.iter().zip(&other[name]) {
            let relative = f64::from((x - y).abs() / largest);
            if relative > worst.0 || relative.is_nan() {
                worst = (relative, name.clone());
            }
        }
    }
    worst
}

#[test]
fn the_checker_finds_nothing_in_drawn_plans() {
    for seed in 0..200 {
        let spec = draw_spec(seed, 16);
        let plan = plan_step(&spec).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let faults: Vec<String> = check(&plan).iter().map(ToString::to_string).collect();
        assert!(
            faults.is_empty(),
            "seed {seed}: {:?}\n{}",
            spec.layout,
            faults[..faults.len().min(8)].join("\n")
        );
    }
}

struct Trained {
    losses: Vec<f64>,
    gradients: Tensors,
    weights: Tensors,
}

fn train(spec: &StepSpec, seed: u64) -> Trained {
    let plan = plan_step(spec).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    let mut machine = Interpreter::new(&plan);
    machine.scatter(Held::Weight, &weights(spec, seed));
    let mut losses = Vec::new();
    let mut gradients = None;
    for step in 0..2 {
        let (loss, norm) = machine.run(&batch(spec, seed + step));
        losses.extend([loss, norm]);
        gradients.get_or_insert_with(|| machine.gather(Held::Gradient));
    }
    let weights = machine.gather(Held::Weight);
    Trained { losses, gradients: gradients.unwrap(), weights }
}

#[test]
fn drawn_layouts_train_the_same_model_as_one_rank() {
    for seed in 0..60 {
        let spec = draw_spec(seed, 12);
        let one = train(&unsplit(&spec), seed);
        let many = train(&spec, seed);
        let context = format!("seed {seed}: {:?} {:?}", spec.layout, spec.model);
        for (a, b) in one.losses.iter().zip(&many.losses) {
            assert!((a - b).abs() <= 2e-5 * a.abs(), "{a} is not {b}; {context}");
        }
        let (gradient, name) = difference(&one.gradients, &many.gradients);
        assert!(gradient <= 1e-5, "gradient of {name}: {gradient:e}; {context}");
        let (weight, name) = difference(&one.weights, &many.weights);
        assert!(weight <= 1e-5, "{name}: {weight:e}; {context}");
    }
}
