//! Layouts as a table for people, one a line: of the first all, of the others what differs.

use crate::cli::simulate::percent;
use crate::cli::text::step_time;
use crate::search::Cut;

/// One line.
pub(super) struct Row<'a> {
    pub(super) cut: &'a Cut,
    pub(super) seconds: f64,
    /// As it is printed.
    pub(super) memory: String,
    /// Of a described GPU only.
    pub(super) mfu: Option<f64>,
}

/// What the marks of a table mean.
pub(super) const LEGEND: &str = "(· as in the first line; rows: of a microbatch)";

/// Columns of a terminal that a table takes at most, where its numbers are not absurd.
const WIDTH: usize = 100;

/// The first columns say the layout; the others what it takes.
const HEADS: [&str; 12] = [
    "tp",
    "pp",
    "dp",
    "chunks",
    "rows",
    "ZeRO",
    "recompute",
    "SP",
    "schedule",
    "step",
    "memory",
    "MFU",
];
const CUT: usize = 9;

/// Columns of words.
const WORDS: [usize; 3] = [6, 7, 8];

/// Lines under a head.
pub(super) fn table<'a, T>(candidates: &'a [T]) -> Vec<String>
where
    Row<'a>: From<&'a T>,
{
    let rows: Vec<[String; 12]> = candidates.iter().map(|of| Row::from(of).cells()).collect();
    let has_mfu = rows.iter().any(|row| !row[11].is_empty());
    let count = if has_mfu { 12 } else { 11 };
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([HEADS[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let number = rows.len().to_string().len() + 1;
    // As airy as fits.
    let gap =
        if number + widths.iter().map(|width| width + 2).sum::<usize>() <= WIDTH { 2 } else { 1 };
    let line = |number_text: String, cells: &[String]| {
        let mut line = format!("{number_text:>number$}");
        for (column, (cell, width)) in cells.iter().zip(&widths).enumerate() {
            let width = *width;
            line += &" ".repeat(gap);
            line += &match WORDS.contains(&column) {
                true => format!("{cell:<width$}"),
                false => format!("{cell:>width$}"),
            };
        }
        line.trim_end().to_owned()
    };
    let head = line(String::new(), &HEADS.map(str::to_owned));
    let differing = |(index, row): (usize, &[String; 12])| {
        let same = |column: usize| index > 0 && column < CUT && row[column] == rows[0][column];
        let cell = |column| if same(column) { "·".into() } else { row[column].clone() };
        let cells: Vec<String> = (0..count).map(cell).collect();
        line(format!("{}.", index + 1), &cells)
    };
    std::iter::once(head).chain(rows.iter().enumerate().map(differing)).collect()
}

impl Row<'_> {
    fn cells(&self) -> [String; 12] {
        let Row { cut, seconds, memory, mfu } = self;
        let Cut { tp, pp, dp, chunks, microbatch_rows, zero, recompute, schedule, .. } = cut;
        [
            tp.to_string(),
            pp.to_string(),
            dp.to_string(),
            chunks.to_string(),
            microbatch_rows.to_string(),
            zero.to_string(),
            recompute.to_string(),
            if cut.sequence_parallel { "on" } else { "off" }.into(),
            schedule.to_string(),
            step_time(*seconds),
            memory.clone(),
            mfu.map(percent).unwrap_or_default(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Recompute, ScheduleName, ZeroStage};
    use crate::search::Candidate;

    fn candidate(dp: u32, chunks: u32, zero: ZeroStage) -> Candidate {
        let cut = Cut {
            tp: 128,
            pp: 128,
            dp,
            chunks,
            microbatch_rows: 2048,
            zero,
            recompute: Recompute::Selective,
            sequence_parallel: false,
            schedule: ScheduleName::InterleavedZeroBubble,
        };
        Candidate { cut, step_seconds: 130.42, memory_bytes: 7_380e8, mfu: 0.489 }
    }

    #[test]
    fn columns_never_touch_and_a_hundred_columns_hold_them() {
        let rows = [candidate(100_000, 10, ZeroStage::Zero1), candidate(1, 3, ZeroStage::Zero1)];
        let lines = table(&rows);
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&lines[0]), HEADS);
        let first = "1. 128 128 100000 10 2048 1 selective off interleaved-zero-bubble 130.42 s \
                     687.3 GiB 48.9 %";
        assert_eq!(words(&lines[1]), words(first));
        // Of the second what differs.
        let second = "2. · · 1 3 · · · · · 130.42 s 687.3 GiB 48.9 %";
        assert_eq!(words(&lines[2]), words(second));
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH), "{lines:#?}");
        let many: Vec<Candidate> = (1..120).map(|dp| candidate(dp, 1, ZeroStage::Zero3)).collect();
        assert!(table(&many).iter().all(|line| line.chars().count() <= WIDTH + 2));
    }
}
