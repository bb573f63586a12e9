//! Standard output and error, files of results, and Ctrl-C.
//!
//! A reader that has gone away (`shardlab … | head`) is no failure: the rest is not printed.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

use super::Failure;
use super::text::{Colour, Terminal};

/// Columns where no terminal says how many it has.
const COLUMNS: usize = 100;

/// What standard output shows: colours only where it is a terminal that wants them.
pub(super) fn terminal() -> Terminal {
    let variable = |name| std::env::var(name).unwrap_or_default();
    let wants =
        io::stdout().is_terminal() && variable("TERM") != "dumb" && variable("NO_COLOR").is_empty();
    let size = terminal_size::terminal_size();
    let (width, height) =
        size.map_or((COLUMNS, 24), |(width, height)| (width.0.into(), height.0.into()));
    let colour = if wants { Colour::On } else { Colour::Off };
    Terminal { width: width.max(40), height, charset: super::progress::charset(), colour }
}

/// Prints data.
///
/// # Errors
/// If standard output cannot be written, unless its reader has gone away.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    print_bytes(text.as_bytes())
}

/// Prints data that are no text.
///
/// # Errors
/// As [`print()`].
pub(super) fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::Output {
            path: "standard output".into(),
            source: error,
            remedy: "Make room or send it elsewhere",
        }),
        _ => Ok(()),
    }
}

/// Prints one JSON object.
///
/// # Errors
/// As [`print()`].
///
/// # Panics
/// Never: reports are made of numbers, words and lists.
pub(super) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).expect("a report is always JSON");
    print(&(text + "\n"))
}

/// Prints a line of progress. There is nobody to tell if that fails.
pub(super) fn progress(line: impl Display) {
    writeln!(io::stderr().lock(), "{line}").ok();
}

/// Says that a file was written.
pub(super) fn wrote(path: &Path) {
    progress(format_args!("wrote {}", path.display()));
}

/// Prints what went wrong, one fault a line.
pub(super) fn error(failure: &Failure) {
    for line in failure.to_string().lines() {
        progress(format_args!("error: {line}"));
    }
}

/// A file of results.
#[derive(Debug)]
pub(super) struct OutputFile {
    path: PathBuf,
    writer: BufWriter<File>,
}

impl OutputFile {
    pub(super) const REMEDY: &'static str =
        "Choose a file in a folder that exists and can be written";

    /// Creates the file, or empties it.
    ///
    /// # Errors
    /// If the system refuses.
    pub(super) fn create(path: &Path) -> Result<Self, Failure> {
        Self::opened(path, File::create(path))
    }

    /// Goes on at the end of the file.
    ///
    /// # Errors
    /// If the system refuses.
    pub(super) fn append(path: &Path) -> Result<Self, Failure> {
        Self::opened(path, File::options().create(true).append(true).open(path))
    }

    fn opened(path: &Path, file: io::Result<File>) -> Result<Self, Failure> {
        let path = path.to_owned();
        match file {
            Ok(file) => Ok(Self { path, writer: BufWriter::new(file) }),
            Err(source) => Err(Failure::Destination { path, source, remedy: Self::REMEDY }),
        }
    }

    /// Writes text.
    ///
    /// # Errors
    /// If the system refuses.
    pub(super) fn write(&mut self, text: &str) -> Result<(), Failure> {
        let written = self.writer.write_all(text.as_bytes());
        self.ended(written)
    }

    fn ended(&mut self, written: io::Result<()>) -> Result<(), Failure> {
        written.and_then(|()| self.writer.flush()).map_err(|source| Failure::Output {
            path: self.path.clone(),
            source,
            remedy: Self::REMEDY,
        })
    }

    /// Writes a value as one line of JSON, whole: a reader may follow the file.
    ///
    /// # Errors
    /// If the system refuses.
    pub(super) fn write_line(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let line = serde_json::to_writer(&mut self.writer, value).map_err(io::Error::from);
        let written = line.and_then(|()| self.writer.write_all(b"\n"));
        self.ended(written)
    }
}

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// From now on Ctrl-C is noted and not deadly; the second one is.
pub(super) fn listen_for_interrupts() {
    let note = || {
        if INTERRUPTED.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    };
    // Where there is no way to listen, Ctrl-C ends the process at once.
    ctrlc::set_handler(note).ok();
}

/// Whether Ctrl-C was pressed.
pub(super) fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}
