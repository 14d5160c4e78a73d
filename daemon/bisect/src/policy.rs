//! What the user wants to know, and what they are willing to spend on it.

use crate::CommitId;
use std::collections::BTreeMap;

#[derive(Clone, PartialEq, Debug)]
pub struct Metric {
    pub name: String,
    pub unit: String,
    pub higher_is_better: bool,
    /// Zero and negative values are numbers (a difference, an error count); then changes are absolute.
    pub may_be_zero: bool,
}

/// Smallest loss the user cares about.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum MinEffect {
    /// Per cent of the good level.
    Pct(f64),
    /// In the metric's own unit, for metrics that may be zero.
    Abs(f64),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LookFor {
    /// One culprit, and the rest of the loss reported.
    #[default]
    First,
    /// Go on until the loss is explained.
    All,
}

/// Seconds that things take.
#[derive(Clone, PartialEq, Debug)]
pub struct Costs {
    pub build_s: f64,
    pub boot_s: f64,
    pub run_s: f64,
    /// Where a build's time is known better.
    pub build_s_of: BTreeMap<CommitId, f64>,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            build_s: 600.0,
            boot_s: 120.0,
            run_s: 120.0,
            build_s_of: BTreeMap::new(),
        }
    }
}

/// Stop cleanly at so much spent.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Limits {
    pub boots: Option<u32>,
    pub time_s: Option<f64>,
    /// Seconds spent on the two ends before the search starts.
    pub ends_time_s: Option<f64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Confirm {
    /// Measure the bad end with the culprit reverted.
    pub revert: bool,
    /// Measure parent and culprit laid out anew.
    pub layout: bool,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Policy {
    pub metric: Metric,
    pub min_effect: MinEffect,
    /// Stop when one commit has at least this probability. In (0.5, 1).
    pub confidence: f64,
    /// Ties, and the random order of interleaved boots.
    pub seed: u64,
    pub look_for: LookFor,
    pub costs: Costs,
    pub limits: Limits,
    pub confirm: Confirm,
    pub other_metrics: Vec<Metric>,
}
