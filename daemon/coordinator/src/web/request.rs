//! A submission as sent, checked against the configuration: everything that can be said without a tree.

use super::error::FieldError;
use super::fields::{Complaints, Fields};
use super::openapi::LARGEST;
use crate::case::Case;
use crate::config::{Config, MetricDef, Role, Workload};
use crate::store::{Channel, Recipient};
use bisect::{Confirm, Costs, Limits, LookFor, Metric, MinEffect, Policy};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A notice goes to so many people at most.
pub const RECIPIENTS: usize = 20;
/// Longer than any sensible revision, shorter than what git would choke on.
pub const REVISION_BYTES: usize = 250;
/// Ten years: a limit beyond it is a typing error.
pub const SECONDS: f64 = 315_576_000.0;

/// Higher goes first.
pub const PRIORITY: std::ops::RangeInclusive<i64> = -100..=100;

/// What is wanted, in the daemon's own types; only the ends are still as typed.
pub struct Wanted {
    pub tree: String,
    pub good: String,
    pub bad: String,
    pub first_parent: bool,
    pub case: Case,
    /// The workload's local files, to be kept under their SHA-256.
    pub files: Vec<(String, PathBuf)>,
    pub policy: Policy,
    pub machines: Vec<String>,
    pub priority: i32,
    pub recipients: Vec<Recipient>,
}

pub fn read(body: &Value, config: &Config) -> Result<Wanted, Vec<FieldError>> {
    let complaints = Complaints::default();
    let fields = Fields::of(body, "", &complaints);
    let tree = tree(&fields, config);
    let good = revision(
        &fields,
        "good",
        "the last version known to be good: a tag, branch or commit",
    );
    let bad = revision(
        &fields,
        "bad",
        "a version known to be bad: a tag, branch or commit",
    );
    let workload = workload(&fields, config);
    let case = case(&fields, workload);
    let metric = metric(&fields, workload);
    let min_effect = min_effect(&fields, metric);
    let confidence = fields.number("confidence", 0.5, 1.0).unwrap_or(0.99);
    let seed = fields.whole("seed", 0..=LARGEST).unwrap_or(0).unsigned_abs();
    let look_for = look_for(&fields);
    let costs = costs(&fields);
    let limits = limits(&fields);
    let confirm = confirm(&fields);
    let first_parent = fields.truth("first_parent", false);
    let machines = machines(&fields, config);
    let priority = fields.whole("priority", PRIORITY).unwrap_or(0) as i32;
    let recipients = recipients(&fields, config, &complaints);
    fields.end();
    let wanted = (|| {
        let (case, files) = case?;
        let metric = to_metric(metric?);
        let others = case
            .metrics
            .iter()
            .filter(|m| m.name != metric.name)
            .map(to_metric)
            .collect();
        let policy = Policy {
            metric,
            min_effect: min_effect?,
            confidence,
            seed,
            look_for,
            costs,
            limits,
            confirm,
            other_metrics: others,
        };
        let (tree, good, bad) = (tree?.to_string(), good?.to_string(), bad?.to_string());
        Some(Wanted {
            tree,
            good,
            bad,
            first_parent,
            case,
            files,
            policy,
            machines,
            priority,
            recipients,
        })
    })();
    complaints.into_result(wanted)
}

fn listed<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let names: Vec<&str> = names.map(String::as_str).collect();
    if names.is_empty() {
        "none is configured".into()
    } else {
        format!("configured are: {}", names.join(", "))
    }
}

fn tree<'a>(fields: &Fields<'a>, config: &Config) -> Option<&'a str> {
    let known = listed(config.file.trees.keys());
    let name = fields.need_text("tree", &known)?;
    if !config.file.trees.contains_key(name) {
        fields.complain("tree", format!("no tree is called `{name}`; {known}"));
        return None;
    }
    Some(name)
}

fn revision<'a>(fields: &Fields<'a>, name: &'static str, what: &str) -> Option<&'a str> {
    let text = fields.need_text(name, what)?;
    if text.len() > REVISION_BYTES || text.starts_with('-') {
        fields.complain(name, format!("is no revision; give {what}"));
        return None;
    }
    Some(text)
}

fn workload<'c>(fields: &Fields, config: &'c Config) -> Option<&'c Workload> {
    let known = listed(config.workloads.keys());
    let name = fields.need_text("workload", &known)?;
    let found = config.workloads.get(name);
    if found.is_none() {
        fields.complain("workload", format!("no workload is called `{name}`; {known}"));
    }
    found
}

