//! How often a frame is due: never while nothing moves, else as often as the machine can spare.

use std::time::Duration;

/// Most frames a second, on a GPU and on an adapter that runs on the cores.
const MOST: f32 = 60.0;
const MOST_SOFTWARE: f32 = 30.0;
/// Fewest frames a second while something moves.
const LEAST: f32 = 10.0;
/// The share of all cores that frames may take.
const SHARE: f32 = 0.05;

/// What frames cost here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Mean seconds of a core that a frame takes.
    cost: f32,
    most: f32,
    cores: f32,
}

impl Default for Pace {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self { cost: 0.0, most: MOST, cores: cores as f32 }
    }
}

impl Pace {
    /// The window is drawn by the cores.
    pub(super) fn on_software(&mut self) {
        self.most = MOST_SOFTWARE;
    }

    /// A frame took so many seconds of a core.
    pub(super) fn took(&mut self, seconds: f32) {
        // A mean over some twenty frames, so that one slow one changes little.
        self.cost += (seconds - self.cost) * 0.05;
    }

    /// Time until the next frame while something moves.
    pub(super) fn until_next(&self) -> Duration {
        let affordable = SHARE * self.cores / self.cost.max(1e-6);
        Duration::from_secs_f32(1.0 / affordable.clamp(LEAST, self.most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames_per_second(cost: f32, cores: f32, software: bool) -> f32 {
        let mut pace = Pace { cost: 0.0, most: MOST, cores };
        if software {
            pace.on_software();
        }
        for _ in 0..500 {
            pace.took(cost);
        }
        1.0 / pace.until_next().as_secs_f32()
    }

    #[test]
    fn cheap_frames_come_often_and_dear_ones_seldom() {
        assert!((frames_per_second(0.001, 16.0, false) - 60.0).abs() < 0.1);
        assert!((frames_per_second(0.001, 16.0, true) - 30.0).abs() < 0.1);
        // Two cores, 5 ms a frame: a twentieth of the machine is 20 frames.
        assert!((frames_per_second(0.005, 2.0, true) - 20.0).abs() < 0.2);
        assert!((frames_per_second(0.5, 2.0, true) - 10.0).abs() < 0.1);
    }
}
