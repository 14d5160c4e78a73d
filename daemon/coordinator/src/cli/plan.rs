//! `perfbisect plan`: the mind's offline door. One JSON object a line in, one a line out, until end of input.
//!
//! It needs no database, no network, no clock: for people with a lab of their own, for simulation, for tests.

use crate::plan_json::{
    Malformed, line_history, plan_to_json, record_error, record_from_json, value_from_text,
};
use bisect::History;
use serde_json::json;
use std::io::{BufRead, Write};
use std::process::ExitCode;

/// What the door remembers between lines: the last history given stands.
#[derive(Default)]
pub struct Door {
    history: Option<History>,
}

pub fn run() -> anyhow::Result<ExitCode> {
    let mut door = Door::default();
    let stdin = std::io::stdin().lock();
    let mut stdout = std::io::stdout().lock();
    for line in stdin.split(b'\n') {
        let line = line?;
        // Every line has its answer, an empty one too: answers can be counted off against lines.
        let answer = match std::str::from_utf8(&line) {
            Ok(text) => answer(&mut door, text),
            Err(error) => refusal(&Malformed {
                kind: crate::plan_json::Kind::NotJson,
                message: error.to_string(),
                at: String::new(),
            }),
        };
        match writeln!(stdout, "{answer}").and_then(|()| stdout.flush()) {
            Ok(()) => {}
            // The reader went away: there is nobody left to answer.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The answer to one line, without its newline.
pub fn answer(door: &mut Door, line: &str) -> String {
    match planned(door, line) {
        Ok(plan) => plan,
        Err(malformed) => refusal(&malformed),
    }
}

fn planned(door: &mut Door, line: &str) -> Result<String, Malformed> {
    let line = value_from_text(line)?;
    // A history that can be read stands from here on, whatever else is wrong with its line: a later line that
    // leaves it out means this one, never the one before.
    if let Some(history) = line_history(&line)? {
        door.history = Some(history);
    }
    let record = record_from_json(&line)?;
    let history = door
        .history
        .as_ref()
        .ok_or_else(|| Malformed::field("history", "is required on the first line"))?;
    record.check(history).map_err(record_error)?;
    Ok(plan_to_json(&bisect::plan(history, &record)).to_string())
}

fn refusal(malformed: &Malformed) -> String {
    let Malformed { kind, message, at } = malformed;
    json!({ "error": { "kind": kind.word(), "message": message, "at": at } }).to_string()
}
