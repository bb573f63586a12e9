//! `shardlab doctor`: what this machine can train on, whether it works, and what to do if not.

use std::collections::BTreeMap;

use serde::Serialize;

use super::args::DoctorArgs;
use super::{Failure, Outcome};
use super::{calibrated, output};
use crate::exec::calibrate::Probe;
use crate::exec::{DeviceKind, ExecOptions, Executor, cores};
use crate::ops::matmul::{Form, Matmul};
use crate::ops::{Kernel as _, Op};
use crate::trace::Badge;
use crate::train::{Session, TrainError};

/// Rows and columns of the matrices that are multiplied.
const SIZE: u32 = 512;
/// Bytes of a copy: past the caches.
const COPIED: u32 = 64 << 20;

/// The object that `doctor --json` prints.
#[derive(Debug, Serialize)]
struct Answer {
    can_train: bool,
    cpu: Cpu,
    /// Whether this program was built with GPU support.
    gpu_support: bool,
    adapters: Vec<AdapterEntry>,
    advice: Vec<String>,
    badges: BTreeMap<&'static str, Badge>,
}

/// What the host pool can do.
#[derive(Debug, Serialize)]
struct Cpu {
    name: String,
    cores: usize,
    /// Matrix products on all cores.
    gemm_gflops: f64,
    /// Copies of one core: bytes read and written.
    copy_gigabytes_per_second: f64,
}

/// An adapter and what came of testing it.
#[derive(Debug, Serialize)]
struct AdapterEntry {
    index: usize,
    name: String,
    kind: &'static str,
    api: String,
    driver: String,
    limits: Vec<Limit>,
    /// `pass`, or why the adapter is not used.
    self_test: String,
    pass: bool,
}

#[derive(Debug, Serialize)]
struct Limit {
    name: &'static str,
    value: String,
}

/// Runs the command.
///
/// # Errors
/// If nothing can train here.
pub fn run(args: &DoctorArgs) -> Result<Outcome, Failure> {
    if args.calibrate {
        return calibrated::measure(args.output.as_deref(), args.json);
    }
    let adapters = adapters();
    let cpu = cpu()?;
    let mut advice = advice(&adapters);
    advice.push(
        "`shardlab doctor --calibrate` measures the CPU kernel by kernel, so that `plan --predict` \
         can say how long a step of any layout takes here."
            .into(),
    );
    let gpu_support = cfg!(feature = "gpu");
    let answer = Answer {
        can_train: true,
        cpu,
        gpu_support,
        adapters,
        advice,
        badges: [("cpu", Badge::Measured)].into(),
    };
    if args.json {
        output::print_json(&answer)?;
    } else {
        output::print(&text(&answer))?;
    }
    Ok(Outcome::Success)
}

fn text(answer: &Answer) -> String {
    let measured = |text: &str| format!("    {text:<64}{:>10}", Badge::Measured.word());
    let Answer { cpu, gpu_support, adapters, advice, .. } = answer;
    let cores = if cpu.cores == 1 { "core" } else { "cores" };
    let mut lines = vec![
        format!("--device cpu   this machine's {} {cores}", cpu.cores),
        measured(&format!("matrix products {:.1} GFLOP/s on all of them", cpu.gemm_gflops)),
        measured(&format!("copies {:.1} GB/s on one of them", cpu.copy_gigabytes_per_second)),
        "    can train".into(),
        String::new(),
    ];
    if !gpu_support {
        lines.push("This program was built without GPU support (feature `gpu` is off).".into());
    } else if adapters.is_empty() {
        lines.push("No graphics adapter was found.".into());
    }
    for adapter in adapters {
        let AdapterEntry { index, name, kind, api, driver, limits, self_test, pass } = adapter;
        lines.push(format!("--device {index}     {name}, {kind}, {api}"));
        lines.push(format!("    driver {driver}"));
        lines.extend(limits.iter().map(|limit| format!("    {} {}", limit.name, limit.value)));
        lines.extend(self_test.lines().map(|line| format!("    self test: {line}")));
        lines.push(if *pass { "    can train" } else { "    cannot train" }.into());
        lines.push(String::new());
    }
    lines.extend(advice.iter().cloned());
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// What to do, in sentences.
fn advice(adapters: &[AdapterEntry]) -> Vec<String> {
    let works = |kinds: &[&str]| adapters.iter().any(|a| a.pass && kinds.contains(&a.kind));
    if works(&["discrete", "integrated"]) {
        return vec!["`--device auto` times the GPU against the CPU and takes the faster.".into()];
    }
    let mut advice = vec!["The CPU trains everything; a GPU is not needed.".into()];
    if !cfg!(feature = "gpu") {
        advice.push("For a GPU, build with default features: cargo build --release".into());
    } else if works(&["software"]) {
        advice.push(
            "The software adapter runs the same kernels as a GPU, slower than the CPU itself; \
             try it with `--device` and its number."
                .into(),
        );
    } else {
        advice.push(
            "For a GPU on Linux, install its Vulkan driver: mesa-vulkan-drivers for AMD and Intel, \
             the vendor's driver for NVIDIA; mesa-vulkan-drivers also brings a software adapter \
             (llvmpipe)."
                .into(),
        );
    }
    advice
}

/// The word of a kind of device.
pub(super) const fn kind_word(kind: DeviceKind) -> &'static str {
    match kind {
        DeviceKind::Host => "host",
        DeviceKind::Discrete => "discrete",
        DeviceKind::Integrated => "integrated",
        DeviceKind::Software => "software",
    }
}

