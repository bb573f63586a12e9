//! Holds a layout against one rank, or against a reference case that was trained elsewhere.

use serde::Serialize;

use super::session::{Options, Session, StepReport};
use super::{DeviceRequest, TrainError};
use crate::checkpoint::{Golden, Tensors};
use crate::config::{Data, Layout, Model, ModelSource, OptimizerKind, Scenario, Training};
use crate::data::{Batch, Dataset};
use crate::exec::ExecOptions;
use crate::exec::device::DeviceKind;
use crate::plan::Held;

/// How far a layout is from its reference. Relative differences of a tensor are
/// max|Δ| / max|reference|; what was not compared is not a number.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verification {
    /// Whether all steps were compared and every difference is within its tolerance.
    pub pass: bool,
    /// Largest relative difference of a step's loss.
    pub loss_rel_max: f64,
    /// Largest relative difference of a step's gradient norm.
    pub grad_norm_rel_max: f64,
    /// Largest relative difference of a gradient of the first step.
    pub grad_rel_max: f64,
    /// Largest relative difference of a weight after the last step.
    pub final_rel_max: f64,
    /// The first tensor (in model order) or scalar beyond its tolerance.
    pub first_difference: Option<String>,
    /// The first gradient, else weight, beyond its tolerance, in model order.
    pub first_tensor: Option<String>,
    /// Steps that were trained.
    pub steps: u64,
    /// Allowed: losses, norms and gradients; final weights.
    pub tolerance: [f64; 2],
}

/// Settings of the check that `verify` and the quickstart make: three steps of plain SGD.
pub fn checked_training(training: &Training) -> Training {
    Training {
        steps: 3,
        optimizer: OptimizerKind::Sgd,
        lr: 0.1,
        warmup: 0,
        lr_min_ratio: 1.0,
        clip_norm: 0.0,
        ..training.clone()
    }
}

/// What a run of a few steps leaves behind.
#[derive(Default)]
struct Outcome {
    losses: Vec<f64>,
    norms: Vec<f64>,
    /// Of the first step.
    gradients: Tensors,
    /// After the last step.
    weights: Tensors,
}

impl Outcome {
    fn record(&mut self, session: &mut Session, report: &StepReport) -> Result<(), TrainError> {
        self.losses.push(report.loss);
        self.norms.push(report.grad_norm);
        if report.step == 0 {
            self.gradients = session.tensors(Held::Gradient)?;
        }
        Ok(())
    }
}

/// Trains the layout of `scenario` and one rank side by side, with the scenario's own settings.
///
/// # Errors
/// If either cannot be trained.
pub fn against_one_rank(
    scenario: &Scenario,
    devices: &DeviceRequest,
    exec: &ExecOptions,
) -> Result<Verification, TrainError> {
    against_one_rank_while(scenario, devices, exec, &mut || true)
}

