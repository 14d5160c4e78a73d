//! The commits between good and bad, as a validated DAG.
//!
//! Commits are kept parents before children, ties by name, so that the same set in any order is the same
//! history. Everything below `bisect` that asks about ancestry goes through indices into that order. What this
//! file must *not* know: measurements.

use crate::CommitId;
use fixedbitset::FixedBitSet;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

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

impl fmt::Display for HistoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HistoryError::UnknownCommit { commit, .. } => write!(f, "commit {commit} is not in the history"),
            HistoryError::Duplicate { commit, .. } => write!(f, "commit {commit} is listed twice"),
            HistoryError::Cycle { commit } => write!(f, "commit {commit} is an ancestor of itself"),
            HistoryError::EqualEnds => write!(f, "good and bad are the same commit"),
            HistoryError::ReversedRange => {
                write!(
                    f,
                    "bad is an ancestor of good: swap the ends, or ask for what made it faster"
                )
            }
            HistoryError::NoCommonAncestor => {
                write!(f, "good and bad have no common ancestor in the history")
            }
            HistoryError::InvalidWeight { message, .. } => f.write_str(message),
        }
    }
}

impl std::error::Error for HistoryError {}

/// Everything reachable from `bad` that is not reachable from `good`, `good` itself, and, where `good` is no
/// ancestor of `bad` or branches start before `good`, the fork points and the commits from them to `good`.
#[derive(Clone, PartialEq, Debug)]
pub struct History {
    good: CommitId,
    bad: CommitId,
    commits: Vec<Commit>,
    first_parent: bool,
    weights: BTreeMap<CommitId, f64>,
    index: HashMap<CommitId, u32>,
    /// CSR of the parents that count for ancestry: all listed ones, or only the first in first-parent mode.
    parent_start: Vec<u32>,
    parent: Vec<u32>,
    children_start: Vec<u32>,
    children: Vec<u32>,
    candidates: usize,
    fingerprint: u64,
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
        let commits = sorted(commits)?;
        let index: HashMap<CommitId, u32> = commits
            .iter()
            .zip(0u32..)
            .map(|(c, i)| (c.id.clone(), i))
            .collect();
        for (at, commit) in [("good", &good), ("bad", &bad)] {
            if !index.contains_key(commit) {
                return Err(HistoryError::UnknownCommit {
                    at: at.into(),
                    commit: commit.clone(),
                });
            }
        }
        for (commit, weight) in &weights {
            let at = format!("weights.{commit}");
            if !index.contains_key(commit) {
                return Err(HistoryError::UnknownCommit {
                    at,
                    commit: commit.clone(),
                });
            }
            if !(weight.is_finite() && *weight > 0.0) {
                let message = format!("a weight is more than 0 and finite, is {weight}");
                return Err(HistoryError::InvalidWeight { at, message });
            }
        }
        if good == bad {
            return Err(HistoryError::EqualEnds);
        }
        // The range is judged on the whole graph, whatever is searched.
        let (start, parent) = edges(&commits, &index, false);
        let above = |i| reach(&start, &parent, i, commits.len());
        let (g, b) = (index[&good], index[&bad]);
        let (from_good, from_bad) = (above(g), above(b));
        if from_good.contains(b as usize) {
            return Err(HistoryError::ReversedRange);
        }
        if from_good.is_disjoint(&from_bad) {
            return Err(HistoryError::NoCommonAncestor);
        }
        let (parent_start, parent) = if first_parent {
            edges(&commits, &index, true)
        } else {
            (start, parent)
        };
        let (children_start, children) = transpose(&parent_start, &parent);
        let mut history = History {
            good,
            bad,
            commits,
            first_parent,
            weights,
            index,
            parent_start,
            parent,
            children_start,
            children,
            candidates: 0,
            fingerprint: 0,
        };
        // Along first parents the fast-forwarded side of good may hold the chain's end: any ancestor of good ends it.
        let mut left = history.ancestors(b);
        left.difference_with(&from_good);
        history.candidates = left.count_ones(..);
        let mut hasher = DefaultHasher::new();
        for commit in &history.commits {
            (&commit.id, &commit.parents).hash(&mut hasher);
        }
        (&history.parent_start, &history.parent).hash(&mut hasher);
        for (id, weight) in &history.weights {
            (id, weight.to_bits()).hash(&mut hasher);
        }
        history.fingerprint = hasher.finish();
        Ok(history)
    }

    pub fn good(&self) -> &CommitId {
        &self.good
    }

    pub fn bad(&self) -> &CommitId {
        &self.bad
    }

    /// Tells histories apart within one process, for what is remembered about them.
    pub(crate) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Parents before children.
    pub fn commits(&self) -> &[Commit] {
        &self.commits
    }

    /// How many commits may be the first bad one.
    pub fn candidates(&self) -> usize {
        self.candidates
    }

    pub fn first_parent(&self) -> bool {
        self.first_parent
    }

    pub fn weights(&self) -> &BTreeMap<CommitId, f64> {
        &self.weights
    }

    /// The place of a commit in [`History::commits`].
    pub fn place(&self, commit: &CommitId) -> Option<u32> {
        self.index.get(commit).copied()
    }

    pub fn id(&self, place: u32) -> &CommitId {
        &self.commits[place as usize].id
    }

    pub fn len(&self) -> usize {
        self.commits.len()
    }

    pub fn is_empty(&self) -> bool {
        self.commits.is_empty()
    }

    /// The listed parents that count for ancestry.
    pub fn parents(&self, place: u32) -> &[u32] {
        slice(&self.parent_start, &self.parent, place)
    }

    pub fn children(&self, place: u32) -> &[u32] {
        slice(&self.children_start, &self.children, place)
    }

    /// The commit and everything it contains.
    pub fn ancestors(&self, place: u32) -> FixedBitSet {
        reach(&self.parent_start, &self.parent, place, self.commits.len())
    }
}

