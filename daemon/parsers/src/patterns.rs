//! Numbers by regular expression: for programs that nobody wrote a parser for.

use crate::{BadParser, Metrics, Number, ParseError, malformed, number};
use regex::{Regex, RegexBuilder};
use std::collections::BTreeMap;

/// Compiled size that a pattern may have: enough for any sane one.
const PATTERN_LIMIT_BYTES: usize = 1 << 20;

#[derive(Clone, Debug)]
pub struct Patterns(Vec<(String, Regex)>);

impl Patterns {
    pub(crate) fn new(patterns: &BTreeMap<String, String>) -> Result<Patterns, BadParser> {
        let compile = |(metric, pattern): (&String, &String)| {
            let bad = |message| BadParser {
                metric: metric.clone(),
                message,
            };
            let regex = RegexBuilder::new(pattern)
                .multi_line(true)
                .size_limit(PATTERN_LIMIT_BYTES)
                .build()
                .map_err(|e| bad(e.to_string()))?;
            if regex.captures_len() < 2 {
                return Err(bad(format!(
                    "`{pattern}` has no group: put the number in parentheses"
                )));
            }
            Ok((metric.clone(), regex))
        };
        patterns
            .iter()
            .map(compile)
            .collect::<Result<_, _>>()
            .map(Patterns)
    }

    /// A metric is looked for in stdout, then in stderr (`dd`, `time`). It has to be there at most once: a
    /// pattern that fits several lines has to be made narrower, since no rule would always pick the right one.
    pub(crate) fn parse(&self, stdout: &str, stderr: &str) -> Result<Metrics, ParseError> {
        let mut metrics = Metrics::new();
        for (metric, regex) in &self.0 {
            let text = if regex.is_match(stdout) { stdout } else { stderr };
            let mut found = regex.captures_iter(text);
            let Some(captures) = found.next() else { continue };
            if found.next().is_some() {
                let what = format!("`{metric}`: its pattern fits more than once; make it narrower");
                return Err(ParseError::Ambiguous { what });
            }
            // A group that took no part in the match (an alternative) is as good as no match.
            let Some(group) = captures.get(1) else { continue };
            let line = text[..group.start()].matches('\n').count();
            let value = number(group.as_str().trim())
                .ok_or_else(|| malformed(line, group.as_str(), format!("`{metric}`: not a plain number")))?;
            metrics.insert(metric.clone(), Number::bare(value));
        }
        if metrics.is_empty() {
            let names: Vec<&str> = self.0.iter().map(|(metric, _)| metric.as_str()).collect();
            return Err(ParseError::NotFound {
                looked_for: format!("the patterns of {}", names.join(", ")),
            });
        }
        Ok(metrics)
    }
}
