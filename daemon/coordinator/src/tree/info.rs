//! What people read: commits and names.

use super::TreeError;
use bisect::CommitId;
use chrono::{DateTime, Utc};
use git2::{ErrorCode, Oid, Repository};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommitInfo {
    pub id: CommitId,
    pub subject: String,
    pub author: String,
    pub email: String,
    /// When it was written (author date).
    pub date: DateTime<Utc>,
    pub parents: Vec<CommitId>,
    /// `Fixes`, `Reviewed-by`, …, in their order.
    pub trailers: Vec<(String, String)>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum RefKind {
    Branch,
    Tag,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RefInfo {
    pub name: String,
    pub kind: RefKind,
    pub commit: CommitId,
    pub date: DateTime<Utc>,
}

pub fn commits(repo: &Repository, ids: &[CommitId]) -> Result<Vec<CommitInfo>, TreeError> {
    ids.iter().map(|id| commit(repo, id)).collect()
}

fn commit(repo: &Repository, id: &CommitId) -> Result<CommitInfo, TreeError> {
    let commit = repo.find_commit(Oid::from_str(id.as_str())?)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let author = commit.author();
    let message = text(commit.message_bytes());
    let trailers = git2::message_trailers_strs(&message)
        .map(|all| {
            all.iter()
                .map(|(key, value)| (key.to_string(), value.to_string()))
                .collect()
        })
        .unwrap_or_default();
    Ok(CommitInfo {
        id: id.clone(),
        subject: text(commit.summary_bytes().unwrap_or_default()),
        author: text(author.name_bytes()),
        email: text(author.email_bytes()),
        date: date(author.when().seconds()),
        parents: commit
            .parent_ids()
            .map(|oid| CommitId::new(oid.to_string()))
            .collect(),
        trailers,
    })
}

pub fn refs(repo: &Repository, prefix: &str, limit: usize) -> Result<Vec<RefInfo>, TreeError> {
    let mut found = Vec::new();
    for (root, kind) in [
        ("refs/mirror/heads/", RefKind::Branch),
        ("refs/mirror/tags/", RefKind::Tag),
    ] {
        for reference in repo.references_glob(&format!("{root}*"))? {
            let reference = reference?;
            let full = String::from_utf8_lossy(reference.name_bytes()).into_owned();
            let name = full.strip_prefix(root).unwrap_or(&full);
            if !name.starts_with(prefix) {
                continue;
            }
            match reference.peel_to_commit() {
                Ok(commit) => found.push(RefInfo {
                    name: name.into(),
                    kind,
                    commit: CommitId::new(commit.id().to_string()),
                    date: date(commit.time().seconds()),
                }),
                // A tag may name a blob or a tree (Linux has one).
                Err(e)
                    if matches!(
                        e.code(),
                        ErrorCode::Peel | ErrorCode::InvalidSpec | ErrorCode::NotFound
                    ) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
    found.sort_by(|a, b| b.date.cmp(&a.date).then_with(|| a.name.cmp(&b.name)));
    found.truncate(limit);
    Ok(found)
}

fn date(seconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(seconds, 0).unwrap_or_default()
}
