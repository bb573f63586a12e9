//! Ops whose elements do not depend on one another: long tensors are cut anywhere.

use super::{Bound, List, Refusal, chunks};
use crate::exec::gpu::kernels::KernelId;
use crate::exec::gpu::params;
use crate::ops::{cast, elementwise, optimizer};
use crate::shape::DType;

/// Invocations of a workgroup of the kernels here.
const GROUP: u32 = 256;

impl List<'_> {
    /// Elements that one dispatch takes.
    pub(super) fn elements_at_once(&self) -> u32 {
        self.budget.elements.min(self.budget.groups.saturating_mul(GROUP))
    }

    pub(super) fn add(&mut self, op: &elementwise::Add, inputs: &[Bound], outputs: &[Bound]) {
        for range in chunks(op.len, self.elements_at_once()) {
            let len = range.len() as u32;
            let bindings = [inputs[0], inputs[1], outputs[0]].map(|x| x.slice(range.clone()));
            self.push_line(
                KernelId::Add,
                params::Elementwise { len, ..Default::default() },
                bindings,
                len,
            );
        }
    }

    pub(super) fn add_assign(
        &mut self,
        op: &elementwise::AddAssign,
        inputs: &[Bound],
        outputs: &[Bound],
    ) {
        for range in chunks(op.len, self.elements_at_once()) {
            let len = range.len() as u32;
            let bindings = [inputs[0], outputs[0]].map(|x| x.slice(range.clone()));
            let params = params::Elementwise { len, ..Default::default() };
            self.push_line(KernelId::AddAssign, params, bindings, len);
        }
    }

    pub(super) fn scale(&mut self, op: &elementwise::Scale, outputs: &[Bound]) {
        for range in chunks(op.len, self.elements_at_once()) {
            let len = range.len() as u32;
            let params = params::Elementwise { len, value: op.factor, ..Default::default() };
            self.push_line(KernelId::Scale, params, [outputs[0].slice(range)], len);
        }
    }

    pub(super) fn fill(&mut self, x: Bound, len: u32, value: f32) {
        for range in chunks(len, self.elements_at_once()) {
            let len = range.len() as u32;
            let params = params::Elementwise { len, value, ..Default::default() };
            self.push_line(KernelId::Fill, params, [x.slice(range)], len);
        }
    }

    pub(super) fn copy(&mut self, from: Bound, to: Bound, len: u32) {
        for range in chunks(len, self.elements_at_once()) {
            let len = range.len() as u32;
            let params = params::Elementwise { len, ..Default::default() };
            let bindings = [from, to].map(|x| x.slice(range.clone()));
            self.push_line(KernelId::Copy, params, bindings, len);
        }
    }

    pub(super) fn cast(
        &mut self,
        op: &cast::Cast,
        inputs: &[Bound],
        outputs: &[Bound],
    ) -> Result<(), Refusal> {
        let kernel = match (op.from, op.to) {
            (DType::F32, DType::I32) => KernelId::CastF32ToI32,
            (DType::I32, DType::F32) => KernelId::CastI32ToF32,
            _ => return Err(Refusal::NoKernel),
        };
        for range in chunks(op.len, self.elements_at_once()) {
            let len = range.len() as u32;
            let params = params::Cast { len, ..Default::default() };
            let bindings = [inputs[0], outputs[0]].map(|x| x.slice(range.clone()));
            self.push_line(kernel, params, bindings, len);
        }
        Ok(())
    }

    pub(super) fn adamw(&mut self, op: &optimizer::AdamW, inputs: &[Bound], outputs: &[Bound]) {
        for range in chunks(op.len, self.elements_at_once()) {
            let len = range.len() as u32;
            let params = params::Optimizer {
                len,
                beta1: op.beta1,
                beta2: op.beta2,
                eps: op.eps,
                weight_decay: op.weight_decay,
                clip_norm: op.clip_norm,
                ..Default::default()
            };
            let part = |x: Bound| x.slice(range.clone());
            let [g, w, m, v] = [inputs[0], outputs[0], outputs[1], outputs[2]].map(part);
            self.push_line(KernelId::AdamW, params, [g, inputs[1], inputs[2], w, m, v], len);
        }
    }

    pub(super) fn sgd(&mut self, op: &optimizer::Sgd, inputs: &[Bound], outputs: &[Bound]) {
        for range in chunks(op.len, self.elements_at_once()) {
            let len = range.len() as u32;
            let params = params::Optimizer { len, clip_norm: op.clip_norm, ..Default::default() };
            let [g, w] = [inputs[0], outputs[0]].map(|x| x.slice(range.clone()));
            self.push_line(KernelId::Sgd, params, [g, inputs[1], inputs[2], w], len);
        }
    }

    /// One invocation for each of `len` elements.
    pub(super) fn push_line<const N: usize>(
        &mut self,
        kernel: KernelId,
        params: impl bytemuck::Pod,
        bindings: [Bound; N],
        len: u32,
    ) {
        assert_eq!(kernel.spec().workgroup, [GROUP, 1, 1], "workgroup of {kernel:?}");
        self.push(kernel, params, bindings, [len.div_ceil(GROUP), 1, 1]);
    }
}
