//! One line of the offline door: a history (where given) and a record.

use super::fields::{At, Fields, Kind, Malformed, array, count_u32, entries, number, positive, text, truth};
use super::{job_from_json, kernel_from_json, outcome_from_json, policy_from_json};
use bisect::{
    Commit, CommitId, History, HistoryError, Image, Machine, MachineId, Observation, Override,
    OverrideVerdict, Record, RecordError,
};
use serde_json::Value;
use std::collections::BTreeMap;

/// The history of a line, where it gives one.
pub fn line_history(line: &Value) -> Result<Option<History>, Malformed> {
    let mut fields = Fields::of(line, "")?;
    match fields.get("history") {
        Some((value, at)) => history_from_json(value, &at).map(Some),
        None => Ok(None),
    }
}

pub fn history_from_json(value: &Value, at: &str) -> Result<History, Malformed> {
    let mut fields = Fields::of(value, at)?;
    let good = CommitId::new(text(fields.need("good")?)?);
    let bad = CommitId::new(text(fields.need("bad")?)?);
    let commits = array(fields.need("commits")?)?
        .into_iter()
        .map(commit_from_json)
        .collect::<Result<Vec<_>, Malformed>>()?;
    let first_parent = fields
        .get("first_parent")
        .map(truth)
        .transpose()?
        .unwrap_or(false);
    let weights = match fields.get("weights") {
        Some(map) => entries(map)?
            .into_iter()
            .map(|(commit, weight)| Ok((CommitId::new(commit), positive(weight)?)))
            .collect::<Result<BTreeMap<_, _>, Malformed>>()?,
        None => BTreeMap::new(),
    };
    fields.end()?;
    History::new(good, bad, commits, first_parent, weights).map_err(|e| history_error(e, at))
}

fn commit_from_json((value, at): At<'_>) -> Result<Commit, Malformed> {
    let mut fields = Fields::of(value, &at)?;
    let id = CommitId::new(text(fields.need("id")?)?);
    let parents = match fields.get("parents") {
        Some(list) => array(list)?
            .into_iter()
            .map(|v| Ok(CommitId::new(text(v)?)))
            .collect::<Result<_, Malformed>>()?,
        None => Vec::new(),
    };
    fields.end()?;
    Ok(Commit { id, parents })
}

fn history_error(error: HistoryError, at: &str) -> Malformed {
    let place = |inner: &str| super::fields::join(at, inner);
    let (kind, at, message) = match &error {
        HistoryError::UnknownCommit { at, .. } => (Kind::UnknownCommit, place(at), error.to_string()),
        HistoryError::Duplicate { at, .. } => (Kind::Duplicate, place(at), error.to_string()),
        HistoryError::Cycle { .. } => (Kind::Cycle, place("commits"), error.to_string()),
        HistoryError::EqualEnds => (Kind::EqualEnds, at.to_owned(), error.to_string()),
        HistoryError::ReversedRange => (Kind::ReversedRange, at.to_owned(), error.to_string()),
        HistoryError::NoCommonAncestor => (Kind::NoCommonAncestor, at.to_owned(), error.to_string()),
        HistoryError::InvalidWeight { at, .. } => (Kind::InvalidField, place(at), error.to_string()),
    };
    Malformed { kind, message, at }
}

/// The record of a line; `history` beside it is allowed and not read.
pub fn record_from_json(value: &Value) -> Result<Record, Malformed> {
    let mut fields = Fields::of(value, "")?;
    fields.get("history");
    let (policy, at) = fields.need("policy")?;
    let policy = policy_from_json(policy, &at)?;
    let machines = list(Some(fields.need("machines")?), machine_from_json)?;
    let builders = fields.get("builders").map(count_u32).transpose()?.unwrap_or(0);
    let now_s = fields.get("now_s").map(number).transpose()?;
    let images = list(fields.get("images"), image_from_json)?;
    let observations = list(fields.get("observations"), observation_from_json)?;
    let pending = list(fields.get("pending"), |(v, at)| job_from_json(v, &at))?;
    let overrides = list(fields.get("overrides"), override_from_json)?;
    fields.end()?;
    // Left out, now is when the latest boot began: the least that can be true.
    let latest = observations.iter().map(|o| o.at_s).fold(0.0, f64::max);
    let now_s = now_s.unwrap_or(latest);
    Ok(Record {
        policy,
        machines,
        builders,
        now_s,
        images,
        observations,
        pending,
        overrides,
    })
}

/// The door's form of what [`Record::check`] finds.
pub fn record_error(error: RecordError) -> Malformed {
    let message = error.to_string();
    let (kind, at) = match error {
        RecordError::InvalidField { at, .. } => (Kind::InvalidField, at),
        RecordError::UnknownCommit { at, .. } => (Kind::UnknownCommit, at),
        RecordError::Duplicate { at, .. } => (Kind::Duplicate, at),
    };
    Malformed { kind, message, at }
}

fn list<T>(value: Option<At<'_>>, one: impl Fn(At<'_>) -> Result<T, Malformed>) -> Result<Vec<T>, Malformed> {
    match value {
        Some(value) => array(value)?.into_iter().map(one).collect(),
        None => Ok(Vec::new()),
    }
}

fn machine_from_json((value, at): At<'_>) -> Result<Machine, Malformed> {
    let mut fields = Fields::of(value, &at)?;
    let id = MachineId::new(text(fields.need("id")?)?);
    let busy = fields.get("busy").map(truth).transpose()?.unwrap_or(false);
    fields.end()?;
    Ok(Machine { id, busy })
}

fn image_from_json((value, at): At<'_>) -> Result<Image, Malformed> {
    let mut fields = Fields::of(value, &at)?;
    let (kernel, kernel_at) = fields.need("kernel")?;
    let kernel = kernel_from_json(kernel, &kernel_at)?;
    let digest = text(fields.need("digest")?)?.to_owned();
    fields.end()?;
    Ok(Image { kernel, digest })
}

fn observation_from_json((value, at): At<'_>) -> Result<Observation, Malformed> {
    let mut fields = Fields::of(value, &at)?;
    let (kernel, kernel_at) = fields.need("kernel")?;
    let kernel = kernel_from_json(kernel, &kernel_at)?;
    let machine = MachineId::new(text(fields.need("machine")?)?);
    let replicate = fields.get("replicate").map(count_u32).transpose()?.unwrap_or(0);
    let at_s = fields.get("at_s").map(number).transpose()?.unwrap_or(0.0);
    let (outcome, outcome_at) = fields.need("outcome")?;
    let outcome = outcome_from_json(outcome, &outcome_at)?;
    fields.end()?;
    Ok(Observation {
        kernel,
        machine,
        replicate,
        at_s,
        outcome,
    })
}

fn override_from_json((value, at): At<'_>) -> Result<Override, Malformed> {
    let mut fields = Fields::of(value, &at)?;
    let commit = CommitId::new(text(fields.need("commit")?)?);
    let (word, word_at) = fields.need("verdict")?;
    let verdict = match text((word, word_at.clone()))? {
        "good" => OverrideVerdict::Good,
        "bad" => OverrideVerdict::Bad,
        "skip" => OverrideVerdict::Skip,
        other => {
            return Err(Malformed::field(
                word_at,
                format!("expected good, bad or skip, found `{other}`"),
            ));
        }
    };
    fields.end()?;
    Ok(Override { commit, verdict })
}
