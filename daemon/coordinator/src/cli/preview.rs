//! `perfbisect preview`: what a search of a range will likely cost and how it will end, before anything is spent.

use super::simulate::{Range, describe};
use crate::tree::local::{Local, Span};
use anyhow::{Context, bail};
use std::path::PathBuf;
use std::process::ExitCode;

/// Say what a search of a range will likely cost, and how likely it ends with the right commit.
///
/// Searches of a range of this size and shape are played in an invented lab, with the noise and the times
/// given; those given nothing are a kernel's.
#[derive(clap::Args)]
pub struct Args {
    /// Last revision known to be good.
    #[arg(required_unless_present = "commits", requires = "bad")]
    good: Option<String>,
    /// A revision known to be bad.
    bad: Option<String>,
    /// The repository.
    #[arg(long, default_value = ".", value_name = "FOLDER")]
    repo: PathBuf,
    /// Search first parents only.
    #[arg(long)]
    first_parent: bool,
    /// Only commits that change this path; may be given several times.
    #[arg(long = "path", value_name = "PATH")]
    paths: Vec<String>,
    #[command(flatten)]
    range: Range,
    /// How many searches are played: a hundred tell 90 % from 98 %.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    seeds: u32,
    /// One JSON object instead of text.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut range = args.range;
    if let (Some(good), Some(bad)) = (&args.good, &args.bad) {
        if range.commits.is_some() {
            bail!("--commits says how many there are where no revisions are given: leave one of them out");
        }
        let local = Local::open(&args.repo)?;
        let history = local.history(&Span {
            good: local.commit(good)?,
            bad: local.commit(bad)?,
            first_parent: args.first_parent,
            paths: args.paths,
        })?;
        range.commits = Some(u32::try_from(history.candidates()).context("too many commits")?);
        range.merges |= !args.first_parent && history.commits().iter().any(|c| c.parents.len() > 1);
    }
    describe(&range, args.seeds as usize, args.json)?;
    Ok(ExitCode::SUCCESS)
}
