//! A schedule in unit time as text: one row a pipeline position, `F0 F1 ░░ B0---`.

use crate::config::{Layout, ScheduleName};
use crate::planner::PlanError;
use crate::planner::schedule::unit_time::UnitTimes;
use crate::planner::schedule::{Act, Cell, Pass, Schedule, csv, gpipe, one_f_one_b};

/// Textbook units: a full backward takes two, everything else one.
pub(super) fn unit(act: Act) -> u64 {
    match act.pass {
        Pass::B => 2,
        Pass::F | Pass::I | Pass::W => 1,
    }
}

/// The table of a layout.
///
/// # Errors
/// If its file cannot be read, or if the schedule has one stage a position and more are asked for.
pub(super) fn table(layout: &Layout) -> Result<Schedule, PlanError> {
    let (positions, microbatches) = (layout.pp, layout.microbatches);
    match &layout.schedule {
        ScheduleName::GPipe => Ok(gpipe::gpipe(positions, microbatches)),
        ScheduleName::OneFOneB => Ok(one_f_one_b::one_f_one_b(positions, microbatches)),
        ScheduleName::File(path) => {
            let unreadable =
                |why: String| PlanError::ScheduleFile { path: path.display().to_string(), why };
            let text =
                std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
            csv::parse(&text).map_err(|error| unreadable(error.to_string()))
        }
    }
}

/// How papers call a schedule; a file by its name.
pub(super) fn schedule_word(name: &ScheduleName) -> String {
    match name {
        ScheduleName::GPipe => "GPipe".into(),
        ScheduleName::OneFOneB => "1F1B".into(),
        ScheduleName::File(path) => {
            path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
        }
    }
}

/// Draws a schedule in lines of at most `columns`; longer ones go on below.
pub(super) fn draw(schedule: &Schedule, times: &UnitTimes, columns: usize) -> Vec<String> {
    let cells = || schedule.rows.iter().flatten();
    let has_stages = schedule.stage_count() as usize > schedule.rows.len();
    // Columns of a unit of time; a pair of passes takes three units at least.
    let width = |cell: &Cell| match cell {
        Cell::One(_) => label(*cell, has_stages).len() + 1,
        Cell::Pair(..) => (label(*cell, has_stages).len() + 1).div_ceil(3),
    };
    let width = cells().map(width).max().unwrap_or(1);
    let end = times.rows.iter().flatten().map(|cell| cell.end).max().unwrap_or(0);
    let rows: Vec<Vec<char>> = schedule
        .rows
        .iter()
        .zip(&times.rows)
        .map(|(cells, spans)| {
            let mut row = Vec::new();
            let wait = |row: &mut Vec<char>, until: u64| {
                while row.len() < until as usize * width {
                    row.extend(std::iter::repeat_n('░', width - 1).chain([' ']));
                }
            };
            for (cell, span) in cells.iter().zip(spans) {
                wait(&mut row, span.start);
                let taken = (span.end - span.start) as usize * width;
                let block = format!("{:-<fill$} ", label(*cell, has_stages), fill = taken - 1);
                row.extend(block.chars());
            }
            wait(&mut row, end);
            row
        })
        .collect();
    let names: Vec<String> = (0..rows.len()).map(|row| format!("  p{row:<3}")).collect();
    let room = columns.saturating_sub(names.first().map_or(0, String::len)) / width * width;
    let panel = room.max(width);
    let mut lines = Vec::new();
    for start in (0..end as usize * width).step_by(panel) {
        let time = |unit: usize| start / width + unit;
        let units = (end as usize - start / width).min(panel / width);
        // A figure every five units, but at least with a space between.
        let step = (5..).step_by(5).find(|step| step * width > 4).unwrap_or(5);
        let mut ruler: String = "  t   ".chars().take(names[0].chars().count()).collect();
        for unit in (0..units).filter(|unit| time(*unit).is_multiple_of(step)) {
            let column = names[0].len() + unit * width;
            ruler = format!("{ruler:<column$}{}", time(unit));
        }
        lines.push(ruler);
        for (name, row) in names.iter().zip(&rows) {
            let part: String = row[start..row.len().min(start + panel)].iter().collect();
            lines.push(format!("{name}{}", part.trim_end()));
        }
    }
    lines
}

/// What stands on a cell: `F0`; with several stages a position `2F0`.
fn label(cell: Cell, has_stages: bool) -> String {
    let act = |act: Act| match has_stages {
        true => act.to_string(),
        false => format!("{:?}{}", act.pass, act.microbatch),
    };
    match cell {
        Cell::One(one) => act(one),
        Cell::Pair(one, other) => format!("{}+{}", act(one), act(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::schedule::unit_time::unit_times;

    fn drawn(schedule: &Schedule, columns: usize) -> String {
        draw(schedule, &unit_times(schedule, unit).unwrap(), columns).join("\n")
    }

    #[test]
    fn a_row_is_a_position_and_waiting_is_seen() {
        let expected = [
            "  t   0              5              10",
            "  p0  F0 F1 ░░ ░░ B0--- F2 B1--- F3 B2--- ░░ B3---",
            "  p1  ░░ F0 B0--- F1 B1--- F2 B2--- F3 B3--- ░░ ░░",
        ];
        assert_eq!(drawn(&one_f_one_b::one_f_one_b(2, 4), 100), expected.join("\n"));
    }

    #[test]
    fn no_line_is_too_wide_and_nothing_is_lost() {
        let schedule = one_f_one_b::one_f_one_b(4, 16);
        for columns in [30, 80, 500] {
            let text = drawn(&schedule, columns);
            assert!(text.lines().all(|line| line.chars().count() <= columns), "{text}");
            for microbatch in 0..16 {
                let name = format!("F{microbatch}");
                let blocks = text.split_whitespace().map(|block| block.trim_end_matches('-'));
                assert_eq!(blocks.filter(|block| *block == name).count(), 4, "{text}");
            }
        }
    }
}
