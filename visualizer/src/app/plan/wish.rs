//! What is asked of a prediction: a model, a cluster, a cut of one over the other, and what if.
//!
//! Every control has a row of settings from which one is chosen, so that all of them work alike, by
//! pointer and by keys. [`Wish::faults`] says what cannot be, at the control that is to blame.

use serde::{Deserialize, Serialize};
use shardlab::config::layout::ZeroStage;
use shardlab::config::workload::{
    Precision, Recomputed, Software, Split, StepBatch, Transformer, Workload,
};
use shardlab::config::{Cluster, Layout, Recompute, ScheduleName};
use shardlab::mesh::Rank;
use shardlab::planner::PlanError;
use shardlab::planner::cluster::classes::Knobs;
use shardlab::predict::Conditions;
use shardlab::search::{Cut, Space};
use shardlab::sim::Whatif;

/// Something that can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Control {
    /// The model.
    Model,
    /// The cluster.
    Cluster,
    /// Ranks altogether.
    Gpus,
    /// Tensor-parallel size.
    Tensor,
    /// Pipeline positions.
    Pipeline,
    /// Ranks that share a sequence.
    Context,
    /// Copies of the model: what the GPUs leave.
    Data,
    /// Stages a pipeline position.
    Chunks,
    /// Order of forwards and backwards.
    Schedule,
    /// Rows of a step.
    Batch,
    /// Rows of a microbatch.
    Rows,
    /// Tokens of a row.
    Sequence,
    /// What the copies share out.
    Zero,
    /// What is computed again.
    Recompute,
    /// Whether norms are cut over the sequence.
    SequenceParallel,
    /// Bandwidth inside a node, against what it is.
    NodeBandwidth,
    /// Bandwidth between nodes, against what it is.
    NetworkBandwidth,
    /// Latency of all links, against what it is.
    Latency,
    /// How much slower one rank is.
    SlowRank,
    /// How much longer an op may take by chance.
    Jitter,
}

impl Control {
    /// All of them, from top to bottom.
    pub const ALL: [Self; 20] = [
        Self::Model,
        Self::Cluster,
        Self::Gpus,
        Self::Tensor,
        Self::Pipeline,
        Self::Context,
        Self::Data,
        Self::Chunks,
        Self::Schedule,
        Self::Batch,
        Self::Rows,
        Self::Sequence,
        Self::Zero,
        Self::Recompute,
        Self::SequenceParallel,
        Self::NodeBandwidth,
        Self::NetworkBandwidth,
        Self::Latency,
        Self::SlowRank,
        Self::Jitter,
    ];

    /// What stands before it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Cluster => "cluster",
            Self::Gpus => "GPUs",
            Self::Tensor => "tensor",
            Self::Pipeline => "pipeline",
            Self::Context => "context",
            Self::Data => "data",
            Self::Chunks => "chunks",
            Self::Schedule => "schedule",
            Self::Batch => "batch",
            Self::Rows => "microbatch",
            Self::Sequence => "sequence",
            Self::Zero => "ZeRO",
            Self::Recompute => "recompute",
            Self::SequenceParallel => "seq. parallel",
            Self::NodeBandwidth => "node links",
            Self::NetworkBandwidth => "network",
            Self::Latency => "latency",
            Self::SlowRank => "slow rank",
            Self::Jitter => "jitter",
        }
    }

    /// What it is, in a few words.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Model => "the sizes of the model",
            Self::Cluster => "GPU, links inside a node and network, by data sheet",
            Self::Gpus => "ranks altogether",
            Self::Tensor => "slices of every matrix",
            Self::Pipeline => "positions, each with its layers",
            Self::Context => "ranks that share each sequence and hold the same weights",
            Self::Data => "copies of the model: what the GPUs leave",
            Self::Chunks => "stages of a pipeline position",
            Self::Schedule => "order of forwards and backwards",
            Self::Batch => "rows of a step, over all copies",
            Self::Rows => "rows of a microbatch",
            Self::Sequence => "tokens of a row",
            Self::Zero => "what the copies share out: 1 optimizer, 2 gradients, 3 weights",
            Self::Recompute => "computed again in backward instead of kept",
            Self::SequenceParallel => "norms cut over the sequence as well",
            Self::NodeBandwidth => "bandwidth inside a node, times what it is",
            Self::NetworkBandwidth => "bandwidth between nodes, times what it is",
            Self::Latency => "latency of all links, times what it is",
            Self::SlowRank => "how much slower rank 0 computes",
            Self::Jitter => "how much longer each op may take by chance, at most",
        }
    }
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Wish {
    /// A preset.
    pub model: String,
    /// A preset.
    pub cluster: String,
    /// Ranks altogether.
    pub gpus: u32,
    /// Rows of a step.
    pub batch: u32,
    /// Rows of a microbatch.
    pub rows: u32,
    /// Tokens of a row.
    pub seq: u32,
    /// Ranks that share a row.
    pub context: u32,
    /// Bandwidth inside nodes and between them, and latency, times what they are.
    pub links: [f64; 3],
    /// How much slower rank 0 is.
    pub slow: f64,
    /// The share that ops take longer by chance, at most.
    pub jitter: f64,
    /// The cut; its copies and microbatches follow from the numbers above.
    pub layout: Layout,
}

