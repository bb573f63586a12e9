//! Turns a request for devices into devices and says which rank runs where.
//!
//! Ranks are spread over the devices in blocks: rank r of n lies on device r·d/n. `auto` times two
//! steps on every kind that is there and takes the fastest.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::TrainError;
#[cfg(feature = "gpu")]
use crate::exec::DeviceKind;
use crate::exec::{DeviceSlot, ExecOptions, Executor, Progress, StepInput, Timing, Watcher};
use crate::planner::{StepSpec, plan_step};

/// Which devices are asked for: `auto`, `cpu`, `gpu`, a part of a name or an index of `doctor`'s
/// list, or several of the last four separated by commas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceRequest(Vec<Wanted>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    Cpu,
    /// Every hardware adapter.
    Gpu,
    Index(usize),
    /// A part of an adapter's name, lower case.
    Name(String),
}

impl DeviceRequest {
    /// The host's own cores.
    pub fn cpu() -> Self {
        Self(vec![Wanted::Cpu])
    }

    /// Whether the fastest kind is to be found out.
    pub fn is_auto(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromStr for DeviceRequest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(',').map(str::trim).collect();
        if parts == ["auto"] {
            return Ok(Self::default());
        }
        let wanted = parts.iter().map(|part| match part.to_lowercase().as_str() {
            "" => Err(
                "a device name is empty: use cpu, gpu, or names and indices of `shardlab doctor`"
                    .into(),
            ),
            "auto" => Err("auto stands alone: name the devices, or only auto".into()),
            "cpu" => Ok(Wanted::Cpu),
            "gpu" => Ok(Wanted::Gpu),
            name => Ok(name.parse().map_or_else(|_| Wanted::Name(name.to_owned()), Wanted::Index)),
        });
        wanted.collect::<Result<_, String>>().map(Self)
    }
}

impl fmt::Display for DeviceRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_auto() {
            return f.write_str("auto");
        }
        let words: Vec<String> = self
            .0
            .iter()
            .map(|wanted| match wanted {
                Wanted::Cpu => "cpu".into(),
                Wanted::Gpu => "gpu".into(),
                Wanted::Index(index) => index.to_string(),
                Wanted::Name(name) => name.clone(),
            })
            .collect();
        f.write_str(&words.join(","))
    }
}

/// All that can run ranks here: the host, then every adapter that passes its self test.
pub fn present() -> Vec<DeviceSlot> {
    let choices = [Choice::Host].into_iter().chain(adapter_choices());
    choices.filter_map(|choice| choice.open(&Watcher::default()).ok()).collect()
}

/// Opened devices.
pub(super) struct Devices {
    pub(super) slots: Vec<DeviceSlot>,
    /// Device of each rank, an index into `slots`.
    pub(super) placement: Vec<usize>,
    /// Kind of device of each rank, for [`StepSpec::device_kinds`].
    pub(super) kinds: Vec<u32>,
    /// What was found out, for people.
    pub(super) notes: Vec<String>,
    /// How their instructions can be timed one by one.
    pub(super) timing: Timing,
}

/// Opens what is asked for.
///
/// # Errors
/// If there is no such device or it fails its self test.
pub(super) fn open(
    request: &DeviceRequest,
    spec: &StepSpec,
    exec: &ExecOptions,
) -> Result<Devices, TrainError> {
    exec.watcher.tell(Progress::OpeningDevices);
    let ranks = spec.layout.mesh().size() as usize;
    let mut notes = Vec::new();
    let choices = if request.is_auto() { auto(spec, exec, &mut notes)? } else { chosen(request)? };
    // More devices than ranks: the first ones.
    let choices = &choices[..choices.len().min(ranks)];
    let placement = placement(ranks, choices.len());
    let mut names: Vec<String> = Vec::new();
    let mut slots = Vec::new();
    let mut slot_kinds = Vec::new();
    for choice in choices {
        let kind = choice.kind_name();
        let number = names.iter().position(|name| *name == kind).unwrap_or_else(|| {
            names.push(kind);
            names.len() - 1
        });
        slot_kinds.push(u32::try_from(number).expect("few kinds"));
        slots.push(choice.open(&exec.watcher)?);
    }
    let kinds = placement.iter().map(|&slot| slot_kinds[slot]).collect();
    // Without timestamps an instruction's time is only seen if it runs alone.
    let all_timed = choices.iter().all(Choice::has_timestamps);
    let timing = if all_timed { Timing::Batched } else { Timing::Fenced };
    Ok(Devices { slots, placement, kinds, notes, timing })
}

/// The device of each rank: the ranks in as many blocks as there are devices.
fn placement(ranks: usize, devices: usize) -> Vec<usize> {
    (0..ranks).map(|rank| rank * devices / ranks).collect()
}

/// A device that can be opened.
#[derive(Clone, Debug)]
enum Choice {
    Host,
    #[cfg(feature = "gpu")]
    Adapter(Box<crate::exec::gpu::Adapter>),
}

impl Choice {
    /// Devices with equal names round alike.
    fn kind_name(&self) -> String {
        match self {
            Self::Host => "cpu".into(),
            #[cfg(feature = "gpu")]
            Self::Adapter(adapter) => format!("{} {}", adapter.info.name, adapter.info.driver),
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Host => "the CPU".into(),
            #[cfg(feature = "gpu")]
            Self::Adapter(adapter) => adapter.info.name.clone(),
        }
    }

    /// Whether the device times each instruction by itself.
    fn has_timestamps(&self) -> bool {
        match self {
            Self::Host => true,
            #[cfg(feature = "gpu")]
            Self::Adapter(adapter) => adapter.limits.timestamps,
        }
    }

