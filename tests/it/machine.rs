//! Runs drawn specs on the host pool, the way the product does, and keeps all that can be compared.

use std::sync::Arc;

use shardlab::checkpoint::{Tensor, Tensors, pieces};
use shardlab::exec::{Crossed, ExecError, ExecOptions, Executor, PlanId, StepInput};
use shardlab::plan::{Held, Plan, View};
use shardlab::planner::{StepSpec, plan_step};
use shardlab::trace::Trace;

use crate::equivalence::{batch, weights};
use crate::interpreter::Batch;

/// What a few steps leave behind.
#[derive(Debug)]
pub(crate) struct Trained {
    /// Loss and norm of each step.
    pub(crate) scalars: Vec<f64>,
    /// Gradients of the first step.
    pub(crate) gradients: Tensors,
    pub(crate) weights: Tensors,
    pub(crate) crossed: Crossed,
    pub(crate) instructions: u64,
    /// Bytes allocated for each rank.
    pub(crate) allocated: Vec<u64>,
    /// Of the last step.
    pub(crate) trace: Trace,
    /// The first copy of a weight, gradient or moment that differs from another one in a bit.
    pub(crate) copies_differ: Option<String>,
}

/// An executor with a loaded Plan and drawn weights.
pub(crate) fn machine(
    plan: Plan,
    spec: &StepSpec,
    seed: u64,
    options: ExecOptions,
) -> Result<(Executor, PlanId), ExecError> {
    let plan = Arc::new(plan);
    let mut executor = Executor::on_host(plan.mesh.size(), options);
    let id = executor.load(Arc::clone(&plan))?;
    let shapes = spec.model.tensors().into_iter();
    let tensors: Tensors = weights(spec, seed)
        .into_iter()
        .map(|(name, data)| {
            let (_, shape) = shapes.clone().find(|(other, _)| *other == name).unwrap();
            (name, Tensor { shape, data })
        })
        .collect();
    let write = &mut |view: View, values: &[f32]| executor.write(id, view, values).unwrap();
    pieces::scatter(&plan, Held::Weight, &tensors, write).unwrap();
    Ok((executor, id))
}

pub(crate) fn gather(executor: &mut Executor, id: PlanId, held: Held) -> Tensors {
    let plan = Arc::clone(executor.plan(id));
    pieces::gather(&plan, held, &mut |view| executor.read(id, view).unwrap())
}

/// Runs a step a batch of a Plan for `spec`, whatever comes out.
pub(crate) fn attempt(
    plan: Plan,
    spec: &StepSpec,
    seed: u64,
    options: ExecOptions,
    batches: &[Batch],
) -> Result<Trained, ExecError> {
    let (mut executor, id) = machine(plan, spec, seed, options)?;
    let (mut scalars, mut gradients, mut last) = (Vec::new(), None, None);
    for (step, batch) in (0..).zip(batches) {
        let input = StepInput {
            tokens: &batch.tokens,
            labels: &batch.labels,
            seq: batch.seq,
            lr: batch.lr,
            bias_corrections: batch.bias_corrections,
        };
        let output = executor.run(id, step, &input)?;
        scalars.extend([output.loss, output.grad_norm]);
        gradients.get_or_insert_with(|| gather(&mut executor, id, Held::Gradient));
        last = Some(output);
    }
    let last = last.expect("at least one step");
    let plan = Arc::clone(executor.plan(id));
    let all = [Held::Weight, Held::Gradient, Held::Moment1, Held::Moment2];
    let copies_differ = all.into_iter().find_map(|held| {
        let read = &mut |view| executor.read(id, view).unwrap();
        pieces::replica_difference(&plan, held, read).map(|difference| difference.to_string())
    });
    Ok(Trained {
        scalars,
        gradients: gradients.expect("at least one step"),
        weights: gather(&mut executor, id, Held::Weight),
        crossed: last.crossed,
        instructions: last.instructions,
        allocated: plan.mesh.ranks().map(|rank| executor.allocated(rank).0).collect(),
        trace: last.trace,
        copies_differ,
    })
}

/// The batches of the first so many steps.
pub(crate) fn batches(spec: &StepSpec, seed: u64, steps: u64) -> Vec<Batch> {
    (0..steps).map(|step| batch(spec, seed + step)).collect()
}

/// Runs `steps` steps of a Plan for `spec`; all copies must stay equal.
pub(crate) fn run(
    plan: Plan,
    spec: &StepSpec,
    seed: u64,
    options: ExecOptions,
    steps: u64,
) -> Result<Trained, ExecError> {
    let trained = attempt(plan, spec, seed, options, &batches(spec, seed, steps))?;
    if let Some(difference) = &trained.copies_differ {
        panic!("copies differ: {difference}");
    }
    Ok(trained)
}

pub(crate) fn train(spec: &StepSpec, seed: u64) -> Trained {
    let plan = plan_step(spec).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    run(plan, spec, seed, ExecOptions::default(), 2).unwrap()
}

/// max|Δ| / max|reference| of the worst tensor, with its name.
pub(crate) fn difference(reference: &Tensors, other: &Tensors) -> (f64, String) {
    let plain = |tensors: &Tensors| {
        tensors.iter().map(|(name, tensor)| (name.clone(), tensor.data.clone())).collect()
    };
    crate::equivalence::difference(&plain(reference), &plain(other))
}

/// Whether two sets of tensors have the same bits.
pub(crate) fn same_bits(a: &Tensors, b: &Tensors) -> Result<(), String> {
    assert!(a.keys().eq(b.keys()), "the same tensors");
    for (name, tensor) in a {
        let bits = |tensor: &Tensor| tensor.data.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        if bits(tensor) != bits(&b[name]) {
            return Err(name.clone());
        }
    }
    Ok(())
}
