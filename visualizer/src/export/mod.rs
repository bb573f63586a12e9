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

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
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
        why: io::Error,
    },
}

/// Whether a file of this name could be written: before long work is begun for it.
///
/// # Errors
/// If the folder cannot be made or written.
pub fn try_out(path: &Path) -> Result<(), ExportError> {
    let failed = |why| ExportError::Write { path: path.to_owned(), why };
    if path.is_dir() {
        return Err(failed(io::ErrorKind::IsADirectory.into()));
    }
    let beside = beside(path, ".try");
    make_folder(path).and_then(|()| fs::write(&beside, b"")).map_err(failed)?;
    fs::remove_file(&beside).map_err(failed)
}

/// Makes the folder of a file.
fn make_folder(path: &Path) -> io::Result<()> {
    match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => fs::create_dir_all(folder),
        None => Ok(()),
    }
}

/// A file beside another one.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(ending);
    beside.into()
}

/// Writes a file whole or not at all: beside, then renamed.
///
/// # Errors
/// If the folder cannot be made or the file cannot be written.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), ExportError> {
    write_with(path, |out| out.write_all(bytes))
}

/// The same, of what comes piece by piece.
///
/// # Errors
/// If the folder cannot be made or the file cannot be written.
pub fn write_with<T>(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<T>,
) -> Result<T, ExportError> {
    let beside = beside(path, ".part");
    let written = make_folder(path).and_then(|()| {
        let mut out = BufWriter::new(File::create(&beside)?);
        let answer = write(&mut out)?;
        out.flush()?;
        fs::rename(&beside, path).map(|()| answer)
    });
    written.map_err(|why| {
        // What could not be ended is of no use.
        fs::remove_file(&beside).ok();
        ExportError::Write { path: path.to_owned(), why }
    })
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
        for refused in [write(&path.join("below-a-file"), b""), try_out(&path.join("below-a-file"))]
        {
            let error = refused.unwrap_err().to_string();
            assert!(error.contains("picture.svg") && error.contains("another folder"), "{error}");
        }
    }

    #[test]
    fn trying_out_a_place_leaves_nothing_but_its_folder_and_no_file_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/picture.png");
        try_out(&path).unwrap();
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 0);
        fs::write(&path, b"there").unwrap();
        try_out(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"there");
        assert!(try_out(folder.path()).is_err(), "a folder is no file");
    }
}
