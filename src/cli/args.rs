//! The command line: commands, flags and their help texts.
//!
//! Only what is typed is described here. What a flag changes is said in `settings`, what a command
//! does in the file of its name.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::config::workload::Precision;
use crate::config::{
    CollectiveChoice, ConfigError, ModelSource, OptimizerKind, Recompute, ScheduleName, ZeroStage,
};
use crate::mesh::RankOrder;
use crate::train::DeviceRequest;
use crate::units::{Bytes, Nanos};

const EXAMPLES: &str = "\
Examples:
  shardlab                               train the quickstart, with a live picture
  shardlab train --pp 4 --tp 1           the same with four pipeline stages
  shardlab plan --schedule gpipe         what a step will do, without running it
  shardlab verify --dp 2 --tp 2 --zero 3 prove that a layout equals one rank
  shardlab doctor                        what this machine can train on

Exit codes: 0 ok, 1 a check or run failed, 2 usage or configuration, 3 no device,
4 a number is not finite, 130 interrupted";

const TRAIN_EXAMPLES: &str = "\
Examples:
  shardlab train --dp 4 --tp 2 --zero 3 --steps 50
  shardlab train mine.toml --json > run.json
  shardlab train --pp 4 --tp 1 --links pcie
  shardlab train --checkpoint run/ --checkpoint-every 50 --metrics run.jsonl
  shardlab train --resume run/ --dp 1 --tp 4";

const PLAN_EXAMPLES: &str = "\
Examples:
  shardlab plan --pp 4 --tp 1 --microbatches 8
  shardlab plan --schedule mine.csv --svg mine.svg
  shardlab plan --pp 3 --tp 1 --schedule zb-v --microbatches 8
  shardlab plan --pp 4 --schedule gpipe --csv > gpipe.csv
  shardlab plan --tp 2 --pp 2 --predict     how long a step takes here (after doctor --calibrate)
  shardlab plan --text --rank 3";

const EXPORT_EXAMPLES: &str = "\
Examples:
  shardlab train --steps 20 --trace step.json
  shardlab trace export step.json --format kineto -o step.pt.trace.json   for ui.perfetto.dev
  shardlab trace export step.json --format kineto -o ranks/               a file for each rank
  shardlab trace export step.json --format csv > step.csv";

const SIMULATE_EXAMPLES: &str = "\
Examples:
  shardlab simulate --model llama-3-70b --cluster h100 --gpus 64 --tp 4 --pp 4 --batch 128
  shardlab simulate --model llama-3-405b --gpus 16384 --tp 8 --pp 16 --chunks 2 --seq 8192
  shardlab simulate --model mine/ --cluster mine.toml --dp 8 --slow-rank 3=1.5
  shardlab simulate --pp 4 --chunks 2 --svg step.svg
  shardlab simulate --pp 2 --microbatches 8 --schedule mine.csv
  shardlab simulate --cluster here --dp 2 --tp 2   on this machine (after doctor --calibrate)
  shardlab simulate --explain-collective 100MB --gpus 8 --links 50GB/s,10ns
  shardlab simulate --runs tests/published/runs.json --leave-one-out";

const SEARCH_EXAMPLES: &str = "\
Examples:
  shardlab search --model llama-3-70b --cluster h100 --gpus 1024
  shardlab search --model llama-3-8b --cluster a100-80 --gpus 64 --batch 512 --seq 8192
  shardlab search --model mine/ --cluster mine.toml --gpus 48 --json
  shardlab search --here --ranks 4 --run      on this machine (after doctor --calibrate)";

const GENERATE_EXAMPLES: &str = "\
Examples:
  shardlab train --checkpoint run/
  shardlab generate run/ --prompt 'ROMEO:'
  shardlab generate run/ --temperature 0 --tokens 200";

const BENCH_EXAMPLES: &str = "\
Examples:
  shardlab bench                          the quickstart's step on this machine
  shardlab bench --dp 1 --tp 1 --pp 1     the same step on one rank
  shardlab bench --device gpu --json";

const VERIFY_EXAMPLES: &str = "\
Examples:
  shardlab verify --dp 2 --tp 2 --pp 2
  shardlab verify --zero 3 --optimizer adamw
  shardlab verify --golden tests/golden/plain --tp 2";

