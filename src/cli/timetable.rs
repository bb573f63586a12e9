//! A schedule in unit time as text: one row a pipeline position, `F0 F1 ░░ B0---`.

use super::text::{Charset, Line, Style, Terminal};
use crate::planner::schedule::unit_time::UnitTimes;
use crate::planner::schedule::{Act, Cell, Pass, Schedule};
use crate::trace::draw::Work;

/// A character of the picture and how it looks.
type Glyph = (Style, char);

/// Draws a schedule in lines that fit the terminal; longer ones go on below.
pub(super) fn draw(schedule: &Schedule, times: &UnitTimes, terminal: &Terminal) -> Vec<String> {
    let has_stages = schedule.stage_count() as usize > schedule.rows.len();
    let width = unit_width(schedule, has_stages);
    let end = times.rows.iter().flatten().map(|cell| cell.end).max().unwrap_or(0) as usize;
    let rows: Vec<Vec<Glyph>> = schedule
        .rows
        .iter()
        .zip(&times.rows)
        .map(|(cells, spans)| {
            let mut row = Vec::new();
            for (cell, span) in cells.iter().zip(spans) {
                wait(&mut row, span.start as usize, width);
                let taken = (span.end - span.start) as usize * width;
                row.extend(block(*cell, has_stages, taken));
            }
            wait(&mut row, end, width);
            row
        })
        .collect();
    let names: Vec<String> = (0..rows.len()).map(|row| format!("  p{row:<3}")).collect();
    let room = terminal.width.saturating_sub(names.first().map_or(0, String::len));
    let panel = (room / width * width).max(width);
    let mut lines = Vec::new();
    for start in (0..end * width).step_by(panel) {
        let units = (end - start / width).min(panel / width);
        lines.push(ruler(start / width, units, width, names[0].len()));
        for (name, row) in names.iter().zip(&rows) {
            let mut line = Line::new(Charset::Utf8);
            line.text(name);
            for (style, letter) in &row[start..row.len().min(start + panel)] {
                line.push(*style, letter.to_string());
            }
            // Neither a narrow terminal nor colour may cut a row: what is here fits by itself.
            lines.push(line.render(line.width(), terminal.colour));
        }
    }
    lines
}

/// Columns of a unit of time, a space included; a pair of passes takes three units at least.
fn unit_width(schedule: &Schedule, has_stages: bool) -> usize {
    let label =
        |cell: &Cell| cell.acts().map(|act| label(act, has_stages).len() + 1).sum::<usize>();
    let width = |cell: &Cell| match cell {
        Cell::One(_) => label(cell),
        Cell::Pair(..) => label(cell).div_ceil(3),
    };
    schedule.rows.iter().flatten().map(width).max().unwrap_or(1)
}

/// Fills a row with waiting up to a unit of time.
fn wait(row: &mut Vec<Glyph>, until: usize, width: usize) {
    while row.len() < until * width {
        row.extend(std::iter::repeat_n((Style::Plain, '░'), width - 1));
        row.push((Style::Plain, ' '));
    }
}

/// A cell in `taken` columns, the last one a space.
fn block(cell: Cell, has_stages: bool, taken: usize) -> Vec<Glyph> {
    let mut glyphs: Vec<Glyph> = Vec::new();
    for (number, act) in cell.acts().enumerate() {
        let style = style(act.pass);
        let plus = if number > 0 { "+" } else { "" };
        glyphs.extend((plus.to_owned() + &label(act, has_stages)).chars().map(|c| (style, c)));
    }
    let last = glyphs.last().map_or(Style::Plain, |(style, _)| *style);
    glyphs.resize(taken - 1, (last, '-'));
    glyphs.push((Style::Plain, ' '));
    glyphs
}

fn style(pass: Pass) -> Style {
    Style::Work(match pass {
        Pass::F => Work::Forward,
        Pass::B => Work::Backward,
        Pass::I => Work::InputGrad,
        Pass::W => Work::WeightGrad,
    })
}

/// A figure every five units, but at least with a space between.
fn ruler(first: usize, units: usize, width: usize, start: usize) -> String {
    let step = (5..).step_by(5).find(|step| step * width > 4).unwrap_or(5);
    let mut ruler: String = "  t   ".chars().take(start).collect();
    for unit in (0..units).filter(|unit| (first + unit).is_multiple_of(step)) {
        let column = start + unit * width;
        ruler = format!("{ruler:<column$}{}", first + unit);
    }
    ruler
}

/// What stands on a pass: `F0`; with several stages a position `2F0`.
fn label(act: Act, has_stages: bool) -> String {
    match has_stages {
        true => act.to_string(),
        false => format!("{:?}{}", act.pass, act.microbatch),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::text::Colour;
    use crate::planner::schedule::dual_pipe_v::dual_pipe_v;
    use crate::planner::schedule::explain::textbook;
    use crate::planner::schedule::one_f_one_b::one_f_one_b;
    use crate::planner::schedule::unit_time::unit_times;

    fn drawn(schedule: &Schedule, width: usize, colour: Colour) -> String {
        let terminal = Terminal { width, height: 24, charset: Charset::Utf8, colour };
        draw(schedule, &unit_times(schedule, textbook).unwrap(), &terminal).join("\n")
    }

    #[test]
    fn a_row_is_a_position_and_waiting_is_seen() {
        let expected = [
            "  t   0              5              10",
            "  p0  F0 F1 ░░ ░░ B0--- F2 B1--- F3 B2--- ░░ B3---",
            "  p1  ░░ F0 B0--- F1 B1--- F2 B2--- F3 B3--- ░░ ░░",
        ];
        assert_eq!(drawn(&one_f_one_b(2, 4), 100, Colour::Off), expected.join("\n"));
    }

    #[test]
    fn no_line_is_too_wide_and_nothing_is_lost() {
        let schedule = one_f_one_b(4, 16);
        for columns in [30, 80, 500] {
            let text = drawn(&schedule, columns, Colour::Off);
            assert!(text.lines().all(|line| line.chars().count() <= columns), "{text}");
            for microbatch in 0..16 {
                let name = format!("F{microbatch}");
                let blocks = text.split_whitespace().map(|block| block.trim_end_matches('-'));
                assert_eq!(blocks.filter(|block| *block == name).count(), 4, "{text}");
            }
        }
    }
    #[test]
    fn a_pair_is_one_block_of_both_passes() {
        let text = drawn(&dual_pipe_v(2, 4), 200, Colour::Off);
        let row = "  p0  0F0 0F1 0F2 3F0 3I0 3W0 3F1 0F3+3B1---- ░░░ 3F2+0B0---- 3B2---- ░░░ \
                   3F3+0B1---- 3B3---- 0I2 0W2 0I3 0W3";
        assert_eq!(text.lines().nth(1), Some(row));
    }

    #[test]
    fn colour_changes_no_letter() {
        let plain = drawn(&dual_pipe_v(2, 4), 60, Colour::Off);
        let mut bare = String::new();
        let coloured = drawn(&dual_pipe_v(2, 4), 60, Colour::On);
        assert!(coloured.contains("\x1b[97;44m0F0"), "{coloured}");
        for piece in coloured.split('\x1b') {
            bare += piece.strip_prefix('[').and_then(|p| p.split_once('m')).map_or(piece, |p| p.1);
        }
        assert_eq!(bare, plain);
    }
}
