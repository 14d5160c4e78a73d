//! bonnie++'s line of comma-separated values, format 1.98 (version 2.00).
//!
//! | metric | unit |
//! |---|---|
//! | `bonnie.put_char`, `.put_block`, `.rewrite`, `.get_char`, `.get_block` | KiB/s |
//! | `bonnie.seeks`, `.seq_create`, `.seq_stat`, `.seq_delete`, `.ran_create`, `.ran_stat`, `.ran_delete` | 1/s |
//! | the same with `.latency` | us |
//!
//! `+++++` means 'too fast to be measured': missing, not 0, and a sign that the file is too small.

use crate::{Metrics, Number, ParseError, malformed, number, put};

/// Name, field of the rate, unit; latencies follow in the same order from [`LATENCIES`] on.
const RATES: [(&str, usize, &str); 12] = [
    ("put_char", 9, "KiB/s"),
    ("put_block", 11, "KiB/s"),
    ("rewrite", 13, "KiB/s"),
    ("get_char", 15, "KiB/s"),
    ("get_block", 17, "KiB/s"),
    ("seeks", 19, "1/s"),
    ("seq_create", 26, "1/s"),
    ("seq_stat", 28, "1/s"),
    ("seq_delete", 30, "1/s"),
    ("ran_create", 32, "1/s"),
    ("ran_stat", 34, "1/s"),
    ("ran_delete", 36, "1/s"),
];
const LATENCIES: usize = 38;
const FIELDS: usize = 50;

pub fn parse(stdout: &str) -> Result<Metrics, ParseError> {
    let mut metrics = Metrics::new();
    let mut seen = false;
    for (at, line) in stdout.lines().enumerate() {
        let fields: Vec<&str> = line.trim().split(',').collect();
        if fields.len() < 10 || number(fields[0]).is_none() {
            continue;
        }
        if fields[0] != "1.98" || fields.len() != FIELDS {
            let what = format!(
                "bonnie++ format {} with {} fields; 1.98 has {FIELDS}",
                fields[0],
                fields.len()
            );
            return Err(ParseError::Unsupported { what });
        }
        seen = true;
        for (nth, (name, field, unit)) in RATES.into_iter().enumerate() {
            if let Some(value) = of(fields[field]).map_err(|why| malformed(at, fields[field], why))? {
                put(&mut metrics, format!("bonnie.{name}"), Number::rate(value, unit))?;
            }
            let latency = fields[LATENCIES + nth];
            if let Some(value) = micros(latency).map_err(|why| malformed(at, latency, why))? {
                put(
                    &mut metrics,
                    format!("bonnie.{name}.latency"),
                    Number::cost(value, "us"),
                )?;
            }
        }
    }
    if metrics.is_empty() {
        let looked_for = match seen {
            true => "a number that is no `+++++`: the files are too small to be measured",
            false => "bonnie++'s line of values (run it with -q)",
        };
        return Err(ParseError::NotFound {
            looked_for: looked_for.into(),
        });
    }
    Ok(metrics)
}

fn of(field: &str) -> Result<Option<f64>, &'static str> {
    if field.is_empty() || field.chars().all(|c| c == '+') {
        return Ok(None);
    }
    number(field).map(Some).ok_or("no plain number")
}

fn micros(field: &str) -> Result<Option<f64>, &'static str> {
    if field.is_empty() || field.chars().all(|c| c == '+') {
        return Ok(None);
    }
    let (digits, scale) = match field.strip_suffix("us") {
        Some(digits) => (digits, 1.0),
        None => match field.strip_suffix("ms") {
            Some(digits) => (digits, 1e3),
            None => (field.strip_suffix('s').ok_or("a latency without a unit")?, 1e6),
        },
    };
    number(digits).map(|n| Some(n * scale)).ok_or("no plain number")
}