impl Default for Wish {
    fn default() -> Self {
        let layout = Layout {
            tp: 8,
            pp: 4,
            zero: ZeroStage::Zero1,
            sequence_parallel: true,
            ..Layout::default()
        };
        Self {
            model: "llama-3-70b".into(),
            cluster: "h100".into(),
            gpus: 1024,
            batch: 1024,
            rows: 1,
            seq: 8192,
            context: 1,
            layout,
            links: [1.0; 3],
            slow: 1.0,
            jitter: 0.0,
        }
    }
}

const GPUS: [u32; 24] = [
    1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
    6144, 8192, 16_384,
];
const TENSOR: [u32; 8] = [1, 2, 3, 4, 6, 8, 16, 32];
const PIPELINE: [u32; 14] = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 64];
const CONTEXT: [u32; 5] = [1, 2, 4, 8, 16];
const DATA: [u32; 18] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 2048];
const CHUNKS: [u32; 8] = [1, 2, 3, 4, 5, 6, 8, 10];
const BATCH: [u32; 15] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384];
const ROWS: [u32; 6] = [1, 2, 4, 8, 16, 32];
const SEQUENCE: [u32; 9] = [128, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, 131_072];
const FACTORS: [f64; 7] = [0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0];
const SLOW: [f64; 6] = [1.0, 1.1, 1.25, 1.5, 2.0, 4.0];
const JITTER: [f64; 6] = [0.0, 0.01, 0.02, 0.05, 0.1, 0.2];
const RECOMPUTE: [Recompute; 3] = [Recompute::None, Recompute::Selective, Recompute::Full];
const ZERO: [ZeroStage; 4] =
    [ZeroStage::Zero0, ZeroStage::Zero1, ZeroStage::Zero2, ZeroStage::Zero3];

/// Controls that decide whether a wish can be.
const CUTS: [Control; 7] = [
    Control::Gpus,
    Control::Batch,
    Control::Rows,
    Control::Pipeline,
    Control::Tensor,
    Control::Chunks,
    Control::Context,
];
/// Changes after which no way out is looked for any more.
const CHANGES_MOST: usize = 4;

/// The setting next to a number: of a row that ascends, the last one that is not above it.
fn at<T: PartialOrd>(settings: &[T], value: &T) -> usize {
    settings.iter().rposition(|setting| setting <= value).unwrap_or_default()
}

impl Wish {
    /// Copies of the model, where the GPUs are a multiple of what one copy takes.
    pub fn copies(&self) -> Option<u32> {
        let each = self.each();
        self.gpus.is_multiple_of(each).then_some(self.gpus / each)
    }

    /// GPUs of one copy.
    fn each(&self) -> u32 {
        self.layout.tp * self.layout.pp * self.context
    }

