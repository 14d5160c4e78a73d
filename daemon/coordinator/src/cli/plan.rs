//! `perfbisect plan`: the mind's offline door. One JSON object a line in, one a line out, until end of input.
//!
//! It needs no database, no network, no clock: for people with a lab of their own, for simulation, for tests.

use crate::plan_json::{
    Kind, Malformed, line_history, plan_to_json, record_error, record_from_json, value_from_text,
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
    match serve(std::io::stdin().lock(), std::io::stdout().lock()) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        // The reader went away: there is nobody left to answer.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error.into()),
    }
}

/// Answers line by line until the end of input. Every line has its answer, an empty one too, so that answers can
/// be counted off against lines; the last line needs no newline.
pub fn serve(input: impl BufRead, mut output: impl Write) -> std::io::Result<()> {
    let mut door = Door::default();
    for line in input.split(b'\n') {
        let answer = match String::from_utf8(line?) {
            Ok(text) => answer(&mut door, &text),
            Err(error) => refusal(&Malformed {
                kind: Kind::NotJson,
                message: error.to_string(),
                at: String::new(),
            }),
        };
        writeln!(output, "{answer}")?;
        output.flush()?;
    }
    Ok(())
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
