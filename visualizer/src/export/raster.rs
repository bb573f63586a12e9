//! Pixels from vector pictures, with the fonts of the app, so that a PNG looks as its window.

use std::sync::{Arc, OnceLock};

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{self, fontdb};

use super::ExportError;

/// Largest side of a picture in pixels.
const SIDE_MAX: u32 = 16_384;

/// A picture in pixels: opaque rows of red, green, blue, alpha from the top left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Pixels across.
    pub width: u32,
    /// Pixels down.
    pub height: u32,
    /// Four bytes a pixel.
    pub rgba: Vec<u8>,
}

impl Image {
    /// From pixels.
    ///
    /// # Panics
    /// If there are not four bytes for each pixel.
    pub fn new(width: u32, height: u32, rgba: Vec<u8>) -> Self {
        assert_eq!(rgba.len() as u64, 4 * u64::from(width) * u64::from(height), "4 bytes a pixel");
        Self { width, height, rgba }
    }

    /// As a PNG file.
    ///
    /// # Errors
    /// If the encoder refuses the size.
    pub fn png(&self) -> Result<Vec<u8>, ExportError> {
        let mut pixels = self.pixmap()?;
        pixels.data_mut().copy_from_slice(&self.rgba); // opaque: premultiplied or not is the same
        pixels.encode_png().map_err(|error| ExportError::Encoding(error.to_string()))
    }

    fn pixmap(&self) -> Result<Pixmap, ExportError> {
        let Self { width, height, .. } = *self;
        Pixmap::new(width, height).ok_or(ExportError::Size { width, height, limit: SIDE_MAX })
    }
}

/// Paints a vector picture `scale` times its size.
///
/// # Errors
/// If it is not SVG, or too large.
pub fn paint(svg: &str, scale: f32) -> Result<Image, ExportError> {
    let others = usvg::FontResolver::default_fallback_selector();
    let font_resolver = usvg::FontResolver {
        // Signs have their font already: another one would be taken for the whole text.
        select_fallback: Box::new(move |glyph, tried, fonts| match is_sign(glyph) {
            true => None,
            false => others(glyph, tried, fonts),
        }),
        ..usvg::FontResolver::default()
    };
    let svg = signs_apart(svg);
    let options = usvg::Options {
        fontdb: fonts(&svg),
        font_family: "Ubuntu".into(),
        font_resolver,
        ..usvg::Options::default()
    };
    let tree = usvg::Tree::from_str(&svg, &options)
        .map_err(|error| ExportError::Svg(error.to_string()))?;
    let [width, height] =
        [tree.size().width(), tree.size().height()].map(|side| (side * scale).ceil() as u32);
    let limit = SIDE_MAX;
    if width.max(height) > limit || width.min(height) == 0 {
        return Err(ExportError::Size { width, height, limit });
    }
    let mut pixels =
        Pixmap::new(width, height).ok_or(ExportError::Size { width, height, limit })?;
    // What the picture leaves open is white paper.
    pixels.fill(resvg::tiny_skia::Color::WHITE);
    resvg::render(&tree, Transform::from_scale(scale, scale), &mut pixels.as_mut());
    Ok(Image { width, height, rgba: pixels.take() })
}

/// Arrows and geometric signs, which the fixed font of the app has.
fn is_sign(glyph: char) -> bool {
    ('\u{2190}'..='\u{25ff}').contains(&glyph)
}

/// Gives signs a font of their own, as in the window.
fn signs_apart(svg: &str) -> String {
    let mut apart = String::with_capacity(svg.len());
    let mut rest = svg;
    while let Some(sign) = rest.find(is_sign) {
        let after = rest[sign..].chars().next().map_or(rest.len(), |glyph| sign + glyph.len_utf8());
        let (before, glyph) = (&rest[..sign], &rest[sign..after]);
        // A text of several fonts has its own width: one that is prescribed would be taken for that
        // of each of its stretches.
        match before.rfind("<text").map(|start| (start, before[start..].find('>'))) {
            Some((start, Some(end))) => {
                apart += &before[..start];
                apart += &without_width(&before[start..start + end]);
                apart += &before[start + end..];
            }
            _ => apart += before,
        }
        apart += "<tspan font-family=\"monospace\">";
        apart += glyph;
        apart += "</tspan>";
        rest = &rest[after..];
    }
    apart + rest
}

/// The head of a text without the width that it was measured with.
fn without_width(head: &str) -> String {
    let of = |attribute: &&str| {
        ["textLength=", "lengthAdjust="].iter().any(|a| attribute.starts_with(a))
    };
    head.split(' ').filter(|attribute| !of(attribute)).collect::<Vec<_>>().join(" ")
}

/// The fonts for a picture: those of the app, so that it is the same on every machine; for letters
/// that these do not have those of the system as well, as in the window.
fn fonts(svg: &str) -> Arc<fontdb::Database> {
    static MORE: OnceLock<Arc<fontdb::Database>> = OnceLock::new();
    let load = || {
        let mut fonts = fontdb::Database::clone(&own_fonts());
        fonts.load_system_fonts();
        // The system has named other ones.
        name_families(&mut fonts);
        Arc::new(fonts)
    };
    match svg.chars().any(is_foreign) {
        true => Arc::clone(MORE.get_or_init(load)),
        false => own_fonts(),
    }
}

