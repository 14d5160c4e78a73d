//! From what a person writes to a commit.
//!
//! Names are those of the source, looked up in the mirror's name space in git's own order of preference; the
//! rest (`~3`, `^2`, `^{/text}`) is left to libgit2. Nothing of this machine (reflogs, HEAD, an index) takes part.

use super::mirror::Mirror;
use super::{TreeError, git};
use bisect::CommitId;
use git2::{ErrorCode, ObjectType, Oid, Repository};
use std::sync::Arc;
use std::time::Duration;

/// The shortest abbreviation git itself takes.
const SHORTEST: usize = 4;

/// Candidates named in the message about an ambiguous abbreviation.
const CANDIDATES_SHOWN: usize = 5;

pub async fn resolve(mirror: &Arc<Mirror>, revision: &str) -> Result<CommitId, TreeError> {
    let (name, suffix) = split(revision)?;
    let lookup = {
        let (name, suffix, revision) = (name.to_string(), suffix.to_string(), revision.to_string());
        move |repo: &Repository| find(repo, &name, &suffix, &revision)
    };
    let found = match mirror.read(lookup.clone()).await? {
        Found::Commit { id, moves: false } => return Ok(id),
        // A branch means the branch as it is now.
        Found::Commit { moves: true, .. } | Found::Nothing => {
            mirror.clone().fetch().await?;
            mirror.read(lookup.clone()).await?
        }
        other => other,
    };
    let found = match found {
        Found::Nothing if is_full_id(name) && mirror.fetch_by_id(name).await.is_ok() => {
            mirror.read(lookup).await?
        }
        found => found,
    };
    match found {
        Found::Commit { id, .. } => Ok(id),
        Found::Nothing => Err(TreeError::UnknownRevision {
            tree: mirror.tree.clone(),
            revision: revision.into(),
            url: mirror.url.clone(),
        }),
        Found::Ambiguous => match disambiguate(mirror, name).await? {
            candidates if candidates.len() == 1 => {
                let (id, suffix, revision) =
                    (candidates[0].clone(), suffix.to_string(), revision.to_string());
                match mirror
                    .read(move |repo| find(repo, &id, &suffix, &revision))
                    .await?
                {
                    Found::Commit { id, .. } => Ok(id),
                    Found::Nothing | Found::Ambiguous => unreachable!("a full id was just listed"),
                }
            }
            mut candidates => {
                candidates.truncate(CANDIDATES_SHOWN);
                Err(TreeError::Ambiguous {
                    revision: revision.into(),
                    candidates,
                })
            }
        },
    }
}

enum Found {
    /// `moves`: it was named by a branch.
    Commit {
        id: CommitId,
        moves: bool,
    },
    Nothing,
    Ambiguous,
}

/// The name, and what git calls the suffix. Refuses what does not name one commit of the source.
fn split(revision: &str) -> Result<(&str, &str), TreeError> {
    let refuse = |why| {
        Err(TreeError::BadRevision {
            revision: revision.into(),
            why,
        })
    };
    if revision.is_empty() || revision.len() > 500 {
        return refuse("a revision has 1 to 500 characters");
    }
    if revision.contains("@{") {
        return refuse("`@{…}` asks a reflog, and a mirror has none");
    }
    if revision.contains("..") {
        return refuse("it is a range; good and bad are given apart");
    }
    let end = revision.find(['~', '^', ':']).unwrap_or(revision.len());
    let (name, suffix) = revision.split_at(end);
    if name.is_empty() || suffix.contains(':') && !suffix.contains("^{/") {
        return refuse("it names no commit");
    }
    Ok((name, suffix))
}

