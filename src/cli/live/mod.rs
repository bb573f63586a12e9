//! The live view: the schedule of a step as it is shown in slow motion, and how training goes.
//!
//! [`live`] is a pure function from a [`LiveState`] and a [`Terminal`] to at most 20 lines of at
//! most 80 columns. Which step is shown and where its sweep stands is decided by the caller
//! ([`crate::trace::draw::playback`]); [`super::screen`] puts the lines on the screen. [`mod@still`] draws
//! a whole step as wide as its terminal.

mod loss;
mod rows;
mod still;
#[cfg(test)]
mod tests;

pub use loss::{LossTarget, Progress, progress_line, tells_progress};
pub use still::{StillRow, still};

use self::rows::{Column, Row};
use super::text::{Line, Style, Terminal, count, width};
use crate::config::layout::ZeroStage;
use crate::mesh::{Axis, Mesh, Rank};
use crate::trace::Badge;
use crate::trace::cause::Cause;
use crate::trace::draw::axis::TimeAxis;
use crate::trace::draw::playback::Speed;
use crate::trace::draw::{Block, BlockKind, Work};
use crate::units::{Bytes, Nanos};

/// Most lines of the view.
pub const HEIGHT: usize = 20;
/// Most columns of the view.
pub const WIDTH: usize = 80;
/// From this width on there is a memory column.
const MEMORY_WIDTH: usize = 72;
/// From this width on there is more than the loss line.
const PICTURE_WIDTH: usize = 50;
/// Rows of the picture that fit beside everything else.
const ROWS: usize = 10;
/// Columns of the memory bar, and of the whole memory column with its distance from the blocks.
const BAR: usize = 4;
const MEMORY_COLUMN: usize = 12;

/// What is being trained, for the lines above the picture.
#[derive(Clone, Debug)]
pub struct Header {
    /// The mesh of ranks.
    pub mesh: Mesh,
    /// What runs them: `the CPU`.
    pub device: String,
    /// Why just that: `no GPU found; none needed`.
    pub why: Option<String>,
    /// What is sharded over data-parallel ranks.
    pub zero: ZeroStage,
    /// Name of the schedule: `1F1B`.
    pub schedule: String,
    /// Microbatches of a data-parallel rank in a step.
    pub microbatches: u32,
    /// Parameters of the model.
    pub params: u64,
}

/// The step that is shown in slow motion.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// Which step, counted from 1.
    pub step: u64,
    /// Whose clock its times are.
    pub badge: Badge,
    /// How slowly it is shown.
    pub speed: Speed,
    /// Its blocks, `[rank][block]`, from [`crate::trace::draw::blocks()`].
    pub blocks: &'a [Vec<Block>],
    /// Its time axis; a new one only where the longest of the last steps asks for it.
    pub axis: TimeAxis,
    /// How far it has been shown.
    pub sweep: Nanos,
}

/// All that the live view shows.
#[derive(Clone, Copy, Debug)]
pub struct LiveState<'a> {
    /// What is being trained.
    pub header: &'a Header,
    /// Peak memory of each rank; index = rank.
    pub peaks: &'a [Bytes],
    /// The step that is shown; `None` until the first one has ended.
    pub shown: Option<Shown<'a>>,
    /// How training goes.
    pub progress: &'a Progress<'a>,
}

/// What a line belongs to; where the terminal is low, earlier parts go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Blank,
    Legend,
    Header,
    Picture,
    Loss,
}

/// Draws the live view.
///
/// No line is wider than the terminal, and one line of the terminal stays free for the cursor.
pub fn live(state: &LiveState<'_>, terminal: &Terminal) -> Vec<String> {
    let columns = terminal.width.min(WIDTH);
    let height = terminal.height.saturating_sub(1).clamp(1, HEIGHT);
    let view = View { state, terminal, columns };
    let mut lines = vec![(Part::Loss, loss::line(state.progress, columns, terminal.charset))];
    if columns >= PICTURE_WIDTH {
        lines = view.lines(height, lines);
    }
    for part in [Part::Blank, Part::Legend, Part::Header, Part::Picture] {
        if lines.len() > height {
            lines.retain(|(of, _)| *of != part);
        }
    }
    lines.iter().map(|(_, line)| line.render(columns, terminal.colour)).collect()
}

