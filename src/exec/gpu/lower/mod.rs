//! Turns an op into dispatches: which kernels run over which parts of its views.
//!
//! Pure arithmetic over sizes: nothing here touches a device. Whatever exceeds a limit of the
//! adapter (bytes of a binding, workgroups of a dispatch, trips of a loop) is cut into several
//! dispatches that give the same bits, or refused with the limit named.

mod attention;
mod elementwise;
mod matmul;
mod reduction;
mod rows;

use std::ops::Range;

use bytemuck::Pod;

use super::kernels::KernelId;
use crate::ops::Op;
use crate::plan::View;

/// Which kernels do the heavy work: matrix products and attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelFamily {
    /// Tiles in workgroup memory: for GPUs.
    Tiled,
    /// Matrix products without workgroup memory: for software adapters.
    Blocked,
    /// Registers and broadcasts: for software adapters with subgroups of eight.
    Subgroup,
}

/// What one dispatch may use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    /// Elements of a binding.
    pub(super) elements: u32,
    /// Workgroups along each dimension.
    pub(super) groups: u32,
    /// Trips of all loops of an invocation together; `None`: as many as it takes.
    pub(super) trips: Option<u32>,
    /// Which kernels do the heavy work.
    pub(super) family: KernelFamily,
}

/// One kernel over bound memory.
#[derive(Clone, Debug)]
pub(super) struct Dispatch {
    pub(super) kernel: KernelId,
    /// The params struct; its `…_at` members are filled in when the memory is bound.
    pub(super) params: Vec<u8>,
    pub(super) bindings: Vec<Bound>,
    pub(super) groups: [u32; 3],
}

/// Memory of a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    /// A view of the Plan.
    View(View),
    /// Elements of the device's scratch, whose contents live from one dispatch of an op to its next.
    Scratch {
        /// First element.
        start: u32,
        /// Number of elements.
        len: u32,
    },
}

impl Bound {
    fn slice(self, range: Range<u32>) -> Self {
        match self {
            Self::View(view) => Self::View(view.slice(range)),
            Self::Scratch { start, len } => {
                assert!(range.start <= range.end && range.end <= len, "{range:?} of scratch {len}");
                Self::Scratch { start: start + range.start, len: range.end - range.start }
            }
        }
    }
}

/// Why an op cannot run on an adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It has no kernel anywhere.
    NoKernel,
    /// A limit, in words.
    Limit(String),
}

/// The dispatches of an op, in order. An op without elements has none.
pub(super) fn lower(
    op: &Op,
    inputs: &[View],
    outputs: &[View],
    budget: &Budget,
) -> Result<Vec<Dispatch>, Refusal> {
    let inputs: Vec<Bound> = inputs.iter().copied().map(Bound::View).collect();
    let outputs: Vec<Bound> = outputs.iter().copied().map(Bound::View).collect();
    let mut list = List { dispatches: Vec::new(), budget };
    match op {
        Op::Matmul(op) => list.matmul(op, &inputs, &outputs)?,
        Op::Embedding(op) => list.embedding(op, &inputs, &outputs)?,
        Op::EmbeddingGrad(op) => list.embedding_grad(op, &inputs, &outputs)?,
        Op::RmsNorm(op) => list.rms_norm(op, &inputs, &outputs)?,
        Op::RmsNormGradInput(op) => list.rms_norm_grad_input(op, &inputs, &outputs)?,
        Op::RmsNormGradWeight(op) => list.rms_norm_grad_weight(op, &inputs, &outputs)?,
        Op::Rope(op) => list.rope(op, &inputs, &outputs)?,
        Op::Attention(op) => list.attention(op, &inputs, &outputs)?,
        Op::AttentionGrad(op) => list.attention_grad(op, &inputs, &outputs)?,
        Op::SwiGlu(op) => list.swiglu(op, &inputs, &outputs)?,
        Op::SwiGluGrad(op) => list.swiglu_grad(op, &inputs, &outputs)?,
        Op::LossStats(op) => list.loss_stats(op, &inputs, &outputs)?,
        Op::LossMerge(op) => list.loss_merge(op, &inputs, &outputs)?,
        Op::LossGrad(op) => list.loss_grad(op, &inputs, &outputs)?,
        Op::Add(op) => list.add(op, &inputs, &outputs),
        Op::AddAssign(op) => list.add_assign(op, &inputs, &outputs),
        Op::Scale(op) => list.scale(op, &outputs),
        Op::Fill(op) => list.fill(outputs[0], op.len, op.value),
        Op::SumRanks(op) => list.sum_ranks(op, &inputs, &outputs),
        Op::SquaredNorm(op) => list.squared_norm(op, &inputs, &outputs),
        Op::AdamW(op) => list.adamw(op, &inputs, &outputs),
        Op::Sgd(op) => list.sgd(op, &inputs, &outputs),
        Op::Cast(op) => list.cast(op, &inputs, &outputs)?,
        Op::Coarse(_) => return Err(Refusal::NoKernel),
    }
    Ok(list.dispatches)
}

