//! A checkpoint: a folder with weights, optimizer state, sizes and where training stood.
//!
//! Transformers reads the folder as a model. It is written beside its place and then renamed, so a
//! crash leaves the old one or the new one, never half of one. Batches are a function of the step,
//! so the next step is all that is needed to go on where it stopped.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::weights::{self, MODEL_FILE, read_file, read_tensors, tensor_bytes};
use super::{CheckpointError, Tensors};
use crate::config::{ConfigError, Model, Scenario};

const OPTIMIZER_FILE: &str = "optimizer.safetensors";
const CONFIG_FILE: &str = "config.json";
const STATE_FILE: &str = "state.toml";
/// How the moments are called in the optimizer's file: `moment1.NAME`.
const MOMENTS: [&str; 2] = ["moment1.", "moment2."];

/// Everything that training needs to go on, in any layout.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// Sizes of the model.
    pub model: Model,
    /// All weights.
    pub weights: Tensors,
    /// First and second moments of `AdamW`; empty for SGD.
    pub moments: [Tensors; 2],
    /// Where training stood.
    pub state: State,
}

/// Where training stood and with which settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Version of the program that wrote it.
    pub version: String,
    /// The next step to run, from 0: so many steps are in the weights.
    pub step: u64,
    /// The settings; their paths are absolute.
    pub scenario: Scenario,
}

impl State {
    /// The state before a step, written by this program.
    pub fn new(step: u64, scenario: Scenario) -> Self {
        Self { version: env!("CARGO_PKG_VERSION").to_owned(), step, scenario }
    }
}

impl Checkpoint {
    /// Finds out before a long run whether a checkpoint can be written to `folder`.
    ///
    /// # Errors
    /// If the folder holds something else or cannot be made.
    pub fn prepare(folder: &Path) -> Result<(), CheckpointError> {
        refuse_to_replace_other_things(folder)?;
        let part = sibling(folder, ".part")?;
        let made = fs::create_dir_all(&part).and_then(|()| remove_folder(&part));
        made.map_err(|source| CheckpointError::File {
            path: folder.to_owned(),
            what: "the checkpoint cannot be written",
            source,
            remedy: "Choose another folder with --checkpoint".into(),
        })
    }

    /// Writes the checkpoint into a folder, in place of an older checkpoint.
    ///
    /// # Errors
    /// If the folder holds anything else, or if the system refuses to write.
    pub fn write(&self, folder: &Path) -> Result<(), CheckpointError> {
        refuse_to_replace_other_things(folder)?;
        let (part, old) = (sibling(folder, ".part")?, sibling(folder, ".old")?);
        let refused = |what| {
            let path = folder.to_owned();
            move |source| CheckpointError::File {
                path,
                what,
                source,
                remedy: "Make room or choose another folder with --checkpoint".into(),
            }
        };
        let files = self.files()?;
        let write_part = || -> io::Result<()> {
            remove_folder(&part)?;
            fs::create_dir_all(&part)?;
            for (name, bytes) in &files {
                let mut file = fs::File::create(part.join(name))?;
                file.write_all(bytes)?;
                file.sync_all()?;
            }
            sync_folder(&part)
        };
        write_part().map_err(refused("the checkpoint cannot be written"))?;
        let replace = || -> io::Result<()> {
            if folder.exists() {
                // Where there is a new one, an older leftover of a crash is of no use.
                remove_folder(&old)?;
                fs::rename(folder, &old)?;
            }
            fs::rename(&part, folder)?;
            sync_folder(folder.parent().unwrap_or(Path::new(".")))?;
            remove_folder(&old)
        };
        replace().map_err(refused("the new checkpoint cannot take the place of the old one"))
    }

    /// Reads a checkpoint.
    ///
    /// # Errors
    /// If the folder is no checkpoint, or if a file is missing, damaged or does not fit the model.
    pub fn read(folder: &Path) -> Result<Self, CheckpointError> {
        let old = sibling(folder, ".old")?;
        // Writing was interrupted between its two renames: the old one is whole.
        let folder = if !folder.exists() && old.exists() { &old } else { folder };
        let state = read_state(&folder.join(STATE_FILE))?;
        let model = Model::read_config_json(&folder.join(CONFIG_FILE))?;
        let weights = weights::load_weights(&folder.join(MODEL_FILE), &model)?;
        let mut checkpoint = Self { model, weights, moments: Default::default(), state };
        let path = folder.join(OPTIMIZER_FILE);
        let all = read_tensors(&path)?;
        for (prefix, moment) in MOMENTS.into_iter().zip(&mut checkpoint.moments) {
            let own: Tensors = all
                .iter()
                .filter_map(|(name, tensor)| {
                    Some((name.strip_prefix(prefix)?.to_owned(), tensor.clone()))
                })
                .collect();
            if !own.is_empty() {
                *moment = weights::fit(own, &checkpoint.model, &path)?;
            }
        }
        Ok(checkpoint)
    }