/// A view while it is drawn.
struct View<'a> {
    state: &'a LiveState<'a>,
    terminal: &'a Terminal,
    /// Columns of a line.
    columns: usize,
}

impl<'a> View<'a> {
    /// All lines, the given ones last.
    fn lines(&self, height: usize, loss: Vec<(Part, Line)>) -> Vec<(Part, Line)> {
        let mesh = self.state.header.mesh;
        let blocks = self.state.shown.map(|shown| shown.blocks);
        // Under the picture's own three lines and the loss.
        let most = height.saturating_sub(4).clamp(1, ROWS);
        let rows = rows::rows(mesh, blocks, most);
        let labels = rows.iter().map(|row| width(&row.label)).max().unwrap_or_default() + 2;
        let memory = self.columns >= MEMORY_WIDTH;
        // Two columns stay free on the right, as under the badges of the summary.
        let count = self.columns - labels - if memory { MEMORY_COLUMN } else { 0 } - 2;
        let shown: Vec<Vec<Option<Column<'a>>>> = rows
            .iter()
            .map(|row| match self.state.shown {
                Some(shown) => {
                    rows::columns(&shown.blocks[row.rank.index()], shown.axis.end, count)
                }
                None => vec![None; count],
            })
            .collect();
        let picture = Picture { rows, shown, labels, count, memory };

        let mut lines = self.header().map(|line| (Part::Header, line)).to_vec();
        lines.extend(self.legend(&picture).map(|line| (Part::Legend, line)));
        lines.push((Part::Blank, self.line()));
        lines.extend(self.picture(&picture).into_iter().map(|line| (Part::Picture, line)));
        lines.push((Part::Blank, self.line()));
        lines.extend(loss);
        lines
    }

    fn line(&self) -> Line {
        Line::new(self.terminal.charset)
    }

    fn header(&self) -> [Line; 2] {
        let Header { mesh, device, why, zero, schedule, microbatches, params } = self.state.header;
        let ranks = if mesh.size() == 1 { "rank" } else { "ranks" };
        let mut first = self.line();
        first.push(Style::Bold, "shardlab").text(format!(" · {} {ranks} on {device}", mesh.size()));
        if let Some(why) = why {
            first.text(format!(" ({why})"));
        }
        let axes = Axis::ALL.map(|axis| format!("{} {}", axis.word(), mesh.len(axis)));
        let [data, tensor, pipeline] = axes;
        let mut second = self.line();
        second.text(format!(
            "{data} × {tensor} × {pipeline} · ZeRO {} · {schedule} · \
             {microbatches} microbatch{} · {} params",
            u8::from(*zero),
            if *microbatches == 1 { "" } else { "es" },
            count(*params),
        ));
        [first, second]
    }

    /// What a row and its letters are: passes on the first line, the rest on the second, with what
    /// took so little time that no column shows it.
    fn legend(&self, picture: &Picture<'_>) -> [Line; 2] {
        let [mut kinds, hidden] = rows::kinds(&picture.shown, self.drawn_blocks(picture));
        if self.state.shown.is_none() {
            kinds = vec![Work::Forward, Work::Backward];
        }
        let (mut first, mut second) = (self.line(), self.line());
        first.text(match picture.rows.iter().map(|row| row.ranks).max() {
            Some(ranks @ 2..) => {
                format!("A row: pipeline position p, slowest of {ranks} ranks. ░ waits.")
            }
            _ => "A row is a rank. Letters work, ░ waits.".into(),
        });
        let mut gap = " ";
        for kind in kinds {
            let entry = self.legend_entry(kind);
            let fits = first.width() + gap.len() + entry.width() <= self.columns;
            if kind.is_pass() && second.width() == 0 && fits {
                first.text(gap).append(entry);
                gap = "  ";
            } else {
                self.add_entry(&mut second, "", entry);
            }
        }
        let mut heading = "too short to see: ";
        for kind in hidden {
            if self.add_entry(&mut second, heading, self.legend_entry(kind)) {
                heading = "";
            }
        }
        second.flush_right(Style::Dim, "Ctrl-C stops", self.columns);
        [first, second]
    }

