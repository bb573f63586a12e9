//! Animated GIFs: one palette for all frames, and of each frame only what has changed.

use std::collections::BTreeMap;

use gif::{DisposalMethod, Encoder, Frame, Repeat};

use super::ExportError;
use super::raster::Image;

/// Colours of the palette; one more entry stands for "as before".
const COLOURS: usize = 255;
/// Pixels that the palette is chosen from, at most.
const SAMPLES: usize = 2_000_000;
/// Frames at most: longer animations are thinned by the caller.
pub const FRAMES_MAX: usize = 200;
/// Height at most, in pixels.
pub const HEIGHT_MAX: u32 = 720;

/// Bytes that an animation will have about. Flat colours compress well, and from frame to frame
/// little more than the playhead moves.
pub fn estimated_bytes(width: u32, height: u32, frames: usize) -> u64 {
    let picture = u64::from(width) * u64::from(height);
    picture / 12 + picture / 700 * frames as u64
}

/// An endless animation of frames of equal size, each shown for `centiseconds`.
///
/// # Errors
/// If there is no frame, their sizes differ, or a side is longer than a GIF can be.
pub fn encode(frames: &[Image], centiseconds: u16) -> Result<Vec<u8>, ExportError> {
    let mut reel = Reel::new(frames, centiseconds)?;
    for frame in frames {
        reel.push(frame)?;
    }
    reel.finish()
}

/// An animation to which frames are added one by one: none but the last one is kept.
pub struct Reel {
    palette: Palette,
    encoder: Encoder<Vec<u8>>,
    size: (u32, u32),
    centiseconds: u16,
    /// The last frame, by palette.
    before: Option<Vec<u8>>,
    count: usize,
}

impl std::fmt::Debug for Reel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reel").field("size", &self.size).field("count", &self.count).finish()
    }
}

impl Reel {
    /// An endless animation of frames like these examples, from which its colours are chosen; each
    /// frame is shown for `centiseconds`.
    ///
    /// # Errors
    /// If there is no example, or a side is longer than a GIF can be.
    pub fn new(examples: &[Image], centiseconds: u16) -> Result<Self, ExportError> {
        let size = examples.first().map_or((0, 0), |first| (first.width, first.height));
        let (width, height) = size;
        let limit = u32::from(u16::MAX);
        if width.min(height) == 0 || width.max(height) > limit {
            return Err(ExportError::Size { width, height, limit });
        }
        let palette = Palette::of(examples);
        let mut encoder = Encoder::new(Vec::new(), width as u16, height as u16, &palette.rgb)
            .map_err(encoding)?;
        encoder.set_repeat(Repeat::Infinite).map_err(encoding)?;
        Ok(Self { palette, encoder, size, centiseconds, before: None, count: 0 })
    }

    /// Adds a frame.
    ///
    /// # Errors
    /// If its size is not that of the examples.
    pub fn push(&mut self, image: &Image) -> Result<(), ExportError> {
        let found = (image.width, image.height);
        if found != self.size {
            return Err(ExportError::Frames { frame: self.count, found, expected: self.size });
        }
        let indexed = self.palette.indexed(image);
        let frame = changed(self.before.as_deref(), &indexed, self.size.0 as usize);
        let frame = Frame { delay: self.centiseconds, ..frame };
        self.encoder.write_frame(&frame).map_err(encoding)?;
        self.before = Some(indexed);
        self.count += 1;
        Ok(())
    }

    /// The file.
    ///
    /// # Errors
    /// If the encoder refuses.
    pub fn finish(self) -> Result<Vec<u8>, ExportError> {
        self.encoder.into_inner().map_err(|error| ExportError::Encoding(error.to_string()))
    }
}

fn encoding(error: gif::EncodingError) -> ExportError {
    ExportError::Encoding(error.to_string())
}

/// The colours of an animation, and where each of its pixels is among them.
struct Palette {
    rgb: Vec<u8>,
    lookup: Lookup,
}

enum Lookup {
    /// Every colour that occurs.
    Few(BTreeMap<[u8; 3], u8>),
    /// The best choice of colours.
    Many(Box<color_quant::NeuQuant>),
}

impl Palette {
    /// All colours of the frames if they are few; else the best ones.
    fn of(frames: &[Image]) -> Self {
        let pixels = || frames.iter().flat_map(|image| image.rgba.chunks_exact(4));
        let mut few = BTreeMap::new();
        for pixel in pixels() {
            let next = few.len();
            few.entry([pixel[0], pixel[1], pixel[2]]).or_insert(next as u8);
            if few.len() > COLOURS {
                break;
            }
        }
        let (mut rgb, lookup) = if few.len() <= COLOURS {
            let mut rgb = vec![0; 3 * few.len()];
            for (colour, index) in &few {
                rgb[3 * usize::from(*index)..][..3].copy_from_slice(colour);
            }
            (rgb, Lookup::Few(few))
        } else {
            let every = pixels().count().div_ceil(SAMPLES).max(1);
            let sample: Vec<u8> = pixels().step_by(every).flatten().copied().collect();
            let best = color_quant::NeuQuant::new(3, COLOURS, &sample);
            (best.color_map_rgb(), Lookup::Many(Box::new(best)))
        };
        rgb.resize(3 * (COLOURS + 1), 0);
        Self { rgb, lookup }
    }

