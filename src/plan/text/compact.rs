//! Plain data on one line: `Attention(heads(batch=1 seq=4))`, `Input=Scalars`, `Persistent`.
//!
//! JSON's data model with less punctuation: an object is `(key=value …)`, a key whose value is an
//! object needs no `=`, words need no quotes. Lists do not occur in a Plan's small data.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::is_bare;
use super::parse::{Cursor, TextError};
use crate::ops::Op;

/// Prints a value: a word, or an object of one key.
pub(super) fn print<T: Serialize>(value: &T) -> String {
    // By way of text: it has the short form of an f32, `to_value` would widen it.
    let json = serde_json::to_string(value).expect("plain data serializes");
    top(&serde_json::from_str(&json).expect("what was just printed parses"))
}

/// Prints an op. JSON has no NaN and no infinity; the ops that exist for faults may hold one.
pub(super) fn print_op(op: &Op) -> String {
    let json = serde_json::to_string(op).expect("plain data serializes");
    let mut value: Value = serde_json::from_str(&json).expect("what was just printed parses");
    if let Some((key, number)) = free_float(&mut op.clone())
        && !number.is_finite()
    {
        params(&mut value).expect("the op has fields")[key] = Value::String(number.to_string());
    }
    top(&value)
}

/// Reads what [`print()`] wrote.
pub(super) fn parse<T: DeserializeOwned>(
    cursor: &mut Cursor<'_>,
    expected: &str,
) -> Result<T, TextError> {
    let start = cursor.clone();
    let value = read_top(cursor)?;
    serde_json::from_value(value).map_err(|error| why(&start, expected, &error))
}

/// Reads what [`print_op`] wrote.
pub(super) fn parse_op(cursor: &mut Cursor<'_>) -> Result<Op, TextError> {
    let start = cursor.clone();
    let mut value = read_top(cursor)?;
    let mut special = None;
    for (_, param) in params(&mut value).into_iter().flatten() {
        if let Some(number) = param.as_str().and_then(|word| word.parse::<f32>().ok()) {
            special = Some(number);
            *param = Value::from(0);
        }
    }
    let mut op: Op = serde_json::from_value(value)
        .map_err(|error| why(&start, "an op such as Add(len=8)", &error))?;
    match (special, free_float(&mut op)) {
        (Some(number), Some((_, slot))) => *slot = number,
        (Some(_), None) => return Err(start.error("an op with finite parameters")),
        (None, _) => {}
    }
    Ok(op)
}

/// The error with serde's reason, without its list of all possible words.
fn why(at: &Cursor<'_>, expected: &str, error: &serde_json::Error) -> TextError {
    let reason = error.to_string();
    let reason = reason.split_once(", expected one of").map_or(&*reason, |(reason, _)| reason);
    at.error(&format!("{expected} ({reason})"))
}

/// The one parameter of an op that may be anything, also not finite.
fn free_float(op: &mut Op) -> Option<(&'static str, &mut f32)> {
    match op {
        Op::Fill(fill) => Some(("value", &mut fill.value)),
        Op::Scale(scale) => Some(("factor", &mut scale.factor)),
        _ => None,
    }
}

/// The fields of an op: `{"Fill": {fields}}`.
fn params(op: &mut Value) -> Option<&mut Map<String, Value>> {
    op.as_object_mut()?.values_mut().next()?.as_object_mut()
}

fn top(value: &Value) -> String {
    match value {
        Value::Object(map) if map.len() == 1 => pairs(map),
        Value::Object(map) => format!("({})", pairs(map)),
        other => scalar(other),
    }
}

fn pairs(map: &Map<String, Value>) -> String {
    let pair = |(key, value): (&String, &Value)| match value {
        Value::Object(inner) => format!("{key}({})", pairs(inner)),
        other => format!("{key}={}", scalar(other)),
    };
    map.iter().map(pair).collect::<Vec<_>>().join(" ")
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(word) if is_word(word) => word.clone(),
        other => other.to_string(),
    }
}

/// Whether a string needs no quotes: it is read back as itself and not as a number or constant.
fn is_word(word: &str) -> bool {
    is_bare(word) && serde_json::from_str::<Value>(word).is_err()
}

/// A word, `key=value` or `key(…)`.
fn read_top(cursor: &mut Cursor<'_>) -> Result<Value, TextError> {
    if cursor.starts_with('(') {
        return read_value(cursor);
    }
    let start = cursor.clone();
    let name = cursor.run_of(|c| !" =()[]".contains(c));
    if cursor.starts_with('=') || cursor.starts_with('(') {
        let value = read_field(cursor)?;
        return Ok(Value::Object(Map::from_iter([(name.to_owned(), value)])));
    }
    if name.is_empty() { Err(start.error("a word")) } else { Ok(Value::String(name.to_owned())) }
}

/// What follows a key: `=value` or `(…)`.
fn read_field(cursor: &mut Cursor<'_>) -> Result<Value, TextError> {
    if !cursor.starts_with('(') {
        cursor.expect_char('=')?;
    }
    read_value(cursor)
}

fn read_value(cursor: &mut Cursor<'_>) -> Result<Value, TextError> {
    if cursor.starts_with('(') {
        cursor.expect_char('(')?;
        let mut map = Map::new();
        while !cursor.starts_with(')') {
            let start = cursor.clone();
            let key = cursor.run_of(|c| !" =()[]".contains(c)).to_owned();
            if key.is_empty() {
                return Err(start.error("key=value or )"));
            }
            map.insert(key, read_field(cursor)?);
            cursor.skip_spaces();
        }
        cursor.expect_char(')')?;
        return Ok(Value::Object(map));
    }
    let start = cursor.clone();
    if cursor.starts_with('"') {
        return Ok(Value::String(cursor.quoted()?));
    }
    let word = cursor.run_of(|c| !" =()[]".contains(c));
    if word.is_empty() {
        return Err(start.error("a value"));
    }
    Ok(serde_json::from_str(word).unwrap_or_else(|_| Value::String(word.into())))
}
