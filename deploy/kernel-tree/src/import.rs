//! Writes a story as a git repository: one stream into `git fast-import`, on top of the shrunk source.

use crate::edit::Change;
use crate::story::{Commit, Story};
use crate::{Error, Made, Result, fail};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// The base's date; every commit comes an hour and a bit later. Fixed, so that a seed always gives the same ids.
const FIRST_DATE: u64 = 1_767_600_000;
const STEP_S: u64 = 4_321;

/// Runs git with nothing of the user's own configuration.
pub fn git(folder: &Path) -> Command {
    let mut git = Command::new("git");
    git.current_dir(folder);
    git.envs([
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("LC_ALL", "C"),
    ]);
    for (who, date) in [("AUTHOR", "AUTHOR_DATE"), ("COMMITTER", "COMMITTER_DATE")] {
        git.env(format!("GIT_{who}_NAME"), "Kernel Tree")
            .env(format!("GIT_{who}_EMAIL"), "tree@example.org");
        git.env(format!("GIT_{date}"), format!("{FIRST_DATE} +0000"));
    }
    git
}

/// Runs to the end; its standard output.
pub fn run(command: &mut Command) -> Result<String> {
    let output = command.output().map_err(|e| Error(format!("{command:?}: {e}")))?;
    if !output.status.success() {
        return fail(format!(
            "{command:?}: {}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The repository of `story`, in the cache under its seed and size of loss.
pub fn tree(base: &Path, story: &Story, cache: &Path) -> Result<Made> {
    let version = base.file_stem().and_then(|s| s.to_str()).unwrap_or("base");
    let name = format!("{version}-seed-{}-rounds-{}", story.seed, story.rounds);
    let made = Made {
        repository: cache.join(format!("{name}.git")),
        truth: cache.join("truth").join(format!("{name}.txt")),
    };
    let io = |e: std::io::Error| Error(format!("{}: {e}", made.repository.display()));
    let stream = stream(base, story)?;
    // The stream is what makes the tree, so an equal one that is there already needs no second making.
    if std::fs::read(made.repository.join("stream")).is_ok_and(|old| old == stream) && made.truth.is_file() {
        return Ok(made);
    }
    let _ = std::fs::remove_dir_all(&made.repository);
    std::fs::create_dir_all(made.truth.parent().expect("joined above")).map_err(io)?;
    // A copy of the base's one pack: no alternates, so that the repository may be moved or sent anywhere.
    run(git(cache)
        .args(["clone", "--quiet", "--bare", "--no-hardlinks"])
        .args([base, &made.repository]))?;
    let mut import = git(&made.repository)
        .args(["fast-import", "--quiet", "--export-marks=marks", "--force"])
        .stdin(Stdio::piped())
        .spawn()
        .map_err(io)?;
    import
        .stdin
        .take()
        .expect("piped above")
        .write_all(&stream)
        .map_err(io)?;
    if !import.wait().map_err(io)?.success() {
        return fail("git fast-import refused the history: see its message above");
    }
    let marks = std::fs::read_to_string(made.repository.join("marks")).map_err(io)?;
    std::fs::remove_file(made.repository.join("marks")).map_err(io)?;
    let ids: BTreeMap<usize, &str> = marks
        .lines()
        .filter_map(|l| l.strip_prefix(':')?.split_once(' '))
        .filter_map(|(mark, id)| Some((mark.parse().ok()?, id)))
        .collect();
    let truth = story.truth(|commit| ids[&(commit + 1)].to_string());
    std::fs::write(&made.truth, truth).map_err(io)?;
    std::fs::write(made.repository.join("stream"), stream).map_err(io)?;
    Ok(made)
}

fn stream(base: &Path, story: &Story) -> Result<Vec<u8>> {
    let texts = Texts::read(base, story)?;
    let root = run(git(base).args(["rev-parse", "HEAD"]))?.trim().to_string();
    let mut out = String::new();
    let w = |out: &mut String, line: std::fmt::Arguments| out.write_fmt(line).expect("a string takes all");
    for (place, commit) in story.commits.iter().enumerate() {
        let date = FIRST_DATE + STEP_S * (place as u64 + 1);
        let who = format!(
            "{} <{}@example.org> {date} +0000",
            commit.author.0, commit.author.1
        );
        let mut message = commit.subject.clone() + "\n";
        if !commit.body.is_empty() {
            w(&mut message, format_args!("\n{}\n", commit.body));
        }
        if commit.draft.is_some() {
            w(
                &mut message,
                format_args!(
                    "\nSigned-off-by: {} <{}@example.org>\n",
                    commit.author.0, commit.author.1
                ),
            );
        }
        w(
            &mut out,
            format_args!(
                "commit refs/heads/work\nmark :{}\nauthor {who}\ncommitter {who}\n",
                place + 1
            ),
        );
        w(&mut out, format_args!("data {}\n{message}", message.len()));
        for (nth, parent) in commit.parents.iter().enumerate() {
            let name = parent.map_or_else(|| root.clone(), |p| format!(":{}", p + 1));
            w(
                &mut out,
                format_args!("{} {name}\n", if nth == 0 { "from" } else { "merge" }),
            );
        }
        for file in changed(story, commit) {
            let text = texts.at(story, commit, &file)?;
            w(
                &mut out,
                format_args!("M 100644 inline {file}\ndata {}\n{text}\n", text.len()),
            );
        }
        out.push('\n');
    }
    let tip = story.commits.len();
    for (reference, from) in [
        ("refs/heads/main", format!(":{tip}")),
        ("refs/tags/v1.0", root.clone()),
        ("refs/tags/v1.1", format!(":{tip}")),
    ] {
        w(&mut out, format_args!("reset {reference}\nfrom {from}\n\n"));
    }
    // `work` was only fast-import's pen.
    w(
        &mut out,
        format_args!("reset refs/heads/work\nfrom {}\n\n", "0".repeat(40)),
    );
    Ok(out.into_bytes())
}

/// Files that differ from the first parent's tree.
fn changed(story: &Story, commit: &Commit) -> BTreeSet<String> {
    let parent = commit.parents[0].map(|p| &story.commits[p].has);
    let new = commit
        .has
        .iter()
        .filter(|d| parent.is_none_or(|has| !has.contains(d)));
    new.flat_map(|&d| story.drafts[d].edits.iter().map(|e| e.file.clone()))
        .collect()
}

/// The base's text of every file that the story edits.
struct Texts(BTreeMap<String, Option<String>>);

impl Texts {
    fn read(base: &Path, story: &Story) -> Result<Texts> {
        let mut texts = BTreeMap::new();
        for edit in story.drafts.iter().flat_map(|d| &d.edits) {
            if !texts.contains_key(&edit.file) {
                let text = match &edit.change {
                    Change::Create { .. } => None,
                    _ => Some(run(git(base).args([
                        "cat-file",
                        "blob",
                        &format!("HEAD:{}", edit.file),
                    ]))?),
                };
                texts.insert(edit.file.clone(), text);
            }
        }
        Ok(Texts(texts))
    }

    /// A file in a commit's tree: the base's text with the edits the commit has, in the story's order.
    fn at(&self, story: &Story, commit: &Commit, file: &str) -> Result<String> {
        let mut text = self.0.get(file).cloned().flatten();
        for edit in commit
            .has
            .iter()
            .flat_map(|&d| &story.drafts[d].edits)
            .filter(|e| e.file == file)
        {
            text = Some(edit.apply(text.as_deref(), story.rounds)?);
        }
        text.ok_or_else(|| Error(format!("{file}: edited by a commit that does not have it")))
    }
}
