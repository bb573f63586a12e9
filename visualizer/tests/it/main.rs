//! Tests of the whole window, without a display: drawn by software, driven by pointer and keys.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod window;

mod actions;
mod audit;
mod composition;
mod explanations;
mod live;
mod panels;
mod pause;
mod trouble;
