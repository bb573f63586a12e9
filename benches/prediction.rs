//! Is a predicted step the step that is then measured? Calibrates this machine as `doctor
//! --calibrate` does, predicts 14 layouts of two models, then trains all of them in turns and holds
//! medians against predictions.
//!
//! `cargo bench --bench prediction [-- STEPS] [--kernels]`. Prints every row, then what the product
//! promises: median and worst error, and the rank correlation. With `--kernels`, also where the time
//! of each layout goes, measured and predicted. Only a quiet machine gives numbers worth printing.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::sync::Arc;

use shardlab::config::{
    Data, Layout, ModelSource, Recompute, Scenario, ScheduleName, Training, ZeroStage,
};
use shardlab::exec::calibrate::calibrate;
use shardlab::plan::{Action, Plan};
use shardlab::predict::here::{Calibration, predict_plan};
use shardlab::trace::Trace;
use shardlab::train::{Options, Session};

/// What is promised: errors of the median and the worst row, and the least rank correlation.
const MEDIAN: f64 = 0.15;
const WORST: f64 = 0.30;
const CORRELATION: f64 = 0.9;

fn layouts() -> Vec<(&'static str, Layout)> {
    let one = Layout::default();
    let cut = |dp, tp, pp| Layout { dp, tp, pp, ..Layout::default() };
    let mut layouts = vec![
        ("1 rank", one.clone()),
        ("1 rank, m 4", Layout { microbatches: 4, ..one.clone() }),
        (
            "1 rank, m 4, full recompute",
            Layout { microbatches: 4, recompute: Recompute::Full, ..one },
        ),
        ("dp 2", cut(2, 1, 1)),
        ("dp 4, ZeRO 2, m 2", Layout { microbatches: 2, zero: ZeroStage::Zero2, ..cut(4, 1, 1) }),
        ("dp 4, ZeRO 3, m 2", Layout { microbatches: 2, zero: ZeroStage::Zero3, ..cut(4, 1, 1) }),
        ("tp 2", cut(1, 2, 1)),
        ("tp 4, sequence parallel", Layout { sequence_parallel: true, ..cut(1, 4, 1) }),
        ("pp 2, 1F1B, m 4", Layout { microbatches: 4, ..cut(1, 1, 2) }),
        (
            "pp 4, GPipe, m 8",
            Layout { microbatches: 8, schedule: ScheduleName::GPipe, ..cut(1, 1, 4) },
        ),
        (
            "pp 4, ZB-H1, m 8",
            Layout { microbatches: 8, schedule: ScheduleName::ZbH1, ..cut(1, 1, 4) },
        ),
        ("dp 2 · tp 2, ZeRO 1", Layout { zero: ZeroStage::Zero1, ..cut(2, 2, 1) }),
        (
            "dp 2 · tp 2 · pp 2, ZeRO 1, m 4",
            Layout { microbatches: 4, zero: ZeroStage::Zero1, ..cut(2, 2, 2) },
        ),
        (
            "tp 2 · pp 2, m 4, selective recompute",
            Layout { microbatches: 4, recompute: Recompute::Selective, ..cut(1, 2, 2) },
        ),
    ];
    layouts.sort_by_key(|(_, layout)| layout.mesh().size());
    layouts
}

fn session(model: &str, layout: &Layout) -> Result<Session, Box<dyn Error>> {
    let scenario = Scenario {
        name: "prediction".into(),
        model: ModelSource::Preset(model.into()),
        layout: layout.clone(),
        training: Training { batch: 32, seq: 128, ..Training::default() },
        data: Data::Shakespeare,
    };
    Ok(Session::start(scenario, Options::on_cpu())?)
}

/// A layout of a model, predicted before it runs.
struct Row {
    name: String,
    session: Session,
    predicted: Trace,
    /// Of each step.
    measured: Vec<f64>,
    traces: Vec<Arc<Trace>>,
}

impl Row {
    fn new(
        model: &str,
        name: &str,
        layout: &Layout,
        to: &Calibration,
    ) -> Result<Self, Box<dyn Error>> {
        let session = session(model, layout)?;
        let predicted = predict_plan(session.plan(), to)?;
        let name = format!("{model}, {name}");
        Ok(Self { name, session, predicted, measured: Vec::new(), traces: Vec::new() })
    }

    fn seconds(&self) -> [f64; 2] {
        [self.predicted.end().as_secs(), median(&self.measured)]
    }

    fn error(&self) -> f64 {
        let [predicted, measured] = self.seconds();
        predicted / measured - 1.0
    }
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len() % 2 == 1 { values[half] } else { f64::midpoint(values[half - 1], values[half]) }
}

