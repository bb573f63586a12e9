//! What can be held against what, and what it is called.

use serde::{Deserialize, Serialize};
use shardlab::config::{Layout, Recompute, ScheduleName};

use crate::broken::Change;
use crate::shown::{Command, Popup};
use crate::texts;

/// One of two timelines, by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// The one above.
    Upper,
    /// The one below.
    Lower,
}

impl Half {
    /// Both, from top to bottom.
    pub const BOTH: [Self; 2] = [Self::Upper, Self::Lower];

    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Upper => Self::Lower,
            Self::Lower => Self::Upper,
        }
    }

    /// Where it stands.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Upper => "Above",
            Self::Lower => "Below",
        }
    }
}

/// What one of them shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// The shown step on the clock of this run.
    Measured,
    /// The shown step as if every rank had its own device.
    Replayed,
    /// The step as it is predicted for this machine.
    Predicted,
    /// Something that was pinned, by its number.
    Pinned(u32),
    /// Another layout of the model that is trained, planned and laid out without running.
    Layout(Box<Layout>),
}

/// What both of them show.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Choices {
    /// The upper one.
    pub above: Choice,
    /// The lower one.
    pub below: Choice,
}

impl Default for Choices {
    fn default() -> Self {
        Self { above: Choice::Measured, below: Choice::Replayed }
    }
}

/// What tells a layout from the one that is trained: `GPipe, 8 microbatches`.
pub(super) fn name_of(layout: &Layout, trained: &Layout) -> String {
    let mut parts = Vec::new();
    if (layout.mesh(), layout.zero) != (trained.mesh(), trained.zero) {
        parts.push(texts::cuts(layout));
    }
    if (&layout.schedule, layout.chunks) != (&trained.schedule, trained.chunks) {
        let chunks = match layout.chunks {
            1 => String::new(),
            chunks => format!(", {chunks} stages a position"),
        };
        parts.push(layout.schedule.title() + &chunks);
    }
    if layout.microbatches != trained.microbatches {
        parts.push(format!("{} microbatches", layout.microbatches));
    }
    if layout.recompute != trained.recompute {
        parts.push(match layout.recompute {
            Recompute::None => "nothing recomputed".into(),
            what => format!("recompute {what}"),
        });
    }
    if layout.sequence_parallel != trained.sequence_parallel {
        let word = if layout.sequence_parallel { "cut" } else { "whole" };
        parts.push(format!("sequence {word}"));
    }
    if parts.is_empty() { "this layout, planned".into() } else { parts.join(", ") }
}

/// All that a half can show now, each with what is asked for.
pub(in crate::app) fn offers(half: Half, trained: &Layout, pins: &[(u32, String)]) -> Vec<Change> {
    let offer =
        |name: String, choice: Choice| Change { name, command: Command::Choose(half, choice) };
    let mut offers = vec![
        offer("The shown step, measured: ranks take turns".into(), Choice::Measured),
        offer("The shown step, replayed: a device for each rank".into(), Choice::Replayed),
        offer("The step as predicted for this machine".into(), Choice::Predicted),
    ];
    offers.extend(pins.iter().map(|(id, name)| offer(capital(name), Choice::Pinned(*id))));
    if trained.pp > 1 {
        let others = ScheduleName::NAMED.into_iter().filter(|name| *name != trained.schedule);
        offers.extend(others.map(|schedule| {
            let title = schedule.title();
            let chunks = schedule.stages().usual(trained.chunks);
            let layout = Layout { schedule, chunks, stage_units: None, ..trained.clone() };
            offer(format!("Schedule: {title}"), Choice::Layout(Box::new(layout)))
        }));
    }
    let command = Command::Toggle(Popup::SplitOf(half));
    offers.push(Change { name: "Another layout…".into(), command });
    offers
}

/// Which of the offers is chosen already: the last one stands for every layout that has none of its
/// own.
pub(in crate::app) fn offered(offers: &[Change], choice: &Choice) -> usize {
    let is_it = |offer: &Change| matches!(&offer.command, Command::Choose(_, of) if of == choice);
    offers.iter().position(is_it).unwrap_or(offers.len().saturating_sub(1))
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets;

    #[test]
    fn a_layout_is_called_by_what_is_different_in_it() {
        let trained = presets::quickstart().layout;
        let name = |layout: Layout| name_of(&layout, &trained);
        assert_eq!(name(trained.clone()), "this layout, planned");
        let gpipe = Layout { schedule: ScheduleName::GPipe, ..trained.clone() };
        assert_eq!(name(gpipe), "GPipe");
        let deep = Layout { pp: 4, tp: 1, microbatches: 8, ..trained.clone() };
        assert_eq!(name(deep), "data 2 × tensor 1 × pipeline 4 · ZeRO 1, 8 microbatches");
        let looped = ScheduleName::Interleaved1F1B;
        let looped = Layout { schedule: looped, chunks: 2, ..trained.clone() };
        assert_eq!(name(looped), "interleaved 1F1B, 2 stages a position");
        let again = Layout { recompute: Recompute::Full, ..trained.clone() };
        assert_eq!(name(again), "recompute full");
    }

    #[test]
    fn every_other_schedule_is_offered_where_there_is_a_pipeline() {
        let trained = presets::quickstart().layout;
        let names = |layout: &Layout| -> Vec<String> {
            offers(Half::Lower, layout, &[(7, "pinned".into())])
                .into_iter()
                .map(|offer| offer.name)
                .collect()
        };
        let offered = names(&trained);
        let schedules = offered.iter().filter(|name| name.starts_with("Schedule: ")).count();
        assert_eq!(schedules, ScheduleName::NAMED.len() - 1);
        assert!(!offered.contains(&"Schedule: 1F1B".to_owned()), "{offered:?}");
        assert!(offered.contains(&"Pinned".to_owned()), "{offered:?}");
        assert_eq!(names(&Layout { pp: 1, ..trained }).len(), 5);
    }
}
