//! The wgpu backend: runs the instructions of ranks on an adapter.
//!
//! [`adapters()`] lists what there is, [`GpuDevice::open`] tests one and takes it. When a Plan is
//! loaded, `lower` turns its ops into dispatches of the kernels in `shaders/`, `memory` makes the
//! arenas and `loaded` binds one to the other; a step then only encodes what is ready. wgpu is
//! named in this room alone.

mod adapters;
mod device;
mod fault;
pub mod kernels;
mod loaded;
mod lower;
mod memory;
mod open;
mod params;
mod pipelines;
mod recording;
mod self_test;
mod staging;
mod timing;

pub use adapters::{Adapter, AdapterLimits, adapters};
pub use device::GpuDevice;
pub use lower::KernelFamily;
pub use open::GpuOptions;
pub use params::Field;
pub use self_test::{Check, SelfTest, Verdict};
