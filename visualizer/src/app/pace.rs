//! How often a frame is due: never while nothing moves, else as often as the machine can spare.

use std::time::Duration;

/// Most frames a second, on a GPU and on an adapter that runs on the cores.
const MOST: f32 = 60.0;
const MOST_SOFTWARE: f32 = 30.0;
/// Fewest frames a second while something moves.
const LEAST: f32 = 10.0;
/// The share of all cores that frames may take.
const SHARE: f32 = 0.05;
/// Seconds of a core that a software adapter takes to paint (7 ns, `bench window`) and to show a
/// pixel of the default view, both behind the back of whoever takes the time of a frame.
const SOFTWARE_PIXEL: f32 = 10e-9;

/// What frames cost here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Mean seconds of a core that a frame takes.
    cost: f32,
    /// Seconds of the cores that paint it, where these are those of the host.
    painting: f32,
    most: f32,
    cores: f32,
}

impl Default for Pace {
    fn default() -> Self {
        Self { cost: 0.0, painting: 0.0, most: MOST, cores: shardlab::exec::cores() as f32 }
    }
}

impl Pace {
    /// The window of so many pixels is painted by the cores.
    pub(super) fn on_software(&mut self, pixels: f32) {
        self.most = MOST_SOFTWARE;
        self.painting = pixels * SOFTWARE_PIXEL;
    }

    /// A frame took so many seconds of a core.
    pub(super) fn took(&mut self, seconds: f32) {
        // A mean over some twenty frames, so that one slow one changes little.
        self.cost += (seconds - self.cost) * 0.05;
    }

    /// Time until the next frame while something moves.
    pub(super) fn until_next(&self) -> Duration {
        let affordable = SHARE * self.cores / (self.cost + self.painting).max(1e-6);
        Duration::from_secs_f32(1.0 / affordable.clamp(LEAST, self.most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames_per_second(cost: f32, cores: f32, software_pixels: Option<f32>) -> f32 {
        let mut pace = Pace { cores, ..Pace::default() };
        if let Some(pixels) = software_pixels {
            pace.on_software(pixels);
        }
        for _ in 0..500 {
            pace.took(cost);
        }
        1.0 / pace.until_next().as_secs_f32()
    }

    #[test]
    fn cheap_frames_come_often_and_dear_ones_seldom() {
        assert!((frames_per_second(0.001, 16.0, None) - 60.0).abs() < 0.1);
        // Two cores, 5 ms a frame: a twentieth of the machine is 20 frames.
        assert!((frames_per_second(0.005, 2.0, None) - 20.0).abs() < 0.2);
        assert!((frames_per_second(0.5, 2.0, None) - 10.0).abs() < 0.1);
    }

    #[test]
    fn what_the_cores_paint_counts_as_well() {
        let (small, large) = (Some(1e5), Some(1280.0 * 800.0));
        assert!((frames_per_second(0.001, 16.0, small) - 30.0).abs() < 0.1);
        // 1 ms and 0.1 megapixels on two cores: 50 frames of 2 ms would do, 30 are allowed.
        assert!((frames_per_second(0.001, 2.0, small) - 30.0).abs() < 0.1);
        assert!((frames_per_second(0.004, 2.0, small) - 0.1 / 0.005).abs() < 0.2);
        assert!((frames_per_second(0.001, 2.0, large) - 10.0).abs() < 0.1);
        assert!((frames_per_second(0.001, 16.0, large) - 30.0).abs() < 0.1);
    }
}
