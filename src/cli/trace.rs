//! `shardlab trace`: turns what `train --trace` wrote into files for other programs.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::args::{TraceClock, TraceCommand, TraceExportArgs, TraceFormat};
use super::{Failure, Outcome, output};
use crate::config::ConfigError;
use crate::ledger;
use crate::plan::{Plan, order};
use crate::trace::export::kineto::{Kineto, Size};
use crate::trace::export::rows::{Detail, rows, within};
use crate::trace::export::{Recording, csv, jsonl};
use crate::trace::{Clock, Span, Trace};

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
    let window = window(args, trace)?;
    match args.format {
        TraceFormat::Kineto => kineto(args, &recording, trace, window)?,
        TraceFormat::Csv => table(args, &recording.plan, (trace, window), csv::table)?,
        TraceFormat::Jsonl => table(args, &recording.plan, (trace, window), jsonl::lines)?,
    }
    Ok(Outcome::Success)
}

/// The part of the step that is asked for; `None` for all of it.
fn window(args: &TraceExportArgs, trace: &Trace) -> Result<Option<Span>, ConfigError> {
    if args.from.is_none() && args.until.is_none() {
        return Ok(None);
    }
    let end = trace.end();
    let (from, until) = (args.from.unwrap_or_default(), args.until.unwrap_or(end));
    let remedy = format!("Give --from and --until inside of the step, which ends at {end}");
    if from >= until {
        let why = format!("nothing lies between {from} and {until}");
        return Err(ConfigError::value("--from", why, remedy));
    }
    if from >= end {
        return Err(ConfigError::value("--from", format!("the step ends before {from}"), remedy));
    }
    Ok(Some(Span { start: from, end: until }))
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
    (trace, window): (&Trace, Option<Span>),
    format: fn(&[crate::trace::export::rows::Row], Clock) -> String,
) -> Result<(), Failure> {
    let detail = if args.instructions { Detail::Instructions } else { Detail::Blocks };
    let rows = rows(plan, &order::derive(plan), trace, detail);
    let text = format(&within(rows, window), trace.clock);
    match &args.output {
        Some(path) => written(path, fs::write(path, text)).map(|()| output::wrote(path)),
        None => output::print(&text),
    }
}

fn kineto(
    args: &TraceExportArgs,
    recording: &Recording,
    trace: &Trace,
    window: Option<Span>,
) -> Result<(), Failure> {
    let plan = &recording.plan;
    let memory = ledger::live(plan);
    let kineto = Kineto::new(plan, trace, &recording.devices, &memory).within(window);
    let size = match &args.output {
        None => {
            let mut bytes = Vec::new();
            let size = written(Path::new("standard output"), kineto.write_all(&mut bytes))?;
            output::print_bytes(&bytes)?;
            size
        }
        Some(path) if is_folder(path) => {
            written(path, fs::create_dir_all(path))?;
            let mut largest = Size::default();
            for rank in plan.mesh.ranks() {
                let file = path.join(format!("rank{rank}.pt.trace.json"));
                let size = written(&file, write_file(&file, |out| kineto.write_rank(rank, out)))?;
                largest = if size.bytes > largest.bytes { size } else { largest };
            }
            output::wrote(path);
            largest
        }
        Some(path) => {
            let size = written(path, write_file(path, |out| kineto.write_all(out)))?;
            output::wrote(path);
            size
        }
    };
    if size.is_too_large() {
        output::progress(format!(
            "Trace viewers may stay blank on {size}: give --from and --until for a part of the \
             step, or a folder (-o DIR/) for a file of each rank"
        ));
    }
    Ok(())
}

/// Whether a path names a folder: one that is there, or one that ends as a folder does.
fn is_folder(path: &Path) -> bool {
    path.is_dir() || path.to_string_lossy().ends_with(['/', std::path::MAIN_SEPARATOR])
}

fn write_file<T>(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<T>,
) -> io::Result<T> {
    let mut out = BufWriter::new(File::create(path)?);
    let answer = write(&mut out)?;
    out.flush().map(|()| answer)
}

fn written<T>(path: &Path, result: io::Result<T>) -> Result<T, Failure> {
    result.map_err(|source| Failure::Output {
        path: PathBuf::from(path),
        source,
        remedy: output::OutputFile::REMEDY,
    })
}
