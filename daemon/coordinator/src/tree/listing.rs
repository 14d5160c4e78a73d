//! A range of any repository as the git program lists it for a bisection: its order, its parents, what counts.
//!
//! With a path limit git cuts the parents of a merge that took one side as it was, and commits that change nothing
//! there stay in the list without counting (`revision.c`, `try_to_simplify_commit`). Two listings show that: the
//! walk itself (`--sparse`, and `%P`, which prints the parents as cut), and those that are shown without `--sparse`.
//! The caller's own environment applies, as it does to the git that is to be matched: grafts and replacements too.

use anyhow::{Context, bail};
use bisect::midpoint::Listed;
use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Stdio};

#[derive(Clone, Debug, Default)]
pub struct Range {
    pub good: String,
    pub bad: String,
    pub first_parent: bool,
    pub paths: Vec<String>,
}

/// Ids in hexadecimal, each at the place of its commit in the list.
pub struct Ids {
    text: Vec<u8>,
    width: usize,
}

impl Ids {
    pub fn get(&self, at: usize) -> &str {
        let id = &self.text[at * self.width..(at + 1) * self.width];
        std::str::from_utf8(id).unwrap_or_default()
    }
}

/// The range's commits, oldest first.
pub fn read(repository: &Path, range: &Range) -> anyhow::Result<(Ids, Listed)> {
    let limited = !range.paths.is_empty();
    let walk: &[&str] = if limited {
        &["--sparse", "--no-commit-header", "--format=%H %P"]
    } else {
        &["--parents"]
    };
    let output = rev_list(repository, range, walk)?;
    let mut lines: Vec<&[u8]> = output.split(|b| *b == b'\n').filter(|l| !l.is_empty()).collect();
    lines.reverse();
    let width = lines
        .first()
        .map_or(40, |l| l.iter().position(|b| *b == b' ').unwrap_or(l.len()));
    let mut text = Vec::with_capacity(lines.len() * width);
    let mut place: HashMap<&[u8], u32> = HashMap::with_capacity(lines.len());
    for (line, at) in lines.iter().zip(0u32..) {
        let Some(id) = line.get(..width) else {
            bail!("git rev-list printed {:?}", String::from_utf8_lossy(line));
        };
        text.extend_from_slice(id);
        place.insert(id, at);
    }
    let most = if range.first_parent { 1 } else { usize::MAX };
    let parents: Vec<Vec<u32>> = lines
        .iter()
        .map(|line| {
            let own = line[width..].split(|b| *b == b' ').filter(|id| !id.is_empty());
            own.take(most).filter_map(|id| place.get(id).copied()).collect()
        })
        .collect();
    let mut counted = vec![!limited; lines.len()];
    if limited {
        let shown = rev_list(repository, range, &[])?;
        for id in shown.split(|b| *b == b'\n').filter(|l| !l.is_empty()) {
            match place.get(id) {
                Some(at) => counted[*at as usize] = true,
                None => bail!("git walks {} in one listing only", String::from_utf8_lossy(id)),
            }
        }
    }
    Ok((Ids { text, width }, Listed::new(&parents, counted)))
}

fn rev_list(repository: &Path, range: &Range, options: &[&str]) -> anyhow::Result<Vec<u8>> {
    let mut command = Command::new("git");
    command.arg("-C").arg(repository).arg("rev-list").args(options);
    if range.first_parent {
        command.arg("--first-parent");
    }
    command
        .args(["--end-of-options", &range.bad, &format!("^{}", range.good), "--"])
        .args(&range.paths)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    let output = command.output().context("git can't be run")?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.stdout)
}
