//! `shardlab bench`: what kernels, messages, training and the simulator reach, beside what the same
//! devices do at the most.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::args::BenchArgs;
use super::clocks::devices;
use super::doctor::device_and_why;
use super::output;
use super::report::{DeviceEntry, StepEntry, device_entries, layout_json, median_seconds};
use super::run::open;
use super::settings::Settings;
use super::text::{in_charset, step_time, titled};
use super::verify::layout_words;
use super::{Failure, Outcome};
use crate::config::workload::{Precision, Transformer};
use crate::config::{Cluster, Recompute, Scenario, ScheduleName, ZeroStage};
use crate::exec::calibrate::Limits;
use crate::exec::{Clock, cores};
use crate::predict::{Conditions, predict};
use crate::search::{Cut, Space};
use crate::trace::Badge;
use crate::trace::rates::{Kind, Rates, Work};
use crate::train::{Options, Session, StepReport, TrainError};
use crate::units::{Nanos, grouped};

/// Steps that are measured if nobody says how many.
const STEPS: u64 = 10;
/// Kinds below this share of all work are told together.
const NOTICEABLE: f64 = 0.005;

/// The object that `bench --json` prints.
#[derive(Debug, Serialize)]
struct Answer {
    /// The devices in words.
    ran_on: String,
    layout: Value,
    devices: Vec<DeviceEntry>,
    /// What one place gets while all work: a worker of the host, or a device.
    limits: LimitsEntry,
    /// The work of a mean step, what takes the longest first.
    work: Vec<WorkEntry>,
    training: TrainingEntry,
    simulator: SimulatorEntry,
    badges: BTreeMap<&'static str, Badge>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct LimitsEntry {
    /// How many instructions run at once.
    places: usize,
    product_side: u32,
    gflops: f64,
    copied_bytes: u64,
    gigabytes_per_second: f64,
}