    /// Names and contents of the files.
    fn files(&self) -> Result<Vec<(&'static str, Vec<u8>)>, CheckpointError> {
        let mut state = self.state.clone();
        let here = std::env::current_dir().unwrap_or_default();
        state.scenario.join_paths(&here);
        // Says in words what TOML cannot hold: then the state can be written.
        state.scenario.to_toml()?;
        let state = toml::to_string(&state).expect("a scenario that can be written, and a step");
        let moments = MOMENTS.into_iter().zip(&self.moments).flat_map(|(prefix, moment)| {
            moment.iter().map(move |(name, tensor)| (format!("{prefix}{name}"), tensor))
        });
        Ok(vec![
            (MODEL_FILE, tensor_bytes(self.weights.iter().map(|(name, t)| (name.clone(), t)))),
            (OPTIMIZER_FILE, tensor_bytes(moments)),
            (CONFIG_FILE, self.model.to_config_json(self.state.scenario.training.seq).into()),
            (STATE_FILE, state.into()),
        ])
    }
}

fn read_state(path: &Path) -> Result<State, CheckpointError> {
    if !path.is_file() {
        return Err(CheckpointError::Format {
            path: path.parent().unwrap_or(path).to_owned(),
            why: format!("is no checkpoint: there is no {STATE_FILE}"),
            remedy:
                "Give a folder that `train --checkpoint` wrote; `train --model` starts from weights alone"
                    .into(),
        });
    }
    let damaged = |why: String| CheckpointError::Format {
        path: path.to_owned(),
        why: format!("cannot be understood ({why})"),
        remedy: "Use the version of shardlab that wrote it, or start from the weights with --model"
            .into(),
    };
    let text = String::from_utf8(read_file(path)?).map_err(|error| damaged(error.to_string()))?;
    let state: State =
        toml::from_str(&text).map_err(|error| damaged(error.message().to_owned()))?;
    ConfigError::collect(state.scenario.check())?;
    Ok(state)
}

/// `FOLDER.part` beside `FOLDER`.
fn sibling(folder: &Path, ending: &str) -> Result<PathBuf, CheckpointError> {
    let Some(name) = folder.file_name() else {
        return Err(CheckpointError::Format {
            path: folder.to_owned(),
            why: "is no name for a checkpoint".into(),
            remedy: "Give a folder of its own, such as checkpoints/run1".into(),
        });
    };
    let mut name = name.to_owned();
    name.push(ending);
    Ok(folder.with_file_name(name))
}

/// A folder is only replaced if it is a checkpoint or empty.
fn refuse_to_replace_other_things(folder: &Path) -> Result<(), CheckpointError> {
    let empty = || fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none());
    if !folder.exists() || folder.join(STATE_FILE).is_file() || folder.is_dir() && empty() {
        return Ok(());
    }
    Err(CheckpointError::Format {
        path: folder.to_owned(),
        why: "holds something that is no checkpoint, and writing one would replace it".into(),
        remedy: "Choose another folder with --checkpoint".into(),
    })
}

