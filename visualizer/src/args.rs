//! The command line of the app, and how a run is asked for.

use std::path::PathBuf;

use clap::Parser;
use shardlab::config::{ConfigError, Scenario};
use shardlab::train::DeviceRequest;

use crate::style::Scheme;

/// Watch a transformer train, split over many ranks.
///
/// Opens a window that trains the quickstart, or the scenario of a file, and shows every block of
/// work, every wait and every byte of the real step.
#[derive(Clone, Debug, Default, Parser)]
#[command(name = "shardlab-visualizer", version, about)]
pub struct Args {
    /// A scenario file (TOML); without it the last one, or the quickstart.
    pub scenario: Option<PathBuf>,
    /// What runs the ranks: auto, cpu, gpu, a name, an index, or a list of these.
    #[arg(long, default_value = "auto")]
    pub device: DeviceRequest,
    /// Colours of the window; those of the system if absent.
    #[arg(long, value_enum)]
    pub theme: Option<Theme>,
    /// Large text for a room.
    #[arg(long)]
    pub projector: bool,
    /// Neither reads nor writes what was open last.
    #[arg(long)]
    pub fresh: bool,
}

/// Colours by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Theme {
    /// Dark on light.
    Light,
    /// Light on dark.
    Dark,
}

impl From<Theme> for Scheme {
    fn from(theme: Theme) -> Self {
        match theme {
            Theme::Light => Self::Light,
            Theme::Dark => Self::Dark,
        }
    }
}

impl Args {
    /// The scenario that is asked for by name, if any.
    ///
    /// # Errors
    /// If the file cannot be read or is no scenario.
    pub fn scenario(&self) -> Result<Option<Scenario>, ConfigError> {
        self.scenario.as_deref().map(Scenario::read).transpose()
    }
}
