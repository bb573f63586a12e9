//! The memory table of a summary: one row for all ranks whose figures read the same.

use super::{INDENT, Page, plural};
use crate::cli::text::{Line, width};
use crate::ledger::RankMemory;
use crate::plan::Role;
use crate::trace::Badge;
use crate::units::Bytes;

/// Rows of the memory table before the rest is summed up.
const MEMORY_ROWS: usize = 8;

/// Memory of one rank at the moment of its peak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Bytes by role, in the order of [`Role::ALL`].
    pub by_role: [Bytes; 5],
    /// Their sum.
    pub peak: Bytes,
}

impl From<&RankMemory> for Memory {
    fn from(memory: &RankMemory) -> Self {
        Self { by_role: Role::ALL.map(|role| memory.at_peak[role]), peak: memory.peak() }
    }
}

impl Page<'_> {
    /// The table of memory, equal ranks in one row.
    pub(super) fn memory(&self) -> Vec<Line> {
        let most = self.facts.memory.iter().map(|memory| memory.peak.0).max().unwrap_or_default();
        let (unit, size) = match most {
            0..1_048_576 => ("KiB", 1u64 << 10),
            1_048_576..10_737_418_240 => ("MiB", 1 << 20),
            _ => ("GiB", 1 << 30),
        };
        let mut columns: Vec<String> = Role::ALL.iter().map(ToString::to_string).collect();
        columns.push("peak".into());
        let title = self.badged("Memory", "at the moment when a rank holds most", Badge::Counted);
        let mut head = self.line();
        head.text(format!("    in {unit}")).to_column(INDENT).text(columns.join("  "));
        let mut lines = vec![title, head];
        for (ranks, figures) in memory_rows(&self.facts.memory, size) {
            let mut line = self.line();
            line.text(format!("    {ranks}"));
            let mut end = INDENT;
            for (column, figure) in columns.iter().zip(&figures) {
                end += width(column);
                line.to_column(end - width(figure).min(end)).text(figure);
                end += 2;
            }
            lines.push(line);
        }
        let hidden = lines.len().saturating_sub(2 + MEMORY_ROWS);
        if hidden > 0 {
            lines.truncate(2 + MEMORY_ROWS);
            let text = format!("    … {hidden} more {}", plural(hidden as u64, "row"));
            let mut line = self.line();
            line.text(text);
            lines.push(line);
        }
        lines
    }
}

/// Rows of the memory table, in the order of their first rank: which ranks, and their figures as
/// printed. Ranks are equal if their figures read the same.
fn memory_rows(memory: &[Memory], unit: u64) -> Vec<(String, Vec<String>)> {
    let mut rows: Vec<(Vec<usize>, Vec<String>)> = Vec::new();
    for (rank, Memory { by_role, peak }) in memory.iter().enumerate() {
        let figures: Vec<String> = by_role
            .iter()
            .chain([peak])
            .map(|bytes| format!("{:.1}", bytes.0 as f64 / unit as f64))
            .collect();
        match rows.iter_mut().find(|row| row.1 == figures) {
            Some(row) => row.0.push(rank),
            None => rows.push((vec![rank], figures)),
        }
    }
    rows.into_iter().map(|(ranks, figures)| (rank_names(&ranks), figures)).collect()
}

/// Ascending ranks in words: `rank 3`, `ranks 0–3`, `ranks 0, 2`.
fn rank_names(ranks: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &rank in ranks {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == rank => *last = rank,
            _ => runs.push((rank, rank)),
        }
    }
    let name = |&(first, last): &(usize, usize)| match last - first {
        0 => first.to_string(),
        _ => format!("{first}–{last}"),
    };
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    let all = format!("{word} {}", runs.iter().map(name).collect::<Vec<_>>().join(","));
    // Room for a figure of six characters before the end of "weights".
    if width(&all) <= 14 { all } else { format!("{} like rank {}", ranks.len(), ranks[0]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_named_shortly() {
        assert_eq!(rank_names(&[3]), "rank 3");
        assert_eq!(rank_names(&[0, 1, 2, 3]), "ranks 0–3");
        assert_eq!(rank_names(&[0, 2, 4, 5]), "ranks 0,2,4–5");
        assert_eq!(rank_names(&[0, 2, 4, 6, 8, 10]), "6 like rank 0");
    }
}
