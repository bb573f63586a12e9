//! Where everything of a timeline lies: columns, ruler, rows, and how finely blocks are cut.
//!
//! Nothing here depends on what a step did except the level of detail and which rank stands for
//! its group: rows, columns and text lines stay where they are from step to step.

use super::frame::{Frame, Legend, MemoryColumn};
use super::margins::Shows;
use super::{Level, Timeline};
use crate::mesh::Rank;
use crate::trace::draw::scene::{Area, Point};
use crate::trace::draw::theme::Theme;
use crate::units::Nanos;

/// More ranks than this are shown as groups, one a pipeline position.
const MOST_ROWS: usize = 16;
/// A level opens when its median block is at least this wide, in points.
const OPEN_AT: f32 = 24.0;

/// The least height of a row that has room for text, and the most that a row takes.
const NAMED: f32 = 20.0;
const MOST: f32 = 48.0;
/// Groups that have less room than this, in points, have no lines.
const LINES_FROM: f32 = 38.0;

/// What a row shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowKind {
    /// One rank.
    Rank(Rank),
    /// All ranks of a pipeline position: one of them large, a line for each below.
    Group {
        /// Which position.
        position: u32,
        /// The rank that is shown large: the one that ends last.
        shown: Rank,
    },
    /// The heading over the ranks of a position that is open.
    Heading {
        /// Which position.
        position: u32,
    },
}

/// A row and its parts; where it is scrolled out of sight it lies outside the track.
#[derive(Clone, Debug, PartialEq)]
pub struct RowBox {
    /// What it shows.
    pub kind: RowKind,
    /// From the left edge of the labels to the right edge of the picture.
    pub area: Area,
    /// Blocks: as wide as the track.
    pub blocks: Area,
    /// Work of other lanes that runs beside them.
    pub beside: Option<Area>,
    /// Of a group, the lines of its ranks.
    pub lines: Option<RankLines>,
    /// Whether there is room for text.
    pub has_text: bool,
    /// Whether another pipeline position ends above it.
    pub is_first_of_position: bool,
}

/// Thin lines, one a rank; with more ranks than lines, each stands for several.
#[derive(Clone, Debug, PartialEq)]
pub struct RankLines {
    /// All of them.
    pub area: Area,
    /// Height of one.
    pub pitch: f32,
    /// Which rank each line shows: of several the one that ends last.
    pub ranks: Vec<Rank>,
}

/// Where the parts of a timeline lie.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// The whole picture.
    pub area: Area,
    /// Time scale, over the track.
    pub ruler: Area,
    /// Names of ranks: what is visible of them.
    pub labels: Area,
    /// Blocks: what is visible of them.
    pub track: Area,
    /// Memory of ranks: what is visible of it.
    pub memory: Option<Area>,
    /// Roles and their colours.
    pub legend: Area,
    /// How high all rows are together; more than the track's height can be scrolled.
    pub content_height: f32,
    /// How far they are scrolled up.
    pub scrolled: f32,
    /// The time that the width of the track shows.
    pub window: (Nanos, Nanos),
    /// How finely blocks are cut.
    pub level: Level,
    /// From top to bottom.
    pub rows: Vec<RowBox>,
    /// What of it a legend explains: known once it is painted.
    pub shows: Shows,
}

