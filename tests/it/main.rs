//! Integration tests: each module opens with its goal and its method.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod captured;
mod clocks;
mod exports;
mod cases;
mod equivalence;
mod formulas;
mod golden;
#[cfg(feature = "gpu")]
mod gpu;
mod influence;
mod interpreter;
mod layouts;
mod limits;
mod machine;
mod mutations;
mod picture;
mod promises;
mod published;
mod property;
mod refusals;
mod tidy;
