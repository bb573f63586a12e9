//! What this machine was measured to take: `doctor --calibrate`, and steps predicted from it.

use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::output::{self, OutputFile};
use super::{Failure, Outcome};
use crate::exec::calibrate::{calibrate, processor};
use crate::exec::cores;
use crate::ops::Op;
use crate::ops::matmul::{Form, Matmul};
use crate::plan::Plan;
use crate::predict::here::{Calibration, CalibrationError, DISTANCES, Pace, Sizes, predict_plan};
use crate::trace::{Badge, Trace};
use crate::units::Bytes;

/// Sides of the square products, and bytes of the copies, that a person is told of.
const SIDES: [u32; 4] = [64, 128, 256, 512];
const COPIES: [Bytes; 3] = [Bytes(4 << 10), Bytes(256 << 10), Bytes(8 << 20)];

/// The object that `doctor --calibrate --json` prints.
#[derive(Debug, Serialize)]
struct Answer<'a> {
    file: &'a Path,
    machine: &'a str,
    workers: u32,
    /// Nanoseconds of an instruction that does nothing.
    instruction_nanos: u64,
    /// Nanoseconds until a sleeping worker starts.
    wake_nanos: u64,
    products: Vec<Rate>,
    copies: Vec<Rate>,
    kernels: Vec<&'a str>,
    badge: Badge,
}

/// What one worker gets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Rate {
    /// Side of a product, or bytes of a copy.
    size: u64,
    /// GFLOP/s or GB/s (read and written) while no other worker works.
    alone: f64,
    /// The same while all work.
    crowded: f64,
}

/// Measures this machine and keeps what came out.
///
/// # Errors
/// If the file cannot be written or the machine gives no threads.
pub(super) fn measure(output: Option<&Path>, json: bool) -> Result<Outcome, Failure> {
    let path = destination(output)?;
    let workers = cores();
    let calibration = with_progress(u32::try_from(workers).unwrap_or(u32::MAX))?;
    calibration.write(&path)?;
    let answer = answer(&calibration, &path);
    if json {
        output::print_json(&answer)?;
    } else {
        let used = match output {
            None => "shardlab plan --predict".to_owned(),
            Some(path) => format!("shardlab plan --predict --calibration {}", path.display()),
        };
        output::print(&text(&answer, &used))?;
    }
    Ok(Outcome::Success)
}

/// The file that is written: a folder that somebody names must exist, which is told before anything
/// is measured; the one for settings is made.
fn destination(output: Option<&Path>) -> Result<PathBuf, Failure> {
    let Some(path) = output else { return Ok(Calibration::default_path()?) };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if folder.is_some_and(|folder| !folder.is_dir()) {
        return Err(Failure::Destination {
            path: path.to_owned(),
            source: std::io::ErrorKind::NotFound.into(),
            remedy: OutputFile::REMEDY,
        });
    }
    Ok(path.to_owned())
}

fn with_progress(workers: u32) -> Result<Calibration, Failure> {
    // Hidden by itself where standard error is no terminal.
    let bar = ProgressBar::new(100);
    let style =
        ProgressStyle::with_template("Measuring this machine {bar:30} {percent:>3} %  {msg}");
    bar.set_style(style.expect("the template is right"));
    let calibration = calibrate(workers, |share, kernel| {
        bar.set_position((share * 100.0) as u64);
        bar.set_message(kernel.to_owned());
    });
    bar.finish_and_clear();
    calibration.map_err(Failure::Start)
}

fn answer<'a>(calibration: &'a Calibration, file: &'a Path) -> Answer<'a> {
    let [near, far] = DISTANCES.map(f64::from);
    let product = |side: u32| {
        let op = Matmul { form: Form::Nn, m: side, n: side, k: side, accumulate: false };
        let sizes = Sizes::of(&Op::Matmul(op))?;
        rate(calibration.pace(&sizes, near)?, side.into(), sizes.units)
    };
    let copy = |bytes: Bytes| {
        // Read and written, from and to memory where the pieces are large.
        let pace = calibration.pace(&Sizes::of_copy(bytes), far)?;
        rate(pace, bytes.0, 2.0 * bytes.0 as f64)
    };
    Answer {
        file,
        machine: &calibration.machine,
        workers: calibration.worker_count,
        instruction_nanos: calibration.instruction.0,
        wake_nanos: calibration.wake.0,
        products: SIDES.into_iter().filter_map(product).collect(),
        copies: COPIES.into_iter().filter_map(copy).collect(),
        kernels: calibration.kernels.keys().map(String::as_str).collect(),
        badge: Badge::Measured,
    }
}

/// Units a nanosecond: GFLOP/s or GB/s.
fn rate(pace: Pace, size: u64, units: f64) -> Option<Rate> {
    let Pace { alone, crowded } = pace;
    (alone > 0.0).then(|| Rate { size, alone: units / alone, crowded: units / crowded })
}

