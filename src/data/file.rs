//! Data files, told apart by their extension.
//!
//! Text is bytes; token files are raw little-endian integers or a tensor of safetensors. Values
//! are not checked against a vocabulary here.

use std::borrow::Cow;
use std::path::Path;

use safetensors::{Dtype, SafeTensors};

use super::{DataError, Dataset, Width};

/// Reads a data file.
pub(super) fn read(path: &Path) -> Result<Dataset, DataError> {
    let bytes =
        std::fs::read(path).map_err(|source| DataError::File { path: path.to_owned(), source })?;
    let extension = path.extension().map(|extension| extension.to_ascii_lowercase());
    let (bytes, width) = match extension.as_ref().and_then(|extension| extension.to_str()) {
        Some("u16") => (whole(path, bytes, Width::U16)?, Width::U16),
        Some("u32") => (whole(path, bytes, Width::U32)?, Width::U32),
        Some("safetensors") => tensor(path, &bytes)?,
        _ => (bytes, Width::U8),
    };
    Ok(Dataset { name: path.display().to_string(), bytes: Cow::Owned(bytes), width })
}

fn fault(path: &Path, why: impl Into<String>, remedy: impl Into<String>) -> DataError {
    DataError::Format { path: path.to_owned(), why: why.into(), remedy: remedy.into() }
}

/// The bytes, if they are a whole number of tokens.
fn whole(path: &Path, bytes: Vec<u8>, width: Width) -> Result<Vec<u8>, DataError> {
    let size = width as usize;
    if bytes.len().is_multiple_of(size) {
        return Ok(bytes);
    }
    let why = format!("{} bytes are not a whole number of {size}-byte tokens", bytes.len());
    Err(fault(
        path,
        why,
        "The extension says little-endian tokens of this size: write the file again",
    ))
}

/// The tensor `tokens`, or the only one.
fn tensor(path: &Path, bytes: &[u8]) -> Result<(Vec<u8>, Width), DataError> {
    let file = SafeTensors::deserialize(bytes).map_err(|error| {
        fault(path, format!("is not a safetensors file ({error})"), "Write the file again")
    })?;
    let mut names = file.names();
    names.sort_unstable();
    let name = match names.as_slice() {
        [only] => *only,
        names if names.contains(&"tokens") => "tokens",
        names => {
            let why = format!("holds {} tensors and none is named `tokens`", names.len());
            return Err(fault(path, why, "Give a file with one tensor, or name it `tokens`"));
        }
    };
    let tensor = file.tensor(name).expect("the name comes from the file");
    let integers = "Use U8, U16, U32, I32 or I64 token numbers of at least 0";
    let data = tensor.data();
    match tensor.dtype() {
        Dtype::U8 => Ok((data.to_vec(), Width::U8)),
        Dtype::U16 => Ok((data.to_vec(), Width::U16)),
        Dtype::U32 => Ok((data.to_vec(), Width::U32)),
        dtype @ (Dtype::I32 | Dtype::I64) => {
            // The low four bytes of a number below 2^31 are itself; what is above has a high bit.
            let size = dtype.bitsize() / 8;
            let tokens = data.chunks_exact(size);
            let outside = |token: &[u8]| token[3] >= 0x80 || token[4..].iter().any(|b| *b != 0);
            if let Some(position) = tokens.clone().position(outside) {
                let why = format!(
                    "`{name}` has a token below 0 or of 2^31 and more at position {position}"
                );
                return Err(fault(path, why, integers));
            }
            Ok((tokens.flat_map(|token| &token[..4]).copied().collect(), Width::U32))
        }
        other => Err(fault(path, format!("`{name}` has elements of type {other:?}"), integers)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use safetensors::tensor::TensorView;

    fn read_as(name: &str, bytes: &[u8]) -> Result<Vec<u32>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let data = read(&path).map_err(|error| error.to_string())?;
        Ok(data.tokens(0..data.len()).collect())
    }

    fn safetensors(tensors: &[(&str, Dtype, &[u8])]) -> Vec<u8> {
        let views = tensors.iter().map(|(name, dtype, data)| {
            let len = data.len() * 8 / dtype.bitsize();
            (*name, TensorView::new(*dtype, vec![len], data).unwrap())
        });
        safetensors::serialize(views, None).unwrap()
    }

    #[test]
    fn the_extension_says_how_tokens_are_stored() {
        assert_eq!(read_as("a.txt", &[1, 2, 200]), Ok(vec![1, 2, 200]));
        assert_eq!(read_as("a", &[1, 2, 3]), Ok(vec![1, 2, 3]));
        assert_eq!(read_as("a.u16", &[1, 2, 3, 4]), Ok(vec![0x0201, 0x0403]));
        assert_eq!(read_as("a.U32", &[1, 2, 3, 4]), Ok(vec![0x0403_0201]));
        let error = read_as("a.u16", &[1, 2, 3]).unwrap_err();
        assert!(error.contains("3 bytes are not a whole number of 2-byte tokens"), "{error}");
    }

    #[test]
    fn safetensors_hold_one_tensor_or_one_named_tokens() {
        let wide: Vec<u8> = [5i64, 70_000].iter().flat_map(|token| token.to_le_bytes()).collect();
        let one = safetensors(&[("x", Dtype::I64, &wide)]);
        assert_eq!(read_as("a.safetensors", &one), Ok(vec![5, 70_000]));
        let two = safetensors(&[("x", Dtype::I64, &wide), ("tokens", Dtype::U16, &[7, 0])]);
        assert_eq!(read_as("a.safetensors", &two), Ok(vec![7]));
    }

    #[test]
    fn token_files_that_hold_something_else_are_refused_in_words() {
        let refused = |bytes: &[u8]| read_as("a.safetensors", bytes).unwrap_err();
        let below: Vec<u8> = [3i32, -1].iter().flat_map(|token| token.to_le_bytes()).collect();
        let text = refused(&safetensors(&[("x", Dtype::I32, &below)]));
        assert!(text.contains("below 0 or of 2^31 and more at position 1"), "{text}");
        let text = refused(&safetensors(&[("x", Dtype::F32, &[0; 4])]));
        assert!(text.contains("type F32"), "{text}");
        let text = refused(&safetensors(&[("x", Dtype::U8, &[0]), ("y", Dtype::U8, &[0])]));
        assert!(text.contains("2 tensors and none is named `tokens`"), "{text}");
        assert!(refused(b"text").contains("is not a safetensors file"));
        let missing = read(Path::new("no/such.txt")).unwrap_err().to_string();
        assert!(missing.contains("cannot be read") && missing.contains(".u16"), "{missing}");
    }
}
