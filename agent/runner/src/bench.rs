//! One benchmark within one boot: set-up, warm-ups, runs, teardown. The same in a guest and on the machine itself; it
//! knows nothing of boots and consoles.

use crate::command::{self, Ended};
use protocol::{Bench, BenchmarkFailed, Exit, Phase, Run};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A set-up or teardown step that takes longer is taken to hang; the run's own limit is for the measured thing.
const STEP_LIMIT: Duration = Duration::from_secs(600);
/// So much of a failed command's output is worth keeping.
const EXCERPT_BYTES: usize = 4096;

/// What is heard of a benchmark while it runs.
pub enum News {
    Phase(Phase, u32),
    Log(String),
    /// A run begins: whoever watches from outside starts its limit.
    RunBegins,
    Run(Run),
}

pub struct Place<'a> {
    pub directory: &'a Path,
    /// Stands for `{agent}`.
    pub agent: PathBuf,
    pub start: Instant,
}

/// `Err` is the benchmark's failure; a run that times out is a result.
pub fn perform(
    bench: &Bench,
    place: &Place<'_>,
    say: &mut dyn FnMut(News),
) -> Result<BTreeMap<String, f64>, BenchmarkFailed> {
    let mut seconds = BTreeMap::new();
    let mut timed = |name: &str, start: Instant| seconds.insert(name.into(), start.elapsed().as_secs_f64());

    let start = Instant::now();
    if !bench.setup.is_empty() {
        say(News::Phase(Phase::Setup, STEP_LIMIT.as_secs() as u32));
        for step in &bench.setup {
            step_done(step, bench, place, say)?;
        }
    }
    timed("setup", start);

    let start = Instant::now();
    let runs = bench.warmup_runs.saturating_add(bench.runs);
    say(News::Phase(Phase::Bench, bench.run_limit_s.saturating_mul(runs)));
    let mut failed = None;
    for number in 0..runs {
        say(News::RunBegins);
        let start_s = place.start.elapsed().as_secs_f64();
        match execute(
            &bench.command,
            bench,
            place,
            Duration::from_secs(bench.run_limit_s.into()),
        ) {
            Err(what) => {
                failed = Some(BenchmarkFailed {
                    what,
                    excerpt: String::new(),
                })
            }
            Ok(ended) => {
                let excerpt = excerpt(&ended);
                let how = ended.how();
                let warmup = number < bench.warmup_runs;
                let Ended {
                    exit,
                    stdout,
                    stderr,
                    wall_s,
                } = ended;
                say(News::Run(Run {
                    number,
                    warmup,
                    start_s,
                    wall_s,
                    exit,
                    stdout,
                    stderr,
                }));
                let ended_wrong = match exit {
                    Exit::Status(code) => code != 0,
                    Exit::Signal(_) => true,
                    Exit::TimedOut => false,
                };
                if ended_wrong {
                    let what = format!("run {number} of {}: {how}", bench.command.join(" "));
                    failed = Some(BenchmarkFailed { what, excerpt });
                } else if exit == Exit::TimedOut {
                    // 'At least this slow' is known; more of it teaches nothing and costs the limit each time.
                    break;
                }
            }
        }
        if failed.is_some() {
            break;
        }
    }
    timed("bench", start);

    let start = Instant::now();
    if !bench.teardown.is_empty() {
        say(News::Phase(Phase::Teardown, STEP_LIMIT.as_secs() as u32));
        for step in &bench.teardown {
            let done = step_done(step, bench, place, say);
            if failed.is_none() {
                failed = done.err();
            }
        }
    }
    timed("teardown", start);
    match failed {
        Some(failed) => Err(failed),
        None => Ok(seconds),
    }
}

fn step_done(
    step: &[String],
    bench: &Bench,
    place: &Place<'_>,
    say: &mut dyn FnMut(News),
) -> Result<(), BenchmarkFailed> {
    let ended = execute(step, bench, place, STEP_LIMIT).map_err(|what| BenchmarkFailed {
        what,
        excerpt: String::new(),
    })?;
    if !ended.stdout.is_empty() || !ended.stderr.is_empty() {
        say(News::Log(format!(
            "{}\n{}{}",
            step.join(" "),
            ended.stdout,
            ended.stderr
        )));
    }
    if ended.succeeded() {
        Ok(())
    } else {
        Err(BenchmarkFailed {
            what: format!("{}: {}", step.join(" "), ended.how()),
            excerpt: excerpt(&ended),
        })
    }
}

fn execute(words: &[String], bench: &Bench, place: &Place<'_>, limit: Duration) -> Result<Ended, String> {
    let (program, arguments) = words.split_first().ok_or("the workload has an empty command")?;
    let program = match program.as_str() {
        "{agent}" => place.agent.clone(),
        // A file that came with the workload is meant where there is one, else PATH is searched.
        name if !name.contains('/') && place.directory.join(name).is_file() => place.directory.join(name),
        name => name.into(),
    };
    let mut command = Command::new(&program);
    command
        .args(arguments)
        .current_dir(place.directory)
        .envs(&bench.environment);
    command::run(&mut command, limit, &mut |_| {})
        .map_err(|e| format!("cannot run {}: {e}", program.display()))
}

fn excerpt(ended: &Ended) -> String {
    let text = format!("{}{}", ended.stdout, ended.stderr);
    let mut from = text.len().saturating_sub(EXCERPT_BYTES);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text[from..].to_string()
}
