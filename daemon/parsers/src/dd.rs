//! `dd`'s last line, of one or of several that ran side by side.
//!
//! | metric | unit | |
//! |---|---|---|
//! | `dd.rate` | MB/s | sum of each one's bytes by its own time; 10^6 |
//! | `dd.time` | s | of the slowest |
//! | `dd.slowest` | MB/s | rate of the slowest: how fair the share was |
//!
//! The rate that dd prints is rounded to three digits, so it is worked out anew from bytes and seconds.

use crate::{Metrics, Number, ParseError, malformed, number, put};

pub fn parse(stdout: &str, stderr: &str) -> Result<Metrics, ParseError> {
    let (mut sum, mut slowest, mut time) = (0.0, f64::INFINITY, 0.0);
    let mut found = false;
    for text in [stdout, stderr] {
        for (at, line) in text.lines().enumerate() {
            let Some((before, after)) = line.split_once(" copied, ") else {
                if let Some(error) = line.trim().strip_prefix("dd: ").filter(|e| !e.is_empty()) {
                    let error = error.chars().take(160).collect();
                    return Err(ParseError::Reported { error });
                }
                continue;
            };
            let bytes = before.split_whitespace().next().and_then(number);
            let seconds = after.split_once(" s").and_then(|(s, _)| number(s.trim()));
            let (Some(bytes), Some(seconds)) = (bytes, seconds) else {
                return Err(malformed(at, line, "no bytes and seconds (is LC_ALL=C set?)"));
            };
            let rate = bytes / seconds / 1e6;
            sum += rate;
            slowest = f64::min(slowest, rate);
            time = f64::max(time, seconds);
            found = true;
        }
    }
    if !found {
        return Err(ParseError::NotFound {
            looked_for: "a line `… bytes … copied, … s`".into(),
        });
    }
    let mut metrics = Metrics::new();
    put(&mut metrics, "dd.rate".into(), Number::rate(sum, "MB/s"))?;
    put(&mut metrics, "dd.slowest".into(), Number::rate(slowest, "MB/s"))?;
    put(&mut metrics, "dd.time".into(), Number::cost(time, "s"))?;
    Ok(metrics)
}
