//! How panels write and rule: labels in one size, figures, legends, plots with round ticks.
//!
//! Only what several panels share. Every text still goes through [`Sketch::label`].

use super::scene::{Align, Area, Face, Pattern, Point, Shape, Sketch, Text, line_height};
use super::theme::{Paint, Rgb};
use crate::trace::Badge;
use crate::units::Bytes;

/// Colours of a text and of what lies under it.
#[derive(Clone, Copy, Debug)]
pub(super) struct On {
    pub(super) ink: Rgb,
    pub(super) ground: Rgb,
}

impl Sketch<'_> {
    /// Ink on the window.
    pub(super) fn plain(&self) -> On {
        On { ink: self.theme().ink, ground: self.theme().ground }
    }

    /// Text of less weight on the window.
    pub(super) fn faint(&self) -> On {
        On { ink: self.theme().faint, ground: self.theme().ground }
    }

    /// Text on a painted role.
    pub(super) fn on_paint(&self, paint: Paint) -> On {
        On { ink: paint.ink, ground: paint.fill }
    }

    /// Writes a label in the size of labels.
    pub(super) fn write(&mut self, within: Area, text: &str, align: Align, on: On) -> Option<Area> {
        self.set(within, text, (align, Face::Sans), on)
    }

    /// Writes figures, all equally wide.
    pub(super) fn figures(
        &mut self,
        within: Area,
        text: &str,
        align: Align,
        on: On,
    ) -> Option<Area> {
        self.set(within, text, (align, Face::Mono), on)
    }

    fn set(
        &mut self,
        within: Area,
        text: &str,
        (align, face): (Align, Face),
        On { ink, ground }: On,
    ) -> Option<Area> {
        let size = self.theme().label_size;
        self.label(within, Text { text, size, face, align, ink, ground })
    }

    /// Writes a label only where it fits whole.
    pub(super) fn write_whole(
        &mut self,
        within: Area,
        text: &str,
        align: Align,
        on: On,
    ) -> Option<Area> {
        (self.wide(text) <= within.width).then(|| self.write(within, text, align, on)).flatten()
    }

    /// Width of a label.
    pub(super) fn wide(&self, text: &str) -> f32 {
        self.canvas.measure.width(text, self.theme().label_size, Face::Sans)
    }

    /// Height of a line of labels.
    pub(super) fn line_of_text(&self) -> f32 {
        line_height(self.theme().label_size)
    }

    /// How much larger everything is than at a desk.
    pub(super) fn zoom(&self) -> f32 {
        (self.theme().label_size / 12.0).max(1.0)
    }

    /// A rectangle as a role is painted; patterns only where there is room for them.
    pub(super) fn painted(&mut self, area: Area, paint: Paint) {
        let has_room = area.width >= 6.0 && area.height >= 6.0;
        let pattern =
            paint.pattern.filter(|_| has_room).map(|pattern| (pattern, paint.pattern_ink));
        let edge = paint.edge.filter(|_| area.width >= 6.0);
        self.push(Shape::Fill { area, fill: paint.fill, pattern, edge, corner: 0.0 });
    }

    /// Hatches a rectangle both ways: what is more than fits.
    pub(super) fn crossed(&mut self, area: Area, fill: Rgb) {
        const GAP: f32 = 6.0;
        let ink = self.theme().error;
        let pattern = Some((Pattern::Rising, ink));
        self.push(Shape::Fill { area, fill, pattern, edge: Some(ink), corner: 0.0 });
        let mut at = area.left - area.height;
        while at < area.right() {
            // From the upper edge down to the right, cut at the left and right edges.
            let (left, right) = (at.max(area.left), (at + area.height).min(area.right()));
            if left < right {
                let from = Point { x: left, y: area.top + (left - at) };
                let to = Point { x: right, y: area.top + (right - at) };
                self.line(from, to, 1.0, ink);
            }
            at += GAP;
        }
    }

    /// A badge at the right end of a line; what is left of the line.
    pub(super) fn badge(&mut self, line: Area, badge: Badge) -> Area {
        let width = self.wide(badge.word());
        let (right, rest) = line.cut_right(width);
        let on = self.faint();
        self.write_whole(right, badge.word(), Align::Right, on);
        rest.cut_right(8.0).1
    }

    /// A swatch with its meaning; what is left of the line, unchanged if it does not fit.
    pub(super) fn swatch(&mut self, line: Area, paint: Paint, meaning: &str) -> Area {
        let side = (self.theme().label_size * 0.8).round();
        let width = side + 4.0 + self.wide(meaning) + 12.0;
        if width > line.width {
            return line;
        }
        let (entry, rest) = line.cut_left(width);
        let top = entry.centre().y - side / 2.0;
        self.painted(Area::new(entry.left, top, side, side), paint);
        let on = self.plain();
        self.write(entry.cut_left(side + 4.0).1, meaning, Align::Left, on);
        rest
    }

    /// An upright or level line.
    pub(super) fn rule(&mut self, from: Point, to: Point) {
        let ink = self.theme().rule;
        self.line(from, to, 1.0, ink);
    }
}

