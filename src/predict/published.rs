//! Published, measured runs: reads files in the format of `runs.json` and describes each row as a
//! workload on a cluster, or says why it cannot.

use serde::Deserialize;
use serde_json::Value;

use super::{memory, software, table};
use crate::config::workload::{
    AttentionKernel, Precision, Recomputed, Sharding, Split, StepBatch, Transformer, Workload,
};
use crate::config::{Cluster, ConfigError, ScheduleName};
use crate::mesh::RankOrder;

/// A file of runs.
#[derive(Clone, Debug, Default)]
pub struct Runs {
    /// Measured rows.
    pub rows: Vec<Run>,
    /// Layouts that ran out of memory.
    pub out_of_memory: Vec<Run>,
}

/// One row.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its name.
    pub id: String,
    /// Where it was published.
    pub source: String,
    /// The GPU as printed.
    pub gpu: String,
    /// Ranks.
    pub gpus: u32,
    /// Whether everything is computed again in backward.
    pub full_recompute: bool,
    /// Measured seconds of a step.
    pub measured_seconds: f64,
    /// Model operations over the peak, by the source's own time and the causal convention.
    pub mfu: Option<f64>,
    /// Fully specified, in 16 bits, without a doubt.
    pub core: bool,
    /// What is doubtful.
    pub flags: Vec<String>,
    /// Model and cluster, for comparing layouts of the same.
    pub group: String,
    /// The row as a workload, or why it is none.
    pub described: Result<(Workload, Cluster), String>,
}

impl Runs {
    /// Reads the text of a file; `file` names it in errors.
    ///
    /// # Errors
    /// If it is not JSON or has no rows.
    pub fn parse(text: &str, file: &str) -> Result<Self, ConfigError> {
        let remedy = "Give a file with the fields of tests/published/runs.json";
        let value: Value = serde_json::from_str(text)
            .map_err(|error| ConfigError::value(file, format!("is not JSON ({error})"), remedy))?;
        let list = |name: &str| value.get(name).and_then(Value::as_array);
        // A bare list of rows is a file of rows too.
        let rows = list("rows").or_else(|| list("runs")).or_else(|| value.as_array());
        let rows = rows.ok_or_else(|| ConfigError::value(file, "has no rows", remedy))?;
        let rows: Vec<Run> = rows.iter().map(run).collect();
        let empty = Vec::new();
        let infeasible = list("memory_feasibility").unwrap_or(&empty);
        let out_of_memory = infeasible.iter().map(layout).collect();
        Ok(Self { rows, out_of_memory })
    }
}

