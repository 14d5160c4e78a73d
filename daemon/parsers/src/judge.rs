//! Which numbers count: those asked for, in the unit asked for, finite, and positive unless zero is allowed.

use crate::{Metrics, Number};
use std::collections::BTreeMap;
use std::fmt;

/// A number that the search needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    pub name: String,
    pub unit: String,
    /// Zero and negative values are numbers too (a difference, an error count).
    pub may_be_zero: bool,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Why {
    Missing { found: Vec<String> },
    OtherUnit { wanted: String, found: &'static str },
    NotFinite,
    Zero,
    Negative { value: f64 },
}

/// A number that was asked for and cannot be used.
#[derive(Clone, PartialEq, Debug)]
pub struct Refusal {
    pub metric: String,
    pub why: Why,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let metric = &self.metric;
        match &self.why {
            Why::Missing { found } if found.is_empty() => write!(f, "{metric} is missing; nothing was found"),
            Why::Missing { found } => write!(f, "{metric} is missing; found: {}", found.join(", ")),
            Why::OtherUnit { wanted, found } => {
                write!(
                    f,
                    "{metric} is in {found}, the workload says {wanted}: correct the unit there"
                )
            }
            Why::NotFinite => write!(f, "{metric} is not a finite number"),
            Why::Zero => write!(f, "{metric} is 0, which counts only with may_be_zero"),
            Why::Negative { value } => write!(f, "{metric} is {value}, which counts only with may_be_zero"),
        }
    }
}

impl std::error::Error for Refusal {}

/// Names listed in a refusal: enough to see a misspelt one.
const NAMES_LISTED: usize = 12;

pub fn judge_one(metrics: &Metrics, wanted: &Wanted) -> Result<f64, Refusal> {
    let refuse = |why| {
        Err(Refusal {
            metric: wanted.name.clone(),
            why,
        })
    };
    let Some(Number { value, unit, .. }) = metrics.get(&wanted.name) else {
        return refuse(Why::Missing {
            found: metrics.keys().take(NAMES_LISTED).cloned().collect(),
        });
    };
    if let Some(found) = unit
        && canonical_unit(&wanted.unit) != *found
    {
        return refuse(Why::OtherUnit {
            wanted: wanted.unit.clone(),
            found,
        });
    }
    match *value {
        v if !v.is_finite() => refuse(Why::NotFinite),
        v if wanted.may_be_zero => Ok(v),
        0.0 => refuse(Why::Zero),
        v if v < 0.0 => refuse(Why::Negative { value: v }),
        v => Ok(v),
    }
}

/// All of them, or every reason why not.
pub fn judge(metrics: &Metrics, wanted: &[Wanted]) -> Result<BTreeMap<String, f64>, Vec<Refusal>> {
    let mut values = BTreeMap::new();
    let mut refusals = Vec::new();
    for one in wanted {
        match judge_one(metrics, one) {
            Ok(value) => drop(values.insert(one.name.clone(), value)),
            Err(refusal) => refusals.push(refusal),
        }
    }
    if refusals.is_empty() {
        Ok(values)
    } else {
        Err(refusals)
    }
}

/// Other spellings of the same unit; never another unit.
fn canonical_unit(unit: &str) -> &str {
    match unit {
        "sec" | "secs" | "seconds" => "s",
        "msec" | "msecs" => "ms",
        "usec" | "usecs" | "µs" => "us",
        "usecs/op" | "µs/op" => "us/op",
        "ops/sec" | "operations/sec" | "op/s" => "ops/s",
        "MB/sec" => "MB/s",
        "iops" | "IOPS" => "1/s",
        "percent" => "%",
        other => other,
    }
}
