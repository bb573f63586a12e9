//! What a picture can be of: the window, the timeline, and every tab by its name.
//!
//! Tabs come from [`crate::panels`], so that a new one has pictures without a line here.

use crate::panels;
use crate::presets::slug;
use crate::shown::{Side, Workspace};

/// Something that a picture can be of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The whole window in a workspace.
    Window(Workspace),
    /// The timeline, as high as the window has room for.
    Timeline,
    /// A tab, as large as the window has room for.
    Tab(Side, usize),
}

impl Part {
    /// All parts with their names.
    pub fn all() -> Vec<(Self, String)> {
        let window = |workspace: Workspace| (Self::Window(workspace), slug(workspace.name()));
        let mut parts: Vec<_> = Workspace::ALL.into_iter().map(window).collect();
        parts.push((Self::Timeline, "timeline".into()));
        for side in [Side::Left, Side::Right] {
            let tabs = panels::of(side);
            let named = tabs.iter().enumerate();
            parts.extend(named.map(|(tab, panel)| (Self::Tab(side, tab), slug(panel.name()))));
        }
        parts
    }

    /// The parts with these names, or all if there is no name.
    ///
    /// # Errors
    /// If there is no part with one of the names.
    pub fn named(names: &[String]) -> Result<Vec<(Self, String)>, String> {
        let all = Self::all();
        if names.is_empty() {
            return Ok(all);
        }
        let find = |name: &String| {
            let found = all.iter().find(|(_, known)| *known == slug(name));
            found.cloned().ok_or_else(|| {
                let known: Vec<&str> = all.iter().map(|(_, name)| name.as_str()).collect();
                format!("no view is called {name:?}. Views: {}", known.join(", "))
            })
        };
        names.iter().map(find).collect()
    }
}

/// The name of a file: `<scenario>_<part>_<step>.<ending>`, the step counted from 1.
pub fn file_name(scenario: &str, part: &str, step: u64, ending: &str) -> String {
    format!("{}_{part}_{}.{ending}", slug(scenario), step + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found_by_name_and_unknown_ones_are_told_with_all_that_are_known() {
        let all = Part::named(&[]).unwrap();
        assert_eq!(all[0], (Part::Window(Workspace::Watch), "watch".into()));
        for (part, name) in &all {
            assert_eq!(Part::named(&[name.to_uppercase()]).unwrap(), [(*part, name.clone())]);
        }
        let error = Part::named(&["watch".into(), "nothing".into()]).unwrap_err();
        assert!(error.contains("\"nothing\""), "{error}");
        assert!(all.iter().all(|(_, name)| error.contains(name.as_str())), "{error}");
    }

    #[test]
    fn files_are_named_after_scenario_part_and_step() {
        let name = file_name("Shakespeare, small", "watch", 23, "png");
        assert_eq!(name, "shakespeare-small_watch_24.png");
    }
}
