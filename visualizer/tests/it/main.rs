//! Tests of the whole window, without a display: drawn by software, driven by pointer and keys.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod pixels;
mod window;

mod actions;
mod audit;
mod badges;
mod clicks;
mod command;
mod compare;
mod composition;
mod explanations;
mod exports;
mod faults;
mod here;
mod jitter;
mod keeping;
mod keys;
mod live;
mod news;
mod panels;
mod pause;
mod pictures;
mod plan;
mod reports;
mod schedules;
mod software;
mod splits;
mod starting;
mod transport;
mod trouble;