/// Trains a transformer split over many ranks, and shows what each of them does and waits for.
///
/// Without a command: trains a small model on Shakespeare, split over eight ranks, draws the
/// running step, and says what came out.
#[derive(Debug, Parser)]
#[command(name = "shardlab", version, after_help = EXAMPLES, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do; the quickstart if nothing is said.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Print one JSON object instead of the summary.
    #[arg(long)]
    pub json: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Train a layout.
    #[command(after_help = TRAIN_EXAMPLES, allow_negative_numbers = true)]
    Train(Box<TrainArgs>),
    /// Show the schedule, bytes and memory of a step without running it.
    #[command(after_help = PLAN_EXAMPLES, allow_negative_numbers = true)]
    Plan(Box<PlanArgs>),
    /// Predict the step of a described cluster, or hold measured runs against predictions.
    /// Without flags optimizer state is sharded, and tp cuts the sequence too.
    #[command(after_help = SIMULATE_EXAMPLES, allow_negative_numbers = true)]
    Simulate(Box<SimulateArgs>),
    /// Find the fastest layouts of a model on a described cluster, or of a scenario on this machine.
    #[command(after_help = SEARCH_EXAMPLES, allow_negative_numbers = true)]
    Search(Box<SearchArgs>),
    /// Hold a layout against one rank, or against a reference case.
    #[command(after_help = VERIFY_EXAMPLES, allow_negative_numbers = true)]
    Verify(Box<VerifyArgs>),
    /// Turn what `train --trace` wrote into files for other programs.
    #[command(subcommand)]
    Trace(TraceCommand),
    /// List what this machine can train on, test it, and say what to do.
    Doctor(DoctorArgs),
    /// Write text with the weights of a checkpoint.
    #[command(after_help = GENERATE_EXAMPLES, allow_negative_numbers = true)]
    Generate(GenerateArgs),
    /// Measure kernels, messages, training and the simulator against what this machine can do.
    #[command(after_help = BENCH_EXAMPLES, allow_negative_numbers = true)]
    Bench(Box<BenchArgs>),
    /// Print shell completions.
    Completions {
        /// Which shell.
        shell: Shell,
    },
}

/// `shardlab train`.
#[derive(Debug, Args)]
pub struct TrainArgs {
    /// What is trained and how.
    #[command(flatten)]
    pub run: RunArgs,
    /// Which devices run it.
    #[command(flatten)]
    pub devices: DeviceArgs,
    /// Links of the replayed clock, which gives every rank its own device: free, pcie, nvlink,
    /// 50GB/s,5us, or a cluster as `simulate` takes it (h100, a TOML file).
    #[arg(long, value_name = "NAME|FILE", default_value = "free", help_heading = "Devices")]
    pub links: String,
    /// Write the last step, measured and replayed, with its Plan: `trace export` reads it.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub trace: Option<PathBuf>,
    /// Write one JSON line a step.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub metrics: Option<PathBuf>,
    /// Write a checkpoint at the end, and on Ctrl-C.
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub checkpoint: Option<PathBuf>,
    /// Write the checkpoint every N steps too.
    #[arg(long, value_name = "N", requires = "checkpoint", help_heading = "Output")]
    pub checkpoint_every: Option<u64>,
    /// Go on from a checkpoint with its settings, in its layout or another.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["scenario", "model"], help_heading = "Output")]
    pub resume: Option<PathBuf>,
    /// Print one JSON object instead of the summary.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// `shardlab generate`.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// The folder that `train --checkpoint` wrote.
    #[arg(value_name = "CHECKPOINT")]
    pub checkpoint: PathBuf,
    /// What the text begins with.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub prompt: String,
    /// How many bytes are written.
    #[arg(long, value_name = "N", default_value_t = 500)]
    pub tokens: u32,
    /// Below 1 likely bytes become likelier; 0 takes the likeliest.
    #[arg(long, value_name = "NUMBER", default_value_t = 0.8)]
    pub temperature: f64,
    /// Draw from the N likeliest bytes only.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub top: Option<u32>,
    /// Equal seeds write equal texts.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `shardlab bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// What is trained; ten steps if not said.
    #[command(flatten)]
    pub run: RunArgs,
    /// Which devices run it.
    #[command(flatten)]
    pub devices: DeviceArgs,
    /// Print one JSON object.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// `shardlab trace`.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Write a recorded step in a form that other programs read.
    #[command(after_help = EXPORT_EXAMPLES)]
    Export(TraceExportArgs),
}

