//! A scenario file with the view of a window: what is kept between two starts, and what is saved and
//! opened by name. One form for both: the keys of a scenario, and a table `view` beside them that
//! the command line leaves alone.
//!
//! It is written at each change and when the window closes, beside and then renamed, so that no
//! crash loses it. What is broken on purpose is of the open window alone and never kept: the scenario
//! is the whole one. What a later version wrote and this one does not know is told, not refused.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use shardlab::config::{Scenario, user_folder};
use shardlab::trace::Span;
use shardlab::trace::draw::timeline::Target;
use toml::de::{DeTable, DeValue};

use crate::app::{Choices, Wish};
use crate::export;
use crate::panels;
use crate::play::WhilePaused;
use crate::presets;
use crate::shown::{Side, Workspace};
use crate::style::{Distance, Scheme};
use crate::zones::Dividers;

/// A scenario and how it is looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct Saved {
    /// What is trained.
    pub scenario: Scenario,
    /// What the window looks like; `None` in a file that says nothing of it.
    pub view: Option<View>,
}

/// What the window looks like.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct View {
    /// What the window is for just now.
    pub workspace: Workspace,
    /// Light, dark, or as the system.
    pub scheme: Scheme,
    /// At a desk or in a room.
    pub distance: Distance,
    /// The open tab on the left: its name in a file.
    #[serde(with = "left_tab")]
    pub left_tab: usize,
    /// The open tab on the right: its name in a file.
    #[serde(with = "right_tab")]
    pub right_tab: usize,
    /// What becomes of training while paused.
    pub while_paused: WhilePaused,
    /// The speed of the playhead as a power of two; each step's own slow motion if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed: Option<i8>,
    /// The part of a step that is as wide as the timeline; all of it if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<Span>,
    /// The time that is marked: what an animation shows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub marked: Option<Span>,
    /// What is chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selection: Option<Target>,
    /// Pipeline positions whose ranks have rows of their own.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub unfolded: BTreeSet<u32>,
    /// How the height and the width are shared out.
    pub dividers: Dividers,
    /// What is held against what in Compare.
    pub compare: Choices,
    /// What is wished in Plan.
    #[serde(deserialize_with = "sensible")]
    pub plan: Wish,
}

/// A wish that can be asked.
fn sensible<'de, D: Deserializer<'de>>(from: D) -> Result<Wish, D::Error> {
    let wish = Wish::deserialize(from)?;
    wish.check().map_err(D::Error::custom)?;
    Ok(wish)
}

impl View {
    /// A window as it first opens, in these colours and sizes.
    pub fn new(scheme: Scheme, distance: Distance) -> Self {
        Self { scheme, distance, ..Self::default() }
    }
}

/// A file in which there is nothing but the view.
#[derive(Serialize)]
struct Viewed<'a> {
    view: &'a View,
}

impl Saved {
    /// A scenario alone.
    pub fn new(scenario: Scenario) -> Self {
        Self { scenario, view: None }
    }

    /// Reads a file. Also a line for each key that is not known and was left out.
    ///
    /// # Errors
    /// If the file cannot be read or is no scenario.
    pub fn read(path: &Path) -> Result<(Self, Vec<String>), String> {
        let unreadable = |error| {
            format!("{}: cannot be read: {error}. Give a scenario file (TOML)", path.display())
        };
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        Self::parse(&text, path)
    }

    /// Reads the text of the file `path`.
    ///
    /// # Errors
    /// If it is no scenario.
    pub fn parse(text: &str, path: &Path) -> Result<(Self, Vec<String>), String> {
        let (scenario, unknown) =
            Scenario::parse_known(text, path).map_err(|error| error.to_string())?;
        let mut warnings: Vec<String> = unknown.iter().map(ToString::to_string).collect();
        let view = view(text, path, &mut warnings);
        Ok((Self { scenario, view }, warnings))
    }

    /// The text of the file.
    ///
    /// # Errors
    /// If a path in the scenario is not UTF-8, or its seed too large for TOML.
    pub fn to_toml(&self) -> Result<String, String> {
        let scenario = self.scenario.to_toml().map_err(|error| error.to_string())?;
        let Some(view) = &self.view else { return Ok(scenario) };
        let view = toml::to_string(&Viewed { view }).map_err(|error| error.to_string())?;
        Ok(format!("{scenario}\n{view}"))
    }

