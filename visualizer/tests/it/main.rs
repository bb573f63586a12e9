//! Tests of the whole window, without a display: drawn by software, driven by pointer and keys.

mod window;

mod actions;
mod audit;
mod composition;
mod explanations;
mod live;
mod pause;
