//! Files of weights: safetensors with Hugging Face names, one file or several with an index.
//!
//! f32 is read as it is; bf16 and f16 are widened, which is exact. A folder's weights must be those
//! of the model: no tensor may be missing, of another shape, or left over.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use safetensors::{Dtype, SafeTensors, View};
use serde::Deserialize;

use super::{CheckpointError, Tensor, Tensors, first_few, misfit};
use crate::config::Model;
use crate::shape::Shape;

/// The file of weights in a folder.
pub(super) const MODEL_FILE: &str = "model.safetensors";
/// The list of files, where the weights are in several.
const INDEX_FILE: &str = "model.safetensors.index.json";

/// Reads a model's weights from a safetensors file or a folder with `model.safetensors` or
/// `model.safetensors.index.json`.
///
/// # Errors
/// If there are none, if a file is damaged, or if the tensors are not those of the model.
pub fn load_weights(path: &Path, model: &Model) -> Result<Tensors, CheckpointError> {
    let tensors = if path.is_dir() { read_folder(path)? } else { read_tensors(path)? };
    fit(tensors, model, path)
}

/// Reads all tensors of a safetensors file as f32.
///
/// # Errors
/// If the file cannot be read, is damaged, or holds elements of another type.
pub fn read_tensors(path: &Path) -> Result<Tensors, CheckpointError> {
    let bytes = read_file(path)?;
    let file = parse(path, &bytes)?;
    file.tensors()
        .into_iter()
        .map(|(name, view)| {
            let data =
                floats(view.dtype(), view.data()).ok_or_else(|| CheckpointError::Format {
                    path: path.to_owned(),
                    why: format!("{name} has elements of type {:?}", view.dtype()),
                    remedy: "Use f32, bf16 or f16 weights".into(),
                })?;
            Ok((name, Tensor { shape: shape(view.shape()), data }))
        })
        .collect()
}

/// The bytes of a safetensors file that holds the tensors as f32.
///
/// # Panics
/// If the data of a tensor does not fill its shape.
pub fn tensor_bytes<'a>(tensors: impl IntoIterator<Item = (String, &'a Tensor)>) -> Vec<u8> {
    let views = tensors.into_iter().map(|(name, tensor)| (name, TensorView::new(tensor)));
    // What transformers asks for: the tensors have PyTorch's layout.
    let format = std::iter::once(("format".to_owned(), "pt".to_owned())).collect();
    safetensors::serialize(views, Some(format)).expect("names are text and data fills the shapes")
}

/// A tensor as the safetensors crate wants to see it; bytes are made one tensor at a time.
struct TensorView<'a> {
    shape: Vec<usize>,
    data: &'a [f32],
}

impl<'a> TensorView<'a> {
    fn new(tensor: &'a Tensor) -> Self {
        let shape = tensor.shape.0.iter().map(|dim| *dim as usize).collect();
        Self { shape, data: &tensor.data }
    }
}

impl View for TensorView<'_> {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }
    fn shape(&self) -> &[usize] {
        &self.shape
    }
    fn data(&self) -> Cow<'_, [u8]> {
        self.data.iter().flat_map(|value| value.to_le_bytes()).collect()
    }
    fn data_len(&self) -> usize {
        self.data.len() * 4
    }
}

/// Reads the one or several files of a folder.
fn read_folder(folder: &Path) -> Result<Tensors, CheckpointError> {
    let (single, index) = (folder.join(MODEL_FILE), folder.join(INDEX_FILE));
    if single.is_file() || !index.is_file() {
        return read_tensors(&single);
    }
    /// `model.safetensors.index.json`.
    #[derive(Deserialize)]
    struct Index {
        /// Which file holds which tensor.
        weight_map: BTreeMap<String, PathBuf>,
    }
    let text = read_file(&index)?;
    let Index { weight_map } =
        serde_json::from_slice(&text).map_err(|error| CheckpointError::Format {
            path: index.clone(),
            why: format!("is no list of weight files ({error})"),
            remedy: "Download it again".into(),
        })?;
    let files: BTreeSet<&PathBuf> = weight_map.values().collect();
    let mut tensors = Tensors::new();
    for file in files {
        let part = read_tensors(&folder.join(file))?;
        tensors.extend(part.into_iter().filter(|(name, _)| weight_map.get(name) == Some(file)));
    }
    let lost: Vec<String> =
        weight_map.into_keys().filter(|name| !tensors.contains_key(name)).collect();
    if !lost.is_empty() {
        return Err(CheckpointError::Format {
            path: index,
            why: format!("lists tensors that are not in their files: {}", first_few(&lost)),
            remedy: "Download the folder again".into(),
        });
    }
    Ok(tensors)
}