fn case(fields: &Fields, workload: Option<&Workload>) -> Option<(Case, Vec<(String, PathBuf)>)> {
    let mut chosen = BTreeMap::new();
    let before = fields.get("parameters");
    if let Some(parameters) = before {
        match parameters.as_object() {
            Some(map) => {
                for (name, value) in map {
                    match value {
                        Value::String(text) => chosen.insert(name.clone(), text.clone()),
                        Value::Number(number) => chosen.insert(name.clone(), number.to_string()),
                        _ => {
                            fields.complain(&format!("parameters.{name}"), "must be a string or a number");
                            continue;
                        }
                    };
                }
            }
            None => fields.complain("parameters", "must be an object of names and choices"),
        }
    }
    let workload = workload?;
    let mut wrong = false;
    for (name, value) in &chosen {
        let field = format!("parameters.{name}");
        match workload.parameters.get(name) {
            None => {
                let known = listed(workload.parameters.keys());
                fields.complain(
                    &field,
                    format!("workload `{}` has no such parameter; {known}", workload.name),
                );
            }
            Some(choices) if !choices.contains(value) => {
                fields.complain(
                    &field,
                    format!("cannot be `{value}`; the choices are: {}", choices.join(", ")),
                );
            }
            Some(_) => continue,
        }
        wrong = true;
    }
    if wrong {
        return None;
    }
    match Case::new(workload, &chosen) {
        Ok(case) => Some(case),
        Err(error) => {
            fields.complain("workload", format!("cannot be used as configured: {error:#}"));
            None
        }
    }
}

