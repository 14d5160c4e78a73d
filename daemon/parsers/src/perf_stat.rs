//! `perf stat -x,` and `perf stat -j`; the table for people is not read.
//!
//! | metric | unit | |
//! |---|---|---|
//! | `perf_stat.EVENT` | 1 or ms | as counted; a multiplexed event is perf's own estimate |
//! | `perf_stat.EVENT.running` | % | only where less than 100: then that event was counted so much of the time |
//!
//! `<not supported>` and `<not counted>` are missing, not 0. perf writes to stderr, so both streams are read.

use crate::{Metrics, Number, ParseError, malformed, number, put};
use serde_json::Value;

pub fn parse(stdout: &str, stderr: &str) -> Result<Metrics, ParseError> {
    let mut metrics = Metrics::new();
    let mut seen = false;
    for text in [stdout, stderr] {
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            let row = match line.starts_with('{') {
                true => of_json(line),
                false => of_fields(line),
            };
            let Some(row) = row else { continue };
            seen = true;
            if row.value.starts_with('<') {
                continue;
            }
            let value = number(row.value).ok_or_else(|| malformed(at, line, "no plain number"))?;
            let unit = match row.unit {
                "" => "1",
                "msec" => "ms",
                "ns" => "ns",
                "Joules" => "J",
                other => return Err(malformed(at, line, format!("an unknown unit {other}"))),
            };
            put(
                &mut metrics,
                format!("perf_stat.{}", row.event),
                Number::neutral(value, unit),
            )?;
            if row.running < 100.0 {
                let name = format!("perf_stat.{}.running", row.event);
                put(&mut metrics, name, Number::neutral(row.running, "%"))?;
            }
        }
    }
    if metrics.is_empty() {
        let looked_for = match seen {
            true => "an event that this machine counts (all are `<not supported>` or `<not counted>`)",
            false => "lines of perf stat -x, or -j",
        };
        return Err(ParseError::NotFound {
            looked_for: looked_for.into(),
        });
    }
    Ok(metrics)
}

struct Row<'a> {
    value: &'a str,
    unit: &'a str,
    event: String,
    running: f64,
}

/// `value,unit,event,[spread%,]run time,per cent running,…`: the spread comes with `-r`.
fn of_fields(line: &str) -> Option<Row<'_>> {
    let fields: Vec<&str> = line.split(',').collect();
    let [value, unit, event, rest @ ..] = fields.as_slice() else {
        return None;
    };
    if line.starts_with('#') || event.is_empty() || !(value.starts_with('<') || number(value).is_some()) {
        return None;
    }
    let rest = match rest {
        [spread, rest @ ..] if spread.ends_with('%') => rest,
        rest => rest,
    };
    Some(Row {
        value,
        unit,
        event: (*event).to_string(),
        running: number(rest.get(1)?)?,
    })
}

fn of_json(line: &str) -> Option<Row<'_>> {
    let object: Value = serde_json::from_str(line).ok()?;
    let event = object.get("event")?.as_str()?.to_string();
    // Numbers in quotes, whose text is in the line itself.
    let quoted = |key: &str| {
        let after = line.split_once(&format!("\"{key}\" : \""))?.1;
        after.split('"').next()
    };
    Some(Row {
        value: quoted("counter-value")?,
        unit: quoted("unit").unwrap_or(""),
        event,
        running: object
            .get("pcnt-running")
            .and_then(Value::as_f64)
            .unwrap_or(100.0),
    })
}
