//! The colours of pictures: one fill for each role, in light, dark and print.
//!
//! The fills of a theme differ by at least 15 (CIEDE2000) from one another and from waiting, for
//! normal sight and the three kinds of colour blindness; grey print tells roles apart by patterns.
//! A role has one colour in every picture: memory roles reuse those of the work that makes them.

use super::scene::Pattern;
use super::{BlockKind, Work};
use crate::mesh::Axis;
use crate::plan::Role;

/// An opaque colour, sRGB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rgb(pub u8, pub u8, pub u8);

impl Rgb {
    /// From `0xRRGGBB`.
    pub const fn hex(value: u32) -> Self {
        Self((value >> 16) as u8, (value >> 8) as u8, value as u8)
    }

    /// Relative luminance, 0 to 1 (WCAG 2).
    pub fn luminance(self) -> f64 {
        0.2126 * linear(self.0) + 0.7152 * linear(self.1) + 0.0722 * linear(self.2)
    }

    /// The same hue with less light, so that its lightness (L* of CIE 1976) is less by `by`; for
    /// colours that stay above L* 8, where that is a cube root.
    #[must_use]
    fn darker(self, by: f64) -> Self {
        let lightness = self.luminance().cbrt();
        let part = ((lightness - by / 116.0).max(0.0) / lightness).powi(3);
        let channel = |channel: u8| {
            let light = linear(channel) * part;
            let c = if light <= 0.003_130_8 {
                12.92 * light
            } else {
                1.055 * light.powf(1.0 / 2.4) - 0.055
            };
            (255.0 * c).round() as u8
        };
        Self(channel(self.0), channel(self.1), channel(self.2))
    }

    /// Contrast between two colours, 1 to 21 (WCAG 2).
    pub fn contrast(self, other: Self) -> f64 {
        let (a, b) = (self.luminance(), other.luminance());
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    /// `part` of `other` mixed into it, 0 to 1.
    #[must_use]
    pub fn mixed(self, other: Self, part: f32) -> Self {
        let mix =
            |a: u8, b: u8| (f32::from(a) + (f32::from(b) - f32::from(a)) * part).round() as u8;
        Self(mix(self.0, other.0), mix(self.1, other.1), mix(self.2, other.2))
    }
}

/// Light of an sRGB channel, 0 to 1.
fn linear(channel: u8) -> f64 {
    let c = f64::from(channel) / 255.0;
    if c <= 0.040_45 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
}

/// Which of the designs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Dark text on a light ground.
    #[default]
    Light,
    /// Light text on a dark ground, with fills of its own.
    Dark,
    /// Grey on white, roles by pattern.
    Print,
}

/// A role as it is painted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paint {
    /// Fill.
    pub fill: Rgb,
    /// Text on the fill.
    pub ink: Rgb,
    /// Lines or points over the fill.
    pub pattern: Option<Pattern>,
    /// Colour of the pattern.
    pub pattern_ink: Rgb,
    /// Line along the edges, for fills that are near the ground; only where there is room.
    pub edge: Option<Rgb>,
}

/// Colours and text sizes of a picture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Theme {
    /// Which design.
    pub kind: Kind,
    /// The window.
    pub ground: Rgb,
    /// Cards and plots that stand out from the window.
    pub raised: Rgb,
    /// What a row of blocks lies on.
    pub track: Rgb,
    /// Text.
    pub ink: Rgb,
    /// Text of less weight; at least 4.5 : 1 on every ground of the theme.
    pub faint: Rgb,
    /// Rules, ticks and edges of cards.
    pub rule: Rgb,
    /// Selection and playhead, and nothing else.
    pub accent: Rgb,
    /// Something needs attention.
    pub warning: Rgb,
    /// Something is wrong.
    pub error: Rgb,
    /// Size of labels in points; figures in blocks are one point larger.
    pub label_size: f32,
}

const BLACK: Rgb = Rgb::hex(0x000000);
const WHITE: Rgb = Rgb::hex(0xFFFFFF);
/// How much darker an edge is than its fill, in L*.
const EDGE: f64 = 25.0;

impl Theme {
    /// Dark on light.
    pub const LIGHT: Self = Self {
        kind: Kind::Light,
        ground: Rgb::hex(0xF7F7F8),
        raised: Rgb::hex(0xFFFFFF),
        track: Rgb::hex(0xE4E4E6),
        ink: Rgb::hex(0x1B1B1F),
        faint: Rgb::hex(0x5A5A62),
        rule: Rgb::hex(0xD0D0D4),
        accent: Rgb::hex(0xC2185B),
        warning: Rgb::hex(0x8A5A00),
        error: Rgb::hex(0xB3261E),
        label_size: 12.0,
    };

    /// Light on dark.
    pub const DARK: Self = Self {
        kind: Kind::Dark,
        ground: Rgb::hex(0x1B1B1F),
        raised: Rgb::hex(0x232328),
        track: Rgb::hex(0x26262B),
        ink: Rgb::hex(0xF0F0F2),
        faint: Rgb::hex(0xA8A8B2),
        rule: Rgb::hex(0x3F3F47),
        accent: Rgb::hex(0xFF6FA3),
        warning: Rgb::hex(0xF5B942),
        error: Rgb::hex(0xFF8A80),
        label_size: 12.0,
    };

