//! One benchmark within one boot: set-up, warm-ups, runs, teardown. The same in a guest and on the machine itself; it
//! knows nothing of boots and consoles.

use crate::command::{self, Ended};
use crate::disturbance;
use crate::environment;
use crate::held::{self, Holding};
use crate::stand::{Failure, Stand, drop_caches};
use crate::view::View;
use protocol::{Bench, BenchmarkFailed, Exit, Phase, Run, Scratch};
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
    /// What the machine's file gives away.
    pub scratch: &'a [Scratch],
}

/// What a benchmark that went well leaves, besides its runs.
pub struct Performed {
    pub seconds: BTreeMap<String, f64>,
    /// As it was when the last run ended, with all that was held.
    pub environment: BTreeMap<String, String>,
}

/// A run that times out is a result.
pub fn perform(bench: &Bench, place: &Place<'_>, say: &mut dyn FnMut(News)) -> Result<Performed, Failure> {
    let view = View::here();
    let mut stand = Stand::new(&bench.file_systems, place.scratch, place.directory)?;
    let disks = stand.disks()?;
    let holding = held::hold(&view, &bench.held, &disks)?;
    let loadavg = view.text("/proc/loadavg").unwrap_or_default();
    let mut seconds = BTreeMap::new();
    let mut timed = |name: &str, start: Instant| seconds.insert(name.into(), start.elapsed().as_secs_f64());

    let start = Instant::now();
    if !bench.setup.is_empty() || !bench.file_systems.is_empty() {
        say(News::Phase(Phase::Setup, STEP_LIMIT.as_secs() as u32));
        stand.prepare()?;
        for step in &bench.setup {
            step_done(step, bench, place, say)?;
        }
    }
    timed("setup", start);

    let start = Instant::now();
    let runs = bench.warmup_runs.saturating_add(bench.runs);
    say(News::Phase(Phase::Bench, bench.run_limit_s.saturating_mul(runs)));
    let own = if disks.is_empty() {
        disturbance::disk_of(&view, place.directory).into_iter().collect()
    } else {
        disks.clone()
    };
    let mut failed = None;
    for number in 0..runs {
        if number > 0 && !bench.file_systems.is_empty() {
            stand.prepare()?;
        }
        for step in &bench.prepare {
            step_done(step, bench, place, say)?;
        }
        if bench.drop_caches {
            drop_caches(&view)?;
        }
        match one(number, bench, place, &own, say) {
            Ok(Exit::TimedOut) => break, // 'At least this slow' is known; more of it costs the limit each time.
            Ok(Exit::Status(_) | Exit::Signal(_)) => {}
            Err(what) => {
                failed = Some(what);
                break;
            }
        }
    }
    timed("bench", start);
    let environment = in_force(&view, &disks, &holding, loadavg);

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
    if let Some(failed) = failed {
        return Err(failed.into());
    }
    holding.check()?;
    stand.clear()?;
    Ok(Performed { seconds, environment })
}

/// The load of the machine is that before the benchmark made its own.
fn in_force(view: &View, disks: &[String], holding: &Holding, loadavg: String) -> BTreeMap<String, String> {
    let mut environment = environment::facts_of(view, "", disks);
    environment.extend(holding.facts().clone());
    environment.insert("loadavg".into(), loadavg);
    environment
}

/// One run, said; `Err` where it ended wrong.
fn one(
    number: u32,
    bench: &Bench,
    place: &Place<'_>,
    own_disks: &[String],
    say: &mut dyn FnMut(News),
) -> Result<Exit, BenchmarkFailed> {
    say(News::RunBegins);
    let view = View::here();
    let start_s = place.start.elapsed().as_secs_f64();
    let before = disturbance::now(&view, own_disks);
    let limit = Duration::from_secs(bench.run_limit_s.into());
    let ended = execute(&bench.command, bench, place, limit).map_err(|what| BenchmarkFailed {
        what,
        excerpt: String::new(),
    })?;
    let beside = disturbance::between(&before, &disturbance::now(&view, own_disks));
    let excerpt = excerpt(&ended);
    let how = ended.how();
    let Ended {
        exit,
        stdout,
        stderr,
        wall_s,
    } = ended;
    say(News::Run(Run {
        number,
        warmup: number < bench.warmup_runs,
        start_s,
        wall_s,
        exit,
        stdout,
        stderr,
        disturbance: Some(beside),
    }));
    match exit {
        Exit::Status(0) | Exit::TimedOut => Ok(exit),
        Exit::Status(_) | Exit::Signal(_) => Err(BenchmarkFailed {
            what: format!("run {number} of {}: {how}", bench.command.join(" ")),
            excerpt,
        }),
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