/// The fields of a row that are read; all may be missing.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Row {
    id: String,
    source: String,
    framework: String,
    hardware: Hardware,
    model: ModelRow,
    parallel: Parallel,
    batch: BatchRow,
    recompute: Option<String>,
    precision: Option<String>,
    attention: Option<String>,
    measured: Measured,
    derived: Derived,
    flags: Vec<Value>,
    core: bool,
    xkey: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Hardware {
    gpu: String,
    num_gpus: u32,
    gpus_per_node: Option<u32>,
    inter: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ModelRow {
    name: String,
    layers: Option<f64>,
    hidden: Option<f64>,
    heads: Option<f64>,
    kv_heads: Option<f64>,
    head_dim: Option<f64>,
    ffn: Option<f64>,
    vocab: Option<f64>,
    seq: Option<f64>,
    gated_mlp: Option<bool>,
    tied_embeddings: Option<bool>,
    moe: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Parallel {
    tp: Option<u32>,
    pp: Option<u32>,
    dp: Option<u32>,
    cp: Option<u32>,
    vpp: Option<u32>,
    schedule: Option<String>,
    zero_or_dist_opt: Option<String>,
    sequence_parallel: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct BatchRow {
    micro_batch: Option<f64>,
    global_batch: Option<f64>,
    num_microbatches: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Measured {
    iter_s: Option<f64>,
    tokens_per_gpu_s: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Derived {
    iter_s: Option<f64>,
    mfu_causal: Option<f64>,
}

fn run(value: &Value) -> Run {
    let row = match Row::deserialize(value) {
        Ok(row) => row,
        Err(error) => {
            let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
            return Run {
                id: text("id").into(),
                source: text("source").into(),
                gpu: String::new(),
                gpus: 0,
                full_recompute: false,
                measured_seconds: f64::NAN,
                mfu: None,
                core: false,
                flags: Vec::new(),
                group: String::new(),
                described: Err(format!("a field cannot be read ({error})")),
            };
        }
    };
    let measured = row.derived.iter_s.or(row.measured.iter_s).or_else(|| {
        let tokens = row.batch.global_batch? * row.model.seq?;
        Some(tokens / f64::from(row.hardware.num_gpus) / row.measured.tokens_per_gpu_s?)
    });
    let described = match measured {
        Some(seconds) if seconds.is_finite() && seconds > 0.0 => row.describe(),
        _ => Err("no measured time".into()),
    };
    let recompute = row.recompute.as_deref().unwrap_or_default();
    Run {
        full_recompute: recompute.starts_with("full"),
        measured_seconds: measured.unwrap_or(f64::NAN),
        mfu: row.derived.mfu_causal,
        group: format!(
            "{}|{}|{}|{}",
            row.model.name,
            row.hardware.gpu,
            row.hardware.num_gpus,
            row.batch.global_batch.unwrap_or_default()
        ),
        flags: row.flags.iter().map(ToString::to_string).collect(),
        id: row.id,
        source: row.source,
        gpu: row.hardware.gpu,
        gpus: row.hardware.num_gpus,
        core: row.core,
        described,
    }
}

/// A layout that ran out of memory: a row of its source with other numbers.
fn layout(value: &Value) -> Run {
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    let number = |name: &str| value.get(name).and_then(Value::as_f64);
    let size = |name: &str| number(name).map(|n| n as u32);
    let is_aleph_alpha = text("model").starts_with("aa-");
    // The models that these lists name; hidden size and layers are given where others are meant.
    let model = match text("model") {
        "aa-llama-13B" => Some((40.0, 5120.0, 40.0, 13824.0, 128_000.0)),
        "aa-llama-30B" => Some((60.0, 6656.0, 52.0, 17920.0, 128_000.0)),
        "aa-llama-65B" => Some((80.0, 8192.0, 64.0, 22016.0, 128_000.0)),
        _ => number("layers").zip(number("hidden")).map(|(layers, hidden)| {
            (layers, hidden, (hidden / 128.0).floor(), 4.0 * hidden, 250_880.0)
        }),
    };
    let (layers, hidden, heads, ffn, vocab) = match model {
        Some((l, d, h, f, v)) => (Some(l), Some(d), Some(h), Some(f), Some(v)),
        None => (None, None, None, None, None),
    };
    let row = Row {
        id: format!("{} {}", text("model"), value.get("trial").unwrap_or(&Value::Null)),
        source: text("source").into(),
        framework: if is_aleph_alpha { "AA-Scaling" } else { "Megatron-DeepSpeed" }.into(),
        hardware: Hardware {
            gpu: text("gpu").into(),
            num_gpus: size("num_gpus").unwrap_or(0),
            gpus_per_node: Some(8),
            inter: None,
        },
        model: ModelRow {
            name: text("model").into(),
            layers,
            hidden,
            heads,
            ffn,
            vocab,
            seq: number("seq"),
            gated_mlp: Some(is_aleph_alpha),
            tied_embeddings: Some(!is_aleph_alpha),
            ..ModelRow::default()
        },
        parallel: Parallel {
            tp: size("tp"),
            pp: size("pp"),
            dp: size("dp"),
            sequence_parallel: value.get("sp").and_then(Value::as_bool),
            zero_or_dist_opt: Some("ZeRO-1".into()),
            ..Parallel::default()
        },
        batch: BatchRow {
            micro_batch: number("mbs"),
            global_batch: number("gbs"),
            num_microbatches: None,
        },
        recompute: Some(text("recompute").into()),
        precision: Some(if is_aleph_alpha { "bf16" } else { "fp16" }.into()),
        attention: Some(
            value.get("kernel").and_then(Value::as_str).unwrap_or("fused softmax").into(),
        ),
        ..Row::default()
    };
    Run {
        full_recompute: text("recompute").starts_with("full"),
        measured_seconds: f64::NAN,
        mfu: None,
        core: false,
        flags: Vec::new(),
        group: String::new(),
        described: row.describe(),
        id: row.id,
        source: row.source,
        gpu: row.hardware.gpu,
        gpus: row.hardware.num_gpus,
    }
}

impl Row {
    fn describe(&self) -> Result<(Workload, Cluster), String> {
        let model = self.transformer()?;
        let cluster = self.cluster()?;
        let split = self.split()?;
        let batch = self.step_batch(&split)?;
        let word = |word: &Option<String>| word.clone().unwrap_or_default();
        let (precision, attention) = (word(&self.precision), word(&self.attention));
        if attention.contains("sliding") {
            return Err("attention over a sliding window is not described".into());
        }
        let lower = precision.to_lowercase();
        if lower.contains("fp4") {
            return Err("4-bit products are not described".into());
        }
        let eight_bit = ["fp8", "float8"].iter().any(|name| lower.contains(name));
        let mut software = software::of(&self.framework, &attention, &precision, model.gated);
        software.node_aware = !word(&self.parallel.zero_or_dist_opt).contains("(DeepSpeed)");
        if self.id.contains("asyncTP") {
            software.overlap_tensor = true;
        }
        let mut workload = Workload {
            model,
            split,
            batch,
            recomputed: self.recomputed(software.attention),
            precision: if eight_bit { Precision::Fp8 } else { Precision::Half },
            software,
        };
        // Where recompute is assumed and the step cannot fit without, as many layers as are needed
        // must have been computed again.
        let recompute = word(&self.recompute);
        let assumed = ["assumed", "not printed", "not stated", "or selective"];
        if assumed.iter().any(|word| recompute.contains(word)) {
            let table = table(&workload, workload.batch.microbatches);
            for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
                if share > 0.0 {
                    workload.recomputed = Recomputed::Layers(share);
                }
                if memory::fits(&memory::positions(&workload, &table), cluster.gpu.memory_gb) {
                    break;
                }
            }
        }
        Ok((workload, cluster))
    }

    fn transformer(&self) -> Result<Transformer, String> {
        let row = &self.model;
        if row.moe == Some(true) {
            return Err("mixture of experts is not described".into());
        }
        let size = |what: &str, value: Option<f64>| match value {
            Some(value) if value >= 1.0 => Ok(value as u64),
            _ => Err(format!("{what} is not printed")),
        };
        let heads = size("heads", row.heads)?;
        let hidden = size("hidden size", row.hidden)?;
        Ok(Transformer {
            layers: size("layers", row.layers)?,
            hidden,
            heads,
            kv_heads: row.kv_heads.map_or(heads, |kv| kv as u64),
            head_dim: row.head_dim.map_or(hidden / heads, |k| k as u64),
            ffn: row.ffn.map_or(4 * hidden, |f| f as u64),
            vocab: size("vocabulary", row.vocab)?,
            gated: row.gated_mlp.unwrap_or(false),
            tied: row.tied_embeddings.unwrap_or(false),
        })
    }

    fn cluster(&self) -> Result<Cluster, String> {
        let gpu = &self.hardware.gpu;
        let name = match gpu.as_str() {
            name if name.starts_with("V100") => "v100",
            name if name.starts_with("A100") && name.contains("40GB") => "a100-40",
            name if name.starts_with("A100") => "a100-80",
            name if name.starts_with("H100") && name.contains("HBM2e") => "h100-hbm2e",
            name if name.starts_with("H100") => "h100",
            name if name.starts_with("H200") => "h200",
            name if name.starts_with("B200") => "b200",
            name if name.starts_with("B300") => "b300",
            name if name.starts_with("GB200") => "gb200",
            name if name.starts_with("GB300") => "gb300",
            name if name.contains("4090") => "rtx4090",
            _ => return Err(format!("{gpu} is not described")),
        };
        let mut cluster = Cluster::preset(name).map_err(|error| error.to_string())?;
        let per_node = self.hardware.gpus_per_node.unwrap_or(8);
        // In a rack of NVL72 the fast links join more than the GPUs of a board.
        if cluster.node.gpus <= 8 {
            cluster.node.gpus = per_node;
        }
        let printed = self.hardware.inter.as_ref();
        if let Some((gb_per_sec, measured)) = printed.and_then(|words| network(words, per_node)) {
            cluster.network.gb_per_sec = gb_per_sec;
            cluster.network.measured = measured;
        }
        Ok(cluster)
    }

    fn split(&self) -> Result<Split, String> {
        let row = &self.parallel;
        let size = |what: &str, value: Option<u32>| {
            value.filter(|size| *size > 0).ok_or_else(|| format!("{what} is not printed"))
        };
        let (tp, pp) = (size("tp", row.tp)?, size("pp", row.pp)?);
        let words = row.schedule.clone().unwrap_or_default().to_lowercase();
        let chunks = row.vpp.unwrap_or(if words.starts_with("interleaved") { 2 } else { 1 });
        let (schedule, chunks) = match words.as_str() {
            "zb-1p" => (ScheduleName::ZbH1, 1),
            words if words.starts_with("zb-2p") => (ScheduleName::ZbH2, 1),
            "v-zb" => (ScheduleName::ZbV, 2),
            "v-min" | "v-half" => return Err(format!("schedule {words} has no table")),
            _ if chunks > 1 && pp > 1 => (ScheduleName::Interleaved1F1B, chunks),
            _ => (ScheduleName::OneFOneB, 1),
        };
        let sharding = row.zero_or_dist_opt.clone().unwrap_or_default();
        let sharding = match sharding.as_str() {
            word if word.contains("SHARD_GRAD_OP") => Sharding::Gradients,
            // Weights are gathered once a step and stay whole.
            word if word.contains("no reshard after fwd") => Sharding::OptimizerState,
            word if word.contains("FSDP") || word.contains("ZeRO-3") => Sharding::Weights,
            word if ["none", "ZeRO-0", "DDP"].iter().any(|none| word.starts_with(none)) => {
                Sharding::Nothing
            }
            _ => Sharding::OptimizerState,
        };
        Ok(Split {
            tp,
            pp,
            dp: size("dp", row.dp)?,
            cp: row.cp.unwrap_or(1).max(1),
            chunks,
            sharding,
            sequence_parallel: tp > 1 && row.sequence_parallel.unwrap_or(false),
            schedule,
            order: RankOrder::TpDpPp,
        })
    }

    fn step_batch(&self, split: &Split) -> Result<StepBatch, String> {
        let row = &self.batch;
        let seq = self.model.seq.ok_or("sequence length is not printed")? as u64;
        // One row is what large models use where none is printed.
        let rows = row.micro_batch.unwrap_or(1.0).max(1.0);
        let whole = row.global_batch.ok_or("batch is not printed")?;
        let microbatches =
            row.num_microbatches.unwrap_or_else(|| (whole / f64::from(split.dp) / rows).round());
        Ok(StepBatch { seq, rows: rows as u64, microbatches: (microbatches as u32).max(1) })
    }

    fn recomputed(&self, attention: AttentionKernel) -> Recomputed {
        let words = self.recompute.clone().unwrap_or_default();
        match words.as_str() {
            words if words.starts_with("full") => Recomputed::Layers(1.0),
            words if words.starts_with("selective (op)") => Recomputed::HalfOfProducts,
            // IBM's tables print 1.13 times as many hardware operations as the model's.
            words if words.starts_with("selective (every") => Recomputed::Layers(0.4),
            words if words.starts_with("selective") => match attention {
                AttentionKernel::Unfused(_) => Recomputed::Attention,
                // Flash attention computes its scores again by itself.
                _ => Recomputed::Nothing,
            },
            _ => Recomputed::Nothing,
        }
    }
}

/// Bytes a second (in units of 10⁹) of one GPU's share of the network from its printed words, and
/// whether they are a measured rate: `8x200 Gb/s HDR IB per node`, `400 Gb/s RDMA per GPU`.
fn network(words: &str, per_node: u32) -> Option<(f64, bool)> {
    let per_node = f64::from(per_node);
    if let Some(rest) = words.split("busbw only ").nth(1) {
        let rate: f64 = rest.split(' ').next()?.parse().ok()?;
        return Some((rate / 8.0 / per_node, true));
    }
    let before = words.split(" Gb/s").next().filter(|before| before.len() < words.len())?;
    let number = before.rsplit([' ', '(']).next()?;
    if let Some((count, each)) = number.split_once('x') {
        let [count, each] = [count, each].map(str::parse::<f64>);
        return Some((count.ok()? * each.ok()? / 8.0 / per_node, false));
    }
    let rate: f64 = number.split('-').next()?.parse().ok()?;
    let node = words.contains("per node") || words.contains("/node");
    Some((if node { rate / 8.0 / per_node } else { rate / 8.0 }, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_as_they_are_printed() {
        let of = |words, per_node| network(words, per_node).map(|(rate, _)| rate);
        assert_eq!(of("8x200 Gb/s HDR IB per node (1 HCA/GPU)", 8), Some(25.0));
        assert_eq!(of("4x100 Gb/s Omni-Path per node", 8), Some(6.25));
        assert_eq!(of("400 Gb/s RDMA per GPU", 8), Some(50.0));
        assert_eq!(of("1600 Gb/s per node RoCE (printed)", 8), Some(25.0));
        assert_eq!(of("AWS EFA 3200 Gb/s per node (p5)", 8), Some(50.0));
        assert_eq!(of("not printed (a cluster, 3200 Gb/s/node class)", 8), Some(50.0));
        assert_eq!(of("400-800 Gb/s IB per GPU", 4), Some(50.0));
        assert_eq!(of("RoCE RDMA (rate not printed)", 8), None);
        let measured = "4x100 Gb/s; measured all-reduce busbw only 84.7 Gb/s at 4 nodes";
        assert_eq!(network(measured, 4), Some((84.7 / 32.0, true)));
    }
}
