//! Commands under construction: one compute pass for as long as possible, copies between passes.

use super::kernels::KernelId;
use super::loaded::ReadyDispatch;

/// Commands that were encoded and not submitted.
#[derive(Debug, Default)]
pub(super) struct Recording {
    pass: Option<wgpu::ComputePass<'static>>,
    /// The kernel that the pass is set to.
    kernel: Option<KernelId>,
    encoder: Option<wgpu::CommandEncoder>,
    /// Of what was encoded, in floating-point operations or elements.
    pub(super) work: u64,
    /// Whether a part of the batch was handed over already.
    pub(super) has_flushed: bool,
}

impl Recording {
    /// Encodes a dispatch into the pass, or into a new one.
    pub(super) fn dispatch(&mut self, device: &wgpu::Device, ready: &ReadyDispatch) {
        if self.pass.is_none() {
            self.begin(device, None);
        }
        let pass = self.pass.as_mut().expect("begun above");
        if self.kernel != Some(ready.kernel) {
            pass.set_pipeline(&ready.pipeline);
            self.kernel = Some(ready.kernel);
        }
        pass.set_bind_group(0, &ready.bind_group, &[]);
        let [x, y, z] = ready.groups;
        pass.dispatch_workgroups(x, y, z);
    }

    /// Begins a pass.
    pub(super) fn begin(
        &mut self,
        device: &wgpu::Device,
        timestamps: Option<wgpu::ComputePassTimestampWrites<'_>>,
    ) {
        self.end();
        let descriptor = wgpu::ComputePassDescriptor { label: None, timestamp_writes: timestamps };
        let pass = self.encoder(device).begin_compute_pass(&descriptor).forget_lifetime();
        self.pass = Some(pass);
    }

    /// Ends the pass: copies stand between passes.
    pub(super) fn end(&mut self) {
        self.pass = None;
        self.kernel = None;
    }

    /// The encoder of the batch.
    pub(super) fn encoder(&mut self, device: &wgpu::Device) -> &mut wgpu::CommandEncoder {
        self.encoder.get_or_insert_with(|| {
            device.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: None })
        })
    }

    /// Encodes a copy between two buffers.
    pub(super) fn copy(
        &mut self,
        device: &wgpu::Device,
        (from, from_offset): (&wgpu::Buffer, u64),
        (to, to_offset): (&wgpu::Buffer, u64),
        bytes: u64,
    ) {
        self.end();
        if bytes > 0 {
            self.encoder(device).copy_buffer_to_buffer(from, from_offset, to, to_offset, bytes);
        }
    }

    /// Whether there is nothing to submit.
    pub(super) fn is_empty(&self) -> bool {
        !self.has_flushed && self.encoder.is_none()
    }

    /// Takes what was encoded.
    pub(super) fn take(&mut self) -> Option<wgpu::CommandEncoder> {
        self.end();
        self.work = 0;
        self.encoder.take()
    }
}
