//! From an agent's report to what goes into the record. Pure: rows and text in, an [`Ending`] out.

use super::admit::judged;
use super::beside::Beside;
use super::order::read;
use crate::case::{Case, sha256_hex};
use crate::config::Disturbed;
use crate::plan_json as json;
use crate::store::attempts::{Carried, CarriedWork};
use crate::store::facts::{BootFact, Drop, Ending, NewImage, Sample};
use crate::surroundings;
use anyhow::anyhow;
use bisect::{Outcome, Policy, Value};
use parsers::{Parser, Wanted};
use protocol::{Built, Exit, ImageKind, ImageManifest, Measured, Report, Run};
use serde_json::json;
use std::collections::BTreeMap;

/// What `report` means for the record. `runs` are the attempt's, warm-ups too.
pub fn ending(carried: &Carried, report: &Report, runs: &[Run], beside: &Beside) -> anyhow::Result<Ending> {
    let image_id = match &carried.work {
        CarriedWork::Trial { trial, .. } => return Ok(judged(trial, report)),
        CarriedWork::Build { .. } => String::new(),
        CarriedWork::Measure { image_id, .. } => image_id.clone(),
    };
    Ok(match report {
        Report::Built(built) => self::built(built)?,
        Report::BuildFailed(failed) => Ending::BuildFailed {
            failure: json!({"class": failed.class, "excerpt": failed.excerpt}),
            wall_s: failed.wall_s,
        },
        Report::Measured(measured) => self::measured(carried, measured, runs, beside)?,
        // Our own mistake or the boot loader's: says nothing about the kernel that was asked for.
        Report::BootFailed(failed) if failed.fault == "wrong_kernel" => Ending::Trouble {
            what: format!(
                "another kernel than the one built was running: {}",
                failed.excerpt
            ),
        },
        Report::BootFailed(failed) => Ending::BootFailed {
            boot: BootFact {
                image_id,
                fault: Some(json!({"fault": failed.fault, "excerpt": failed.excerpt, "phase": failed.phase})),
                ..BootFact::default()
            },
        },
        Report::BenchmarkFailed(failed) => Ending::BenchmarkFailed {
            boot: BootFact {
                image_id,
                ..BootFact::default()
            },
            sample: (!runs.is_empty()).then(|| sample(json!({}), runs)).transpose()?,
            what: failed.what.clone(),
        },
        Report::Trouble { what } => Ending::Trouble { what: what.clone() },
        Report::Cancelled => Ending::Cancelled,
    })
}

fn built(built: &Built) -> anyhow::Result<Ending> {
    let manifest = serde_json::to_value(&built.manifest)?;
    Ok(Ending::Built {
        image: NewImage {
            id: sha256_hex(manifest.to_string().as_bytes()),
            kind: match built.manifest.kind {
                ImageKind::Kernel => "kernel",
                ImageKind::Userspace => "userspace",
            },
            arch: built.manifest.arch.clone(),
            digest: built.manifest.digest.clone(),
            build_id: built.manifest.build_id.clone(),
            release: built.manifest.release.clone(),
            manifest,
        },
        wall_s: built.wall_s,
        config_changes: built.config_changes.clone(),
    })
}

