//! All-reduce over four ranks, step by step: around a ring, then directly, with every chunk shown.
//! A collective is messages and additions in the Plan, so a Plan that is cut off after k steps shows
//! what each rank holds by then (ring: Patarasuk and Yuan, 2009).
//! All algorithms send the same bytes, in more or fewer hops one after another.

use std::ops::Range;
use std::sync::Arc;

use shardlab::exec::{ExecError, ExecOptions, Executor, StepInput};
use shardlab::ledger::Ledger;
use shardlab::mesh::{Axis, Mesh, RankOrder};
use shardlab::plan::{Action, Instr, Lane, Life, Plan, Role, View};
use shardlab::planner::collective::{self, Algorithm, Into, Seat, Style};
use shardlab::planner::program::{RankProgram, on_every_rank};
use shardlab::shape::{DType, parts};
use shardlab::sim::hops;

const RANKS: &str = "
             rank 0                rank 1                rank 2                rank 3";

/// One member's side of a collective over `data`, cut into one piece a member.
type Side = fn(&mut RankProgram, &Seat, Style, View, &[Range<u32>]);

/// A reduce-scatter, then an all-gather of its pieces.
const HALVES: Side = |p, seat, style, data, pieces| {
    collective::reduce_scatter(p, seat, style, data, pieces, Into::Place);
    collective::all_gather(p, seat, Style { id: 1, ..style }, data, pieces);
};

/// Every rank has a tensor of `len` floats and takes part in the collective.
fn plan(ranks: u32, len: u32, algorithm: Algorithm, side: Side) -> Plan {
    let mesh = Mesh { dp: ranks, tp: 1, pp: 1, order: RankOrder::TpDpPp };
    let style = Style { algorithm, lane: Lane::Compute, chunk_len: u32::MAX, id: 0 };
    on_every_rank(mesh, |p| {
        let data = p.declare("data", Role::Gradients, DType::F32, len, Life::Persistent);
        side(p, &Seat::of(mesh, p.rank, Axis::Dp), style, data, &parts(len, ranks));
    })
}

/// The first steps of a Plan. A step of a rank begins where it sends after doing something else.
fn first_steps(mut plan: Plan, steps: usize) -> Plan {
    let sends = |instr: &Instr| matches!(instr.action, Action::Send { .. });
    for program in &mut plan.programs {
        let instrs = &program.instrs;
        let begins = |at: &usize| sends(&instrs[*at]) && (*at == 0 || !sends(&instrs[*at - 1]));
        let end = (0..instrs.len()).filter(begins).nth(steps).unwrap_or(instrs.len());
        program.instrs.truncate(end);
    }
    plan
}

/// Runs a Plan in which rank 0 starts with 1000 in every chunk, rank 1 with 100, then 10 and 1.
/// What each rank holds at the end.
fn run(plan: Plan) -> Result<Vec<Vec<f32>>, ExecError> {
    let plan = Arc::new(plan);
    let mut executor = Executor::on_host(plan.mesh.size(), ExecOptions::default());
    let id = executor.load(Arc::clone(&plan))?;
    for (rank, value) in plan.mesh.ranks().zip([1000.0, 100.0, 10.0, 1.0]) {
        executor.write(id, plan.view(rank, "data"), &[value; 4])?;
    }
    executor.run(id, 0, &StepInput::default())?;
    plan.mesh.ranks().map(|rank| executor.read(id, plan.view(rank, "data"))).collect()
}

fn main() -> Result<(), ExecError> {
    println!(
        "Four ranks with a tensor of four chunks each. Rank 0 starts with 1000 in every chunk,"
    );
    println!("rank 1 with 0100, …: the digits say whose terms are in a value. The sum is 1111.");
    for (algorithm, steps) in [(Algorithm::Ring, 6), (Algorithm::Direct, 2)] {
        println!("\n{algorithm:?}{RANKS}");
        for step in 0..=steps {
            let whole = plan(4, 4, algorithm, collective::all_reduce);
            let held = run(first_steps(whole, step))?;
            let row = |c: &Vec<f32>| format!("   {:04} {:04} {:04} {:04}", c[0], c[1], c[2], c[3]);
            let does = ["start", "add", "copy"][(2 * step).div_ceil(steps)];
            println!("{step} {does:<5}{}", held.iter().map(row).collect::<String>());
        }
    }
    let ring = |side| run(plan(4, 4, Algorithm::Ring, side));
    let equal = ring(collective::all_reduce)? == ring(HALVES)?;
    println!("\nA reduce-scatter (add), then an all-gather (copy), is an all-reduce: {equal}.");
    println!("\nAll-reduce of S = 1 MiB   each rank sends   messages in a row");
    for ranks in [4, 8] {
        for algorithm in [Algorithm::Ring, Algorithm::Tree, Algorithm::Direct] {
            let plan = plan(ranks, 1 << 18, algorithm, collective::all_reduce);
            let sent = Ledger::of(&plan).ranks[0].bytes_sent().0;
            let name = format!("{algorithm:?}");
            println!("{ranks} ranks, {name:<14} {sent:>14} B {:>19}", hops(&plan));
        }
    }
    println!("Each rank sends 2(N−1)/N·S, the least there is, in more or fewer steps.");
    println!("\nNext: cargo run --release --example 04_data_parallel");
    Ok(())
}
