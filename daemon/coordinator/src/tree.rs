//! The kernel trees: a mirror of each configured repository, and everything that is asked of history.
//!
//! git2 reads history, refs and merges in memory; the git program fetches, writes the commit-graph and makes
//! packs, which it does better. What a source calls `refs/heads/x` is `refs/mirror/heads/x` here, and what a
//! bisection needs is pinned under `refs/perfbisect/<bisection>/<n>`, so no force-push or deletion takes away
//! the commits of a running search. A mirror is never collected: trees that were composed for a build and
//! commits that were fetched by id hang on no ref.
//!
//! This room must not know of machines, builds in progress, Postgres or HTTP.

pub mod bisect_log;
mod compose;
mod error;
mod git;
mod history;
mod info;
pub mod listing;
pub mod local;
mod mirror;
mod pack;
mod range;
mod revision;
pub mod worktrees;

pub use error::{RangeError, TreeError};
pub use info::{CommitInfo, RefInfo, RefKind};
pub use pack::Pack;
pub use range::Bounds;

use crate::config;
use bisect::{CommitId, History, Kernel};
use mirror::Mirror;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use uuid::Uuid;

/// All configured trees; cheap to clone.
#[derive(Clone)]
pub struct Trees {
    mirrors: Arc<BTreeMap<String, Arc<Mirror>>>,
    histories: Arc<history::Cache>,
}

impl Trees {
    /// Makes the mirrors under `state_dir/mirrors` that are not there yet. Nothing is fetched: that may take
    /// long, and is the caller's to start.
    pub async fn open(state_dir: &Path, trees: &BTreeMap<String, config::Tree>) -> Result<Trees, TreeError> {
        git::trust_mirrors_by_place();
        let mut mirrors = BTreeMap::new();
        for (name, tree) in trees {
            mirrors.insert(
                name.clone(),
                Arc::new(Mirror::open(state_dir, name, &tree.url).await?),
            );
        }
        Ok(Trees {
            mirrors: Arc::new(mirrors),
            histories: Arc::default(),
        })
    }

    pub fn names(&self) -> Vec<String> {
        self.mirrors.keys().cloned().collect()
    }

    /// Brings the mirror up to date with its source.
    pub async fn fetch(&self, tree: &str) -> Result<(), TreeError> {
        self.mirror(tree)?.clone().fetch().await
    }

    /// The commit that `revision` names in the source: a branch, a tag, an (abbreviated) id, with `~3`, `^2` and
    /// the like. A branch is looked up in the source as it is now.
    pub async fn resolve(&self, tree: &str, revision: &str) -> Result<CommitId, TreeError> {
        let mirror = self.mirror(tree)?.clone();
        revision::resolve(&mirror, revision).await
    }

    /// Resolves both ends and refuses a range that cannot be searched.
    pub async fn check_range(
        &self,
        tree: &str,
        good: &str,
        bad: &str,
        first_parent: bool,
    ) -> Result<Bounds, RangeError> {
        range::check(self, tree, good, bad, first_parent).await
    }

    /// Keeps `commits` and all their history for the bisection, whatever happens to the source's refs.
    pub async fn pin(&self, tree: &str, bisection: Uuid, commits: &[CommitId]) -> Result<(), TreeError> {
        let commits = commits.to_vec();
        self.mirror(tree)?
            .read(move |repo| mirror::pin(repo, bisection, &commits))
            .await
    }

    pub async fn unpin(&self, tree: &str, bisection: Uuid) -> Result<(), TreeError> {
        self.mirror(tree)?
            .read(move |repo| mirror::unpin(repo, bisection))
            .await
    }

    /// The commits of a resolved range, read once and then kept in memory.
    pub async fn history(
        &self,
        tree: &str,
        good: &CommitId,
        bad: &CommitId,
        first_parent: bool,
    ) -> Result<Arc<History>, TreeError> {
        let mirror = self.mirror(tree)?;
        let key = history::Key {
            tree: tree.into(),
            good: good.clone(),
            bad: bad.clone(),
            first_parent,
        };
        self.histories.get_or_read(mirror, key).await
    }

    /// What people read of commits, in the order asked.
    pub async fn commits(&self, tree: &str, ids: &[CommitId]) -> Result<Vec<CommitInfo>, TreeError> {
        let ids = ids.to_vec();
        self.mirror(tree)?
            .read(move |repo| info::commits(repo, &ids))
            .await
    }

    /// Branches and tags whose name starts with `prefix`, at most `limit`, newest commit first.
    pub async fn refs(&self, tree: &str, prefix: &str, limit: usize) -> Result<Vec<RefInfo>, TreeError> {
        let prefix = prefix.to_string();
        self.mirror(tree)?
            .read(move |repo| info::refs(repo, &prefix, limit))
            .await
    }

    /// The tree object to build for `kernel`, as a git id: its commit's, or one written to the mirror with the
    /// reverts applied. The layout is the compiler's affair and changes no source.
    pub async fn compose(&self, tree: &str, kernel: &Kernel) -> Result<String, TreeError> {
        let kernel = kernel.clone();
        self.mirror(tree)?
            .read(move |repo| compose::compose(repo, &kernel))
            .await
    }

    /// A pack of the tree object `oid`, thin against the tree objects in `have`, as the git program makes it.
    pub async fn pack(&self, tree: &str, oid: &str, have: &[String]) -> Result<Pack, TreeError> {
        pack::pack(self.mirror(tree)?, oid, have).await
    }

    fn mirror(&self, tree: &str) -> Result<&Arc<Mirror>, TreeError> {
        self.mirrors.get(tree).ok_or_else(|| TreeError::UnknownTree {
            tree: tree.into(),
            known: self.names().join(", "),
        })
    }
}
