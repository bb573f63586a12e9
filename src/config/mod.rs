//! What is wanted: model, parallel layout, training, devices; read from TOML scenarios and flags.
//!
//! Plain data with checks of its own values. Whether a layout can run is the planner's question.

pub mod cluster;
pub mod hugging_face;
pub mod layout;
pub mod model;
pub mod scenario;
pub mod schedule;
pub mod transformer;
pub mod training;
pub mod workload;
mod error;
mod folder;

pub use cluster::Cluster;
pub use error::ConfigError;
pub use folder::user_folder;
pub use layout::{CollectiveChoice, Layout, Recompute, ZeroStage};
pub use model::{Model, ModelSource};
pub use scenario::{Data, Scenario};
pub use schedule::ScheduleName;
pub use training::{OptimizerKind, Training};
pub use workload::{Split, Workload};
