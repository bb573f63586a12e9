//! How the window looks: the theme of the pictures, sizes of text and bars, grounds of controls.
//!
//! Colours come from [`shardlab::trace::draw::theme`]; what the chrome adds is mixed from them, so
//! that no role colour is ever used for a control. Sizes are points; a projector multiplies them.

use eframe::egui;
use shardlab::trace::draw::theme::{Kind, Rgb, Theme};

/// Which of the two designs, or that of the system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    /// As the system has it.
    #[default]
    System,
    /// Dark on light.
    Light,
    /// Light on dark.
    Dark,
    /// Grey on white, as a printer without colour prints it.
    Print,
}

/// Who looks from where: decides the sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Distance {
    /// At a desk.
    #[default]
    Desk,
    /// A room, through a projector.
    Room,
}

/// Colours and sizes of everything in the window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    /// Colours and label size of the pictures.
    pub theme: Theme,
    /// What all sizes are multiplied by.
    pub scale: f32,
}

impl Look {
    /// For a kind of theme and a distance.
    pub fn new(kind: Kind, distance: Distance) -> Self {
        let theme = Theme::of(kind);
        match distance {
            Distance::Desk => Self { theme, scale: 1.0 },
            Distance::Room => Self { theme: theme.projected(), scale: 1.6 },
        }
    }

    /// Size of text that is read as sentences.
    pub fn body(&self) -> f32 {
        14.0 * self.scale
    }

    /// Size of labels.
    pub fn small(&self) -> f32 {
        self.theme.label_size
    }

    /// Size of the four figures.
    pub fn figure(&self) -> f32 {
        22.0 * self.scale
    }

    /// Size of headings.
    pub fn heading(&self) -> f32 {
        16.0 * self.scale
    }

    /// A distance of `steps` × 4 points.
    pub fn gap(&self, steps: u8) -> f32 {
        4.0 * self.scale * f32::from(steps)
    }

    /// Ground of a control.
    pub fn control(&self, state: Touch) -> Rgb {
        let theme = &self.theme;
        let base = theme.ground.mixed(theme.ink, 0.05);
        match state {
            Touch::Rest => base,
            Touch::Hover => base.mixed(theme.ink, 0.09),
            Touch::Down => base.mixed(theme.ink, 0.18),
        }
    }

    /// What a list or a dialogue lies on.
    pub fn popup(&self) -> Rgb {
        self.theme.raised
    }

    /// Tells egui's own widgets (text fields) the colours and sizes.
    pub fn apply(&self, ctx: &egui::Context) {
        let (theme, dark) = (&self.theme, self.theme.kind == Kind::Dark);
        let mut style = (*ctx.global_style()).clone();
        let mut visuals = if dark { egui::Visuals::dark() } else { egui::Visuals::light() };
        visuals.override_text_color = Some(colour(theme.ink));
        visuals.panel_fill = colour(theme.ground);
        visuals.window_fill = colour(theme.raised);
        visuals.extreme_bg_color = colour(theme.raised);
        visuals.selection.bg_fill = colour(theme.raised.mixed(theme.accent, 0.35));
        visuals.selection.stroke = egui::Stroke::new(1.0, colour(theme.accent));
        style.visuals = visuals;
        style.animation_time = 0.0;
        style.spacing.item_spacing = egui::Vec2::ZERO;
        let body = egui::FontId::proportional(self.body());
        style.text_styles.insert(egui::TextStyle::Body, body);
        ctx.set_theme(if dark { egui::Theme::Dark } else { egui::Theme::Light });
        ctx.set_style_of(egui::Theme::Dark, style.clone());
        ctx.set_style_of(egui::Theme::Light, style);
    }
}

/// The fonts of the window: egui's own, and for arrows in sentences those of its fixed font.
pub fn fonts() -> egui::FontDefinitions {
    let mut fonts = egui::FontDefinitions::default();
    let fixed = fonts.families.get(&egui::FontFamily::Monospace).cloned().unwrap_or_default();
    let sans = fonts.families.entry(egui::FontFamily::Proportional).or_default();
    for name in fixed {
        if !sans.contains(&name) {
            sans.push(name);
        }
    }
    fonts
}

/// What the pointer does with a control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// Nothing.
    Rest,
    /// It is over it.
    Hover,
    /// It is pressed, or chosen.
    Down,
}

/// A colour as egui takes it.
pub fn colour(Rgb(red, green, blue): Rgb) -> egui::Color32 {
    egui::Color32::from_rgb(red, green, blue)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_on_every_ground_of_the_chrome() {
        for kind in [Kind::Light, Kind::Dark] {
            let look = Look::new(kind, Distance::Desk);
            let theme = &look.theme;
            let grounds = [
                theme.ground,
                look.popup(),
                look.control(Touch::Rest),
                look.control(Touch::Hover),
                look.control(Touch::Down),
            ];
            for ground in grounds {
                assert!(theme.ink.contrast(ground) >= 4.5, "{kind:?} ink on {ground:?}");
            }
            for (ink, ground) in [
                (theme.faint, theme.ground),
                (theme.faint, look.popup()),
                (theme.faint, look.control(Touch::Rest)),
                (theme.warning, theme.ground),
                (theme.error, theme.ground),
                (theme.warning, look.popup()),
                (theme.error, look.popup()),
            ] {
                assert!(ink.contrast(ground) >= 4.5, "{kind:?} {ink:?} on {ground:?}");
            }
        }
    }

    #[test]
    fn no_text_is_smaller_than_twelve_points_or_eighteen_for_a_room() {
        for (distance, least) in [(Distance::Desk, 12.0), (Distance::Room, 18.0)] {
            let look = Look::new(Kind::Light, distance);
            for size in [look.body(), look.small(), look.figure(), look.heading()] {
                assert!(size >= least, "{size} for {distance:?}");
            }
        }
    }
}
