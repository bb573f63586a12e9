//! Inputs and outputs: how the batch, the scalars and the rotary table reach a rank, and how loss
//! and norm come back.

use super::programs::{declare, fill, join, programs, view_of};
use super::*;
use crate::ops::Scalar;
use crate::plan::{Input, Life, Output, Role};
use crate::shape::DType;

/// Two ranks: the first reads rows 0..2 of the batch, the second rows 2..3.
fn plan() -> crate::plan::Plan {
    let mut ranks = programs(2);
    for (program, (first_row, rows)) in ranks.iter_mut().zip([(0, 2), (2, 1)]) {
        let mut ints = |label: &str, input| {
            let len = 4 * rows;
            program.declare(label, Role::Workspace, DType::I32, len, Life::Input(input));
        };
        ints("tokens", Input::Tokens { first_row, rows });
        ints("labels", Input::Labels { first_row, rows });
        declare(program, "scalars", Scalar::COUNT, Life::Input(Input::Scalars));
        let (seq, head_dim, theta_bits) = (3, 4, 100f64.to_bits());
        let table = Input::RopeTable { seq, head_dim, theta_bits };
        declare(program, "table", seq * head_dim, Life::Input(table));
        let counted = program.rank.0 == 0;
        let loss = declare(program, "loss", 1, Life::Output(Output::LossSum { counted }));
        let norm = declare(program, "norm", 1, Life::Output(Output::SquaredNorm));
        program.launch(fill(1, 6.0), &[], &[loss]);
        program.launch(fill(1, 2.25), &[], &[norm]);
    }
    join(ranks)
}

const TOKENS: [i32; 12] = [0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23];
const LABELS: [i32; 12] = [1, 2, 3, -100, 11, 12, 13, -100, 21, 22, 23, 24];

fn input() -> StepInput<'static> {
    StepInput { tokens: &TOKENS, labels: &LABELS, seq: 4, lr: 0.5, bias_corrections: [0.1, 0.05] }
}

#[test]
fn each_rank_gets_its_rows_time_major_and_the_scalars_of_the_step() {
    let plan = plan();
    let (mut executor, id) = on_host(plan.clone(), 2);
    let out = executor.run(id, 0, &input()).unwrap();
    let read = |rank, label| executor.read(id, view_of(&plan, rank, label)).unwrap();
    assert_eq!(read(0, "tokens"), [0.0, 10.0, 1.0, 11.0, 2.0, 12.0, 3.0, 13.0]);
    assert_eq!(read(1, "tokens"), [20.0, 21.0, 22.0, 23.0]);
    assert_eq!(read(0, "labels"), [1.0, 11.0, 2.0, 12.0, 3.0, 13.0, -100.0, -100.0]);
    assert_eq!(read(1, "scalars"), [0.5, 0.1, 0.05, 0.1]);
    // Ten labels count, and only rank 0's sum.
    assert!((out.loss - 0.6).abs() < 1e-12);
    assert!((out.grad_norm - 1.5).abs() < 1e-12);
    let table = read(1, "table");
    assert_eq!(table[..4], [1.0, 0.0, 1.0, 0.0]);
    // Position 2: angles 2 and 2 · 100^(−1/2).
    let want = [2f64.cos(), 2f64.sin(), 0.2f64.cos(), 0.2f64.sin()].map(|x| x as f32);
    assert_eq!(table[8..], want);
}

#[test]
fn a_batch_without_labels_has_no_loss_and_divides_by_nothing() {
    let plan = plan();
    let (mut executor, id) = on_host(plan.clone(), 1);
    let labels = [-100; 12];
    let out = executor.run(id, 0, &StepInput { labels: &labels, ..input() }).unwrap();
    assert_eq!(out.loss, 0.0);
    assert_eq!(executor.read(id, view_of(&plan, 0, "scalars")).unwrap()[3], 0.0);
}

#[test]
fn batches_that_do_not_fit_are_refused_and_reads_outside_a_buffer_too() {
    let plan = plan();
    let (mut executor, id) = on_host(plan.clone(), 1);
    let mut refused = |input: StepInput<'_>| executor.run(id, 0, &input).unwrap_err().to_string();
    let text = refused(StepInput { tokens: &TOKENS[..8], labels: &LABELS[..8], ..input() });
    assert_eq!(
        text,
        "the batch: 2 rows, rank 1 reads row 3. Bring the batch that the Plan was made for"
    );
    let text = refused(StepInput { seq: 6, ..input() });
    assert!(text.contains("rows of 6 tokens where rank 0 was planned for 4"), "{text}");
    let text = refused(StepInput { labels: &LABELS[..3], ..input() });
    assert!(text.contains("12 tokens, 3 labels"), "{text}");
    let view = crate::plan::View { len: 99, ..view_of(&plan, 0, "loss") };
    assert!(executor.read(id, view).is_err());
    assert!(executor.write(id, view_of(&plan, 0, "loss"), &[1.0, 2.0]).is_err());
}
