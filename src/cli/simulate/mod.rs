//! `shardlab simulate`: the step of a described cluster, or a file of measured runs held against
//! predictions (in `runs`). `picture` draws the step, `collectives` compares algorithms, `here` leads
//! to the step on this machine.

mod collectives;
mod here;
mod picture;
mod runs;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::args::{LayoutArgs, SimulateArgs, Switch};
use super::clocks::{idle_words, path_words};
use super::text::{counted, in_charset, step_time};
use super::{Failure, Outcome, output};
use crate::config::workload::{Precision, Recomputed, Software, StepBatch, Transformer, Workload};
use crate::config::{Cluster, ConfigError, Layout, ScheduleName, Split, ZeroStage};
use crate::mesh::{Axis, Rank};
use crate::planner::PlanError;
use crate::planner::cluster::classes::Knobs;
use crate::planner::schedule::{Schedule, named};
use crate::predict::memory::{PositionMemory, USABLE};
use crate::predict::{Conditions, Prediction, predict};
use crate::sim::Whatif;
use crate::trace::Badge;
use crate::trace::critical_path::{CriticalPath, PartKind};
use crate::units::Bytes;

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

/// What was asked: a workload on a cluster, and their names.
struct Question {
    model: String,
    workload: Workload,
    cluster: Cluster,
    /// The cells of a schedule from a file.
    table: Option<Schedule>,
}

impl Question {
    fn of(args: &SimulateArgs) -> Result<Self, ConfigError> {
        let model_word = args.model.as_deref().unwrap_or(MODEL);
        let model = Transformer::read(model_word)?;
        let mut cluster = Cluster::read(&args.cluster)?;
        if let Some(node) = args.layout.node_size {
            cluster.node.gpus = node;
        }
        refuse_details(&args.layout)?;
        let (split, batch, table) = split(args)?;
        check_cut(&model, &split, &batch)?;
        let overlap = args.layout.overlap != Some(Switch::Off);
        let software = Software {
            overlap_gradients: overlap,
            overlap_weights: overlap,
            ..Software::default()
        };
        let recomputed = args.layout.recompute.map_or(Recomputed::Nothing, Recomputed::from);
        let precision = args.precision;
        let workload = Workload { model, split, batch, recomputed, precision, software };
        Ok(Self { model: model_word.to_owned(), workload, cluster, table })
    }
}

/// Flags that decide messages but no prediction.
fn refuse_details(layout: &LayoutArgs) -> Result<(), ConfigError> {
    let said = [
        ("collective", layout.collective.is_some()),
        ("bucket-bytes", layout.bucket_bytes.is_some()),
        ("chunk-bytes", layout.chunk_bytes.is_some()),
        ("stage-units", layout.stage_units.is_some()),
    ];
    let fault = |(name, _): &(&str, bool)| {
        let why = "says how a step is written, which a prediction by classes does not follow";
        ConfigError::value(*name, why, "Leave it out, or use `shardlab plan`")
    };
    ConfigError::collect(said.iter().filter(|(_, said)| *said).map(fault).collect())
}

