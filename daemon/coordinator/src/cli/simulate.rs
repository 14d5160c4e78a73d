//! `perfbisect simulate`: plays bisections in an invented lab, over many seeds: how often right, wrong or undecided,
//! and what it costs. The mind is the daemon's.

pub mod draw;
pub mod judge;
mod lab;
mod many;
mod say;
pub mod scenario;
pub mod truth;
mod vary;

use anyhow::{Context, bail};
use bisect::simulate::{Forecast, Form, Noise, Setting, Tally, What, bound, one};
use many::many;
use scenario::Scenario;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

/// Play bisections in an invented lab: how often right, wrong or undecided, and what they cost.
///
/// Either a FILE of scenarios, or a range described by its size, its loss, its noise and what things take.
#[derive(clap::Args)]
pub struct Args {
    /// Scenarios: one, or a file of many.
    #[arg(conflicts_with = "commits")]
    file: Option<PathBuf>,
    /// Of a file, only scenarios whose name begins with one of these, divided by commas.
    #[arg(long, value_delimiter = ',')]
    name: Vec<String>,
    /// Of a file, vary the size of the range, the culprits' places and the noise from play to play.
    #[arg(long, requires = "file")]
    vary: bool,
    #[command(flatten)]
    range: Range,
    /// How many times each is played.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    seeds: u32,
    /// The first seed; of a file, the first repetition.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Threads; as many as there are processors by default.
    #[arg(long)]
    threads: Option<usize>,
    /// One JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// A range that is described.
#[derive(clap::Args, Clone)]
pub struct Range {
    /// Commits that may be the first bad one.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub commits: Option<u32>,
    /// How much one of them loses, in per cent; 0: none does.
    #[arg(long, default_value_t = 5.0)]
    effect_pct: f64,
    /// Difference between boots of one kernel: standard deviation, in per cent.
    #[arg(long, default_value_t = 1.0)]
    boot_pct: f64,
    /// Difference between runs of one boot: standard deviation, in per cent.
    #[arg(long, default_value_t = 2.0)]
    run_pct: f64,
    /// Difference between builds that more boots do not average out: standard deviation, in per cent.
    #[arg(long, default_value_t = 0.0)]
    image_pct: f64,
    /// How far the machine wanders: standard deviation after an hour, in per cent.
    #[arg(long, default_value_t = 0.0)]
    drift_pct: f64,
    /// Smallest loss asked for, in per cent; half the loss by default.
    #[arg(long)]
    min_effect_pct: Option<f64>,
    #[arg(long, default_value_t = 0.99)]
    confidence: f64,
    /// Seconds that a build, a boot and a run take.
    #[arg(long, default_value_t = 600.0)]
    build_s: f64,
    #[arg(long, default_value_t = 120.0)]
    boot_s: f64,
    #[arg(long, default_value_t = 120.0)]
    run_s: f64,
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    machines: u32,
    /// Builders beside the machines' own.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=64))]
    builders: u32,
    /// A mainline of merges instead of one commit after the other.
    #[arg(long)]
    pub merges: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let threads = args
        .threads
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let seeds = args.seeds as usize;
    match (&args.file, args.range.commits) {
        (Some(file), _) => {
            let mut lines = Vec::new();
            for written in read(file, &args.name)? {
                let as_written = scenario(&written, 0, file)?;
                // What was read once can be read again with other numbers in it.
                let one = |repetition| match args.vary {
                    true => scenario(&written, repetition, file).unwrap_or_else(|_| as_written.clone()),
                    false => as_written.clone(),
                };
                let (tally, why) = repeat(one, args.seed, seeds, threads);
                if !args.json {
                    say::scenario_line(&as_written.name, &tally, &why);
                }
                lines.push((as_written.name, tally, why));
            }
            if args.json {
                say::scenarios_json(&lines);
            } else if lines.len() > 1 {
                say::scenarios_sum(&lines);
            }
        }
        (None, Some(commits)) => {
            let setting = setting(&args.range, commits)?;
            let forecast = forecast(&setting, seeds, args.seed, threads);
            let least_min = least_min(&setting);
            if args.json {
                say::range_json(&setting, &forecast, args.seed, least_min);
            } else {
                say::range(&setting, &forecast, args.seed, least_min);
            }
        }
        (None, None) => bail!("simulate what? Give a file of scenarios, or --commits and what else is known"),
    }
    Ok(ExitCode::SUCCESS)
}

/// The file's scenarios as they are written.
fn read(path: &Path, names: &[String]) -> anyhow::Result<Vec<Value>> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let value: Value = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
    let mut scenarios = match value.get("scenarios").and_then(Value::as_array) {
        Some(many) => many.clone(),
        None => vec![value],
    };
    let wanted = |s: &Value| {
        names
            .iter()
            .any(|n| s["name"].as_str().is_some_and(|name| name.starts_with(n)))
    };
    scenarios.retain(|s| names.is_empty() || wanted(s));
    if scenarios.is_empty() {
        bail!("{}: no scenario of that name", path.display());
    }
    Ok(scenarios)
}