#[derive(Clone, Debug, Serialize)]
struct WorkEntry {
    name: String,
    /// How often it runs in a step, over all ranks.
    count: f64,
    /// Seconds of a step, over all ranks.
    seconds: f64,
    gflops: f64,
    gigabytes_per_second: f64,
    /// The roofline's time over the measured one.
    share_of_limit: f64,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct TrainingEntry {
    steps: u64,
    /// The median step.
    step_seconds: f64,
    tokens_per_second: f64,
    gflops: f64,
    /// Of what products alone reach on all places.
    share_of_limit: f64,
}

#[derive(Clone, Debug, Serialize)]
struct SimulatorEntry {
    what: &'static str,
    gpus: u32,
    classes: usize,
    instructions: usize,
    seconds: f64,
    instructions_per_second: f64,
}

/// Runs the command.
///
/// # Errors
/// If training cannot start, or a device fails.
pub fn run(args: &BenchArgs) -> Result<Outcome, Failure> {
    output::listen_for_interrupts();
    let settings = Settings::resolve(&args.run, |_| {})?;
    let steps = args.run.training.steps.unwrap_or(STEPS).max(1);
    let options = Options {
        devices: args.devices.device.clone(),
        exec: args.devices.exec_options(),
        ..Options::default()
    };
    let threads = args.devices.threads.map_or_else(cores, usize::from);
    let mut session = open(settings, options, None)?;
    output::progress("measuring large products and copies …");
    let plan = std::sync::Arc::clone(session.plan());
    let limits = Limits::measure(session.executor().0, &plan).map_err(TrainError::from)?;
    let Some(steps) = train(&mut session, steps)? else { return Ok(Outcome::Interrupted) };
    output::progress("simulating …");
    let limits = LimitsEntry::of(&session, limits, threads);
    let work = work(&session, &steps, &limits);
    let training = TrainingEntry::of(&session, &steps, &limits);
    let answer = Answer {
        ran_on: device_and_why(&session).0,
        layout: layout_json(&session.scenario().layout),
        devices: device_entries(&session.devices()),
        limits,
        work,
        training,
        simulator: simulator()?,
        badges: ["limits", "work", "training", "simulator"].map(|of| (of, Badge::Measured)).into(),
    };
    if args.json {
        output::print_json(&answer)?;
    } else {
        let text = answer.text(session.scenario());
        output::print(&in_charset(&text, output::terminal().charset))?;
    }
    Ok(Outcome::Success)
}

/// Trains after a step that warms caches up; nothing if that is interrupted.
fn train(session: &mut Session, steps: u64) -> Result<Option<Vec<StepReport>>, Failure> {
    output::progress(format_args!("training {} steps …", steps + 1));
    let mut measured = Vec::new();
    for index in 0..=steps {
        if output::interrupted() {
            return Ok(None);
        }
        let report = session.step()?;
        if index > 0 {
            measured.push(report);
        }
    }
    Ok(Some(measured))
}

impl LimitsEntry {
    fn of(session: &Session, limits: Limits, threads: usize) -> Self {
        // One rank alone has all workers help with its products: that is one place.
        let places = devices(session, threads as u32)
            .into_iter()
            .map(|device| device.ranks.len().min(device.places as usize));
        Self {
            places: places.sum(),
            product_side: limits.side,
            gflops: limits.flops_per_sec * 1e-9,
            copied_bytes: limits.copied.0,
            gigabytes_per_second: limits.bytes_per_sec * 1e-9,
        }
    }
}

/// What a mean step consists of.
fn work(session: &Session, steps: &[StepReport], limits: &LimitsEntry) -> Vec<WorkEntry> {
    let count = steps.len() as f64;
    let rates = Rates::of(session.plan(), steps.iter().map(|step| step.trace.as_ref()));
    let entry = |(kind, work): (Kind, Work)| WorkEntry {
        name: kind.to_string(),
        count: work.count as f64 / count,
        seconds: work.busy.as_secs() / count,
        gflops: work.flops_per_sec().unwrap_or_default() * 1e-9,
        gigabytes_per_second: work.bytes_per_sec().unwrap_or_default() * 1e-9,
        share_of_limit: work
            .share_of(limits.gflops * 1e9, limits.gigabytes_per_second * 1e9)
            .unwrap_or_default(),
    };
    rates.longest_first().into_iter().map(entry).collect()
}

impl TrainingEntry {
    fn of(session: &Session, steps: &[StepReport], limits: &LimitsEntry) -> Self {
        let entries: Vec<StepEntry> = steps.iter().map(StepEntry::from).collect();
        let step_seconds = median_seconds(&entries).expect("one step at least is trained");
        let training = &session.scenario().training;
        let tokens = f64::from(training.batch) * f64::from(training.seq);
        let gflops = session.ledger().flops().0 as f64 / step_seconds * 1e-9;
        Self {
            steps: steps.len() as u64,
            step_seconds,
            tokens_per_second: tokens / step_seconds,
            gflops,
            share_of_limit: gflops / (limits.gflops * limits.places as f64),
        }
    }
}

/// Predicts a large step on one core: the Plan of its classes, their order, the event loop.
fn simulator() -> Result<SimulatorEntry, Failure> {
    let model = "llama-3-405b";
    let space = Space {
        model: Transformer::read(model)?,
        gpus: 16_384,
        batch: 2_048,
        seq: 8_192,
        precision: Precision::Half,
    };
    let cut = Cut {
        tp: 8,
        pp: 16,
        dp: 128,
        chunks: 8,
        microbatch_rows: 1,
        zero: ZeroStage::Zero1,
        recompute: Recompute::Full,
        sequence_parallel: true,
        schedule: ScheduleName::Interleaved1F1B,
    };
    let (workload, cluster) = (space.workload(&cut), Cluster::read("h100")?);
    let clock = Clock::start();
    let prediction = predict(&workload, &cluster, &Conditions::default());
    let seconds = Nanos(clock.now()).as_secs();
    let plan = prediction.expect("a named schedule does not hang").cluster_plan;
    let instructions = plan.plan.programs.iter().map(|program| program.instrs.len()).sum();
    Ok(SimulatorEntry {
        what: model,
        gpus: space.gpus,
        classes: plan.classes.count(),
        instructions,
        seconds,
        instructions_per_second: instructions as f64 / seconds,
    })
}

impl Answer {
    fn text(&self, scenario: &Scenario) -> String {
        let Self { limits, training, simulator, .. } = self;
        let name = &scenario.name;
        let mut lines = vec![format!("{name}: {}", layout_words(&scenario.layout))];
        lines.push(format!("on {}", self.ran_on));
        lines.push(String::new());
        let titled = |heading: &str| titled(heading, Badge::Measured);
        lines.push(titled(&match limits.places {
            1 => "At the most".into(),
            places => format!("At the most, each of {places} that work at once"),
        }));
        let side = limits.product_side;
        let mib = limits.copied_bytes >> 20;
        let (gflops, bytes) = (limits.gflops, limits.gigabytes_per_second);
        lines.push(format!("  products of {side} × {side:<21} {gflops:>9.1} GFLOP/s"));
        lines.push(format!("  copies of {:<29} {bytes:>9.1} GB/s", format!("{mib} MiB")));
        lines.push(String::new());
        lines.push(titled("A mean step, all ranks together"));
        lines.extend(self.table());
        lines.push(String::new());
        lines.push(titled(&format!("Training, {} steps", training.steps)));
        lines.push(format!(
            "  {} tokens/s, a step takes {}",
            grouped(training.tokens_per_second.round() as u64),
            step_time(training.step_seconds)
        ));
        lines.push(format!(
            "  {:.1} GFLOP/s: {:.0} % of what products alone reach",
            training.gflops,
            100.0 * training.share_of_limit
        ));
        lines.push(String::new());
        lines.push(titled("Simulator, on one core"));
        let SimulatorEntry { what, gpus, classes, instructions, seconds, .. } = simulator;
        lines.push(format!(
            "  {} instructions/s",
            grouped(simulator.instructions_per_second.round() as u64)
        ));
        lines.push(format!(
            "  {what} on {} GPUs: {} instructions of {classes} classes in {}",
            grouped(*gpus),
            grouped(*instructions as u64),
            step_time(*seconds)
        ));
        lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
    }

