//! The one comparison of pictures: which share of their pixels differs so that it can be seen.

use shardlab_visualizer::export::raster::Image;

/// The share of pixels that may differ between two pictures that are called the same: less than the
/// narrowest block of a row that is painted as one, three points wide.
pub(crate) const TOLERANCE: f64 = 0.000_05;
/// The same of pictures by two painters, which round the edges of letters in their own ways.
pub(crate) const PAINTERS: f64 = 0.000_3;
/// How far a channel of a pixel may be off.
const CHANNEL: u8 = 10;

/// The share of pixels that differ.
pub(crate) fn off(one: &Image, other: &Image) -> f64 {
    assert_eq!((one.width, one.height), (other.width, other.height), "sizes of the pictures");
    let pixels = one.rgba.chunks_exact(4).zip(other.rgba.chunks_exact(4));
    let differ = |(a, b): &(&[u8], &[u8])| a.iter().zip(*b).any(|(a, b)| a.abs_diff(*b) > CHANNEL);
    let count = pixels.clone().count();
    pixels.filter(differ).count() as f64 / count as f64
}

/// Holds that two pictures are the same.
#[track_caller]
pub(crate) fn assert_same(one: &Image, other: &Image) {
    assert_within(one, other, TOLERANCE);
}

/// Holds that no larger share of two pictures differs.
#[track_caller]
pub(crate) fn assert_within(one: &Image, other: &Image, most: f64) {
    let off = off(one, other);
    assert!(off <= most, "{:.4} % of the pixels are off", 100.0 * off);
}

/// Reads a PNG file.
pub(crate) fn read(path: &std::path::Path) -> Image {
    let bytes = std::fs::read(path).unwrap();
    let pixels = resvg::tiny_skia::Pixmap::decode_png(&bytes).unwrap();
    Image::new(pixels.width(), pixels.height(), pixels.data().to_vec())
}
