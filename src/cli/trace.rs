//! `shardlab trace`: turns what `train --trace` wrote into files for other programs.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::args::{TraceClock, TraceCommand, TraceExportArgs, TraceFormat};
use super::{Failure, Outcome, output};
use crate::config::ConfigError;
use crate::ledger::{self, ByRole};
use crate::plan::{Plan, order};
use crate::trace::export::kineto::{Kineto, Live};
use crate::trace::export::rows::{Detail, rows};
use crate::trace::export::{Recording, csv, jsonl};
use crate::trace::{Clock, Trace};

/// Runs the command.
///
/// # Errors
/// If the file is no recording, or the result cannot be written.
pub fn run(command: &TraceCommand) -> Result<Outcome, Failure> {
    let TraceCommand::Export(args) = command;
    let recording = read(&args.trace)?;
    let clock = match args.clock {
        TraceClock::Replayed => Clock::Replayed,
        TraceClock::Measured => Clock::Measured,
    };
    let trace = recording.trace(clock).ok_or_else(|| {
        let why = "it holds no step on this clock";
        ConfigError::value(args.trace.display().to_string(), why, "Train at least one step")
    })?;
    match args.format {
        TraceFormat::Kineto => kineto(args, &recording, trace)?,
        TraceFormat::Csv => table(args, &recording.plan, trace, csv::table)?,
        TraceFormat::Jsonl => table(args, &recording.plan, trace, jsonl::lines)?,
    }
    Ok(Outcome::Success)
}

fn read(path: &Path) -> Result<Recording, ConfigError> {
    let remedy = "Give a file that `shardlab train --trace FILE` wrote";
    let text = fs::read_to_string(path).map_err(|source| ConfigError::File {
        path: path.to_owned(),
        source,
        remedy: remedy.into(),
    })?;
    let refuse = |why: String| ConfigError::value(path.display().to_string(), why, remedy);
    let recording: Recording =
        serde_json::from_str(&text).map_err(|error| refuse(format!("no recording ({error})")))?;
    recording.fault().map_or(Ok(recording), |why| Err(refuse(why)))
}

fn table(
    args: &TraceExportArgs,
    plan: &Plan,
    trace: &Trace,
    format: fn(&[crate::trace::export::rows::Row], Clock) -> String,
) -> Result<(), Failure> {
    let detail = if args.instructions { Detail::Instructions } else { Detail::Blocks };
    let text = format(&rows(plan, &order::derive(plan), trace, detail), trace.clock);
    match &args.output {
        Some(path) => written(path, fs::write(path, text)).map(|()| output::wrote(path)),
        None => output::print(&text),
    }
}

fn kineto(args: &TraceExportArgs, recording: &Recording, trace: &Trace) -> Result<(), Failure> {
    let plan = &recording.plan;
    let live = |rank| ledger::live(plan, rank).iter().map(ByRole::bytes).collect();
    let memory: Vec<Vec<Live>> = plan.mesh.ranks().map(live).collect();
    let kineto = Kineto::new(plan, trace, &recording.devices, &memory);
    match &args.output {
        None => {
            let mut bytes = Vec::new();
            written(Path::new("standard output"), kineto.write_all(&mut bytes))?;
            output::print_bytes(&bytes)
        }
        Some(path) if is_folder(path) => {
            written(path, fs::create_dir_all(path))?;
            for rank in plan.mesh.ranks() {
                let file = path.join(format!("rank{rank}.pt.trace.json"));
                written(&file, write_file(&file, |out| kineto.write_rank(rank, out)))?;
            }
            output::wrote(path);
            Ok(())
        }
        Some(path) => {
            let result = write_file(path, |out| kineto.write_all(out));
            written(path, result).map(|()| output::wrote(path))
        }
    }
}

/// Whether a path names a folder: one that is there, or one that ends as a folder does.
fn is_folder(path: &Path) -> bool {
    path.is_dir() || path.to_string_lossy().ends_with(['/', std::path::MAIN_SEPARATOR])
}

fn write_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    write(&mut out)?;
    out.flush()
}

fn written(path: &Path, result: io::Result<()>) -> Result<(), Failure> {
    result.map_err(|source| Failure::Output {
        path: PathBuf::from(path),
        source,
        remedy: output::OutputFile::REMEDY,
    })
}
