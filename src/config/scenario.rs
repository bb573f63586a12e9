//! A scenario: everything that a run needs, in one TOML file.
//!
//! Reading is strict: unknown keys are refused by name, with their line and the nearest known key,
//! and all faults are told at once; a window that must open all the same leaves them out and tells
//! them. The table `view` says what a window looks like: it is no business of a run. Relative paths
//! in a file are relative to that file. Writing and reading back gives an equal scenario.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use toml::Table;
use toml::de::{DeTable, DeValue, Deserializer};

use super::error::nearest;
use super::{ConfigError, Layout, Model, ModelSource, ScheduleName, Training};

/// Everything that a run needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Scenario {
    /// A name for people.
    pub name: String,
    /// Where the model's sizes come from.
    pub model: ModelSource,
    /// The parallel layout.
    #[serde(default)]
    pub layout: Layout,
    /// Training settings.
    #[serde(default)]
    pub training: Training,
    /// What is trained on.
    #[serde(default)]
    pub data: Data,
}

/// What is trained on. In a scenario: `data = "shakespeare"` or `data.file = "PATH"`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Data {
    /// The Shakespeare text that is built into the program, bytes as tokens.
    #[default]
    Shakespeare,
    /// A text file (bytes as tokens) or a token file.
    File(PathBuf),
}

impl Scenario {
    /// The built-in scenario: what `shardlab` trains when it is given nothing.
    ///
    /// # Panics
    /// Never: a test reads the built-in file.
    pub fn quickstart() -> Self {
        let text = include_str!("../../assets/scenarios/quickstart.toml");
        parse(text, "quickstart.toml").expect("the built-in scenario is right")
    }

    /// Reads a scenario file; its relative paths become absolute.
    ///
    /// # Errors
    /// If the file cannot be read, or for the reasons of [`Scenario::parse`].
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let unreadable = |source| ConfigError::File {
            path: path.to_owned(),
            source,
            remedy: "Give a scenario file (TOML), or none for the quickstart".into(),
        };
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        let mut scenario = parse(&text, &path.display().to_string())?;
        let file = std::path::absolute(path).map_err(unreadable)?;
        scenario.join_paths(file.parent().unwrap_or(Path::new("/")));
        Ok(scenario)
    }

    /// Reads the text of the scenario file `path` and leaves out what is not known: each such key is
    /// told as the error that it is elsewhere. Relative paths become absolute.
    ///
    /// # Errors
    /// If it is not TOML, has wrong types or values that make no sense.
    pub fn parse_known(text: &str, path: &Path) -> Result<(Self, Vec<ConfigError>), ConfigError> {
        let (mut scenario, unknown) = parse_known(text, &path.display().to_string())?;
        let file = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        scenario.join_paths(file.parent().unwrap_or(Path::new("/")));
        Ok((scenario, unknown))
    }

    /// Reads the text of a scenario; relative paths stay as they are.
    ///
    /// # Errors
    /// If it is not TOML, has unknown keys, wrong types or values that make no sense; all faults
    /// of the first of these kinds.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        parse(text, "scenario")
    }

    /// The text of the scenario file, with every setting.
    ///
    /// # Errors
    /// If a path is not UTF-8 or the seed is larger than TOML's integers.
    pub fn to_toml(&self) -> Result<String, ConfigError> {
        toml::to_string(self).map_err(|error| {
            let what = format!("scenario {}", self.name);
            let remedy = "Use paths in UTF-8 and a seed up to 9223372036854775807";
            ConfigError::value(what, format!("cannot be written as TOML ({error})"), remedy)
        })
    }

    /// Puts `base` before each relative path: model folder, data file, schedule file.
    pub fn join_paths(&mut self, base: &Path) {
        if let ModelSource::Dir(path) = &mut self.model {
            *path = base.join(&*path);
        }
        if let Data::File(path) = &mut self.data {
            *path = base.join(&*path);
        }
        if let ScheduleName::File(path) = &mut self.layout.schedule {
            *path = base.join(&*path);
        }
    }

    /// What is wrong with single values; all faults. Files are not looked at.
    pub fn check(&self) -> Vec<ConfigError> {
        let mut faults = match &self.model {
            ModelSource::Preset(name) => Model::preset(name).err().into_iter().collect(),
            ModelSource::Sizes(model) => model.check(),
            ModelSource::Dir(_) => Vec::new(),
        };
        faults.extend(self.layout.check());
        faults.extend(self.training.check());
        faults
    }
}