    fn is_hardware(&self) -> bool {
        match self {
            Self::Host => false,
            #[cfg(feature = "gpu")]
            Self::Adapter(adapter) => adapter.info.kind != DeviceKind::Software,
        }
    }

    #[cfg_attr(
        not(feature = "gpu"),
        expect(unused_variables, reason = "only adapters have kernels to compile")
    )]
    fn open(&self, watcher: &Watcher) -> Result<DeviceSlot, TrainError> {
        match self {
            Self::Host => Ok(DeviceSlot::Host),
            #[cfg(feature = "gpu")]
            Self::Adapter(adapter) => {
                use crate::exec::gpu::{GpuDevice, GpuOptions};
                let watcher = watcher.clone();
                let options = GpuOptions { timestamps: true, watcher, ..GpuOptions::default() };
                let device = GpuDevice::open(adapter, options)?;
                Ok(DeviceSlot::Device(Box::new(device)))
            }
        }
    }
}

/// The devices that a request names, in its order.
fn chosen(request: &DeviceRequest) -> Result<Vec<Choice>, TrainError> {
    let refuse = |why: &str, remedy: &str| TrainError::Devices {
        request: format!("--device {request}"),
        why: why.into(),
        remedy: remedy.into(),
    };
    // Drivers take their time and write to the terminal: they are asked only where one is wanted.
    let is_wanted = request.0.iter().any(|wanted| *wanted != Wanted::Cpu);
    let adapters = if is_wanted { adapter_choices() } else { Vec::new() };
    let list = "`shardlab doctor` lists the adapters; `--device cpu` needs none";
    let mut choices = Vec::new();
    for wanted in &request.0 {
        match wanted {
            Wanted::Cpu => choices.push(Choice::Host),
            Wanted::Gpu => {
                let hardware = adapters.iter().filter(|choice| choice.is_hardware());
                let before = choices.len();
                choices.extend(hardware.cloned());
                if choices.len() == before {
                    return Err(match adapters.first() {
                        Some(software) => {
                            let name = software.name();
                            // A part of the name does, and a comma would end it.
                            let word = name.split([' ', ',']).next().unwrap_or_default();
                            refuse(
                                "there are software adapters only, slower than the CPU itself",
                                &format!("Name one to use it, as in --device {word}"),
                            )
                        }
                        None => refuse("no GPU was found", list),
                    });
                }
            }
            Wanted::Index(index) => match adapters.get(*index) {
                Some(choice) => choices.push(choice.clone()),
                None => return Err(refuse(&format!("there is no adapter {index}"), list)),
            },
            Wanted::Name(name) => {
                let named = |choice: &&Choice| choice.kind_name().to_lowercase().contains(name);
                match adapters.iter().find(named) {
                    Some(choice) => choices.push(choice.clone()),
                    None => return Err(refuse(&format!("no adapter is called {name}"), list)),
                }
            }
        }
    }
    Ok(choices)
}

#[cfg(not(feature = "gpu"))]
fn adapter_choices() -> Vec<Choice> {
    Vec::new()
}

#[cfg(feature = "gpu")]
fn adapter_choices() -> Vec<Choice> {
    crate::exec::gpu::adapters()
        .into_iter()
        .map(|adapter| Choice::Adapter(Box::new(adapter)))
        .collect()
}

/// The fastest kind of device: every hardware adapter (one rank each where there are several)
/// against the host. Software adapters run on the host's cores and are slower than the host pool.
fn auto(
    spec: &StepSpec,
    exec: &ExecOptions,
    notes: &mut Vec<String>,
) -> Result<Vec<Choice>, TrainError> {
    let hardware = adapter_choices().into_iter().filter(Choice::is_hardware);
    let mut usable = Vec::new();
    for choice in hardware {
        match choice.open(&exec.watcher) {
            Ok(_) => usable.push(choice),
            Err(error) => notes.push(error.to_string()),
        }
    }
    if usable.is_empty() {
        return Ok(vec![Choice::Host]);
    }
    let host = seconds_per_step(&[Choice::Host], spec, exec)?;
    match seconds_per_step(&usable, spec, exec) {
        Ok(gpu) => {
            let word = if gpu < host { "is faster" } else { "is slower" };
            let names: Vec<String> = usable.iter().map(Choice::name).collect();
            let (gpu_ms, host_ms) = (gpu * 1e3, host * 1e3);
            notes.push(format!(
                "{} {word}: {gpu_ms:.0} ms a step, the CPU {host_ms:.0} ms",
                names.join(", ")
            ));
            Ok(if gpu < host { usable } else { vec![Choice::Host] })
        }
        Err(error) => {
            notes.push(error.to_string());
            Ok(vec![Choice::Host])
        }
    }
}

/// The second of two steps on made-up data.
fn seconds_per_step(
    choices: &[Choice],
    spec: &StepSpec,
    exec: &ExecOptions,
) -> Result<f64, TrainError> {
    let ranks = spec.layout.mesh().size() as usize;
    let choices = &choices[..choices.len().min(ranks)];
    let slots =
        choices.iter().map(|choice| choice.open(&exec.watcher)).collect::<Result<_, _>>()?;
    let mut executor = Executor::new(slots, placement(ranks, choices.len()), exec.clone())?;
    let id = executor.load(Arc::new(plan_step(spec)?))?;
    let tokens = vec![0; (spec.training.batch * spec.training.seq) as usize];
    let seq = spec.training.seq;
    // Nothing is learned: the weights of this executor are thrown away.
    let input =
        StepInput { tokens: &tokens, labels: &tokens, seq, lr: 0.0, bias_corrections: [1.0; 2] };
    executor.run(id, 0, &input)?;
    Ok(executor.run(id, 1, &input)?.trace.end().as_secs())
}
