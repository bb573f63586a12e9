//! The command `shardlab`.

use std::process::ExitCode;

fn main() -> ExitCode {
    shardlab::cli::run()
}
