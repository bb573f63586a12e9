//! Why a command could not do what it was asked for, and the exit code that says so.

use std::path::PathBuf;

use crate::config::ConfigError;
use crate::exec::ExecError;
use crate::planner::PlanError;
use crate::predict::here::{CalibrationError, HereError};
use crate::train::TrainError;

/// Why a command ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// A device could not be opened or tested.
    #[error(transparent)]
    Start(ExecError),
    /// Training could not start or go on.
    #[error(transparent)]
    Train(Box<TrainError>),
    /// There is no measured machine to predict a step of.
    #[error(transparent)]
    Calibration(#[from] CalibrationError),
    /// A step cannot be predicted.
    #[error(transparent)]
    Predict(#[from] HereError),
    /// Numbers that must agree do not.
    #[error("{what}: {why}. {remedy}")]
    Check {
        /// Which numbers.
        what: String,
        /// How they differ.
        why: String,
        /// What to do.
        remedy: String,
    },
    /// A file for results cannot be opened; nothing has run.
    #[error("{}: cannot be written ({source}). {remedy}", path.display())]
    Destination {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// A result cannot be written.
    #[error("{}: cannot be written ({source}). {remedy}", path.display())]
    Output {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
        /// What to do.
        remedy: &'static str,
    },
}

impl From<TrainError> for Failure {
    fn from(error: TrainError) -> Self {
        Self::Train(Box::new(error))
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        TrainError::from(error).into()
    }
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Self {
        TrainError::from(error).into()
    }
}

impl Failure {
    /// A failure while a session starts: a device that fails then is no suitable one.
    pub fn at_start(error: TrainError) -> Self {
        match error {
            TrainError::Exec(device @ ExecError::Device { .. }) => Self::Start(device),
            other => other.into(),
        }
    }

    /// The exit code of the process.
    pub fn code(&self) -> u8 {
        match self {
            Self::Start(_) => 3,
            Self::Train(error) => match **error {
                // What was asked for cannot run, before anything runs.
                TrainError::Config(_)
                | TrainError::Plan(_)
                | TrainError::Data(_)
                | TrainError::Checkpoint(_)
                | TrainError::Memory { .. }
                | TrainError::Exec(ExecError::Memory { .. } | ExecError::Input { .. }) => 2,
                TrainError::Devices { .. } => 3,
                TrainError::NotFinite { .. } => 4,
                TrainError::Exec(_) => 1,
            },
            Self::Destination { .. } | Self::Calibration(_) | Self::Predict(_) => 2,
            Self::Check { .. } | Self::Output { .. } => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_fails_at_the_start_is_no_suitable_one_and_later_a_failed_run() {
        let broken = || {
            TrainError::Exec(ExecError::Device {
                device: "GPU".into(),
                why: "its self test failed".into(),
                remedy: "Update the driver".into(),
            })
        };
        assert_eq!(Failure::at_start(broken()).code(), 3);
        assert_eq!(Failure::from(broken()).code(), 1);
    }
}