fn metric<'c>(fields: &Fields, workload: Option<&'c Workload>) -> Option<&'c MetricDef> {
    let asked = fields.text("metric");
    let workload = workload?;
    let names = || {
        workload
            .metrics
            .iter()
            .map(|m| m.name.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let found = match (asked, workload.metrics.as_slice()) {
        (Some(name), metrics) => metrics.iter().find(|m| m.name == name),
        (None, [only]) => Some(only),
        (None, _) => {
            if fields.get("metric").is_none() {
                fields.complain(
                    "metric",
                    format!("is required; workload `{}` yields: {}", workload.name, names()),
                );
            }
            return None;
        }
    };
    if found.is_none() {
        let name = asked.unwrap_or_default();
        fields.complain(
            "metric",
            format!(
                "workload `{}` yields no `{name}`; it yields: {}",
                workload.name,
                names()
            ),
        );
    }
    found
}

fn to_metric(def: &MetricDef) -> Metric {
    let MetricDef {
        name,
        unit,
        higher_is_better,
        may_be_zero,
    } = def;
    Metric {
        name: name.clone(),
        unit: unit.clone(),
        higher_is_better: *higher_is_better,
        may_be_zero: *may_be_zero,
    }
}

fn min_effect(fields: &Fields, metric: Option<&MetricDef>) -> Option<MinEffect> {
    let (has_pct, has_abs) = (
        fields.get("min_effect_pct").is_some(),
        fields.get("min_effect_abs").is_some(),
    );
    let higher_is_better = metric.is_some_and(|m| m.higher_is_better);
    let pct = fields.number(
        "min_effect_pct",
        0.0,
        if higher_is_better { 100.0 } else { 100_000.0 },
    );
    let abs = fields.number("min_effect_abs", 0.0, f64::INFINITY);
    let metric = metric?;
    match (metric.may_be_zero, has_pct, has_abs) {
        (false, true, false) => return pct.map(MinEffect::Pct),
        (true, false, true) => return abs.map(MinEffect::Abs),
        (false, _, true) => {
            fields.complain(
                "min_effect_abs",
                format!("`{}` is never zero: give min_effect_pct instead", metric.name),
            );
        }
        (true, true, _) => {
            let unit = &metric.unit;
            fields.complain(
                "min_effect_pct",
                format!("`{}` may be zero: give min_effect_abs in {unit}", metric.name),
            );
        }
        (false, false, false) => fields.complain(
            "min_effect_pct",
            "is required: the smallest loss that you care about, in per cent of the good level",
        ),
        (true, false, false) => fields.complain(
            "min_effect_abs",
            format!(
                "is required: the smallest loss that you care about, in {}",
                metric.unit
            ),
        ),
    }
    None
}

fn look_for(fields: &Fields) -> LookFor {
    match fields.text("look_for") {
        None | Some("first") => LookFor::First,
        Some("all") => LookFor::All,
        Some(other) => {
            fields.complain("look_for", format!("must be \"first\" or \"all\", is `{other}`"));
            LookFor::First
        }
    }
}

fn costs(fields: &Fields) -> Costs {
    let default = Costs::default();
    let Some(inner) = fields.inner("costs") else {
        return default;
    };
    let costs = Costs {
        build_s: inner.number("build_s", 0.0, SECONDS).unwrap_or(default.build_s),
        boot_s: inner.number("boot_s", 0.0, SECONDS).unwrap_or(default.boot_s),
        run_s: inner.number("run_s", 0.0, SECONDS).unwrap_or(default.run_s),
        build_s_of: BTreeMap::new(),
    };
    inner.end();
    costs
}

fn limits(fields: &Fields) -> Limits {
    let Some(inner) = fields.inner("limits") else {
        return Limits::default();
    };
    let limits = Limits {
        boots: inner.whole("boots", 1..=1_000_000).map(|n| n as u32),
        time_s: inner.number("time_s", 0.0, SECONDS),
        ends_time_s: inner.number("ends_time_s", 0.0, SECONDS),
    };
    inner.end();
    limits
}

fn confirm(fields: &Fields) -> Confirm {
    let Some(inner) = fields.inner("confirm") else {
        return Confirm::default();
    };
    let confirm = Confirm {
        revert: inner.truth("revert", false),
        layout: inner.truth("layout", false),
    };
    inner.end();
    confirm
}

/// Machines by name or pool, sorted; the ends of a search are measured on each of them.
fn machines(fields: &Fields, config: &Config) -> Vec<String> {
    let (by_name, by_pool) = (fields.texts("machine"), fields.texts("pool"));
    let given = fields.get("machine").is_some() || fields.get("pool").is_some();
    if !given {
        let known = listed(config.machines.keys());
        fields.complain("machine", format!("is required (or `pool`); {known}"));
    }
    let mut names = Vec::new();
    for (field, name) in by_name
        .iter()
        .map(|n| ("machine", n))
        .chain(by_pool.iter().map(|n| ("pool", n)))
    {
        let found = config.machines_of(name);
        if found.is_empty() {
            let why = match config.machines.contains_key(*name) {
                true => "only builds and does not measure".to_string(),
                false => format!(
                    "is neither a machine nor a pool; {}",
                    listed(config.machines.keys())
                ),
            };
            fields.complain(field, format!("`{name}` {why}"));
        }
        names.extend(found.iter().map(|m| m.name.clone()));
    }
    names.sort();
    names.dedup();
    if !names.is_empty() && !config.machines.values().any(|m| m.roles.contains(&Role::Build)) {
        fields.complain(
            "machine",
            "no configured machine builds: give one the role \"build\"",
        );
    }
    names
}

fn recipients(fields: &Fields, config: &Config, complaints: &Complaints) -> Vec<Recipient> {
    let list = match fields.get("recipients") {
        None => return Vec::new(),
        Some(Value::Array(list)) if list.len() <= RECIPIENTS => list,
        Some(Value::Array(list)) => {
            fields.complain(
                "recipients",
                format!("at most {RECIPIENTS} are told, these are {}", list.len()),
            );
            return Vec::new();
        }
        Some(_) => {
            fields.complain(
                "recipients",
                r#"must be a list of {"mail": "a@b"} and {"webhook": "https://…"}"#,
            );
            return Vec::new();
        }
    };
    let mut recipients = Vec::new();
    let to = |channel, address: &str| Recipient {
        channel,
        address: address.to_string(),
    };
    for (i, value) in list.iter().enumerate() {
        let one = Fields::of(value, &format!("recipients[{i}]"), complaints);
        let (mail, webhook) = (one.text("mail"), one.text("webhook"));
        match (mail, webhook) {
            (Some(_), None) if config.file.mail.is_none() => {
                one.complain(
                    "mail",
                    "this daemon sends no mail: its configuration has no [mail]",
                );
            }
            (Some(address), None) if is_mail(address) => recipients.push(to(Channel::Mail, address)),
            (Some(address), None) => one.complain("mail", format!("`{address}` is no mail address")),
            (None, Some(_)) if config.file.webhook.is_none() => {
                one.complain(
                    "webhook",
                    "this daemon calls no webhooks: its configuration has no [webhook]",
                );
            }
            (None, Some(url)) if is_webhook(url) => recipients.push(to(Channel::Webhook, url)),
            (None, Some(_)) => one.complain(
                "webhook",
                "must be an http or https URL with a host and no password",
            ),
            (Some(_), Some(_)) => complaints.add(
                format!("recipients[{i}]"),
                "is either `mail` or `webhook`, not both",
            ),
            (None, None) if value.is_object() => {
                complaints.add(format!("recipients[{i}]"), "needs `mail` or `webhook`");
            }
            (None, None) => {}
        }
        one.end();
    }
    recipients
}

/// Enough to catch a slip; whether it can be delivered is the mail server's word.
fn is_mail(text: &str) -> bool {
    let plain = |c: char| !c.is_whitespace() && !c.is_control() && !"<>,;:\"()[]\\".contains(c);
    match text.split_once('@') {
        Some((user, host)) => {
            text.len() <= 254
                && !user.is_empty()
                && user.chars().all(plain)
                && !host.is_empty()
                && host.chars().all(|c| c.is_alphanumeric() || c == '-' || c == '.')
                && !host.starts_with(['.', '-'])
        }
        None => false,
    }
}

fn is_webhook(text: &str) -> bool {
    text.parse::<axum::http::Uri>().is_ok_and(|uri| {
        let authority = uri.authority().map_or("", |a| a.as_str());
        matches!(uri.scheme_str(), Some("http" | "https"))
            && !authority.is_empty()
            && !authority.contains('@')
    })
}
