//! Finds adapters: which there are, what they allow, and which of them are one and the same GPU.

use super::fault::one_line;
use crate::exec::ExecError;
use crate::exec::device::{DeviceInfo, DeviceKind};
use crate::units::Bytes;

/// An adapter that wgpu reaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adapter {
    /// What it is.
    pub info: DeviceInfo,
    /// What it allows.
    pub limits: AdapterLimits,
    /// Why it cannot run ranks, if so.
    pub unsuitable: Option<String>,
    pub(super) id: Identity,
}

/// Limits of an adapter that decide what can run on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdapterLimits {
    /// Bytes of a buffer.
    pub buffer_bytes_max: Bytes,
    /// Bytes that a kernel sees of a buffer.
    pub binding_bytes_max: Bytes,
    /// Buffers of a kernel.
    pub storage_buffers_max: u32,
    /// Bytes of workgroup memory.
    pub workgroup_bytes_max: Bytes,
    /// Invocations of a workgroup.
    pub workgroup_invocations_max: u32,
    /// Workgroups of a dispatch along each dimension.
    pub workgroups_max: u32,
    /// Where bound memory may start, in bytes.
    pub offset_alignment: Bytes,
    /// Smallest and largest subgroup, if subgroup operations exist.
    pub subgroup_sizes: Option<(u32, u32)>,
    /// Whether instructions can be timed.
    pub timestamps: bool,
}

/// What tells adapters apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) backend: wgpu::Backend,
    pub(super) vendor: u32,
    pub(super) device: u32,
    pub(super) pci_bus: String,
    pub(super) name: String,
    /// Among the adapters of the backend, in its order.
    pub(super) index: usize,
}

/// All adapters, each GPU once, real GPUs first.
///
/// # Examples
/// ```no_run
/// for adapter in shardlab::exec::gpu::adapters() {
///     println!("{} over {}", adapter.info.name, adapter.info.api);
/// }
/// ```
pub fn adapters() -> Vec<Adapter> {
    let all = enumerate(&new_instance(wgpu::Backends::all()), wgpu::Backends::all());
    let described: Vec<Adapter> =
        all.iter().map(|(id, adapter)| describe(id.clone(), adapter)).collect();
    let kept = without_doubles(described.iter().map(|adapter| &adapter.id));
    let mut kept: Vec<Adapter> = kept.into_iter().map(|index| described[index].clone()).collect();
    // A stable sort: among equals the order of the system stays.
    kept.sort_by_key(|adapter| adapter.info.kind);
    kept
}

pub(super) fn new_instance(backends: wgpu::Backends) -> wgpu::Instance {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = backends;
    wgpu::Instance::new(descriptor)
}

fn enumerate(
    instance: &wgpu::Instance,
    backends: wgpu::Backends,
) -> Vec<(Identity, wgpu::Adapter)> {
    let adapters = pollster::block_on(instance.enumerate_adapters(backends));
    let infos: Vec<wgpu::AdapterInfo> = adapters.iter().map(wgpu::Adapter::get_info).collect();
    let identities = infos.iter().enumerate().map(|(place, info)| Identity {
        backend: info.backend,
        vendor: info.vendor,
        device: info.device,
        pci_bus: info.device_pci_bus_id.clone(),
        name: info.name.clone(),
        index: infos[..place].iter().filter(|other| other.backend == info.backend).count(),
    });
    identities.zip(adapters).collect()
}

/// Finds the adapter again in an instance of its own: the ranks of a software adapter run side by
/// side only if each has one.
///
/// # Errors
/// If it is gone.
pub(super) fn reopen(adapter: &Adapter) -> Result<(wgpu::Instance, wgpu::Adapter), ExecError> {
    let backends = wgpu::Backends::from(adapter.id.backend);
    let instance = new_instance(backends);
    let found = enumerate(&instance, backends);
    match found.into_iter().find(|(id, _)| *id == adapter.id) {
        Some((_, found)) => Ok((instance, found)),
        None => Err(ExecError::Device {
            device: adapter.info.name.clone(),
            why: "the adapter is gone since it was listed".to_owned(),
            remedy: "List the adapters again with shardlab doctor".to_owned(),
        }),
    }
}

fn describe(id: Identity, adapter: &wgpu::Adapter) -> Adapter {
    let (info, limits, features) = (adapter.get_info(), adapter.limits(), adapter.features());
    let kind = match info.device_type {
        wgpu::DeviceType::DiscreteGpu | wgpu::DeviceType::VirtualGpu => DeviceKind::Discrete,
        wgpu::DeviceType::IntegratedGpu | wgpu::DeviceType::Other => DeviceKind::Integrated,
        wgpu::DeviceType::Cpu => DeviceKind::Software,
    };
    let limits = AdapterLimits {
        buffer_bytes_max: Bytes(limits.max_buffer_size),
        binding_bytes_max: Bytes(limits.max_storage_buffer_binding_size),
        storage_buffers_max: limits.max_storage_buffers_per_shader_stage,
        workgroup_bytes_max: Bytes(limits.max_compute_workgroup_storage_size.into()),
        workgroup_invocations_max: limits.max_compute_invocations_per_workgroup,
        workgroups_max: limits.max_compute_workgroups_per_dimension,
        offset_alignment: Bytes(limits.min_storage_buffer_offset_alignment.into()),
        subgroup_sizes: features
            .contains(wgpu::Features::SUBGROUP)
            .then_some((info.subgroup_min_size, info.subgroup_max_size)),
        timestamps: features.contains(wgpu::Features::TIMESTAMP_QUERY),
    };
    let flags = adapter.get_downlevel_capabilities().flags;
    let computes = flags.contains(wgpu::DownlevelFlags::COMPUTE_SHADERS);
    Adapter {
        info: DeviceInfo {
            name: info.name.clone(),
            kind,
            api: format!("{:?}", info.backend),
            driver: one_line(&format!("{} {}", info.driver, info.driver_info)),
        },
        unsuitable: if computes { shortfall(&limits) } else { Some("no compute shaders".into()) },
        limits,
        id,
    }
}

