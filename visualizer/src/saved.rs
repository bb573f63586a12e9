//! What is kept between two starts: scenario, view and choices, as one TOML file.
//!
//! It is written at each change and when the window closes, beside and then renamed, so that no
//! crash loses it. What a later version wrote and this one does not know is told, not refused.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use shardlab::config::Scenario;

use crate::export;
use crate::play::WhilePaused;
use crate::style::{Distance, Scheme};
use crate::zones::Dividers;

/// All that is kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Saved {
    /// Which form the file has.
    pub schema: u32,
    /// What the window looks like.
    pub view: View,
    /// What was trained last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scenario: Option<Scenario>,
}

/// What the window looks like.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct View {
    /// Light, dark, or as the system.
    pub scheme: Scheme,
    /// At a desk or in a room.
    pub distance: Distance,
    /// The open tab on the left.
    pub left_tab: usize,
    /// The open tab on the right.
    pub right_tab: usize,
    /// What becomes of training while paused.
    pub while_paused: WhilePaused,
    /// How the height and the width are shared out.
    pub dividers: Dividers,
}

impl View {
    /// A window as it first opens, in these colours and sizes.
    pub fn new(scheme: Scheme, distance: Distance) -> Self {
        Self { scheme, distance, ..Self::default() }
    }
}

/// The form that this version writes.
const SCHEMA: u32 = 1;

impl Saved {
    /// To be written.
    pub fn new(view: View, scenario: Scenario) -> Self {
        Self { schema: SCHEMA, view, scenario: Some(scenario) }
    }

    /// Reads a file; without one, the defaults. Also a line for each key that is not known.
    ///
    /// # Errors
    /// If there is a file that cannot be read or is not one of these.
    pub fn read(path: &Path) -> Result<(Self, Vec<String>), String> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok((Self::default(), Vec::new()));
            }
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        let saved: Self =
            toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        let unknown = unknown_keys(&text);
        let warnings = unknown.iter().map(|(table, key)| {
            let line = 1 + text
                .lines()
                .take_while(|line| !line.trim_start().starts_with(key.as_str()))
                .count();
            format!(
                "{}, line {line}: `{table}{key}` is not known here and was left out",
                path.display()
            )
        });
        let warnings = warnings.collect();
        Ok((saved, warnings))
    }

    /// The text of the file.
    ///
    /// # Errors
    /// If a path in the scenario is not UTF-8.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }

    /// Writes the file: beside, then renamed.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let text = self.to_toml().map_err(io::Error::other)?;
        export::write(path, text.as_bytes()).map_err(io::Error::other)
    }
}

/// The keys of a file that this version does not know, with the table that they are in.
fn unknown_keys(text: &str) -> Vec<(&'static str, String)> {
    let full = Saved::new(View::default(), Scenario::quickstart());
    let known = full.to_toml().ok().and_then(|text| text.parse::<toml::Table>().ok());
    let (Some(known), Ok(found)) = (known, text.parse::<toml::Table>()) else { return Vec::new() };
    let missing = |found: &toml::Table, known: &toml::Table| -> Vec<String> {
        found.keys().filter(|key| !known.contains_key(*key)).cloned().collect()
    };
    let mut unknown: Vec<_> = missing(&found, &known).into_iter().map(|key| ("", key)).collect();
    let views = [&found, &known].map(|table| table.get("view").and_then(toml::Value::as_table));
    if let [Some(found), Some(known)] = views {
        unknown.extend(missing(found, known).into_iter().map(|key| ("view.", key)));
    }
    unknown
}

/// Where the file lies; `None` where the system names no place for it.
pub fn path() -> Option<PathBuf> {
    let of = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = if cfg!(windows) {
        of("APPDATA")
    } else if cfg!(target_os = "macos") {
        of("HOME").map(|home| home.join("Library/Application Support"))
    } else {
        of("XDG_CONFIG_HOME").or_else(|| of("HOME").map(|home| home.join(".config")))
    };
    Some(base?.join("shardlab").join("visualizer.toml"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets;

    fn full() -> Saved {
        let view = View {
            scheme: Scheme::Dark,
            distance: Distance::Room,
            left_tab: 2,
            right_tab: 1,
            while_paused: WhilePaused::Train,
            dividers: Dividers { timeline: 1.0 / 3.0, left: 0.7 },
        };
        Saved::new(view, presets::all().remove(4).scenario)
    }

    #[test]
    fn what_is_written_is_read_back_without_loss() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/er/visualizer.toml");
        full().write(&path).unwrap();
        full().write(&path).unwrap();
        assert_eq!(Saved::read(&path).unwrap(), (full(), Vec::new()));
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn no_file_means_the_defaults_and_a_broken_one_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("visualizer.toml");
        assert_eq!(Saved::read(&path).unwrap(), (Saved::default(), Vec::new()));
        std::fs::write(&path, "view = 3").unwrap();
        assert!(Saved::read(&path).unwrap_err().contains("visualizer.toml"));
    }

    #[test]
    fn unknown_keys_are_told_with_their_line_and_the_rest_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("visualizer.toml");
        let text = full().to_toml().unwrap();
        let text = text.replace("[view]", "later = 1\n[view]\nglow = true");
        std::fs::write(&path, text).unwrap();
        let (saved, warnings) = Saved::read(&path).unwrap();
        assert_eq!(saved.view.scheme, Scheme::Dark);
        assert_eq!(saved.scenario, full().scenario);
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(warnings[0].contains("line 3: `later`"), "{warnings:?}");
        assert!(warnings[1].contains("line 5: `view.glow`"), "{warnings:?}");
    }
}
