//! hackbench: `hackbench.time` (s). The sentences before `Time:` differ by version and mode.

use crate::{Metrics, Number, ParseError, malformed, number, put};

pub fn parse(stdout: &str) -> Result<Metrics, ParseError> {
    let mut metrics = Metrics::new();
    for (at, line) in stdout.lines().enumerate() {
        let Some(rest) = line.trim().strip_prefix("Time:") else {
            continue;
        };
        let value = number(rest.trim()).ok_or_else(|| malformed(at, line, "no plain number of seconds"))?;
        put(&mut metrics, "hackbench.time".into(), Number::cost(value, "s"))?;
    }
    if metrics.is_empty() {
        return Err(ParseError::NotFound {
            looked_for: "a line `Time: seconds`".into(),
        });
    }
    Ok(metrics)
}