impl Layout {
    /// Lays a frame out. A pure function: what [`super::draw`] paints lies exactly here.
    pub fn new(timeline: &Timeline, frame: &Frame<'_>, theme: &Theme) -> Self {
        let unit = theme.label_size / 12.0;
        let has_memory = frame.memory == MemoryColumn::Shown && !timeline.memory.is_empty();
        let narrow = frame.area.width < 420.0 * unit;
        let has_legend = frame.legend == Legend::Shown && frame.area.height >= 92.0 * unit;
        let (body, legend) = match has_legend {
            true => {
                let (legend, body) = frame.area.cut_bottom(24.0 * unit);
                (body, legend)
            }
            false => (frame.area, frame.area.cut_bottom(0.0).0),
        };
        let (head, body) = body.cut_top(28.0 * unit);
        let columns = |area: Area| {
            let (labels, rest) = area.cut_left(if narrow { 60.0 } else { 132.0 } * unit);
            let (memory, track) = rest.cut_right(if has_memory { 132.0 * unit } else { 0.0 });
            (labels, track, memory)
        };
        let (labels, track, memory) = columns(body);
        let ruler = columns(head).1;
        let (start, end) = frame.window;
        let window = (start, Nanos(end.0.max(start.0 + 1)));
        let mut layout = Self {
            area: frame.area,
            ruler,
            labels,
            track,
            memory: has_memory.then_some(memory),
            legend,
            content_height: 0.0,
            scrolled: 0.0,
            window,
            level: Level::Pass,
            rows: Vec::new(),
            shows: Shows::default(),
        };
        let mut stack = Stack { layout: &mut layout, unit, y: 0.0 };
        stack.all(timeline, frame);
        layout.content_height = stack.y;
        let up = frame.scroll.clamp(0.0, layout.hidden());
        layout.scrolled = up;
        layout.rows.iter_mut().for_each(|row| row.shift(track.top - up));
        layout.level = layout.fine_level(timeline, OPEN_AT * unit);
        layout
    }

    /// How high a picture must be so that all rows are seen at their best size.
    pub fn natural_height(timeline: &Timeline, frame: &Frame<'_>, theme: &Theme) -> f32 {
        let unit = theme.label_size / 12.0;
        let ranks = timeline.ranks().len();
        let rows = match is_grouped(timeline) {
            false if ranks <= MOST_ROWS => 36.0 * ranks as f32,
            false => 20.0 * ranks as f32,
            true => {
                let height = |position: u32| {
                    let count = timeline.position(position).count() as f32;
                    match frame.open.contains(&position) {
                        true => (count + 1.0) * 20.0,
                        false if count <= 1.0 => 36.0,
                        false => 44.0 + (count * 1.5).clamp(1.5, 96.0),
                    }
                };
                // Folded groups share the room alike.
                let all = 0..timeline.positions();
                let open = all.clone().filter(|position| frame.open.contains(position));
                let folded = all.filter(|position| !frame.open.contains(position));
                let most = folded.clone().map(height).fold(0.0, f32::max);
                open.map(height).sum::<f32>() + folded.count() as f32 * most.ceil()
            }
        };
        (28.0 + 24.0 + rows) * unit
    }

    /// How much of the rows is out of sight.
    pub fn hidden(&self) -> f32 {
        (self.content_height - self.track.height).max(0.0)
    }

    /// Where an instant lies.
    pub fn x_at(&self, time: Nanos) -> f32 {
        let (start, end) = self.window;
        let part = (time.0 as f64 - start.0 as f64) / (end - start).0 as f64;
        (f64::from(self.track.left) + part * f64::from(self.track.width)) as f32
    }

    /// The instant at a place; before the step began it is 0.
    pub fn time_at(&self, x: f32) -> Nanos {
        let (start, end) = self.window;
        let part = f64::from(x - self.track.left) / f64::from(self.track.width.max(1.0));
        Nanos((start.0 as f64 + part * (end - start).0 as f64).max(0.0) as u64)
    }

    /// The rows that can be seen.
    pub fn visible(&self) -> impl Iterator<Item = &RowBox> {
        let Area { top, .. } = self.track;
        let bottom = self.track.bottom();
        self.rows.iter().filter(move |row| row.area.bottom() > top && row.area.top < bottom)
    }

    /// What is visible of all rows, labels and memory included.
    pub fn rows_area(&self) -> Area {
        let Area { top, height, .. } = self.track;
        Area { top, height, ..self.area }
    }

    /// Where the blocks of a rank are drawn large, or else its line.
    pub fn band_of(&self, rank: Rank) -> Option<Area> {
        let large = |row: &&RowBox| match row.kind {
            RowKind::Rank(other) | RowKind::Group { shown: other, .. } => other == rank,
            RowKind::Heading { .. } => false,
        };
        if let Some(row) = self.rows.iter().find(large) {
            return Some(row.blocks);
        }
        self.rows.iter().filter_map(|row| row.lines.as_ref()).find_map(|lines| {
            let index = lines.ranks.iter().position(|other| *other == rank)?;
            Some(lines.line(index))
        })
    }

