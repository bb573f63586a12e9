//! What the flags of `simulate` ask for: a workload, its cluster, and what if.

use super::{MODEL, SEQ};
use crate::cli::args::{LayoutArgs, SimulateArgs, Switch};
use crate::config::workload::{Recomputed, Software, StepBatch, Transformer, Workload};
use crate::config::{Cluster, ConfigError, Layout, ScheduleName, Split, ZeroStage};
use crate::mesh::Rank;
use crate::planner::PlanError;
use crate::planner::cluster::classes::Knobs;
use crate::planner::schedule::{Schedule, named};
use crate::units::grouped;

/// The most ranks that are sorted into classes.
const RANKS: u64 = 10_000_000;

/// What was asked: a workload on a cluster, and their names.
pub(super) struct Question {
    pub(super) model: String,
    pub(super) workload: Workload,
    pub(super) cluster: Cluster,
    /// The cells of a schedule from a file.
    pub(super) table: Option<Schedule>,
}

impl Question {
    pub(super) fn of(args: &SimulateArgs) -> Result<Self, ConfigError> {
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
    let sizes = [flags.dp.or(args.gpus), flags.tp, flags.pp, args.cp].map(size);
    let ranks = sizes[1..].iter().fold(1, |all: u64, size| all.saturating_mul((*size).into()));
    if ranks.max(sizes[0].into()) > RANKS || ranks * u64::from(size(flags.dp)) > RANKS {
        let why = format!("more than {} ranks are asked for", grouped(RANKS));
        return Err(ConfigError::value("gpus", why, "Use fewer"));
    }
    let others = size(flags.tp) * size(flags.pp) * size(args.cp);
    if let Some(gpus) = args.gpus {
        if gpus == 0 {
            return Err(ConfigError::value("gpus", "is 0", "Give at least 1"));
        }
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
    let all = u64::from(size(flags.dp)) * u64::from(count) * u64::from(rows);
    let fill = u32::try_from(all).ok().ok_or_else(|| {
        let why = format!("{} rows are more than anybody trains on", grouped(all));
        ConfigError::value("batch", why, "Use fewer microbatches or smaller ones")
    });
    let batch = args.batch.map_or(fill, Ok)?;
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
    let faults = table.check(table.meant_stage_count(), layout.microbatches);
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

/// Slow ranks and links, each checked against the ranks there are.
pub(super) fn knobs(args: &SimulateArgs, ranks: u32) -> Result<Knobs, ConfigError> {
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

#[cfg(test)]
pub(super) mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::args::{Cli, Command};
    use crate::predict::{Conditions, predict};

    fn args(flags: &str) -> SimulateArgs {
        let words = ["shardlab", "simulate"].into_iter().chain(flags.split_whitespace());
        let Some(Command::Simulate(args)) = Cli::try_parse_from(words).unwrap().command else {
            unreachable!("simulate was asked for")
        };
        *args
    }

    pub(in crate::cli::simulate) fn question(flags: &str) -> Result<Question, String> {
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
        for flags in ["--gpus 4000000000", "--tp 100000 --pp 100000", "--tp 9 --dp 4294967295"] {
            let error = question(flags).err().unwrap();
            assert!(error.contains("more than 10,000,000 ranks"), "{flags}: {error}");
        }
        let error = question("--dp 9000000 --microbatches 4294967295").err().unwrap();
        assert!(error.contains("rows are more than anybody trains on"), "{error}");
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
}
