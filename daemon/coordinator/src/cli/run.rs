//! `perfbisect run`: bisects in the user's repository on this machine, with the daemon's mind and without the daemon.

mod begin;
mod find_good;
mod handover;
pub mod measure;
mod say;
pub mod session;
pub mod state;

pub use handover::{as_git_bisect_log, write_refs};

use crate::cli::display::{Display, Stream};
use crate::tree::local::Local;
use crate::tree::worktrees::Worktrees;
use anyhow::Context;
use bisect::Conclusion;
use session::{End, Session};
use state::State;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Bisect here, on this machine, without a daemon: the command prints a number, or its time is taken.
///
/// Every commit is checked out in a worktree of its own; your checkout is not touched. Each start of the command is
/// one measurement; commits are measured as often as it takes. What was measured is kept: after Ctrl-C or a crash,
/// `--continue` goes on.
///
/// The command's exit code: 0 the number counts; 125 this commit cannot be tested; 126, 127 the command is broken and
/// 128 to 255 stop the run; any other is a failure that says nothing about speed.
///
/// Exit codes: 0 a commit was named, 1 failed, 2 wrong usage, 3 no such loss between the ends, 4 ended without naming
/// one commit, 5 the command is broken or said stop, 130 interrupted.
#[derive(clap::Args)]
#[command(override_usage = "perfbisect run [OPTIONS] GOOD BAD -- COMMAND…\n       \
    perfbisect run [OPTIONS] --find-good BAD -- COMMAND…\n       \
    perfbisect run [OPTIONS] --bisect-log [FILE] -- COMMAND…\n       perfbisect run --continue")]
pub struct Args {
    /// A revision that is fast, and one that is slow.
    #[arg(value_name = "GOOD BAD", num_args = 0..=2)]
    revisions: Vec<String>,
    /// What to measure with, and its arguments; no shell in between.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// Go on with the run that was interrupted in this repository.
    #[arg(long = "continue", conflicts_with_all = ["revisions", "command", "restart", "find_good", "bisect_log"])]
    go_on: bool,
    /// Drop what an unfinished run in this repository has measured, and begin anew.
    #[arg(long)]
    restart: bool,
    /// Built with this before a commit is measured; for the shell.
    #[arg(long, value_name = "SCRIPT")]
    build: Option<String>,
    /// The number is the time that the command takes, in seconds.
    #[arg(long, conflicts_with_all = ["parser", "pattern", "higher_is_better", "min_effect_abs"])]
    time: bool,
    /// The numbers are in the output of a benchmark of this name; say which with --metric.
    #[arg(long, requires = "metric", value_parser = ["fio", "tiotest", "tiobench", "dbench", "hackbench", "perf_bench"])]
    parser: Option<String>,
    /// The number is the first group of this regular expression.
    #[arg(long, conflicts_with = "parser", value_name = "REGEX")]
    pattern: Option<String>,
    /// What the number is called.
    #[arg(long)]
    metric: Option<String>,
    #[arg(long, default_value = "")]
    unit: String,
    /// More is better: throughputs. Without it, less is: times.
    #[arg(long)]
    higher_is_better: bool,
    /// Search for what made it better instead: BAD is the better one.
    #[arg(long)]
    gain: bool,
    /// Smallest loss that matters, in per cent.
    #[arg(long, default_value_t = 3.0, value_name = "PCT")]
    min_effect_pct: f64,
    /// The same in the number's own unit: then it may be zero or negative.
    #[arg(long, value_name = "NUMBER")]
    min_effect_abs: Option<f64>,
    /// Probability at which a commit is named.
    #[arg(long, default_value_t = 0.99, value_name = "0.5..1")]
    confidence: f64,
    /// Seed of ties and of the order of measurements.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Stop after so many measurements.
    #[arg(long, value_name = "N")]
    limit_boots: Option<u32>,
    /// Stop after so many seconds.
    #[arg(long, value_name = "S")]
    limit_time_s: Option<f64>,
    /// A measurement is cut off after so long; with --time it counts as at least so slow.
    #[arg(long, value_name = "S")]
    timeout_s: Option<f64>,
    /// A file that the build leaves: where it is the same, so is the commit's speed, and nothing is measured.
    #[arg(long, requires = "build", value_name = "FILE")]
    artifact: Option<String>,
    /// Search first parents only.
    #[arg(long)]
    first_parent: bool,
    /// Only commits that change this path; may be given several times.
    #[arg(long = "path", value_name = "PATH")]
    paths: Vec<String>,
    /// The word for commits before the change.
    #[arg(long, alias = "term-good", requires = "term_new", value_name = "WORD")]
    term_old: Option<String>,
    /// The word for commits from the change on.
    #[arg(long, alias = "term-bad", requires = "term_old", value_name = "WORD")]
    term_new: Option<String>,
    /// Find a good end: walk back over the tags before BAD that fit the pattern until one is fast.
    #[arg(long, num_args = 0..=1, default_missing_value = "*", require_equals = true, value_name = "PATTERN")]
    find_good: Option<String>,
    /// Take over a search of git's: the ends, marks, terms and paths of a `git bisect log`; the one under way here
    /// without FILE, `-` for standard input.
    #[arg(long, num_args = 0..=1, default_missing_value = "", value_name = "FILE",
        conflicts_with_all = ["revisions", "find_good", "term_old", "paths", "first_parent"])]
    bisect_log: Option<String>,
    /// Write the result to the notes of the commit it names (`git log --notes=perfbisect`).
    #[arg(long)]
    notes: bool,
    /// Where commits are checked out; in the user's cache by default.
    #[arg(long, value_name = "FOLDER")]
    worktrees: Option<PathBuf>,
    /// How many commits stay checked out and built.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64), value_name = "N")]
    keep: u8,
    /// Leave the worktrees there at the end.
    #[arg(long)]
    keep_worktrees: bool,
    /// The repository.
    #[arg(long, default_value = ".", value_name = "FOLDER")]
    repo: PathBuf,
    /// The result as one JSON object.
    #[arg(long)]
    json: bool,
}

