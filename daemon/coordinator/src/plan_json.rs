//! The JSON of the mind's types: one format for the offline door, stored rows and the API.
//!
//! Reading is strict: an unknown field, a number that is not finite, a wrong type are refused with the place
//! (`observations[3].outcome.measured`), so that a typing error never becomes a default. What this room must
//! *not* know: where the JSON comes from, and anything about judging.

mod conclusion;
mod fields;
mod line;
mod outcome;
mod plan;
mod policy;
mod text;

pub use conclusion::{conclusion_from_json, conclusion_to_json};
pub use fields::{Kind, Malformed};
pub use line::{history_from_json, line_history, record_error, record_from_json};
pub use outcome::{outcome_from_json, outcome_to_json};
pub use plan::{plan_to_json, step_to_json};
pub use policy::{policy_from_json, policy_to_json};
pub use text::value_from_text;

use bisect::{CommitId, Job, Kernel, MachineId};
use fields::{Fields, array, count_u32, text};
use serde_json::{Map, Value, json};

/// `{"commit": id}`, with `revert`, `patches` and `layout` only where there are any: the canonical form.
pub fn kernel_to_json(kernel: &Kernel) -> Value {
    let Kernel {
        commit,
        revert,
        patches,
        layout,
    } = kernel;
    let mut map = Map::new();
    map.insert("commit".into(), json!(commit.as_str()));
    if !revert.is_empty() {
        map.insert(
            "revert".into(),
            revert.iter().map(|c| json!(c.as_str())).collect(),
        );
    }
    if !patches.is_empty() {
        map.insert("patches".into(), json!(patches));
    }
    if *layout > 0 {
        map.insert("layout".into(), json!(layout));
    }
    Value::Object(map)
}

pub fn kernel_from_json(value: &Value, at: &str) -> Result<Kernel, Malformed> {
    let mut fields = Fields::of(value, at)?;
    let commit = CommitId::new(text(fields.need("commit")?)?);
    let revert = match fields.get("revert") {
        Some(list) => array(list)?
            .into_iter()
            .map(|v| Ok(CommitId::new(text(v)?)))
            .collect::<Result<_, _>>()?,
        None => Vec::new(),
    };
    let patches = match fields.get("patches") {
        Some(list) => array(list)?
            .into_iter()
            .map(|v| Ok(text(v)?.to_owned()))
            .collect::<Result<_, _>>()?,
        None => Vec::new(),
    };
    let layout = fields.get("layout").map(count_u32).transpose()?.unwrap_or(0);
    fields.end()?;
    Ok(Kernel {
        commit,
        revert,
        patches,
        layout,
    })
}

pub fn job_to_json(job: &Job) -> Value {
    let Job {
        kernel,
        machine,
        replicate,
        runs,
    } = job;
    json!({
        "kernel": kernel_to_json(kernel),
        "machine": machine.as_str(),
        "replicate": replicate,
        "runs": runs,
    })
}

/// `runs` may be left out (3): the offline door's `pending` only needs the identity.
pub fn job_from_json(value: &Value, at: &str) -> Result<Job, Malformed> {
    let mut fields = Fields::of(value, at)?;
    let (kernel, kernel_at) = fields.need("kernel")?;
    let kernel = kernel_from_json(kernel, &kernel_at)?;
    let machine = MachineId::new(text(fields.need("machine")?)?);
    let replicate = fields.get("replicate").map(count_u32).transpose()?.unwrap_or(0);
    let runs = fields.get("runs").map(count_u32).transpose()?.unwrap_or(3);
    fields.end()?;
    Ok(Job {
        kernel,
        machine,
        replicate,
        runs,
    })
}

#[cfg(test)]
mod tests;
