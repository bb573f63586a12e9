//! `shardlab simulate`: the step of a described cluster, or a file of measured runs held against
//! predictions (in `runs`). `question` reads what is asked for, `picture` draws the step,
//! `collectives` compares algorithms, `here` leads to the step on this machine.

mod collectives;
mod here;
mod picture;
mod question;
mod runs;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::args::SimulateArgs;
use super::clocks::{idle_words, path_words};
use super::text::{counted, in_charset, step_time, usable};
use super::{Failure, Outcome, output};
use crate::config::workload::{Precision, StepBatch};
use crate::config::{ConfigError, Split};
use crate::mesh::{Axis, Rank};
use crate::predict::memory::{PositionMemory, USABLE};
use crate::predict::{Conditions, Prediction, predict};
use crate::sim::Whatif;
use crate::trace::Badge;
use crate::trace::critical_path::{CriticalPath, PartKind};
use crate::units::Bytes;
use question::{Question, knobs};

/// What is predicted if nothing is said.
const MODEL: &str = "llama-3-8b";
const SEQ: u64 = 4096;

/// Runs the command.
///
/// # Errors
/// If model, cluster, layout or file cannot be read or make no sense.
pub fn run(args: &SimulateArgs) -> Result<Outcome, Failure> {
    if let Some(file) = &args.runs {
        return runs::run(file, args);
    }
    if let Some(bytes) = args.explain_collective {
        return collectives::run(bytes, args);
    }
    if here::is_asked(args) {
        return here::run(args);
    }
    here::refuse(args)?;
    let question = Question::of(args)?;
    let conditions = Conditions {
        knobs: knobs(args, question.workload.split.ranks())?,
        whatif: Whatif { jitter: args.jitter / 100.0, seed: args.seed },
        table: question.table.clone(),
        ..Conditions::default()
    };
    let prediction =
        predict(&question.workload, &question.cluster, &conditions).map_err(|error| {
            ConfigError::value("schedule", error.to_string(), "Use another schedule")
        })?;
    if let Some(path) = &args.trace {
        let plan = &prediction.cluster_plan.plan;
        output::OutputFile::create(path)?
            .write_line(&json!({ "plan": plan, "trace": prediction.trace }))?;
    }
    if let Some(path) = &args.svg {
        picture::write(path, &prediction, &heading(&question).join(": "))?;
    }
    if args.json {
        output::print_json(&answer(&question, &prediction))?;
    } else {
        let terminal = output::terminal();
        let lines = picture::lines(&prediction, &terminal).join("\n");
        let text = text(&question, &prediction);
        output::print(&(in_charset(&text, terminal.charset) + "\n" + &lines + "\n"))?;
    }
    Ok(Outcome::Success)
}

/// The object that `simulate --json` prints.
#[derive(Debug, Serialize)]
struct Answer {
    step_seconds: f64,
    tflops_per_gpu: f64,
    mfu: f64,
    bubble: Value,
    bytes: Value,
    memory: Vec<PositionMemory>,
    fits: bool,
    exposed_comm_seconds: f64,
    hidden_comm_seconds: f64,
    /// Idle time of a mean rank in seconds, by what it waits for.
    idle: Value,
    /// Seconds of the critical path: work by the first rank of each class, messages.
    critical_path: Value,
    classes: usize,
    ranks: u32,
    badges: Value,
}

