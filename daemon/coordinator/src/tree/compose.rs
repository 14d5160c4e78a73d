//! The source of a kernel: a commit's tree, or one merged in memory with commits taken back.

use super::TreeError;
use bisect::{CommitId, Kernel};
use git2::{Index, Oid, Repository, Tree};
use std::collections::BTreeSet;

pub fn compose(repo: &Repository, kernel: &Kernel) -> Result<String, TreeError> {
    if !kernel.patches.is_empty() {
        return Err(TreeError::UnknownPatches {
            names: kernel.patches.clone(),
        });
    }
    let mut tree = find(repo, &kernel.commit)?.tree()?;
    for commit in &kernel.revert {
        tree = without(repo, tree, commit)?;
    }
    Ok(tree.id().to_string())
}

/// `tree` with what `commit` did to its (first) parent undone: the three-way merge that `git revert -m 1` makes.
fn without<'repo>(
    repo: &'repo Repository,
    tree: Tree<'repo>,
    commit: &CommitId,
) -> Result<Tree<'repo>, TreeError> {
    let culprit = find(repo, commit)?;
    if culprit.parent_count() == 0 {
        return Err(TreeError::RevertsRoot {
            commit: commit.clone(),
        });
    }
    let mut merged = repo.merge_trees(&culprit.tree()?, &tree, &culprit.parent(0)?.tree()?, None)?;
    if merged.has_conflicts() {
        return Err(TreeError::Conflict {
            commit: commit.clone(),
            files: conflicts(&merged)?,
        });
    }
    Ok(repo.find_tree(merged.write_tree_to(repo)?)?)
}

fn conflicts(index: &Index) -> Result<Vec<String>, TreeError> {
    let mut files = BTreeSet::new();
    for conflict in index.conflicts()? {
        let conflict = conflict?;
        let entry = conflict.our.or(conflict.their).or(conflict.ancestor);
        files.extend(entry.map(|e| String::from_utf8_lossy(&e.path).into_owned()));
    }
    Ok(files.into_iter().collect())
}

fn find<'repo>(repo: &'repo Repository, commit: &CommitId) -> Result<git2::Commit<'repo>, TreeError> {
    Ok(repo.find_commit(Oid::from_str(commit.as_str())?)?)
}
