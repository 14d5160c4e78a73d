//! dbench and tbench, versions 3 to 5.
//!
//! | metric | unit | |
//! |---|---|---|
//! | `dbench.throughput` | MB/s | that of the last `execute` tick, as dbench itself reports it |
//! | `dbench.max_latency` | ms | version 4 and later |
//! | `dbench.op.NTCreateX.count`, `.lat_avg`, `.lat_max` | 1, ms, ms | version 4 and later, each operation |
//!
//! Versions 1 and 2 scale their number (`NB=…`): refused, since it compares with no other.

use crate::{Metrics, Number, ParseError, malformed, number, put};

pub fn parse(stdout: &str) -> Result<Metrics, ParseError> {
    let mut metrics = Metrics::new();
    let mut in_table = false;
    for (at, line) in stdout.lines().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["Throughput", value, rest @ ..] => throughput(&mut metrics, at, line, value, rest)?,
            ["Operation", "Count", "AvgLat", "MaxLat", ..] => in_table = true,
            [] => in_table &= !has_operations(&metrics),
            [name, count, average, maximum, ..] if in_table => {
                let [Some(count), Some(average), Some(maximum)] =
                    [count, average, maximum].map(|w| number(w))
                else {
                    in_table = false;
                    continue;
                };
                let op = |what: &str| format!("dbench.op.{name}.{what}");
                put(&mut metrics, op("count"), Number::neutral(count, "1"))?;
                put(&mut metrics, op("lat_avg"), Number::cost(average, "ms"))?;
                put(&mut metrics, op("lat_max"), Number::cost(maximum, "ms"))?;
            }
            ["Child", "failed", "with", "status", ..] => {
                return Err(ParseError::Reported {
                    error: line.trim().to_string(),
                });
            }
            [one] if one.starts_with(';') => machine_readable(&mut metrics, at, one)?,
            _ => {}
        }
    }
    if !metrics.contains_key("dbench.throughput") {
        return Err(ParseError::NotFound {
            looked_for: "a line `Throughput … MB/sec … procs`".into(),
        });
    }
    Ok(metrics)
}

fn has_operations(metrics: &Metrics) -> bool {
    metrics.keys().any(|name| name.starts_with("dbench.op."))
}

/// `Throughput 410.658 MB/sec  2 clients  2 procs  max_latency=98.386 ms`, with ` (sync open)` and
/// ` (sync dirs)` after the unit where those were asked for.
fn throughput(
    metrics: &mut Metrics,
    at: usize,
    line: &str,
    value: &str,
    rest: &[&str],
) -> Result<(), ParseError> {
    if line.contains("NB=") {
        let what = "dbench 1 and 2 print a scaled number; use version 3 or later".into();
        return Err(ParseError::Unsupported { what });
    }
    let value = number(value).ok_or_else(|| malformed(at, line, "the throughput is no plain number"))?;
    if rest.first() != Some(&"MB/sec") {
        return Err(malformed(at, line, "the throughput is not in MB/sec"));
    }
    if !rest.contains(&"procs") {
        return Err(malformed(at, line, "cut short: `procs` is missing"));
    }
    put(metrics, "dbench.throughput".into(), Number::rate(value, "MB/s"))?;
    let Some(place) = rest.iter().position(|word| word.starts_with("max_latency=")) else {
        return Ok(());
    };
    let latency = rest[place].strip_prefix("max_latency=").and_then(number);
    match (latency, rest.get(place + 1)) {
        (Some(latency), Some(&"ms")) => {
            put(metrics, "dbench.max_latency".into(), Number::cost(latency, "ms"))
        }
        _ => Err(malformed(at, line, "max_latency is no number of ms")),
    }
}

/// The last line of version 5's `--machine-readable`: `;throughput;clients;procs;maxlat;`.
fn machine_readable(metrics: &mut Metrics, at: usize, line: &str) -> Result<(), ParseError> {
    let fields: Vec<&str> = line.split(';').collect();
    let ["", throughput, clients, procs, latency, ""] = fields.as_slice() else {
        return Err(malformed(
            at,
            line,
            "expected `;throughput;clients;procs;maxlat;`",
        ));
    };
    match [throughput, clients, procs, latency].map(|f| number(f)) {
        [Some(throughput), Some(_), Some(_), Some(latency)] => {
            put(
                metrics,
                "dbench.throughput".into(),
                Number::rate(throughput, "MB/s"),
            )?;
            put(metrics, "dbench.max_latency".into(), Number::cost(latency, "ms"))
        }
        _ => Err(malformed(at, line, "not numbers")),
    }
}
