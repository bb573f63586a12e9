//! What stands above and below the rows: the time scale with the badge, and the legend.

use super::Timeline;
use super::frame::Frame;
use super::layout::Layout;
use super::paint::{label, swatch, unit};
use crate::trace::Badge;
use crate::trace::draw::scene::{Align, Area, Face, Point, Shape, Sketch, Text, line_height};
use crate::trace::draw::theme::{Paint, Rgb, Theme};
use crate::trace::draw::{Work, axis};

pub(super) fn draw_ruler(
    sketch: &mut Sketch<'_>,
    timeline: &Timeline,
    frame: &Frame<'_>,
    layout: &Layout,
) {
    let theme = *sketch.theme();
    let unit = unit(&theme);
    let ruler = layout.ruler;
    if ruler.height < line_height(theme.label_size) {
        return;
    }
    let taken = badge(sketch, ruler, frame.badge);
    let most = (ruler.width / (72.0 * unit)).max(1.0) as usize;
    let mut free = ruler.left;
    for (at, text) in axis::ticks(layout.window, most, timeline.unit()) {
        let x = layout.x_at(at);
        if !(ruler.left - 0.5..=ruler.right() + 0.5).contains(&x) {
            continue;
        }
        let mark = Point { x, y: ruler.bottom() };
        sketch.line(Point { y: ruler.bottom() - 5.0 * unit, ..mark }, mark, 1.0, theme.faint);
        let width = sketch.canvas.measure.width(&text, theme.label_size, Face::Sans);
        let left = (x - width / 2.0).max(ruler.left);
        let within = Area::new(left, ruler.top, width + 0.5, ruler.height - 6.0 * unit);
        if left >= free && within.right() <= taken - 4.0 {
            label(sketch, ruler, within, &text, Align::Left, theme.faint);
            free = within.right() + 8.0 * unit;
        }
    }
    if let Some(memory) = layout.memory {
        let head = Area { top: ruler.top, height: ruler.height - 6.0 * unit, ..memory };
        let head = head.shrunk(8.0 * unit, 0.0);
        let text = match timeline.capacity() {
            Some(capacity) => format!("Peak, of {capacity}"),
            None => "Peak memory".into(),
        };
        label(sketch, ruler, head, &text, Align::Right, theme.faint);
    }
    let from = Point { x: frame.area.left, y: ruler.bottom() };
    let to = Point { x: frame.area.right(), y: ruler.bottom() };
    sketch.line(from, to, 1.0, theme.rule);
}

/// The badge word at the top right of the track; returns where it begins.
fn badge(sketch: &mut Sketch<'_>, ruler: Area, badge: Badge) -> f32 {
    let theme = *sketch.theme();
    let unit = unit(&theme);
    let width = sketch.canvas.measure.width(badge.word(), theme.label_size, Face::Sans);
    let height = line_height(theme.label_size) + 2.0;
    let box_width = width + 10.0 * unit;
    let chip = Area::new(ruler.right() - box_width - 2.0, ruler.top + 2.0, box_width, height);
    if chip.left < ruler.left {
        return ruler.right();
    }
    let edge = Some(theme.rule);
    sketch.push(Shape::Fill { area: chip, fill: theme.raised, pattern: None, edge, corner: 3.0 });
    let text = Text {
        text: badge.word(),
        size: theme.label_size,
        face: Face::Sans,
        align: Align::Middle,
        ink: theme.ink,
        ground: theme.raised,
    };
    sketch.label(chip, text);
    chip.left
}

/// The paints of a picture, worked out once, and which of them its legend explains: what the step
/// has, not what is in sight or long enough to be seen, so that it stands still from step to step.
#[derive(Debug)]
pub(super) struct Roles {
    works: [Paint; Work::ALL.len()],
    waiting: Paint,
    message: Paint,
    pair: Paint,
    pub(super) shows: Shows,
}

/// What a legend explains: of one picture, or of several that share it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shows {
    has: Kinds,
    /// Whether ranks that end early or late are marked.
    ends: bool,
    /// Whether what lies outside of the schedule has a place behind the rows.
    outside: bool,
}