/// Letters beyond Latin, Greek and Cyrillic ones.
fn is_foreign(glyph: char) -> bool {
    glyph >= '\u{530}' && glyph.is_alphanumeric()
}

/// The fonts of the app.
fn own_fonts() -> Arc<fontdb::Database> {
    static FONTS: OnceLock<Arc<fontdb::Database>> = OnceLock::new();
    let load = || {
        let mut fonts = fontdb::Database::new();
        for (_, font) in eframe::egui::FontDefinitions::default().font_data {
            fonts.load_font_data(font.font.as_ref().as_ref().to_vec());
        }
        name_families(&mut fonts);
        Arc::new(fonts)
    };
    Arc::clone(FONTS.get_or_init(load))
}

/// Says which of the fonts are meant by the usual names: the first ones, which are those of the app.
fn name_families(fonts: &mut fontdb::Database) {
    let family = |fonts: &fontdb::Database, monospaced: bool| {
        let mut faces = fonts.faces().filter(|face| face.monospaced == monospaced);
        faces.find_map(|face| face.families.first().map(|(name, _)| name.clone()))
    };
    if let Some(name) = family(fonts, true) {
        fonts.set_monospace_family(name);
    }
    let named_ubuntu = fonts.faces().flat_map(|face| face.families.first());
    let ubuntu = named_ubuntu.map(|(name, _)| name.clone()).find(|name| name.contains("Ubuntu"));
    if let Some(name) = ubuntu {
        fonts.set_sans_serif_family(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r##"<svg xmlns="http://www.w3.org/2000/svg" width="80" height="20">
        <rect width="80" height="20" fill="#102030"/>
        <text x="4" y="15" font-family="sans-serif" font-size="14" fill="#ffffff">F3</text></svg>"##;

    fn dark(image: &Image) -> usize {
        image.rgba.chunks(4).filter(|pixel| *pixel == [0x10, 0x20, 0x30, 0xFF]).count()
    }

    #[test]
    fn text_is_painted_and_scales() {
        let plain = paint(TEXT, 1.0).unwrap();
        let glyphs = plain.rgba.len() / 4 - dark(&plain);
        assert!((20..400).contains(&glyphs), "{glyphs} pixels of glyphs");
        let twice = paint(TEXT, 2.0).unwrap();
        assert_eq!((twice.width, twice.height), (160, 40));
        assert!(twice.rgba.len() / 4 - dark(&twice) > 3 * glyphs);
    }

    /// Where no font of the system has them they are boxes; on machines that test everything one does.
    #[test]
    fn names_in_other_scripts_are_letters_and_not_boxes() {
        let [one, other] =
            ["莎士", "比亚"].map(|name| paint(&TEXT.replace("F3", name), 2.0).unwrap());
        let has_fonts = std::env::var_os("REQUIRE_DISPLAY").is_some();
        assert!(one != other || !has_fonts, "install fonts-droid-fallback or any other with these");
        // What stands beside them is there whatever fonts the system has.
        let empty = dark(&paint(&TEXT.replace("F3", ""), 2.0).unwrap());
        assert!(dark(&paint(&TEXT.replace("F3", "F3 莎"), 2.0).unwrap()) + 60 < empty);
    }

    #[test]
    fn an_arrow_does_not_change_the_font_of_its_text() {
        let plain = paint(TEXT, 2.0).unwrap();
        let with_arrow = paint(&TEXT.replace("F3", "F3→"), 2.0).unwrap();
        let letters = |image: &Image| -> Vec<u8> {
            let rows = image.rgba.chunks(4 * image.width as usize);
            // The two letters end before this column.
            rows.flat_map(|row| row[..4 * 37].to_vec()).collect()
        };
        assert!(letters(&plain) == letters(&with_arrow), "the letters have changed");
        assert!(plain != with_arrow, "the arrow is not there");
    }

    #[test]
    fn a_text_with_an_arrow_and_a_measured_width_keeps_its_letters_and_what_follows() {
        let of = |width: u32, words: &str, measured: &str| {
            let svg = format!(
                r##"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20"><rect width="{width}" height="20" fill="#102030"/><text x="4" y="15" font-family="a, sans-serif" font-size="14" fill="#ffffff"{measured} xml:space="preserve">{words}</text></svg>"##
            );
            paint(&svg, 2.0).unwrap()
        };
        let measured = r#" textLength="170" lengthAdjust="spacingAndGlyphs""#;
        let words = "Space pauses, → steps. ←";
        let plain = of(240, words, "");
        assert!(plain == of(240, words, measured), "the width has moved the letters");
        // What stands behind the arrow is there as well.
        assert!(plain != of(240, "Space pauses, →", ""));
    }

    #[test]
    fn a_png_holds_the_same_pixels() {
        let image = paint(TEXT, 1.5).unwrap();
        let read = Pixmap::decode_png(&image.png().unwrap()).unwrap();
        assert_eq!((read.width(), read.height()), (image.width, image.height));
        assert_eq!(read.data(), image.rgba);
    }

    #[test]
    fn impossible_pictures_are_refused() {
        let says = |svg, scale| paint(svg, scale).unwrap_err().to_string();
        assert!(says("<svg", 1.0).contains("cannot be painted"));
        assert!(says(TEXT, 1000.0).contains("1 to 16384"));
        assert!(says(TEXT, 0.0).contains("0 × 0"));
    }
}
