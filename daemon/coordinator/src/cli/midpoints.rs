//! `perfbisect midpoints`: what `git rev-list --bisect` and `--bisect-all` print, found faster.

use crate::tree::listing::{self, Range};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Print the commit that halves a range best, or all commits by distance from its ends.
#[derive(clap::Args)]
pub struct Args {
    /// The repository.
    #[arg(long, default_value = ".")]
    repo: PathBuf,
    good: String,
    bad: String,
    /// All commits, each with its distance, as `git rev-list --bisect-all` prints them (without the names of refs).
    #[arg(long)]
    all: bool,
    /// Only the chain of first parents.
    #[arg(long)]
    first_parent: bool,
    /// Only commits that change these paths count.
    #[arg(last = true)]
    paths: Vec<String>,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args {
        repo,
        good,
        bad,
        all,
        first_parent,
        paths,
    } = args;
    let range = Range {
        good,
        bad,
        first_parent,
        paths,
    };
    let (ids, listed) = listing::read(&repo, &range)?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut print = || {
        if !all {
            listed
                .best()
                .map_or(Ok(()), |at| writeln!(out, "{}", ids.get(at)))?;
        } else {
            for (at, distance) in listed.all(|a, b| ids.get(a).cmp(ids.get(b))) {
                writeln!(out, "{} (dist={distance})", ids.get(at))?;
            }
        }
        out.flush()
    };
    match print() {
        Ok(()) => Ok(ExitCode::SUCCESS),
        // The reader went away: there is nobody left to print for.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error.into()),
    }
}
