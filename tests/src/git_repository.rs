//! Repositories of any shape, made by the git program: `fast-import` takes a whole history at once.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub struct Repository {
    pub folder: PathBuf,
    /// Commits made so far, by number.
    pub ids: Vec<String>,
}

/// A commit to be: its parents by number, and the files it writes (the others are its first parent's).
#[derive(Clone, Default)]
pub struct Draft {
    pub parents: Vec<usize>,
    pub files: BTreeMap<String, String>,
    pub message: String,
    /// Seconds by which the committer's clock was ahead.
    pub ahead_s: i64,
}

impl Draft {
    /// With a file of its own, so that every commit differs from its parents.
    pub fn new(number: usize, parents: &[usize]) -> Draft {
        let files = BTreeMap::from([(format!("file-{}", number % 7), format!("written by {number}\n"))]);
        Draft {
            parents: parents.to_vec(),
            files,
            message: format!("step {number}\n"),
            ahead_s: 0,
        }
    }
}

impl Repository {
    pub fn new(folder: &Path) -> Repository {
        std::fs::create_dir_all(folder).expect("the test's folder is writable");
        let repository = Repository {
            folder: folder.into(),
            ids: Vec::new(),
        };
        repository.git(&["init", "--quiet", "--bare", "--initial-branch=main"]);
        repository
    }

    /// Appends commits; `parents` may name any that come earlier. Committed a minute apart.
    pub fn add(&mut self, drafts: &[Draft]) {
        let mut script = String::new();
        for (offset, draft) in drafts.iter().enumerate() {
            let number = self.ids.len() + offset;
            let seconds = 1_700_000_000 + 60 * number as i64 + draft.ahead_s;
            // A ref per commit outside of branches and tags: nothing is collected, nothing is mirrored.
            let _ = writeln!(script, "commit refs/made/{number}\nmark :{}", number + 1);
            let _ = writeln!(script, "author Lab <lab@example.org> {seconds} +0000");
            let _ = writeln!(script, "committer Lab <lab@example.org> {seconds} +0000");
            let _ = writeln!(script, "data {}\n{}", draft.message.len(), draft.message);
            for (place, parent) in draft.parents.iter().enumerate() {
                let word = if place == 0 { "from" } else { "merge" };
                let _ = match self.ids.get(*parent) {
                    Some(id) => writeln!(script, "{word} {id}"),
                    None => writeln!(script, "{word} :{}", parent + 1),
                };
            }
            for (path, content) in &draft.files {
                let _ = writeln!(
                    script,
                    "M 100644 inline {path}\ndata {}\n{content}",
                    content.len()
                );
            }
        }
        self.import(&script);
    }

    fn import(&mut self, script: &str) {
        let marks = self.folder.join("marks");
        let export = format!("--export-marks={}", marks.display());
        self.feed(&["fast-import", "--quiet", "--force", &export], script);
        let text = std::fs::read_to_string(&marks).expect("fast-import wrote it");
        let mut made: Vec<(usize, String)> = text
            .lines()
            .filter_map(|line| line.strip_prefix(':')?.split_once(' '))
            .map(|(mark, id)| (mark.parse().expect("a mark is a number"), id.to_string()))
            .collect();
        made.sort();
        self.ids.extend(made.into_iter().map(|(_, id)| id));
    }

    /// The shape of a history and nothing but the shape: empty trees, one ref. Parents come first.
    pub fn add_shape(&mut self, parents: &[Vec<usize>]) {
        let mut script = String::new();
        for (number, own) in parents.iter().enumerate() {
            let seconds = 1_700_000_000 + 60 * number;
            let name = if own.is_empty() {
                format!("root-{number}")
            } else {
                "shape".to_owned()
            };
            let _ = write!(script, "commit refs/made/{name}\nmark :{}\n", number + 1);
            let _ = write!(
                script,
                "committer Lab <lab@example.org> {seconds} +0000\ndata 0\n"
            );
            for (place, parent) in own.iter().enumerate() {
                let word = if place == 0 { "from" } else { "merge" };
                let _ = writeln!(script, "{word} :{}", parent + 1);
            }
        }
        self.import(&script);
    }

    pub fn branch(&self, name: &str, commit: usize) {
        self.git(&["update-ref", &format!("refs/heads/{name}"), &self.ids[commit]]);
    }

    pub fn tag(&self, name: &str, commit: usize) {
        self.git(&["tag", "-a", "-m", "a tag", name, &self.ids[commit]]);
    }

    pub fn git(&self, args: &[&str]) -> String {
        self.feed(args, "")
    }

    /// The lines of an output, as a sorted set.
    pub fn lines(&self, args: &[&str]) -> std::collections::BTreeSet<String> {
        self.git(args).lines().map(str::to_string).collect()
    }

    fn feed(&self, args: &[&str], stdin: &str) -> String {
        let mut child = Command::new("git")
            .arg("-C")
            .arg(&self.folder)
            .args(args)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_COMMITTER_NAME", "Lab")
            .env("GIT_COMMITTER_EMAIL", "lab@example.org")
            .env("GIT_COMMITTER_DATE", "1700000000 +0000")
            .env("GIT_AUTHOR_NAME", "Lab")
            .env("GIT_AUTHOR_EMAIL", "lab@example.org")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("git is installed");
        child
            .stdin
            .take()
            .expect("was piped")
            .write_all(stdin.as_bytes())
            .expect("git reads its input");
        let output = child.wait_with_output().expect("git ends");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "git {args:?}: {said}");
        String::from_utf8(output.stdout)
            .expect("test repositories are UTF-8")
            .trim()
            .to_string()
    }
}