/// The cut and the batch that the flags ask for; what they leave open fills the GPUs.
fn split(args: &SimulateArgs) -> Result<(Split, StepBatch, Option<Schedule>), ConfigError> {
    let mut flags = args.layout.clone();
    let size = |flag: Option<u32>| flag.unwrap_or(1).max(1);
    take_sizes(&mut flags);
    let others = size(flags.tp) * size(flags.pp) * size(args.cp);
    if let Some(gpus) = args.gpus {
        let dp = flags.dp.unwrap_or((gpus / others).max(1));
        if dp * others != gpus {
            let why = format!(
                "tp {} · pp {} · cp {} · dp {dp} are {} ranks, not {gpus}",
                size(flags.tp),
                size(flags.pp),
                size(args.cp),
                dp * others
            );
            return Err(ConfigError::value("gpus", why, "Use sizes whose product is the GPUs"));
        }
        flags.dp = Some(dp);
    }
    // What everybody does on clusters, unless something else is said.
    flags.zero.get_or_insert(ZeroStage::Zero1);
    if size(flags.tp) > 1 {
        flags.sequence_parallel.get_or_insert_with(|| "on".into());
    }
    if flags.schedule.is_none() && flags.chunks.unwrap_or(1) > 1 {
        flags.schedule = Some(ScheduleName::Interleaved1F1B);
    }
    let rows = flags.micro_batch_size.unwrap_or(1);
    let full = if size(flags.pp) > 1 { 4 * size(flags.pp) } else { 1 };
    let count = flags.microbatches.unwrap_or(full);
    let batch = args.batch.unwrap_or_else(|| size(flags.dp) * count * rows);
    if args.batch.is_some() && flags.microbatches.is_none() {
        flags.micro_batch_size = Some(rows);
    }
    let layout = flags.over_one_rank(batch)?;
    let microbatches = if args.batch.is_some() { layout.microbatches } else { count };
    let rows = batch / layout.dp / microbatches.max(1);
    if rows * microbatches * layout.dp != batch {
        let why = format!(
            "{batch} rows are not dp {} times {microbatches} microbatches of equal size",
            layout.dp
        );
        return Err(ConfigError::value("batch", why, "Use a multiple of their product"));
    }
    let layout = Layout { microbatches, ..layout };
    let (layout, table) = with_table(layout)?;
    let batch =
        StepBatch { seq: args.seq.unwrap_or(SEQ), rows: u64::from(rows.max(1)), microbatches };
    Ok((Split::of(&layout, args.cp.unwrap_or(1).max(1)), batch, table))
}

/// Positions and microbatches that a schedule file says and no flag contradicts.
fn take_sizes(flags: &mut LayoutArgs) {
    let Some(schedule @ ScheduleName::File(_)) = flags.schedule.clone() else { return };
    // Whether it can be read is told later.
    let Ok(table) = named::table(&Layout { schedule, ..Layout::default() }) else { return };
    flags.pp = flags.pp.or(u32::try_from(table.rows.len()).ok());
    if flags.micro_batch_size.is_none() {
        flags.microbatches = flags.microbatches.or(Some(table.microbatch_count().max(1)));
    }
}

/// The layout, and the cells of a schedule that comes from a file, which says itself how many stages
/// a position has.
fn with_table(layout: Layout) -> Result<(Layout, Option<Schedule>), ConfigError> {
    let fault = |why: String| {
        ConfigError::value(
            "schedule",
            why,
            "Use another schedule, --pp, --chunks or --microbatches",
        )
    };
    let table = named::table(&layout).map_err(|error| match error {
        PlanError::ScheduleFile { path, why } => ConfigError::value(
            path,
            why,
            "Use a table of cells like 0F0,0F1,0B0, one row a pipeline position",
        ),
        error => fault(error.to_string()),
    })?;
    if !matches!(layout.schedule, ScheduleName::File(_)) {
        return Ok((layout, None));
    }
    let (rows, positions) = (table.rows.len(), layout.pp as usize);
    if rows != positions {
        return Err(fault(format!(
            "the file has {rows} rows, but there are {positions} positions"
        )));
    }
    let faults = table.check(table.distinct_stage_count(), layout.microbatches);
    ConfigError::collect(faults.iter().map(|found| fault(found.to_string())).collect())?;
    let chunks = table.stage_count().div_ceil(layout.pp);
    Ok((Layout { chunks, ..layout }, Some(table)))
}

