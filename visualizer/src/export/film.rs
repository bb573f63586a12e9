//! A stretch of a step in slow motion, as an animation.

use shardlab::trace::Span;
use shardlab::trace::draw::playback::{PAUSE, Speed};
use shardlab::units::Nanos;

use super::ExportError;
use super::drawing::Drawing;
use super::gif::{self, Reel};
use super::raster::Image;

/// How long a frame is shown at least, in hundredths of a second.
const FRAME: u64 = 8;
/// A hundredth of a second.
const CENTISECOND: u64 = 10_000_000;
/// Widest frame, in pixels.
const WIDTH_MAX: f32 = 1280.0;
/// Frames from which the colours are chosen.
const EXAMPLES: usize = 6;

/// Which instants are shown, and for how long each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Film {
    /// Where the playhead stands in each frame.
    pub instants: Vec<Nanos>,
    /// How long each frame is shown.
    pub centiseconds: u16,
}

impl Film {
    /// A stretch at a speed, with a rest at its end; long ones have fewer frames a second.
    pub fn new(span: Span, speed: Speed) -> Self {
        let most = gif::FRAMES_MAX as u64;
        let all = (speed.shown(span.duration()) + PAUSE).0.div_ceil(CENTISECOND);
        let frame = all.div_ceil(most).max(FRAME);
        let count = all.div_ceil(frame).clamp(1, most);
        let played = |index: u64| speed.played(Nanos(index * frame * CENTISECOND));
        let instants = (0..count).map(|index| (span.start + played(index)).min(span.end));
        Self { instants: instants.collect(), centiseconds: frame.min(u16::MAX.into()) as u16 }
    }

    /// Pixels a point for a window of this size: at most 1280 × 720.
    pub fn scale((width, height): (f32, f32)) -> f32 {
        (WIDTH_MAX / width).min(gif::HEIGHT_MAX as f32 / height).min(1.0)
    }

    /// What it will be, for who has to wait for it.
    pub fn estimate(&self, size: (f32, f32)) -> Estimate {
        let scale = Self::scale(size);
        let [width, height] = [size.0, size.1].map(|side| (side * scale).ceil() as u32);
        let frames = self.instants.len();
        let seconds = frames as f64 * f64::from(self.centiseconds) / 100.0;
        Estimate {
            frames,
            width,
            height,
            seconds,
            bytes: gif::estimated_bytes(width, height, frames),
        }
    }
}

/// What an animation will be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// How many frames.
    pub frames: usize,
    /// Pixels across.
    pub width: u32,
    /// Pixels down.
    pub height: u32,
    /// How long it lasts until it begins again.
    pub seconds: f64,
    /// How large the file is about.
    pub bytes: u64,
}

impl std::fmt::Display for Estimate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { frames, width, height, seconds, bytes } = self;
        let size = shardlab::units::Bytes(*bytes);
        write!(f, "{frames} frames of {width} × {height}, {seconds:.1} s, about {size}")
    }
}

/// Paints drawings of equal size as an animation; `tell` hears how many are painted.
///
/// # Errors
/// If there is none, or they differ in size.
pub fn develop(
    drawings: &[Drawing],
    centiseconds: u16,
    mut tell: impl FnMut(usize),
) -> Result<Vec<u8>, ExportError> {
    let scale = drawings.first().map_or(1.0, |first| {
        let area = first.area();
        Film::scale((area.width, area.height))
    });
    let every = drawings.len().div_ceil(EXAMPLES).max(1);
    let examples: Result<Vec<Image>, _> =
        drawings.iter().step_by(every).map(|drawing| drawing.image(scale)).collect();
    let mut reel = Reel::new(&examples?, centiseconds)?;
    for (index, drawing) in drawings.iter().enumerate() {
        reel.push(&drawing.image(scale)?)?;
        tell(index + 1);
    }
    reel.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_step_is_shown_as_long_as_in_the_window_and_rests_at_its_end() {
        let span = Span { start: Nanos(10 * MS), end: Nanos(110 * MS) };
        let film = Film::new(span, Speed::new(-6));
        // 6.4 s and half a second of rest.
        assert_eq!((film.instants.len(), film.centiseconds), (87, 8));
        assert_eq!(film.instants[0], span.start);
        assert_eq!(film.instants.iter().filter(|at| **at == span.end).count(), 7);
        assert!(film.instants.is_sorted());
    }

    #[test]
    fn a_long_stretch_has_no_more_than_200_frames_and_lasts_as_long() {
        let span = Span { start: Nanos(0), end: Nanos(1000 * MS) };
        let film = Film::new(span, Speed::new(-5));
        assert!(film.instants.len() <= gif::FRAMES_MAX);
        let seconds = film.estimate((1280.0, 720.0)).seconds;
        assert!((32.0..33.0).contains(&seconds), "{seconds}");
        assert_eq!(film.instants.last(), Some(&span.end));
    }

    #[test]
    fn frames_are_never_larger_than_720p() {
        for size in [(1280.0, 800.0), (3840.0, 2160.0), (800.0, 2000.0), (800.0, 480.0)] {
            let film = Film { instants: vec![Nanos(0)], centiseconds: 8 };
            let Estimate { width, height, .. } = film.estimate(size);
            assert!(width <= 1280 && height <= 720, "{size:?}: {width} × {height}");
        }
        assert_eq!(Film::scale((800.0, 480.0)), 1.0);
    }
}
