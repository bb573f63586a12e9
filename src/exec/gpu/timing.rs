//! Timestamps of instructions: each gets a compute pass of its own, whose start and end the adapter
//! writes down.
//!
//! Only made when timing is asked for: every stamp costs the adapter a flush.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::memory::buffer;
use crate::exec::device::Batch;
use crate::mesh::Rank;
use crate::units::Nanos;

/// Instructions of a query set; wgpu allows 4096 queries in one.
const STAMPED: u32 = 2048;
/// Batches whose times are kept for a caller that does not ask.
const KEPT_BATCHES: usize = 64;
/// Bytes of a timestamp.
const STAMP_BYTES: u64 = 8;

/// The timestamps of a device.
#[derive(Debug)]
pub(super) struct Timer {
    device: wgpu::Device,
    nanos_per_tick: f64,
    free: Vec<Stamps>,
    /// Of the batch that is being encoded.
    open: Vec<Stamps>,
    submitted: BTreeMap<Batch, Vec<Stamps>>,
}

/// A query set with the memory that its times go through.
#[derive(Debug)]
struct Stamps {
    set: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    read: wgpu::Buffer,
    /// Whose times they are.
    instrs: Vec<(Rank, usize)>,
    /// How many of them are on their way already.
    resolved_count: usize,
    mapped: Arc<AtomicBool>,
}

impl Timer {
    pub(super) fn new(device: &wgpu::Device, queue: &wgpu::Queue) -> Self {
        Self {
            device: device.clone(),
            nanos_per_tick: f64::from(queue.get_timestamp_period()),
            free: Vec::new(),
            open: Vec::new(),
            submitted: BTreeMap::new(),
        }
    }

    /// Where the pass of the next instruction writes its times.
    pub(super) fn next(
        &mut self,
        rank: Rank,
        instr: usize,
    ) -> wgpu::ComputePassTimestampWrites<'_> {
        if self.open.last().is_none_or(|stamps| stamps.instrs.len() as u32 == STAMPED) {
            let stamps = self.free.pop().unwrap_or_else(|| self.create());
            self.open.push(stamps);
        }
        let stamps = self.open.last_mut().expect("pushed above");
        let index = 2 * stamps.instrs.len() as u32;
        stamps.instrs.push((rank, instr));
        wgpu::ComputePassTimestampWrites {
            query_set: &stamps.set,
            beginning_of_pass_write_index: Some(index),
            end_of_pass_write_index: Some(index + 1),
        }
    }

    fn create(&self) -> Stamps {
        let bytes = u64::from(2 * STAMPED) * STAMP_BYTES;
        let resolved = wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC;
        let read = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        Stamps {
            set: self.device.create_query_set(&wgpu::QuerySetDescriptor {
                label: Some("times of instructions"),
                ty: wgpu::QueryType::Timestamp,
                count: 2 * STAMPED,
            }),
            resolved: buffer(&self.device, "times", bytes, resolved),
            read: buffer(&self.device, "times read", bytes, read),
            instrs: Vec::new(),
            resolved_count: 0,
            mapped: Arc::default(),
        }
    }

    /// Encodes the way of the times to memory that the host can read.
    pub(super) fn before_submit(&mut self, encoder: &mut wgpu::CommandEncoder) {
        for stamps in &mut self.open {
            if stamps.resolved_count == stamps.instrs.len() {
                continue;
            }
            // From the start, because the place of a resolve is aligned more coarsely than a stamp.
            let count = 2 * stamps.instrs.len() as u32;
            encoder.resolve_query_set(&stamps.set, 0..count, &stamps.resolved, 0);
            let bytes = u64::from(count) * STAMP_BYTES;
            encoder.copy_buffer_to_buffer(&stamps.resolved, 0, &stamps.read, 0, bytes);
            stamps.resolved_count = stamps.instrs.len();
        }
    }

    pub(super) fn after_submit(&mut self, batch: Batch) {
        let open = std::mem::take(&mut self.open);
        if open.is_empty() {
            return;
        }
        for stamps in &open {
            let mapped = Arc::clone(&stamps.mapped);
            stamps.read.map_async(wgpu::MapMode::Read, .., move |result| {
                mapped.store(result.is_ok(), Ordering::Release);
            });
        }
        self.submitted.insert(batch, open);
        if self.submitted.len() > KEPT_BATCHES {
            // A batch so old has ended; if its times never arrived, its memory is let go.
            let (oldest, _) = self.submitted.first_key_value().expect("more than one");
            self.times(*oldest);
        }
    }

    /// The times of a batch that has ended, in the order of encoding.
    pub(super) fn times(&mut self, batch: Batch) -> Vec<(Rank, usize, Nanos, Nanos)> {
        let mut times = Vec::new();
        for mut stamps in self.submitted.remove(&batch).unwrap_or_default() {
            if !stamps.mapped.swap(false, Ordering::AcqRel) {
                continue;
            }
            let bytes = 2 * stamps.instrs.len() as u64 * STAMP_BYTES;
            if let Ok(view) = stamps.read.get_mapped_range(..bytes) {
                let (ticks, _) = view.as_chunks::<{ STAMP_BYTES as usize }>();
                let nanos = |tick: &[u8; 8]| {
                    Nanos((u64::from_le_bytes(*tick) as f64 * self.nanos_per_tick) as u64)
                };
                for (&(rank, instr), pair) in stamps.instrs.iter().zip(ticks.chunks_exact(2)) {
                    let start = nanos(&pair[0]);
                    times.push((rank, instr, start, nanos(&pair[1]).max(start)));
                }
            }
            stamps.read.unmap();
            stamps.instrs.clear();
            stamps.resolved_count = 0;
            self.free.push(stamps);
        }
        times
    }
}
