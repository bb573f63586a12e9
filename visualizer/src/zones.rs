//! Where the parts of the window lie: a pure function of its size and two dividers.
//!
//! Nothing a person does changes these areas but dragging a divider, changing the window or the
//! size of the text, or opening a maximised tab.

use shardlab::trace::draw::scene::Area;

/// Which share the upper and the left part have.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Dividers {
    /// Of the timeline in what lies between the bars.
    pub timeline: f32,
    /// Of the left tabs in the lower band.
    pub left: f32,
}

impl Default for Dividers {
    fn default() -> Self {
        // 376 of 616 points at 800 points of height.
        Self { timeline: 0.61, left: 0.62 }
    }
}

/// The parts of the window, without gaps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Zones {
    /// Scenario, split, device, theme, help.
    pub top: Area,
    /// The one line that explains.
    pub explain: Area,
    /// The figures.
    pub figures: Area,
    /// The timeline.
    pub timeline: Area,
    /// What is dragged to change the heights.
    pub divider: Area,
    /// Left tabs with their row; only the row where the window is low.
    pub left: Area,
    /// What is dragged to change the widths; empty where the band is closed.
    pub left_divider: Area,
    /// Right tabs with their row.
    pub right: Area,
    /// Transport.
    pub transport: Area,
    /// Whether the lower band shows more than its tab row.
    pub band: Band,
}

/// How much of the lower band is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Band {
    /// Tabs and pictures.
    Open,
    /// The row of tabs alone: the window is too low.
    Closed,
}

/// Height of the row of tabs, before scaling.
pub const TAB_ROW: f32 = 32.0;
/// Windows lower than this have no room for the lower band.
const LOW: f32 = 700.0;
/// Least height, before scaling, that timeline and lower band need together.
const LEAST: f32 = 380.0;
/// Width of what is dragged.
const HANDLE: f32 = 4.0;

impl Zones {
    /// For a window of this size; sizes of text and bars are multiplied by `scale`.
    pub fn of(window: Area, dividers: Dividers, scale: f32) -> Self {
        let (top, rest) = window.cut_top(40.0 * scale);
        let (explain, rest) = rest.cut_top(32.0 * scale);
        let (figures, rest) = rest.cut_top(56.0 * scale);
        let (transport, rest) = rest.cut_bottom(56.0 * scale);
        let row = TAB_ROW * scale;
        let band = if window.height < LOW || rest.height < LEAST * scale {
            Band::Closed
        } else {
            Band::Open
        };
        let timeline_height = match band {
            Band::Closed => rest.height - row,
            Band::Open => {
                let most = rest.height - 3.0 * row;
                (rest.height * dividers.timeline).round().clamp(160.0_f32.min(most), most)
            }
        };
        let (timeline, lower) = rest.cut_top(timeline_height);
        let (divider, lower) = lower.cut_top(if band == Band::Open { HANDLE } else { 0.0 });
        let least = (280.0 * scale).min(lower.width / 2.0);
        let left_width = (lower.width * dividers.left).round().clamp(least, lower.width - least);
        let (left, rest) = lower.cut_left(left_width);
        let (left_divider, right) = rest.cut_left(HANDLE);
        Self {
            top,
            explain,
            figures,
            timeline,
            divider,
            left,
            left_divider,
            right,
            transport,
            band,
        }
    }

    /// All that lies between the explanation line and the transport.
    pub fn between_bars(&self) -> Area {
        let (top, bottom) = (self.figures.top, self.transport.top);
        Area::new(self.top.left, top, self.top.width, bottom - top)
    }

    /// All parts, from top to bottom.
    pub fn all(&self) -> [Area; 9] {
        [
            self.top,
            self.explain,
            self.figures,
            self.timeline,
            self.divider,
            self.left,
            self.left_divider,
            self.right,
            self.transport,
        ]
    }
}

impl Dividers {
    /// What one press of a key moves them by.
    const STEP: f32 = 0.05;

    /// With another share of the timeline.
    fn with_timeline(self, share: f32) -> Self {
        Self { timeline: share.clamp(0.2, 0.9), ..self }
    }

