//! How a bisection ends.

use crate::{CommitId, MachineId};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    CulpritFound,
    CulpritsFound,
    SeveralChanges,
    CulpritRange,
    EndpointsIndistinguishable,
    BelowThreshold,
    ImprovedNotRegressed,
    MergeBaseBad,
    MachineDependent,
    Inconclusive,
    InfraFailed,
}

impl Status {
    pub const ALL: [Status; 11] = [
        Status::CulpritFound,
        Status::CulpritsFound,
        Status::SeveralChanges,
        Status::CulpritRange,
        Status::EndpointsIndistinguishable,
        Status::BelowThreshold,
        Status::ImprovedNotRegressed,
        Status::MergeBaseBad,
        Status::MachineDependent,
        Status::Inconclusive,
        Status::InfraFailed,
    ];

    /// The word used in JSON, in the database and on pages.
    pub fn word(self) -> &'static str {
        match self {
            Status::CulpritFound => "culprit_found",
            Status::CulpritsFound => "culprits_found",
            Status::SeveralChanges => "several_changes",
            Status::CulpritRange => "culprit_range",
            Status::EndpointsIndistinguishable => "endpoints_indistinguishable",
            Status::BelowThreshold => "below_threshold",
            Status::ImprovedNotRegressed => "improved_not_regressed",
            Status::MergeBaseBad => "merge_base_bad",
            Status::MachineDependent => "machine_dependent",
            Status::Inconclusive => "inconclusive",
            Status::InfraFailed => "infra_failed",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Check {
    Parents,
    Revert,
    Layout,
    SameBinary,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CheckResult {
    Passed,
    Failed,
    NotPossible,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checked {
    pub check: Check,
    pub result: CheckResult,
    pub detail: String,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Conclusion {
    pub status: Status,
    pub first_bad: Vec<CommitId>,
    pub improved: Vec<CommitId>,
    /// For `CulpritRange`, exactly the set that cannot be told apart.
    pub suspects: Vec<CommitId>,
    /// Probability of the place.
    pub confidence: f64,
    /// Probability that the loss is at least the smallest effect asked for.
    pub size_confidence: Option<f64>,
    /// Change of the number from parent to culprit, in per cent; negative is a loss where higher is better.
    pub effect_pct: Option<f64>,
    pub ci95_pct: Option<(f64, f64)>,
    /// Share of the whole loss between the ends that the culprit explains.
    pub share_of_loss: Option<f64>,
    pub machines: Vec<MachineId>,
    pub not_reproduced_on: Vec<MachineId>,
    pub checks: Vec<Checked>,
    pub notes: Vec<String>,
}
