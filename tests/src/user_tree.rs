//! A tree that is no kernel: a shell script per commit whose speed is a number in it. It builds in no time and needs
//! no boot, so tests of what happens between daemon, agent and store can afford hundreds of attempts.

use std::path::{Path, PathBuf};
use std::process::Command;

pub struct UserTree {
    pub repository: PathBuf,
    /// Oldest first; the first one is the good end, the last one the bad end.
    pub commits: Vec<String>,
    pub first_bad: String,
    runs: PathBuf,
}

/// The script: waits as a benchmark would work, notes that it ran, and prints operations per second with a jitter of
/// its own.
fn script(commit: usize, level: u32, delay_s: f64, runs: &Path) -> String {
    let runs = runs.display();
    format!(
        "# commit {commit}\nsleep {delay_s}\necho {commit} >>{runs}\necho \"ops: $(({level} + $$ % 7)).0\"\n"
    )
}

impl UserTree {
    /// `count` commits in a line, the one at `culprit` (1 is the first after the good end) a tenth slower.
    pub fn new(folder: &Path, count: usize, culprit: usize, delay_s: f64) -> UserTree {
        assert!((1..count).contains(&culprit), "the culprit lies between the ends");
        let repository = folder.join("user-tree");
        std::fs::create_dir_all(&repository).expect("the test's folder is writable");
        git(&repository, &["init", "--quiet", "--initial-branch=main"]);
        let runs = folder.join("runs");
        std::fs::write(&runs, "").expect("writable");
        let mut commits = Vec::new();
        for commit in 0..count {
            let level = if commit >= culprit { 9000 } else { 10000 };
            std::fs::write(repository.join("bench"), script(commit, level, delay_s, &runs))
                .expect("writable");
            git(&repository, &["add", "bench"]);
            git(
                &repository,
                &["commit", "--quiet", "-m", &format!("bench: Step {commit}")],
            );
            commits.push(git(&repository, &["rev-parse", "HEAD"]));
        }
        UserTree {
            repository,
            first_bad: commits[culprit].clone(),
            commits,
            runs,
        }
    }

    /// How often the benchmark really ran.
    pub fn runs(&self) -> usize {
        std::fs::read_to_string(&self.runs)
            .expect("made with the tree")
            .lines()
            .count()
    }

    /// A `[trees.NAME]` section's `build` table.
    pub fn recipe() -> &'static str {
        "build = { kind = \"command\", command = [\"sh\", \"-c\", \"cp bench $PERFBISECT_OUT/bench\"], artefacts = [\"bench\"] }"
    }

    /// A workload file that runs the script.
    pub fn workload() -> &'static str {
        "name = \"steps\"\ncommand = [\"sh\", \"bench\"]\nrun_limit_s = 60\n\
         parser = { name = \"regex\", patterns = { ops = 'ops: ([0-9.]+)' } }\n\
         [[metrics]]\nname = \"ops\"\nunit = \"1/s\"\nhigher_is_better = true\n"
    }
}

fn git(repository: &Path, args: &[&str]) -> String {
    let mut git = Command::new("git");
    git.current_dir(repository)
        .args(["-c", "user.name=Lab", "-c", "user.email=lab@example.org"])
        .args(args);
    let output = git
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .expect("git is installed");
    assert!(
        output.status.success(),
        "git {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout)
        .expect("ids are ASCII")
        .trim()
        .to_string()
}
