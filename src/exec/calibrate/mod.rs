//! Measures what the host pool takes for every kernel, copy and message, one by one: what
//! `predict::here` predicts steps from. Never a step, and nothing of a model.
//!
//! `kernels` lists what is measured at which sizes, `probe` runs one of it many times through the
//! executor itself, so that what an instruction costs beyond its kernel is in every number; `limits`
//! measures what any device does at the most.

mod kernels;
mod limits;
mod probe;

pub use limits::Limits;
pub use probe::Probe;

use std::collections::BTreeMap;

use super::ExecError;
use super::tasks::WORK_WORTH_WAKING;
use crate::predict::here::{Calibration, Curve, Sizes};
use crate::sim::Workers;
use crate::units::Nanos;
use kernels::{Kernel, Point};

/// Measures this machine with as many workers. `watch` is told the share that is done and what
/// comes next.
///
/// # Errors
/// If the machine gives no memory or no threads.
pub fn calibrate(
    worker_count: u32,
    mut watch: impl FnMut(f64, &str),
) -> Result<Calibration, ExecError> {
    let kernels = kernels::all();
    let point_count: usize = kernels.iter().map(|kernel| kernel.points().len()).sum();
    let pool = pool(worker_count)?;
    let mut calibration = Calibration::new(processor(), &pool, WORK_WORTH_WAKING);
    calibration.instruction = nanos(probe::nothing(worker_count)?);
    let mut done = 0;
    for kernel in kernels {
        watch(done as f64 / point_count as f64, kernel.name);
        done += kernel.points().len();
        calibration.kernels.insert(kernel.name.to_owned(), curve(&kernel, worker_count)?);
    }
    Ok(calibration)
}

fn nanos(nanos: f64) -> Nanos {
    Nanos(nanos.round() as u64)
}

/// What sleeping and waking take.
fn pool(count: u32) -> Result<Workers, ExecError> {
    if count < 2 {
        return Ok(Workers { count, wake: Nanos(0), patience: Nanos(0) });
    }
    // A worker that waited long sleeps, one that waited briefly still looks for work.
    let waits = [1, 2, 5, 10, 20, 50, 100, 1_000].map(|micros| Nanos(micros * 1_000));
    let waits = waits.map(probe::lateness).into_iter().collect::<Result<Vec<_>, _>>()?;
    let wake = waits.last().map_or(0.0, |longest| longest.soonest);
    let awake = waits.iter().filter(|late| late.usual < late.waited.min(wake) / 2.0);
    let patience = awake.map(|late| late.waited).fold(0.0, f64::max);
    Ok(Workers { count, wake: nanos(wake), patience: nanos(patience) })
}

/// Measures a kernel at all points of its grid.
fn curve(kernel: &Kernel, worker_count: u32) -> Result<Curve, ExecError> {
    let [mut alone, mut crowded] = [Vec::new(), Vec::new()];
    let mut measured: BTreeMap<Vec<usize>, [f64; 2]> = BTreeMap::new();
    for (place, point) in kernel.points() {
        let unit = match point {
            Point::Measured { probe, distance } => unit(&probe, distance, worker_count)?,
            Point::As(other) => measured[&other],
        };
        alone.push(unit[0]);
        crowded.push(unit[1]);
        measured.insert(place, unit);
    }
    let axes = kernel.axes.iter().map(|axis| axis.iter().map(|&x| f64::from(x)).collect());
    Ok(Curve { axes: axes.collect(), alone, crowded })
}

/// Nanoseconds of a unit, alone and crowded.
fn unit(probe: &Probe, distance: u32, worker_count: u32) -> Result<[f64; 2], ExecError> {
    let units = probe.sizes().map_or(1.0, |sizes: Sizes| sizes.units);
    let alone = probe.nanos_at(distance, 1)?;
    let crowded = match worker_count {
        0 | 1 => alone,
        // Work that all do at once is never faster than alone: what looks so is noise.
        _ => probe.nanos_at(distance, worker_count)?.max(alone),
    };
    Ok([alone, crowded].map(|nanos| rounded(nanos / units)))
}

/// Four digits: more would be noise in a file for people.
fn rounded(value: f64) -> f64 {
    let text = format!("{value:.3e}");
    text.parse().unwrap_or(value)
}

/// The name of this machine's processor, as far as the system tells it.
pub fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    name.map_or_else(|| format!("{arch} {os}"), |(_, name)| name.trim().to_owned())
}