    fn legend_entry(&self, kind: Work) -> Line {
        let mut entry = self.line();
        entry.push(Style::Work(kind), kind.letters()).text(format!(" {}", kind.meaning()));
        entry
    }

    /// Appends an entry where it fits; says whether it did.
    fn add_entry(&self, line: &mut Line, heading: &str, entry: Line) -> bool {
        let gap = if line.width() == 0 { "" } else { "  " };
        let fits = line.width() + gap.len() + heading.len() + entry.width() <= self.columns;
        if fits {
            line.text(gap).push(Style::Dim, heading).append(entry);
        }
        fits
    }

    /// The blocks of the ranks that are drawn.
    fn drawn_blocks(&self, picture: &Picture<'_>) -> impl Iterator<Item = &'a Block> {
        let blocks = self.state.shown.map(|shown| shown.blocks).unwrap_or_default();
        let ranks: Vec<usize> = picture.rows.iter().map(|row| row.rank.index()).collect();
        ranks.into_iter().filter_map(|rank| blocks.get(rank)).flatten()
    }

    fn picture(&self, picture: &Picture<'_>) -> Vec<Line> {
        let sweep = self.state.shown.map(|shown| picture.column_of(shown.sweep, shown.axis));
        let mut lines = vec![self.title(picture), self.ruler(picture)];
        let most = self.state.peaks.iter().map(|peak| peak.0).max().unwrap_or_default();
        let (_, unit) = memory_unit(most);
        let numbered = rows::numbered(&picture.shown);
        for (row, columns) in picture.rows.iter().zip(&picture.shown) {
            let mut line = self.line();
            line.text(&row.label).to_column(picture.labels);
            rows::draw(&mut line, columns, sweep.unwrap_or_default(), &numbered);
            if let Some(peak) = self.state.peaks.get(row.rank.index()).filter(|_| picture.memory) {
                line.to_column(picture.labels + picture.count + 2);
                line.text(rows::bar(peak.0, most, BAR, self.terminal.charset));
                let figure = format!("{:.1}", peak.0 as f64 / unit as f64);
                line.flush_right(Style::Plain, &figure, picture.end());
            }
            lines.push(line);
        }
        lines.push(self.now(picture, sweep));
        lines
    }

    fn title(&self, picture: &Picture<'_>) -> Line {
        let mut line = self.line();
        let Some(shown) = self.state.shown else {
            line.text("training begins; its first step will be shown here in slow motion");
            return line;
        };
        line.text(format!("showing step {}", shown.step));
        match shown.speed.power() {
            ..0 => line.text(format!(" in slow motion {}", shown.speed)),
            0 => line.text(" as fast as it ran"),
            1.. => line.text(format!(" {} times as fast as it ran", shown.speed)),
        };
        let badge = shown.badge.word();
        if picture.memory {
            let most = self.state.peaks.iter().map(|peak| peak.0).max().unwrap_or_default();
            let heading = format!("{badge}   peak {}", memory_unit(most).0);
            line.flush_right(Style::Plain, &heading, picture.end());
        } else {
            line.flush_right(Style::Plain, badge, picture.end());
        }
        line
    }

    /// The time axis: labels at their ticks, the last one before the end of the blocks.
    fn ruler(&self, picture: &Picture<'_>) -> Line {
        let mut line = self.line();
        let one = picture.rows.iter().all(|row| row.ranks == 1);
        line.push(Style::Dim, if one { "  rank" } else { "  position" });
        let Some(axis) = self.state.shown.map(|shown| shown.axis) else { return line };
        for (at, label) in axis.labels() {
            let wanted = picture.labels + picture.column_of(at, axis);
            let last = picture.labels + picture.count - width(&label);
            let column = wanted.min(last);
            if at == Nanos(0) || line.width() + 2 <= column {
                line.to_column(column).push(Style::Dim, label);
            }
        }
        line
    }

    /// What happens at the sweep: of a rank that waits, else of one that works.
    fn now(&self, picture: &Picture<'_>, sweep: Option<usize>) -> Line {
        let mut line = self.line();
        let Some(sweep) = sweep else { return line };
        let column = picture.labels + sweep;
        let text = format!("now: {}", happening(picture, sweep));
        if column + 2 + width(&text) <= self.columns {
            line.to_column(column).push(Style::Bold, "▲").text(format!(" {text}"));
        } else if width(&text) < column {
            line.to_column(column - width(&text) - 1).text(format!("{text} "));
            line.push(Style::Bold, "▲");
        } else {
            line.text(text);
        }
        line
    }
}

/// Where rows, blocks and memory stand.
struct Picture<'a> {
    rows: Vec<Row>,
    /// What each column of each row shows.
    shown: Vec<Vec<Option<Column<'a>>>>,
    /// Columns before the blocks.
    labels: usize,
    /// Columns of blocks.
    count: usize,
    /// Whether there is a memory column.
    memory: bool,
}

