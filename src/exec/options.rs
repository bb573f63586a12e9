//! How an executor runs, and faults on purpose that cost time and never change a bit.

use std::collections::BTreeMap;
use std::time::Duration;

use super::progress::Watcher;
use crate::mesh::Rank;
use crate::sim::Links;
use crate::units::{Bytes, Nanos};

/// How an executor runs.
#[derive(Clone, Debug, Default)]
pub struct ExecOptions {
    /// Workers of the host pool; `None`: as many as cores. The bits of a result never depend on it.
    pub threads: Option<usize>,
    /// What one rank may place.
    pub memory_cap: Option<Bytes>,
    /// Faults on purpose.
    pub delays: Delays,
    /// How long a batch of a device may take; `None`: five minutes.
    pub time_limit: Option<Duration>,
    /// How instructions of devices are timed.
    pub timing: Timing,
    /// Told what is prepared before the first step.
    pub watcher: Watcher,
}

/// Cores that this process may use; 1 where the system does not tell. The host pool has as many
/// workers unless [`ExecOptions::threads`] says otherwise.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// How instructions of devices are timed. Those of the host pool are always timed one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timing {
    /// By the device's own timestamps; without them, a batch's time is shared out by flops + bytes.
    #[default]
    Batched,
    /// Each instruction is submitted and awaited alone: true times on any adapter, a slower step.
    Fenced,
}

/// Slow ranks and slow links.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Delays {
    /// Ranks whose kernels take longer.
    pub ranks: BTreeMap<Rank, RankDelay>,
    /// What each message costs more, by (from, to).
    pub links: BTreeMap<(Rank, Rank), Links>,
}

/// How much longer the kernels of a rank take: `time · factor + extra`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankDelay {
    /// At least 1.
    pub factor: f64,
    /// Added to each.
    pub extra: Nanos,
}

impl Default for RankDelay {
    fn default() -> Self {
        Self { factor: 1.0, extra: Nanos(0) }
    }
}