impl Shows {
    /// What one or the other shows.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            has: self.has.or(other.has),
            ends: self.ends || other.ends,
            outside: self.outside || other.outside,
        }
    }

    /// The same, and behind the rows what lies outside of the schedule.
    #[must_use]
    pub fn with_outside(self) -> Self {
        Self { outside: true, ..self }
    }

    /// An entry for each, in the order of a legend.
    fn entries(&self, theme: &Theme) -> Vec<Entry> {
        let Self { has, .. } = self;
        let entry = |paint, letters, words| Entry { paint, letters, words, mark: None };
        let of_step = Work::ALL.into_iter().filter(|work| has.works[*work as usize]);
        let works = of_step.clone();
        let works = works.map(|work| entry(theme.work(work), work.letters(), work.meaning()));
        let message = has.messages.then(|| entry(theme.message(), "", "message"));
        let waiting = has.waits.then(|| entry(theme.waiting(), "", "waiting"));
        // Marks lie on the first of all works.
        let ground = of_step.clone().next().map(|work| theme.work(work));
        let chunk = ground.filter(|_| has.chunks).map(|paint| Entry {
            mark: Some(Mark::Bar(paint.ink)),
            ..entry(paint, "", "second stage of a row")
        });
        let outside = self.outside.then(|| entry(theme.outside(), "", "outside of the schedule"));
        let notch = ground.filter(|_| has.notches).map(|paint| {
            let mark = Some(Mark::Notch(theme.waiting().fill));
            Entry { mark, ..entry(paint, "", "short waits inside") }
        });
        let ends = self.ends.then(|| {
            let mark = Some(Mark::Dot(theme.warning));
            Entry { mark, ..entry(pair(theme), "", "ends early or late") }
        });
        let pair = has.pairs.then(|| entry(pair(theme), "", "a pair: side by side"));
        let usual = works.chain(message).chain(waiting).chain(chunk).chain(pair).chain(outside);
        usual.chain(notch).chain(ends).collect()
    }
}

/// What joins a pair.
fn pair(theme: &Theme) -> Paint {
    Paint { fill: theme.faint, pattern: None, edge: None, ..theme.message() }
}

/// What there is to be seen in a step, or in a picture of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kinds {
    /// Work that takes time, by [`Work::ALL`].
    pub(super) works: [bool; Work::ALL.len()],
    /// Work of other lanes that takes time.
    pub(super) beside: [bool; Work::ALL.len()],
    /// Messages of passes that take time.
    pub(super) messages: bool,
    /// Waits.
    pub(super) waits: bool,
    /// Waits inside of work.
    pub(super) notches: bool,
    /// Work of a second stage of a row.
    pub(super) chunks: bool,
    /// Passes that run as one.
    pub(super) pairs: bool,
}

impl Kinds {
    /// What is in one or the other.
    pub(super) fn or(self, other: Self) -> Self {
        let any = |a: [bool; Work::ALL.len()], b: [bool; Work::ALL.len()]| {
            std::array::from_fn(|index| a[index] || b[index])
        };
        Self {
            works: any(self.works, other.works),
            beside: any(self.beside, other.beside),
            messages: self.messages || other.messages,
            waits: self.waits || other.waits,
            notches: self.notches || other.notches,
            chunks: self.chunks || other.chunks,
            pairs: self.pairs || other.pairs,
        }
    }

    /// Where work of other lanes has a band: it is work as well; where not, it is not seen.
    fn seen(self, has_band: bool) -> Self {
        let nothing = Self { beside: Default::default(), messages: false, pairs: false, ..self };
        let with_band = Self { works: self.beside, ..Self::default() };
        if has_band { self.or(with_band) } else { nothing }
    }
}

/// An entry of a legend.
struct Entry {
    paint: Paint,
    letters: &'static str,
    words: &'static str,
    /// What lies on its sample.
    mark: Option<Mark>,
}

impl Entry {
    /// Whether it explains a mark and no role.
    fn is_mark(&self) -> bool {
        matches!(self.mark, Some(Mark::Notch(_) | Mark::Dot(_)))
    }
}