    /// Says of what was kept in a file why it cannot be asked, if so: numbers that no control has are
    /// fine as long as they can be reckoned with.
    ///
    /// # Errors
    /// What makes no sense.
    pub fn check(&self) -> Result<(), String> {
        let Layout { tp, pp, chunks, .. } = self.layout;
        let known =
            Transformer::read(&self.model).is_ok() && Cluster::preset(&self.cluster).is_ok();
        let small = [tp, pp, chunks, self.context, self.rows];
        let small = small.into_iter().all(|count| (1..=64).contains(&count));
        let large = [self.gpus, self.batch, self.seq];
        let large = large.into_iter().all(|count| (1..=1 << 20).contains(&count));
        let factors = self.links.iter().chain([&self.slow]).all(|f| (0.01..=100.0).contains(f));
        let is_named = !matches!(self.layout.schedule, ScheduleName::File(_));
        match known && small && large && factors && (0.0..=1.0).contains(&self.jitter) && is_named {
            true => Ok(()),
            false => {
                Err("a model, cluster or number of this wish is unknown or out of range".into())
            }
        }
    }

    /// How many settings a control has.
    pub fn count(control: Control) -> usize {
        match control {
            Control::Model => Transformer::presets().count(),
            Control::Cluster => Cluster::presets().count(),
            Control::Gpus => GPUS.len(),
            Control::Tensor => TENSOR.len(),
            Control::Pipeline => PIPELINE.len(),
            Control::Context => CONTEXT.len(),
            Control::Data => DATA.len(),
            Control::Chunks => CHUNKS.len(),
            Control::Schedule => ScheduleName::NAMED.len(),
            Control::Batch => BATCH.len(),
            Control::Rows => ROWS.len(),
            Control::Sequence => SEQUENCE.len(),
            Control::Zero => ZERO.len(),
            Control::Recompute => RECOMPUTE.len(),
            Control::SequenceParallel => 2,
            Control::NodeBandwidth | Control::NetworkBandwidth | Control::Latency => FACTORS.len(),
            Control::SlowRank => SLOW.len(),
            Control::Jitter => JITTER.len(),
        }
    }

    /// Which setting a control has.
    pub fn setting(&self, control: Control) -> usize {
        let layout = &self.layout;
        match control {
            Control::Model => named(Transformer::presets(), &self.model),
            Control::Cluster => named(Cluster::presets(), &self.cluster),
            Control::Gpus => at(&GPUS, &self.gpus),
            Control::Tensor => at(&TENSOR, &layout.tp),
            Control::Pipeline => at(&PIPELINE, &layout.pp),
            Control::Context => at(&CONTEXT, &self.context),
            Control::Data => at(&DATA, &(self.gpus / self.each())),
            Control::Chunks => at(&CHUNKS, &layout.chunks),
            Control::Schedule => {
                let of = |name: &ScheduleName| *name == layout.schedule;
                ScheduleName::NAMED.iter().position(of).unwrap_or_default()
            }
            Control::Batch => at(&BATCH, &self.batch),
            Control::Rows => at(&ROWS, &self.rows),
            Control::Sequence => at(&SEQUENCE, &self.seq),
            Control::Zero => at(&ZERO, &layout.zero),
            Control::Recompute => {
                RECOMPUTE.iter().position(|what| *what == layout.recompute).unwrap_or_default()
            }
            Control::SequenceParallel => usize::from(layout.sequence_parallel),
            Control::NodeBandwidth => at(&FACTORS, &self.links[0]),
            Control::NetworkBandwidth => at(&FACTORS, &self.links[1]),
            Control::Latency => at(&FACTORS, &self.links[2]),
            Control::SlowRank => at(&SLOW, &self.slow),
            Control::Jitter => at(&JITTER, &self.jitter),
        }
    }

    /// Chooses a setting of a control; one beyond the last is the last.
    pub fn set(&mut self, control: Control, setting: usize) {
        let setting = setting.min(Self::count(control) - 1);
        let layout = &mut self.layout;
        match control {
            Control::Model => self.model = name_at(Transformer::presets(), setting),
            Control::Cluster => self.cluster = name_at(Cluster::presets(), setting),
            Control::Gpus => self.gpus = GPUS[setting],
            Control::Tensor => layout.tp = TENSOR[setting],
            Control::Pipeline => layout.pp = PIPELINE[setting],
            Control::Context => self.context = CONTEXT[setting],
            Control::Data => self.gpus = layout.tp * layout.pp * self.context * DATA[setting],
            Control::Chunks => layout.chunks = CHUNKS[setting],
            Control::Schedule => self.order(ScheduleName::NAMED[setting].clone()),
            Control::Batch => self.batch = BATCH[setting],
            Control::Rows => self.rows = ROWS[setting],
            Control::Sequence => self.seq = SEQUENCE[setting],
            Control::Zero => layout.zero = ZERO[setting],
            Control::Recompute => layout.recompute = RECOMPUTE[setting],
            Control::SequenceParallel => layout.sequence_parallel = setting == 1,
            Control::NodeBandwidth => self.links[0] = FACTORS[setting],
            Control::NetworkBandwidth => self.links[1] = FACTORS[setting],
            Control::Latency => self.links[2] = FACTORS[setting],
            Control::SlowRank => self.slow = SLOW[setting],
            Control::Jitter => self.jitter = JITTER[setting],
        }
    }

