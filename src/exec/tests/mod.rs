//! Tests of the executor on hand-written Plans: what runs, in which order, and what is said when
//! it cannot.
//!
//! `programs` writes Plans, `loopback` is a device without a GPU.

mod devices;
mod faults;
mod io;
mod loopback;
mod programs;
mod steps;
mod stress;

use super::*;

/// A step without a batch.
fn nothing() -> StepInput<'static> {
    StepInput { tokens: &[], labels: &[], seq: 0, lr: 0.0, bias_corrections: [1.0; 2] }
}

/// Options with a number of workers.
fn threads(count: usize) -> ExecOptions {
    ExecOptions { threads: Some(count), ..ExecOptions::default() }
}

/// A Plan loaded on the host with a number of workers.
fn on_host(plan: crate::plan::Plan, thread_count: usize) -> (Executor, PlanId) {
    let mut executor = Executor::on_host(plan.mesh.size(), threads(thread_count));
    let id = executor.load(std::sync::Arc::new(plan)).unwrap();
    (executor, id)
}
