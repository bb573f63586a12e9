//! From flags to a scenario: what each flag changes, and how the quickstart makes room for it.
//!
//! A scenario that a person wrote is taken by its word; where a flag contradicts it, the planner
//! refuses in words. The quickstart was chosen by nobody, so those of its values that a flag makes
//! impossible give way, and a note says so.

use std::path::Path;

use super::args::{DeviceArgs, LayoutArgs, RunArgs, Switch, TrainingArgs};
use crate::config::{
    ConfigError, Data, Layout, Scenario, ScheduleName, Training, ZeroStage, layout,
};
use crate::exec::ExecOptions;
use crate::planner::schedule::{Schedule, csv};
use crate::shape::part;

/// What is to be run.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Model, layout, training and data.
    pub scenario: Scenario,
    /// Whether a scenario file or a checkpoint chose the settings, and not the quickstart.
    pub is_chosen: bool,
    /// What gave way to a flag: lines for people.
    pub notes: Vec<String>,
}

impl Settings {
    /// The scenario of the command line with its flags; `prepare` changes settings before the
    /// flags do.
    ///
    /// # Errors
    /// If the scenario cannot be read, if flags contradict each other, or if a value makes no
    /// sense.
    pub fn resolve(
        args: &RunArgs,
        prepare: impl FnOnce(&mut Scenario),
    ) -> Result<Self, ConfigError> {
        let mut args = args.clone();
        args.separate_scenario();
        let (scenario, is_chosen) = match &args.scenario {
            Some(path) => (Scenario::read(path)?, true),
            None => (Scenario::quickstart(), false),
        };
        let mut settings = Self { scenario, is_chosen, notes: Vec::new() };
        prepare(&mut settings.scenario);
        settings.apply(&args)?;
        Ok(settings)
    }

    /// The settings of a checkpoint with flags over them.
    ///
    /// # Errors
    /// As [`Settings::resolve`].
    pub fn resume(scenario: Scenario, args: &RunArgs) -> Result<Self, ConfigError> {
        let mut settings = Self { scenario, is_chosen: true, notes: Vec::new() };
        settings.apply(args)?;
        Ok(settings)
    }

    fn apply(&mut self, args: &RunArgs) -> Result<(), ConfigError> {
        apply_training(&mut self.scenario, &args.training)?;
        let batch = self.scenario.training.batch;
        apply_layout(&mut self.scenario.layout, &args.layout, batch)?;
        if !self.is_chosen {
            self.make_room(&args.layout);
        }
        ConfigError::collect(self.scenario.check())
    }

    /// Lets values of the quickstart give way where a flag made them impossible.
    fn make_room(&mut self, flags: &LayoutArgs) {
        let Scenario { layout, training, .. } = &mut self.scenario;
        if layout.dp == 1 && flags.zero.is_none() {
            layout.zero = ZeroStage::Zero0; // one replica has nothing to shard
        }
        let said = flags.microbatches.is_some() || flags.micro_batch_size.is_some();
        let from_file = matches!(layout.schedule, ScheduleName::File(_));
        if said || from_file || layout.dp == 0 {
            return;
        }
        let rows = part(training.batch, layout.dp, layout.dp - 1).len() as u32;
        if (1..layout.microbatches).contains(&rows) {
            let (batch, dp) = (training.batch, layout.dp);
            self.notes.push(format!(
                "{rows} microbatches instead of {}: batch {batch} over dp {dp} leaves {rows} \
                 rows a data-parallel rank",
                layout.microbatches
            ));
            layout.microbatches = rows;
        }
    }
}

impl RunArgs {
    /// `--sequence-parallel` may stand before the scenario: a word that is neither on nor off is
    /// the scenario.
    fn separate_scenario(&mut self) {
        let word = self.layout.sequence_parallel.as_deref();
        let Some(word) = word.filter(|word| !["on", "off"].contains(word)) else { return };
        if self.scenario.is_none() {
            self.scenario = Some(word.into());
            self.layout.sequence_parallel = Some("on".into());
        }
    }
}