    /// Another schedule, with the stages that it places, so that it can be looked at: as many as it
    /// usually has, where the model has layers for them.
    fn order(&mut self, schedule: ScheduleName) {
        let (before, stages) = (self.layout.chunks, schedule.stages());
        self.layout.schedule = schedule;
        self.layout.chunks = stages.usual(before);
        if stages.allows(before) && self.faults().iter().any(|fault| fault.at == Control::Pipeline)
        {
            self.layout.chunks = before;
        }
    }

    /// The nearest wish that can be; `None` where a few changes do not lead to one.
    pub fn mended(&self) -> Option<Self> {
        let mut wish = self.clone();
        for _ in 0..CHANGES_MOST {
            let Some(fault) = wish.faults().first().map(|fault| fault.at) else {
                return Some(wish);
            };
            wish = wish.without(fault)?;
        }
        None
    }

    /// The same with one control changed, so that another one is to blame no more: as few others as can
    /// be are, the control itself is changed rather than another, and as little as can be.
    fn without(&self, fault: Control) -> Option<Self> {
        let others = CUTS.into_iter().filter(|control| *control != fault);
        let controls = std::iter::once(fault).chain(others).enumerate();
        let changes = controls.flat_map(|(order, control)| {
            let now = self.setting(control);
            (0..Self::count(control)).map(move |to| (order, to.abs_diff(now), control, to))
        });
        let mended = changes.filter_map(|(order, far, control, to)| {
            let mut wish = self.clone();
            wish.set(control, to);
            let faults = wish.faults();
            let is_mended = faults.iter().all(|other| other.at != fault);
            is_mended.then_some(((faults.len(), order, far), wish))
        });
        mended.min_by_key(|(cost, _)| *cost).map(|(_, wish)| wish)
    }

    /// What is different in another wish: `GPUs 32, batch 64 rows`.
    pub fn changes(&self, other: &Self) -> String {
        let changed = Control::ALL.into_iter().filter(|control| match control {
            // It follows from the others.
            Control::Data => false,
            control => self.setting(*control) != other.setting(*control),
        });
        let texts: Vec<String> =
            changed.map(|control| format!("{} {}", control.name(), other.value(control))).collect();
        texts.join(", ")
    }

    /// What is wished, in a few words.
    pub fn name(&self) -> String {
        format!("{} on {} × {}", self.model, self.gpus, self.cluster)
    }

    /// What a control is set to, as it is written.
    pub fn value(&self, control: Control) -> String {
        let layout = &self.layout;
        let times =
            |factor: f64| if factor == 1.0 { "as it is".into() } else { format!("× {factor}") };
        match control {
            Control::Model => self.model.clone(),
            Control::Cluster => self.cluster.clone(),
            Control::Gpus => self.gpus.to_string(),
            Control::Tensor => layout.tp.to_string(),
            Control::Pipeline => layout.pp.to_string(),
            Control::Context => self.context.to_string(),
            Control::Data => self.copies().map_or("–".into(), |copies| copies.to_string()),
            Control::Chunks => layout.chunks.to_string(),
            Control::Schedule => layout.schedule.title(),
            Control::Batch => format!("{} rows", self.batch),
            Control::Rows => format!("{} row{}", self.rows, if self.rows == 1 { "" } else { "s" }),
            Control::Sequence => format!("{} tokens", self.seq),
            Control::Zero => layout.zero.to_string(),
            Control::Recompute => layout.recompute.to_string(),
            Control::SequenceParallel => if layout.sequence_parallel { "on" } else { "off" }.into(),
            Control::NodeBandwidth => times(self.links[0]),
            Control::NetworkBandwidth => times(self.links[1]),
            Control::Latency => times(self.links[2]),
            Control::SlowRank if self.slow == 1.0 => "none".into(),
            Control::SlowRank => format!("× {}", self.slow),
            Control::Jitter if self.jitter == 0.0 => "none".into(),
            Control::Jitter => format!("× {}", 1.0 + self.jitter),
        }
    }

