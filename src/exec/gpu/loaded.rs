//! A Plan on a device: memory of its ranks and, for every instruction, dispatches that are ready to
//! be encoded. All that can be prepared once is prepared here.

use std::collections::BTreeMap;
use std::ops::Range;

use super::fault::{Fault, one_line};
use super::kernels::KernelId;
use super::lower::{Bound, Budget, Dispatch, Refusal, lower, lower_copy};
use super::memory::{RankMemory, buffer};
use super::pipelines::Pipelines;
use crate::exec::ExecError;
use crate::mesh::Rank;
use crate::ops::Kernel;
use crate::plan::{Action, Plan, View};

/// A Plan whose instructions can be encoded.
#[derive(Debug)]
pub(super) struct LoadedPlan {
    ranks: BTreeMap<Rank, LoadedRank>,
    /// Of each buffer of the Plan.
    places: Vec<BufferPlace>,
}

/// Where a buffer lies.
#[derive(Clone, Copy, Debug)]
struct BufferPlace {
    place: crate::plan::Place,
    element_bytes: u64,
}

#[derive(Debug)]
struct LoadedRank {
    memory: RankMemory,
    dispatches: Vec<ReadyDispatch>,
    /// Of each instruction, which of `dispatches`.
    instrs: Vec<Range<usize>>,
    /// Of each instruction, its floating-point operations, or its elements if those are more.
    work: Vec<u64>,
}

/// A dispatch that only waits to be encoded.
#[derive(Debug)]
pub(super) struct ReadyDispatch {
    pub(super) kernel: KernelId,
    pub(super) pipeline: wgpu::ComputePipeline,
    pub(super) bind_group: wgpu::BindGroup,
    pub(super) groups: [u32; 3],
}

/// The dispatches of each instruction of a rank, before they are bound.
pub(super) type Lowered = Vec<Vec<Dispatch>>;

/// Lowers the program of a rank. Messages have no dispatches.
///
/// # Errors
/// If an op has no kernel, or exceeds a limit of the adapter.
pub(super) fn lower_program(
    plan: &Plan,
    rank: Rank,
    budget: &Budget,
    fault: &Fault,
) -> Result<Lowered, ExecError> {
    let instrs = plan.programs[rank.index()].instrs.iter().enumerate();
    let lowered = instrs.map(|(instr, line)| match &line.action {
        Action::Launch { op, inputs, outputs } => {
            lower(op, inputs, outputs, budget).map_err(|refusal| match refusal {
                Refusal::NoKernel => ExecError::NoKernel { rank, instr, op: op.to_string() },
                Refusal::Limit(why) => fault.error(
                    format!("rank {rank}, instruction {instr} ({op}): {why}"),
                    "Use more tensor-parallel ranks or smaller microbatches, or take another device",
                ),
            })
        }
        Action::Copy { from, to } => Ok(lower_copy(*from, *to, budget)),
        Action::Send { .. } | Action::Recv { .. } => Ok(Vec::new()),
    });
    lowered.collect()
}

/// What binding needs of a device.
#[derive(Debug)]
pub(super) struct Binder<'a> {
    pub(super) device: &'a wgpu::Device,
    pub(super) queue: &'a wgpu::Queue,
    pub(super) pipelines: &'a Pipelines,
    pub(super) scratch: &'a wgpu::Buffer,
    pub(super) fault: &'a Fault,
}

