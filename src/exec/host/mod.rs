//! The host backend: ranks on the machine's own cores, in plain Rust, the definition of right.
//!
//! [`memory`] holds the only unsafe code, [`arenas`] what is allocated for each rank,
//! [`ready`] the lock-free set of what may
//! start, [`pool`] what the workers share, [`worker`] the loop that each of them runs.

pub(super) mod memory;
pub(super) mod arenas;
pub(super) mod ready;
pub(super) mod pool;
pub(super) mod worker;
