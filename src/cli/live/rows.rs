//! Rows of blocks in columns of a terminal: which block each column shows, and its characters.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::cli::text::{Charset, Line, Style};
use crate::mesh::{Axis, Mesh, Rank};
use crate::trace::Span;
use crate::trace::draw::{Block, BlockKind, Work, label};
use crate::units::Nanos;

/// What one column shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column<'a> {
    pub(super) block: &'a Block,
    /// Work or waiting; inside a backward it may be recompute.
    pub(super) kind: BlockKind,
}

impl Column<'_> {
    /// What is written on its run of columns; `None` for a wait.
    fn label(&self) -> Option<String> {
        match self.kind {
            BlockKind::Work(work) => Some(label(work, self.block.microbatch)),
            BlockKind::Waiting(_) => None,
        }
    }

    /// Whether two neighbouring columns belong to one run.
    fn continues(&self, other: &Column<'_>) -> bool {
        self.label() == other.label() && self.block.stage == other.block.stage
            || self.label().is_none() && other.label().is_none()
    }
}

/// One line of the picture.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// The rank that is drawn.
    pub(super) rank: Rank,
    /// How many ranks it stands for.
    pub(super) ranks: usize,
    /// Its pipeline position.
    pub(super) position: u32,
    /// What stands before it.
    pub(super) label: String,
}

/// The rows of a picture with at most `most` of them: all ranks, or else the slowest rank of every
/// pipeline position, or of several neighbouring ones.
pub(super) fn rows(mesh: Mesh, blocks: Option<&[Vec<Block>]>, most: usize) -> Vec<Row> {
    let position = |rank| mesh.coord(rank).pp;
    if mesh.size() as usize <= most {
        let row = |rank: Rank| {
            let label = format!("{rank:>3} {}", mesh.coord(rank));
            Row { rank, ranks: 1, position: position(rank), label }
        };
        return mesh.ranks().map(row).collect();
    }
    let busy = |rank: Rank| -> Nanos {
        let row = blocks.and_then(|blocks| blocks.get(rank.index()));
        row.map(|row| row.iter().map(Block::busy).sum()).unwrap_or_default()
    };
    let folded = (mesh.len(Axis::Pp) as usize).div_ceil(most.max(1)) as u32;
    let groups = mesh.len(Axis::Pp).div_ceil(folded);
    (0..groups)
        .map(|group| {
            let (first, end) = (group * folded, ((group + 1) * folded).min(mesh.len(Axis::Pp)));
            let members: Vec<Rank> =
                mesh.ranks().filter(|&rank| (first..end).contains(&position(rank))).collect();
            // The busiest; of equal ones the first.
            let slowest = members.iter().rev().max_by_key(|&&rank| busy(rank));
            let rank = *slowest.expect("a position has ranks");
            let positions =
                if end - first == 1 { first.to_string() } else { format!("{first}–{}", end - 1) };
            let label = format!("  p{positions} rank {rank}");
            Row { rank, ranks: members.len(), position: position(rank), label }
        })
        .collect()
}

/// The block that fills most of each of `count` columns of an axis that ends at `end`.
pub(super) fn columns(row: &[Block], end: Nanos, count: usize) -> Vec<Option<Column<'_>>> {
    let pieces: Vec<_> = row
        .iter()
        .flat_map(|block| block.pieces().into_iter().map(move |(kind, span)| (block, kind, span)))
        .collect();
    let edge = |column: usize| {
        let at = u128::from(end.0) * column as u128 / count as u128;
        u64::try_from(at).expect("no later than the end")
    };
    let mut first = 0;
    let mut shown: Vec<Option<usize>> = Vec::with_capacity(count);
    let mut small = Vec::new();
    for column in 0..count {
        let (start, end) = (edge(column), edge(column + 1));
        let length = |span: Span| span.end.0.min(end).saturating_sub(span.start.0.max(start));
        let inside = (first..pieces.len()).take_while(|&piece| pieces[piece].2.start.0 < end);
        let covered: u64 = inside.clone().map(|piece| length(pieces[piece].2)).sum();
        let most = inside.clone().max_by_key(|&piece| (length(pieces[piece].2), Reverse(piece)));
        shown.push(most.filter(|_| 2 * covered >= end - start));
        // Work of half a column that is covered by its neighbours here.
        small.extend(inside.filter(|&piece| Some(piece) != most).filter_map(|piece| {
            let (_, kind, span) = pieces[piece];
            let is_work = matches!(kind, BlockKind::Work(_));
            (is_work
                && 2 * length(span) >= span.duration().0
                && 2 * span.duration().0 >= end - start)
                .then_some((piece, column))
        }));
        first += pieces[first..].iter().take_while(|piece| piece.2.end.0 <= end).count();
    }
    let mut widths = vec![0usize; pieces.len()];
    shown.iter().flatten().for_each(|&piece| widths[piece] += 1);
    for (piece, column) in small {
        let owner = shown[column].filter(|&owner| widths[piece] == 0 && widths[owner] > 1);
        if let Some(owner) = owner {
            shown[column] = Some(piece);
            (widths[owner], widths[piece]) = (widths[owner] - 1, 1);
        }
    }
    let column = |piece: usize| Column { block: pieces[piece].0, kind: pieces[piece].1 };
    let mut found: Vec<_> = shown.into_iter().map(|piece| piece.map(column)).collect();
    widen(&mut found);
    found
}

