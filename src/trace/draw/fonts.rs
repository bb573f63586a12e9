//! How wide texts are where nobody has a font: for SVG files, and for tests.
//!
//! Advance widths of a wide sans serif (`DejaVu Sans`; Verdana has the same proportions), so that what
//! fits here fits in narrower fonts as well. The app measures with its own fonts.

use super::scene::{Face, Measure};

/// Fonts of these proportions, from the best on.
pub const FAMILIES: &str = "DejaVu Sans, Verdana, Bitstream Vera Sans, sans-serif";
/// Fonts with equally wide glyphs.
pub const MONO_FAMILIES: &str = "DejaVu Sans Mono, Menlo, Consolas, monospace";

/// Widths of the characters from space to tilde, in thousandths of the font size.
#[rustfmt::skip]
const ASCII: [u16; 95] = [
    318, 401, 460, 838, 636, 950, 780, 275, 390, 390, 500, 838, 318, 361, 318, 337,
    636, 636, 636, 636, 636, 636, 636, 636, 636, 636, 337, 337, 838, 838, 838, 531,
    1000, 684, 686, 698, 770, 632, 575, 775, 752, 295, 295, 656, 557, 863, 748, 787,
    603, 787, 695, 635, 611, 732, 684, 989, 685, 611, 685, 390, 337, 390, 838, 500,
    500, 613, 635, 550, 635, 615, 352, 635, 634, 278, 278, 579, 278, 974, 634, 612,
    635, 635, 411, 521, 392, 634, 592, 818, 592, 592, 525, 636, 337, 636, 838,
];
/// Width of a glyph of a monospaced font.
const MONO: u16 = 602;
/// Width of what is in no table: wider than nearly all letters of alphabets.
const LETTER: u16 = 840;
/// Chinese, Japanese and Korean characters, and pictographs, are as wide as they are high.
const SQUARE: u16 = 1000;

/// The widths of a sans serif, from a table.
#[derive(Clone, Copy, Debug, Default)]
pub struct SansTable;

impl Measure for SansTable {
    fn width(&self, text: &str, size: f32, face: Face) -> f32 {
        let sum: u32 = text.chars().map(|glyph| u32::from(thousandths(glyph, face))).sum();
        sum as f32 * size / 1000.0
    }
}

fn thousandths(glyph: char, face: Face) -> u16 {
    let code = glyph as usize;
    if is_square(glyph) {
        return SQUARE;
    }
    match (face, glyph) {
        (Face::Mono, _) => MONO,
        (Face::Sans, ' '..='~') => ASCII[code - 32],
        // Middle dot, en dash and ellipsis, minus, micro sign, arrows and comparisons.
        (Face::Sans, '·' | '\u{2009}' | '\u{202f}') => 318,
        (Face::Sans, '–') => 500,
        (Face::Sans, '…') => 1000,
        (Face::Sans, 'µ') => 636,
        (Face::Sans, '→' | '←' | '↔' | '×' | '−' | '≤' | '≥') => 838,
        (Face::Sans, _) => LETTER,
    }
}

/// Whether a character fills a square.
fn is_square(glyph: char) -> bool {
    matches!(u32::from(glyph),
        0x1100..=0x115F | 0x2E80..=0xA4CF | 0xAC00..=0xD7A3 | 0xF900..=0xFAFF
        | 0xFE30..=0xFE6F | 0xFF00..=0xFF60 | 0xFFE0..=0xFFE6 | 0x1F300..=0x1FAFF
        | 0x20000..=0x3FFFD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_are_those_of_the_font() {
        let width = |text: &str, face| SansTable.width(text, 100.0, face);
        // Summed from the advance widths of DejaVu Sans and DejaVu Sans Mono.
        assert!((width("waits for B2", Face::Sans) - 595.5).abs() < 0.5);
        assert_eq!(width("0123", Face::Mono), 240.8);
        assert_eq!(width("模型", Face::Sans), 200.0);
        assert!(width("Ж", Face::Sans) > width("M", Face::Sans) * 0.9);
    }
}