fn scenario(written: &Value, repetition: u64, path: &Path) -> anyhow::Result<Scenario> {
    let name = || {
        format!(
            "{}: {}",
            path.display(),
            written["name"].as_str().unwrap_or("a scenario")
        )
    };
    let scenario: Scenario = serde_json::from_value(vary::varied(written, repetition)).with_context(name)?;
    scenario
        .check()
        .map_err(|why| anyhow::anyhow!("{}: {why}", name()))?;
    Ok(scenario)
}

/// Why plays were not right, and how often for that reason.
pub type Reasons = BTreeMap<String, usize>;

/// Plays a scenario's repetitions from `first` on.
fn repeat(
    scenario: impl Fn(u64) -> Scenario + Sync,
    first: u64,
    seeds: usize,
    threads: usize,
) -> (Tally, Reasons) {
    let reasons = Mutex::new(Reasons::new());
    let tally = many(seeds, threads, |trial, tally| {
        let repetition = first.wrapping_add(trial);
        if let Some(why) = lab::one(&scenario(repetition), repetition, tally) {
            let mut reasons = reasons.lock().unwrap_or_else(PoisonError::into_inner);
            *reasons.entry(why).or_default() += 1;
        }
    });
    (
        tally,
        reasons.into_inner().unwrap_or_else(PoisonError::into_inner),
    )
}

fn setting(range: &Range, commits: u32) -> anyhow::Result<Setting> {
    let sizes = [
        ("--effect-pct", range.effect_pct, 0.0, 99.9),
        ("--boot-pct", range.boot_pct, 0.0, 100.0),
        ("--run-pct", range.run_pct, 0.0, 100.0),
        ("--image-pct", range.image_pct, 0.0, 100.0),
        ("--drift-pct", range.drift_pct, 0.0, 100.0),
        (
            "--min-effect-pct",
            range.min_effect_pct.unwrap_or(1.0),
            0.001,
            99.9,
        ),
        ("--confidence", range.confidence, 0.5001, 0.999_999),
        ("--build-s", range.build_s, 0.0, 1e6),
        ("--boot-s", range.boot_s, 0.0, 1e6),
        ("--run-s", range.run_s, 0.001, 1e6),
    ];
    for (name, value, least, most) in sizes {
        if !(least..=most).contains(&value) {
            bail!("{name} {value}: is between {least} and {most}");
        }
    }
    let noise = Noise {
        run: range.run_pct / 100.0,
        boot: range.boot_pct / 100.0,
        image: range.image_pct / 100.0,
        walk: range.drift_pct / 100.0,
        ..Noise::default()
    };
    let mut setting = Setting::new(commits as usize, noise);
    setting.changes = match range.effect_pct {
        0.0 => Vec::new(),
        pct => vec![What::Level((1.0 - pct / 100.0).ln())],
    };
    let half = if range.effect_pct > 0.0 {
        range.effect_pct / 2.0
    } else {
        2.0
    };
    setting.least_pct = range.min_effect_pct.unwrap_or(half);
    setting.confidence = range.confidence;
    setting.form = if range.merges { Form::Dag } else { Form::Line };
    setting.machines = range.machines as usize;
    setting.builders = range.builders;
    (setting.costs.build_s, setting.costs.boot_s, setting.costs.run_s) =
        (range.build_s, range.boot_s, range.run_s);
    Ok(setting)
}

/// What no search on one machine could do without.
fn least_min(setting: &Setting) -> Option<f64> {
    match setting.changes.first() {
        Some(What::Level(step)) if setting.machines == 1 => Some(
            bound::search_min(setting.commits, *step, &setting.noise, &setting.costs)
                + bound::ends_min(&setting.costs),
        ),
        _ => None,
    }
}

/// What searches of this kind cost and how they end, over several threads.
fn forecast(setting: &Setting, plays: usize, seed: u64, threads: usize) -> Forecast {
    Forecast::of(many(plays, threads, |trial, tally| {
        one(setting, seed.wrapping_add(trial), tally)
    }))
}

/// What a search of this size will likely cost and how it will end, in a sentence or as JSON.
pub fn describe(range: &Range, plays: usize, json: bool) -> anyhow::Result<()> {
    let commits = range.commits.context("the range's size is not known")?;
    let setting = setting(range, commits)?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let forecast = forecast(&setting, plays, 0, threads);
    if json {
        say::range_json(&setting, &forecast, 0, least_min(&setting));
    } else {
        println!("{commits} commits: {}", forecast.sentence(setting.changes.len()));
    }
    Ok(())
}
