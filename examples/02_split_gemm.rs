//! One matrix product Y = X·W, split over four ranks in the two ways tensor parallelism rests on.
//! By columns each rank makes some outputs whole, and an all-gather collects them; by rows each
//! makes a term of every output, and an all-reduce adds them up (Megatron-LM, arXiv:1909.08053).
//! Both give one rank's Y on every device here, and the bytes that crossed equal the formulas.

use std::ops::Range;
use std::sync::Arc;

use shardlab::exec::{DeviceSlot, ExecError, ExecOptions, Executor, StepInput};
use shardlab::mesh::{Axis, Mesh, Rank, RankOrder};
use shardlab::ops::{Op, matmul};
use shardlab::plan::{Lane, Life, Plan, Role};
use shardlab::planner::collective::{Algorithm, Seat, Style, all_gather, all_reduce};
use shardlab::planner::program::on_every_rank;
use shardlab::shape::{DType, part, parts};
use shardlab::train::devices;

/// X is `[ROWS, IN]`, W is `[IN, OUT]`, Y is `[ROWS, OUT]`.
const ROWS: u32 = 64;
const IN: u32 = 256;
const OUT: u32 = 384;

const PICTURE: &str = "
split     rank r holds         and computes                  then
columns   columns r of W: Wr   X·Wr, a quarter of Y          an all-gather of the quarters
rows      rows r of W: Wr      Xr·Wr, a term of all of Y     an all-reduce of the terms

split     device                     error / largest Y   bytes that crossed   formula, N = 4";

/// The columns and rows of W that a rank holds, if it is cut into so many parts of each.
fn held([columns, rows]: [u32; 2], rank: Rank) -> (Range<u32>, Range<u32>) {
    (part(OUT, columns, rank.0 % columns), part(IN, rows, rank.0 % rows))
}

/// W and Y are stored transposed, as all weights here: a column is one contiguous range.
fn plan(cut: [u32; 2]) -> Plan {
    let mesh = Mesh { dp: 1, tp: cut[0] * cut[1], pp: 1, order: RankOrder::TpDpPp };
    on_every_rank(mesh, |p| {
        let (columns, rows) = held(cut, p.rank);
        let [m, k] = [columns.len(), rows.len()].map(|len| len as u32);
        let [x, w, y] = [("x", ROWS * k), ("w", m * k), ("y", OUT * ROWS)]
            .map(|(l, len)| p.declare(l, Role::Activations, DType::F32, len, Life::Persistent));
        let product = matmul::Matmul { form: matmul::Form::Nt, m, n: ROWS, k, accumulate: false };
        let made = y.slice(columns.start * ROWS..columns.end * ROWS);
        p.launch(Op::Matmul(product), &[w, x], &[made]);
        let (algorithm, lane) = (Algorithm::Direct, Lane::Compute);
        let style = Style { algorithm, lane, chunk_len: u32::MAX, id: 0 };
        let collect = if cut[1] == 1 { all_gather } else { all_reduce };
        collect(p, &Seat::of(mesh, p.rank, Axis::Tp), style, y, &parts(y.len, mesh.tp));
    })
}

/// A part of X (`seed` 0) or W (`seed` 1), row by row: any numbers will do.
fn matrix(seed: u32, rows: Range<u32>, cols: Range<u32>) -> Vec<f32> {
    let value = |i: u32, j: u32| ((seed + i * 7 + j * 3) as f32).sin();
    rows.flat_map(|i| cols.clone().map(move |j| value(i, j))).collect()
}

/// Runs a cut on a device: the device's name, Y as each rank has it, and the bytes that crossed.
fn run(cut: [u32; 2], device: DeviceSlot) -> Result<(String, Vec<Vec<f32>>, u64), ExecError> {
    let plan = Arc::new(plan(cut));
    let mut executor = Executor::on_device(device, plan.mesh.size(), ExecOptions::default());
    let id = executor.load(Arc::clone(&plan))?;
    for rank in plan.mesh.ranks() {
        let (columns, rows) = held(cut, rank);
        executor.write(id, plan.view(rank, "x"), &matrix(0, 0..ROWS, rows.clone()))?;
        executor.write(id, plan.view(rank, "w"), &matrix(1, columns, rows))?;
    }
    let crossed = executor.run(id, 0, &StepInput::default())?.crossed.bytes();
    let read = |rank| executor.read(id, plan.view(rank, "y"));
    let y: Result<_, _> = plan.mesh.ranks().map(read).collect();
    Ok((executor.device_infos()[0].name.clone(), y?, crossed.0))
}

fn main() -> Result<(), ExecError> {
    let size = 4 * ROWS * OUT;
    println!("Y = X·W with X [{ROWS}, {IN}], W [{IN}, {OUT}]. Y has S = {size} bytes.\n{PICTURE}");
    let largest =
        |values: &mut dyn Iterator<Item = f32>| values.map(f32::abs).max_by(f32::total_cmp);
    let (_, one_rank, _) = run([1, 1], DeviceSlot::Host)?;
    let scale = largest(&mut one_rank[0].iter().copied()).unwrap_or(1.0);
    let splits = [("columns", [4, 1], 3, "(N−1)·S"), ("rows", [1, 4], 6, "2(N−1)·S")];
    for (split, cut, times, formula) in splits {
        for device in devices::present() {
            let (name, ys, crossed) = run(cut, device)?;
            let pairs = ys.iter().flat_map(|y| y.iter().zip(&one_rank[0]));
            let error = largest(&mut pairs.map(|(y, one)| (y - one) / scale)).unwrap_or(0.0);
            let formula = format!("{formula} = {}", times * size);
            println!("{split:<9} {name:<24.24} {error:>19.0e} {crossed:>20}   {formula}");
        }
    }
    println!(
        "Columns leave every sum whole; rows cut each into four terms, added in another order."
    );
    println!("Other devices round otherwise. What is left is rounding.");
    println!("\nNext: cargo run --release --example 03_all_reduce_step_by_step");
    Ok(())
}