/// As [`against_one_rank`], as long as `go_on` says so before a step.
///
/// # Errors
/// If either cannot be trained.
pub fn against_one_rank_while(
    scenario: &Scenario,
    devices: &DeviceRequest,
    exec: &ExecOptions,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Verification, TrainError> {
    let options = Options { devices: devices.clone(), exec: exec.clone(), ..Options::default() };
    let session = Session::start(scenario.clone(), options.clone())?;
    beside_one_rank(session, options, go_on)
}

/// Trains a session that has just started beside one rank without faults, which starts from the
/// same weights and data: those of `options`.
///
/// # Errors
/// If either cannot be trained.
pub(super) fn beside_one_rank(
    mut session: Session,
    options: Options,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Verification, TrainError> {
    let scenario = session.scenario().clone();
    let single = Scenario { layout: Layout::default(), ..scenario.clone() };
    let Options { weights, dataset, .. } = options;
    let mut one_rank = Session::start(single, Options { weights, dataset, ..Options::on_cpu() })?;
    let (mut reference, mut other) = (Outcome::default(), Outcome::default());
    for _ in 0..scenario.training.steps {
        if !go_on() {
            break;
        }
        let report = one_rank.step()?;
        reference.record(&mut one_rank, &report)?;
        let report = session.step()?;
        other.record(&mut session, &report)?;
    }
    reference.weights = one_rank.tensors(Held::Weight)?;
    other.weights = session.tensors(Held::Weight)?;
    let tolerance = tolerance(scenario.training.optimizer, &session);
    let steps = scenario.training.steps;
    Ok(compare(session.model(), (&reference, steps), &other, tolerance))
}

/// Trains a reference case with `layout` and compares with what PyTorch got.
///
/// # Errors
/// If the case cannot be trained with this layout.
pub fn against_golden(
    golden: &Golden,
    layout: &Layout,
    devices: &DeviceRequest,
    exec: &ExecOptions,
) -> Result<Verification, TrainError> {
    against_golden_while(golden, layout, devices, exec, &mut || true)
}

/// As [`against_golden`], as long as `go_on` says so before a step.
///
/// # Errors
/// If the case cannot be trained with this layout.
pub fn against_golden_while(
    golden: &Golden,
    layout: &Layout,
    devices: &DeviceRequest,
    exec: &ExecOptions,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Verification, TrainError> {
    let scenario = Scenario {
        name: golden.name.clone(),
        model: ModelSource::Sizes(golden.model.clone()),
        layout: layout.clone(),
        training: golden.training.clone(),
        data: Data::default(),
    };
    let batches: Vec<Batch> = golden
        .steps
        .iter()
        .map(|step| Batch {
            tokens: step.tokens.clone(),
            labels: step.labels.clone(),
            rows: (0..golden.training.batch).collect(),
        })
        .collect();
    let tokens = batches.iter().flat_map(|batch| &batch.tokens).map(|token| token.unsigned_abs());
    let dataset = Dataset::from_tokens(golden.name.clone(), &tokens.collect::<Vec<u32>>());
    let options = Options {
        devices: devices.clone(),
        exec: exec.clone(),
        weights: Some(golden.weights.clone()),
        dataset: Some(dataset),
        ..Options::default()
    };
    let mut session = Session::start(scenario, options)?;
    let mut other = Outcome::default();
    for batch in &batches {
        if !go_on() {
            break;
        }
        let report = session.step_on(batch)?;
        other.record(&mut session, &report)?;
    }
    other.weights = session.tensors(Held::Weight)?;
    let done = other.losses.len();
    // The case knows its weights after the last step only.
    let is_whole = done == golden.steps.len();
    let reference = Outcome {
        losses: golden.steps[..done].iter().map(|step| step.loss).collect(),
        norms: golden.steps[..done].iter().map(|step| step.grad_norm).collect(),
        gradients: golden.gradients.clone(),
        weights: if is_whole { golden.final_weights.clone() } else { Tensors::new() },
    };
    let tolerance = tolerance(golden.training.optimizer, &session);
    let steps = golden.steps.len() as u64;
    Ok(compare(&golden.model, (&reference, steps), &other, tolerance))
}

/// Allowed differences: losses, norms and gradients; final weights.
fn tolerance(optimizer: OptimizerKind, session: &Session) -> [f64; 2] {
    let on_host = session.devices().iter().all(|device| device.kind == DeviceKind::Host);
    let times = if on_host { 1.0 } else { 10.0 };
    // Adam divides tiny gradients by their own size: PyTorch's own f32 is up to 4e-4 away.
    let weights = match optimizer {
        OptimizerKind::AdamW => 5e-3,
        OptimizerKind::Sgd => 1e-5,
    };
    [1e-5 * times, weights * times]
}

fn compare(
    model: &Model,
    (reference, steps): (&Outcome, u64),
    other: &Outcome,
    tolerance: [f64; 2],
) -> Verification {
    let tensors = |reference: &Tensors, other: &Tensors| {
        let compared = !(reference.is_empty() || other.is_empty());
        if compared { tensor_differences(model, reference, other) } else { Vec::new() }
    };
    let [allowed, allowed_weights] = tolerance;
    let scalars = |a: &[f64], b: &[f64]| -> Vec<(String, f64)> {
        let pairs = a.iter().zip(b).enumerate();
        pairs.map(|(step, (a, b))| (format!("of step {step}"), (a - b).abs() / a.abs())).collect()
    };
    let mut beyond = Vec::new();
    let losses = scalars(&reference.losses, &other.losses);
    let loss_rel_max = largest(&mut beyond, "loss", losses, allowed);
    let norms = scalars(&reference.norms, &other.norms);
    let grad_norm_rel_max = largest(&mut beyond, "gradient norm", norms, allowed);
    let scalar_count = beyond.len();
    let gradients = tensors(&reference.gradients, &other.gradients);
    let grad_rel_max = largest(&mut beyond, "gradient of", gradients, allowed);
    let weights = tensors(&reference.weights, &other.weights);
    let final_rel_max = largest(&mut beyond, "weight", weights, allowed_weights);
    Verification {
        pass: beyond.is_empty() && reference.losses.len() as u64 == steps,
        loss_rel_max,
        grad_norm_rel_max,
        grad_rel_max,
        final_rel_max,
        first_tensor: beyond.get(scalar_count).cloned(),
        first_difference: beyond.into_iter().next(),
        steps: reference.losses.len() as u64,
        tolerance,
    }
}

/// The largest of some differences, not a number without any; those that are not allowed go into
/// `beyond`, in words.
fn largest(
    beyond: &mut Vec<String>,
    what: &str,
    differences: Vec<(String, f64)>,
    allowed: f64,
) -> f64 {
    let mut max = if differences.is_empty() { f64::NAN } else { 0.0 };
    for (name, difference) in differences {
        // A difference that is not a number is the largest of all.
        if difference.is_nan() || difference > max {
            max = if difference.is_nan() { f64::INFINITY } else { difference };
        }
        if difference.is_nan() || difference > allowed {
            beyond.push(format!("{what} {name}: {difference:.1e} (allowed {allowed:.0e})"));
        }
    }
    max
}

/// max|Δ| / max|reference| of every tensor, in model order; a missing one is not a number.
pub(super) fn tensor_differences(
    model: &Model,
    reference: &Tensors,
    other: &Tensors,
) -> Vec<(String, f64)> {
    let difference = |name: &String| {
        let (Some(a), Some(b)) = (reference.get(name), other.get(name)) else { return f64::NAN };
        let largest = a.data.iter().fold(0.0, |max: f32, x| max.max(x.abs()));
        let deltas = a.data.iter().zip(&b.data).map(|(x, y)| (f64::from(*x) - f64::from(*y)).abs());
        let delta =
            deltas.fold(
                0.0,
                |max: f64, d| if max.is_nan() || d.is_nan() { f64::NAN } else { max.max(d) },
            );
        if delta == 0.0 { 0.0 } else { delta / f64::from(largest) }
    };
    let tensors = model.tensors().into_iter();
    tensors.map(|(name, _)| (name.clone(), difference(&name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario() -> Scenario {
        let mut scenario = Scenario::quickstart();
        scenario.model = ModelSource::Preset("tiny".into());
        scenario.training =
            checked_training(&Training { batch: 8, seq: 8, ..scenario.training.clone() });
        scenario
    }

    #[test]
    fn an_interrupted_check_compares_what_was_trained_and_does_not_pass() {
        let mut asked = 0;
        let mut go_on = || {
            asked += 1;
            asked <= 2
        };
        let (cpu, exec) = (DeviceRequest::cpu(), ExecOptions::default());
        let found = against_one_rank_while(&scenario(), &cpu, &exec, &mut go_on).unwrap();
        assert_eq!((found.steps, found.pass, found.first_difference), (2, false, None));
        assert!(found.final_rel_max <= found.tolerance[1] && found.loss_rel_max <= 1e-5);
        let nothing = against_one_rank_while(&scenario(), &cpu, &exec, &mut || false).unwrap();
        assert!(nothing.loss_rel_max.is_nan() && nothing.grad_rel_max.is_nan());
        assert!(!nothing.pass);
    }
}