/// Gives labels of two letters that fall into one column a second one, from a neighbour that can
/// spare it.
fn widen(columns: &mut [Option<Column<'_>>]) {
    let needs = |column: &Option<Column<'_>>| match column {
        Some(column) => column.label().map_or(0, |label| label.len()),
        None => 0,
    };
    let runs = runs(columns);
    for (index, &(start, len)) in runs.iter().enumerate() {
        let letters = match columns[start] {
            Some(Column { kind: BlockKind::Work(work), .. }) if !work.is_pass() => {
                work.letters().len()
            }
            _ => continue,
        };
        if len >= letters {
            continue;
        }
        let after = runs.get(index + 1).filter(|run| run.1 > needs(&columns[run.0]));
        let before = index.checked_sub(1).map(|before| runs[before]);
        let before = before.filter(|run| run.1 > needs(&columns[run.0]));
        if let Some(after) = after {
            columns[after.0] = columns[start];
        } else if before.is_some() {
            columns[start - 1] = columns[start];
        }
    }
}

/// Neighbouring columns that show the same: (first column, number of columns).
fn runs(columns: &[Option<Column<'_>>]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (at, column) in columns.iter().enumerate() {
        let same = at > 0
            && match (&columns[at - 1], column) {
                (Some(before), Some(column)) => before.continues(column),
                (None, None) => true,
                _ => false,
            };
        match runs.last_mut() {
            Some(run) if same => run.1 += 1,
            _ => runs.push((at, 1)),
        }
    }
    runs
}

/// The kinds of work whose blocks carry their microbatch in this picture: those of which most have
/// room for it. A number here and there would be harder to read than none.
pub(super) fn numbered(rows: &[Vec<Option<Column<'_>>>]) -> Vec<Work> {
    let mut room: BTreeMap<Work, (usize, usize)> = BTreeMap::new();
    for columns in rows {
        for (start, len) in runs(columns) {
            let Some(column @ Column { kind: BlockKind::Work(work), .. }) = columns[start] else {
                continue;
            };
            let (fits, all) = room.entry(work).or_default();
            *fits += usize::from(column.label().is_some_and(|label| label.len() <= len));
            *all += 1;
        }
    }
    let most = room.into_iter().filter(|(_, (fits, all))| 4 * fits >= 3 * all);
    most.map(|(work, _)| work).collect()
}

/// Appends a row's blocks to a line: what is left of the sweep's column, itself included, bright.
pub(super) fn draw(
    line: &mut Line,
    columns: &[Option<Column<'_>>],
    sweep: usize,
    numbered: &[Work],
) {
    for (start, len) in runs(columns) {
        let (text, work) = match columns[start] {
            None => (" ".repeat(len), None),
            Some(Column { kind: BlockKind::Waiting(_), .. }) => ("░".repeat(len), None),
            Some(column @ Column { kind: BlockKind::Work(work), .. }) => {
                let label = column.label().filter(|_| numbered.contains(&work));
                // A number that is cut would be another number.
                let labels = [label.as_deref().unwrap_or(work.letters()), work.letters()];
                let fitting = labels.into_iter().find(|label| label.len() <= len);
                let text = format!("{:-<len$}", fitting.unwrap_or_default());
                (text, Some(work))
            }
        };
        let bright = (sweep + 1).saturating_sub(start).min(len);
        let (behind, ahead): (String, String) =
            (text.chars().take(bright).collect(), text.chars().skip(bright).collect());
        line.push(work.map_or(Style::Plain, Style::Work), behind).push(Style::Dim, ahead);
    }
}

/// The kinds of work that columns show, and those of `blocks` that none shows, each in the order of
/// a legend.
pub(super) fn kinds<'a>(
    rows: &[Vec<Option<Column<'_>>>],
    blocks: impl Iterator<Item = &'a Block>,
) -> [Vec<Work>; 2] {
    let work = |kind| match kind {
        BlockKind::Work(work) => Some(work),
        BlockKind::Waiting(_) => None,
    };
    let shown: BTreeSet<Work> =
        rows.iter().flatten().flatten().filter_map(|column| work(column.kind)).collect();
    let all: BTreeSet<Work> = blocks.filter_map(Block::work).collect();
    let hidden = all.difference(&shown).copied().collect();
    [shown.into_iter().collect(), hidden]
}

/// A bar of `part` / `whole` in `width` columns: eighths of a block, or without UTF-8 whole marks.
pub(super) fn bar(part: u64, whole: u64, width: usize, charset: Charset) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let scaled = |steps: usize| {
        let exact = u128::from(part) * steps as u128 * 2 / u128::from(whole.max(1));
        // Rounded to the nearest; what is there at all is seen.
        (exact.div_ceil(2) as usize).clamp(usize::from(part > 0), steps)
    };
    match charset {
        Charset::Utf8 => {
            let eighths = scaled(8 * width);
            "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
        }
        Charset::Ascii => "#".repeat(scaled(width)),
    }
}
