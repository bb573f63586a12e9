//! Every kernel of every adapter against its host twin.
//!
//! One device of the first suitable adapter serves all tests, so that each kernel is compiled once.
//! Without an adapter the tests print one line and pass; with `REQUIRE_GPU=1` they fail.
#![cfg(feature = "gpu")]
#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "helpers of tests")]

mod bench;
mod device;
mod limits;
mod ops;
mod training;
