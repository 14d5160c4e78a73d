//! Numbers by JSON path, and finding a JSON document among other lines.

use crate::{BadParser, Metrics, Number, ParseError, number};
use serde_json::Value;
use std::collections::BTreeMap;
use std::iter::Peekable;
use std::str::Chars;

/// Starts that are tried and turn out to be no document; bounds the work on hostile text.
const FALSE_STARTS: usize = 100;

/// Complete documents in `text`, each beginning at the start of a line; anything between them is skipped.
pub(crate) fn documents(text: &str) -> Vec<Value> {
    let text = without_nan(text);
    let mut found = Vec::new();
    let mut false_starts = 0;
    let mut at = 0;
    while let Some(start) = next_start(&text, at) {
        let mut stream = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>();
        match stream.next() {
            Some(Ok(document)) => {
                found.push(document);
                at = start + stream.byte_offset().max(1);
            }
            _ if false_starts == FALSE_STARTS => break,
            _ => {
                false_starts += 1;
                at = start + 1;
            }
        }
    }
    found
}

fn next_start(text: &str, from: usize) -> Option<usize> {
    let opens = |&(at, c): &(usize, char)| {
        (c == '{' || c == '[') && (at + from == 0 || text.as_bytes()[at + from - 1] == b'\n')
    };
    text.get(from..)?
        .char_indices()
        .find(opens)
        .map(|(at, _)| at + from)
}

/// Some tools print `nan` or `inf` as a bare value, which is no JSON. As `null` the rest of the document stays
/// readable, and that one number is missing.
fn without_nan(text: &str) -> String {
    const BARE: [&str; 6] = ["-nan", "nan", "-inf", "inf", "-NaN", "NaN"];
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let value_at = line.find(": ").map(|i| i + 2);
        let bare = value_at.and_then(|i| {
            BARE.iter()
                .find(|b| {
                    line[i..]
                        .strip_prefix(**b)
                        .is_some_and(|rest| rest.trim_start().is_empty() || rest.starts_with(','))
                })
                .map(|b| (i, b.len()))
        });
        match bare {
            Some((i, length)) if line.trim_start().starts_with('"') => {
                out.push_str(&line[..i]);
                out.push_str("null");
                out.push_str(&line[i + length..]);
            }
            _ => out.push_str(line),
        }
    }
    out
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Part {
    Key(String),
    Index(usize),
}

/// Paths of the subset `$.a.b[0]['c d']`: member by name, array element by number. No wildcards or filters: a
/// metric is one number.
#[derive(Clone, Debug)]
pub struct Paths(Vec<(String, Vec<Part>)>);

impl Paths {
    pub(crate) fn new(paths: &BTreeMap<String, String>) -> Result<Paths, BadParser> {
        let compile = |(metric, path): (&String, &String)| match path_parts(path) {
            Ok(parts) => Ok((metric.clone(), parts)),
            Err(message) => Err(BadParser {
                metric: metric.clone(),
                message: format!("`{path}`: {message}"),
            }),
        };
        paths.iter().map(compile).collect::<Result<_, _>>().map(Paths)
    }

    /// Reads the last complete document of the output.
    pub(crate) fn parse(&self, stdout: &str) -> Result<Metrics, ParseError> {
        let not_found = |looked_for: String| ParseError::NotFound { looked_for };
        let document = documents(stdout)
            .pop()
            .ok_or_else(|| not_found("a complete JSON document at the start of a line".into()))?;
        let mut metrics = Metrics::new();
        for (metric, parts) in &self.0 {
            let value = parts.iter().try_fold(&document, |value, part| match part {
                Part::Key(key) => value.get(key),
                Part::Index(index) => value.get(index),
            });
            let value = match value {
                Some(Value::Number(n)) => n.as_f64(),
                // Some tools quote their numbers (perf stat -j).
                Some(Value::String(text)) => number(text.trim()),
                _ => None,
            };
            if let Some(value) = value {
                metrics.insert(metric.clone(), Number::bare(value));
            }
        }
        if metrics.is_empty() {
            let names: Vec<&str> = self.0.iter().map(|(metric, _)| metric.as_str()).collect();
            return Err(not_found(format!("numbers at the paths of {}", names.join(", "))));
        }
        Ok(metrics)
    }
}

fn path_parts(path: &str) -> Result<Vec<Part>, String> {
    let mut rest = path.trim().chars().peekable();
    if rest.next() != Some('$') {
        return Err("a path begins with `$`".into());
    }
    let mut parts = Vec::new();
    while let Some(opener) = rest.next() {
        parts.push(match opener {
            '.' => {
                let mut key = String::new();
                while let Some(c) = rest.next_if(|c| *c != '.' && *c != '[') {
                    key.push(c);
                }
                if key.is_empty() || key == "*" {
                    return Err("expected a name after `.`".into());
                }
                Part::Key(key)
            }
            '[' => bracket(&mut rest)?,
            other => {
                return Err(format!(
                    "`{other}` where `.name`, `[0]` or `['name']` was expected"
                ));
            }
        });
    }
    if parts.is_empty() {
        Err("the path names no member".into())
    } else {
        Ok(parts)
    }
}

fn bracket(rest: &mut Peekable<Chars<'_>>) -> Result<Part, String> {
    if let Some(quote) = rest.next_if(|c| *c == '\'' || *c == '"') {
        let mut key = String::new();
        loop {
            match rest.next() {
                None => return Err("the quoted name has no end".into()),
                Some('\\') => key.extend(rest.next()),
                Some(c) if c == quote => break,
                Some(c) => key.push(c),
            }
        }
        return if rest.next() == Some(']') {
            Ok(Part::Key(key))
        } else {
            Err("`]` is missing".into())
        };
    }
    let mut digits = String::new();
    while let Some(c) = rest.next_if(char::is_ascii_digit) {
        digits.push(c);
    }
    match (digits.parse(), rest.next()) {
        (Ok(index), Some(']')) => Ok(Part::Index(index)),
        _ => Err("expected `[number]` or `['name']`".into()),
    }
}
