//! Reads and prints schedules in the CSV grammar of torch.distributed.pipelining.
//!
//! One row a pipeline position, one cell an action: stage, pass, microbatch, as in `2F5`, or a pair
//! that may overlap, as in `(0F7;7B3)OVERLAP_F_B`. What torch also prints but decides nothing here
//! (messages, gradient reduction, sharding, empty cells) is dropped. Whether the table makes sense
//! is [`super::Schedule::check`]'s question.

use std::fmt;

use super::{Act, Cell, Pass, Schedule};

/// A file that is not a schedule: all cells that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.0.iter().map(BadCell::to_string).collect::<Vec<_>>().join("\n"))]
pub struct CsvError(pub Vec<BadCell>);

/// A cell that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadCell {
    /// Row, which is the pipeline position.
    pub row: usize,
    /// Cell of the row as in the file, 0-based.
    pub cell: usize,
    /// What stands there.
    pub text: String,
}

impl fmt::Display for BadCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { row, cell, text } = self;
        write!(
            f,
            "row {row}, cell {cell}: `{text}` is not an action: expected stage, pass (F, B, I or \
             W) and microbatch, as in 2F5, or a pair of them, as in (0F7;7B3)OVERLAP_F_B"
        )
    }
}

/// Actions that torch prints beside the passes, after a stage and perhaps before a microbatch.
const DROPPED: [&str; 8] = [
    "SEND_F",
    "RECV_F",
    "SEND_B",
    "RECV_B",
    "UNSHARD",
    "RESHARD",
    "REDUCE_GRAD",
    "WAIT_REDUCE_GRAD",
];

/// Reads a schedule.
///
/// ```
/// use shardlab::planner::schedule::csv;
/// let schedule = csv::parse("0F0,0SEND_F0,,0B0\n1F0,1B0,1REDUCE_GRAD\n").unwrap();
/// assert_eq!(schedule.to_string(), "0F0,0B0\n1F0,1B0\n");
///
/// let error = csv::parse("0F0,0X0\n").unwrap_err();
/// assert!(error.to_string().starts_with("row 0, cell 1: `0X0` is not an action: expected stage"));
/// ```
/// # Errors
/// All cells that are no actions.
pub fn parse(text: &str) -> Result<Schedule, CsvError> {
    let mut bad = Vec::new();
    let mut rows = Vec::new();
    // A byte order mark and blank lines at the end are what spreadsheets leave.
    for (row, line) in text.trim_start_matches('\u{feff}').trim_end().lines().enumerate() {
        let mut cells = Vec::new();
        for (index, cell) in line.split(',').map(str::trim).enumerate() {
            match parse_cell(cell) {
                Some(parsed) => cells.extend(parsed),
                None => bad.push(BadCell { row, cell: index, text: cell.to_owned() }),
            }
        }
        rows.push(cells);
    }
    if bad.is_empty() { Ok(Schedule { rows }) } else { Err(CsvError(bad)) }
}

/// `None`: not an action; `Some(None)`: an action that is dropped.
fn parse_cell(text: &str) -> Option<Option<Cell>> {
    if text.is_empty() {
        return Some(None);
    }
    if let Some(pair) = text.strip_suffix("OVERLAP_F_B") {
        let (first, second) = pair.strip_prefix('(')?.strip_suffix(')')?.split_once(';')?;
        return Some(Some(Cell::Pair(parse_act(first)?, parse_act(second)?)));
    }
    if let Some(act) = parse_act(text) {
        return Some(Some(Cell::One(act)));
    }
    let (_, action) = leading_number(text)?;
    let name = action.trim_end_matches(|c: char| c.is_ascii_digit());
    DROPPED.contains(&name).then_some(None)
}

fn parse_act(text: &str) -> Option<Act> {
    let (stage, rest) = leading_number(text.trim())?;
    let pass = match rest.chars().next()? {
        'F' => Pass::F,
        'B' => Pass::B,
        'I' => Pass::I,
        'W' => Pass::W,
        _ => return None,
    };
    match leading_number(&rest[1..])? {
        (microbatch, "") => Some(Act { stage, pass, microbatch }),
        _ => None,
    }
}

fn leading_number(text: &str) -> Option<(u32, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}{}", self.stage, self.pass, self.microbatch)
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(act) => act.fmt(f),
            Self::Pair(first, second) => write!(f, "({first};{second})OVERLAP_F_B"),
        }
    }
}

/// The CSV text, a line a row.
impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in &self.rows {
            let cells: Vec<String> = row.iter().map(Cell::to_string).collect();
            writeln!(f, "{}", cells.join(","))?;
        }
        Ok(())
    }
}
