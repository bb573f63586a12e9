//! Layouts as a table for people, one a line.

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

/// Lines under a head.
pub(super) fn table<'a, T>(candidates: &'a [T]) -> Vec<String>
where
    Row<'a>: From<&'a T>,
{
    let rows: Vec<Row<'a>> = candidates.iter().map(Row::from).collect();
    let has_mfu = rows.iter().any(|row| row.mfu.is_some());
    let head = format!(
        "  {:>3}{:>4}{:>4}{:>6}{:>8}{:>12}{:>6}  {:<10}{:<4}{:<24}{:>10}{:>12}{:>8}",
        "",
        "tp",
        "pp",
        "dp",
        "chunks",
        "microbatch",
        "ZeRO",
        "recompute",
        "SP",
        "schedule",
        "step",
        "memory",
        if has_mfu { "MFU" } else { "" }
    );
    let line = |(index, row): (usize, &Row<'_>)| {
        let Row { cut, seconds, memory, mfu } = row;
        let Cut { tp, pp, dp, chunks, microbatch_rows, zero, recompute, schedule, .. } = cut;
        let sequence = if cut.sequence_parallel { "on" } else { "off" };
        format!(
            "  {:>3}{tp:>4}{pp:>4}{dp:>6}{chunks:>8}{microbatch_rows:>12}{zero:>6}  \
             {recompute:<10}{sequence:<4}{schedule:<24}{:>10}{memory:>12}{:>8}",
            format!("{}.", index + 1),
            step_time(*seconds),
            mfu.map(percent).unwrap_or_default(),
        )
    };
    let lines = rows.iter().enumerate().map(line);
    std::iter::once(head).chain(lines).map(|line| line.trim_end().to_owned()).collect()
}