    /// Grey on white, for printers without colour.
    pub const PRINT: Self = Self {
        kind: Kind::Print,
        ground: WHITE,
        raised: WHITE,
        track: Rgb::hex(0xF2F2F2),
        ink: BLACK,
        faint: Rgb::hex(0x4D4D4D),
        rule: Rgb::hex(0xBFBFBF),
        accent: BLACK,
        warning: BLACK,
        error: BLACK,
        label_size: 12.0,
    };

    /// The theme of a kind.
    pub const fn of(kind: Kind) -> Self {
        match kind {
            Kind::Light => Self::LIGHT,
            Kind::Dark => Self::DARK,
            Kind::Print => Self::PRINT,
        }
    }

    /// For a projector: all text half as large again, never under 18 points.
    #[must_use]
    pub const fn projected(mut self) -> Self {
        self.label_size = 19.0;
        self
    }

    /// How work is painted.
    pub fn work(&self, work: Work) -> Paint {
        match work {
            Work::Forward => self.paint([0x1E4999, 0x2F6EDC, 0x4A4A4A], None),
            Work::Recompute => self.paint([0x55D2FF, 0xB2E9FE, 0xE6E6E6], Some(Pattern::Dots)),
            Work::Backward => self.paint([0xDB9773, 0xF5A31A, 0x9C9C9C], None),
            Work::InputGrad => self.paint([0x2B9DA0, 0x31B4AE, 0xBDBDBD], Some(Pattern::TopLine)),
            Work::WeightGrad => self.paint([0x497D40, 0x90A981, 0x7A7A7A], Some(Pattern::Bars)),
            Work::Optimizer => self.paint([0xF5E168, 0xF5ECBD, 0xFAFAFA], None),
            // What crosses between ranks has one colour; sums, the norm and weights differ by pattern.
            Work::ReduceScatter | Work::AllReduce => self.crossing(Pattern::Rising),
            Work::Norm => self.crossing(Pattern::Bars),
            Work::WeightGather => self.crossing(Pattern::TopLine),
            Work::Other => self.paint([0x1B1B1F, 0xB45A0F, 0x737373], None),
        }
    }

    fn crossing(&self, pattern: Pattern) -> Paint {
        self.paint([0x89506B, 0x7F6384, 0x666666], Some(pattern))
    }

    /// How a message is painted: as the collectives.
    pub fn message(&self) -> Paint {
        self.work(Work::AllReduce)
    }

    /// How waiting is painted.
    pub fn waiting(&self) -> Paint {
        let paint = self.paint([0xD0D0D0, 0x3A3A40, 0xFFFFFF], Some(Pattern::Falling));
        let pattern_ink = match self.kind {
            Kind::Light => Rgb::hex(0x9A9AA2),
            Kind::Dark => Rgb::hex(0x6A6A74),
            Kind::Print => Rgb::hex(0x8C8C8C),
        };
        Paint { pattern_ink, edge: None, ..paint }
    }

    /// How what lies outside of the schedule is painted.
    pub fn outside(&self) -> Paint {
        let fill = self.ground.mixed(self.ink, 0.05);
        let (ink, pattern_ink) = (self.ink, self.faint);
        Paint { fill, ink, pattern: None, pattern_ink, edge: Some(self.faint) }
    }

    /// How a block is painted.
    pub fn block(&self, kind: BlockKind) -> Paint {
        match kind {
            BlockKind::Work(work) => self.work(work),
            BlockKind::Waiting(_) => self.waiting(),
        }
    }

    /// How memory of a role is painted: in the colour of the work that it serves.
    pub fn memory(&self, role: Role) -> Paint {
        match role {
            Role::Weights => self.work(Work::WeightGrad),
            Role::Gradients => self.work(Work::Backward),
            Role::Optimizer => self.work(Work::Optimizer),
            Role::Activations => self.work(Work::Recompute),
            Role::Workspace => self.work(Work::AllReduce),
        }
    }

    /// The stroke of an axis of the mesh: by dash first, so that no colour is needed.
    pub const fn axis(&self, axis: Axis) -> super::scene::Dash {
        use super::scene::Dash;
        match axis {
            Axis::Dp => Dash::Solid,
            Axis::Tp => Dash::Dashed,
            Axis::Pp => Dash::Dotted,
        }
    }

    /// Fills of [light, dark, print]; black or white text, whichever is read better.
    fn paint(&self, fills: [u32; 3], pattern: Option<Pattern>) -> Paint {
        let fill = Rgb::hex(match self.kind {
            Kind::Light => fills[0],
            Kind::Dark => fills[1],
            Kind::Print => fills[2],
        });
        let ink = if fill.contrast(WHITE) > 4.5 { WHITE } else { BLACK };
        // Of its own hue and darker: what is pale on a light ground keeps its outline.
        let edge = (self.kind != Kind::Dark && fill.contrast(self.ground) < 3.0)
            .then(|| fill.darker(EDGE));
        Paint { fill, ink, pattern, pattern_ink: fill.mixed(ink, 0.45), edge }
    }
}

#[cfg(test)]
mod tests;