impl Picture<'_> {
    /// The column of blocks in which an instant lies.
    fn column_of(&self, at: Nanos, axis: TimeAxis) -> usize {
        let column = u128::from(at.0) * self.count as u128 / u128::from(axis.end.0.max(1));
        usize::try_from(column).unwrap_or(usize::MAX).min(self.count - 1)
    }

    /// Where the rows end.
    fn end(&self) -> usize {
        self.labels + self.count + if self.memory { MEMORY_COLUMN } else { 0 }
    }
}

/// One sentence about a column of the picture, without its full stop.
fn happening(picture: &Picture<'_>, column: usize) -> String {
    let at: Vec<(&Row, Column<'_>)> = picture
        .rows
        .iter()
        .zip(&picture.shown)
        .filter_map(|(row, columns)| columns[column].map(|shown| (row, shown)))
        .collect();
    let waits = at.iter().find_map(|(row, shown)| match shown.kind {
        BlockKind::Waiting(cause) if cause != Cause::StepEnd => Some((row.rank, cause)),
        _ => None,
    });
    if let Some((rank, cause)) = waits {
        return format!("rank {rank} {cause}");
    }
    // One rank of each position, two at most.
    let mut working: Vec<(u32, Rank, String)> = Vec::new();
    for (row, shown) in &at {
        let seen = working.iter().any(|(position, ..)| *position == row.position);
        if let (false, BlockKind::Work(work)) = (seen || working.len() == 2, shown.kind) {
            working.push((row.position, row.rank, doing(work, shown.block.microbatch)));
        }
    }
    let working: Vec<String> =
        working.iter().map(|(_, rank, doing)| format!("rank {rank} {doing}")).collect();
    let done = at.iter().find(|(_, shown)| shown.kind == BlockKind::Waiting(Cause::StepEnd));
    match (working.as_slice(), done) {
        ([], _) => "the step is over".into(),
        ([one, ..], Some((row, _))) => format!("rank {} is done, {one}", row.rank),
        (all, None) => all.join(", "),
    }
}

/// What a rank does, after its name.
fn doing(work: Work, microbatch: Option<u32>) -> String {
    match work {
        Work::ReduceScatter | Work::AllReduce => "sums gradients".into(),
        Work::Norm => "sums the gradient norm".into(),
        Work::Optimizer => "updates its weights".into(),
        Work::WeightGather => "shares weights".into(),
        Work::Forward
        | Work::Recompute
        | Work::Backward
        | Work::InputGrad
        | Work::WeightGrad
        | Work::Other => format!("runs {}", crate::trace::draw::label(work, microbatch)),
    }
}

/// The unit in which peaks are printed, by the largest: its name and its bytes.
fn memory_unit(most: u64) -> (&'static str, u64) {
    match most {
        0..1_048_576 => ("KiB", 1 << 10),
        1_048_576..1_073_741_824 => ("MiB", 1 << 20),
        _ => ("GiB", 1 << 30),
    }
}