/// `shardlab trace export`.
#[derive(Debug, Args)]
pub struct TraceExportArgs {
    /// What `train --trace` wrote.
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// Which form.
    #[arg(long, value_enum)]
    pub format: TraceFormat,
    /// Where to; for kineto a folder gets a file for each rank. Standard output if not said.
    #[arg(short, long, value_name = "PATH")]
    pub output: Option<PathBuf>,
    /// Whose time it is.
    #[arg(long, value_enum, default_value_t = TraceClock::Replayed)]
    pub clock: TraceClock,
    /// One line for each instruction instead of each block; kineto always has all of them.
    #[arg(long)]
    pub instructions: bool,
    /// Leaves out what ends before: a time of the step, as in 12ms.
    #[arg(long, value_name = "TIME")]
    pub from: Option<Nanos>,
    /// Leaves out what begins later.
    #[arg(long, value_name = "TIME")]
    pub until: Option<Nanos>,
}

/// The forms of an exported step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TraceFormat {
    /// Chrome trace events in the words of PyTorch's profiler: Perfetto, Holistic Trace Analysis.
    Kineto,
    /// A table.
    Csv,
    /// JSON Lines.
    Jsonl,
}

/// The clocks of a recorded step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TraceClock {
    /// As if every rank had its own device.
    Replayed,
    /// As it was.
    Measured,
}

/// `shardlab plan`.
#[derive(Debug, Default, Args)]
pub struct PlanArgs {
    /// What is planned.
    #[command(flatten)]
    pub run: RunArgs,
    /// What one rank may place, as in 512MiB: refuses what does not fit, with cuts that do.
    #[arg(long, value_name = "BYTES", help_heading = "Devices")]
    pub device_memory: Option<Bytes>,
    /// Predict the step on this machine's cores, as `doctor --calibrate` measured them.
    #[arg(long, conflicts_with_all = ["csv", "text"], help_heading = "Output")]
    pub predict: bool,
    /// With --predict: what another machine was measured to take.
    #[arg(long, value_name = "FILE", requires = "predict", help_heading = "Output")]
    pub calibration: Option<PathBuf>,
    /// Print the schedule as CSV, in the grammar of torch.distributed.pipelining.
    #[arg(long, group = "form", help_heading = "Output")]
    pub csv: bool,
    /// Print every buffer and instruction.
    #[arg(long, group = "form", help_heading = "Output")]
    pub text: bool,
    /// With --text: of this rank only.
    #[arg(long, value_name = "N", requires = "text", help_heading = "Output")]
    pub rank: Option<u32>,
    /// Write the schedule's timeline as a picture, F = 1 and B = 2 units.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["csv", "text"], help_heading = "Output")]
    pub svg: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long, group = "form", help_heading = "Output")]
    pub json: bool,
}