    /// Writes the file: beside, then renamed.
    ///
    /// # Errors
    /// If it has no text or the folder cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), String> {
        export::write(path, self.to_toml()?.as_bytes()).map_err(|error| error.to_string())
    }
}

/// The view of a file; what is not known or makes no sense in it is told and left out.
fn view(text: &str, path: &Path, warnings: &mut Vec<String>) -> Option<View> {
    // It has been read as a scenario before.
    let mut table = DeTable::parse(text).ok()?;
    let found = table.get_mut().remove("view")?;
    let line = |offset: usize| 1 + text[..offset].matches('\n').count();
    let mut tell = |offset: usize, key: &str, why: &str| {
        let file = path.display();
        warnings.push(format!("{file}, line {}: `view{key}` {why}, left out", line(offset)));
    };
    let offset = found.span().start;
    let DeValue::Table(found) = found.into_inner() else {
        tell(offset, "", "is no table");
        return None;
    };
    let mut view = toml::Table::new();
    for (key, value) in found {
        let name = key.get_ref().to_string();
        let offset = key.span().start;
        let Ok(value) = toml::Value::deserialize(toml::de::ValueDeserializer::from(value)) else {
            tell(offset, &format!(".{name}"), "cannot be read");
            continue;
        };
        let alone = toml::Table::from_iter([(name.clone(), value.clone())]);
        if !KEYS.contains(&name.as_str()) {
            tell(offset, &format!(".{name}"), "is not known here");
        } else if toml::Value::Table(alone).try_into::<View>().is_err() {
            tell(offset, &format!(".{name}"), "makes no sense here");
        } else {
            view.insert(name, value);
        }
    }
    toml::Value::Table(view).try_into().ok()
}

/// The keys of a view.
const KEYS: [&str; 14] = [
    "workspace",
    "scheme",
    "distance",
    "left-tab",
    "right-tab",
    "while-paused",
    "speed",
    "window",
    "marked",
    "selection",
    "unfolded",
    "dividers",
    "compare",
    "plan",
];

/// A tab by name.
fn name_of(side: Side, tab: usize) -> String {
    panels::of(side).get(tab).map(|panel| presets::slug(panel.name())).unwrap_or_default()
}

/// The tab with this name; the first one if there is none.
fn tab_of(side: Side, name: &str) -> usize {
    let tabs = panels::of(side);
    tabs.iter().position(|panel| presets::slug(panel.name()) == name).unwrap_or_default()
}

/// Tabs of one side in a file.
macro_rules! tab {
    ($name:ident, $side:expr) => {
        mod $name {
            use serde::{Deserialize as _, Deserializer, Serializer};

            use super::{Side, name_of, tab_of};

            pub(super) fn serialize<S: Serializer>(tab: &usize, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(&name_of($side, *tab))
            }

            pub(super) fn deserialize<'de, D: Deserializer<'de>>(
                from: D,
            ) -> Result<usize, D::Error> {
                Ok(tab_of($side, &String::deserialize(from)?))
            }
        }
    };
}
tab!(left_tab, Side::Left);
tab!(right_tab, Side::Right);