/// Sizes that cannot be cut so.
fn check_cut(model: &Transformer, split: &Split, batch: &StepBatch) -> Result<(), ConfigError> {
    let mut faults = Vec::new();
    let mut fault = |what: &str, why: String, remedy: &str| {
        faults.push(ConfigError::value(what, why, remedy));
    };
    let (tp, stages) = (u64::from(split.tp), u64::from(split.pp * split.chunks));
    if !model.heads.is_multiple_of(tp) {
        let why = format!("{} heads cannot be split over {tp} tensor ranks", model.heads);
        fault("tp", why, "Use a divisor of the heads");
    }
    if stages > model.layers + 2 {
        let why = format!("{stages} stages, but the model has {} layers", model.layers);
        fault("pp", why, "Use fewer pipeline positions or chunks");
    }
    if !batch.seq.is_multiple_of(u64::from(split.cp)) || batch.seq == 0 {
        let why = format!("{} tokens cannot be split over {} ranks", batch.seq, split.cp);
        fault("seq", why, "Use a multiple of --cp");
    }
    ConfigError::collect(faults)
}

fn knobs(args: &SimulateArgs, ranks: u32) -> Result<Knobs, ConfigError> {
    let number = |what: &str, text: &str| -> Result<f64, ConfigError> {
        let value = text.parse().ok().filter(|value: &f64| (1.0..=1e6).contains(value));
        value.ok_or_else(|| {
            let why = format!("`{text}` is not a factor from 1 to a million");
            ConfigError::value(what, why, "Say how many times slower, as in 3=1.5")
        })
    };
    let rank = |what: &str, text: &str| -> Result<Rank, ConfigError> {
        let value = text.parse().ok().filter(|rank| *rank < ranks);
        value.map(Rank).ok_or_else(|| {
            let why = format!("`{text}` is no rank");
            ConfigError::value(what, why, format!("Use 0 to {}", ranks - 1))
        })
    };
    let parts = |what: &str, text: &str, mark: char| -> Result<(String, String), ConfigError> {
        let pair = text.split_once(mark).map(|(a, b)| (a.to_owned(), b.to_owned()));
        pair.ok_or_else(|| {
            let why = format!("`{text}` has no {mark}");
            ConfigError::value(what, why, "Write RANK=FACTOR or RANK-RANK=FACTOR")
        })
    };
    if !(0.0..=1e6).contains(&args.jitter) {
        let why = format!("{} percent", args.jitter);
        return Err(ConfigError::value("jitter", why, "Use 0 to a million"));
    }
    let mut knobs = Knobs::default();
    for text in &args.slow_rank {
        let (who, factor) = parts("slow-rank", text, '=')?;
        knobs.slow_ranks.push((rank("slow-rank", &who)?, number("slow-rank", &factor)?));
    }
    for text in &args.slow_link {
        let (pair, factor) = parts("slow-link", text, '=')?;
        let (a, b) = parts("slow-link", &pair, '-')?;
        let ends = (rank("slow-link", &a)?, rank("slow-link", &b)?);
        if ends.0 == ends.1 {
            let why = format!("rank {} has no link with itself", ends.0);
            return Err(ConfigError::value("slow-link", why, "Name two ranks, as in 0-8=4"));
        }
        knobs.slow_links.push((ends.0, ends.1, number("slow-link", &factor)?));
    }
    Ok(knobs)
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
    fact("exposed communication", step_time(prediction.parts.exposed_comm), predicted);
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
    let gb = |bytes: f64| format!("{:.1} GB", bytes * 1e-9);
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
    lines.extend(roles.map(|(role, bytes)| format!("  {role:<26}{:>16}", gb(bytes))));
    let usable = USABLE * memory_gb;
    lines.push(if fullest.total() <= usable * 1e9 {
        format!("  fits: a step may take {usable:.1} of {memory_gb} GB")
    } else {
        format!(
            "  does not fit: a step may take {usable:.1} of {memory_gb} GB. Cut more with --tp, --pp \
             or --zero, use smaller microbatches, or --recompute full"
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
    use super::super::args::{Cli, Command};
    use super::*;
    use clap::Parser as _;

    fn args(flags: &str) -> SimulateArgs {
        let words = ["shardlab", "simulate"].into_iter().chain(flags.split_whitespace());
        let Some(Command::Simulate(args)) = Cli::try_parse_from(words).unwrap().command else {
            unreachable!("simulate was asked for")
        };
        *args
    }

    fn question(flags: &str) -> Result<Question, String> {
        Question::of(&args(flags)).map_err(|error| error.to_string())
    }

    #[test]
    fn what_flags_leave_open_fills_the_gpus_and_what_contradicts_is_summed_up() {
        let workload = question("--gpus 64 --tp 8 --pp 4 --chunks 2").unwrap().workload;
        assert_eq!(workload.split.dp, 2);
        assert_eq!(workload.split.schedule, ScheduleName::Interleaved1F1B);
        assert_eq!((workload.batch.microbatches, workload.batch.rows), (16, 1));
        let workload = question("--dp 4 --batch 64 --micro-batch-size 2").unwrap().workload;
        assert_eq!((workload.batch.microbatches, workload.batch.rows), (8, 2));
        let error = question("--gpus 60 --tp 8").err().unwrap();
        assert!(error.contains("tp 8 · pp 1 · cp 1 · dp 7 are 56 ranks, not 60"), "{error}");
        let error = question("--tp 7 --model llama-3-8b").err().unwrap();
        assert!(error.contains("32 heads cannot be split over 7"), "{error}");
        let file = tempfile::NamedTempFile::with_suffix(".csv").unwrap();
        std::fs::write(file.path(), "0F0,0B0\n1F0,1B0\n").unwrap();
        let with = |flags: &str| question(&format!("--schedule {} {flags}", file.path().display()));
        let error = with("--pp 3 --microbatches 1").err().unwrap();
        assert!(error.contains("the file has 2 rows, but there are 3 positions"), "{error}");
        let error = with("--pp 2 --microbatches 2").err().unwrap();
        assert!(error.contains("schedule: "), "{error}");
        assert_eq!(with("").unwrap().workload.batch.microbatches, 1);
        assert_eq!(with("--pp 2 --microbatches 1").unwrap().table.unwrap().rows.len(), 2);
        let error = question("--collective ring").err().unwrap();
        assert!(error.contains("collective: says how a step is written"), "{error}");
        let error = knobs(&args("--slow-rank 9=2"), 8).unwrap_err().to_string();
        assert!(error.contains("`9` is no rank. Use 0 to 7"), "{error}");
        let error = knobs(&args("--slow-link 3-3=2"), 8).unwrap_err().to_string();
        assert!(error.contains("rank 3 has no link with itself"), "{error}");
        std::fs::write(file.path(), "0F0,0X0\n").unwrap();
        let error = with("").err().unwrap();
        assert!(error.starts_with(&file.path().display().to_string()), "{error}");
        assert!(!error.contains("schedule: schedule"), "{error}");
    }

    #[test]
    fn a_schedule_from_a_file_takes_as_long_as_the_named_one_with_its_cells() {
        let flags = "--pp 4 --microbatches 8 --cluster rtx4090 --model llama-2-7b";
        let file = tempfile::NamedTempFile::with_suffix(".csv").unwrap();
        let seconds = |question: &Question| {
            let conditions = Conditions { table: question.table.clone(), ..Conditions::default() };
            predict(&question.workload, &question.cluster, &conditions).unwrap().step_seconds
        };
        for (name, chunks) in [("1f1b", 1), ("gpipe", 1), ("zb-v", 2), ("interleaved-1f1b", 2)] {
            let named = question(&format!("{flags} --schedule {name} --chunks {chunks}")).unwrap();
            let Split { schedule, pp, .. } = &named.workload.split;
            let table = named::named(schedule, *pp, chunks, 8).unwrap();
            std::fs::write(file.path(), table.to_string()).unwrap();
            let own = question(&format!("{flags} --schedule {}", file.path().display())).unwrap();
            assert_eq!(own.table.as_ref(), Some(&table), "{name}");
            assert_eq!(own.workload.split.chunks, chunks, "{name}");
            assert_eq!(seconds(&own), seconds(&named), "{name}");
        }
    }

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
