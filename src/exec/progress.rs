//! How far the start of a run has come, told to whoever wants to show it.

use std::fmt;
use std::sync::Arc;

/// What is being prepared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The step is planned.
    Planning,
    /// Devices are looked for, opened and tested.
    OpeningDevices,
    /// A device compiles its kernels.
    Compiling {
        /// Name of the device.
        device: String,
        /// Kernels that are compiled.
        done: usize,
        /// Kernels that the Plan needs and the device did not have.
        of: usize,
    },
    /// Memory is allocated and the weights are written.
    Loading,
}

impl Progress {
    /// The part that is done, from 0 to 1; `None` where it cannot be known.
    pub fn fraction(&self) -> Option<f32> {
        match self {
            Self::Compiling { done, of, .. } if *of > 0 => Some(*done as f32 / *of as f32),
            Self::Planning | Self::OpeningDevices | Self::Compiling { .. } | Self::Loading => None,
        }
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Planning => f.write_str("Planning the step"),
            Self::OpeningDevices => f.write_str("Opening devices"),
            Self::Compiling { device, done, of } => {
                write!(f, "Compiling shaders for {device}, once for this driver: {done} of {of}")
            }
            Self::Loading => f.write_str("Writing the weights"),
        }
    }
}

/// Who is told of progress; nobody by default.
#[derive(Clone, Default)]
pub struct Watcher(Option<Arc<dyn Fn(Progress) + Send + Sync>>);

impl Watcher {
    /// Calls `told` with everything that is prepared.
    pub fn new(told: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(told)))
    }

    /// Tells it.
    pub fn tell(&self, progress: Progress) {
        if let Some(told) = &self.0 {
            told(progress);
        }
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Watcher" } else { "Watcher(nobody)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_counted_has_a_fraction() {
        let compiling = |done, of| Progress::Compiling { device: "X".into(), done, of };
        assert_eq!(compiling(9, 36).fraction(), Some(0.25));
        assert_eq!(compiling(0, 0).fraction(), None);
        assert_eq!(Progress::Planning.fraction(), None);
        let text = compiling(9, 36).to_string();
        assert_eq!(text, "Compiling shaders for X, once for this driver: 9 of 36");
    }
}