/// `shardlab simulate`.
#[derive(Debug, Args)]
pub struct SimulateArgs {
    /// With --cluster here: a scenario file (TOML); the quickstart if none is given.
    #[arg(value_name = "SCENARIO")]
    pub scenario: Option<PathBuf>,
    /// A preset (gpt-175b, llama-3-8b, llama-3-405b, …), a folder with a Hugging Face config.json, or
    /// a TOML file with the sizes; llama-3-8b if not said. On `here` what `train` takes.
    #[arg(long, value_name = "PRESET|DIR|FILE", help_heading = "Model and data")]
    pub model: Option<String>,
    /// A preset (v100, a100-40, a100-80, h100, h200, b200, gb200, rtx4090, …), a TOML file, or `here`:
    /// this machine's cores, as `doctor --calibrate` measured them.
    #[arg(long, value_name = "NAME|FILE", default_value = "h100", help_heading = "Cluster")]
    pub cluster: String,
    /// With --cluster here: what another machine was measured to take.
    #[arg(long, value_name = "FILE", help_heading = "Cluster")]
    pub calibration: Option<PathBuf>,
    /// Ranks; dp fills what tp, pp and cp leave.
    #[arg(long, value_name = "N", help_heading = "Cluster")]
    pub gpus: Option<u32>,
    /// How training is cut.
    #[command(flatten)]
    pub layout: LayoutArgs,
    /// Ranks that share a sequence (context parallel).
    #[arg(long, value_name = "N", help_heading = "Layout")]
    pub cp: Option<u32>,
    /// Rows of a step over all data-parallel ranks.
    #[arg(long, value_name = "ROWS", help_heading = "Model and data")]
    pub batch: Option<u32>,
    /// Tokens of a row; 4096 if not said. On `here` as in the quickstart.
    #[arg(long, value_name = "TOKENS", help_heading = "Model and data")]
    pub seq: Option<u64>,
    /// bf16, fp16 or fp8.
    #[arg(long, value_name = "TYPE", default_value = "bf16", value_parser = super::simulate::precision, help_heading = "Model and data")]
    pub precision: Precision,
    /// A rank that computes slower, as in 3=1.5; may be said again.
    #[arg(long, value_name = "RANK=FACTOR", help_heading = "What if")]
    pub slow_rank: Vec<String>,
    /// Two ranks whose messages are slower, as in 0-8=4; may be said again.
    #[arg(long, value_name = "RANK-RANK=FACTOR", help_heading = "What if")]
    pub slow_link: Vec<String>,
    /// Every op takes up to this many percent longer.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, help_heading = "What if")]
    pub jitter: f64,
    /// Seed of the jitter.
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "What if")]
    pub seed: u64,
    /// Compare the algorithms of an all-reduce of this size over --gpus ranks instead: steps, bytes
    /// a link, latency.
    #[arg(long, value_name = "BYTES", conflicts_with = "runs", help_heading = "Collectives")]
    pub explain_collective: Option<Bytes>,
    /// With --explain-collective: links as `train` takes them; those of the cluster if not said.
    #[arg(
        long,
        value_name = "NAME|FILE",
        requires = "explain_collective",
        help_heading = "Collectives"
    )]
    pub links: Option<String>,
    /// Predict every row of a file of measured runs instead.
    #[arg(long, value_name = "FILE", help_heading = "Measured runs")]
    pub runs: Option<PathBuf>,
    /// With --runs: also fit the constants without each source in turn and predict that source.
    #[arg(long, requires = "runs", help_heading = "Measured runs")]
    pub leave_one_out: bool,
    /// Write the predicted step as a picture.
    #[arg(long, value_name = "FILE", conflicts_with = "runs", help_heading = "Output")]
    pub svg: Option<PathBuf>,
    /// Write Plan and predicted spans of one rank of each class, as JSON.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub trace: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// `shardlab search`.
#[derive(Debug, Args)]
pub struct SearchArgs {
    /// With --here: a scenario file (TOML); the quickstart if none is given.
    #[arg(value_name = "SCENARIO", requires = "here")]
    pub scenario: Option<PathBuf>,
    /// A preset (gpt-175b, llama-3-8b, llama-3-405b, …), a folder with a Hugging Face config.json, or
    /// a TOML file with the sizes; llama-3-8b if not said. With --here what `train` takes.
    #[arg(long, value_name = "PRESET|DIR|FILE", help_heading = "Model and data")]
    pub model: Option<String>,
    /// A preset (v100, a100-40, a100-80, h100, h200, b200, gb200, rtx4090, …) or a TOML file; h100 if
    /// not said.
    #[arg(long, value_name = "NAME|FILE", help_heading = "Cluster")]
    pub cluster: Option<String>,
    /// Ranks; one node if not said.
    #[arg(long, value_name = "N", help_heading = "Cluster")]
    pub gpus: Option<u32>,
    /// Rows of a step over all data-parallel ranks; one a GPU if not said.
    #[arg(long, value_name = "ROWS", help_heading = "Model and data")]
    pub batch: Option<u32>,
    /// Tokens of a row; 4096 if not said.
    #[arg(long, value_name = "TOKENS", help_heading = "Model and data")]
    pub seq: Option<u64>,
    /// bf16, fp16 or fp8.
    #[arg(long, value_name = "TYPE", default_value = "bf16", value_parser = super::simulate::precision, help_heading = "Model and data")]
    pub precision: Precision,
    /// The layouts of a scenario on this machine's cores, as `doctor --calibrate` measured them.
    #[arg(long, conflicts_with_all = ["cluster", "gpus", "precision"], help_heading = "This machine")]
    pub here: bool,
    /// With --here: ranks; as many as in the scenario if not said.
    #[arg(long, value_name = "N", requires = "here", help_heading = "This machine")]
    pub ranks: Option<u32>,
    /// With --here: train with the best layout, and hold its prediction against what is measured.
    #[arg(long, requires = "here", help_heading = "This machine")]
    pub run: bool,
    /// With --run: optimizer steps.
    #[arg(long, value_name = "N", requires = "run", help_heading = "This machine")]
    pub steps: Option<u64>,
    /// With --here: what another machine was measured to take.
    #[arg(long, value_name = "FILE", requires = "here", help_heading = "This machine")]
    pub calibration: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// `shardlab verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// What is verified: three steps of SGD unless flags say otherwise.
    #[command(flatten)]
    pub run: RunArgs,
    /// Which devices run it.
    #[command(flatten)]
    pub devices: DeviceArgs,
    /// A reference case that was trained elsewhere: it brings model, batches and settings.
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with_all = ["scenario", "model", "data", "steps", "batch", "seq", "lr", "seed",
            "optimizer", "clip_norm", "warmup", "weight_decay"],
        help_heading = "Output"
    )]
    pub golden: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// `shardlab doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Measure what this machine's cores take for every kernel, so that steps can be predicted.
    #[arg(long)]
    pub calibrate: bool,
    /// With --calibrate: keep it in this file instead of the folder for settings.
    #[arg(long, value_name = "FILE", requires = "calibrate")]
    pub output: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// A scenario and the flags that override it.
