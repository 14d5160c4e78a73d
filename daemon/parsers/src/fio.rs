//! `fio --output-format=json` and `json+`, from version 2 on.
//!
//! What is `read`, `write` or `trim` below is written `DIR`.
//!
//! | metric | unit | |
//! |---|---|---|
//! | `fio.DIR.bw` | KiB/s | sum over jobs |
//! | `fio.DIR.iops` | 1/s | sum over jobs |
//! | `fio.DIR.lat_mean`, `.clat_mean`, `.slat_mean` | us | mean over all requests |
//! | `fio.DIR.lat_min`, `.lat_max`, … | us | over jobs |
//! | `fio.DIR.clat_p99`, `.clat_p99.9`, `.lat_p50`, … | us | one job only: percentiles of jobs cannot be added up |
//! | `fio.job.NAME.DIR.…` | as above | the jobs of one name |
//!
//! `fio.DIR.…` exists where the jobs that did DIR ran side by side (one group); the rates of jobs that ran one
//! after the other are not summed. A direction without a request is missing, not 0. Where `error` is not 0 the
//! numbers do not count. Of several documents (`--status-interval`) the last complete one is read.

use crate::{Metrics, Number, ParseError, json, put};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const DIRECTIONS: [&str; 3] = ["read", "write", "trim"];

pub fn parse(stdout: &str) -> Result<Metrics, ParseError> {
    let document = json::documents(stdout).into_iter().rev().find_map(jobs_of);
    let Some((jobs, merged)) = document else {
        let looked_for = "a complete JSON document with `jobs` (run fio with --output-format=json)".into();
        return Err(ParseError::NotFound { looked_for });
    };
    for job in &jobs {
        let error = job.get("error").and_then(Value::as_i64).unwrap_or(0);
        if error != 0 {
            let error = format!("job `{}` ended with error {error}", name_of(job));
            return Err(ParseError::Reported { error });
        }
    }
    let mut metrics = Metrics::new();
    for direction in DIRECTIONS {
        let busy: Vec<&Value> = jobs.iter().filter(|job| requests(job, direction) > 0.0).collect();
        let groups: BTreeSet<i64> = busy.iter().map(|job| group_of(job)).collect();
        if merged.is_none() && groups.len() == 1 {
            put_direction(&mut metrics, &format!("fio.{direction}"), &busy, direction)?;
        }
        let mut by_name: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
        busy.iter()
            .for_each(|job| by_name.entry(name_of(job)).or_default().push(job));
        for (name, jobs) in by_name {
            // Equal names in several groups did not run side by side.
            if jobs.iter().all(|job| group_of(job) == group_of(jobs[0])) {
                put_direction(
                    &mut metrics,
                    &format!("fio.job.{name}.{direction}"),
                    &jobs,
                    direction,
                )?;
            }
        }
        if let Some(all) = merged.iter().find(|all| requests(all, direction) > 0.0) {
            put_direction(&mut metrics, &format!("fio.{direction}"), &[all], direction)?;
        }
    }
    if metrics.is_empty() {
        return Err(ParseError::NotFound {
            looked_for: "a job that did any request".into(),
        });
    }
    Ok(metrics)
}

/// The jobs of a document, and in client mode fio's own sum over all clients.
fn jobs_of(document: Value) -> Option<(Vec<Value>, Option<Value>)> {
    let list = document
        .get("jobs")
        .or_else(|| document.get("client_stats"))?
        .as_array()?;
    let (merged, jobs): (Vec<Value>, Vec<Value>) = list
        .iter()
        .cloned()
        .partition(|job| name_of(job) == "All_clients");
    Some((jobs, merged.into_iter().next()))
}

/// As part of a metric's name: without white space.
fn name_of(job: &Value) -> String {
    let name = job.get("jobname").and_then(Value::as_str).unwrap_or("");
    name.split_whitespace().collect::<Vec<_>>().join("_")
}

fn group_of(job: &Value) -> i64 {
    job.get("groupid").and_then(Value::as_i64).unwrap_or(0)
}

/// Requests done; old versions have no `total_ios` everywhere, then any bytes count as work.
fn requests(job: &Value, direction: &str) -> f64 {
    let of = |key| {
        job.get(direction)
            .and_then(|d| d.get(key))
            .and_then(Value::as_f64)
    };
    of("total_ios").or_else(|| of("io_bytes")).unwrap_or(0.0)
}

