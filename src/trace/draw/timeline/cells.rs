//! Paints the blocks of rows, at the level and as finely as there is room.

use super::hit::NOTCH;
use super::layout::{Layout, RankLines, RowBox};
use super::margins::Roles;
use super::row::{Part, RankRow, Sum};
use super::{Level, Timeline};
use crate::mesh::Rank;
use crate::ops::Kernel as _;
use crate::plan::Action;
use crate::trace::Span;
use crate::trace::cause::{self, Cause};
use crate::trace::draw::scene::{Align, Area, Face, Shape, Sketch, Text, line_height};
use crate::trace::draw::theme::{Paint, Theme};
use crate::trace::draw::{Block, Work, label};
use crate::units::Nanos;

/// What is narrower is painted together with its neighbours.
const DENSE: f32 = 3.0;
/// What is narrower has no edge.
const EDGE: f32 = 6.0;
/// What is narrower has no pattern, unless it is a wait.
const PATTERN: f32 = 10.0;

/// Paints rows into a sketch.
pub(super) struct Painter<'p, 'a> {
    sketch: &'p mut Sketch<'a>,
    timeline: &'p Timeline,
    layout: &'p Layout,
    roles: &'p Roles,
    theme: Theme,
}

/// What the walk over a row comes to next.
enum Step {
    /// A cell wide enough to be seen.
    Cell(Part),
    /// Cells that are too narrow, and what most of them do.
    Dense(Span, Option<Work>),
}

impl<'p, 'a> Painter<'p, 'a> {
    pub(super) fn new(
        sketch: &'p mut Sketch<'a>,
        timeline: &'p Timeline,
        layout: &'p Layout,
        roles: &'p Roles,
    ) -> Self {
        let theme = *sketch.theme();
        Self { sketch, timeline, layout, roles, theme }
    }

    /// The blocks of a rank, and below them what runs beside.
    pub(super) fn row(&mut self, rank: Rank, row: &RowBox) {
        let level = self.layout.level;
        for step in walk(self.timeline.row(rank), level, self.layout) {
            match step {
                Step::Cell(part) => self.cell(rank, row, &part),
                Step::Dense(span, work) => self.dense(row.blocks, span, work),
            }
        }
        if let Some(band) = row.beside {
            self.beside(rank, band);
            self.pairs(rank, band);
        }
    }

    /// A bar below the passes of each pair.
    fn pairs(&mut self, rank: Rank, band: Area) {
        for &span in self.timeline.pairs_of(rank) {
            if let Some(area) = self.visible(band, span) {
                let ends = if area.width >= 6.0 { 2.0 } else { 0.0 };
                let fill = self.roles.pair().fill;
                self.sketch.fill(area.shrunk(ends, band.height / 4.0), fill);
            }
        }
    }

    /// The lines of a group.
    pub(super) fn lines(&mut self, lines: &RankLines) {
        for (index, &rank) in lines.ranks.iter().enumerate() {
            let line = lines.line(index);
            let mut open: Option<(Span, Option<Work>)> = None;
            for step in walk(self.timeline.row(rank), Level::Pass, self.layout) {
                let (span, work) = match step {
                    Step::Cell(part) => (part.span, part.work),
                    Step::Dense(span, work) => (span, work),
                };
                match &mut open {
                    Some((before, same)) if *same == work => before.end = span.end,
                    _ => {
                        if let Some((before, work)) = open.replace((span, work)) {
                            self.dense(line, before, work);
                        }
                    }
                }
            }
            if let Some((span, work)) = open {
                self.dense(line, span, work);
            }
        }
    }

    /// The part of `band` that `span` takes and that can be seen.
    fn visible(&self, band: Area, span: Span) -> Option<Area> {
        let (left, right) = (self.layout.x_at(span.start), self.layout.x_at(span.end));
        Area::new(left, band.top, right - left, band.height).common(self.layout.track)
    }

    /// A bar of one colour, without pattern or edge.
    fn dense(&mut self, band: Area, span: Span, work: Option<Work>) {
        let Some(area) = self.visible(band, span) else { return };
        let fill = self.roles.paint(work).fill;
        self.sketch.fill(area, fill);
    }

