//! Worktrees of the user's repository in which commits are built and measured, each for one commit at a time.
//!
//! There are a few of them, so that the commits measured in turn need no second build. When all are taken, the one
//! unused for longest goes over to the next commit and keeps what builds left there: they stay incremental. They lie
//! outside of the repository: tools that look upwards for their project must not find the user's checkout.

use super::local::{self, Local};
use anyhow::Context;
use bisect::CommitId;
use std::path::{Path, PathBuf};

pub struct Worktrees {
    repository: Local,
    root: PathBuf,
    slots: Vec<Slot>,
    uses: u64,
}

#[derive(Clone)]
struct Slot {
    folder: PathBuf,
    /// What is checked out.
    commit: Option<CommitId>,
    /// Says which commit the build in there is of; beside the folder, where no build can touch it.
    mark: PathBuf,
    used: u64,
}

impl Worktrees {
    /// Up to `most` worktrees under `root`; what an earlier run left there is used again.
    pub fn open(repository: &Local, root: &Path, most: usize) -> anyhow::Result<Worktrees> {
        std::fs::create_dir_all(root).with_context(|| format!("{} cannot be made", root.display()))?;
        let _ = repository.git(&["worktree", "prune"]);
        let slots = (1..=most.max(1)).map(|number| {
            let folder = root.join(number.to_string());
            let head = local::said(local::git(&folder).args(["rev-parse", "--verify", "--quiet", "HEAD"]));
            Slot {
                commit: head
                    .ok()
                    .filter(|_| folder.join(".git").exists())
                    .map(CommitId::new),
                mark: root.join(format!("{number}.built")),
                folder,
                used: 0,
            }
        });
        Ok(Worktrees {
            repository: repository.clone(),
            root: root.to_owned(),
            slots: slots.collect(),
            uses: 0,
        })
    }

    /// A worktree with `commit` checked out, and whether it holds a finished build of it.
    pub fn at(&mut self, commit: &CommitId) -> anyhow::Result<(PathBuf, bool)> {
        self.uses += 1;
        let holding = self.slots.iter().position(|s| s.commit.as_ref() == Some(commit));
        let number = match holding {
            Some(number) => number,
            None => {
                let free = |s: &Slot| (s.commit.is_some(), s.used);
                let number = (0..self.slots.len())
                    .min_by_key(|n| free(&self.slots[*n]))
                    .unwrap_or(0);
                self.turn(number, commit)?;
                number
            }
        };
        let slot = &mut self.slots[number];
        slot.used = self.uses;
        let built = std::fs::read_to_string(&slot.mark).is_ok_and(|id| id.trim() == commit.as_str());
        Ok((slot.folder.clone(), built))
    }

    /// Keeps the word that the build of `commit` is finished.
    pub fn built(&self, commit: &CommitId) -> anyhow::Result<()> {
        if let Some(slot) = self.slots.iter().find(|s| s.commit.as_ref() == Some(commit)) {
            std::fs::write(&slot.mark, commit.as_str())?;
        }
        Ok(())
    }

    fn turn(&mut self, number: usize, commit: &CommitId) -> anyhow::Result<()> {
        let slot = self.slots[number].clone();
        let _ = std::fs::remove_file(&slot.mark);
        let switched = slot.commit.is_some() && {
            let mut command = quiet(&slot.folder);
            command.args([
                "checkout",
                "--quiet",
                "--force",
                "--detach",
                commit.as_str(),
                "--",
            ]);
            local::said(&mut command).is_ok()
        };
        if !switched {
            self.remove(&slot);
            let mut command = quiet(&self.repository.top);
            command.args(["worktree", "add", "--quiet", "--force", "--detach"]);
            local::said(command.arg(&slot.folder).arg(commit.as_str()))
                .with_context(|| format!("{commit} cannot be checked out in {}", slot.folder.display()))?;
        }
        self.slots[number].commit = Some(commit.clone());
        Ok(())
    }

    fn remove(&self, slot: &Slot) {
        let mut command = quiet(&self.repository.top);
        command.args(["worktree", "remove", "--force", "--force"]);
        let _ = local::said(command.arg(&slot.folder));
        // What git no longer knows is still in the way.
        let _ = std::fs::remove_dir_all(&slot.folder);
        let _ = std::fs::remove_file(&slot.mark);
    }

    /// Takes all of them away.
    pub fn remove_all(self) {
        for slot in &self.slots {
            self.remove(slot);
        }
        let _ = self.repository.git(&["worktree", "prune"]);
        let _ = std::fs::remove_dir(&self.root);
    }
}

/// Hooks are for the user's own checkouts.
fn quiet(folder: &Path) -> std::process::Command {
    let mut command = local::git(folder);
    command.args([
        "-c",
        "core.hooksPath=/dev/null",
        "-c",
        "advice.detachedHead=false",
    ]);
    command
}