/// The table that belongs to whoever shows a scenario.
const VIEW: &str = "view";

/// Reads a scenario's text; `file` names it in errors.
fn parse(text: &str, file: &str) -> Result<Scenario, ConfigError> {
    // What is wrong with a value is told after what nobody knows.
    let table = read_table(text, file)?;
    ConfigError::collect(table.unknown)?;
    read_scenario(table.known, text, file)
}

/// The same without what is not known, which is told.
fn parse_known(text: &str, file: &str) -> Result<(Scenario, Vec<ConfigError>), ConfigError> {
    let table = read_table(text, file)?;
    Ok((read_scenario(table.known, text, file)?, table.unknown))
}

/// The table of a file.
struct Parted<'a> {
    known: toml::Spanned<DeTable<'a>>,
    unknown: Vec<ConfigError>,
}

/// Parts what is known from what is not.
fn read_table<'a>(text: &'a str, file: &str) -> Result<Parted<'a>, ConfigError> {
    let mut known = DeTable::parse(text).map_err(|error| faulty(error, text, file))?;
    known.get_mut().remove(VIEW);
    let mut unknown = Vec::new();
    take_unknown_keys(known.get_mut(), &known_keys(), "", &mut |key, offset, why, remedy| {
        let what = format!("{}: `{key}`", place(file, text, offset));
        unknown.push(ConfigError::value(what, why, remedy));
    });
    Ok(Parted { known, unknown })
}

fn read_scenario(
    table: toml::Spanned<DeTable<'_>>,
    text: &str,
    file: &str,
) -> Result<Scenario, ConfigError> {
    let scenario = Scenario::deserialize(Deserializer::from(table))
        .map_err(|error| faulty(error, text, file))?;
    ConfigError::collect(scenario.check())?;
    Ok(scenario)
}

fn faulty(error: toml::de::Error, text: &str, file: &str) -> ConfigError {
    let at = place(file, text, error.span().map_or(0, |span| span.start));
    ConfigError::value(at, error.message(), "Correct the line")
}

/// `FILE, line N` of a byte offset in the text.
fn place(file: &str, text: &str, offset: usize) -> String {
    let before = text.as_bytes().iter().take(offset);
    format!("{file}, line {}", 1 + before.filter(|byte| **byte == b'\n').count())
}

/// Every key that a scenario can have, as a table: written from the types themselves, with all
/// optional settings given and the forms of `model` and `data` side by side.
fn known_keys() -> Table {
    let layout = Layout { node_size: Some(1), stage_units: Some(vec![1]), ..Layout::default() };
    let model = Model::preset("tiny").expect("a built-in preset");
    let table = |value: Result<Table, toml::ser::Error>| value.expect("settings are always TOML");
    let full = Scenario {
        name: String::new(),
        model: ModelSource::Sizes(model),
        layout,
        training: Training::default(),
        data: Data::File(PathBuf::new()),
    };
    let mut keys = table(Table::try_from(full));
    for other in [ModelSource::Preset(String::new()), ModelSource::Dir(PathBuf::new())] {
        if let Some(toml::Value::Table(model)) = keys.get_mut("model") {
            model.extend(table(Table::try_from(other)));
        }
    }
    keys
}