fn measured(carried: &Carried, measured: &Measured, runs: &[Run], beside: &Beside) -> anyhow::Result<Ending> {
    let CarriedWork::Measure {
        image_id,
        manifest,
        case,
        policy,
        ..
    } = &carried.work
    else {
        return Ok(Ending::Trouble {
            what: "a measurement was reported for an order to build".into(),
        });
    };
    let image: ImageManifest = read("image", manifest)?;
    if let Some(what) = not_proved(&image, measured) {
        return Ok(Ending::Trouble { what });
    }
    let case: Case = read("case", case)?;
    let policy = json::policy_from_json(policy, "policy").map_err(|e| anyhow!("stored policy: {e}"))?;
    let boot = BootFact {
        image_id: image_id.clone(),
        boot_id: measured.proof.boot_id.clone(),
        fault: None,
        proof: Some(serde_json::to_value(&measured.proof)?),
        environment: serde_json::to_value(&measured.environment)?,
        seconds: serde_json::to_value(&measured.seconds)?,
    };
    let kernels = image.kind == ImageKind::Kernel;
    let dropped = |reason, what| {
        Ok(Ending::Dropped(Drop {
            reason,
            what,
            environment: boot.environment.clone(),
        }))
    };
    let refusal = surroundings::refusal(image_id, &measured.environment, &beside.earlier, kernels);
    if let Some(what) = refusal {
        return dropped("environment", what);
    }
    let host = measured.host_disturbance.as_ref();
    if let Some(what) = host.and_then(|seen| surroundings::disturbed(&beside.limits, seen, true)) {
        return dropped("disturbed", what);
    }
    let (counted, disturbed) = undisturbed(runs, &beside.limits);
    // The rest of a boot of which half is disturbed is not believed either.
    if let Some(what) = disturbed.first()
        && counted.len() <= disturbed.len()
    {
        return dropped("disturbed", what.clone());
    }
    let numbers = match numbers(&case, &policy, &counted)? {
        Ok(numbers) => numbers,
        Err(what) => {
            return Ok(Ending::BenchmarkFailed {
                boot,
                sample: Some(sample(json!({}), runs)?),
                what,
            });
        }
    };
    let (outcome, mut said) = outcome(&policy, &numbers);
    for what in disturbed {
        said.push_str(&format!("; {what}"));
    }
    let values: BTreeMap<&String, Vec<serde_json::Value>> = numbers
        .iter()
        .map(|(name, values)| (name, values.iter().map(as_json).collect()))
        .collect();
    Ok(Ending::Measured {
        boot,
        sample: sample(serde_json::to_value(values)?, runs)?,
        outcome: json::outcome_to_json(&outcome),
        first_run_s: runs.first().map_or(0.0, |run| run.start_s),
        said,
    })
}

/// The runs that count, and what speaks against the others.
fn undisturbed<'a>(runs: &'a [Run], limits: &Disturbed) -> (Vec<&'a Run>, Vec<String>) {
    let (mut counted, mut dropped) = (Vec::new(), Vec::new());
    for run in runs.iter().filter(|run| !run.warmup) {
        let seen = run.disturbance.as_ref();
        match seen.and_then(|seen| surroundings::disturbed(limits, seen, false)) {
            None => counted.push(run),
            Some(what) => dropped.push(format!("run {} is dropped: {what}", run.number)),
        }
    }
    (counted, dropped)
}

/// The kernel that ran must be the one that was built; user space has nothing to prove.
fn not_proved(image: &ImageManifest, measured: &Measured) -> Option<String> {
    let (wanted, ran) = (
        (&image.build_id, &image.release),
        (&measured.proof.build_id, &measured.proof.release),
    );
    match image.kind {
        ImageKind::Userspace => None,
        ImageKind::Kernel if wanted == ran => None,
        ImageKind::Kernel => Some(format!(
            "another kernel than the one built was running: built {} ({}), ran {} ({})",
            wanted.1, wanted.0, ran.1, ran.0
        )),
    }
}

fn sample(values: serde_json::Value, runs: &[Run]) -> anyhow::Result<Sample> {
    let raw = serde_json::to_value(runs)?;
    Ok(Sample {
        parser_version: parsers::VERSION.cast_signed(),
        values,
        raw,
    })
}

/// Each metric's numbers, in the order of the runs that gave the judged one; or why there are none.
type Numbers = BTreeMap<String, Vec<Value>>;

