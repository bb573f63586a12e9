//! A whole step that stands still: rows of blocks over a time axis, for standard output.

use super::rows::{self, Column};
use crate::cli::text::{Line, Style, Terminal, width};
use crate::trace::Badge;
use crate::trace::draw::axis;
use crate::trace::draw::{Block, Work};
use crate::units::Nanos;

/// A row: what stands before it, and its blocks.
pub type StillRow<'a> = (String, &'a [Block]);

/// Draws rows from 0 to `end` as wide as the terminal: a line of what letters mean, the time axis
/// with the badge, then the rows.
pub fn still(rows: &[StillRow<'_>], end: Nanos, badge: Badge, terminal: &Terminal) -> Vec<String> {
    let labels = rows.iter().map(|row| width(&row.0)).max().unwrap_or_default() + 2;
    let count = terminal.width.saturating_sub(labels).max(1);
    let shown: Vec<Vec<Option<Column<'_>>>> =
        rows.iter().map(|(_, blocks)| rows::columns(blocks, end, count)).collect();
    let line = || Line::new(terminal.charset);
    let [kinds, hidden] = rows::kinds(&shown, rows.iter().flat_map(|(_, blocks)| *blocks));

    let mut legend = line();
    legend.text("  ░ waits");
    let mut add = |kind: Work, heading: &str| {
        let entry = format!(" {}", kind.meaning());
        let wide = 2 + heading.len() + kind.letters().len() + width(&entry);
        if legend.width() + wide <= terminal.width {
            legend.text("  ").push(Style::Dim, heading);
            legend.push(Style::Work(kind), kind.letters()).text(entry);
        }
    };
    kinds.into_iter().for_each(|kind| add(kind, ""));
    for (index, kind) in hidden.into_iter().enumerate() {
        add(kind, if index == 0 { "too short to see: " } else { "" });
    }

    let mut ruler = line();
    let room = terminal.width.saturating_sub(width(badge.word()) + 2);
    for (at, text) in axis::ticks((Nanos(0), end), (count / 12).max(1), None) {
        let column = u128::from(at.0) * count as u128 / u128::from(end.0.max(1));
        let column = labels + usize::try_from(column).unwrap_or(usize::MAX).min(count - 1);
        let is_free = ruler.width() == 0 || ruler.width() + 2 <= column;
        if is_free && column + width(&text) <= room {
            ruler.to_column(column).push(Style::Dim, text);
        }
    }
    ruler.flush_right(Style::Dim, badge.word(), terminal.width);

    let numbered = rows::numbered(&shown);
    let mut lines = vec![legend, ruler];
    for ((label, _), columns) in rows.iter().zip(&shown) {
        let mut row = line();
        row.text(label).to_column(labels);
        rows::draw(&mut row, columns, count, &numbered);
        lines.push(row);
    }
    lines.iter().map(|line| line.render(terminal.width, terminal.colour)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::text::{Charset, Colour};
    use crate::mesh::{Mesh, RankOrder};
    use crate::trace::draw::blocks;
    use crate::trace::draw::sketch::one_f_one_b;
    use expect_test::expect;

    fn drawn(width: usize) -> Vec<String> {
        let mesh = Mesh { dp: 1, tp: 1, pp: 4, order: RankOrder::TpDpPp };
        let sketch = one_f_one_b(mesh, 6, 1_000_000);
        let (order, trace) = sketch.replay();
        let blocks = blocks(&sketch.plan, &order, &trace);
        let rows: Vec<StillRow<'_>> =
            blocks.iter().enumerate().map(|(p, row)| (format!("  p{p}"), row.as_slice())).collect();
        let colour = Colour::Off;
        let terminal = Terminal { width, height: 24, charset: Charset::Utf8, colour };
        still(&rows, trace.end(), Badge::Predicted, &terminal)
    }

    #[test]
    fn a_row_is_a_position_from_the_start_to_the_end() {
        expect![[r#"
            |  ░ waits  F forward  B backward  RS sum gradients  O optimizer  AG share weights
            |      0 ms           5              10             15             20             25    PREDICTED
            |  p0  F0-F1-F2-F3-░░░░░░░░░░░░░░░░░░B0----F4-B1----F5-B2----░░░B3----░░░B4----░░░B5----RS-O--AG-
            |  p1  ░░░F0-F1-F2-░░░░░░░░░░░░B0----F3-B1----F4-B2----F5-B3----░░░B4----░░░B5----RS-O--AG-░░░░░░
            |  p2  ░░░░░░F0-F1-░░░░░░B0----F2-B1----F3-B2----F4-B3----F5-B4----░░░B5----RS-O--AG-░░░░░░░░░░░░
            |  p3  ░░░░░░░░░F0-B0----F1-B1----F2-B2----F3-B3----F4-B4----F5-B5----RS-O--AG-░░░░░░░░░░░░░░░░░░
        "#]].assert_eq(&drawn(96).iter().map(|line| format!("|{line}\n")).collect::<String>());
    }

    #[test]
    fn no_line_is_too_wide_however_narrow_the_terminal() {
        for columns in [20, 40, 61, 200] {
            let lines = drawn(columns);
            assert!(lines.iter().all(|line| width(line) <= columns), "{lines:#?}");
            assert!(lines.iter().skip(2).all(|row| row.contains('F')), "{lines:#?}");
        }
    }
}