fn slice<'a>(start: &[u32], items: &'a [u32], place: u32) -> &'a [u32] {
    &items[start[place as usize] as usize..start[place as usize + 1] as usize]
}

/// Parents before children, ties by name; finds duplicates and cycles.
fn sorted(commits: Vec<Commit>) -> Result<Vec<Commit>, HistoryError> {
    let mut at = HashMap::with_capacity(commits.len());
    for (i, commit) in commits.iter().enumerate() {
        if at.insert(&commit.id, i).is_some() {
            return Err(HistoryError::Duplicate {
                at: format!("commits[{i}].id"),
                commit: commit.id.clone(),
            });
        }
    }
    let mut waits_for = vec![0usize; commits.len()];
    let mut children = vec![Vec::new(); commits.len()];
    for (i, commit) in commits.iter().enumerate() {
        for parent in &commit.parents {
            if let Some(&p) = at.get(parent) {
                waits_for[i] += 1;
                children[p].push(i);
            }
        }
    }
    let mut ready: BinaryHeap<_> = (0..commits.len())
        .filter(|&i| waits_for[i] == 0)
        .map(|i| Reverse((&commits[i].id, i)))
        .collect();
    let mut order = Vec::with_capacity(commits.len());
    while let Some(Reverse((_, i))) = ready.pop() {
        order.push(i);
        for &child in &children[i] {
            waits_for[child] -= 1;
            if waits_for[child] == 0 {
                ready.push(Reverse((&commits[child].id, child)));
            }
        }
    }
    if let Some(stuck) = (0..commits.len())
        .filter(|&i| waits_for[i] > 0)
        .min_by_key(|&i| &commits[i].id)
    {
        return Err(HistoryError::Cycle {
            commit: commits[stuck].id.clone(),
        });
    }
    drop((at, ready));
    let mut commits: Vec<Option<Commit>> = commits.into_iter().map(Some).collect();
    Ok(order.into_iter().filter_map(|i| commits[i].take()).collect())
}

fn edges(commits: &[Commit], index: &HashMap<CommitId, u32>, first_only: bool) -> (Vec<u32>, Vec<u32>) {
    let mut start = vec![0u32];
    let mut parent: Vec<u32> = Vec::new();
    for commit in commits {
        let begin = parent.len();
        let take = if first_only { 1 } else { usize::MAX };
        for id in commit.parents.iter().take(take) {
            if let Some(&p) = index.get(id)
                && !parent[begin..].contains(&p)
            {
                parent.push(p);
            }
        }
        start.push(parent.len() as u32);
    }
    (start, parent)
}

fn transpose(start: &[u32], parent: &[u32]) -> (Vec<u32>, Vec<u32>) {
    let n = start.len() - 1;
    let mut children_start = vec![0u32; n + 1];
    for &p in parent {
        children_start[p as usize + 1] += 1;
    }
    for i in 0..n {
        children_start[i + 1] += children_start[i];
    }
    let mut fill = children_start.clone();
    let mut children = vec![0u32; parent.len()];
    for child in 0..n {
        for &p in slice(start, parent, child as u32) {
            children[fill[p as usize] as usize] = child as u32;
            fill[p as usize] += 1;
        }
    }
    (children_start, children)
}

fn reach(start: &[u32], parent: &[u32], from: u32, n: usize) -> FixedBitSet {
    let mut seen = FixedBitSet::with_capacity(n);
    let mut stack = vec![from];
    seen.insert(from as usize);
    while let Some(place) = stack.pop() {
        for &p in slice(start, parent, place) {
            if !seen.put(p as usize) {
                stack.push(p);
            }
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(good: &str, bad: &str, commits: &[(&str, &[&str])]) -> Result<History, HistoryError> {
        let commits = commits
            .iter()
            .map(|(id, parents)| Commit {
                id: (*id).into(),
                parents: parents.iter().map(|p| (*p).into()).collect(),
            })
            .collect();
        History::new(good.into(), bad.into(), commits, false, BTreeMap::new())
    }

    const LINE: &[(&str, &[&str])] = &[("c2", &["c1"]), ("c0", &["outside"]), ("c1", &["c0"])];

    #[test]
    fn any_order_of_commits_is_the_same_history() {
        let mut other = LINE.to_vec();
        other.reverse();
        let (a, b) = (history("c0", "c2", LINE), history("c0", "c2", &other));
        assert_eq!(a, b);
        assert_eq!(a.map(|h| h.candidates()), Ok(2));
    }

    #[test]
    fn wrong_ranges_are_refused_each_in_its_own_words() {
        assert_eq!(history("c1", "c1", LINE), Err(HistoryError::EqualEnds));
        assert_eq!(history("c2", "c0", LINE), Err(HistoryError::ReversedRange));
        let unknown = HistoryError::UnknownCommit {
            at: "bad".into(),
            commit: "c9".into(),
        };
        assert_eq!(history("c0", "c9", LINE), Err(unknown));
        let twice = HistoryError::Duplicate {
            at: "commits[1].id".into(),
            commit: "c0".into(),
        };
        assert_eq!(
            history("c0", "c1", &[("c0", &[]), ("c0", &[]), ("c1", &["c0"])]),
            Err(twice)
        );
        let cycle = HistoryError::Cycle { commit: "a".into() };
        assert_eq!(
            history("c0", "b", &[("c0", &[]), ("a", &["b"]), ("b", &["a", "c0"])]),
            Err(cycle)
        );
        assert_eq!(
            history("a", "b", &[("a", &[]), ("b", &[])]),
            Err(HistoryError::NoCommonAncestor)
        );
    }
}
