//! Pictures that leave the app: pixels from vector pictures, PNG files, animated GIFs.
//!
//! What is drawn comes from `shardlab::trace::draw` as SVG, or from the renderer as pixels; here
//! it only becomes bytes. Nothing here needs a display or an adapter.

pub mod drawing;
pub mod film;
pub mod gif;
pub mod job;
pub mod moment;
pub mod order;
pub mod parts;
pub mod raster;

use std::fs;
use std::path::{Path, PathBuf};

/// Why a picture could not be made or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// A picture of no size, or too large.
    #[error(
        "a picture of {width} × {height} pixels cannot be made: each side must be 1 to {limit}"
    )]
    Size {
        /// Pixels across.
        width: u32,
        /// Pixels down.
        height: u32,
        /// Largest side.
        limit: u32,
    },
    /// A vector picture that cannot be read back.
    #[error("the vector picture cannot be painted: {0}")]
    Svg(String),
    /// Frames of one animation differ in size.
    #[error("frame {frame} has {found:?} pixels where the first has {expected:?}")]
    Frames {
        /// Which frame, 0-based.
        frame: usize,
        /// Its width and height.
        found: (u32, u32),
        /// Those of the first.
        expected: (u32, u32),
    },
    /// The encoder refused.
    #[error("the picture cannot be encoded: {0}")]
    Encoding(String),
    /// There is such a file, and it is not to be replaced.
    #[error("cannot write {}: it is there already. Replace it, or give another name", .path.display())]
    Exists {
        /// Which file.
        path: PathBuf,
    },
    /// The file cannot be written.
    #[error("cannot write {}: {why}. Choose another folder", .path.display())]
    Write {
        /// Which file.
        path: PathBuf,
        /// Why.
        why: std::io::Error,
    },
}

/// Writes a file whole or not at all: beside, then renamed.
///
/// # Errors
/// If the folder cannot be made or the file cannot be written.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), ExportError> {
    let failed = |why| ExportError::Write { path: path.to_owned(), why };
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(".part");
    fs::write(&beside, bytes).and_then(|()| fs::rename(&beside, path)).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_written_whole_and_refusals_name_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/deeper/picture.svg");
        write(&path, b"<svg/>").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"<svg/>");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        let error = write(&path.join("below-a-file"), b"").unwrap_err().to_string();
        assert!(error.contains("picture.svg") && error.contains("another folder"), "{error}");
    }
}