    fn cell(&mut self, rank: Rank, row: &RowBox, part: &Part) {
        let Some(area) = self.visible(row.blocks, part.span) else { return };
        let paint = self.roles.paint(part.work);
        let waits = part.work.is_none();
        // Neighbours of one colour stay apart.
        let gap = if area.width >= 4.0 && !waits { 1.0 } else { 0.0 };
        let area = Area { width: area.width - gap, ..area };
        let pattern = paint.pattern.filter(|_| waits || area.width >= PATTERN);
        let pattern = pattern.map(|pattern| (pattern, paint.pattern_ink));
        let edge = paint.edge.filter(|_| area.width >= EDGE);
        let corner = if waits || area.width < 8.0 { 0.0 } else { 2.0 };
        let index = self.sketch.scene.shapes.len();
        self.sketch.push(Shape::Fill { area, fill: paint.fill, pattern, edge, corner });
        if self.sketch.has_titles() {
            let target = self.timeline.target_of(rank, self.layout.level, &part.pieces);
            self.sketch.title(index, self.timeline.explain(&target));
        }
        if part.work.is_some() {
            self.insides(rank, row, part);
        }
        let is_second = self.is_second_chunk(part, rank);
        let is_named = row.has_text && self.name(rank, part, (area, paint));
        if is_second && !is_named && area.width >= 4.0 {
            let (wide, high) = ((area.width * 0.5).min(8.0), (area.height * 0.3).min(6.0));
            let at = area.centre();
            let mark = Area::new(at.x - wide / 2.0, at.y - high / 2.0, wide, high);
            self.sketch.fill(mark, paint.ink);
        }
    }

    /// Waits in a block as notches at its bottom, forward that is run again as a strip at its top.
    fn insides(&mut self, rank: Rank, row: &RowBox, part: &Part) {
        let high = (row.blocks.height * NOTCH).max(2.0);
        let notches = row.blocks.cut_bottom(high).0;
        let strips = row.blocks.cut_top(high).0;
        let mut seen = Nanos(0);
        for (work, span) in self.timeline.row(rank).insides(part) {
            // What ends within the same half point is seen as one.
            if span.end <= seen {
                continue;
            }
            seen = self.layout.time_at(self.layout.x_at(span.end) + 0.5);
            let band = if work.is_none() { notches } else { strips };
            if let Some(area) = self.visible(band, span) {
                let fill = self.roles.paint(work).fill;
                self.sketch.fill(area, fill);
            }
        }
    }

    /// The longest name that fits, above the notches; says whether one does.
    fn name(&mut self, rank: Rank, part: &Part, (area, paint): (Area, Paint)) -> bool {
        let size = self.theme.label_size + 1.0;
        let waits = part.work.is_none();
        let room = text_room(area, size).shrunk(if waits { 6.0 } else { 2.0 }, 0.0);
        if room.width < size * 0.9 || room.height < line_height(size) - 0.1 {
            return false;
        }
        let measure = self.sketch.canvas.measure;
        let width = |text: &String| measure.width(text, size, Face::Sans);
        let names = self.names(rank, part).into_iter();
        let mut widths = names.map(|name| (width(&name), name));
        let Some((wide, text)) = widths.find(|(wide, _)| *wide <= room.width) else { return false };
        let (ink, ground) = match self.is_second_chunk(part, rank) {
            true => (paint.fill, paint.ink),
            false => (paint.ink, paint.fill),
        };
        let is_patterned = waits || (paint.pattern.is_some() && area.width >= PATTERN);
        if is_patterned || ground != paint.fill {
            // Text never lies on lines.
            let (middle, height) = (room.centre(), line_height(size) - 2.0);
            let (left, top) = (middle.x - wide / 2.0 - 3.0, middle.y - height / 2.0);
            if let Some(area) = Area::new(left, top, wide + 6.0, height).common(area) {
                let (fill, pattern, edge) = (ground, None, None);
                self.sketch.push(Shape::Fill { area, fill, pattern, edge, corner: 2.0 });
            }
        }
        let text = Text { text: &text, size, face: Face::Sans, align: Align::Middle, ink, ground };
        self.sketch.label(room, text).is_some()
    }

    /// Names of a cell, from long to short.
    fn names(&self, rank: Rank, part: &Part) -> Vec<String> {
        let timeline = self.timeline;
        let row = timeline.row(rank);
        let block: &Block = &row.blocks[row.block_of(part.pieces.start)];
        let Some(work) = part.work else {
            let target = timeline.target_of(rank, self.layout.level, &part.pieces);
            return match timeline.cause_of(&target) {
                Cause::Message { from, origin } => {
                    let (what, from) = (cause::what(origin), timeline.number(from));
                    let long = format!("waits for {what} from rank {from}");
                    // Whom it waits for says more than for what.
                    let whom = format!("waits for rank {from}");
                    vec![long, whom, format!("waits for {what}"), "waits".into()]
                }
                Cause::Room { .. } | Cause::Beside { .. } | Cause::Device => vec!["waits".into()],
                Cause::StepEnd => vec!["done".into()],
            };
        };
        let short = label(work, block.microbatch);
        let piece = &row.pieces[part.pieces.start];
        let line = piece.instr.map(|instr| timeline.line(rank, instr));
        let layer = line.and_then(|line| line.origin.layer);
        match (self.layout.level, layer) {
            // Two styles of label do not tell three stages apart.
            (Level::Pass, _) => match block.stage.filter(|_| timeline.has_many_chunks) {
                Some(stage) => vec![format!("{short} s{stage}"), short],
                None => vec![short],
            },
            (Level::Layer, Some(layer)) => {
                vec![format!("{short} layer {layer}"), format!("{short} L{layer}"), short]
            }
            (Level::Layer, None) => vec![short],
            (Level::Instr, _) => match line.map(|line| &line.action) {
                Some(Action::Launch { op, .. }) => {
                    vec![format!("{} {short}", op.name()), op.name().to_owned(), short]
                }
                Some(Action::Send { to, .. }) => {
                    vec![format!("{short} → {}", timeline.number(*to)), short]
                }
                Some(Action::Recv { from, .. }) => {
                    vec![format!("{short} ← {}", timeline.number(*from)), short]
                }
                Some(Action::Copy { .. }) => vec![format!("copy {short}"), short],
                None => vec![short],
            },
        }
    }