/// What lies on a sample.
#[derive(Clone, Copy, Debug)]
enum Mark {
    /// A small bar on its middle.
    Bar(Rgb),
    /// A notch at its bottom.
    Notch(Rgb),
    /// A dot instead of it.
    Dot(Rgb),
}

impl Roles {
    pub(super) fn new(theme: &Theme, timeline: &Timeline, layout: &Layout) -> Self {
        let has_band = layout.rows.iter().any(|row| row.beside.is_some());
        Self {
            works: Work::ALL.map(|work| theme.work(work)),
            waiting: theme.waiting(),
            message: theme.message(),
            pair: pair(theme),
            shows: Shows { has: timeline.kinds.seen(has_band), ..Shows::default() },
        }
    }

    /// The paint of work, or of waiting.
    pub(super) fn paint(&self, work: Option<Work>) -> Paint {
        work.map_or(self.waiting, |work| self.works[work as usize])
    }

    /// The paint of a message.
    pub(super) fn message(&self) -> Paint {
        self.message
    }

    /// The paint of what joins a pair.
    pub(super) fn pair(&self) -> Paint {
        self.pair
    }

    /// The picture marks ranks that end early or late.
    pub(super) fn note_ends(&mut self) {
        self.shows.ends = true;
    }
}

/// Draws a legend: swatches with letters and, where there is room, words.
pub fn draw_legend(sketch: &mut Sketch<'_>, legend: Area, shows: &Shows) {
    let theme = *sketch.theme();
    let unit = unit(&theme);
    if legend.height < line_height(theme.label_size) {
        return;
    }
    let mut items = shows.entries(&theme);
    let size = theme.label_size;
    let width = |text: &str| sketch.canvas.measure.width(text, size, Face::Sans);
    let long = |letters: &str, words: &str| format!("{letters} {words}").trim().to_owned();
    let short = |letters: &str, words: &str| match letters {
        "" => words.to_owned(),
        _ => letters.to_owned(),
    };
    let (sample, gap) = (14.0 * unit, 5.0 * unit);
    let room = legend.width - 16.0 * unit;
    let total = |items: &[Entry]| -> f32 {
        let text = |item: &Entry| width(&long(item.letters, item.words));
        items.iter().map(|item| sample + gap + text(item) + 14.0 * unit).sum()
    };
    // Words for all roles are worth more than the marks.
    let marks = items.iter().filter(|item| item.is_mark()).count();
    if total(&items) > room && total(&items[..items.len() - marks]) <= room {
        items.truncate(items.len() - marks);
    }
    let texts: Vec<String> = match total(&items) <= room {
        true => items.iter().map(|item| long(item.letters, item.words)).collect(),
        false => items.iter().map(|item| short(item.letters, item.words)).collect(),
    };
    let widths: Vec<f32> = texts.iter().map(|text| width(text)).collect();
    let mut left = legend.left + 8.0 * unit;
    for ((item, text), width) in items.iter().zip(&texts).zip(widths) {
        if left + sample + gap + width > legend.right() {
            break;
        }
        let top = legend.centre().y - sample / 2.0;
        let area = Area::new(left, top, sample, sample);
        draw_sample(sketch, area, item);
        left += sample + gap;
        let within = Area::new(left, legend.top, width + 0.5, legend.height);
        label(sketch, legend, within, text, Align::Left, theme.ink);
        left += width + 14.0 * unit;
    }
}

fn draw_sample(sketch: &mut Sketch<'_>, area: Area, item: &Entry) {
    let (wide, high) = (area.width, area.height);
    if let Some(Mark::Dot(fill)) = item.mark {
        sketch.push(Shape::Dot { at: area.centre(), radius: wide / 5.0, fill });
        return;
    }
    swatch(sketch, area, item.paint, true);
    if let Some(Mark::Bar(ink)) = item.mark {
        sketch.fill(area.shrunk(wide / 4.0, high / 3.0), ink);
    } else if let Some(Mark::Notch(ink)) = item.mark {
        sketch.fill(area.shrunk(wide / 5.0, 0.0).cut_bottom(high / 3.0).0, ink);
    }
}