fn answer(question: &Question, prediction: &Prediction) -> Answer {
    let Prediction { bubble, bytes, memory, .. } = prediction;
    let sum: f64 = bytes.values().sum();
    let [dp, tp, pp] = Axis::ALL.map(|axis| bytes.get(&axis).copied().unwrap_or(0.0));
    Answer {
        step_seconds: prediction.step_seconds,
        tflops_per_gpu: prediction.tflops_per_gpu,
        mfu: prediction.mfu,
        bubble: json!({
            "waiting_over_span": bubble.waiting_over_span,
            "waiting_over_ideal": bubble.waiting_over_ideal,
            "idle_of_step": bubble.idle_of_step,
        }),
        bytes: json!({ "total": sum, "by_axis": { "dp": dp, "tp": tp, "pp": pp } }),
        memory: memory.clone(),
        fits: crate::predict::memory::fits(memory, question.cluster.gpu.memory_gb),
        exposed_comm_seconds: prediction.parts.exposed_comm,
        hidden_comm_seconds: prediction.hidden_comm_seconds,
        idle: json!(idle(prediction)),
        critical_path: critical_path(prediction),
        classes: prediction.cluster_plan.classes.count(),
        ranks: question.workload.split.ranks(),
        badges: json!({
            "step_seconds": Badge::Predicted,
            "tflops_per_gpu": Badge::Predicted,
            "mfu": Badge::Predicted,
            "bubble": Badge::Predicted,
            "bytes": Badge::Formula,
            "memory": Badge::Predicted,
            "exposed_comm_seconds": Badge::Predicted,
            "hidden_comm_seconds": Badge::Predicted,
            "idle": Badge::Predicted,
            "critical_path": Badge::Predicted,
            "classes": Badge::Counted,
        }),
    }
}

/// Idle seconds of a mean rank, by what it waits for.
fn idle(prediction: &Prediction) -> BTreeMap<&'static str, f64> {
    let sizes = &prediction.cluster_plan.classes.sizes;
    let all: f64 = sizes.iter().map(|size| f64::from(*size)).sum();
    let mut sums = BTreeMap::new();
    for (class, size) in prediction.time.ranks.iter().zip(sizes) {
        for (reason, nanos) in class.by_reason() {
            *sums.entry(reason.key()).or_insert(0.0) += nanos.as_secs() * f64::from(*size) / all;
        }
    }
    sums
}

fn path(prediction: &Prediction) -> CriticalPath {
    CriticalPath::of(&prediction.cluster_plan.plan, &prediction.order, &prediction.trace)
}

fn critical_path(prediction: &Prediction) -> Value {
    let path = path(prediction);
    let first = &prediction.cluster_plan.classes.first;
    let work = path.work_by_rank().into_iter();
    let work = work.map(|(class, nanos)| (first[class.index()].0, nanos.as_secs()));
    json!({
        "work": work.collect::<BTreeMap<u32, f64>>(),
        "messages": path.length_of(PartKind::Message).as_secs(),
    })
}

/// What is simulated, in two lines.
fn heading(question: &Question) -> [String; 2] {
    let Question { model, workload, cluster, .. } = question;
    let Split { tp, pp, dp, cp, chunks, schedule, .. } = &workload.split;
    let ranks = workload.split.ranks();
    let mut cut = format!("dp {dp} · tp {tp} · pp {pp}");
    for (name, size) in [("cp", cp), ("chunks", chunks)] {
        if *size > 1 {
            cut += &format!(" · {name} {size}");
        }
    }
    let StepBatch { seq, rows, microbatches } = workload.batch;
    cut += &format!(" · {schedule} · {microbatches} × {rows} rows of {seq}");
    [format!("{model} on {} of {}", counted(ranks, "GPU"), cluster.name), cut]
}