/// What runs the ranks of a session, and why just that.
pub(super) fn device_and_why(session: &Session) -> (String, Option<String>) {
    let devices = session.devices();
    let mut names: Vec<String> = Vec::new();
    for device in &devices {
        let name = match device.kind {
            DeviceKind::Host => "the CPU".to_owned(),
            _ => device.name.clone(),
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let why = match session.notes() {
        [] if names == ["the CPU"] => Some("no GPU found; none needed".to_owned()),
        [] => None,
        [first, ..] => Some(first.clone()),
    };
    (names.join(" and "), why)
}

#[cfg(not(feature = "gpu"))]
fn adapters() -> Vec<AdapterEntry> {
    Vec::new()
}

#[cfg(feature = "gpu")]
fn adapters() -> Vec<AdapterEntry> {
    use crate::exec::gpu::{Adapter, GpuDevice, GpuOptions, adapters};
    let entry = |(index, adapter): (usize, Adapter)| {
        let (pass, self_test) = match GpuDevice::open(&adapter, GpuOptions::default()) {
            Ok(device) => (true, device.self_test().to_string()),
            Err(error) => (false, error.to_string()),
        };
        let limits = &adapter.limits;
        let subgroups = match limits.subgroup_sizes {
            Some((least, most)) => format!("{least} to {most}"),
            None => "none".into(),
        };
        let limits = [
            ("largest buffer", limits.buffer_bytes_max.to_string()),
            ("largest binding", limits.binding_bytes_max.to_string()),
            ("storage buffers of a kernel", limits.storage_buffers_max.to_string()),
            ("workgroup memory", limits.workgroup_bytes_max.to_string()),
            ("workgroup size", limits.workgroup_invocations_max.to_string()),
            ("subgroups", subgroups),
            ("timestamps", if limits.timestamps { "yes" } else { "no" }.into()),
        ];
        AdapterEntry {
            index,
            name: adapter.info.name.clone(),
            kind: kind_word(adapter.info.kind),
            api: adapter.info.api.clone(),
            driver: adapter.info.driver.clone(),
            limits: limits.map(|(name, value)| Limit { name, value }).into(),
            self_test,
            pass,
        }
    };
    adapters().into_iter().enumerate().map(entry).collect()
}

/// Measures what training gets: matrix products on all cores, copies on one.
fn cpu() -> Result<Cpu, Failure> {
    let cores = cores();
    let product = Matmul { form: Form::Nn, m: SIZE, n: SIZE, k: SIZE, accumulate: false };
    let flops = product.flops().0 as f64 * cores as f64;
    let nanos = |probe: Probe, workers: usize| {
        probe.nanos(u32::try_from(workers).unwrap_or(u32::MAX)).map_err(TrainError::from)
    };
    let gemm_gflops = flops / nanos(Probe::Launch(Op::Matmul(product)), cores)?;
    // Read and written.
    let bytes = 2.0 * f64::from(COPIED);
    let copy_gigabytes_per_second = bytes / nanos(Probe::Copy { bytes: COPIED }, 1)?;
    let name = Executor::on_host(1, ExecOptions::default()).device_infos()[0].name.clone();
    Ok(Cpu { name, cores, gemm_gflops, copy_gigabytes_per_second })
}
