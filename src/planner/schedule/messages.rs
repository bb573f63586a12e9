//! The message cells of a file: whether sends that wait for their receives would ever end.
//!
//! A Plan brings its own messages, and those of a file are dropped. Where the file runs as it is
//! written, `0SEND_F2` may end only when `1RECV_F2` runs: two rows that both send first then wait for
//! each other for ever. This tells so before anybody tries.

/// One half of a message in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Half {
    text: String,
    /// The half that it meets.
    other: String,
}

/// Who waits for whom if every message of the file ends only when both of its halves run; empty if
/// none waits for ever.
///
/// ```
/// use shardlab::planner::schedule::messages::waits;
/// assert!(waits("0F0,0SEND_F0\n1RECV_F0,1F0\n").is_empty());
/// let waits = waits("0SEND_F2,2RECV_B0\n3SEND_B0,1RECV_F2\n");
/// assert_eq!(waits[0], "row 0 stands at 0SEND_F2 for 1RECV_F2, which comes later in row 1");
/// ```
pub fn waits(text: &str) -> Vec<String> {
    let rows: Vec<Vec<Half>> = text.lines().map(halves).collect();
    let mut at = vec![0; rows.len()];
    loop {
        let heads: Vec<Option<&Half>> =
            rows.iter().zip(&at).map(|(row, &at)| row.get(at)).collect();
        let meets = |half: &&Half| {
            heads.iter().position(|head| head.is_some_and(|head| head.text == half.other))
        };
        let pair = heads.iter().enumerate().find_map(|(row, half)| {
            let other = half.as_ref().and_then(meets)?;
            Some([row, other])
        });
        let Some(pair) = pair else { return stuck(&rows, &at) };
        for row in pair {
            at[row] += 1;
        }
    }
}

/// The message halves of a row, in order.
fn halves(line: &str) -> Vec<Half> {
    line.split(',').filter_map(|cell| half(cell.trim())).collect()
}

fn half(text: &str) -> Option<Half> {
    let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (stage, rest) = text.split_at(digits(text));
    let stage: u32 = stage.parse().ok()?;
    let (word, microbatch) = rest.split_at(rest.find(|c: char| c.is_ascii_digit())?);
    let (word, stage) = match word {
        "SEND_F" => ("RECV_F", stage.checked_add(1)?),
        "RECV_F" => ("SEND_F", stage.checked_sub(1)?),
        "SEND_B" => ("RECV_B", stage.checked_sub(1)?),
        "RECV_B" => ("SEND_B", stage.checked_add(1)?),
        _ => return None,
    };
    let other = format!("{stage}{word}{microbatch}");
    Some(Half { text: text.to_owned(), other })
}

/// A circle of rows, or else every row that stands still.
fn stuck(rows: &[Vec<Half>], at: &[usize]) -> Vec<String> {
    let standing = |row: usize| rows[row].get(at[row]);
    let needs = |row: usize| {
        let other = &standing(row)?.other;
        rows.iter().zip(at).position(|(row, &at)| row[at..].iter().any(|h| h.text == *other))
    };
    let words = |row: usize| {
        let Half { text, other } = standing(row)?;
        Some(match needs(row) {
            Some(in_row) => {
                format!("row {row} stands at {text} for {other}, which comes later in row {in_row}")
            }
            None => format!("row {row} stands at {text} for {other}, which is in no row"),
        })
    };
    for first in 0..rows.len() {
        let mut circle = vec![first];
        while let Some(next) = needs(circle[circle.len() - 1]) {
            if let Some(start) = circle.iter().position(|row| *row == next) {
                return circle[start..].iter().filter_map(|row| words(*row)).collect();
            }
            circle.push(next);
        }
    }
    (0..rows.len()).filter_map(words).collect()
}