fn numbers(case: &Case, policy: &Policy, runs: &[&Run]) -> anyhow::Result<Result<Numbers, String>> {
    let parser = case.parser()?;
    let judged = &policy.metric.name;
    let mut numbers: Numbers = BTreeMap::new();
    let mut counted = 0;
    let mut why = String::from("no run was made");
    for run in runs {
        let read = match one(case, &parser, judged, run) {
            Ok(read) => read,
            Err(reason) => {
                why = format!("run {}: {reason}", run.number);
                continue;
            }
        };
        counted += 1;
        for (name, value) in read {
            numbers.entry(name).or_default().push(value);
        }
    }
    // A metric that some of these runs did not give cannot be set beside the others run by run.
    numbers.retain(|_, values| values.len() == counted);
    Ok(if counted == 0 { Err(why) } else { Ok(numbers) })
}

/// The numbers of one run, the judged one among them, or why it gives none.
fn one(case: &Case, parser: &Parser, judged: &str, run: &Run) -> Result<BTreeMap<String, Value>, String> {
    let limit_s = f64::from(case.run_limit_s);
    match run.exit {
        Exit::Status(0) => {}
        Exit::Status(status) => return Err(format!("exit status {status}: {}", last_line(&run.stderr))),
        Exit::Signal(signal) => return Err(format!("ended by signal {signal}")),
        Exit::TimedOut => {
            let unit = case.metric(judged).map(|m| m.unit.as_str()).unwrap_or_default();
            return match (case.timeout_means.as_deref() == Some(judged), seconds_in(unit)) {
                (true, Some(factor)) => Ok([(judged.to_string(), Value::AtLeast(limit_s * factor))].into()),
                _ => Err(format!("cut off after {limit_s} s")),
            };
        }
    }
    let metrics = parser
        .parse(&run.stdout, &run.stderr)
        .map_err(|e| e.to_string())?;
    let mut values = BTreeMap::new();
    for metric in &case.metrics {
        let wanted = Wanted {
            name: metric.name.clone(),
            unit: metric.unit.clone(),
            may_be_zero: metric.may_be_zero,
        };
        match parsers::judge_one(&metrics, &wanted) {
            Ok(value) => drop(values.insert(metric.name.clone(), Value::Exact(value))),
            Err(refusal) if metric.name == judged => return Err(refusal.to_string()),
            Err(_) => {}
        }
    }
    match values.contains_key(judged) {
        true => Ok(values),
        false => Err(format!("the workload has no metric {judged}")),
    }
}

/// How many of this unit a second is.
fn seconds_in(unit: &str) -> Option<f64> {
    match unit {
        "s" | "sec" | "secs" | "seconds" => Some(1.0),
        "ms" | "msec" | "msecs" => Some(1e3),
        "us" | "usec" | "usecs" | "µs" => Some(1e6),
        _ => None,
    }
}

fn outcome(policy: &Policy, numbers: &Numbers) -> (Outcome, String) {
    let values = numbers.get(&policy.metric.name).cloned().unwrap_or_default();
    let other = |m: &bisect::Metric| Some((m.name.clone(), numbers.get(&m.name)?.clone()));
    let others = policy.other_metrics.iter().filter_map(other).collect();
    let words: Vec<String> = values
        .iter()
        .map(|v| match v {
            Value::Exact(x) => short(*x),
            Value::AtLeast(x) => format!("≥ {}", short(*x)),
            Value::AtMost(x) => format!("≤ {}", short(*x)),
        })
        .collect();
    let said = format!("{} {}", words.join(", "), policy.metric.unit);
    (Outcome::Measured { values, others }, said)
}

/// Four digits that count.
fn short(x: f64) -> String {
    let digits = if x == 0.0 {
        0
    } else {
        3 - x.abs().log10().floor() as i32
    };
    format!("{x:.*}", usize::try_from(digits.clamp(0, 9)).unwrap_or(0))
}

fn as_json(value: &Value) -> serde_json::Value {
    match value {
        Value::Exact(x) => json!(x),
        Value::AtLeast(x) => json!({"at_least": x}),
        Value::AtMost(x) => json!({"at_most": x}),
    }
}

fn last_line(text: &str) -> &str {
    text.trim_end().lines().next_back().unwrap_or_default()
}
