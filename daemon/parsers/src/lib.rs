//! From raw output to numbers: what a benchmark printed, what a console said.
//!
//! Pure: text in, values out; total: no input makes it panic. It reports everything it finds; which number is
//! judged, and whether it may be zero, is said by the caller ([`judge`]). What a parser cannot find is
//! *missing*, never 0; what it finds in another unit is an error, never converted.
//!
//! What this crate must *not* know: which machine, kernel or bisection the text is from; exit statuses (the
//! caller has them, and a failed run's numbers do not count whatever was printed); configuration formats.
//!
//! Metric names are part of the record: a changed meaning is a new name, and a change of what is read raises
//! [`VERSION`], which is stored with every value. The raw output is kept, so a better parser can read it again.

mod bonnie;
pub mod console;
mod dbench;
mod dd;
mod fio;
mod hackbench;
mod json;
mod judge;
mod patterns;
mod perf_bench;
mod perf_stat;
mod stress_ng;
mod tiobench;

pub use judge::{Refusal, Wanted, Why, judge, judge_one};

use std::collections::BTreeMap;
use std::fmt;

/// Raised whenever the same text may give other numbers.
pub const VERSION: u32 = 1;

/// One number as the benchmark gave it: not yet judged, so it may be zero, negative or not finite.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Number {
    pub value: f64,
    /// Canonical: `s`, `ms`, `us`, `MB/s`, `KiB/s`, `1/s`, …; `None` where the text does not say (patterns and
    /// JSON paths): then the configuration's word stands.
    pub unit: Option<&'static str>,
    /// What the metric's nature says, where it says anything; the configuration decides.
    pub higher_is_better: Option<bool>,
}

impl Number {
    fn rate(value: f64, unit: &'static str) -> Number {
        Number {
            value,
            unit: Some(unit),
            higher_is_better: Some(true),
        }
    }

    fn cost(value: f64, unit: &'static str) -> Number {
        Number {
            value,
            unit: Some(unit),
            higher_is_better: Some(false),
        }
    }

    fn neutral(value: f64, unit: &'static str) -> Number {
        Number {
            value,
            unit: Some(unit),
            higher_is_better: None,
        }
    }

    fn bare(value: f64) -> Number {
        Number {
            value,
            unit: None,
            higher_is_better: None,
        }
    }
}

/// Everything that was found, by metric name.
pub type Metrics = BTreeMap<String, Number>;

/// Why a run's output gives no metrics at all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ParseError {
    /// Nothing that looks like this benchmark's result.
    NotFound { looked_for: String },
    /// It looks like a result, but cannot be read as one.
    Malformed { line: usize, text: String, why: String },
    /// Two results where one is expected: no telling which is meant.
    Ambiguous { what: String },
    /// The benchmark itself says that it failed, whatever numbers it printed.
    Reported { error: String },
    /// A result of a kind that must not be compared with others.
    Unsupported { what: String },
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParseError::NotFound { looked_for } => {
                write!(f, "no result in the output: looked for {looked_for}")
            }
            ParseError::Malformed { line, text, why } => write!(f, "line {line}: {why}: `{text}`"),
            ParseError::Ambiguous { what } => write!(f, "more than one result: {what}"),
            ParseError::Reported { error } => write!(f, "the benchmark reports an error: {error}"),
            ParseError::Unsupported { what } => write!(f, "this output cannot be used: {what}"),
        }
    }
}

impl std::error::Error for ParseError {}

/// A pattern or path that can never work, found when the configuration is read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadParser {
    pub metric: String,
    pub message: String,
}

impl fmt::Display for BadParser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.metric, self.message)
    }
}

impl std::error::Error for BadParser {}

/// Which output is read.
#[derive(Clone, Debug)]
pub enum Parser {
    /// `fio --output-format=json` or `json+`, any version.
    Fio,
    /// `tiotest -T`.
    Tiotest,
    /// `tiobench.pl`, not `--dump`; `--numruns 1` (more runs sum the latencies up).
    Tiobench,
    /// dbench and tbench 3, 4 and 5.
    Dbench,
    Hackbench,
    /// `perf bench …`, and the agent's own micro benchmarks, which print the same form.
    PerfBench,
    /// `perf stat -x,` or `-j`.
    PerfStat,
    /// `stress-ng --metrics`, `--metrics-brief` or the file of `--yaml`.
    StressNg,
    /// bonnie++'s line of values.
    Bonnie,
    /// One dd, or several that ran side by side.
    Dd,
    Regex(patterns::Patterns),
    JsonPath(json::Paths),
}

impl Parser {
    /// Metric name to a regular expression, `^` and `$` meaning line ends, whose first group is the number.
    pub fn regex(patterns: &BTreeMap<String, String>) -> Result<Parser, BadParser> {
        patterns::Patterns::new(patterns).map(Parser::Regex)
    }

    /// Metric name to a path such as `$.jobs[0].read['iops']`.
    pub fn json_path(paths: &BTreeMap<String, String>) -> Result<Parser, BadParser> {
        json::Paths::new(paths).map(Parser::JsonPath)
    }

    /// All numbers of one run. Never panics; an error means the run gave nothing to use.
    pub fn parse(&self, stdout: &str, stderr: &str) -> Result<Metrics, ParseError> {
        match self {
            Parser::Fio => fio::parse(stdout),
            Parser::Tiotest => tiobench::parse_tiotest(stdout),
            Parser::Tiobench => tiobench::parse_tiobench(stdout),
            Parser::Dbench => dbench::parse(stdout),
            Parser::Hackbench => hackbench::parse(stdout),
            Parser::PerfBench => perf_bench::parse(stdout),
            Parser::PerfStat => perf_stat::parse(stdout, stderr),
            Parser::StressNg => stress_ng::parse(stdout, stderr),
            Parser::Bonnie => bonnie::parse(stdout),
            Parser::Dd => dd::parse(stdout, stderr),
            Parser::Regex(patterns) => patterns.parse(stdout, stderr),
            Parser::JsonPath(paths) => paths.parse(stdout),
        }
    }
}

/// A decimal number as programs print it: digits, a point, an exponent; `nan` and `inf` are read as what they
/// are (and judged away later). No thousands separators: `1,234` means two different things in two locales.
fn number(text: &str) -> Option<f64> {
    text.parse().ok()
}

/// Inserts, refusing a second number of one name.
fn put(metrics: &mut Metrics, name: String, number: Number) -> Result<(), ParseError> {
    match metrics.insert(name.clone(), number) {
        None => Ok(()),
        Some(_) => Err(ParseError::Ambiguous {
            what: format!("`{name}` appears twice"),
        }),
    }
}

/// At most so much of an offending line is quoted.
const QUOTE_CHARS: usize = 160;

fn malformed(line_index: usize, text: &str, why: impl Into<String>) -> ParseError {
    let text = text.trim().chars().take(QUOTE_CHARS).collect();
    ParseError::Malformed {
        line: line_index + 1,
        text,
        why: why.into(),
    }
}