/// The tensors of the model, if they are all there and nothing else is.
pub(super) fn fit(
    mut tensors: Tensors,
    model: &Model,
    path: &Path,
) -> Result<Tensors, CheckpointError> {
    // Some files repeat what the configuration says: tables of angles, the tied matrix.
    tensors.retain(|name, _| {
        !(name.ends_with("rotary_emb.inv_freq")
            || model.tie_word_embeddings && name == "lm_head.weight")
    });
    let needed = model.tensors();
    let mut why = misfit(&tensors, needed.iter().map(|(name, shape)| (name.as_str(), shape)));
    if why.is_none() && tensors.len() > needed.len() {
        let names: BTreeSet<&str> = needed.iter().map(|(name, _)| name.as_str()).collect();
        let extra = tensors.keys().filter(|name| !names.contains(name.as_str()));
        let extra: Vec<String> = extra.cloned().collect();
        why = Some(format!("the model has no {}", first_few(&extra)));
    }
    match why {
        None => Ok(tensors),
        Some(why) => Err(CheckpointError::Tensors {
            source_name: path.display().to_string(),
            why,
            remedy: "Use the config.json that belongs to these weights".into(),
        }),
    }
}

/// Reads a whole file.
pub(super) fn read_file(path: &Path) -> Result<Vec<u8>, CheckpointError> {
    std::fs::read(path).map_err(|source| CheckpointError::File {
        path: path.to_owned(),
        what: "cannot be read",
        source,
        remedy: format!("Give a folder with {MODEL_FILE}, or a safetensors file"),
    })
}

/// Parses a safetensors file, with an error that says what a person can do.
pub(super) fn parse<'a>(path: &Path, bytes: &'a [u8]) -> Result<SafeTensors<'a>, CheckpointError> {
    use safetensors::SafeTensorError::{
        HeaderTooSmall, InvalidHeaderLength, MetadataIncompleteBuffer,
    };
    SafeTensors::deserialize(bytes).map_err(|error| {
        let cut = matches!(error, HeaderTooSmall | InvalidHeaderLength | MetadataIncompleteBuffer);
        let what = if cut { "is cut off or" } else { "is damaged or" };
        CheckpointError::Format {
            path: path.to_owned(),
            why: format!("{what} no safetensors file: {} bytes, {error}", bytes.len()),
            remedy: "Copy or download it again".into(),
        }
    })
}

/// The project's shape of a file's shape.
pub(super) fn shape(dims: &[usize]) -> Shape {
    Shape(dims.iter().map(|dim| *dim as u64).collect())
}

/// Little-endian elements as f32; `None` if they are of a type that is not read.
fn floats(dtype: Dtype, bytes: &[u8]) -> Option<Vec<f32>> {
    let halves = || bytes.as_chunks::<2>().0.iter().map(|half| u16::from_le_bytes(*half));
    match dtype {
        Dtype::F32 => {
            Some(bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect())
        }
        Dtype::BF16 => Some(halves().map(|half| f32::from_bits(u32::from(half) << 16)).collect()),
        Dtype::F16 => Some(halves().map(f32_from_f16).collect()),
        _ => None,
    }
}