/// Black or white, whichever is read better.
pub(super) fn ink_on(ground: Rgb) -> Rgb {
    let (black, white) = (Rgb(0, 0, 0), Rgb(255, 255, 255));
    if ground.contrast(white) > ground.contrast(black) { white } else { black }
}

/// The unit in which sizes up to `largest` are written, and its bytes.
pub(super) fn unit(largest: Bytes) -> (&'static str, u64) {
    match largest.0 {
        0..1_024 => ("B", 1),
        1_024..104_858 => ("KiB", 1 << 10),
        104_858..1_073_741_824 => ("MiB", 1 << 20),
        _ => ("GiB", 1 << 30),
    }
}

/// A size in that unit, with one digit behind the point
/// (a little beside much is in a unit of its own: 0.0 would say that it is nothing).
pub(super) fn sized(bytes: Bytes, unit: (&str, u64)) -> String {
    match 20 * bytes.0 < unit.1 {
        true => bytes.to_string(),
        false => format!("{} {}", number(bytes, unit), unit.0),
    }
}

/// The same without the name of the unit, which stands nearby.
pub(super) fn number(bytes: Bytes, (_, size): (&str, u64)) -> String {
    match size {
        1 => bytes.0.to_string(),
        _ => format!("{:.1}", bytes.0 as f64 / size as f64),
    }
}

/// The distance of at most `most` round ticks over `span`: 1, 2 or 5 times a power of ten.
pub(super) fn tick(span: f64, most: usize) -> f64 {
    if !(span.is_finite() && span > 0.0) {
        return 1.0;
    }
    let least = span / most.max(1) as f64;
    let scale = 10f64.powf(least.log10().floor());
    let round = [1.0, 2.0, 5.0, 10.0].into_iter().find(|step| step * scale >= least * 0.999_999);
    round.unwrap_or(10.0) * scale
}

/// A number at a tick of that distance, without needless digits.
pub(super) fn at_tick(value: f64, tick: f64) -> String {
    let digits = (-(tick.abs().log10() + 1e-9).floor()).clamp(0.0, 9.0) as usize;
    format!("{value:.digits$}").replace('-', "−")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_not_too_many() {
        for (span, most, expected) in
            [(10.0, 5, 2.0), (1.0, 4, 0.5), (0.03, 3, 0.01), (7.0, 7, 1.0), (0.0, 3, 1.0)]
        {
            assert!((tick(span, most) - expected).abs() < 1e-12, "{span} {most}");
        }
        assert_eq!(at_tick(2.5, 0.5), "2.5");
        assert_eq!(at_tick(-0.02, 0.01), "−0.02");
        assert_eq!(at_tick(200.0, 50.0), "200");
        assert_eq!(at_tick(1.0, 0.1), "1.0");
    }

    #[test]
    fn sizes_share_a_unit() {
        assert_eq!(sized(Bytes(524_288), unit(Bytes(3 << 20))), "0.5 MiB");
        assert_eq!(sized(Bytes(2048), unit(Bytes(2048))), "2.0 KiB");
        assert_eq!(sized(Bytes(4096), unit(Bytes(3 << 20))), "4.0 KiB");
        assert_eq!(sized(Bytes(0), unit(Bytes(3 << 20))), "0 B");
        assert_eq!(sized(Bytes(12), unit(Bytes(12))), "12 B");
    }
}