fn remove_folder(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Makes renames in a folder last. Only Unix opens folders as files; elsewhere renames are enough.
fn sync_folder(folder: &Path) -> io::Result<()> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    if cfg!(unix) { fs::File::open(folder)?.sync_all() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::init;
    use crate::config::{Data, ModelSource};

    fn checkpoint(step: u64) -> Checkpoint {
        let model = Model::preset("tiny").unwrap();
        let moments = [2, 3].map(|seed| init::weights(seed, &model));
        let mut scenario = Scenario::quickstart();
        scenario.model = ModelSource::Preset("tiny".into());
        Checkpoint {
            weights: init::weights(1, &model),
            model,
            moments,
            state: State::new(step, scenario),
        }
    }

    #[test]
    fn a_checkpoint_survives_to_the_bit_and_replaces_the_one_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/run");
        let (mut first, second) = (checkpoint(5), checkpoint(10));
        first.weights.get_mut("model.norm.weight").unwrap().data[3] = -0.0;
        first.moments[1].get_mut("model.norm.weight").unwrap().data[0] = f32::MIN_POSITIVE / 2.0;
        for checkpoint in [&first, &second, &first] {
            checkpoint.write(&path).unwrap();
            let read = Checkpoint::read(&path).unwrap();
            assert_eq!(&read, checkpoint);
            let norm = &read.weights["model.norm.weight"].data[3];
            assert_eq!(norm.to_bits(), checkpoint.weights["model.norm.weight"].data[3].to_bits());
        }
        let left: Vec<_> = fs::read_dir(path.parent().unwrap()).unwrap().collect();
        assert_eq!(left.len(), 1, "only the checkpoint is left: {left:?}");
    }

    #[test]
    fn sgd_has_no_moments_and_paths_become_absolute() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        let mut checkpoint = checkpoint(1);
        checkpoint.moments = Default::default();
        checkpoint.state.scenario.data = Data::File("some.txt".into());
        checkpoint.write(&path).unwrap();
        let read = Checkpoint::read(&path).unwrap();
        assert_eq!(read.moments, checkpoint.moments);
        let Data::File(data) = read.state.scenario.data else { panic!("the data is a file") };
        assert!(data.is_absolute() && data.ends_with("some.txt"), "{data:?}");
    }

    #[test]
    fn a_folder_with_something_else_is_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("thesis.tex"), "years of work").unwrap();
        let error = checkpoint(1).write(folder.path()).unwrap_err().to_string();
        assert!(error.contains("holds something that is no checkpoint"), "{error}");
        assert!(folder.path().join("thesis.tex").is_file());
        let file = folder.path().join("thesis.tex");
        assert!(checkpoint(1).write(&file).is_err());
        assert!(checkpoint(1).write(Path::new("..")).is_err());
        // An empty folder may become a checkpoint.
        let empty = folder.path().join("empty");
        fs::create_dir(&empty).unwrap();
        checkpoint(1).write(&empty).unwrap();
    }

    #[test]
    fn an_interrupted_write_leaves_a_checkpoint_that_can_be_read_and_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        checkpoint(5).write(&path).unwrap();
        // Half of a new one was written, then the old one was moved away, then the power failed.
        let part = folder.path().join("run.part");
        fs::create_dir(&part).unwrap();
        fs::write(part.join(MODEL_FILE), "half").unwrap();
        assert_eq!(Checkpoint::read(&path).unwrap().state.step, 5);
        fs::rename(&path, folder.path().join("run.old")).unwrap();
        assert_eq!(Checkpoint::read(&path).unwrap().state.step, 5);
        checkpoint(6).write(&path).unwrap();
        assert_eq!(Checkpoint::read(&path).unwrap().state.step, 6);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn damage_is_refused_with_the_file_and_what_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        let refusal = |damage: &dyn Fn()| {
            checkpoint(5).write(&path).unwrap();
            damage();
            Checkpoint::read(&path).unwrap_err().to_string()
        };
        let file = path.join(OPTIMIZER_FILE);
        let text = refusal(&|| {
            fs::File::options().write(true).open(&file).unwrap().set_len(5000).unwrap();
        });
        assert!(
            text.contains("optimizer.safetensors: is cut off or no safetensors file: 5000 bytes"),
            "{text}"
        );
        let text = refusal(&|| fs::remove_file(&file).unwrap());
        assert!(text.contains("optimizer.safetensors: cannot be read"), "{text}");
        let text = refusal(&|| fs::write(path.join(STATE_FILE), "step = 3").unwrap());
        assert!(text.contains("state.toml: cannot be understood (missing field"), "{text}");
        let text = refusal(&|| {
            let model = Model { hidden_size: 64, ..Model::preset("tiny").unwrap() };
            fs::write(path.join(CONFIG_FILE), model.to_config_json(8)).unwrap();
        });
        assert!(text.contains("model.embed_tokens.weight is [256, 32], not [256, 64]"), "{text}");
        let mut lacking = checkpoint(5);
        lacking.moments[1].remove("lm_head.weight");
        lacking.write(&path).unwrap();
        let text = Checkpoint::read(&path).unwrap_err().to_string();
        assert!(text.contains("optimizer.safetensors: missing lm_head.weight"), "{text}");
        let text = Checkpoint::read(folder.path()).unwrap_err().to_string();
        assert!(text.contains("is no checkpoint: there is no state.toml"), "{text}");
    }
}
