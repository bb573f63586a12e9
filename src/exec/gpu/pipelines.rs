//! Compiled kernels of a device: each is built once, when the first Plan that needs it is loaded.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::fault::{Fault, one_line};
use super::kernels::{KernelId, KernelSpec, Source};
use crate::exec::ExecError;

/// The pipelines of a device.
#[derive(Debug)]
pub(super) struct Pipelines {
    device: wgpu::Device,
    modules: BTreeMap<&'static str, wgpu::ShaderModule>,
    /// By number of bindings after the params.
    layouts: BTreeMap<usize, (wgpu::BindGroupLayout, wgpu::PipelineLayout)>,
    pipelines: BTreeMap<KernelId, wgpu::ComputePipeline>,
}

impl Pipelines {
    pub(super) fn new(device: &wgpu::Device) -> Self {
        Self {
            device: device.clone(),
            modules: BTreeMap::new(),
            layouts: BTreeMap::new(),
            pipelines: BTreeMap::new(),
        }
    }

    /// Whether a kernel was compiled before.
    pub(super) fn is_built(&self, kernel: KernelId) -> bool {
        self.pipelines.contains_key(&kernel)
    }

    /// Compiles a kernel.
    pub(super) fn build(&mut self, kernel: KernelId, fault: &Fault) -> Result<(), ExecError> {
        let spec = kernel.spec();
        let scope = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let internal = self.device.push_error_scope(wgpu::ErrorFilter::Internal);
        let pipeline = self.compile(spec);
        let errors = [internal.pop(), scope.pop()].map(pollster::block_on);
        if let Some(error) = errors.into_iter().flatten().next() {
            return Err(fault.error(
                format!("kernel {} does not compile: {}", spec.entry, one_line(&error.to_string())),
                "Update the driver, or take another device",
            ));
        }
        self.pipelines.insert(kernel, pipeline);
        Ok(())
    }

    fn compile(&mut self, spec: &KernelSpec) -> wgpu::ComputePipeline {
        let (_, layout) = self.layouts(spec.bindings.len());
        let layout = layout.clone();
        let module = module(&self.device, &mut self.modules, spec.source);
        self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(spec.entry),
            layout: Some(&layout),
            module,
            entry_point: Some(spec.entry),
            compilation_options: wgpu::PipelineCompilationOptions {
                // Every kernel writes its workgroup memory before it reads it.
                zero_initialize_workgroup_memory: false,
                ..Default::default()
            },
            cache: None,
        })
    }

    /// The pipeline of a kernel that was built.
    pub(super) fn pipeline(&self, kernel: KernelId) -> &wgpu::ComputePipeline {
        &self.pipelines[&kernel]
    }

    /// The layout of the bind groups of a kernel that was built.
    pub(super) fn bind_group_layout(&self, kernel: KernelId) -> &wgpu::BindGroupLayout {
        &self.layouts[&kernel.spec().bindings.len()].0
    }

    /// Params at binding 0, then `count` bindings that may be written: buffers that are read and
    /// buffers that are written are often one and the same, and wgpu wants one kind of access to a
    /// buffer in a dispatch.
    fn layouts(&mut self, count: usize) -> &(wgpu::BindGroupLayout, wgpu::PipelineLayout) {
        match self.layouts.entry(count) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(create_layouts(&self.device, count)),
        }
    }
}

fn create_layouts(
    device: &wgpu::Device,
    count: usize,
) -> (wgpu::BindGroupLayout, wgpu::PipelineLayout) {
    let entry = |binding: u32| wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer {
            ty: wgpu::BufferBindingType::Storage { read_only: binding == 0 },
            has_dynamic_offset: false,
            min_binding_size: None,
        },
        count: None,
    };
    let entries: Vec<_> = (0..=count as u32).map(entry).collect();
    let group = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
        label: Some("params and arguments"),
        entries: &entries,
    });
    let pipeline = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: Some("params and arguments"),
        bind_group_layouts: &[Some(&group)],
        immediate_size: 0,
    });
    (group, pipeline)
}

/// The module of a file, made at first use.
fn module<'a>(
    device: &wgpu::Device,
    modules: &'a mut BTreeMap<&'static str, wgpu::ShaderModule>,
    source: &Source,
) -> &'a wgpu::ShaderModule {
    modules.entry(source.name).or_insert_with(|| {
        device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: Some(source.name),
            source: wgpu::ShaderSource::Wgsl(source.wgsl.into()),
        })
    })
}