    /// Whether a block belongs to an odd one of several stages of its rank.
    fn is_second_chunk(&self, part: &Part, rank: Rank) -> bool {
        let row = self.timeline.row(rank);
        if !row.has_chunks || part.work.is_none() {
            return false;
        }
        let positions = self.timeline.plan().mesh.pp;
        let stage = row.blocks[row.block_of(part.pieces.start)].stage;
        stage.is_some_and(|stage| stage / positions % 2 == 1)
    }

    /// Work of other lanes, in the colour of its kind.
    fn beside(&mut self, rank: Rank, band: Area) {
        let row = self.timeline.row(rank);
        let (from, until) = self.layout.window;
        let mut index = row.beside.partition_point(|beside| beside.span.end <= from);
        while let Some(beside) = row.beside.get(index).filter(|b| b.span.start < until) {
            // Sums and messages come in many pieces: what is nearer than a point is one.
            let mut end = beside.span.end;
            let mut next = index + 1;
            let reach = |end: Nanos| self.layout.time_at(self.layout.x_at(end) + 1.0).max(end);
            loop {
                let skipped =
                    row.beside[next..].partition_point(|beside| beside.span.start <= reach(end));
                if skipped == 0 {
                    break;
                }
                next += skipped;
                end = row.beside[next - 1].span.end;
            }
            let span = Span { start: beside.span.start, end };
            let work = Work::of(self.timeline.line(rank, beside.instr).origin);
            if work.is_pass() {
                // A message of a pass: not the pass itself.
                if let Some(area) = self.visible(band, span) {
                    let fill = self.roles.message().fill;
                    self.sketch.fill(area, fill);
                }
            } else {
                self.dense(band, span, Some(work));
            }
            index = next;
        }
    }
}

/// Where text stands in a block: above the notches, where the rest is high enough.
pub(super) fn text_room(block: Area, size: f32) -> Area {
    let above = block.cut_bottom(block.height * NOTCH).1;
    if above.height >= line_height(size) { above } else { block }
}

/// The cells of a row in sight, from left to right, with all that are narrower than three points
/// put together. Cuts between dense parts lie on a grid that moves with time, so that they do not
/// flicker while a picture is moved.
fn walk(row: &RankRow, level: Level, layout: &Layout) -> Vec<Step> {
    let (from, until) = layout.window;
    let grid = ((until - from).0 as f64 * f64::from(DENSE) / f64::from(layout.track.width.max(1.0)))
        .ceil()
        .max(1.0) as u64;
    let mut steps = Vec::new();
    let mut index = row.index_at(level, from);
    let count = row.len(level);
    // Dense parts follow one another: where one ends the next begins.
    let mut known: Option<(usize, Sum)> = None;
    while index < count {
        let part = row.part(level, index);
        if part.span.start >= until {
            break;
        }
        if part.span.duration().0 >= grid {
            steps.push(Step::Cell(part));
            index += 1;
            continue;
        }
        // All that ends before the next line of the grid.
        let start = part.span.start;
        let line = Nanos((start.0 / grid + 1) * grid);
        let mut end = part.span.end;
        let mut next = index + 1;
        let last = row.next_after(level, next, line);
        let mut pieces = part.pieces;
        if last > next {
            let part = row.part(level, last - 1);
            (end, next, pieces.end) = (part.span.end, last, part.pieces.end);
        }
        let before = match known {
            Some((piece, sum)) if piece == pieces.start => sum,
            _ => row.before_piece(pieces.start),
        };
        let sum = row.before_piece(pieces.end);
        known = Some((pieces.end, sum));
        steps.push(Step::Dense(Span { start, end }, sum.most_since(before)));
        index = next;
    }
    steps
}
