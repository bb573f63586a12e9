//! A step as JSON Lines: one object a line, the same fields as the table.

use serde::Serialize;

use super::rows::Row;
use crate::trace::{Badge, Clock};

/// A line with the badge of its times.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    row: &'a Row,
    clock: Badge,
}

/// The lines.
///
/// # Panics
/// Never: a row is made of numbers and words.
pub fn lines(rows: &[Row], clock: Clock) -> String {
    let clock = Badge::from(clock);
    let line = |row| serde_json::to_string(&Line { row, clock }).expect("a row is always JSON");
    rows.iter().map(|row| line(row) + "\n").collect()
}
