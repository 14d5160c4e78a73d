//! What a job yielded.

use super::fields::{At, Fields, Malformed, array, entries, number};
use bisect::{Outcome, Value as Run};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

fn run_to_json(run: &Run) -> Value {
    match run {
        Run::Exact(x) => json!(x),
        Run::AtLeast(x) => json!({ "at_least": x }),
        Run::AtMost(x) => json!({ "at_most": x }),
    }
}

fn run_from_json((value, at): At<'_>) -> Result<Run, Malformed> {
    if !value.is_object() {
        return Ok(Run::Exact(number((value, at))?));
    }
    let mut fields = Fields::of(value, &at)?;
    let least = fields.get("at_least").map(number).transpose()?;
    let most = fields.get("at_most").map(number).transpose()?;
    fields.end()?;
    match (least, most) {
        (Some(x), None) => Ok(Run::AtLeast(x)),
        (None, Some(x)) => Ok(Run::AtMost(x)),
        _ => Err(Malformed::field(
            at,
            "expected a number, {\"at_least\": x} or {\"at_most\": x}",
        )),
    }
}

fn runs_from_json(value: At<'_>) -> Result<Vec<Run>, Malformed> {
    array(value)?.into_iter().map(run_from_json).collect()
}

pub fn outcome_to_json(outcome: &Outcome) -> Value {
    match outcome {
        Outcome::Measured { values, others } => {
            let mut measured = Map::new();
            measured.insert("values".into(), values.iter().map(run_to_json).collect());
            if !others.is_empty() {
                let others = others
                    .iter()
                    .map(|(k, v)| (k.clone(), v.iter().map(run_to_json).collect()));
                measured.insert("others".into(), Value::Object(others.collect()));
            }
            json!({ "measured": measured })
        }
        Outcome::BuildFailed => json!("build_failed"),
        Outcome::BootFailed => json!("boot_failed"),
        Outcome::BenchmarkFailed => json!("benchmark_failed"),
        Outcome::Lost => json!("lost"),
    }
}

pub fn outcome_from_json(value: &Value, at: &str) -> Result<Outcome, Malformed> {
    if let Some(word) = value.as_str() {
        return match word {
            "build_failed" => Ok(Outcome::BuildFailed),
            "boot_failed" => Ok(Outcome::BootFailed),
            "benchmark_failed" => Ok(Outcome::BenchmarkFailed),
            "lost" => Ok(Outcome::Lost),
            other => Err(Malformed::field(
                at,
                format!(
                    "unknown outcome `{other}`; known: measured, build_failed, boot_failed, benchmark_failed, lost"
                ),
            )),
        };
    }
    let mut fields = Fields::of(value, at)?;
    let (measured, measured_at) = fields.need("measured")?;
    fields.end()?;
    let mut fields = Fields::of(measured, &measured_at)?;
    let (values, values_at) = fields.need("values")?;
    let values = runs_from_json((values, values_at.clone()))?;
    if values.is_empty() {
        return Err(Malformed::field(
            values_at,
            "a measured boot has at least one run",
        ));
    }
    let others = match fields.get("others") {
        Some(map) => entries(map)?
            .into_iter()
            .map(|(name, list)| Ok((name.to_owned(), runs_from_json(list)?)))
            .collect::<Result<BTreeMap<_, _>, Malformed>>()?,
        None => BTreeMap::new(),
    };
    fields.end()?;
    Ok(Outcome::Measured { values, others })
}