    /// With another share of the left tabs.
    fn with_left(self, share: f32) -> Self {
        Self { left: share.clamp(0.2, 0.8), ..self }
    }

    /// After so many presses of a key: down, or up where negative.
    #[must_use]
    pub fn lowered(self, presses: f32) -> Self {
        self.with_timeline(self.timeline + presses * Self::STEP)
    }

    /// After so many presses of a key: to the right, or left where negative.
    #[must_use]
    pub fn moved_right(self, presses: f32) -> Self {
        self.with_left(self.left + presses * Self::STEP)
    }
}

/// The dividers after the handle between timeline and band was dragged to `y`.
pub fn dragged_timeline(zones: &Zones, dividers: Dividers, y: f32) -> Dividers {
    let (first, last) = (zones.timeline.top, zones.left.bottom());
    dividers.with_timeline((y - HANDLE / 2.0 - first) / (last - first).max(1.0))
}

/// The dividers after the handle between the tabs was dragged to `x`.
pub fn dragged_left(zones: &Zones, dividers: Dividers, x: f32) -> Dividers {
    let (first, last) = (zones.left.left, zones.right.right());
    dividers.with_left((x - HANDLE / 2.0 - first) / (last - first).max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [(f32, f32); 5] =
        [(800.0, 480.0), (911.0, 512.0), (1280.0, 800.0), (1920.0, 1080.0), (3840.0, 2160.0)];

    fn zones(width: f32, height: f32, scale: f32) -> Zones {
        Zones::of(Area::sized(width, height), Dividers::default(), scale)
    }

    #[test]
    fn the_parts_fill_the_window_without_overlap_at_every_size() {
        for (width, height) in SIZES {
            for scale in [1.0, 1.6] {
                let parts = zones(width, height, scale).all();
                let window = Area::sized(width, height);
                let sum: f32 = parts.iter().map(|part| part.width * part.height).sum();
                assert!((sum - width * height).abs() < 1.0, "{width}×{height}: {sum}");
                for (index, part) in parts.iter().enumerate() {
                    assert!(part.is_inside(window));
                    for other in &parts[index + 1..] {
                        assert_eq!(part.common(*other), None, "{part:?} {other:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_timeline_has_47_percent_of_the_default_window() {
        let zones = zones(1280.0, 800.0, 1.0);
        let heights = [zones.top, zones.explain, zones.figures, zones.timeline, zones.transport]
            .map(|part| part.height);
        assert_eq!(heights, [40.0, 32.0, 56.0, 376.0, 56.0]);
        assert_eq!(zones.band, Band::Open);
    }

    #[test]
    fn a_low_window_keeps_its_bars_and_closes_the_band() {
        let zones = zones(800.0, 480.0, 1.0);
        assert_eq!((zones.band, zones.left.height), (Band::Closed, TAB_ROW));
        assert_eq!(zones.transport.bottom(), 480.0);
        assert!(zones.timeline.height >= 260.0);
    }

    #[test]
    fn large_text_leaves_the_room_of_a_usual_window_to_the_timeline() {
        assert_eq!(zones(1280.0, 800.0, 1.6).band, Band::Closed);
        assert_eq!(zones(1920.0, 1080.0, 1.6).band, Band::Open);
    }

    #[test]
    fn dragging_a_divider_moves_it_there() {
        let dividers = Dividers::default();
        let before = zones(1280.0, 800.0, 1.0);
        let dividers = dragged_timeline(&before, dividers, 400.0);
        let dividers = dragged_left(&before, dividers, 640.0);
        let after = Zones::of(Area::sized(1280.0, 800.0), dividers, 1.0);
        assert!((after.divider.centre().y - 400.0).abs() <= 1.0);
        assert!((after.left_divider.centre().x - 640.0).abs() <= 1.0);
        let far = dragged_timeline(&after, dividers, 5000.0);
        let after = Zones::of(Area::sized(1280.0, 800.0), far, 1.0);
        assert!(after.left.height >= 2.0 * TAB_ROW, "the tabs stay reachable");
    }
}
