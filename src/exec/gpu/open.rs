//! Opens an adapter: which features and limits are asked for, and which kernels fit it.

use std::time::Duration;

use super::adapters::{Adapter, reopen};
use super::device::GpuDevice;
use super::fault::one_line;
use super::lower::{Budget, KernelFamily};
use super::self_test;
use crate::exec::device::DeviceKind;
use crate::exec::{ExecError, Watcher};
use crate::units::Bytes;

/// How a device is opened.
#[derive(Clone, Debug, Default)]
pub struct GpuOptions {
    /// Time every instruction, if the adapter can; each costs a little.
    pub timestamps: bool,
    /// Bytes that a rank may place.
    pub memory_cap: Option<Bytes>,
    /// Take only what plain WebGPU promises, whatever the adapter offers.
    pub portable_limits: bool,
    /// Take smaller bindings than the adapter offers.
    pub binding_bytes_max: Option<Bytes>,
    /// Which kernels do the heavy work; chosen by the kind of adapter if not said.
    pub family: Option<KernelFamily>,
    /// Work after which encoded instructions are handed to the queue although their batch is not
    /// complete, in floating-point operations: the adapter starts, and drivers that watch for
    /// hangs see pieces. 10¹¹ if not said.
    pub work_at_once: Option<u64>,
    /// How long to wait for a batch before the device counts as hung; five minutes if not said.
    pub timeout: Option<Duration>,
    /// Told which kernels are compiled.
    pub watcher: Watcher,
}

/// Trips of loops that every adapter runs, with a margin to the 65,535 of old software drivers.
pub(super) const SAFE_TRIPS: u32 = 60_000;

/// What wgpu gives for an adapter.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) instance: wgpu::Instance,
    pub(super) device: wgpu::Device,
    pub(super) queue: wgpu::Queue,
}

impl GpuDevice {
    /// Takes an adapter and tests it.
    ///
    /// # Errors
    /// If the adapter is unsuitable, cannot be had, or computes wrong numbers.
    pub fn open(adapter: &Adapter, options: GpuOptions) -> Result<Self, ExecError> {
        let refuse = |why: String, remedy: &str| ExecError::Device {
            device: adapter.info.name.clone(),
            why,
            remedy: remedy.to_owned(),
        };
        if let Some(why) = &adapter.unsuitable {
            return Err(refuse(format!("it cannot run ranks: {why}"), "Take another device"));
        }
        let family = choose_family(adapter, options.family)
            .map_err(|why| refuse(why, "Let the kernels be chosen"))?;
        let (instance, found) = reopen(adapter)?;
        let request = wgpu::DeviceDescriptor {
            label: Some("ranks"),
            required_features: features(&found, family, &options),
            required_limits: limits(&found, &options),
            memory_hints: wgpu::MemoryHints::MemoryUsage,
            ..Default::default()
        };
        let (device, queue) = pollster::block_on(found.request_device(&request))
            .map_err(|error| refuse(one_line(&error.to_string()), "Close other programs"))?;
        let budget = budget(&device.limits(), family);
        let memory_cap = options.memory_cap;
        // The self test is none of the ranks' memory.
        let options = GpuOptions { memory_cap: None, ..options };
        let opened = Opened { instance, device, queue };
        let mut opened = Self::untested(opened, (adapter.info.clone(), options), budget);
        let self_test = self_test::run(&mut opened)?;
        if let Some(why) = self_test.failure() {
            return Err(refuse(why, "Update the driver, or take another device"));
        }
        opened.trust(self_test, memory_cap);
        Ok(opened)
    }
}

/// By the kind of adapter, or as asked.
fn choose_family(adapter: &Adapter, asked: Option<KernelFamily>) -> Result<KernelFamily, String> {
    let eight = adapter.limits.subgroup_sizes == Some((8, 8));
    match asked {
        Some(KernelFamily::Subgroup) if !eight => {
            Err("the subgroup kernels need subgroups of exactly eight".to_owned())
        }
        Some(family) => Ok(family),
        None if adapter.info.kind != DeviceKind::Software => Ok(KernelFamily::Tiled),
        None if eight => Ok(KernelFamily::Subgroup),
        None => Ok(KernelFamily::Blocked),
    }
}

fn features(adapter: &wgpu::Adapter, family: KernelFamily, options: &GpuOptions) -> wgpu::Features {
    let mut features = wgpu::Features::empty();
    if family == KernelFamily::Subgroup {
        features |= wgpu::Features::SUBGROUP;
    }
    if options.timestamps {
        features |= adapter.features() & wgpu::Features::TIMESTAMP_QUERY;
    }
    features
}

fn limits(adapter: &wgpu::Adapter, options: &GpuOptions) -> wgpu::Limits {
    let offered = adapter.limits();
    let mut limits = if options.portable_limits {
        // The fallback is for adapters that offer less, which were refused before.
        wgpu::Limits::default().using_resolution(offered)
    } else {
        offered
    };
    if let Some(most) = options.binding_bytes_max {
        let clamped = limits.max_storage_buffer_binding_size.min(most.0);
        limits.max_storage_buffer_binding_size = clamped;
    }
    limits
}

fn budget(limits: &wgpu::Limits, family: KernelFamily) -> Budget {
    // A view may start anywhere, so its binding is longer by up to one alignment.
    let alignment = u64::from(limits.min_storage_buffer_offset_alignment);
    let bytes = limits.max_storage_buffer_binding_size.min(limits.max_buffer_size) - alignment;
    Budget {
        elements: u32::try_from(bytes / 4).unwrap_or(u32::MAX),
        groups: limits.max_compute_workgroups_per_dimension,
        trips: Some(SAFE_TRIPS),
        family,
    }
}