fn apply_training(scenario: &mut Scenario, flags: &TrainingArgs) -> Result<(), ConfigError> {
    let Training { steps, batch, seq, lr, seed, optimizer, clip_norm, warmup, .. } =
        &mut scenario.training;
    set(steps, flags.steps);
    set(batch, flags.batch);
    set(seq, flags.seq);
    set(lr, flags.lr);
    set(seed, flags.seed);
    set(optimizer, flags.optimizer);
    set(clip_norm, flags.clip_norm);
    set(warmup, flags.warmup);
    set(&mut scenario.training.weight_decay, flags.weight_decay);
    set(&mut scenario.training.eval_every, flags.eval_every);
    if let Some(model) = &flags.model {
        scenario.name = format!("{} with {model}", scenario.name);
        scenario.model = model.clone();
    }
    match &flags.data {
        Some(name) if name == Path::new("shakespeare") && !name.exists() => {
            scenario.data = Data::Shakespeare;
        }
        Some(path) => scenario.data = Data::File(path.clone()),
        None => {}
    }
    // A checkpoint goes on from any folder.
    let here = std::env::current_dir().map_err(|source| ConfigError::File {
        path: ".".into(),
        source,
        remedy: "Start the command in a folder that exists".into(),
    })?;
    scenario.join_paths(&here);
    Ok(())
}

fn apply_layout(layout: &mut Layout, flags: &LayoutArgs, batch: u32) -> Result<(), ConfigError> {
    set(&mut layout.dp, flags.dp);
    set(&mut layout.tp, flags.tp);
    set(&mut layout.pp, flags.pp);
    set(&mut layout.chunks, flags.chunks);
    set(&mut layout.zero, flags.zero);
    set(&mut layout.recompute, flags.recompute);
    set(&mut layout.collective, flags.collective);
    set(&mut layout.overlap, flags.overlap.map(|switch| switch == Switch::On));
    set(&mut layout.rank_order, flags.rank_order);
    set(&mut layout.bucket_bytes, flags.bucket_bytes.map(|bytes| bytes.0));
    set(&mut layout.chunk_bytes, flags.chunk_bytes.map(|bytes| bytes.0));
    if flags.node_size.is_some() {
        layout.node_size = flags.node_size;
    }
    if flags.stage_units.is_some() {
        layout.stage_units.clone_from(&flags.stage_units);
    } else if flags.pp.is_some() || flags.chunks.is_some() {
        layout.stage_units = None; // sizes for another number of stages
    }
    layout.sequence_parallel = match flags.sequence_parallel.as_deref() {
        None => layout.sequence_parallel,
        Some("on") => true,
        Some("off") => false,
        Some(word) => {
            let why = format!("`{word}` is neither on nor off");
            return Err(ConfigError::value("sequence-parallel", why, "Use on or off"));
        }
    };
    if let Some(schedule) = &flags.schedule {
        layout.schedule = schedule.clone();
        if let ScheduleName::File(path) = schedule {
            layout.schedule = ScheduleName::File(std::path::absolute(path).unwrap_or(path.clone()));
            take_sizes(layout, flags, path);
        } else if flags.chunks.is_none() {
            let chunks = schedule.stages().usual(layout.chunks);
            if chunks != layout.chunks && flags.stage_units.is_none() {
                layout.stage_units = None;
            }
            layout.chunks = chunks;
        }
    }
    let count = flags.microbatches;
    let said = layout::microbatches(batch, layout.dp, count, flags.micro_batch_size)?;
    set(&mut layout.microbatches, said);
    Ok(())
}

/// Sizes that a schedule file says and no flag contradicts. Whether the file can be read is the
/// planner's question.
fn take_sizes(layout: &mut Layout, flags: &LayoutArgs, path: &Path) {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let Ok(schedule) = csv::parse(&text) else { return };
    let Schedule { rows } = &schedule;
    let Some(positions) = u32::try_from(rows.len()).ok().filter(|rows| *rows > 0) else { return };
    if flags.pp.is_none() {
        layout.pp = positions;
        layout.stage_units.clone_from(&flags.stage_units);
    }
    if flags.chunks.is_none() {
        layout.chunks = (schedule.stage_count() / positions).max(1);
    }
    if flags.microbatches.is_none() && flags.micro_batch_size.is_none() {
        layout.microbatches = schedule.microbatch_count().max(1);
    }
}

fn set<T>(setting: &mut T, flag: Option<T>) {
    if let Some(value) = flag {
        *setting = value;
    }
}

impl LayoutArgs {
    /// These flags over one rank, for a case of `batch` rows.
    ///
    /// # Errors
    /// If they contradict each other or a value makes no sense.
    pub fn over_one_rank(&self, batch: u32) -> Result<Layout, ConfigError> {
        let mut layout = Layout::default();
        apply_layout(&mut layout, self, batch)?;
        ConfigError::collect(layout.check())?;
        Ok(layout)
    }
}