/// The value of an IEEE half, exactly.
fn f32_from_f16(bits: u16) -> f32 {
    let (exponent, fraction) = ((bits >> 10) & 0x1f, f32::from(bits & 0x3ff));
    let size = match exponent {
        0 => fraction * 2f32.powi(-24),
        0x1f if fraction == 0.0 => f32::INFINITY,
        0x1f => f32::NAN,
        _ => (1024.0 + fraction) * 2f32.powi(i32::from(exponent) - 25),
    };
    if bits & 0x8000 == 0 { size } else { -size }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::init::weights;

    fn tiny() -> (Model, Tensors) {
        let model = Model::preset("tiny").unwrap();
        let tensors = weights(1, &model);
        (model, tensors)
    }

    fn bytes(tensors: &Tensors) -> Vec<u8> {
        tensor_bytes(tensors.iter().map(|(name, tensor)| (name.clone(), tensor)))
    }

    fn refused(tensors: &Tensors, model: &Model) -> String {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(MODEL_FILE), bytes(tensors)).unwrap();
        load_weights(folder.path(), model).unwrap_err().to_string()
    }

    #[test]
    fn weights_survive_a_file_to_the_bit() {
        let (model, tensors) = tiny();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(MODEL_FILE);
        std::fs::write(&file, bytes(&tensors)).unwrap();
        assert_eq!(load_weights(folder.path(), &model).unwrap(), tensors);
        assert_eq!(load_weights(&file, &model).unwrap(), tensors);
    }

    #[test]
    fn weights_in_several_files_are_put_together_by_their_index() {
        let (model, tensors) = tiny();
        let folder = tempfile::tempdir().unwrap();
        let mut map = BTreeMap::new();
        for part in 0..3 {
            let file = format!("model-{part}.safetensors");
            let (_, share): (Vec<_>, Tensors) = tensors
                .iter()
                .enumerate()
                .filter(|(i, _)| i % 3 == part)
                .map(|(i, (name, tensor))| (i, (name.clone(), tensor.clone())))
                .unzip();
            map.extend(share.keys().map(|name| (name.clone(), file.clone())));
            std::fs::write(folder.path().join(file), bytes(&share)).unwrap();
        }
        let write_index = |map: &BTreeMap<String, String>| {
            let index = serde_json::json!({"metadata": {}, "weight_map": map}).to_string();
            std::fs::write(folder.path().join(INDEX_FILE), index).unwrap();
        };
        write_index(&map);
        assert_eq!(load_weights(folder.path(), &model).unwrap(), tensors);
        map.insert("ghost".into(), "model-0.safetensors".into());
        write_index(&map);
        let error = load_weights(folder.path(), &model).unwrap_err().to_string();
        assert!(error.contains("not in their files: ghost"), "{error}");
    }

    #[test]
    fn halves_are_widened_exactly() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("w.safetensors");
        let read = |dtype, halves: &[u16]| {
            let data: Vec<u8> = halves.iter().flat_map(|half| half.to_le_bytes()).collect();
            let view = safetensors::tensor::TensorView::new(dtype, vec![halves.len()], &data);
            let bytes = safetensors::serialize([("w", view.unwrap())], None).unwrap();
            std::fs::write(&file, bytes).unwrap();
            read_tensors(&file).map(|tensors| tensors["w"].data.clone())
        };
        assert_eq!(read(Dtype::BF16, &[0x3f80, 0xc049, 0]).unwrap(), [1.0, -3.140625, 0.0]);
        // One, −2, the largest, the smallest normal, the smallest, 1/3, infinity.
        let halves = [0x3c00, 0xc000, 0x7bff, 0x0400, 0x0001, 0x3555, 0xfc00];
        let expected =
            [1.0, -2.0, 65504.0, 2f32.powi(-14), 2f32.powi(-24), 0.333_251_95, f32::NEG_INFINITY];
        assert_eq!(read(Dtype::F16, &halves).unwrap(), expected);
        assert!(read(Dtype::F16, &[0x7e00]).unwrap()[0].is_nan());
        let error = read(Dtype::I16, &[1]).unwrap_err().to_string();
        assert!(error.contains("w has elements of type I16. Use f32, bf16 or f16"), "{error}");
    }

    #[test]
    fn tensors_that_are_not_the_models_are_refused_by_name() {
        let (model, tensors) = tiny();
        let mut missing = tensors.clone();
        missing.remove("model.norm.weight");
        assert!(refused(&missing, &model).contains("missing model.norm.weight"));
        let wider = Model { intermediate_size: 65, ..model.clone() };
        let text = refused(&tensors, &wider);
        assert!(text.contains("down_proj.weight is [32, 64], not [32, 65]"), "{text}");
        assert!(text.contains("and 2 more"), "{text}");
        let shallower = Model { num_hidden_layers: 1, ..model.clone() };
        let text = refused(&tensors, &shallower);
        assert!(text.contains("the model has no model.layers.1."), "{text}");
        // A tied model may bring the copy of its matrix along.
        let tied = Model { tie_word_embeddings: true, ..model };
        assert!(!fit(tensors, &tied, Path::new("x")).unwrap().contains_key("lm_head.weight"));
    }

    #[test]
    fn files_that_are_cut_off_damaged_or_absent_are_refused_in_words() {
        let (model, tensors) = tiny();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(MODEL_FILE);
        let whole = bytes(&tensors);
        for len in [0, 7, 100, whole.len() / 2, whole.len() - 1] {
            std::fs::write(&file, &whole[..len]).unwrap();
            let error = load_weights(&file, &model).unwrap_err().to_string();
            assert!(error.contains(&format!("is cut off or no safetensors file: {len} bytes")));
            assert!(error.contains("model.safetensors"), "{error}");
        }
        let mut damaged = whole;
        damaged[9] = b'?';
        std::fs::write(&file, damaged).unwrap();
        let error = load_weights(&file, &model).unwrap_err().to_string();
        assert!(error.contains("is damaged"), "{error}");
        std::fs::remove_file(&file).unwrap();
        let error = load_weights(folder.path(), &model).unwrap_err().to_string();
        assert!(error.contains("model.safetensors: cannot be read"), "{error}");
    }
}
