//! The last steps of a run as small bars, one a step, with a brush around some of them.

use std::ops::Range;

use super::scene::{Align, Area, Dash, Face, Point, Shape, Sketch, Text, line_height};

/// How many steps are shown at most: the newest.
pub const MOST: usize = 200;

/// What is shown of each step.
#[derive(Clone, Debug)]
pub struct MiniMap<'a> {
    /// What the height of a bar is: `loss`, or `step length`.
    pub name: &'a str,
    /// Number of the first value's step.
    pub first: u64,
    /// One value a step, ascending; what is no finite number is marked as a fault.
    pub values: &'a [f64],
    /// The step that the timeline shows.
    pub shown: Option<u64>,
    /// Steps that are brushed: a loop, or an export.
    pub brush: Option<Range<u64>>,
}

/// Where steps lie.
#[derive(Clone, Debug, PartialEq)]
pub struct MiniLayout {
    /// All bars.
    pub bars: Area,
    /// The steps that are shown.
    pub steps: Range<u64>,
    /// Width of one, its gap included.
    pub pitch: f32,
}

impl MiniLayout {
    /// The step under a place, the nearest at the edges; `None` where there is none.
    pub fn step_at(&self, x: f32) -> Option<u64> {
        let index = ((x - self.bars.left) / self.pitch.max(f32::EPSILON)).max(0.0) as u64;
        let last = self.steps.end.checked_sub(1)?;
        (!self.steps.is_empty()).then(|| (self.steps.start + index).min(last))
    }

    /// Where the bar of a step begins.
    pub fn x_at(&self, step: u64) -> f32 {
        let index = step.clamp(self.steps.start, self.steps.end) - self.steps.start;
        self.bars.left + index as f32 * self.pitch
    }
}

/// Paints the steps in `bars`, a name in `names` and the newest value in `values`: the columns of
/// the timeline above.
pub fn draw(
    sketch: &mut Sketch<'_>,
    map: &MiniMap<'_>,
    bars: Area,
    names: Area,
    values: Option<Area>,
) -> MiniLayout {
    let theme = *sketch.theme();
    let skipped = map.values.len().saturating_sub(MOST);
    let shown = &map.values[skipped..];
    let start = map.first + skipped as u64;
    let steps = start..start + shown.len() as u64;
    // Bars keep their width while steps come in.
    let pitch = bars.width / MOST as f32;
    let layout = MiniLayout { bars, steps, pitch };
    let largest = shown.iter().copied().filter(|value| value.is_finite()).fold(0.0, f64::max);
    let gap = if pitch >= 3.0 { 1.0 } else { 0.0 };
    for (step, value) in (layout.steps.start..).zip(shown) {
        let left = layout.x_at(step);
        let part = if largest > 0.0 { (value.max(0.0) / largest) as f32 } else { 0.0 };
        let is_brushed = map.brush.as_ref().is_none_or(|brush| brush.contains(&step));
        let (height, fill) = match value.is_finite() {
            true if is_brushed => (part, theme.faint),
            true => (part, theme.rule),
            false => (1.0, theme.error),
        };
        let height = (height * bars.height).max(1.0);
        let area = Area::new(left, bars.bottom() - height, (pitch - gap).max(0.5), height);
        sketch.fill(area, fill);
    }
    if let Some(brush) = &map.brush {
        let (left, right) = (layout.x_at(brush.start), layout.x_at(brush.end));
        frame(sketch, Area::new(left, bars.top, (right - left).max(2.0), bars.height));
    }
    if let Some(step) = map.shown.filter(|step| layout.steps.contains(step)) {
        let x = layout.x_at(step) + pitch / 2.0;
        let [from, to] = [bars.top, bars.bottom()].map(|y| Point { x, y });
        sketch.line(from, to, 2.0, theme.accent);
    }
    let unit = theme.label_size / 12.0;
    let measure = sketch.canvas.measure;
    let wide = |text: &str| measure.width(text, theme.label_size, Face::Sans);
    let mut write = |within: Area, text: &str, align: Align| {
        let within = within.shrunk(8.0 * unit, 0.0);
        if within.height < line_height(theme.label_size) {
            return;
        }
        let (size, face) = (theme.label_size, Face::Sans);
        let (ink, ground) = (theme.faint, theme.ground);
        sketch.label(within, Text { text, size, face, align, ink, ground });
    };
    match layout.steps.end.checked_sub(1) {
        Some(last) if !layout.steps.is_empty() => {
            write(names, &format!("steps {}–{last}", layout.steps.start), Align::Left);
        }
        _ => write(names, "no step yet", Align::Left),
    }
    if let (Some(column), Some(newest)) = (values, shown.last()) {
        let text = match newest.is_finite() {
            true => format!("{} {newest:.2}", map.name),
            false => format!("{} is not finite", map.name),
        };
        let long = format!("newest {text}");
        let fits = wide(&long) + 16.0 * unit <= column.width;
        write(column, if fits { &long } else { &text }, Align::Right);
    }
    layout
}

/// The edge of a brush.
fn frame(sketch: &mut Sketch<'_>, area: Area) {
    let points = area.outline();
    let ink = sketch.theme().ink;
    sketch.push(Shape::Line { points, width: 1.0, ink, dash: Dash::Solid });
}

#[cfg(test)]
mod tests {
    use super::super::fonts::SansTable;
    use super::super::scene::{Canvas, Scene};
    use super::super::theme::Theme;
    use super::*;

    fn drawn(map: &MiniMap<'_>) -> (Scene, MiniLayout) {
        let theme = Theme::DARK;
        let canvas = Canvas { theme: &theme, measure: &SansTable };
        let mut sketch = Sketch::new(canvas, Area::sized(1264.0, 24.0));
        let bars = Area::new(132.0, 0.0, 1000.0, 24.0);
        let names = Area::sized(132.0, 24.0);
        let layout = draw(&mut sketch, map, bars, names, Some(Area::new(1132.0, 0.0, 132.0, 24.0)));
        (sketch.scene, layout)
    }

    #[test]
    fn the_newest_steps_are_shown_and_found_again() {
        let values: Vec<f64> = (0..450).map(|step| 5.5 / f64::from(step + 1)).collect();
        let map = MiniMap {
            name: "loss",
            first: 0,
            values: &values,
            shown: Some(300),
            brush: Some(260..270),
        };
        let (scene, layout) = drawn(&map);
        assert_eq!(layout.steps, 250..450);
        for step in layout.steps.clone() {
            assert_eq!(layout.step_at(layout.x_at(step) + 2.0), Some(step));
        }
        assert_eq!((layout.step_at(-9.0), layout.step_at(9e9)), (Some(250), Some(449)));
        let texts: Vec<&str> = scene.labels().map(|label| label.text.as_str()).collect();
        assert_eq!(texts, ["steps 250–449", "newest loss 0.01"]);
    }

    #[test]
    fn a_run_without_steps_or_with_faults_is_drawn() {
        let (scene, layout) =
            drawn(&MiniMap { name: "loss", first: 0, values: &[], shown: Some(3), brush: None });
        assert_eq!((scene.shapes.len(), layout.step_at(500.0)), (1, None));
        let values = [f64::NAN, f64::INFINITY, -1.0, 0.0];
        let (scene, _) =
            drawn(&MiniMap { name: "loss", first: 7, values: &values, shown: None, brush: None });
        let red = scene.shapes.iter().filter(
            |shape| matches!(shape, Shape::Fill { fill, .. } if *fill == Theme::DARK.error),
        );
        assert_eq!(red.count(), 2);
    }
}
