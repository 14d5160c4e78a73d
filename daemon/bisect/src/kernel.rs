//! What is built.

use crate::CommitId;

/// A commit, plainly, or with commits reverted, patches applied, or laid out anew.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Kernel {
    pub commit: CommitId,
    /// Commits reverted on top of `commit`, in this order.
    pub revert: Vec<CommitId>,
    /// Names of patches applied on top.
    pub patches: Vec<String>,
    /// 0: the plain layout; n > 0: other function alignment, variant n.
    pub layout: u32,
}

impl Kernel {
    pub fn plain(commit: CommitId) -> Self {
        Self {
            commit,
            revert: Vec::new(),
            patches: Vec::new(),
            layout: 0,
        }
    }

    pub fn is_plain(&self) -> bool {
        self.revert.is_empty() && self.patches.is_empty() && self.layout == 0
    }
}