/// Where a repository's run is kept.
pub fn state_path(local: &Local) -> PathBuf {
    local.common.join("perfbisect").join("run.jsonl")
}

pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let local = Local::open(&args.repo)?;
    let path = state_path(&local);
    let state = match args.go_on {
        true => State::open(&path, true)?,
        false => begin::begin(&args, &local, &path)?,
    };
    measure::end_leftovers(&path);
    let mut session = session(local, state)?;
    let end = match session.state.concluded.clone() {
        Some(conclusion) => End::Concluded(Box::new(conclusion)),
        None => search(&mut session).await?,
    };
    session.display.clear();
    if let End::Concluded(conclusion) = &end {
        finish(&args, &session, conclusion)?;
    }
    say::end(&session, &end, args.json);
    if matches!(end, End::Concluded(_)) && !args.keep_worktrees {
        session.worktrees.remove_all();
    }
    Ok(ExitCode::from(say::exit_code(&end)))
}

fn session(local: Local, state: State) -> anyhow::Result<Session> {
    let settings = &state.settings;
    let worktrees = Worktrees::open(&local, &settings.worktrees, settings.worktrees_most)?;
    let folder = state.path.parent().unwrap_or(Path::new("."));
    Ok(Session {
        outputs: measure::Outputs::new(folder.to_owned()),
        display: Display::new(Stream::Err),
        interrupt: measure::Interrupt::listen()?,
        worktrees,
        local,
        state,
        news: None,
    })
}

async fn search(session: &mut Session) -> anyhow::Result<End> {
    let good = match session.state.good.clone() {
        Some(good) => good,
        None => match find_good::find(session).await? {
            find_good::Found::Good(good) => good,
            find_good::Found::Ended(end) => return Ok(end),
        },
    };
    let history = session.local.history(&session.span(&good))?;
    say::begin(session, &history);
    let (_, end) = session.drive(&history, &|_| false).await?;
    let end = end.context("a search ends only by its conclusion")?;
    if let End::Concluded(conclusion) = &end {
        session.keep_conclusion(conclusion)?;
    }
    Ok(end)
}

fn finish(args: &Args, session: &Session, conclusion: &Conclusion) -> anyhow::Result<()> {
    if args.notes {
        for commit in conclusion.first_bad.iter().chain(&conclusion.improved) {
            session.local.note(commit, &say::note(session, conclusion))?;
        }
    }
    Ok(())
}
