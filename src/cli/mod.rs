//! The command: how it reads its arguments, what it prints, and with which code it exits.
//!
//! One file a command: [`quickstart`], [`train`], [`plan`], [`simulate`], [`search`], [`verify`], [`trace`],
//! [`doctor`] with `calibrated`, [`mod@bench`], [`mod@generate`]. [`args`] is what can be typed, [`settings`]
//! what it means, [`report`] the numbers of a run, [`clocks`] those of its time. [`live`] draws the
//! running schedule, [`screen`] redraws it in place, [`summary`] tells how a run went: pure functions
//! from facts to [`text`]. Data go to stdout, progress and errors to stderr; nothing else in the
//! library prints.

pub mod args;
pub mod settings;
pub mod quickstart;
pub mod train;
pub mod plan;
pub mod verify;
pub mod trace;
pub mod simulate;
pub mod search;
pub mod doctor;
pub mod bench;
pub mod generate;
mod calibrated;
pub mod report;
pub mod clocks;
pub mod facts;
pub mod live;
pub mod screen;
pub mod summary;
pub mod text;
mod failure;
mod output;
mod picture;
mod progress;
mod run;
mod timetable;

pub use failure::Failure;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use args::{Cli, Command};

/// How a command ended that could say all it had to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All is well.
    Success,
    /// A check failed.
    CheckFailed,
    /// A number was not finite.
    NotFinite,
    /// Ctrl-C; what was done until then is written.
    Interrupted,
}

impl Outcome {
    /// The exit code of the process.
    pub const fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::CheckFailed => 1,
            Self::NotFinite => 4,
            Self::Interrupted => 130,
        }
    }
}

/// Runs the command line of this process.
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    match dispatch(&cli) {
        Ok(outcome) => ExitCode::from(outcome.code()),
        Err(failure) => {
            output::error(&failure);
            ExitCode::from(failure.code())
        }
    }
}

fn dispatch(cli: &Cli) -> Result<Outcome, Failure> {
    match &cli.command {
        None => quickstart::run(cli.json),
        Some(Command::Train(args)) => train::run(args),
        Some(Command::Plan(args)) => plan::run(args),
        Some(Command::Verify(args)) => verify::run(args),
        Some(Command::Trace(command)) => trace::run(command),
        Some(Command::Simulate(args)) => simulate::run(args),
        Some(Command::Search(args)) => search::run(args),
        Some(Command::Doctor(args)) => doctor::run(args),
        Some(Command::Bench(args)) => bench::run(args),
        Some(Command::Generate(args)) => generate::run(args),
        Some(Command::Completions { shell }) => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "shardlab", &mut script);
            output::print_bytes(&script)?;
            Ok(Outcome::Success)
        }
    }
}