impl LoadedPlan {
    /// Binds lowered programs to the memory of their ranks.
    ///
    /// # Errors
    /// If the device refuses a binding.
    pub(super) fn bind(
        plan: &Plan,
        ranks: Vec<(Rank, RankMemory, Lowered)>,
        binder: &Binder<'_>,
    ) -> Result<Self, ExecError> {
        let places = plan.buffers.iter();
        let places = places
            .map(|decl| BufferPlace { place: decl.place, element_bytes: decl.dtype.size() })
            .collect();
        let mut loaded = Self { ranks: BTreeMap::new(), places };
        let scope = binder.device.push_error_scope(wgpu::ErrorFilter::Validation);
        for (rank, memory, lowered) in ranks {
            let bound = binder.rank(&loaded.places, &memory, &lowered);
            let mut start = 0;
            let instrs = lowered.iter().map(|dispatches| {
                let range = start..start + dispatches.len();
                start = range.end;
                range
            });
            let instrs = instrs.collect();
            let work = plan.programs[rank.index()].instrs.iter().map(|line| work(&line.action));
            let work = work.collect();
            loaded.ranks.insert(rank, LoadedRank { memory, dispatches: bound, instrs, work });
        }
        match pollster::block_on(scope.pop()) {
            None => Ok(loaded),
            Some(error) => Err(binder
                .fault
                .failed(format!("memory cannot be bound: {}", one_line(&error.to_string())))),
        }
    }

    pub(super) fn memory(&self, rank: Rank) -> Option<&RankMemory> {
        self.ranks.get(&rank).map(|loaded| &loaded.memory)
    }

    /// The dispatches of an instruction, in order.
    pub(super) fn dispatches(&self, rank: Rank, instr: usize) -> &[ReadyDispatch] {
        let loaded = self.rank(rank);
        &loaded.dispatches[loaded.instrs[instr].clone()]
    }

    /// Floating-point operations of an instruction, or its elements if those are more.
    pub(super) fn work(&self, rank: Rank, instr: usize) -> u64 {
        self.rank(rank).work.get(instr).copied().unwrap_or(0)
    }

    /// The buffer of a view, where it starts there, and its size, in bytes.
    pub(super) fn locate(&self, rank: Rank, view: View) -> (&wgpu::Buffer, u64, u64) {
        locate(&self.places, &self.rank(rank).memory, view)
    }

    fn rank(&self, rank: Rank) -> &LoadedRank {
        self.ranks.get(&rank).unwrap_or_else(|| panic!("rank {rank} is not on this device"))
    }
}

fn work(action: &Action) -> u64 {
    match action {
        Action::Launch { op, .. } => op.flops().0.max(op.signature().bytes().0 / 4),
        Action::Copy { from, .. } => from.len.into(),
        Action::Send { .. } | Action::Recv { .. } => 0,
    }
}

fn locate<'a>(
    places: &[BufferPlace],
    memory: &'a RankMemory,
    view: View,
) -> (&'a wgpu::Buffer, u64, u64) {
    let BufferPlace { place, element_bytes } = places[view.buffer.0 as usize];
    let start = place.offset + u64::from(view.offset) * element_bytes;
    let bytes = u64::from(view.len) * element_bytes;
    let (buffer, start) = memory.arena(place.arena).locate(&(start..start + bytes));
    (buffer, start, bytes)
}