    /// What cannot be, each at the control that is to blame.
    pub fn faults(&self) -> Vec<Refusal> {
        let Ok(model) = Transformer::read(&self.model) else { return Vec::new() };
        let (tp, pp, chunks) = (self.layout.tp, self.layout.pp, self.layout.chunks);
        let mut faults = Vec::new();
        let mut fault = |at, why: String| faults.push(Refusal { at, why });
        if !model.heads.is_multiple_of(tp.into()) {
            let fits = TENSOR.iter().filter(|tp| model.heads.is_multiple_of(u64::from(**tp)));
            let fits = fits.map(ToString::to_string).collect();
            let heads = u32::try_from(model.heads).unwrap_or(u32::MAX);
            fault(Control::Tensor, PlanError::Heads { heads, tp, fits }.to_string());
        }
        let units = u32::try_from(model.layers + 2).unwrap_or(u32::MAX);
        if pp * chunks > units {
            let stages = pp * chunks;
            fault(Control::Pipeline, PlanError::TooManyStages { stages, units }.to_string());
        }
        let schedule = &self.layout.schedule;
        if !schedule.stages().allows(chunks) {
            let schedule = schedule.clone();
            fault(Control::Chunks, PlanError::Chunks { schedule, chunks }.to_string());
        }
        let each = self.each();
        match self.copies() {
            None => {
                let (below, above) = (self.gpus / each * each, self.gpus.div_ceil(each) * each);
                let fits =
                    if below > 0 { format!("{below} or {above}") } else { above.to_string() };
                let cuts = match self.context {
                    1 => format!("{tp} × {pp}"),
                    context => format!("{tp} × {pp} × {context}"),
                };
                let why = format!("{cuts} needs a multiple of {each} GPUs. Use {fits}");
                fault(Control::Gpus, why);
            }
            Some(copies) if !self.batch.is_multiple_of(copies * self.rows) => {
                let whole = copies * self.rows;
                fault(
                    Control::Batch,
                    format!(
                        "{} rows are no whole microbatches of {} on {copies} copies. Use a \
                         multiple of {whole}",
                        self.batch, self.rows
                    ),
                );
            }
            Some(_) => {}
        }
        faults
    }

    /// The layout with its copies and microbatches; `None` where it cannot be.
    pub fn layout(&self) -> Option<Layout> {
        if !self.faults().is_empty() {
            return None;
        }
        let dp = self.copies()?;
        let microbatches = self.batch / (dp * self.rows);
        Some(Layout { dp, microbatches, ..self.layout.clone() })
    }

    /// What is predicted, and on what; `None` where it cannot be.
    pub fn workload(&self) -> Option<(Workload, Cluster)> {
        let layout = self.layout()?;
        let cluster = self.cluster()?;
        let workload = Workload {
            model: Transformer::read(&self.model).ok()?,
            split: Split::of(&layout, self.context),
            batch: StepBatch {
                seq: self.seq.into(),
                rows: self.rows.into(),
                microbatches: layout.microbatches,
            },
            recomputed: Recomputed::from(layout.recompute),
            precision: Precision::Half,
            software: Software::default(),
        };
        Some((workload, cluster))
    }

    /// All cuts of the same model, batch and GPUs, and the cluster; `None` where the model is unknown.
    pub fn space(&self) -> Option<(Space, Cluster)> {
        let space = Space {
            model: Transformer::read(&self.model).ok()?,
            gpus: self.gpus,
            batch: self.batch,
            seq: self.seq.into(),
            precision: Precision::Half,
        };
        Some((space, self.cluster()?))
    }