/// The dispatches of a copy inside a rank. wgpu refuses to copy inside one buffer, a kernel does not.
pub(super) fn lower_copy(from: View, to: View, budget: &Budget) -> Vec<Dispatch> {
    let mut list = List { dispatches: Vec::new(), budget };
    list.copy(Bound::View(from), Bound::View(to), from.len);
    list.dispatches
}

/// Dispatches under construction.
struct List<'a> {
    dispatches: Vec<Dispatch>,
    budget: &'a Budget,
}

impl List<'_> {
    fn push<const N: usize>(
        &mut self,
        kernel: KernelId,
        params: impl Pod,
        bindings: [Bound; N],
        groups: [u32; 3],
    ) {
        assert_eq!(N, kernel.spec().bindings.len(), "bindings of {kernel:?}");
        assert!(groups.iter().all(|&count| count <= self.budget.groups), "{kernel:?}: {groups:?}");
        self.dispatches.push(Dispatch {
            kernel,
            params: bytemuck::bytes_of(&params).to_vec(),
            bindings: bindings.to_vec(),
            groups,
        });
    }

    /// How many rows of `width` elements fit into a binding and a dispatch.
    fn rows_that_fit(&self, width: u32) -> Result<u32, Refusal> {
        let rows = self.budget.elements / width.max(1);
        if rows == 0 { Err(self.too_wide(width)) } else { Ok(rows.min(self.budget.groups)) }
    }

    fn too_wide(&self, width: u32) -> Refusal {
        Refusal::Limit(format!(
            "a row of {width} elements does not fit into one binding of {} elements \
             (max_storage_buffer_binding_size)",
            self.budget.elements
        ))
    }

    /// Refuses what must be bound whole and is too large.
    fn must_fit(&self, what: &str, elements: u64) -> Result<(), Refusal> {
        if elements <= u64::from(self.budget.elements) {
            return Ok(());
        }
        Err(Refusal::Limit(format!(
            "{what} has {elements} elements and must be bound whole, but a binding holds {} \
             (max_storage_buffer_binding_size)",
            self.budget.elements
        )))
    }

    /// Refuses loops longer than the adapter runs.
    fn must_loop(&self, trips: u64, what: &str) -> Result<(), Refusal> {
        match self.budget.trips {
            Some(most) if u64::from(most) < trips => Err(Refusal::Limit(format!(
                "{what} needs loops of {trips} trips and this adapter stops silently after {most}"
            ))),
            _ => Ok(()),
        }
    }
}

/// Cuts `len` things into runs of at most `most`.
fn chunks(len: u32, most: u32) -> impl Iterator<Item = Range<u32>> {
    assert!(most > 0, "chunks of nothing");
    (0..len.div_ceil(most)).map(move |index| {
        let start = index * most;
        start..len.min(start.saturating_add(most))
    })
}

/// The elements of `rows` of a matrix of rows of `width`.
fn of_rows(rows: &Range<u32>, width: u32) -> Range<u32> {
    rows.start * width..rows.end * width
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_everything_once() {
        for (len, most) in [(0, 3), (1, 3), (3, 3), (7, 3), (9, 3), (u32::MAX, 1 << 31)] {
            let all: Vec<Range<u32>> = chunks(len, most).collect();
            let mut end = 0;
            for chunk in &all {
                assert_eq!(chunk.start, end);
                assert!(chunk.len() as u32 <= most && !chunk.is_empty());
                end = chunk.end;
            }
            assert_eq!(end, len);
        }
    }
}
