//! A repository of the user's own, read with the git program in the user's environment: what `perfbisect run` searches.
//!
//! Nothing here writes to the user's checkout, index or branches. What this file must *not* know: measurements.

use anyhow::{Context, bail};
use bisect::{Commit, CommitId, History};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Histories larger than this are refused: the mind would not get through them.
const MOST_COMMITS: usize = 1_000_000;

#[derive(Clone, Debug)]
pub struct Local {
    /// Where the user's checkout begins; the repository itself where it has none.
    pub top: PathBuf,
    /// What all worktrees of the repository share (`.git`).
    pub common: PathBuf,
}

/// What is searched: resolved ends, and which commits between them count.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Span {
    pub good: CommitId,
    pub bad: CommitId,
    pub first_parent: bool,
    pub paths: Vec<String>,
}

impl Local {
    /// The repository that `folder` lies in.
    pub fn open(folder: &Path) -> anyhow::Result<Local> {
        let ask = |arg: &str| said(git(folder).args(["rev-parse", "--path-format=absolute", arg]));
        let common = ask("--git-common-dir")
            .with_context(|| format!("{} lies in no git repository", folder.display()))?;
        let top = ask("--show-toplevel").unwrap_or_else(|_| common.clone());
        let (top, common) = (PathBuf::from(top), PathBuf::from(common));
        if common.join("shallow").exists() {
            bail!(
                "{} is a shallow clone: bisection needs the whole history (`git fetch --unshallow`)",
                top.display()
            );
        }
        Ok(Local { top, common })
    }

    pub fn git(&self, args: &[&str]) -> anyhow::Result<String> {
        said(git(&self.top).args(args))
    }

    /// The commit that a revision names.
    pub fn commit(&self, revision: &str) -> anyhow::Result<CommitId> {
        let wanted = format!("{revision}^{{commit}}");
        let id = self
            .git(&["rev-parse", "--verify", "--quiet", "--end-of-options", &wanted])
            .with_context(|| format!("`{revision}` names no commit here"))?;
        Ok(CommitId::new(id))
    }

    /// The first line of a commit's message.
    pub fn subject(&self, commit: &CommitId) -> String {
        let subject = self.git(&[
            "log",
            "-1",
            "--no-show-signature",
            "--format=%s",
            commit.as_str(),
            "--",
        ]);
        subject.unwrap_or_default()
    }

    /// The tree object of a commit: equal sources have equal trees.
    pub fn tree_of(&self, commit: &CommitId) -> anyhow::Result<String> {
        self.git(&["rev-parse", "--verify", "--quiet", &format!("{commit}^{{tree}}")])
    }

    pub fn parents(&self, commit: &CommitId) -> anyhow::Result<Vec<CommitId>> {
        let line = self.git(&["rev-list", "--parents", "--max-count=1", commit.as_str(), "--"])?;
        Ok(line.split(' ').skip(1).map(CommitId::new).collect())
    }

    pub fn is_ancestor(&self, one: &CommitId, other: &CommitId) -> anyhow::Result<bool> {
        let ended = run(git(&self.top).args(["merge-base", "--is-ancestor", one.as_str(), other.as_str()]))?;
        match ended.status.code() {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            _ => bail!("{}", String::from_utf8_lossy(&ended.stderr).trim()),
        }
    }

    /// Whether a file of the user's checkout is under version control.
    pub fn is_tracked(&self, file: &Path) -> bool {
        let ended = run(git(&self.top)
            .args(["ls-files", "--error-unmatch", "--"])
            .arg(file));
        ended.is_ok_and(|e| e.status.success())
    }

    /// Tags among the ancestors of `bad`, newest first.
    pub fn tags_before(&self, bad: &CommitId, pattern: &str) -> anyhow::Result<Vec<String>> {
        let merged = format!("--merged={bad}");
        let list = self.git(&["tag", "--list", &merged, "--sort=-creatordate", "--", pattern])?;
        Ok(list.lines().map(str::to_owned).collect())
    }

    /// Adds to the notes of a commit under `refs/notes/perfbisect`; `git log --notes=perfbisect` shows them.
    pub fn note(&self, commit: &CommitId, text: &str) -> anyhow::Result<()> {
        self.git(&["notes", "--ref=perfbisect", "append", "-m", text, commit.as_str()])?;
        Ok(())
    }

    /// The commits of a span as the mind reads them.
    pub fn history(&self, span: &Span) -> anyhow::Result<History> {
        let commits = if span.paths.is_empty() {
            self.whole(span)?
        } else {
            self.limited(span)?
        };
        let history = History::new(
            span.good.clone(),
            span.bad.clone(),
            commits,
            span.first_parent,
            BTreeMap::new(),
        );
        Ok(history?)
    }

