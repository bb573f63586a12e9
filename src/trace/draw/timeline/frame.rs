//! What of a timeline is painted: all that a picture depends on besides the step and the theme.

use std::collections::BTreeSet;

use super::Target;
use crate::trace::Badge;
use crate::trace::draw::scene::Area;
use crate::units::Nanos;

static NOTHING_OPEN: BTreeSet<u32> = BTreeSet::new();

/// Which dependencies are drawn as arrows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Arrows {
    /// Into and out of what is selected.
    #[default]
    Selected,
    /// All that are in sight.
    All,
}

/// Whether memory is shown beside the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemoryColumn {
    /// A bar and the peak of each rank.
    #[default]
    Shown,
    /// No column.
    Hidden,
}

/// Whether roles and colours are explained below the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Legend {
    /// A line of swatches with letters and words, where there is room for it.
    #[default]
    Shown,
    /// None: another picture beside this one explains them.
    Hidden,
}

/// What of a timeline is painted, and where.
#[derive(Clone, Debug)]
pub struct Frame<'a> {
    /// The whole picture with labels, ruler and legend.
    pub area: Area,
    /// The time that the width of the track shows.
    pub window: (Nanos, Nanos),
    /// How far rows are scrolled up, in points.
    pub scroll: f32,
    /// Pipeline positions whose ranks are all shown as rows.
    pub open: &'a BTreeSet<u32>,
    /// The instant that is being shown.
    pub playhead: Option<Nanos>,
    /// What is selected.
    pub selected: Option<Target>,
    /// What the pointer is on.
    pub hovered: Option<Target>,
    /// Which arrows are drawn.
    pub arrows: Arrows,
    /// Where the times come from.
    pub badge: Badge,
    /// Whether memory is shown.
    pub memory: MemoryColumn,
    /// Whether roles are explained.
    pub legend: Legend,
}

impl Frame<'static> {
    /// A window of a step without playhead or selection, all groups folded.
    pub fn new(area: Area, window: (Nanos, Nanos), badge: Badge) -> Self {
        Self {
            area,
            window,
            scroll: 0.0,
            open: &NOTHING_OPEN,
            playhead: None,
            selected: None,
            hovered: None,
            arrows: Arrows::Selected,
            badge,
            memory: MemoryColumn::Shown,
            legend: Legend::Shown,
        }
    }
}