/// The answer for a person; `used` is the command that it is for.
fn text(answer: &Answer<'_>, used: &str) -> String {
    let Answer { machine, workers, instruction_nanos, wake_nanos, .. } = answer;
    let count = if *workers == 1 { "1 worker".into() } else { format!("{workers} workers") };
    let badge = answer.badge.word();
    let mut lines = vec![
        format!("{:<58}{badge:>10}", format!("{machine}: {count}")),
        format!("  an instruction takes {instruction_nanos} ns besides its kernel"),
    ];
    if *workers > 1 {
        let micros = *wake_nanos as f64 * 1e-3;
        lines.push(format!("  a sleeping worker starts after {micros:.0} µs"));
    }
    let together = if *workers > 1 { "all work" } else { "" };
    lines.push(String::new());
    lines.push(format!("  one worker gets{:>25}{together:>14}", "alone"));
    let rows = |rates: &[Rate], what: &dyn Fn(u64) -> String, unit: &str| -> Vec<String> {
        let row = |rate: &Rate| {
            let crowded = match workers {
                1 => String::new(),
                _ => format!("{:>14.1}", rate.crowded),
            };
            format!("  {:<30}{:>10.1}{crowded}  {unit}", what(rate.size), rate.alone)
        };
        rates.iter().map(row).collect()
    };
    let side = |side: u64| format!("product of {side} × {side}");
    lines.extend(rows(&answer.products, &side, "GFLOP/s"));
    let copy = |bytes: u64| format!("copy of {}", Bytes(bytes));
    lines.extend(rows(&answer.copies, &copy, "GB/s"));
    lines.push(String::new());
    lines.push(format!("{} kernels, kept in {}", answer.kernels.len(), answer.file.display()));
    lines.push(format!("`{used}` now says how long a step of any layout takes here."));
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// The calibration of a file, or the one of this machine.
///
/// # Errors
/// If there is none, it cannot be read, or it is one of another machine.
pub(super) fn read(file: Option<&PathBuf>) -> Result<Calibration, Failure> {
    // Whoever names a file may predict another machine.
    match file {
        Some(path) if !path.exists() => {
            let why = "there is no such file".into();
            Err(CalibrationError::Unusable { path: path.clone(), why }.into())
        }
        Some(path) => Ok(Calibration::read(path)?),
        None => Ok(of_this_machine()?),
    }
}

fn of_this_machine() -> Result<Calibration, CalibrationError> {
    let path = Calibration::default_path()?;
    let calibration = Calibration::read(&path)?;
    let (then, now) = (&calibration.machine, processor());
    let workers = cores();
    if *then == now && calibration.worker_count as usize == workers {
        return Ok(calibration);
    }
    let measured = calibration.worker_count;
    let why = format!("is of {then} with {measured} workers, and this is {now} with {workers}");
    Err(CalibrationError::Unusable { path, why })
}

/// The step of a Plan on this machine's cores, if it was ever measured.
pub(super) fn known_step(plan: &Plan, threads: u32) -> Option<Trace> {
    let calibration = of_this_machine().ok()?;
    (calibration.worker_count == threads).then(|| predict_plan(plan, &calibration).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::here::Curve;
    use crate::sim::Workers;
    use crate::units::Nanos;

    fn measured(workers: u32) -> Calibration {
        let pool = Workers { count: workers, wake: Nanos(40_000), patience: Nanos(0) };
        let mut calibration = Calibration::new("A processor".into(), &pool, 0);
        calibration.instruction = Nanos(150);
        let curve = |axes: usize, unit: f64| Curve {
            axes: vec![vec![1.0]; axes],
            alone: vec![unit],
            crowded: vec![2.0 * unit],
        };
        calibration.kernels.insert("matmul_nn".into(), curve(3, 0.0125));
        calibration.kernels.insert("copy".into(), curve(1, 0.25));
        calibration
    }

    #[test]
    fn a_person_is_told_rates_alone_and_together_with_their_badge() {
        let calibration = measured(2);
        let answer = answer(&calibration, Path::new("calibration.toml"));
        let rates = |rates: &[Rate]| -> Vec<[f64; 2]> {
            rates.iter().map(|rate| [rate.alone.round(), rate.crowded.round()]).collect()
        };
        assert_eq!(rates(&answer.products), [[80.0, 40.0]; 4]);
        // 0.25 ns a byte: 4 GB/s are copied, which is to read and to write them.
        assert_eq!(rates(&answer.copies), [[8.0, 4.0]; 3]);
        let text = text(&answer, "shardlab plan --predict");
        assert!(text.lines().next().unwrap().ends_with("MEASURED"), "{text}");
        assert!(text.contains("product of 512 × 512"), "{text}");
        assert!(text.contains("a sleeping worker starts after 40 µs"), "{text}");
        assert!(text.contains("80.0          40.0  GFLOP/s"), "{text}");
    }

    #[test]
    fn a_file_in_a_folder_that_is_missing_is_refused_before_anything_is_measured() {
        let folder = tempfile::tempdir().unwrap();
        let there = folder.path().join("mine.toml");
        assert_eq!(destination(Some(&there)).unwrap(), there);
        let missing = folder.path().join("new").join("mine.toml");
        let error = destination(Some(&missing)).unwrap_err().to_string();
        assert!(error.contains("Choose a file in a folder that exists"), "{error}");
        assert!(!folder.path().join("new").exists());
    }

    #[test]
    fn one_worker_has_nobody_to_share_with_or_to_wake() {
        let calibration = measured(1);
        let text =
            text(&answer(&calibration, Path::new("calibration.toml")), "shardlab plan --predict");
        assert!(!text.contains("sleeping") && !text.contains("all work"), "{text}");
        assert!(text.contains("80.0  GFLOP/s"), "{text}");
    }
}