/// The first limit that is too small for the kernels.
fn shortfall(limits: &AdapterLimits) -> Option<String> {
    let needs = [
        ("storage buffers in a kernel", u64::from(limits.storage_buffers_max), 8),
        ("bytes of workgroup memory", limits.workgroup_bytes_max.0, 16_384),
        ("invocations in a workgroup", u64::from(limits.workgroup_invocations_max), 256),
        ("workgroups in a dispatch", u64::from(limits.workgroups_max), 65_535),
        ("bytes in a binding", limits.binding_bytes_max.0, 1 << 20),
    ];
    let short = needs.into_iter().find(|&(_, have, need)| have < need);
    short.map(|(what, have, need)| format!("it allows {have} {what}, and {need} are needed"))
}

/// How much an API is preferred where several reach the same GPU.
fn preference(backend: wgpu::Backend) -> u32 {
    match backend {
        wgpu::Backend::Vulkan | wgpu::Backend::Metal => 0,
        wgpu::Backend::Dx12 => 1,
        wgpu::Backend::Gl => 2,
        wgpu::Backend::BrowserWebGpu => 3,
        wgpu::Backend::Noop => 4,
    }
}

/// Which adapters to keep so that no GPU counts twice: of a model of GPU, all that the most
/// preferred API lists (there may be several of the model), and none of the other APIs'.
fn without_doubles<'a>(ids: impl Iterator<Item = &'a Identity>) -> Vec<usize> {
    let ids: Vec<&Identity> = ids.collect();
    let keeps = |(place, id): (usize, &&Identity)| {
        let same = ids.iter().enumerate().filter(|(_, other)| same_model(id, other));
        let better =
            same.clone().any(|(_, other)| preference(other.backend) < preference(id.backend));
        // Some drivers list one device twice inside one API.
        let again = same.clone().any(|(other_place, other)| {
            other_place < place
                && other.backend == id.backend
                && !id.pci_bus.is_empty()
                && other.pci_bus == id.pci_bus
        });
        let useless = id.backend == wgpu::Backend::Noop;
        (!better && !again && !useless).then_some(place)
    };
    ids.iter().enumerate().filter_map(keeps).collect()
}

/// Whether two adapters may be one GPU seen through two APIs. GL knows no ids and decorates names.
fn same_model(one: &Identity, other: &Identity) -> bool {
    if one.vendor != 0 && other.vendor != 0 && one.device != 0 && other.device != 0 {
        return (one.vendor, one.device) == (other.vendor, other.device);
    }
    let (one, other) = (one.name.to_lowercase(), other.name.to_lowercase());
    one.starts_with(&other) || other.starts_with(&one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wgpu::Backend;

    fn id(backend: Backend, vendor: u32, device: u32, pci: &str, name: &str) -> Identity {
        let (pci_bus, name) = (pci.to_owned(), name.to_owned());
        Identity { backend, vendor, device, pci_bus, name, index: 0 }
    }

    #[test]
    fn a_gpu_seen_through_three_apis_counts_once() {
        let ids = [
            id(Backend::Gl, 0, 0, "", "NVIDIA GeForce RTX 3080/PCIe/SSE2"),
            id(Backend::Dx12, 0x10de, 0x2206, "", "NVIDIA GeForce RTX 3080"),
            id(Backend::Vulkan, 0x10de, 0x2206, "0000:01:00.0", "NVIDIA GeForce RTX 3080"),
        ];
        assert_eq!(without_doubles(ids.iter()), [2]);
    }

    #[test]
    fn two_equal_gpus_count_twice_and_a_doubled_listing_once() {
        let ids = [
            id(Backend::Vulkan, 0x10de, 0x2206, "0000:01:00.0", "GPU"),
            id(Backend::Vulkan, 0x10de, 0x2206, "0000:02:00.0", "GPU"),
            id(Backend::Vulkan, 0x10de, 0x2206, "0000:01:00.0", "GPU"),
            id(Backend::Dx12, 0x10de, 0x2206, "", "GPU"),
            id(Backend::Dx12, 0x10de, 0x2206, "", "GPU"),
        ];
        assert_eq!(without_doubles(ids.iter()), [0, 1]);
    }

    #[test]
    fn a_software_adapter_without_pci_bus_counts_once_over_apis() {
        let ids = [
            id(Backend::Vulkan, 0x10005, 0, "", "llvmpipe (LLVM 15.0.6, 256 bits)"),
            id(Backend::Gl, 0, 0, "", "llvmpipe (LLVM 15.0.6, 256 bits)"),
            id(Backend::Vulkan, 0x8086, 0x1234, "0000:00:02.0", "Intel"),
        ];
        assert_eq!(without_doubles(ids.iter()), [0, 2]);
    }

    #[test]
    fn an_adapter_with_too_small_limits_says_which() {
        let mut limits = AdapterLimits {
            buffer_bytes_max: Bytes(1 << 28),
            binding_bytes_max: Bytes(1 << 27),
            storage_buffers_max: 8,
            workgroup_bytes_max: Bytes(16_384),
            workgroup_invocations_max: 256,
            workgroups_max: 65_535,
            offset_alignment: Bytes(256),
            subgroup_sizes: None,
            timestamps: false,
        };
        assert_eq!(shortfall(&limits), None);
        limits.storage_buffers_max = 4;
        let why = shortfall(&limits).expect("too few");
        assert_eq!(why, "it allows 4 storage buffers in a kernel, and 8 are needed");
    }
}