impl Binder<'_> {
    fn rank(
        &self,
        places: &[BufferPlace],
        memory: &RankMemory,
        lowered: &Lowered,
    ) -> Vec<ReadyDispatch> {
        let alignment = self.offset_alignment();
        let dispatches: Vec<&Dispatch> = lowered.iter().flatten().collect();
        // All params of the rank lie in one buffer, each where it may be bound.
        let mut params: Vec<u8> = Vec::new();
        let mut bound = Vec::with_capacity(dispatches.len());
        for dispatch in &dispatches {
            let start = params.len().next_multiple_of(alignment as usize);
            params.resize(start, 0);
            params.extend(&dispatch.params);
            let arguments: Vec<_> = dispatch
                .bindings
                .iter()
                .map(|&binding| self.argument(places, memory, binding, alignment))
                .collect();
            for (index, argument) in arguments.iter().enumerate() {
                let at = start + dispatch.kernel.spec().at_offset(index);
                params[at..at + 4].copy_from_slice(&argument.first_element.to_le_bytes());
            }
            bound.push((start as u64, arguments));
        }
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST;
        let params_buffer = buffer(self.device, "params", params.len() as u64, usage);
        self.queue.write_buffer(&params_buffer, 0, &params);
        let ready = dispatches.iter().zip(bound).map(|(dispatch, (start, arguments))| {
            let bytes = dispatch.params.len() as u64;
            let params = binding(&params_buffer, start, bytes);
            ReadyDispatch {
                kernel: dispatch.kernel,
                pipeline: self.pipelines.pipeline(dispatch.kernel).clone(),
                bind_group: self.bind_group(dispatch.kernel, params, &arguments),
                groups: dispatch.groups,
            }
        });
        ready.collect()
    }

    fn bind_group(
        &self,
        kernel: KernelId,
        params: wgpu::BindingResource<'_>,
        arguments: &[Argument<'_>],
    ) -> wgpu::BindGroup {
        let first = wgpu::BindGroupEntry { binding: 0, resource: params };
        let arguments = (1..).zip(arguments).map(|(binding, argument)| wgpu::BindGroupEntry {
            binding,
            resource: argument.resource.clone(),
        });
        let entries: Vec<_> = std::iter::once(first).chain(arguments).collect();
        self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some(kernel.spec().entry),
            layout: self.pipelines.bind_group_layout(kernel),
            entries: &entries,
        })
    }

    /// Binds memory from the nearest place before it that may be bound.
    fn argument<'a>(
        &'a self,
        places: &[BufferPlace],
        memory: &'a RankMemory,
        bound: Bound,
        alignment: u64,
    ) -> Argument<'a> {
        let (buffer, start, bytes) = match bound {
            // Nothing can be bound of an empty view, and the kernel touches none of it.
            Bound::View(view) if view.len == 0 => (self.scratch, 0, 4),
            Bound::View(view) => locate(places, memory, view),
            Bound::Scratch { start, len } => {
                (self.scratch, 4 * u64::from(start), 4 * u64::from(len.max(1)))
            }
        };
        let skipped = start % alignment;
        let resource = binding(buffer, start - skipped, bytes + skipped);
        Argument { resource, first_element: (skipped / 4) as u32 }
    }

    fn offset_alignment(&self) -> u64 {
        self.device.limits().min_storage_buffer_offset_alignment.into()
    }

    /// A dispatch that does nothing of use, over scratch: drivers compile a kernel when it first
    /// runs, and that shall not be in a step.
    pub(super) fn warm_up(&self, kernel: KernelId) -> ReadyDispatch {
        let spec = kernel.spec();
        let usage = wgpu::BufferUsages::STORAGE;
        let zeroes = buffer(self.device, "warm-up", spec.params_bytes as u64, usage);
        let params = binding(&zeroes, 0, spec.params_bytes as u64);
        let resource = self.scratch.as_entire_binding();
        let argument = || Argument { resource: resource.clone(), first_element: 0 };
        let arguments: Vec<_> = spec.bindings.iter().map(|_| argument()).collect();
        ReadyDispatch {
            kernel,
            pipeline: self.pipelines.pipeline(kernel).clone(),
            bind_group: self.bind_group(kernel, params, &arguments),
            groups: [1, 1, 1],
        }
    }
}

/// Bound memory, and which element of it is the first of the view.
#[derive(Debug)]
struct Argument<'a> {
    resource: wgpu::BindingResource<'a>,
    first_element: u32,
}

fn binding(buffer: &wgpu::Buffer, offset: u64, bytes: u64) -> wgpu::BindingResource<'_> {
    wgpu::BindingResource::Buffer(wgpu::BufferBinding {
        buffer,
        offset,
        size: wgpu::BufferSize::new(bytes),
    })
}

/// Elements of scratch that lowered programs use.
pub(super) fn scratch_elements(lowered: &Lowered) -> u64 {
    let bindings = lowered.iter().flatten().flat_map(|dispatch| &dispatch.bindings);
    let ends = bindings.map(|binding| match binding {
        Bound::View(_) => 0,
        Bound::Scratch { start, len } => u64::from(*start) + u64::from(*len),
    });
    ends.max().unwrap_or(0)
}
