//! Runs drawn specs on the host pool, the way the product does, and keeps all that can be compared.

use std::sync::Arc;

use shardlab::checkpoint::{Tensor, Tensors, pieces};
use shardlab::exec::{Crossed, ExecError, ExecOptions, Executor, PlanId, StepInput};
use shardlab::plan::{Held, Plan, View};
use shardlab::planner::{StepSpec, plan_step};

use crate::equivalence::{batch, weights};

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
}

/// An executor with a loaded Plan and drawn weights.
pub(crate) fn machine(
    plan: Plan,
    spec: &StepSpec,
    seed: u64,
    options: ExecOptions,
) -> (Executor, PlanId) {
    let plan = Arc::new(plan);
    let mut executor = Executor::on_host(plan.mesh.size(), options);
    let id = executor.load(Arc::clone(&plan)).unwrap();
    let tensors: Tensors = weights(spec, seed)
        .into_iter()
        .zip(&plan_step(&crate::layouts::unsplit(spec)).unwrap().tensors)
        .map(|((name, data), _)| {
            let logical = plan.tensors.iter().find(|tensor| tensor.name == name).unwrap();
            (name, Tensor { shape: logical.shape.clone(), data })
        })
        .collect();
    let write = &mut |view: View, values: &[f32]| executor.write(id, view, values).unwrap();
    pieces::scatter(&plan, Held::Weight, &tensors, write).unwrap();
    (executor, id)
}

pub(crate) fn gather(executor: &mut Executor, id: PlanId, held: Held) -> Tensors {
    let plan = Arc::clone(executor.plan(id));
    pieces::gather(&plan, held, &mut |view| executor.read(id, view).unwrap())
}

/// Runs `steps` steps of a Plan for `spec`.
pub(crate) fn run(
    plan: Plan,
    spec: &StepSpec,
    seed: u64,
    options: ExecOptions,
    steps: u64,
) -> Result<Trained, ExecError> {
    let (mut executor, id) = machine(plan, spec, seed, options);
    let (mut scalars, mut gradients, mut last) = (Vec::new(), None, None);
    for step in 0..steps {
        let batch = batch(spec, seed + step);
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
    for held in [Held::Weight, Held::Gradient] {
        let read = &mut |view| executor.read(id, view).unwrap();
        if let Some(difference) = pieces::replica_difference(&plan, held, read) {
            panic!("copies differ: {difference}");
        }
    }
    Ok(Trained {
        scalars,
        gradients: gradients.expect("at least one step"),
        weights: gather(&mut executor, id, Held::Weight),
        crossed: last.crossed,
        instructions: last.instructions,
        allocated: plan.mesh.ranks().map(|rank| executor.allocated(rank).0).collect(),
    })
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