    fn indexed(&self, image: &Image) -> Vec<u8> {
        // Neighbours are mostly alike, and a search takes its time.
        let mut met = BTreeMap::new();
        let mut last = None;
        let index = |pixel: &[u8]| {
            let colour = [pixel[0], pixel[1], pixel[2]];
            let index = match last {
                Some((same, index)) if same == colour => index,
                _ => *met.entry(colour).or_insert_with(|| match &self.lookup {
                    Lookup::Few(few) => nearest(few, colour),
                    Lookup::Many(best) => best.index_of(pixel) as u8,
                }),
            };
            last = Some((colour, index));
            index
        };
        image.rgba.chunks_exact(4).map(index).collect()
    }
}

/// The colour itself, or the one that is most like it where no example had it.
fn nearest(few: &BTreeMap<[u8; 3], u8>, colour: [u8; 3]) -> u8 {
    let distance = |other: &[u8; 3]| -> u32 {
        let pairs = colour.iter().zip(other);
        pairs.map(|(a, b)| u32::from(a.abs_diff(*b)).pow(2)).sum()
    };
    let known = || few.iter().min_by_key(|(other, _)| distance(other)).map(|(_, index)| *index);
    few.get(&colour).copied().or_else(known).unwrap_or_default()
}

/// The smallest rectangle that holds all that has changed; in it, what has not is transparent.
fn changed(before: Option<&[u8]>, now: &[u8], width: usize) -> Frame<'static> {
    let height = now.len() / width;
    let differs =
        |x: usize, y: usize| before.is_none_or(|b| b[y * width + x] != now[y * width + x]);
    let row = |y: &usize| (0..width).any(|x| differs(x, *y));
    let column = |x: &usize| (0..height).any(|y| differs(*x, y));
    // A frame without a change still takes its time: one pixel of it.
    let (top, left) = (0..height).find(row).zip((0..width).find(column)).unwrap_or((0, 0));
    let bottom = (top..height).rev().find(row).unwrap_or(top);
    let right = (left..width).rev().find(column).unwrap_or(left);
    let same = COLOURS as u8;
    let pixel = |x, y| if differs(x, y) { now[y * width + x] } else { same };
    let buffer: Vec<u8> =
        (top..=bottom).flat_map(|y| (left..=right).map(move |x| pixel(x, y))).collect();
    Frame {
        left: left as u16,
        top: top as u16,
        width: (right - left + 1) as u16,
        height: (bottom - top + 1) as u16,
        transparent: before.is_some().then_some(same),
        dispose: DisposalMethod::Keep,
        buffer: buffer.into(),
        ..Frame::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A white square that moves over coloured stripes.
    fn frame(at: u32, colours: u32) -> Image {
        let pixel = |index: u32| {
            let (x, y) = (index % 64, index / 64);
            match (at..at + 8).contains(&x) && (8..16).contains(&y) {
                true => [255, 255, 255, 255],
                false => [(x * 3 % colours) as u8, (y * 5 % colours) as u8, 7, 255],
            }
        };
        Image::new(64, 32, (0..64 * 32).flat_map(pixel).collect())
    }

    /// What a viewer sees after each frame.
    fn played(bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut options = gif::DecodeOptions::new();
        options.set_color_output(gif::ColorOutput::RGBA);
        let mut decoder = options.read_info(bytes).unwrap();
        let mut screen = vec![0_u8; 64 * 32 * 4];
        let mut seen = Vec::new();
        while let Some(frame) = decoder.read_next_frame().unwrap() {
            assert_eq!(frame.delay, 5);
            let width = usize::from(frame.width);
            for (index, pixel) in frame.buffer.chunks_exact(4).enumerate() {
                if pixel[3] == 255 {
                    let x = usize::from(frame.left) + index % width;
                    let y = usize::from(frame.top) + index / width;
                    screen[4 * (64 * y + x)..][..4].copy_from_slice(pixel);
                }
            }
            seen.push(screen.clone());
        }
        seen
    }

    #[test]
    fn few_colours_come_back_exactly_and_small() {
        let frames: Vec<Image> = [0, 0, 3, 20, 56].map(|at| frame(at, 5)).into();
        let bytes = encode(&frames, 5).unwrap();
        let seen = played(&bytes);
        assert_eq!(seen.len(), frames.len());
        for (seen, frame) in seen.iter().zip(&frames) {
            assert_eq!(seen, &frame.rgba);
        }
        let alone = encode(&frames[..1], 5).unwrap();
        assert!(bytes.len() < 3 * alone.len(), "{} against {}", bytes.len(), alone.len());
    }

    #[test]
    fn colours_that_no_example_had_become_the_nearest_ones() {
        let solid = |level: u8| Image::new(64, 32, [level, level, level, 255].repeat(64 * 32));
        let mut reel = Reel::new(&[solid(0), solid(200)], 5).unwrap();
        for level in [0, 190, 20] {
            reel.push(&solid(level)).unwrap();
        }
        let seen = played(&reel.finish().unwrap());
        let levels: Vec<u8> = seen.iter().map(|frame| frame[0]).collect();
        assert_eq!(levels, [0, 200, 0]);
    }

    #[test]
    fn many_colours_come_back_nearly() {
        let frames: Vec<Image> = [0, 30].map(|at| frame(at, 251)).into();
        for (seen, frame) in played(&encode(&frames, 5).unwrap()).iter().zip(&frames) {
            let off: u64 =
                seen.iter().zip(&frame.rgba).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
            let mean = off as f64 / seen.len() as f64;
            assert!(mean < 8.0, "{mean} off a channel");
        }
    }

    #[test]
    fn animations_that_cannot_be_are_refused() {
        assert!(encode(&[], 5).unwrap_err().to_string().contains("0 × 0"));
        let other = Image::new(2, 1, vec![0; 8]);
        let error = encode(&[frame(0, 5), other], 5).unwrap_err().to_string();
        assert!(error.contains("frame 1") && error.contains("(2, 1)"), "{error}");
    }
}
