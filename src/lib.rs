//! Shardlab trains a transformer split over many ranks, for real, and shows every instruction,
//! byte and idle moment of the step.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod units;
pub mod random;
pub mod shape;
pub mod mesh;
pub mod config;
pub mod ops;
pub mod plan;
pub mod trace;
pub mod planner;
pub mod formulas;
pub mod ledger;
pub mod sim;
pub mod predict;
pub mod search;
pub mod exec;
pub mod train;
pub mod cli;
pub mod data;
pub mod checkpoint;