    /// Everything from bad that good does not have; then, where branches started before good, the fork points and
    /// what leads from them to good.
    fn whole(&self, span: &Span) -> anyhow::Result<Vec<Commit>> {
        let mut commits = self.between(span)?;
        if commits.is_empty() {
            bail!(if span.good == span.bad {
                "both ends are the same commit"
            } else {
                "the second end is an ancestor of the first: exchange them"
            });
        }
        let inside: HashSet<&CommitId> = commits.iter().map(|c| &c.id).collect();
        let most = if span.first_parent { 1 } else { usize::MAX };
        let outside = commits.iter().flat_map(|c| c.parents.iter().take(most));
        let forks: BTreeSet<CommitId> = outside
            .filter(|p| !inside.contains(p) && **p != span.good)
            .cloned()
            .collect();
        if forks.is_empty() {
            commits.push(Commit {
                id: span.good.clone(),
                parents: Vec::new(),
            });
        } else {
            commits.extend(self.leading_to_good(&span.good, forks)?);
        }
        Ok(commits)
    }

    fn between(&self, span: &Span) -> anyhow::Result<Vec<Commit>> {
        let mut command = git(&self.top);
        command.args(["rev-list", "--parents"]);
        if span.first_parent {
            command.arg("--first-parent");
        }
        command.args([span.bad.as_str(), &format!("^{}", span.good), "--"]);
        listed(command.args(&span.paths))
    }

    fn leading_to_good(&self, good: &CommitId, forks: BTreeSet<CommitId>) -> anyhow::Result<Vec<Commit>> {
        let mut command = git(&self.top);
        command.args(["merge-base", "--octopus", "--all", good.as_str()]);
        let ended = run(command.args(forks.iter().map(CommitId::as_str)))?;
        let floor = String::from_utf8_lossy(&ended.stdout).into_owned();
        let mut command = git(&self.top);
        command.args([
            "rev-list",
            "--parents",
            "--topo-order",
            "--reverse",
            good.as_str(),
        ]);
        for base in floor.lines() {
            for parent in self.parents(&CommitId::new(base))? {
                command.arg(format!("^{parent}"));
            }
        }
        let mut leads = forks;
        let mut commits = listed(command.arg("--"))?;
        commits.retain(|c| {
            let on_the_way =
                c.id == *good || leads.contains(&c.id) || c.parents.iter().any(|p| leads.contains(p));
            if on_the_way {
                leads.insert(c.id.clone());
            }
            on_the_way
        });
        Ok(commits)
    }

    /// git's own simplification: commits that change nothing in the paths are left out and parents are those that
    /// are left. What lies outside of the span stands for good; what no commit in the paths explains stays bad's own.
    fn limited(&self, span: &Span) -> anyhow::Result<Vec<Commit>> {
        let mut commits = self.between(span)?;
        if commits.is_empty() {
            bail!("no commit between the ends changes {}", span.paths.join(" "));
        }
        let inside: HashSet<CommitId> = commits.iter().map(|c| c.id.clone()).collect();
        for commit in &mut commits {
            let mut parents: Vec<CommitId> = Vec::new();
            for parent in commit.parents.drain(..) {
                let parent = if inside.contains(&parent) {
                    parent
                } else {
                    span.good.clone()
                };
                if !parents.contains(&parent) {
                    parents.push(parent);
                }
            }
            if parents.is_empty() {
                parents.push(span.good.clone());
            }
            commit.parents = parents;
        }
        if !inside.contains(&span.bad) {
            let below: HashSet<&CommitId> = commits.iter().flat_map(|c| &c.parents).collect();
            let heads = commits.iter().map(|c| &c.id).filter(|id| !below.contains(id));
            let parents = heads.cloned().collect();
            commits.push(Commit {
                id: span.bad.clone(),
                parents,
            });
        }
        commits.push(Commit {
            id: span.good.clone(),
            parents: Vec::new(),
        });
        Ok(commits)
    }
}

/// `git` at a folder, asked nothing and translated nothing.
pub fn git(folder: &Path) -> Command {
    let mut command = Command::new("git");
    command
        .arg("-C")
        .arg(folder)
        .env("LC_ALL", "C")
        .stdin(Stdio::null());
    command
}

fn run(command: &mut Command) -> anyhow::Result<Output> {
    command
        .output()
        .context("the git program cannot be run: is it installed?")
}

/// Standard output of a call that must succeed, its last newline cut.
pub fn said(command: &mut Command) -> anyhow::Result<String> {
    let ended = run(command)?;
    if !ended.status.success() {
        let why = String::from_utf8_lossy(&ended.stderr);
        let what: Vec<_> = command
            .get_args()
            .skip(2)
            .take(2)
            .map(|a| a.to_string_lossy())
            .collect();
        bail!("git {} failed: {}", what.join(" "), why.trim());
    }
    Ok(String::from_utf8_lossy(&ended.stdout)
        .trim_end_matches('\n')
        .to_owned())
}

fn listed(command: &mut Command) -> anyhow::Result<Vec<Commit>> {
    let text = said(command)?;
    let commits: Vec<Commit> = text
        .lines()
        .map(|line| {
            let mut ids = line.split(' ').map(CommitId::new);
            Commit {
                id: ids.next().unwrap_or_else(|| CommitId::new(line)),
                parents: ids.collect(),
            }
        })
        .collect();
    if commits.len() > MOST_COMMITS {
        bail!("the range holds more than {MOST_COMMITS} commits: choose nearer ends, or first parents only");
    }
    Ok(commits)
}