    /// The finest level whose blocks in sight are wide enough to be read; the coarsest where the
    /// whole step is in sight.
    fn fine_level(&self, timeline: &Timeline, wide: f32) -> Level {
        let (start, end) = self.window;
        let mut level = Level::Pass;
        if start == Nanos(0) && end >= timeline.end() {
            return level;
        }
        for finer in [Level::Layer, Level::Instr] {
            match self.median_width(timeline, finer, wide) {
                Some(median) if median >= wide => level = finer,
                _ => break,
            }
        }
        level
    }

    /// The median width of the work in sight; `None` where there is none, or so much that its
    /// median must be less than `wide`.
    fn median_width(&self, timeline: &Timeline, level: Level, wide: f32) -> Option<f32> {
        let (start, end) = self.window;
        let ranks: Vec<Rank> = self
            .visible()
            .filter_map(|row| match row.kind {
                RowKind::Rank(rank) | RowKind::Group { shown: rank, .. } => Some(rank),
                RowKind::Heading { .. } => None,
            })
            .collect();
        // Half of the blocks are at least as wide as the median, and all lie side by side. Waits
        // between them at most double their number.
        let most = 4 * (ranks.len() * (self.track.width / wide) as usize + ranks.len());
        let ranges: Vec<(Rank, usize, usize)> = ranks
            .into_iter()
            .map(|rank| {
                let row = timeline.row(rank);
                let last = row.index_at(level, end).min(row.len(level).saturating_sub(1));
                (rank, row.index_at(level, start), last + 1)
            })
            .collect();
        if ranges.iter().map(|(_, first, end)| end.saturating_sub(*first)).sum::<usize>() > most {
            return None;
        }
        let mut widths: Vec<Nanos> = Vec::new();
        for (rank, first, end) in ranges {
            let row = timeline.row(rank);
            let parts = (first..end.min(row.len(level))).map(|index| row.part(level, index));
            widths.extend(parts.filter(|p| p.work.is_some()).map(|part| part.span.duration()));
        }
        widths.sort_unstable();
        let median = widths.get(widths.len() / 2)?;
        Some(self.x_at(start + *median) - self.track.left)
    }

    /// Whether a point is on something that belongs to rows.
    pub(super) fn row_at(&self, at: Point) -> Option<&RowBox> {
        let in_rows = (self.track.top..self.track.bottom()).contains(&at.y)
            && (self.area.left..self.area.right()).contains(&at.x);
        self.visible().filter(|_| in_rows).find(|row| row.area.contains(at))
    }
}

impl RowBox {
    fn shift(&mut self, down: f32) {
        let lines = self.lines.as_mut().map(|lines| &mut lines.area);
        let parts = [&mut self.area, &mut self.blocks].into_iter();
        for area in parts.chain(self.beside.as_mut()).chain(lines) {
            area.top += down;
        }
    }
}

impl RankLines {
    /// Where a line lies.
    pub fn line(&self, index: usize) -> Area {
        let top = self.area.top + index as f32 * self.pitch;
        Area::new(self.area.left, top, self.area.width, self.pitch)
    }
}

/// Whether there are so many ranks that those of a pipeline position share a row.
fn is_grouped(timeline: &Timeline) -> bool {
    let ranks = timeline.ranks().len();
    timeline.has_alike() || ranks > MOST_ROWS && ranks > timeline.plan().mesh.pp as usize
}

/// The lower part of a group that is laid out.
struct Lines {
    /// Height of what stands above them.
    large: f32,
    /// Height of one.
    pitch: f32,
    /// Which rank each shows.
    ranks: Vec<Rank>,
}

/// Puts rows below one another.
struct Stack<'a> {
    layout: &'a mut Layout,
    unit: f32,
    y: f32,
}