/// Takes each key out of `table` that `known` does not have and reports it: key, byte offset, why,
/// what to do.
fn take_unknown_keys(
    table: &mut DeTable<'_>,
    known: &Table,
    path: &str,
    report: &mut dyn FnMut(&str, usize, String, String),
) {
    let mut unknown = Vec::new();
    for (key, value) in table.iter_mut() {
        let name: &str = key.get_ref();
        match (known.get(name), value.get_mut()) {
            (Some(toml::Value::Table(known)), DeValue::Table(inner)) => {
                take_unknown_keys(inner, known, &format!("{path}{name}."), report);
            }
            (Some(_), _) => {}
            (None, _) => {
                let keys: Vec<&str> = known.keys().map(String::as_str).collect();
                let room = path.strip_suffix('.').map_or("a scenario".into(), |p| format!("[{p}]"));
                let near = nearest(name, keys.iter().copied());
                let near = near.map_or(String::new(), |near| format!("Did you mean `{near}`? "));
                let remedy = format!("{near}Known: {}", keys.join(", "));
                report(name, key.span().start, format!("is no key of {room}"), remedy);
                unknown.push(name.to_owned());
            }
        }
    }
    for name in unknown {
        table.remove(name.as_str());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{CollectiveChoice, Recompute, ZeroStage};
    use crate::mesh::RankOrder;

    fn error(text: &str) -> String {
        Scenario::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn the_quickstart_is_what_the_design_says() {
        let scenario = Scenario::quickstart();
        let Layout { dp, tp, pp, zero, microbatches, .. } = scenario.layout;
        assert_eq!((dp, tp, pp, zero, microbatches), (2, 2, 2, ZeroStage::Zero1, 4));
        let Training { steps, batch, seq, .. } = scenario.training;
        assert_eq!((steps, batch, seq), (200, 32, 128));
        assert_eq!(scenario.data, Data::Shakespeare);
        assert!(scenario.model.resolve().unwrap().parameter_count() > 500_000);
    }

    #[test]
    fn a_scenario_survives_being_written_and_read() {
        let quickstart = Scenario::quickstart();
        assert_eq!(Scenario::parse(&quickstart.to_toml().unwrap()).unwrap(), quickstart);
        // Every setting away from its default.
        let full = Scenario {
            name: "all \"of\" it".into(),
            model: ModelSource::Sizes(Model {
                rope_theta: 1.0 / 3.0,
                rms_norm_eps: 1.0 / 3.0,
                tie_word_embeddings: true,
                ..Model::preset("tiny").unwrap()
            }),
            layout: Layout {
                dp: 3,
                tp: 4,
                pp: 5,
                chunks: 2,
                zero: ZeroStage::Zero3,
                schedule: ScheduleName::File("a/b.csv".into()),
                microbatches: 7,
                sequence_parallel: true,
                recompute: Recompute::Selective,
                collective: CollectiveChoice::Direct,
                overlap: false,
                rank_order: RankOrder::TpPpDp,
                bucket_bytes: 12,
                chunk_bytes: 16,
                node_size: Some(8),
                stage_units: Some(vec![1, 2, 3]),
            },
            training: Training {
                lr: 1.0 / 3.0,
                beta1: 0.1,
                beta2: f32::from_bits(0x3f7f_ffff), // the largest below 1
                eps: f32::MIN_POSITIVE,
                seed: i64::MAX as u64,
                ..Training::default()
            },
            data: Data::File("text.txt".into()),
        };
        assert_eq!(Scenario::parse(&full.to_toml().unwrap()).unwrap(), full);
        let folder = Scenario { model: ModelSource::Dir("x".into()), ..full };
        assert_eq!(Scenario::parse(&folder.to_toml().unwrap()).unwrap(), folder);
    }

    #[test]
    fn unknown_keys_are_all_refused_with_line_and_nearest_key() {
        let text = "name = \"x\"\nmodel.preset = \"tiny\"\n[layout]\nmicrobatchs = 2\n\
                    [training]\nlearning-rate = 1.0\n[optimizer]\nkind = 1\n";
        let text = error(text);
        assert!(
            text.contains(
                "line 4: `microbatchs`: is no key of [layout]. Did you mean `microbatches`?"
            ),
            "{text}"
        );
        assert!(
            text.contains("line 6: `learning-rate`: is no key of [training]. Known: "),
            "{text}"
        );
        assert!(text.contains("line 7: `optimizer`: is no key of a scenario"), "{text}");
        let text = error("name = \"x\"\n[model]\nprest = \"tiny\"");
        assert!(text.contains("is no key of [model]. Did you mean `preset`?"), "{text}");
        assert!(text.contains("dir, preset, sizes"), "{text}");
        let text = error("name = \"x\"\n[model.sizes]\nhidden-sizes = 3");
        assert!(text.contains("[model.sizes]. Did you mean `hidden_size`?"), "{text}");
    }

    #[test]
    fn a_window_leaves_out_what_is_not_known_and_its_own_table_is_no_fault_anywhere() {
        let head = "name = \"x\"\nmodel.preset = \"tiny\"\n";
        let view = format!("{head}[view]\nscheme = \"dark\"\nanything.at = [\"all\"]\n");
        let plain = Scenario::parse(head).unwrap();
        assert_eq!(Scenario::parse(&view).unwrap(), plain);
        let text = format!("{head}later = 1\n[layout]\ndp = 2\nmicrobatchs = 3\n");
        let (scenario, unknown) = Scenario::parse_known(&text, Path::new("s.toml")).unwrap();
        assert_eq!((scenario.layout.dp, unknown.len()), (2, 2));
        let told: Vec<String> = unknown.iter().map(ToString::to_string).collect();
        assert!(told.iter().any(|text| text.contains("s.toml, line 3: `later`")), "{told:?}");
        assert!(told.iter().any(|text| text.contains("line 6: `microbatchs`")), "{told:?}");
        assert!(Scenario::parse(&text).is_err());
        assert!(Scenario::parse_known("name = 3", Path::new("s.toml")).is_err());
    }

    #[test]
    fn wrong_types_and_values_are_refused_with_their_place() {
        let head = "name = \"x\"\nmodel.preset = \"tiny\"\n";
        let text = error(&format!("{head}[layout]\ndp = \"two\""));
        assert!(text.contains("line 4: invalid type: string \"two\", expected u32"), "{text}");
        let text = error(&format!("{head}[layout]\nschedule = \"gpip\""));
        assert!(text.contains("Did you mean `gpipe`?"), "{text}");
        let text = error(&format!("{head}[layout]\nzero = 4"));
        assert!(text.contains("ZeRO stage 4 does not exist"), "{text}");
        let text = error(&format!("{head}[layout]\ndp = 0\n[training]\nlr = -1.0"));
        assert!(text.contains("dp: is 0") && text.contains("lr: -1"), "{text}");
        let text = error("name = \"x\"\nmodel.preset = \"tini\"");
        assert!(text.contains("Did you mean `tiny`?"), "{text}");
        assert!(error("name = ").contains("line 1"));
        assert!(error("name = \"x\"").contains("model"));
    }

    #[test]
    fn relative_paths_are_relative_to_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.toml");
        std::fs::write(
            &path,
            "name = \"x\"\nmodel.dir = \"m\"\ndata.file = \"d.txt\"\nlayout.schedule = \"z.csv\"",
        )
        .unwrap();
        let scenario = Scenario::read(&path).unwrap();
        assert_eq!(scenario.model, ModelSource::Dir(folder.path().join("m")));
        assert_eq!(scenario.data, Data::File(folder.path().join("d.txt")));
        assert_eq!(scenario.layout.schedule, ScheduleName::File(folder.path().join("z.csv")));
        let missing = Scenario::read(&folder.path().join("none.toml")).unwrap_err().to_string();
        assert!(missing.contains("none.toml: cannot be read"), "{missing}");
    }
}
