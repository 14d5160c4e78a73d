//! The commits of a range, walked once.
//!
//! Two walks: everything reachable from bad and not from good; then, where parents of those lie on good's side
//! but are not good itself (branches that started before good, or a good that is no ancestor of bad), these
//! fork points and every commit that leads from one of them to good.

use super::mirror::Mirror;
use super::{TreeError, git};
use bisect::{Commit, CommitId, History, HistoryError};
use git2::{Oid, Repository, Sort};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Histories larger than this (ten years of Linux) are refused: the mind would not get through them.
const MAX_COMMITS: usize = 1_000_000;

/// Commits kept in memory over all cached histories: about 300 bytes each.
const CACHED_COMMITS: usize = 1_000_000;

const OCTOPUS_LIMIT: Duration = Duration::from_secs(120);

/// Fork points handed to one `git merge-base`; beyond that the second walk goes down to the root.
const MAX_OCTOPUS_ARMS: usize = 5_000;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Key {
    pub tree: String,
    pub good: CommitId,
    pub bad: CommitId,
    pub first_parent: bool,
}

/// Least recently used histories go first.
#[derive(Default)]
pub struct Cache {
    kept: Mutex<VecDeque<(Key, Arc<History>)>>,
    /// One walk at a time: a second request for the same range waits and then finds it here.
    walking: tokio::sync::Mutex<()>,
}

impl Cache {
    pub async fn get_or_read(&self, mirror: &Mirror, key: Key) -> Result<Arc<History>, TreeError> {
        if let Some(found) = self.get(&key) {
            return Ok(found);
        }
        let _one_at_a_time = self.walking.lock().await;
        if let Some(found) = self.get(&key) {
            return Ok(found);
        }
        let history = Arc::new(read(mirror, &key).await?);
        self.put(key, history.clone());
        Ok(history)
    }

    fn get(&self, key: &Key) -> Option<Arc<History>> {
        let mut kept = self.kept.lock().expect("no holder panics");
        let at = kept.iter().position(|(k, _)| k == key)?;
        let entry = kept.remove(at)?;
        let found = entry.1.clone();
        kept.push_back(entry);
        Some(found)
    }

    fn put(&self, key: Key, history: Arc<History>) {
        let mut kept = self.kept.lock().expect("no holder panics");
        kept.push_back((key, history));
        let size =
            |kept: &VecDeque<(Key, Arc<History>)>| kept.iter().map(|(_, h)| h.commits().len()).sum::<usize>();
        while kept.len() > 1 && size(&kept) > CACHED_COMMITS {
            kept.pop_front();
        }
    }
}

async fn read(mirror: &Mirror, key: &Key) -> Result<History, TreeError> {
    let good = Oid::from_str(key.good.as_str())?;
    let bad = Oid::from_str(key.bad.as_str())?;
    let first_parent = key.first_parent;
    let between = mirror
        .read(move |repo| between(repo, good, bad, first_parent))
        .await?;
    if between.is_empty() {
        let what = if good == bad {
            HistoryError::EqualEnds
        } else {
            HistoryError::ReversedRange
        };
        return Err(TreeError::History(what));
    }
    let mut forks = fork_points(&between, first_parent);
    forks.retain(|fork| *fork != good);
    let floor = match forks.len() {
        0 => Vec::new(),
        1..=MAX_OCTOPUS_ARMS => common_ancestors(mirror, &forks, good).await?,
        _ => Vec::new(),
    };
    let key = key.clone();
    let build = move |repo: &Repository| {
        let mut commits = between;
        match forks.is_empty() {
            true => commits.push(walked(repo, good)?),
            false => commits.extend(from_forks_to_good(repo, &forks, good, &floor)?),
        }
        let commits = commits.into_iter().map(named).collect();
        History::new(key.good, key.bad, commits, key.first_parent, BTreeMap::new())
            .map_err(TreeError::History)
    };
    mirror.read(build).await
}

struct Walked {
    id: Oid,
    parents: Vec<Oid>,
}

fn walked(repo: &Repository, id: Oid) -> Result<Walked, TreeError> {
    let commit = repo.find_commit(id)?;
    Ok(Walked {
        id,
        parents: commit.parent_ids().collect(),
    })
}