impl Stack<'_> {
    fn all(&mut self, timeline: &Timeline, frame: &Frame<'_>) {
        let positions = timeline.positions();
        let ranks = timeline.ranks().len();
        let room = self.layout.track.height;
        if !is_grouped(timeline) {
            let height = self.row_height(room / ranks.max(1) as f32);
            for position in 0..positions {
                let rows: Vec<Rank> = timeline.position(position).collect();
                self.ranks(&rows, height, position > 0);
            }
            return;
        }
        // What open groups do not take is shared by the others.
        let height = |position: u32| {
            let count = timeline.position(position).count() as f32;
            frame.open.contains(&position).then_some((count + 1.0) * 20.0 * self.unit)
        };
        let taken: f32 = (0..positions).filter_map(height).sum();
        let folded = (0..positions).filter(|position| !frame.open.contains(position)).count();
        let share = ((room - taken) / folded.max(1) as f32).floor();
        for position in 0..positions {
            let rows: Vec<Rank> = timeline.position(position).collect();
            if frame.open.contains(&position) {
                let kind = RowKind::Heading { position };
                self.push(kind, 20.0 * self.unit, None, position > 0);
                self.ranks(&rows, 20.0 * self.unit, false);
            } else if let Some(shown) = timeline.slowest(position) {
                self.group(timeline, position, shown, share);
            }
        }
    }

    /// Rows of text where that is possible, else bars; below that rows are scrolled.
    fn row_height(&self, share: f32) -> f32 {
        let unit = self.unit;
        match share / unit {
            share if share >= NAMED => (share * unit).floor().clamp(NAMED * unit, MOST * unit),
            share if share >= 10.0 => (share * unit).floor(),
            _ => NAMED * unit,
        }
    }

    fn ranks(&mut self, ranks: &[Rank], height: f32, has_rule: bool) {
        for (index, &rank) in ranks.iter().enumerate() {
            self.push(RowKind::Rank(rank), height, None, has_rule && index == 0);
        }
    }

    /// A group: one rank large, the others as lines below. Where groups have little room the lines
    /// become fewer and go first, the names last.
    fn group(&mut self, timeline: &Timeline, position: u32, shown: Rank, share: f32) {
        let ranks: Vec<Rank> = timeline.position(position).collect();
        let unit = self.unit;
        let kind = RowKind::Group { position, shown };
        let (pitch, gaps) = (1.5 * unit, 8.0 * unit);
        // Of ranks that are all alike there is nothing that lines could show.
        if ranks.len() == 1 || share < LINES_FROM * unit {
            let height = share.floor().clamp(NAMED * unit, MOST * unit);
            self.push(kind, height, None, position > 0);
            return;
        }
        let large = (share - gaps - 12.0 * unit).clamp(26.0 * unit, 36.0 * unit);
        let room = (share - large - gaps).clamp(0.0, 96.0 * unit);
        let count = ranks.len().min((room / pitch) as usize).max(1);
        let slowest = |line: usize| {
            let bounds = |line: usize| line * ranks.len() / count;
            let bunch = ranks[bounds(line)..bounds(line + 1)].iter().rev();
            bunch.max_by_key(|rank| timeline.done(**rank)).copied()
        };
        let ranks: Vec<Rank> = (0..count).filter_map(slowest).collect();
        let height = large + count as f32 * pitch + gaps;
        self.push(kind, height, Some(Lines { large, pitch, ranks }), position > 0);
    }

    fn push(
        &mut self,
        kind: RowKind,
        height: f32,
        lines: Option<Lines>,
        is_first_of_position: bool,
    ) {
        let Layout { area, track, .. } = *self.layout;
        let unit = self.unit;
        let whole = Area::new(area.left, self.y, area.width, height);
        let band = Area::new(track.left, self.y, track.width, height);
        let large = lines.as_ref().map_or(height, |lines| lines.large);
        let pad = if large >= 26.0 * unit { 3.0 * unit } else { unit };
        let (mut blocks, _) = band.cut_top(large);
        blocks = blocks.shrunk(0.0, pad);
        let mut beside = None;
        if large >= 28.0 * unit {
            let (below, above) = blocks.cut_bottom(4.0 * unit);
            beside = Some(below);
            blocks = above.cut_bottom(unit).1;
        }
        let lines = lines.map(|Lines { pitch, ranks, .. }| {
            let top = self.y + large + 2.0 * unit;
            let area = Area::new(track.left, top, track.width, pitch * ranks.len() as f32);
            RankLines { area, pitch, ranks }
        });
        if matches!(kind, RowKind::Heading { .. }) {
            (blocks, beside) = (Area::new(track.left, self.y, 0.0, 0.0), None);
        }
        let has_text = large >= NAMED * unit - 0.01;
        let row =
            RowBox { kind, area: whole, blocks, beside, lines, has_text, is_first_of_position };
        self.layout.rows.push(row);
        self.y += height;
    }
}