fn text(question: &Question, prediction: &Prediction) -> String {
    let cluster = &question.cluster;
    let [first, second] = heading(question);
    let mut lines = vec![first, format!("  {second}"), String::new()];
    let mut fact = |name: &str, value: String, badge: Badge| {
        lines.push(format!("  {name:<26}{value:>16}  {}", badge.word()));
    };
    let predicted = Badge::Predicted;
    fact("step", step_time(prediction.step_seconds), predicted);
    fact("TFLOP/s a GPU", format!("{:.0}", prediction.tflops_per_gpu), predicted);
    fact("MFU", percent(prediction.mfu), predicted);
    fact("waiting over span", percent(prediction.bubble.waiting_over_span), predicted);
    // Waiting lies between passes; messages are exposed inside of them as well.
    let exposed = prediction.parts.exposed_comm;
    let share = percent(exposed / prediction.step_seconds);
    fact("exposed communication", format!("{share} = {}", step_time(exposed)), predicted);
    fact("hidden communication", step_time(prediction.hidden_comm_seconds), predicted);
    for (axis, bytes) in &prediction.bytes {
        if *bytes > 0.0 {
            fact(
                &format!("{} bytes", axis.word()),
                Bytes(*bytes as u64).to_string(),
                Badge::Formula,
            );
        }
    }
    let classes = &prediction.cluster_plan.classes;
    fact("classes of equal ranks", classes.count().to_string(), Badge::Counted);
    let mut words = |name: &str, words: String| {
        lines.push(format!("  {name:<16}{words}  {}", predicted.word()));
    };
    words("ranks wait for", idle_words(&prediction.time, &classes.sizes));
    let name = |class: Rank| classes.first[class.index()];
    words("critical path", path_words(&path(prediction), prediction.time.step, name).join(", "));
    lines.push(String::new());
    lines.extend(memory_lines(&prediction.memory, cluster.gpu.memory_gb));
    lines.join("\n") + "\n"
}

/// Memory of the fullest position by role, and whether it fits.
fn memory_lines(positions: &[PositionMemory], memory_gb: f64) -> Vec<String> {
    let fullest = positions.iter().max_by(|a, b| a.total().total_cmp(&b.total()));
    let Some(fullest) = fullest else { return Vec::new() };
    let mut lines = vec![format!(
        "memory of pipeline position {}  {}",
        fullest.position,
        Badge::Predicted.word()
    )];
    let roles = [
        ("weights", fullest.weights),
        ("gradients", fullest.gradients),
        ("optimizer", fullest.optimizer),
        ("activations", fullest.activations),
        ("workspace", fullest.workspace),
        ("together", fullest.total()),
    ];
    lines.extend(roles.map(|(role, bytes)| format!("  {role:<26}{:>16}", Bytes(bytes as u64))));
    let most = usable(memory_gb);
    lines.push(if fullest.total() <= USABLE * memory_gb * 1e9 {
        format!("  fits: a step may take {most}")
    } else {
        format!(
            "  does not fit: a step may take {most}. Cut more with --tp, --pp or --zero, use smaller \
             microbatches, or --recompute full"
        )
    });
    lines
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// Reads a precision by its words.
pub(super) fn precision(word: &str) -> Result<Precision, String> {
    match word {
        "bf16" | "fp16" => Ok(Precision::Half),
        "fp8" => Ok(Precision::Fp8),
        _ => Err("use bf16, fp16 or fp8".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::question::tests::question;
    use super::*;

    #[test]
    fn the_answer_agrees_with_itself_and_every_number_wears_a_badge() {
        let question = question("--gpus 64 --tp 4 --pp 4 --zero 1 --batch 64").unwrap();
        let prediction =
            predict(&question.workload, &question.cluster, &Conditions::default()).unwrap();
        let answer = answer(&question, &prediction);
        assert!((answer.tflops_per_gpu / 989.0 / answer.mfu - 1.0).abs() < 1e-9);
        let flops = question.workload.model_flops();
        let expected = flops / answer.step_seconds / 64.0 * 1e-12;
        assert!((answer.tflops_per_gpu / expected - 1.0).abs() < 1e-9);
        assert_eq!((answer.ranks, answer.classes, answer.memory.len()), (64, 4, 4));
        let text = text(&question, &prediction);
        for line in text.lines().filter(|line| line.contains(" s  ") || line.contains(" %")) {
            assert!(line.ends_with("PREDICTED"), "{line}");
        }
        // Data: a reduce-scatter of 32-bit gradients and an all-gather of 16-bit weights.
        let model = &question.workload.model;
        let parameters = model.parameters() as f64;
        let expected = 3.0 * parameters * (4.0 + 2.0);
        assert!((prediction.bytes[&Axis::Dp] / expected - 1.0).abs() < 1e-6);
    }
}
