//! From the text of a line to its JSON value.
//!
//! A number that is not finite has no form in JSON, yet writers have theirs (`NaN`, `Infinity`, `1e999`). The
//! parser only says that the line is no JSON; whoever wrote it is helped more by the place of that number.

use super::fields::{Kind, Malformed, join};
use serde_json::Value;

pub fn value_from_text(line: &str) -> Result<Value, Malformed> {
    serde_json::from_str(line).map_err(|error| {
        not_finite(line).unwrap_or_else(|| Malformed {
            kind: Kind::NotJson,
            message: if line.trim().is_empty() {
                "the line is empty: expected one JSON object".to_owned()
            } else {
                error.to_string()
            },
            at: String::new(),
        })
    })
}

/// Begins the strings that stand for numbers which are not finite while their place is looked for.
const MARK: &str = "\u{0}not finite: ";

/// The first number that is not finite, where nothing else keeps the line from being JSON.
fn not_finite(line: &str) -> Option<Malformed> {
    let value: Value = serde_json::from_str(&marked(line)?).ok()?;
    let (at, number) = marked_place(&value, String::new())?;
    Some(Malformed::field(
        at,
        format!("must be a finite number, is {number}"),
    ))
}

/// The line with such numbers written as marked strings; nothing where it has none.
fn marked(line: &str) -> Option<String> {
    let mut out = String::with_capacity(line.len() + 64);
    let mut any = false;
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let length = if first == '"' {
            string_length(rest)
        } else {
            let token = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c)));
            token.unwrap_or(rest.len()).max(first.len_utf8())
        };
        let (token, after) = rest.split_at(length);
        let number = token.starts_with(|c: char| c == '-' || c.is_ascii_digit());
        let overflows = number && token.parse::<f64>().is_ok_and(f64::is_infinite);
        if overflows || matches!(token, "NaN" | "Infinity" | "-Infinity") {
            any = true;
            out.push_str(&Value::from(format!("{MARK}{token}")).to_string());
        } else {
            out.push_str(token);
        }
        rest = after;
    }
    any.then_some(out)
}

/// Bytes of the string literal that `text` begins with, its quotes counted.
fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (i, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return i + 1,
            _ => {}
        }
    }
    text.len()
}

fn marked_place(value: &Value, at: String) -> Option<(String, &str)> {
    match value {
        Value::String(text) => text.strip_prefix(MARK).map(|number| (at, number)),
        Value::Array(list) => list
            .iter()
            .enumerate()
            .find_map(|(i, v)| marked_place(v, format!("{at}[{i}]"))),
        Value::Object(map) => map.iter().find_map(|(k, v)| marked_place(v, join(&at, k))),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}
