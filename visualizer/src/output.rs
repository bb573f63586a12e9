//! What the command line of the app prints. A reader that has gone away (`shardlab-visualizer … |
//! head`) is no failure: the rest is not printed.

use std::fmt::Display;
use std::io::{self, Write as _};

/// Why standard output cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("standard output: cannot be written ({0}). Make room or send it elsewhere")]
pub struct Unwritten(io::Error);

/// Prints a line of data.
///
/// # Errors
/// If standard output cannot be written, unless its reader has gone away.
pub fn print(line: impl Display) -> Result<(), Unwritten> {
    let mut stdout = io::stdout().lock();
    match writeln!(stdout, "{line}").and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Unwritten(error)),
        _ => Ok(()),
    }
}

/// Prints a line of progress. There is nobody to tell if that fails.
pub fn progress(line: impl Display) {
    writeln!(io::stderr().lock(), "{line}").ok();
}

/// Prints what went wrong, one fault a line.
pub fn error(why: &str) {
    why.lines().for_each(|line| progress(format_args!("error: {line}")));
}
