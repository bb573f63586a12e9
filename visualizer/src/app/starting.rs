//! How long the preparation of a run takes: a clock beside the progress, so that a driver that compiles
//! for half a minute does not look like a window that hangs.

use std::mem::{Discriminant, discriminant};
use std::time::Duration;

use shardlab::exec::Progress;

use crate::run::State;

/// How soon the clock shows another second.
pub(super) const TICK: Duration = Duration::from_secs(1);

/// What is being prepared, and since when.
#[derive(Debug, Default)]
pub(super) struct Starting {
    phase: Option<(Discriminant<Progress>, f64)>,
    seconds: Option<u64>,
}

impl Starting {
    /// Takes over how the run stands now.
    pub(super) fn follow(&mut self, state: &State, now: f64) {
        let State::Starting(progress) = state else {
            *self = Self::default();
            return;
        };
        let phase = discriminant(progress);
        let since = self.phase.filter(|(known, _)| *known == phase).map_or(now, |(_, at)| at);
        self.phase = Some((phase, since));
        self.seconds = Some((now - since).max(0.0) as u64);
    }

    /// Whole seconds that are spent on what is being prepared; `None` where nothing is.
    pub(super) fn seconds(&self) -> Option<u64> {
        self.seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_phase_is_timed_from_its_own_beginning() {
        let compiling =
            |done| State::Starting(Progress::Compiling { device: "X".into(), done, of: 9 });
        let mut starting = Starting::default();
        let mut after = |state: &State, now| {
            starting.follow(state, now);
            starting.seconds()
        };
        assert_eq!(after(&State::Starting(Progress::OpeningDevices), 10.0), Some(0));
        assert_eq!(after(&State::Starting(Progress::OpeningDevices), 13.9), Some(3));
        assert_eq!(after(&compiling(0), 14.0), Some(0));
        assert_eq!(after(&compiling(7), 26.5), Some(12));
        assert_eq!(after(&State::Training, 27.0), None);
        assert_eq!(after(&compiling(0), 90.0), Some(0));
    }
}