fn named(commit: Walked) -> Commit {
    let name = |oid: &Oid| CommitId::new(oid.to_string());
    Commit {
        id: name(&commit.id),
        parents: commit.parents.iter().map(name).collect(),
    }
}

/// Reachable from bad, not from good; parents before children. On the first-parent chain only, if so asked:
/// the ends of the other parents stay listed as parents that lie outside.
fn between(repo: &Repository, good: Oid, bad: Oid, first_parent: bool) -> Result<Vec<Walked>, TreeError> {
    let mut walk = repo.revwalk()?;
    walk.set_sorting(Sort::TOPOLOGICAL | Sort::REVERSE)?;
    walk.push(bad)?;
    walk.hide(good)?;
    let mut commits = Vec::new();
    for id in walk {
        if commits.len() == MAX_COMMITS {
            return Err(TreeError::TooLarge { limit: MAX_COMMITS });
        }
        commits.push(walked(repo, id?)?);
    }
    if !first_parent {
        return Ok(commits);
    }
    let mut by_id: HashMap<Oid, Walked> = commits.into_iter().map(|c| (c.id, c)).collect();
    let mut chain = Vec::new();
    let mut next = Some(bad);
    while let Some(commit) = next.and_then(|id| by_id.remove(&id)) {
        next = commit.parents.first().copied();
        chain.push(commit);
    }
    chain.reverse();
    Ok(chain)
}

/// Parents outside of the range, all of them on good's side. Of a first-parent chain only the first parents
/// count: the others are the ends of branches that are not searched.
fn fork_points(between: &[Walked], first_parent: bool) -> Vec<Oid> {
    let inside: HashSet<Oid> = between.iter().map(|c| c.id).collect();
    let ways_in = |c: &Walked| {
        c.parents
            .iter()
            .take(if first_parent { 1 } else { c.parents.len() })
            .copied()
            .collect()
    };
    let parents = between.iter().flat_map::<Vec<Oid>, _>(ways_in);
    let distinct: BTreeSet<Oid> = parents.filter(|p| !inside.contains(p)).collect();
    distinct.into_iter().collect()
}

/// The best common ancestors of all fork points and good: nothing that leads from a fork point to good lies
/// below them, so the second walk may stop there. The git program does this with generation numbers, in
/// milliseconds where pairwise merge bases of libgit2 take minutes.
async fn common_ancestors(mirror: &Mirror, forks: &[Oid], good: Oid) -> Result<Vec<Oid>, TreeError> {
    let ids: Vec<String> = forks.iter().chain([&good]).map(Oid::to_string).collect();
    let args: Vec<&str> = ["merge-base", "--octopus", "--all"]
        .into_iter()
        .chain(ids.iter().map(String::as_str))
        .collect();
    let ended = git::run(&mirror.folder, &args, OCTOPUS_LIMIT).await?;
    match ended.status.code() {
        Some(0) => {
            let text = String::from_utf8_lossy(&ended.stdout).into_owned();
            text.lines().map(|line| Ok(Oid::from_str(line)?)).collect()
        }
        // None in common.
        Some(1) => Ok(Vec::new()),
        _ => Err(git::failure(
            &mirror.folder,
            &args[..3],
            &String::from_utf8_lossy(&ended.stderr),
        )),
    }
}

/// The fork points, good, and every commit that descends from a fork point and is an ancestor of good.
fn from_forks_to_good(
    repo: &Repository,
    forks: &[Oid],
    good: Oid,
    floor: &[Oid],
) -> Result<Vec<Walked>, TreeError> {
    let mut walk = repo.revwalk()?;
    walk.set_sorting(Sort::TOPOLOGICAL | Sort::REVERSE)?;
    walk.push(good)?;
    for base in floor {
        for parent in repo.find_commit(*base)?.parent_ids() {
            walk.hide(parent)?;
        }
    }
    let mut leads: HashSet<Oid> = forks.iter().copied().collect();
    let mut commits = Vec::new();
    for id in walk {
        let commit = walked(repo, id?)?;
        if commit.id == good || leads.contains(&commit.id) || commit.parents.iter().any(|p| leads.contains(p))
        {
            leads.insert(commit.id);
            commits.push(commit);
            if commits.len() > MAX_COMMITS {
                return Err(TreeError::TooLarge { limit: MAX_COMMITS });
            }
        }
    }
    Ok(commits)
}
