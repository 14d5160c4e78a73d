//! Whether a range can be searched, said before it is accepted.

use super::{RangeError, TreeError, Trees};
use bisect::{CommitId, HistoryError};
use git2::{Oid, Repository};

/// A range with its ends resolved; they stay what they are when branches move.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bounds {
    pub good: CommitId,
    pub bad: CommitId,
    /// The best common ancestors; `good` alone where it is an ancestor of `bad`.
    pub merge_bases: Vec<CommitId>,
    /// How many commits may be the first bad one: those reachable from bad and not from good, on the
    /// first-parent chain if only that is searched.
    pub commits: usize,
}

impl Bounds {
    pub fn good_is_ancestor(&self) -> bool {
        self.merge_bases == [self.good.clone()]
    }
}

pub async fn check(
    trees: &Trees,
    tree: &str,
    good: &str,
    bad: &str,
    first_parent: bool,
) -> Result<Bounds, RangeError> {
    let good = end(trees, tree, "good", good).await?;
    let bad = end(trees, tree, "bad", bad).await?;
    if good == bad {
        return Err(RangeError::EqualEnds { commit: good });
    }
    let (one, two) = (good.clone(), bad.clone());
    let merge_bases = trees
        .mirror(tree)?
        .read(move |repo| merge_bases(repo, &one, &two))
        .await?;
    if merge_bases.is_empty() {
        return Err(RangeError::NoCommonAncestor { good, bad });
    }
    if merge_bases.contains(&bad) {
        return Err(RangeError::ReversedRange { good, bad });
    }
    let history = match trees.history(tree, &good, &bad, first_parent).await {
        Ok(history) => history,
        Err(TreeError::History(HistoryError::ReversedRange)) => {
            return Err(RangeError::ReversedRange { good, bad });
        }
        Err(TreeError::History(HistoryError::NoCommonAncestor)) => {
            return Err(RangeError::NoCommonAncestor { good, bad });
        }
        Err(e) => return Err(e.into()),
    };
    Ok(Bounds {
        commits: history.candidates(),
        good,
        bad,
        merge_bases,
    })
}

async fn end(trees: &Trees, tree: &str, field: &'static str, revision: &str) -> Result<CommitId, RangeError> {
    use TreeError::*;
    trees.resolve(tree, revision).await.map_err(|e| match e {
        UnknownRevision { .. } | Ambiguous { .. } | NotACommit { .. } | BadRevision { .. } => {
            RangeError::Revision {
                field,
                revision: revision.into(),
                source: e,
            }
        }
        other => RangeError::Tree(other),
    })
}

fn merge_bases(repo: &Repository, one: &CommitId, two: &CommitId) -> Result<Vec<CommitId>, TreeError> {
    match repo.merge_bases(Oid::from_str(one.as_str())?, Oid::from_str(two.as_str())?) {
        Ok(bases) => Ok(bases.iter().map(|oid| CommitId::new(oid.to_string())).collect()),
        Err(e) if e.code() == git2::ErrorCode::NotFound => Ok(Vec::new()),
        Err(e) => Err(e.into()),
    }
}
