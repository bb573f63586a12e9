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

/// Bytes that an animation will have about: what changes from frame to frame is a small part of a
/// picture of flat colours, which compress well.
pub fn estimated_bytes(width: u32, height: u32, frames: usize) -> u64 {
    let picture = u64::from(width) * u64::from(height);
    picture / 8 + picture / 60 * frames as u64
}

/// An endless animation of frames of equal size, each shown for `centiseconds`.
///
/// # Errors
/// If there is no frame, their sizes differ, or a side is longer than a GIF can be.
pub fn encode(frames: &[Image], centiseconds: u16) -> Result<Vec<u8>, ExportError> {
    let expected = frames.first().map_or((0, 0), |first| (first.width, first.height));
    let (width, height) = expected;
    let limit = u32::from(u16::MAX);
    if width.min(height) == 0 || width.max(height) > limit {
        return Err(ExportError::Size { width, height, limit });
    }
    let sizes = frames.iter().map(|image| (image.width, image.height));
    if let Some((frame, found)) = sizes.enumerate().find(|(_, found)| *found != expected) {
        return Err(ExportError::Frames { frame, found, expected });
    }
    let palette = Palette::of(frames);
    let failed = |error: gif::EncodingError| ExportError::Encoding(error.to_string());
    let mut bytes = Vec::new();
    let mut encoder =
        Encoder::new(&mut bytes, width as u16, height as u16, &palette.rgb).map_err(failed)?;
    encoder.set_repeat(Repeat::Infinite).map_err(failed)?;
    let mut before: Option<Vec<u8>> = None;
    for image in frames {
        let indexed = palette.indexed(image);
        let frame = changed(before.as_deref(), &indexed, width as usize);
        encoder.write_frame(&Frame { delay: centiseconds, ..frame }).map_err(failed)?;
        before = Some(indexed);
    }
    drop(encoder);
    Ok(bytes)
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
                    Lookup::Few(few) => few[&colour],
                    Lookup::Many(best) => best.index_of(pixel) as u8,
                }),
            };
            last = Some((colour, index));
            index
        };
        image.rgba.chunks_exact(4).map(index).collect()
    }
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
