//! From the command line to a run's settings: everything is looked up and checked here, once.

use super::measure::Measure;
use super::state::{Line, Settings, State, VERSION};
use super::{Args, handover};
use crate::plan_json::policy_to_json;
use crate::tree::bisect_log::Terms;
use crate::tree::local::Local;
use anyhow::{Context, bail};
use bisect::{Confirm, Costs, Limits, LookFor, Metric, MinEffect, Policy};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

pub fn begin(args: &Args, local: &Local, path: &Path) -> anyhow::Result<State> {
    if args.command.is_empty() {
        bail!("say what to measure with: perfbisect run GOOD BAD -- COMMAND");
    }
    refuse_unfinished(args, path)?;
    let taken = match &args.bisect_log {
        Some(from) => Some(handover::take_over(local, from)?),
        None => None,
    };
    let (good, bad) = match (&taken, args.revisions.as_slice(), &args.find_good) {
        (Some(taken), _, _) => (Some(taken.good.clone()), taken.bad.clone()),
        (None, [bad], Some(_)) => (None, local.commit(bad)?),
        (None, [good, bad], None) => (Some(local.commit(good)?), local.commit(bad)?),
        (None, _, Some(_)) => bail!("with --find-good, name the slow revision only"),
        (None, _, None) => bail!("name two revisions: one that is fast, and one that is slow"),
    };
    let terms = match (&taken, &args.term_old, &args.term_new) {
        (Some(taken), _, _) => taken.log.terms.clone(),
        (None, Some(old), Some(new)) => Terms::new(old, new).map_err(|why| anyhow::anyhow!(why))?,
        (None, _, _) if args.gain => Terms::new("old", "new").map_err(|why| anyhow::anyhow!(why))?,
        (None, _, _) => Terms::default(),
    };
    let (first_parent, paths) = match &taken {
        Some(taken) => (taken.log.first_parent, taken.log.paths.clone()),
        None => (args.first_parent, args.paths.clone()),
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let settings = Settings {
        version: VERSION,
        began_unix_s: now.as_secs_f64(),
        good: good.as_ref().map(ToString::to_string),
        find_good: args.find_good.clone(),
        bad: bad.to_string(),
        first_parent,
        paths,
        terms: (terms.old, terms.new),
        policy: policy_to_json(&policy(args)?),
        measure: measure(args, local)?,
        worktrees: match &args.worktrees {
            Some(folder) => std::path::absolute(folder)?,
            None => cache(local)?,
        },
        worktrees_most: usize::from(args.keep),
    };
    settings.measure.parser(&metric_name(args))?;
    let mut state = State::begin(path, settings)?;
    for (commit, verdict) in taken.into_iter().flat_map(|t| t.words) {
        let why = "git bisect log".to_owned();
        let commit = commit.to_string();
        state.add(&Line::Word { commit, verdict, why })?;
    }
    Ok(state)
}

/// Measurements are dear: an unfinished run is not overwritten unasked.
fn refuse_unfinished(args: &Args, path: &Path) -> anyhow::Result<()> {
    if args.restart || !path.exists() {
        return Ok(());
    }
    match State::open(path, false) {
        Ok(state) if state.concluded.is_none() && !state.observations.is_empty() => bail!(
            "a run in this repository is unfinished, with {} measurements: go on with `perfbisect run --continue`, or \
             drop them with --restart",
            state.observations.len()
        ),
        // What cannot be read cannot be continued.
        Ok(_) | Err(_) => Ok(()),
    }
}

fn metric_name(args: &Args) -> String {
    let usual = if args.time { "time" } else { "number" };
    args.metric.clone().unwrap_or_else(|| usual.to_owned())
}

fn policy(args: &Args) -> anyhow::Result<Policy> {
    if !(args.confidence > 0.5 && args.confidence < 1.0) {
        bail!("--confidence {}: is between 0.5 and 1", args.confidence);
    }
    let min_effect = match args.min_effect_abs {
        Some(abs) if abs > 0.0 && abs.is_finite() => MinEffect::Abs(abs),
        Some(abs) => bail!("--min-effect-abs {abs}: is above 0"),
        None if args.min_effect_pct > 0.0 && args.min_effect_pct < 100.0 => {
            MinEffect::Pct(args.min_effect_pct)
        }
        None => bail!("--min-effect-pct {}: is between 0 and 100", args.min_effect_pct),
    };
    for (name, seconds) in [("timeout", args.timeout_s), ("limit-time", args.limit_time_s)] {
        if seconds.is_some_and(|s| !(s > 0.0 && s < 1e9)) {
            bail!("--{name}-s: is a number of seconds above 0");
        }
    }
    Ok(Policy {
        metric: Metric {
            name: metric_name(args),
            unit: if args.time { "s".into() } else { args.unit.clone() },
            // What is looked for is always a loss to the mind; a gain is a loss seen from the other side.
            higher_is_better: args.higher_is_better != args.gain,
            may_be_zero: args.min_effect_abs.is_some(),
        },
        min_effect,
        confidence: args.confidence,
        seed: args.seed,
        look_for: LookFor::First,
        costs: Costs::default(),
        limits: Limits {
            boots: args.limit_boots,
            time_s: args.limit_time_s,
            ends_time_s: None,
        },
        confirm: Confirm::default(),
        other_metrics: Vec::new(),
    })
}

fn measure(args: &Args, local: &Local) -> anyhow::Result<Measure> {
    let mut command = args.command.clone();
    command[0] = own_script(&command[0], local)?;
    Ok(Measure {
        command,
        build: args.build.clone(),
        time: args.time,
        parser: args.parser.clone(),
        pattern: args.pattern.clone(),
        timeout_s: args.timeout_s,
        artifact: args.artifact.clone(),
    })
}

/// `./bench.sh` that is in no commit would be missing in every worktree: it is the user's own, the same for all.
fn own_script(name: &str, local: &Local) -> anyhow::Result<String> {
    let path = Path::new(name);
    if path.is_absolute() || !name.contains('/') {
        return Ok(name.to_owned());
    }
    let here = std::path::absolute(path)?;
    match here.is_file() && !local.is_tracked(&here) {
        true => Ok(here.to_str().context("the command's path is no text")?.to_owned()),
        false => Ok(name.to_owned()),
    }
}

/// A folder of this repository's own in the user's cache.
fn cache(local: &Local) -> anyhow::Result<PathBuf> {
    let set = |name: &str| {
        std::env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    let base = set("XDG_CACHE_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".cache")))
        .unwrap_or_else(std::env::temp_dir);
    let digest = Sha256::digest(local.common.as_os_str().as_encoded_bytes());
    let digest: String = digest.iter().take(6).map(|b| format!("{b:02x}")).collect();
    let name = local
        .top
        .file_name()
        .map_or("repository".into(), |n| n.to_string_lossy().into_owned());
    Ok(base.join("perfbisect").join(format!("{name}-{digest}")))
}