/// Where the file lies; `None` where the system names no place for it.
pub fn path() -> Option<PathBuf> {
    Some(user_folder()?.join("visualizer.toml"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::Choice;
    use shardlab::config::{Layout, ScheduleName};
    use shardlab::mesh::{Axis, Rank};
    use shardlab::trace::draw::timeline::Level;
    use shardlab::units::Nanos;

    fn full() -> Saved {
        let span = |start, end| Some(Span { start: Nanos(start), end: Nanos(end) });
        let layout = Layout { pp: 4, schedule: ScheduleName::GPipe, ..Layout::default() };
        let view = View {
            workspace: Workspace::Plan,
            scheme: Scheme::Dark,
            distance: Distance::Room,
            left_tab: 0,
            right_tab: panels::right().len() - 1,
            while_paused: WhilePaused::Train,
            speed: Some(-7),
            window: span(3, 1 << 40),
            marked: span(5, 7),
            selection: Some(Target::block(Rank(3), Level::Layer, 12)),
            unfolded: BTreeSet::from([0, 2]),
            dividers: Dividers { timeline: 1.0 / 3.0, left: 0.7 },
            compare: Choices { above: Choice::Layout(Box::new(layout)), below: Choice::Predicted },
            plan: Wish { gpus: 64, batch: 256, links: [0.5, 1.0, 1.0 / 3.0], ..Wish::default() },
        };
        Saved { scenario: presets::all().remove(4).scenario, view: Some(view) }
    }

    #[test]
    fn what_is_written_is_read_back_without_loss_and_the_command_line_reads_it_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/er/visualizer.toml");
        full().write(&path).unwrap();
        full().write(&path).unwrap();
        assert_eq!(Saved::read(&path).unwrap(), (full(), Vec::new()));
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        assert_eq!(Scenario::read(&path).unwrap(), full().scenario);
        for selection in [
            None,
            Some(Target::Wait { rank: Rank(0), before: None }),
            Some(Target::Wait { rank: Rank(0), before: Some(4) }),
            Some(Target::Rank(Rank(7))),
            Some(Target::Position(1)),
            Some(Target::Link { from: Rank(0), to: Rank(1), axis: Axis::Tp }),
        ] {
            let view = View { selection, ..full().view.unwrap() };
            let saved = Saved { view: Some(view), ..full() };
            let text = saved.to_toml().unwrap();
            assert_eq!(Saved::parse(&text, &path).unwrap(), (saved, Vec::new()), "{text}");
        }
    }

    #[test]
    fn every_key_of_a_view_is_known() {
        let text = toml::to_string(&full().view.unwrap()).unwrap();
        let written: toml::Table = text.parse().unwrap();
        let mut keys: Vec<&str> = written.keys().map(String::as_str).collect();
        let mut known = KEYS.to_vec();
        keys.sort_unstable();
        known.sort_unstable();
        assert_eq!(keys, known);
    }

    #[test]
    fn a_plain_scenario_says_nothing_of_the_window() {
        let scenario = presets::quickstart();
        let text = scenario.to_toml().unwrap();
        let (saved, warnings) = Saved::parse(&text, Path::new("s.toml")).unwrap();
        assert_eq!((saved, warnings.len()), (Saved::new(scenario), 0));
    }

    #[test]
    fn what_is_no_scenario_is_named_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("visualizer.toml");
        let error = Saved::read(&path).unwrap_err();
        assert!(error.contains("visualizer.toml: cannot be read"), "{error}");
        std::fs::write(&path, "view = 3").unwrap();
        assert!(Saved::read(&path).unwrap_err().contains("visualizer.toml"));
    }

    #[test]
    fn unknown_keys_are_told_with_their_line_and_the_rest_is_kept() {
        let text = full().to_toml().unwrap();
        let text = format!("later = 1\n{text}");
        let text = text.replace("[view]\n", "[view]\nglow = true\nspeed = \"fast\"\n");
        // A key twice is no TOML: the right one goes.
        let text = text.replace("speed = -7\n", "");
        let (saved, warnings) = Saved::parse(&text, Path::new("s.toml")).unwrap();
        let view = Some(View { speed: None, ..full().view.unwrap() });
        assert_eq!(saved, Saved { view, ..full() });
        let line = 1 + text.lines().position(|line| line == "glow = true").unwrap();
        assert_eq!(warnings.len(), 3, "{warnings:?}");
        assert!(warnings[0].contains("line 1: `later`"), "{warnings:?}");
        let told = format!("line {line}: `view.glow` is not known here");
        assert!(warnings.iter().any(|text| text.contains(&told)), "{warnings:?}");
        let told = format!("line {}: `view.speed` makes no sense here", line + 1);
        assert!(warnings.iter().any(|text| text.contains(&told)), "{warnings:?}");
    }

    #[test]
    fn a_wish_that_cannot_be_asked_is_told_and_left_out() {
        let text = full().to_toml().unwrap();
        for (from, to) in [
            ("model = \"llama-3-70b\"", "model = \"llama-9\""),
            ("cluster = \"h100\"", "cluster = \"a-barn\""),
            ("gpus = 64", "gpus = 0"),
            ("jitter = 0.0", "jitter = nan"),
        ] {
            assert!(text.contains(from), "{from}: {text}");
            let (saved, warnings) =
                Saved::parse(&text.replace(from, to), Path::new("s.toml")).unwrap();
            assert_eq!(saved.view.unwrap().plan, Wish::default());
            assert_eq!(warnings.len(), 1, "{warnings:?}");
            assert!(warnings[0].contains("`view.plan` makes no sense here"), "{warnings:?}");
        }
    }
}