fn put_direction(
    metrics: &mut Metrics,
    name: &str,
    jobs: &[&Value],
    direction: &str,
) -> Result<(), ParseError> {
    let parts: Vec<&Value> = jobs.iter().filter_map(|job| job.get(direction)).collect();
    let number = |part: &Value, key: &str| part.get(key).and_then(Value::as_f64);
    // `bw` is cut to whole KiB/s; `bw_bytes` (since 3.0) is not.
    let bandwidth = |part: &&Value| {
        number(part, "bw_bytes")
            .map(|b| b / 1024.0)
            .or_else(|| number(part, "bw"))
    };
    // A sum with a term missing is no sum.
    if let Some(sum) = parts.iter().map(bandwidth).sum::<Option<f64>>() {
        put(metrics, format!("{name}.bw"), Number::rate(sum, "KiB/s"))?;
    }
    if let Some(sum) = parts.iter().map(|part| number(part, "iops")).sum::<Option<f64>>() {
        put(metrics, format!("{name}.iops"), Number::rate(sum, "1/s"))?;
    }
    for kind in ["lat", "clat", "slat"] {
        put_latency(metrics, &format!("{name}.{kind}"), &parts, kind)?;
    }
    Ok(())
}

/// Since 3.0 `clat_ns` in nanoseconds, before that `clat` in microseconds.
fn latencies<'a>(part: &'a Value, kind: &str) -> Option<(&'a Value, f64)> {
    let nanoseconds = part.get(format!("{kind}_ns")).map(|l| (l, 1000.0));
    nanoseconds.or_else(|| part.get(kind).map(|l| (l, 1.0)))
}

fn put_latency(metrics: &mut Metrics, name: &str, parts: &[&Value], kind: &str) -> Result<(), ParseError> {
    let Some(all) = parts
        .iter()
        .map(|part| latencies(part, kind))
        .collect::<Option<Vec<_>>>()
    else {
        return Ok(());
    };
    let in_us = |key: &str| -> Option<Vec<f64>> {
        all.iter()
            .map(|(l, divisor)| l.get(key).and_then(Value::as_f64).map(|v| v / divisor))
            .collect()
    };
    // How many requests a mean stands for: its own count, or that of the direction in old versions.
    let counts = parts.iter().zip(&all).map(|(part, (l, _))| {
        l.get("N")
            .and_then(Value::as_f64)
            .or_else(|| part.get("total_ios").and_then(Value::as_f64))
    });
    let counts = counts
        .collect::<Option<Vec<f64>>>()
        .unwrap_or_else(|| vec![1.0; usize::from(all.len() == 1)]);
    let total: f64 = counts.iter().sum();
    // fio prints zeros where a latency was not taken at all (slat of a synchronous engine).
    if counts.len() != all.len() || total <= 0.0 {
        return Ok(());
    }
    if let Some(means) = in_us("mean") {
        let sum: f64 = means.iter().zip(&counts).map(|(mean, count)| mean * count).sum();
        put(metrics, format!("{name}_mean"), Number::cost(sum / total, "us"))?;
    }
    if let Some(smallest) = in_us("min").and_then(|v| v.into_iter().reduce(f64::min)) {
        put(metrics, format!("{name}_min"), Number::cost(smallest, "us"))?;
    }
    if let Some(largest) = in_us("max").and_then(|v| v.into_iter().reduce(f64::max)) {
        put(metrics, format!("{name}_max"), Number::cost(largest, "us"))?;
    }
    let [(only, divisor)] = all.as_slice() else {
        return Ok(());
    };
    let percentiles = only.get("percentile").and_then(Value::as_object);
    for (percent, value) in percentiles.into_iter().flatten() {
        // Version 2 fills up its list with `"0.00" : 0`.
        let (Some(share), Some(value)) = (crate::number(percent), value.as_f64()) else {
            continue;
        };
        if share > 0.0 && share <= 100.0 {
            put(
                metrics,
                format!("{name}_p{share}"),
                Number::cost(value / divisor, "us"),
            )?;
        }
    }
    Ok(())
}
