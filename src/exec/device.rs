//! What an accelerator must do to run ranks: the interface between the interpreter and `gpu`.
//!
//! A device runs what is encoded in the order in which it was encoded, as a queue does. The
//! interpreter encodes an instruction when all that it depends on has ended or was encoded on the
//! same device before.

use std::fmt;

use super::ExecError;
use crate::mesh::Rank;
use crate::plan::{Plan, View};
use crate::units::{Bytes, Nanos};

/// What kind of device runs a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeviceKind {
    /// The host's own cores, plain Rust.
    Host,
    /// A GPU with memory of its own.
    Discrete,
    /// A GPU that shares memory with the host.
    Integrated,
    /// A software adapter.
    Software,
}

/// What is known of a device before it runs anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Name for people.
    pub name: String,
    /// Kind.
    pub kind: DeviceKind,
    /// API: `Vulkan`, `Metal`, `Dx12`; `CPU` for the host.
    pub api: String,
    /// Driver and version.
    pub driver: String,
}

/// A finished-or-not batch of encoded work, ascending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Batch(pub u64);

/// Data on its way from the device to the host, made by [`Device::encode_download`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Download(pub usize);

/// An accelerator that runs the instructions of one or more ranks in the order of encoding.
///
/// Plans are loaded once and numbered by the caller; persistent arenas are shared between the
/// Plans of a device.
pub trait Device: Send + fmt::Debug {
    /// What it is.
    fn info(&self) -> &DeviceInfo;

    /// Allocates the arenas of `ranks`, compiles kernels and prepares all that a step needs.
    ///
    /// # Errors
    /// If memory or a limit of the device does not suffice.
    fn load(&mut self, plan_index: usize, plan: &Plan, ranks: &[Rank]) -> Result<(), ExecError>;

    /// Encodes a Launch or Copy.
    ///
    /// # Errors
    /// If the device fails.
    fn encode(&mut self, plan_index: usize, rank: Rank, instr: usize) -> Result<(), ExecError>;

    /// Encodes a message between two ranks of this device as one copy.
    ///
    /// # Errors
    /// If the device fails.
    fn encode_message(
        &mut self,
        plan_index: usize,
        from: (Rank, View),
        to: (Rank, View),
    ) -> Result<(), ExecError>;

    /// Encodes a copy of a view into staging memory that [`Device::finish_download`] reads.
    ///
    /// # Errors
    /// If the device fails.
    fn encode_download(
        &mut self,
        plan_index: usize,
        rank: Rank,
        view: View,
    ) -> Result<Download, ExecError>;

    /// Writes bytes from the host into a view, ordered after all that was encoded before.
    ///
    /// # Errors
    /// If the device fails.
    fn encode_upload(
        &mut self,
        plan_index: usize,
        rank: Rank,
        view: View,
        bytes: &[u8],
    ) -> Result<(), ExecError>;

    /// Starts all that was encoded since the last submit.
    ///
    /// # Errors
    /// If the device fails.
    fn submit(&mut self) -> Result<Batch, ExecError>;

    /// Whether a batch has ended; never blocks.
    ///
    /// # Errors
    /// If the device was lost.
    fn is_done(&mut self, batch: Batch) -> Result<bool, ExecError>;

    /// Blocks until a batch has ended.
    ///
    /// # Errors
    /// If the device was lost or does not answer in time.
    fn wait(&mut self, batch: Batch) -> Result<(), ExecError>;

    /// Copies a download whose batch has ended into `into`, and frees its staging memory.
    ///
    /// # Errors
    /// If the device was lost.
    fn finish_download(&mut self, download: Download, into: &mut [u8]) -> Result<(), ExecError>;

    /// Durations of the instructions of an ended batch, in the order of encoding, as
    /// (rank, instruction, start, end) from any fixed origin; empty where the adapter has no
    /// timestamps.
    fn timings(&mut self, batch: Batch) -> Vec<(Rank, usize, Nanos, Nanos)>;

    /// Reads a view; blocks.
    ///
    /// # Errors
    /// If the device was lost.
    fn read(&mut self, plan_index: usize, rank: Rank, view: View) -> Result<Vec<u8>, ExecError>;

    /// Writes a view; blocks.
    ///
    /// # Errors
    /// If the device was lost.
    fn write(
        &mut self,
        plan_index: usize,
        rank: Rank,
        view: View,
        bytes: &[u8],
    ) -> Result<(), ExecError>;

    /// Bytes allocated for a rank's arenas.
    fn allocated(&self, rank: Rank) -> Bytes;
}
