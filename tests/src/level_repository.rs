//! A repository of the user's own whose commits have a level of speed each, and `perfbisect run` in it, with the
//! noisy benchmark of `tests/bench`.

use crate::binaries;
use crate::git_repository::{Draft, Repository};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

pub struct LevelRepository {
    room: TempDir,
    /// Commits in the order in which they were made.
    pub ids: Vec<String>,
    /// A checkout, as a user has it.
    pub work: PathBuf,
}

pub const NOISY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/bench/noisy");

impl LevelRepository {
    /// One commit after the other with these levels; every eighth has a tag `v<number>`.
    pub fn line(levels: &[f64]) -> LevelRepository {
        let mut drafts: Vec<Draft> = Vec::new();
        for (number, level) in levels.iter().enumerate() {
            let parents: Vec<usize> = number.checked_sub(1).into_iter().collect();
            let mut draft = Draft::new(number, &parents);
            draft.files.insert("level".into(), format!("{level}\n"));
            drafts.push(draft);
        }
        LevelRepository::of(&drafts)
    }

    pub fn of(drafts: &[Draft]) -> LevelRepository {
        let room = tempfile::tempdir().expect("a folder for the test");
        let mut made = Repository::new(&room.path().join("made"));
        made.add(drafts);
        made.branch("main", drafts.len() - 1);
        for number in (0..drafts.len()).step_by(8) {
            made.git(&["update-ref", &format!("refs/tags/v{number}"), &made.ids[number]]);
        }
        let work = room.path().join("work");
        made.git(&["clone", "--quiet", ".", work.to_str().expect("UTF-8")]);
        std::fs::write(room.path().join("starts"), "").expect("the room is writable");
        LevelRepository {
            ids: made.ids,
            work,
            room,
        }
    }

    fn at_home(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(&self.work)
            .env("XDG_CACHE_HOME", self.room.path().join("cache"))
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("NOISY_LOG", self.room.path().join("starts"))
            .env("NOISY_SEED", "1");
        for role in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{role}_NAME"), "Lab");
            command.env(format!("GIT_{role}_EMAIL"), "lab@example.org");
        }
        command
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.at_home(&binaries::daemon());
        command.args(args).stdin(Stdio::null());
        command
    }

    /// `perfbisect` in the checkout.
    pub fn perfbisect(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the program starts")
    }

    pub fn begin(&self, args: &[&str]) -> Child {
        let mut command = self.command(args);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("the program starts")
    }

    pub fn git(&self, args: &[&str]) -> String {
        let output = self
            .at_home(Path::new("git"))
            .args(args)
            .output()
            .expect("git is installed");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "git {args:?}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// A file of the test's own.
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.room.path().join(name);
        std::fs::write(&path, text).expect("the room is writable");
        path.to_str().expect("UTF-8").to_owned()
    }

    /// The commits of the benchmark's starts that came to their end.
    pub fn starts(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.room.path().join("starts")).expect("it was made");
        text.lines().map(str::to_owned).collect()
    }

    /// The lines of the run's file that tell of measurements: commit and replicate.
    pub fn observed(&self) -> Vec<(String, u64)> {
        let path = self.work.join(".git/perfbisect/run.jsonl");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        // The last line may be half written.
        let lines = text
            .lines()
            .filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok());
        let identity = |line: serde_json::Value| {
            let observed = line.get("observed")?;
            let commit = observed.pointer("/kernel/commit")?.as_str()?.to_owned();
            Some((commit, observed.get("replicate")?.as_u64()?))
        };
        lines.filter_map(identity).collect()
    }
}

/// `before` until `culprit`, then `after`.
pub fn step(count: usize, culprit: usize, before: f64, after: f64) -> Vec<f64> {
    (0..count)
        .map(|n| if n < culprit { before } else { after })
        .collect()
}
