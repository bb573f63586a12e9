//! The smallest whole Plan, written by hand: a product on rank 0, a message, an addition on rank 1.
//! A Plan is data, so it can be printed, checked before it runs, run, and broken on purpose.
//! Without its message the checker says what is missing, and the executor who waits for whom.

use std::error::Error;
use std::sync::Arc;

use shardlab::exec::{ExecError, ExecOptions, Executor, StepInput};
use shardlab::mesh::{Axis, Mesh, Rank, RankOrder};
use shardlab::ops::{Op, elementwise::Add, matmul};
use shardlab::plan::{Life, Plan, Role, Tag, check::check, mutate, text};
use shardlab::planner::program::{RankProgram, join};
use shardlab::shape::DType;

/// Y = X·Wᵀ on rank 0; Z = Y + B on rank 1. All matrices are 2 × 2.
fn two_ranks() -> Plan {
    let matrix = |p: &mut RankProgram, label: &str, life| {
        p.declare(label, Role::Activations, DType::F32, 4, life)
    };
    let mut first = RankProgram::new(Rank(0));
    let x = matrix(&mut first, "x", Life::Persistent);
    let w = matrix(&mut first, "w", Life::Persistent);
    let y = matrix(&mut first, "y", Life::Step);
    let product = matmul::Matmul { form: matmul::Form::Nt, m: 2, n: 2, k: 2, accumulate: false };
    first.launch(Op::Matmul(product), &[x, w], &[y]);
    first.send(Axis::Pp, y, Rank(1), Tag(7));

    let mut second = RankProgram::new(Rank(1));
    let b = matrix(&mut second, "b", Life::Persistent);
    let y = matrix(&mut second, "y", Life::Step);
    let z = matrix(&mut second, "z", Life::Persistent);
    second.recv(y, Rank(0), Tag(7));
    second.launch(Op::Add(Add { len: 4 }), &[y, b], &[z]);

    let mesh = Mesh { dp: 1, tp: 1, pp: 2, order: RankOrder::TpDpPp };
    join(mesh, Vec::new(), vec![first, second])
}

/// Runs a Plan on the CPU and reads Z.
fn run(plan: Plan) -> Result<Vec<f32>, ExecError> {
    let [x, w] = ["x", "w"].map(|label| plan.view(Rank(0), label));
    let [b, z] = ["b", "z"].map(|label| plan.view(Rank(1), label));
    let mut executor = Executor::on_host(plan.mesh.size(), ExecOptions::default());
    let id = executor.load(Arc::new(plan))?;
    executor.write(id, x, &[1.0, 2.0, 3.0, 4.0])?;
    executor.write(id, w, &[1.0, 0.0, 0.0, 10.0])?;
    executor.write(id, b, &[0.5; 4])?;
    let output = executor.run(id, 0, &StepInput::default())?;
    println!(
        "  Ran {} instructions; {} crossed from rank 0 to rank 1.",
        output.instructions,
        output.crossed.bytes()
    );
    executor.read(id, z)
}

fn main() -> Result<(), Box<dyn Error>> {
    let plan = two_ranks();
    println!("A Plan: the buffers of two ranks, then what each rank does: number, lane, action.\n");
    println!("{}", text::print(&plan));
    println!("The checker finds {} faults: no rank can wait for ever.", check(&plan).len());
    println!("With X = [1 2; 3 4], W = [1 0; 0 10] and B = 0.5 everywhere:");
    println!("  Z = X·Wᵀ + B = {:?}\n", run(plan.clone())?);

    let broken = mutate::drop_send(&plan, 0).ok_or("the Plan has a message")?;
    println!("Now a fault on purpose, which {}.", broken.description);
    for fault in check(&broken.plan) {
        println!("  The checker says:   {fault}");
    }
    match run(broken.plan) {
        Err(error) => println!("  The executor says:  {error}"),
        Ok(z) => return Err(format!("a Plan without its message gave {z:?}").into()),
    }
    println!(
        "\nA step in which nothing can go on is over: it is reported at once, without a time limit."
    );
    println!("\nNext: cargo run --release --example 02_split_gemm");
    Ok(())
}
