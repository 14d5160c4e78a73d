//! Trees of source: a bare object store that packs are put into, and checkouts of it that keep what did not change.

use crate::root::{Root, write_atomically};
use crate::trouble::{Because, Trouble, Unable};
use protocol::Stored;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

/// So many complete trees are named as known when the next one's completeness is checked; one is nearly always enough.
const KNOWN_FOR_CHECK: usize = 4;

/// After so many new packs git's own look-ups would begin to cost.
const PACKS_PER_INDEX: usize = 32;

/// git, on our store alone: no configuration, hooks or environment of whoever called.
fn git(root: &Root) -> Command {
    let mut command = Command::new("git");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("GIT_") {
            command.env_remove(name);
        }
    }
    command
        .env("GIT_DIR", root.objects())
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("LC_ALL", "C")
        .stdin(Stdio::null());
    command
}

fn run(command: &mut Command) -> Result<String, Trouble> {
    let done = command
        .output()
        .because(|| "cannot run git; is it installed?".into())?;
    let said = String::from_utf8_lossy(&done.stderr);
    if done.status.success() {
        Ok(String::from_utf8_lossy(&done.stdout).trim().to_string())
    } else {
        let words: Vec<_> = command.get_args().map(|a| a.to_string_lossy()).collect();
        Err(Trouble(format!(
            "git {} failed ({}): {}",
            words.join(" "),
            done.status,
            said.trim()
        )))
    }
}

fn ensure_store(root: &Root) -> Result<(), Trouble> {
    let store = root.objects();
    let made = root.dir.join("objects.git.made");
    if made.exists() {
        return Ok(());
    }
    run(Command::new("git")
        .args(["init", "-q", "--bare"])
        .arg(&store)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null"))?;
    // Trees have no refs: a collection would remove them.
    for (key, value) in [
        ("gc.auto", "0"),
        ("core.logAllRefUpdates", "false"),
        ("core.autocrlf", "false"),
    ] {
        run(git(root).args(["config", key, value]))?;
    }
    write_atomically(&made, b"")
}

pub fn has(root: &Root, tree: &str) -> bool {
    root.tree_mark(tree).exists()
}

/// Indexes the pack on stdin and marks the tree as here, once everything below it is found to be.
pub fn put(root: &Root, tree: &str) -> Result<Stored, Unable> {
    let held = root.lock()?;
    ensure_store(root)?;
    drop(held);
    let mut input = Counting {
        inner: std::io::stdin().lock(),
        bytes: 0,
    };
    let mut child = git(root)
        .args(["index-pack", "--stdin", "--fix-thin"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .because(|| "cannot run git; is it installed?".into())?;
    // Its complaint says more than our broken pipe.
    let copied = child
        .stdin
        .take()
        .map(|mut to| std::io::copy(&mut input, &mut to));
    let done = child.wait_with_output().because(|| "git index-pack".into())?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr).trim().to_string();
        let kind = if said.contains("No space left") {
            "no_space"
        } else {
            "corrupt"
        };
        return Err(Unable::refused(kind, format!("git index-pack failed: {said}")));
    }
    if let Some(Err(e)) = copied {
        return Err(Unable::refused("corrupt", format!("the pack broke off: {e}")));
    }
    check_complete(root, tree)?;
    write_atomically(&root.tree_mark(tree), b"")?;
    index_packs(root);
    Ok(Stored { bytes: input.bytes })
}

fn check_complete(root: &Root, tree: &str) -> Result<(), Unable> {
    let kind = run(git(root).args(["cat-file", "-t", tree]));
    if !matches!(kind.as_deref(), Ok("tree")) {
        return Err(Unable::refused(
            "corrupt",
            format!("{tree} is no tree here after this pack"),
        ));
    }
    let walk = |known: &[String]| {
        let mut walk = git(root);
        walk.args(["rev-list", "--objects", "--quiet", tree]);
        walk.args(known.iter().map(|mark| format!("^{mark}")));
        run(&mut walk)
    };
    let known = newest_marks(root);
    if known.is_empty() || walk(&known).is_err() {
        // A mark whose objects are gone must not spoil this tree, nor be believed again.
        for mark in &known {
            let _ = fs::remove_file(root.tree_mark(mark));
        }
        walk(&[]).map_err(|e| Unable::refused("corrupt", format!("{tree} is not complete: {e}")))?;
    }
    Ok(())
}

/// Every put leaves a pack. Packing them anew would drop trees, which no ref holds; one index over all of them keeps
/// look-ups quick instead. Nothing is lost when it cannot be written.
fn index_packs(root: &Root) {
    let packs = fs::read_dir(root.objects().join("objects/pack")).map_or(0, |d| {
        d.flatten()
            .filter(|e| e.path().extension().is_some_and(|x| x == "pack"))
            .count()
    });
    if packs.is_multiple_of(PACKS_PER_INDEX) {
        let _ = run(git(root).args(["multi-pack-index", "write"]));
    }
}

fn newest_marks(root: &Root) -> Vec<String> {
    let Ok(entries) = fs::read_dir(root.dir.join("trees")) else {
        return Vec::new();
    };
    let mut marks: Vec<_> = entries
        .filter_map(|e| {
            let e = e.ok()?;
            Some((
                e.metadata().ok()?.modified().ok()?,
                e.file_name().into_string().ok()?,
            ))
        })
        .filter(|(_, name)| crate::root::check_hex("tree", name, &[40, 64]).is_ok())
        .collect();
    marks.sort();
    marks
        .into_iter()
        .rev()
        .take(KNOWN_FOR_CHECK)
        .map(|(_, name)| name)
        .collect()
}

/// Makes `slot/src` equal to the tree. Files that are the same keep their time, so that make need not build them again;
/// there is no `.git` in it, so that a kernel does not append `+` to its release.
pub fn checkout(root: &Root, tree: &str, slot: &Path) -> Result<(), Trouble> {
    if !has(root, tree) {
        return Err(Trouble(format!("tree {tree} was not put here")));
    }
    let source = slot.join("src");
    fs::create_dir_all(&source).because(|| format!("cannot create {}", source.display()))?;
    // Left by a git that was killed.
    let _ = fs::remove_file(slot.join("index.lock"));
    let at = |arguments: &[&str]| {
        let mut command = git(root);
        command
            .env("GIT_WORK_TREE", &source)
            .env("GIT_INDEX_FILE", slot.join("index"))
            .current_dir(&source)
            .args(["-c", "core.checkStat=default", "-c", "checkout.workers=0"])
            .args(arguments);
        run(&mut command)
    };
    // A touched file is not "uptodate" for git until the index is refreshed; a changed one is put back by `--reset`.
    if at(&["read-tree", "-m", "-u", tree]).is_err() {
        let _ = at(&["update-index", "-q", "--refresh"]);
        if at(&["read-tree", "-m", "-u", tree]).is_err() {
            at(&["read-tree", "--reset", "-u", tree])?;
        }
    }
    // Changed, missing and unknown files in one walk, which in most cases finds none.
    if !at(&["ls-files", "--modified", "--deleted", "--others", "--directory"])?.is_empty() {
        at(&["clean", "-q", "-ffdx"])?;
        at(&["checkout-index", "-f", "-a", "-q"])?;
    }
    Ok(())
}

/// Every file of a tree, a line each: mode, type, id, tab, path.
pub fn list(root: &Root, tree: &str) -> Result<String, Trouble> {
    run(git(root).args(["ls-tree", "-r", tree]))
}

struct Counting<R> {
    inner: R,
    bytes: u64,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.bytes += n as u64;
        Ok(n)
    }
}