/// Spearman's: the correlation of the ranks of two lists.
fn rank_correlation(pairs: &[[f64; 2]]) -> f64 {
    let ranks = |side: usize| -> Vec<f64> {
        let below = |x: f64| pairs.iter().filter(|pair| pair[side] < x).count();
        let equal = |x: f64| pairs.iter().filter(|pair| pair[side] == x).count();
        pairs.iter().map(|p| below(p[side]) as f64 + (equal(p[side]) - 1) as f64 / 2.0).collect()
    };
    let mean = (pairs.len() - 1) as f64 / 2.0;
    let [a, b] = [0, 1].map(ranks);
    let sum = |a: &[f64], b: &[f64]| -> f64 {
        a.iter().zip(b).map(|(a, b)| (a - mean) * (b - mean)).sum()
    };
    sum(&a, &b) / (sum(&a, &a) * sum(&b, &b)).sqrt()
}

/// Busy milliseconds by kind of work, over all ranks: of every instruction the fastest of some steps,
/// so that what else the machine did does not count.
fn work(plan: &Plan, traces: &[&Trace]) -> BTreeMap<String, f64> {
    let mut millis = BTreeMap::new();
    for (rank, program) in plan.programs.iter().enumerate() {
        for (index, instr) in program.instrs.iter().enumerate() {
            let spans = traces.iter().map(|trace| trace.spans[rank][index].duration());
            let fastest = spans.min().unwrap_or_default();
            let kind = match &instr.action {
                Action::Launch { op, .. } => op.to_string(),
                Action::Send { .. } => "message".into(),
                Action::Recv { .. } => continue,
                Action::Copy { .. } => "copy".into(),
            };
            *millis.entry(kind).or_insert(0.0) += fastest.as_secs() * 1e3;
        }
    }
    millis
}

fn print_kernels(row: &Row) {
    let plan = row.session.plan();
    let measured: Vec<&Trace> = row.traces.iter().map(AsRef::as_ref).collect();
    let [predicted, measured] = [&[&row.predicted][..], &measured].map(|of| work(plan, of));
    println!("\n{}: busy ms, all ranks, fastest of all steps", row.name);
    let kinds: BTreeSet<&String> = predicted.keys().chain(measured.keys()).collect();
    for kind in kinds {
        let [p, m] = [&predicted, &measured].map(|work| work.get(kind).copied().unwrap_or(0.0));
        println!("  {kind:24} {p:9.2} predicted {m:9.2} measured {:+6.0} %", (p / m - 1.0) * 100.0);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let steps: usize = std::env::args().filter_map(|arg| arg.parse().ok()).next().unwrap_or(9);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let start = std::time::Instant::now();
    let calibration = calibrate(cores as u32, |_, _| ())?;
    let seconds = start.elapsed().as_secs_f64();
    println!("calibrated {} with {cores} workers in {seconds:.1} s", calibration.machine);
    let Calibration { instruction, wake, patience, .. } = &calibration;
    let [instruction, wake, patience] = [instruction, wake, patience].map(|nanos| nanos.0);
    println!("an instruction {instruction} ns, waking {wake} ns after {patience} ns\n");

    let mut rows = Vec::new();
    for model in ["shakespeare", "bench"] {
        for (name, layout) in layouts() {
            rows.push(Row::new(model, name, &layout, &calibration)?);
        }
    }
    // Rounds over all rows, so that whatever the machine does besides falls on all of them; the
    // first one warms caches up.
    for round in 0..=steps {
        for row in &mut rows {
            let report = row.session.step()?;
            if round > 0 {
                row.measured.push(report.seconds);
                row.traces.push(report.trace);
            }
        }
    }
    println!("{:52} {:>10} {:>10} {:>7} {:>10}", "", "predicted", "measured", "error", "fastest");
    for row in &rows {
        let [predicted, measured] = row.seconds().map(|seconds| seconds * 1e3);
        let error = row.error() * 100.0;
        let fastest = row.measured.iter().copied().fold(f64::INFINITY, f64::min) * 1e3;
        let name = &row.name;
        println!("{name:52} {predicted:7.1} ms {measured:7.1} ms {error:+5.0} % {fastest:7.1} ms");
    }
    let errors: Vec<f64> = rows.iter().map(|row| row.error().abs()).collect();
    let worst = errors.iter().copied().fold(0.0, f64::max);
    let pairs: Vec<[f64; 2]> = rows.iter().map(Row::seconds).collect();
    let correlation = rank_correlation(&pairs);
    let (first, second) = pairs.split_at(pairs.len() / 2);
    let verdict = |holds: bool| if holds { "within" } else { "OUTSIDE" };
    println!();
    for (name, value, limit) in [("median", median(&errors), MEDIAN), ("worst", worst, WORST)] {
        let (value, limit) = (value * 100.0, limit * 100.0);
        println!("{name} error {value:.1} % ({} {limit:.0} %)", verdict(value <= limit));
    }
    println!(
        "rank correlation {correlation:.3} ({} {CORRELATION}); of each model {:.3} and {:.3}",
        verdict(correlation >= CORRELATION),
        rank_correlation(first),
        rank_correlation(second)
    );
    if std::env::args().any(|arg| arg == "--kernels") {
        rows.iter().for_each(print_kernels);
    }
    Ok(())
}
