//! `stress-ng --metrics`, `--metrics-brief`, and the file of `--yaml`.
//!
//! | metric | unit | |
//! |---|---|---|
//! | `stress_ng.STRESSOR.ops_per_s` | ops/s | of wall clock time |
//! | `stress_ng.STRESSOR.ops_per_cpu_s` | ops/s | of user and system time |
//!
//! What stress-ng itself calls a failure makes all of its numbers worthless. A stressor's own further metrics are not
//! read: their names are sentences, and change.

use crate::{Metrics, Number, ParseError, malformed, number, put};

pub fn parse(stdout: &str, stderr: &str) -> Result<Metrics, ParseError> {
    let mut metrics = Metrics::new();
    for text in [stdout, stderr] {
        let mut yaml: Option<String> = None;
        let mut further = false;
        for (at, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["stress-ng:", "error:" | "fail:", ..] => {
                    return Err(ParseError::Reported {
                        error: line.trim().chars().take(160).collect(),
                    });
                }
                ["stress-ng:", "metrc:" | "info:", _, "miscellaneous", "metrics:"] => further = true,
                [
                    "stress-ng:",
                    "metrc:" | "info:",
                    _,
                    name,
                    ops,
                    real,
                    user,
                    system,
                    rate,
                    per_cpu,
                    ..,
                ] if !further && [ops, real, user, system].into_iter().all(|w| number(w).is_some()) => {
                    let (Some(rate), Some(per_cpu)) = (number(rate), number(per_cpu)) else {
                        return Err(malformed(at, line, "the rates are no plain numbers"));
                    };
                    put(
                        &mut metrics,
                        named(name, "ops_per_s"),
                        Number::rate(rate, "ops/s"),
                    )?;
                    put(
                        &mut metrics,
                        named(name, "ops_per_cpu_s"),
                        Number::rate(per_cpu, "ops/s"),
                    )?;
                }
                ["-", "stressor:", name] => yaml = Some((*name).to_string()),
                [key, value] => {
                    let what = match *key {
                        "bogo-ops-per-second-real-time:" => "ops_per_s",
                        "bogo-ops-per-second-usr-sys-time:" => "ops_per_cpu_s",
                        _ => continue,
                    };
                    let (Some(name), Some(value)) = (&yaml, number(value)) else {
                        return Err(malformed(at, line, "no number of a stressor"));
                    };
                    put(&mut metrics, named(name, what), Number::rate(value, "ops/s"))?;
                }
                _ => {}
            }
        }
    }
    if metrics.is_empty() {
        return Err(ParseError::NotFound {
            looked_for: "the table of stress-ng --metrics".into(),
        });
    }
    Ok(metrics)
}

fn named(stressor: &str, what: &str) -> String {
    format!("stress_ng.{stressor}.{what}")
}