impl DeviceArgs {
    /// How the executor runs.
    pub fn exec_options(&self) -> ExecOptions {
        ExecOptions {
            threads: self.threads.map(usize::from),
            memory_cap: self.device_memory,
            ..ExecOptions::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::args::{Cli, Command};
    use super::*;
    use clap::Parser as _;

    fn settings(flags: &str) -> Result<Settings, String> {
        let words = ["shardlab", "train"].into_iter().chain(flags.split_whitespace());
        let Some(Command::Train(args)) = Cli::try_parse_from(words).unwrap().command else {
            unreachable!("train was asked for")
        };
        Settings::resolve(&args.run, |_| {}).map_err(|error| error.to_string())
    }

    fn layout(flags: &str) -> Layout {
        settings(flags).unwrap().scenario.layout
    }

    #[test]
    fn flags_override_the_quickstart_and_leave_the_rest() {
        let flags = "--pp 4 --tp 1 --steps 7 --overlap off --sequence-parallel --zero 3 \
                     --device-memory 1MiB --bucket-bytes 64k";
        let scenario = settings(flags).unwrap().scenario;
        let quickstart = Scenario::quickstart();
        let expected = Layout {
            pp: 4,
            tp: 1,
            overlap: false,
            sequence_parallel: true,
            zero: ZeroStage::Zero3,
            bucket_bytes: 65536,
            ..quickstart.layout
        };
        assert_eq!(scenario.layout, expected);
        assert_eq!(scenario.training, Training { steps: 7, ..quickstart.training });
    }

    #[test]
    fn the_quickstart_makes_room_and_says_so() {
        assert_eq!(layout("--dp 16").microbatches, 2);
        assert!(settings("--dp 16").unwrap().notes[0].starts_with("2 microbatches instead of 4"));
        assert_eq!(layout("--batch 2").microbatches, 1);
        assert_eq!(layout("--dp 1").zero, ZeroStage::Zero0);
        assert_eq!(layout("--dp 1 --zero 2").zero, ZeroStage::Zero2);
        assert_eq!(layout("--pp 4 --tp 1").microbatches, 4);
        // What was said stays, and the planner refuses it.
        assert_eq!(layout("--dp 16 --microbatches 4").microbatches, 4);
    }

    #[test]
    fn both_ways_of_saying_microbatches_are_summed_up() {
        assert_eq!(layout("--micro-batch-size 2").microbatches, 8);
        let error = settings("--micro-batch-size 2 --microbatches 4").unwrap_err();
        assert!(error.contains("batch 32 / dp 2 = 16 rows a rank; 16 / micro-batch-size 2 = 8"));
    }

    #[test]
    fn a_schedule_file_brings_its_sizes_and_flags_contradict_it_if_they_must() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/schedules/DualPipeV-pp4-v2-mb8.csv");
        let taken = layout(&format!("--schedule {file}"));
        assert_eq!((taken.pp, taken.chunks, taken.microbatches), (4, 2, 8));
        assert_eq!(layout(&format!("--schedule {file} --pp 2")).pp, 2);
    }

    #[test]
    fn a_named_schedule_brings_its_chunks_unless_they_are_said() {
        let chunks = |flags: &str| layout(flags).chunks;
        assert_eq!([chunks("--schedule zb-h2"), chunks("--schedule zb-v")], [1, 2]);
        assert_eq!(chunks("--schedule interleaved-1f1b"), 2);
        assert_eq!(chunks("--schedule looped-bfs --chunks 3"), 3);
        // What was said stays, and the planner refuses it.
        assert_eq!(chunks("--schedule gpipe --chunks 3"), 3);
    }

    #[test]
    fn sequence_parallel_takes_a_value_or_none_and_leaves_the_scenario_alone() {
        assert!(layout("--sequence-parallel").sequence_parallel);
        assert!(layout("--sequence-parallel on").sequence_parallel);
        assert!(!layout("--sequence-parallel off").sequence_parallel);
        let error = settings("--sequence-parallel none.toml").unwrap_err();
        assert!(error.starts_with("none.toml: cannot be read"), "{error}");
        let error = settings("none.toml --sequence-parallel maybe").unwrap_err();
        assert!(error.contains("none.toml: cannot be read"), "{error}");
    }

    #[test]
    fn values_that_make_no_sense_are_all_told() {
        let error = settings("--tp 0 --lr -1 --model no/such").unwrap_err();
        assert!(error.contains("tp: is 0") && error.contains("lr: -1"), "{error}");
    }
}
