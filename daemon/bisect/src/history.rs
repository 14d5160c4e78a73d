//! The commits between good and bad, as a validated DAG.

use crate::CommitId;
use std::collections::BTreeMap;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Commit {
    pub id: CommitId,
    /// A parent that is not listed in the history lies outside of it.
    pub parents: Vec<CommitId>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HistoryError {
    UnknownCommit { at: String, commit: CommitId },
    Duplicate { at: String, commit: CommitId },
    Cycle { commit: CommitId },
    EqualEnds,
    ReversedRange,
    NoCommonAncestor,
    InvalidWeight { at: String, message: String },
}

/// Everything reachable from `bad` that is not reachable from `good`, `good` itself, and, where `good` is no
/// ancestor of `bad` or branches start before `good`, the fork points and the commits from them to `good`.
#[derive(Clone, PartialEq, Debug)]
pub struct History {
    good: CommitId,
    bad: CommitId,
    commits: Vec<Commit>,
    first_parent: bool,
    weights: BTreeMap<CommitId, f64>,
}

impl History {
    /// Checks everything that can be wrong with a range; `commits` may come in any order.
    pub fn new(
        good: CommitId,
        bad: CommitId,
        commits: Vec<Commit>,
        first_parent: bool,
        weights: BTreeMap<CommitId, f64>,
    ) -> Result<History, HistoryError> {
        Ok(History { good, bad, commits, first_parent, weights })
    }

    pub fn good(&self) -> &CommitId {
        &self.good
    }

    pub fn bad(&self) -> &CommitId {
        &self.bad
    }

    /// Parents before children.
    pub fn commits(&self) -> &[Commit] {
        &self.commits
    }

    /// How many commits may be the first bad one.
    pub fn candidates(&self) -> usize {
        self.commits.len()
    }

    pub fn first_parent(&self) -> bool {
        self.first_parent
    }

    pub fn weights(&self) -> &BTreeMap<CommitId, f64> {
        &self.weights
    }
}