#[derive(Clone, Debug, Default, Args)]
pub struct RunArgs {
    /// A scenario file (TOML); the quickstart if none is given.
    #[arg(value_name = "SCENARIO")]
    pub scenario: Option<PathBuf>,
    /// How training is cut.
    #[command(flatten)]
    pub layout: LayoutArgs,
    /// What is trained.
    #[command(flatten)]
    pub training: TrainingArgs,
}

impl TrainingArgs {
    /// What other commands call model, batch and tokens of a row.
    ///
    /// # Errors
    /// If no row has so many tokens.
    pub(super) fn of_words(
        model: Option<&str>,
        batch: Option<u32>,
        seq: Option<u64>,
    ) -> Result<Self, ConfigError> {
        let seq = seq.map(|seq| {
            u32::try_from(seq).map_err(|_too_large| {
                let why = format!("{seq} tokens are more than a row has");
                ConfigError::value("seq", why, format!("Give at most {}", u32::MAX))
            })
        });
        let model = model.map(|word| match word.parse() {
            Ok(source) => source,
            Err(never) => match never {},
        });
        Ok(Self { model, batch, seq: seq.transpose()?, ..Self::default() })
    }
}

/// How training is cut over ranks.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Layout")]
pub struct LayoutArgs {
    /// Data-parallel size.
    #[arg(long, value_name = "N")]
    pub dp: Option<u32>,
    /// Tensor-parallel size.
    #[arg(long, value_name = "N")]
    pub tp: Option<u32>,
    /// Pipeline positions.
    #[arg(long, value_name = "N")]
    pub pp: Option<u32>,
    /// Stages per pipeline position: 1, or 2 and more in a loop, or 2 in a V; the schedule decides.
    #[arg(long, value_name = "N")]
    pub chunks: Option<u32>,
    /// What data-parallel ranks share out: 1 optimizer state, 2 gradients too, 3 weights too.
    #[arg(long, value_name = "0|1|2|3")]
    pub zero: Option<ZeroStage>,
    /// Order of forwards and backwards: gpipe, 1f1b, zb-h1, zb-h2; with chunks interleaved-1f1b,
    /// looped-bfs, interleaved-zero-bubble; in a V zb-v, dualpipe-v; or a file.
    #[arg(long, value_name = "NAME|FILE.csv")]
    pub schedule: Option<ScheduleName>,
    /// Microbatches of a data-parallel rank in a step.
    #[arg(long, value_name = "N")]
    pub microbatches: Option<u32>,
    /// The same said as rows of a microbatch.
    #[arg(long, value_name = "ROWS")]
    pub micro_batch_size: Option<u32>,
    /// Cut norms and residuals over the sequence: on (if no value is given) or off.
    #[arg(long, value_name = "on|off", num_args = 0..=1, default_missing_value = "on")]
    pub sequence_parallel: Option<String>,
    /// What is computed again in backward: none, selective or full.
    #[arg(long, value_name = "WHAT")]
    pub recompute: Option<Recompute>,
    /// How collectives are unfolded: auto, ring, tree, hierarchical or direct.
    #[arg(long, value_name = "HOW")]
    pub collective: Option<CollectiveChoice>,
    /// Whether gradients are summed while backward runs.
    #[arg(long, value_name = "on|off", hide_possible_values = true)]
    pub overlap: Option<Switch>,
    /// Which axis runs fastest through the rank numbers: tp-dp-pp or tp-pp-dp.
    #[arg(long, value_name = "ORDER")]
    pub rank_order: Option<RankOrder>,
    /// Ranks of a node, for hierarchical collectives.
    #[arg(long, value_name = "N")]
    pub node_size: Option<u32>,
    /// Gradients are summed in buckets of at least this much.
    #[arg(long, value_name = "BYTES")]
    pub bucket_bytes: Option<Bytes>,
    /// Messages of gradients and weights are cut into chunks of at most this much.
    #[arg(long, value_name = "BYTES")]
    pub chunk_bytes: Option<Bytes>,
    /// Units of each stage out of [embedding, layers…, head], as in 2,1,3.
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    pub stage_units: Option<Vec<u32>>,
}