fn find(repo: &Repository, name: &str, suffix: &str, revision: &str) -> Result<Found, TreeError> {
    let (base, moves) = match base(repo, name)? {
        Base::Id(oid, moves) => (oid, moves),
        Base::Nothing => return Ok(Found::Nothing),
        Base::Ambiguous => return Ok(Found::Ambiguous),
    };
    let object = match repo.revparse_single(&format!("{base}{suffix}")) {
        Ok(object) => object,
        Err(e) if e.code() == ErrorCode::NotFound => return Ok(Found::Nothing),
        Err(e) if e.code() == ErrorCode::InvalidSpec => {
            return Err(TreeError::BadRevision {
                revision: revision.into(),
                why: "git cannot read it",
            });
        }
        Err(e) => return Err(e.into()),
    };
    match object.peel_to_commit() {
        Ok(commit) => Ok(Found::Commit {
            id: CommitId::new(commit.id().to_string()),
            moves,
        }),
        Err(_) => {
            let found = object.kind().map_or("nothing", |k| k.str()).to_string();
            Err(TreeError::NotACommit {
                revision: revision.into(),
                found,
            })
        }
    }
}

enum Base {
    Id(Oid, bool),
    Nothing,
    Ambiguous,
}

fn base(repo: &Repository, name: &str) -> Result<Base, TreeError> {
    if is_full_id(name) {
        let oid = Oid::from_str(name)?;
        return Ok(if repo.odb()?.exists(oid) {
            Base::Id(oid, false)
        } else {
            Base::Nothing
        });
    }
    let short = name.strip_prefix("refs/").unwrap_or(name);
    let short = short.strip_prefix("remotes/").unwrap_or(short);
    let candidates = match short {
        "HEAD" | "@" => vec!["refs/mirror/HEAD".to_string()],
        _ => vec![
            format!("refs/mirror/{short}"),
            format!("refs/mirror/tags/{short}"),
            format!("refs/mirror/heads/{short}"),
            format!(
                "refs/mirror/heads/{}",
                short.strip_prefix("origin/").unwrap_or(short)
            ),
        ],
    };
    for candidate in candidates.iter().filter(|c| git2::Reference::is_valid_name(c)) {
        match repo.find_reference(candidate) {
            Ok(reference) => {
                let oid = reference
                    .resolve()?
                    .target()
                    .expect("a resolved reference has a target");
                return Ok(Base::Id(oid, !candidate.starts_with("refs/mirror/tags/")));
            }
            Err(e) if e.code() == ErrorCode::NotFound => {}
            Err(e) => return Err(e.into()),
        }
    }
    match abbreviation(name) {
        None => Ok(Base::Nothing),
        Some(digits) => match repo.find_object_by_prefix(digits, Some(ObjectType::Any)) {
            Ok(object) => Ok(Base::Id(object.id(), false)),
            Err(e) if e.code() == ErrorCode::NotFound => Ok(Base::Nothing),
            Err(e) if e.code() == ErrorCode::Ambiguous => Ok(Base::Ambiguous),
            Err(e) => Err(e.into()),
        },
    }
}

/// The digits of `1a2b3c4` and of `git describe`'s `v6.1-12-g1a2b3c4`.
fn abbreviation(name: &str) -> Option<&str> {
    let digits = name.rsplit_once("-g").map_or(name, |(_, digits)| digits);
    let hexadecimal = digits.bytes().all(|b| b.is_ascii_hexdigit());
    (hexadecimal && (SHORTEST..=40).contains(&digits.len())).then_some(digits)
}

fn is_full_id(name: &str) -> bool {
    name.len() == 40 && name.bytes().all(|b| b.is_ascii_hexdigit())
}

/// The commits (and tags of commits) among the objects that an abbreviation fits: git, too, prefers them.
async fn disambiguate(mirror: &Mirror, name: &str) -> Result<Vec<String>, TreeError> {
    let digits = abbreviation(name).unwrap_or(name);
    let arg = format!("--disambiguate={digits}");
    let text = git::output(&mirror.folder, &["rev-parse", &arg], Duration::from_secs(60)).await?;
    let ids: Vec<String> = text.lines().map(str::to_string).collect();
    let commits_of = move |repo: &Repository| {
        let is_commit = |id: &String| {
            let object = Oid::from_str(id).and_then(|oid| repo.find_object(oid, None));
            object.is_ok_and(|o| o.peel_to_commit().is_ok())
        };
        let commits: Vec<String> = ids.iter().filter(|id| is_commit(id)).cloned().collect();
        Ok(if commits.is_empty() { ids } else { commits })
    };
    mirror.read(commits_of).await
}