    /// The cut that is wished, as one of its space; `None` where it cannot be, or where ranks share
    /// sequences: those are not searched.
    pub fn cut(&self) -> Option<Cut> {
        let layout = self.layout().filter(|_| self.context == 1)?;
        Some(Cut {
            tp: layout.tp,
            pp: layout.pp,
            dp: layout.dp,
            chunks: layout.chunks,
            microbatch_rows: self.rows,
            zero: layout.zero,
            recompute: layout.recompute,
            sequence_parallel: layout.sequence_parallel,
            schedule: layout.schedule,
        })
    }

    /// Wishes a cut of the space.
    pub fn take(&mut self, cut: &Cut) {
        (self.rows, self.context) = (cut.microbatch_rows, 1);
        self.layout = Layout {
            tp: cut.tp,
            pp: cut.pp,
            chunks: cut.chunks,
            zero: cut.zero,
            recompute: cut.recompute,
            sequence_parallel: cut.sequence_parallel,
            schedule: cut.schedule.clone(),
            ..self.layout.clone()
        };
    }

    /// The cluster with what is asked of its links.
    fn cluster(&self) -> Option<Cluster> {
        let mut cluster = Cluster::preset(&self.cluster).ok()?;
        let [node, network, latency] = self.links;
        cluster.node.gb_per_sec *= node;
        cluster.network.gb_per_sec *= network;
        cluster.node.latency_us *= latency;
        cluster.network.latency_us *= latency;
        Some(cluster)
    }

    /// Slow ranks and jitter.
    pub fn conditions(&self) -> Conditions {
        let slow_ranks = if self.slow > 1.0 { vec![(Rank(0), self.slow)] } else { Vec::new() };
        Conditions {
            knobs: Knobs { slow_ranks, ..Knobs::default() },
            whatif: Whatif { jitter: self.jitter, seed: 0 },
            ..Conditions::default()
        }
    }
}

/// Something that cannot be, and the control that is to blame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The control.
    pub at: Control,
    /// Why, and what to do.
    pub why: String,
}

impl Refusal {
    /// The control and why, as a sentence.
    pub fn sentence(&self) -> String {
        format!("{}: {}.", self.at.name(), self.why)
    }
}

fn named(mut names: impl Iterator<Item = &'static str>, name: &str) -> usize {
    names.position(|known| known == name).unwrap_or_default()
}