    /// Kinds of work, what takes the longest first; the least are told together.
    fn table(&self) -> Vec<String> {
        let all: f64 = self.work.iter().map(|of| of.seconds).sum();
        let (told, least): (Vec<&WorkEntry>, Vec<&WorkEntry>) =
            self.work.iter().partition(|of| of.seconds >= NOTICEABLE * all);
        let mut lines = vec![format!(
            "  {:<24}{:>8}{:>10}{:>10}{:>9}{:>13}",
            "", "count", "ms", "GFLOP/s", "GB/s", "of its limit"
        )];
        lines.extend(told.iter().map(|of| {
            let WorkEntry { name, count, seconds, gflops, gigabytes_per_second, share_of_limit } =
                of;
            let gflops = match *gflops {
                0.0 => String::new(),
                gflops => format!("{gflops:.1}"),
            };
            let (ms, share) = (1e3 * seconds, 100.0 * share_of_limit);
            format!(
                "  {name:<24}{count:>8.0}{ms:>10.2}{gflops:>10}{gigabytes_per_second:>9.1}{share:>11.0} %"
            )
        }));
        if !least.is_empty() {
            let sum = |of: &dyn Fn(&WorkEntry) -> f64| least.iter().map(|w| of(w)).sum::<f64>();
            let (count, ms) = (sum(&|of| of.count), 1e3 * sum(&|of| of.seconds));
            lines
                .push(format!("  {:<24}{count:>8.0}{ms:>10.2}", format!("{} others", least.len())));
        }
        if told.iter().any(|of| of.share_of_limit > 1.0) {
            let words = "  over 100 %: what it moves lies in caches, which large copies leave";
            lines.push(words.into());
        }
        lines
    }
}
