//! What can go wrong with a tree, and with a range of it.

use bisect::CommitId;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    #[error("no tree `{tree}` is configured; there are: {known}")]
    UnknownTree { tree: String, known: String },
    #[error("{place} is {what}: bisection needs the whole true history. {remedy}")]
    NotWhole {
        place: String,
        what: &'static str,
        remedy: String,
    },
    #[error("`{url}` could not be fetched into the mirror of tree `{tree}`: {message}")]
    Fetch {
        tree: String,
        url: String,
        message: String,
    },
    #[error(
        "tree `{tree}` is still being fetched after {waited_s} s: try again later, or name a tag or a commit id that is there"
    )]
    Busy { tree: String, waited_s: u64 },
    #[error(
        "`{revision}` is unknown in tree `{tree}`, also after fetching it: name a branch, a tag or a commit id of {url}"
    )]
    UnknownRevision {
        tree: String,
        revision: String,
        url: String,
    },
    #[error("`{revision}` is ambiguous: it may be {}; write more digits", .candidates.join(", "))]
    Ambiguous {
        revision: String,
        candidates: Vec<String>,
    },
    #[error("`{revision}` names a {found}, not a commit")]
    NotACommit { revision: String, found: String },
    #[error("`{revision}` cannot be used: {why}")]
    BadRevision { revision: String, why: &'static str },
    #[error("reverting {commit} conflicts in: {}", .files.join(", "))]
    Conflict { commit: CommitId, files: Vec<String> },
    #[error("{commit} cannot be reverted: it has no parent")]
    RevertsRoot { commit: CommitId },
    #[error("patches are not stored for this tree, so none can be applied: {}", .names.join(", "))]
    UnknownPatches { names: Vec<String> },
    #[error("object {oid} is not in the mirror of tree `{tree}`")]
    MissingObject { tree: String, oid: String },
    #[error("the range holds more than {limit} commits: choose nearer ends, or search first parents only")]
    TooLarge { limit: usize },
    #[error("the history of this range cannot be searched: {0}")]
    History(bisect::HistoryError),
    #[error("`git {what}` failed in {}: {message}", .folder.display())]
    Git {
        what: String,
        folder: PathBuf,
        message: String,
    },
    #[error("the mirror cannot be read: {0}")]
    Git2(#[from] git2::Error),
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

/// Why a range was refused: for the person who asked for it.
#[derive(Debug, thiserror::Error)]
pub enum RangeError {
    #[error("{source}")]
    Revision {
        field: &'static str,
        revision: String,
        source: TreeError,
    },
    #[error(
        "good and bad are the same commit, {commit}: name the last version that was fast and one that is slow"
    )]
    EqualEnds { commit: CommitId },
    #[error(
        "bad ({bad}) is an ancestor of good ({good}), so good is the newer one: exchange them, or, if the newer version is the faster one, search for what made it faster"
    )]
    ReversedRange { good: CommitId, bad: CommitId },
    #[error(
        "good ({good}) and bad ({bad}) have no common ancestor, so nothing lies between them: take both ends from one history"
    )]
    NoCommonAncestor { good: CommitId, bad: CommitId },
    /// The tree itself cannot be used now.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

impl RangeError {
    /// The field of the request to correct, where it is one.
    pub fn field(&self) -> Option<&'static str> {
        match self {
            RangeError::Revision { field, .. } => Some(field),
            RangeError::EqualEnds { .. } | RangeError::ReversedRange { .. } => Some("bad"),
            RangeError::NoCommonAncestor { .. } => Some("good"),
            RangeError::Tree(TreeError::UnknownTree { .. }) => Some("tree"),
            RangeError::Tree(TreeError::TooLarge { .. }) => Some("good"),
            RangeError::Tree(_) => None,
        }
    }

    /// A short stable name of the trouble.
    pub fn kind(&self) -> &'static str {
        match self {
            RangeError::Revision {
                source: TreeError::Ambiguous { .. },
                ..
            } => "ambiguous_revision",
            RangeError::Revision { .. } => "unknown_revision",
            RangeError::EqualEnds { .. } => "equal_ends",
            RangeError::ReversedRange { .. } => "reversed_range",
            RangeError::NoCommonAncestor { .. } => "no_common_ancestor",
            RangeError::Tree(TreeError::UnknownTree { .. }) => "unknown_tree",
            RangeError::Tree(TreeError::TooLarge { .. }) => "range_too_large",
            RangeError::Tree(TreeError::NotWhole { .. }) => "tree_not_whole",
            RangeError::Tree(_) => "tree_unavailable",
        }
    }

    /// Whether the request is to blame; else the daemon or the tree's source is.
    pub fn is_the_requests_fault(&self) -> bool {
        match self {
            RangeError::Tree(error) => {
                matches!(error, TreeError::UnknownTree { .. } | TreeError::TooLarge { .. })
            }
            RangeError::Revision { .. }
            | RangeError::EqualEnds { .. }
            | RangeError::ReversedRange { .. }
            | RangeError::NoCommonAncestor { .. } => true,
        }
    }
}
