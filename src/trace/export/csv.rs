//! A step as comma-separated values (RFC 4180) with a line of names.

use std::fmt::Display;

use super::rows::Row;
use crate::trace::{Badge, Clock};

/// The table; the badge of its times stands in the last column.
pub fn table(rows: &[Row], clock: Clock) -> String {
    let mut text = String::from(
        "rank,stage,microbatch,layer,phase,what,axis,start_ns,end_ns,waiting_ns,bytes,cause,clock\n",
    );
    let word = Badge::from(clock).word();
    for row in rows {
        let fields = [
            row.rank.to_string(),
            optional(row.stage),
            optional(row.microbatch),
            optional(row.layer),
            row.phase.to_owned(),
            quoted(&row.what),
            optional(row.axis),
            row.start_ns.0.to_string(),
            row.end_ns.0.to_string(),
            row.waiting_ns.0.to_string(),
            row.bytes.0.to_string(),
            quoted(row.cause.as_deref().unwrap_or_default()),
            word.to_owned(),
        ];
        text += &fields.join(",");
        text.push('\n');
    }
    text
}

fn optional(value: Option<impl Display>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// A field that may hold what separates fields.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_separates_fields_is_quoted() {
        assert_eq!(quoted("plain"), "plain");
        assert_eq!(quoted("a, \"b\""), "\"a, \"\"b\"\"\"");
    }
}