/// What is trained, on what, and how long.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Model and data")]
pub struct TrainingArgs {
    /// A preset (shakespeare, tiny, bench) or a folder with a Hugging Face config.json.
    #[arg(long, value_name = "PRESET|DIR")]
    pub model: Option<ModelSource>,
    /// A text (its bytes are tokens), or tokens as .u16, .u32 or .safetensors.
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
    /// Optimizer steps.
    #[arg(long, value_name = "N")]
    pub steps: Option<u64>,
    /// Rows of a step over all data-parallel ranks.
    #[arg(long, value_name = "ROWS")]
    pub batch: Option<u32>,
    /// Tokens of a row.
    #[arg(long, value_name = "TOKENS")]
    pub seq: Option<u32>,
    /// Peak learning rate.
    #[arg(long, value_name = "RATE")]
    pub lr: Option<f32>,
    /// Seed of weights and batches.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// adamw or sgd.
    #[arg(long, value_name = "NAME")]
    pub optimizer: Option<OptimizerKind>,
    /// Limit of the global gradient norm; 0 is off.
    #[arg(long, value_name = "NORM")]
    pub clip_norm: Option<f32>,
    /// Steps of linear warm-up.
    #[arg(long, value_name = "STEPS")]
    pub warmup: Option<u64>,
    /// Decoupled weight decay (adamw).
    #[arg(long, value_name = "RATE")]
    pub weight_decay: Option<f32>,
    /// Measure the held-out loss every N steps; 0: at the start and the end only.
    #[arg(long, value_name = "N")]
    pub eval_every: Option<u64>,
}

/// Which devices run the ranks.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Devices")]
pub struct DeviceArgs {
    /// auto, cpu, gpu, or names and numbers of `shardlab doctor` with commas between.
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub device: DeviceRequest,
    /// What one rank may place, as in 512MiB.
    #[arg(long, value_name = "BYTES")]
    pub device_memory: Option<Bytes>,
    /// Workers of the CPU; as many as cores if not said. Changes no bit of the result.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
}

/// on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn layout_flags_are_the_same_in_every_command() {
        let names = |command: &str| -> Vec<String> {
            let cli = Cli::command();
            let command = cli.find_subcommand(command).unwrap();
            let layout = command.get_arguments().filter(|a| a.get_help_heading() == Some("Layout"));
            layout.map(|arg| arg.get_long().unwrap().to_owned()).collect()
        };
        let train = names("train");
        for flag in [
            "dp",
            "tp",
            "pp",
            "chunks",
            "zero",
            "schedule",
            "microbatches",
            "micro-batch-size",
            "sequence-parallel",
            "recompute",
            "collective",
            "overlap",
            "rank-order",
        ] {
            assert!(train.iter().any(|name| name == flag), "{flag}");
        }
        assert_eq!(train, names("plan"));
        assert_eq!(train, names("verify"));
    }
}