fn name_at(mut names: impl Iterator<Item = &'static str>, index: usize) -> String {
    names.nth(index).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(change: impl Fn(&mut Wish)) -> Option<Refusal> {
        let mut wish = Wish::default();
        change(&mut wish);
        let mut faults = wish.faults();
        assert!(faults.len() <= 1, "{faults:?}");
        assert_eq!(faults.is_empty(), wish.workload().is_some());
        faults.pop()
    }

    #[test]
    fn every_setting_of_every_control_can_be_chosen_and_is_read_back() {
        for control in Control::ALL {
            let count = Wish::count(control);
            let mut seen = Vec::new();
            for setting in 0..count {
                let mut wish = Wish::default();
                wish.set(control, setting);
                assert_eq!(wish.setting(control), setting, "{control:?}");
                let value = wish.value(control);
                assert!(!seen.contains(&value), "{control:?}: {value} twice");
                seen.push(value);
            }
            let mut wish = Wish::default();
            wish.set(control, usize::MAX);
            assert_eq!(wish.setting(control), count - 1);
        }
    }

    #[test]
    fn what_cannot_be_is_said_at_the_control_that_is_to_blame() {
        assert_eq!(fault(|_| {}), None);
        let heads = fault(|wish| (wish.layout.tp, wish.gpus, wish.batch) = (3, 1008, 84 * 4));
        let heads = heads.unwrap();
        assert_eq!(heads.at, Control::Tensor);
        assert!(heads.why.contains("64 heads cannot be split over 3 tensor ranks"), "{heads:?}");
        let stages = fault(|wish| {
            (wish.layout.schedule, wish.layout.chunks) = (ScheduleName::LoopedBfs, 32);
        });
        assert_eq!(stages.unwrap().at, Control::Pipeline);
        let chunks = fault(|wish| wish.layout.chunks = 2).unwrap();
        assert_eq!(chunks.at, Control::Chunks);
        let gpus = fault(|wish| wish.gpus = 100).unwrap();
        assert_eq!(gpus.at, Control::Gpus);
        assert_eq!(gpus.why, "8 × 4 needs a multiple of 32 GPUs. Use 96 or 128");
        let batch = fault(|wish| wish.batch = 16).unwrap();
        assert_eq!(batch.at, Control::Batch);
        assert!(batch.why.ends_with("Use a multiple of 32"), "{}", batch.why);
    }

    #[test]
    fn from_what_cannot_be_few_changes_lead_to_what_can_be() {
        let changes = |change: &dyn Fn(&mut Wish)| {
            let mut wish = Wish::default();
            change(&mut wish);
            let mended = wish.mended().expect("there is a way out");
            assert!(mended.workload().is_some());
            wish.changes(&mended)
        };
        assert_eq!(changes(&|_| {}), "");
        assert_eq!(changes(&|wish| wish.gpus = 1), "GPUs 32");
        assert_eq!(changes(&|wish| wish.gpus = 96), "GPUs 64");
        assert_eq!(changes(&|wish| wish.batch = 16), "batch 32 rows");
        assert_eq!(changes(&|wish| wish.layout.chunks = 2), "chunks 1");
        let two = changes(&|wish| (wish.layout.tp, wish.gpus) = (3, 96));
        assert!(two.contains("tensor") && two.contains("GPUs"), "{two}");
        // From any setting of any control.
        for control in Control::ALL {
            for setting in 0..Wish::count(control) {
                changes(&|wish| wish.set(control, setting));
            }
        }
    }

    #[test]
    fn a_schedule_with_several_stages_a_position_brings_them_where_there_are_layers_for_them() {
        let schedule = |name| ScheduleName::NAMED.iter().position(|other| *other == name).unwrap();
        for name in ScheduleName::NAMED {
            let mut wish = Wish::default();
            let stages = name.stages();
            wish.set(Control::Schedule, schedule(name));
            assert_eq!(wish.layout.chunks, stages.usual(1));
        }
        // 80 layers, embedding and head: 64 positions have no second stage.
        let mut wish = Wish::default();
        (wish.layout.pp, wish.gpus) = (64, 512);
        wish.set(Control::Schedule, schedule(ScheduleName::LoopedBfs));
        assert_eq!((wish.layout.chunks, wish.faults()), (1, Vec::new()));
    }

    #[test]
    fn copies_follow_the_gpus_and_the_gpus_follow_the_copies() {
        let mut wish = Wish::default();
        assert_eq!((wish.copies(), wish.layout().unwrap().microbatches), (Some(32), 32));
        wish.set(Control::Data, at(&DATA, &16));
        assert_eq!((wish.gpus, wish.value(Control::Data).as_str()), (512, "16"));
        wish.layout.tp = 16;
        assert_eq!(wish.copies(), Some(8));
    }

    #[test]
    fn ranks_that_share_a_sequence_are_predicted_and_are_on_no_front() {
        let mut wish = Wish::default();
        assert!(wish.cut().is_some());
        wish.set(Control::Context, at(&CONTEXT, &4));
        assert_eq!((wish.copies(), wish.cut()), (Some(8), None));
        let (workload, _) = wish.workload().expect("it can be");
        assert_eq!((workload.split.cp, workload.split.ranks()), (4, 1024));
        wish.set(Control::Data, at(&DATA, &16));
        assert_eq!(wish.gpus, 2048);
        let gpus = fault(|wish| (wish.context, wish.gpus) = (16, 128)).expect("too few");
        assert_eq!(gpus.why, "8 × 4 × 16 needs a multiple of 512 GPUs. Use 512");
    }

    #[test]
    fn links_are_what_the_cluster_has_times_what_is_asked() {
        let mut wish = Wish::default();
        let plain = wish.workload().unwrap().1;
        wish.links = [0.5, 2.0, 4.0];
        let changed = wish.workload().unwrap().1;
        assert_eq!(changed.node.gb_per_sec, 0.5 * plain.node.gb_per_sec);
        assert_eq!(changed.network.gb_per_sec, 2.0 * plain.network.gb_per_sec);
        assert_eq!(changed.network.latency_us, 4.0 * plain.network.latency_us);
        assert!(wish.conditions().knobs.slow_ranks.is_empty());
        wish.slow = 2.0;
        assert_eq!(wish.conditions().knobs.slow_ranks, [(Rank(0), 2.0)]);
    }
}
