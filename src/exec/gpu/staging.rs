//! Staging memory between the host and a device: buffers that are mapped, used and mapped again.
//!
//! Nothing grows over steps: a buffer that has come back serves the next transfer that fits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use super::fault::Fault;
use crate::exec::ExecError;

/// Larger transfers are cut where the caller may wait in between.
pub(super) const CHUNK_BYTES: u64 = 4 << 20;

/// Which way the data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// Device to host.
    Download,
    /// Host to device.
    Upload,
}

/// The staging buffers of one direction.
#[derive(Debug)]
pub(super) struct Ring {
    direction: Direction,
    slots: Vec<Slot>,
}

/// One staging buffer.
#[derive(Debug)]
struct Slot {
    buffer: wgpu::Buffer,
    /// Bytes of the transfer.
    len: u64,
    state: State,
    mapping: Arc<AtomicU8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Serves the next transfer.
    Free,
    /// Named by commands that were not submitted yet.
    Encoded,
    /// Named by commands on their way; being mapped after them.
    Submitted,
}

// Values of `Slot::mapping`.
const PENDING: u8 = 0;
const MAPPED: u8 = 1;
const FAILED: u8 = 2;

impl Ring {
    pub(super) fn new(direction: Direction) -> Self {
        Self { direction, slots: Vec::new() }
    }

    /// Total size: stays the same from the second equal step on.
    pub(super) fn bytes(&self) -> u64 {
        self.slots.iter().map(|slot| slot.buffer.size()).sum()
    }

    /// Takes the smallest free buffer for a transfer of `len` bytes, or makes one.
    pub(super) fn take(&mut self, device: &wgpu::Device, len: u64) -> usize {
        self.reclaim();
        let fits = |&index: &usize| {
            let slot = &self.slots[index];
            slot.state == State::Free && len <= slot.buffer.size()
        };
        let found = (0..self.slots.len()).filter(fits);
        let index =
            found.min_by_key(|&index| self.slots[index].buffer.size()).unwrap_or_else(|| {
                let slot = self.create(device, len);
                self.slots.push(slot);
                self.slots.len() - 1
            });
        let slot = &mut self.slots[index];
        (slot.state, slot.len) = (State::Encoded, len);
        index
    }

    fn create(&self, device: &wgpu::Device, len: u64) -> Slot {
        // Powers of two, so that transfers of similar sizes share; large ones waste less.
        let size = if len < CHUNK_BYTES {
            len.next_power_of_two().max(4096)
        } else {
            len.next_multiple_of(CHUNK_BYTES)
        };
        let (label, usage, mapped) = match self.direction {
            Direction::Download => {
                ("download", wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST, false)
            }
            Direction::Upload => {
                ("upload", wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC, true)
            }
        };
        let buffer = device.create_buffer(&wgpu::BufferDescriptor {
            label: Some(label),
            size,
            usage,
            mapped_at_creation: mapped,
        });
        Slot { buffer, len, state: State::Free, mapping: Arc::new(AtomicU8::new(PENDING)) }
    }

    pub(super) fn buffer(&self, index: usize) -> &wgpu::Buffer {
        &self.slots[index].buffer
    }

    /// Uploads whose buffers are mapped again are free.
    fn reclaim(&mut self) {
        if self.direction == Direction::Upload {
            for slot in self.slots.iter_mut().filter(|slot| slot.state == State::Submitted) {
                if slot.mapping.load(Ordering::Acquire) == MAPPED {
                    slot.state = State::Free;
                }
            }
        }
    }

    /// Writes the bytes of an upload.
    pub(super) fn fill(&self, index: usize, bytes: &[u8], fault: &Fault) -> Result<(), ExecError> {
        let range = self.slots[index].buffer.get_mapped_range_mut(..bytes.len() as u64);
        let mut view =
            range.map_err(|error| fault.failed(format!("no staging memory: {error}")))?;
        view.copy_from_slice(bytes);
        Ok(())
    }

    /// Uploads must be unmapped before their commands are submitted.
    pub(super) fn before_submit(&self) {
        if self.direction == Direction::Upload {
            let encoded = self.slots.iter().filter(|slot| slot.state == State::Encoded);
            encoded.for_each(|slot| slot.buffer.unmap());
        }
    }

    /// Asks for the buffers to be mapped once the commands that name them have ended.
    pub(super) fn after_submit(&mut self) {
        let mode = match self.direction {
            Direction::Download => wgpu::MapMode::Read,
            Direction::Upload => wgpu::MapMode::Write,
        };
        for slot in self.slots.iter_mut().filter(|slot| slot.state == State::Encoded) {
            slot.state = State::Submitted;
            slot.mapping.store(PENDING, Ordering::Release);
            let mapping = Arc::clone(&slot.mapping);
            slot.buffer.map_async(mode, .., move |result| {
                mapping.store(if result.is_ok() { MAPPED } else { FAILED }, Ordering::Release);
            });
        }
    }

    /// Whether a download has arrived.
    ///
    /// # Errors
    /// If it never will.
    pub(super) fn has_arrived(&self, index: usize, fault: &Fault) -> Result<bool, ExecError> {
        let slot = &self.slots[index];
        assert_eq!(slot.state, State::Submitted, "a download is read once, after its submit");
        match slot.mapping.load(Ordering::Acquire) {
            FAILED => Err(fault.failed("a download could not be mapped")),
            state => Ok(state == MAPPED),
        }
    }

    /// Copies a download that has arrived and frees its buffer.
    pub(super) fn read(
        &mut self,
        index: usize,
        into: &mut [u8],
        fault: &Fault,
    ) -> Result<(), ExecError> {
        let slot = &mut self.slots[index];
        assert_eq!(slot.len, into.len() as u64, "a download is read whole");
        // wgpu gives no empty ranges.
        if !into.is_empty() {
            let range = slot.buffer.get_mapped_range(..slot.len);
            let view =
                range.map_err(|error| fault.failed(format!("no staging memory: {error}")))?;
            into.copy_from_slice(&view);
        }
        slot.buffer.unmap();
        slot.state = State::Free;
        Ok(())
    }
}
