//! Decisions and conclusions as pages read them back.
//!
//! What was decided was written by the planner's version of that day, so every field may be missing: an old
//! decision still has a page.

use serde::Deserialize;
use serde_json::Value;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PlanRead {
    pub step: StepRead,
    pub suspects: Vec<SuspectRead>,
    pub suspects_left: u32,
    pub p_no_change: f64,
    pub verdicts: Vec<VerdictRead>,
    pub effect: Option<EffectRead>,
    pub good_level: Option<LevelRead>,
    pub bad_level: Option<LevelRead>,
    pub noise: NoiseRead,
    pub min_detectable_pct: Option<f64>,
    pub remaining: RemainingRead,
    pub reason: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct StepRead {
    pub run: Vec<JobRead>,
    pub conclude: Option<ConclusionRead>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct JobRead {
    pub kernel: KernelRead,
    pub machine: String,
    pub replicate: u32,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct KernelRead {
    pub commit: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct SuspectRead {
    pub commit: String,
    pub probability: f64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct VerdictRead {
    pub commit: String,
    pub verdict: String,
    pub why: Option<String>,
    pub boots: Option<u32>,
    pub level: Option<f64>,
    pub p_bad: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct EffectRead {
    pub pct: f64,
    pub ci95_pct: [f64; 2],
}

/// A level of an end with its 95 % interval.
#[derive(Clone, Copy, PartialEq, Debug, Default, Deserialize)]
#[serde(from = "LevelForm")]
pub struct LevelRead {
    pub level: f64,
    pub low: f64,
    pub high: f64,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum LevelForm {
    Named { level: f64, ci95: [f64; 2] },
    Listed([f64; 3]),
}

impl From<LevelForm> for LevelRead {
    fn from(form: LevelForm) -> LevelRead {
        match form {
            LevelForm::Named {
                level,
                ci95: [low, high],
            }
            | LevelForm::Listed([level, low, high]) => LevelRead { level, low, high },
        }
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NoiseRead {
    pub boot_pct: f64,
    pub run_pct: f64,
    pub modes: u32,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct RemainingRead {
    pub kernels: u32,
    pub boots: u32,
    pub time_s: f64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ConclusionRead {
    pub status: String,
    pub first_bad: Vec<String>,
    pub improved: Vec<String>,
    pub suspects: Vec<String>,
    pub confidence: Option<f64>,
    pub size_confidence: Option<f64>,
    pub effect_pct: Option<f64>,
    pub ci95_pct: Option<[f64; 2]>,
    pub share_of_loss: Option<f64>,
    pub machines: Vec<String>,
    pub not_reproduced_on: Vec<String>,
    pub checks: Vec<CheckRead>,
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct CheckRead {
    pub check: String,
    pub result: String,
    pub detail: String,
}

/// A decision's plan; one that cannot be read is an empty one, said in the log once by the caller's page.
pub fn plan(value: &Value) -> PlanRead {
    PlanRead::deserialize(value).unwrap_or_else(|error| {
        tracing::warn!(%error, "a decision's plan is in a form that pages cannot read");
        PlanRead::default()
    })
}

pub fn conclusion(value: &Value) -> ConclusionRead {
    ConclusionRead::deserialize(value).unwrap_or_else(|error| {
        tracing::warn!(%error, "a conclusion is in a form that pages cannot read");
        ConclusionRead::default()
    })
}

/// What a boot yielded, out of an observation's outcome: `None` where it yielded no numbers.
pub fn measured(outcome: &Value) -> Option<Vec<RunRead>> {
    let values = outcome.get("measured")?.get("values")?.as_array()?;
    Some(values.iter().filter_map(RunRead::of).collect())
}

/// `build_failed` and its like, where the outcome is no measurement.
pub fn failed(outcome: &Value) -> Option<&str> {
    outcome.as_str()
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RunRead {
    pub value: f64,
    pub bound: Bound,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bound {
    Exact,
    AtLeast,
    AtMost,
}

impl RunRead {
    fn of(value: &Value) -> Option<RunRead> {
        let bounded = |name: &str, bound| value.get(name)?.as_f64().map(|value| RunRead { value, bound });
        match value.as_f64() {
            Some(value) => Some(RunRead {
                value,
                bound: Bound::Exact,
            }),
            None => bounded("at_least", Bound::AtLeast).or_else(|| bounded("at_most", Bound::AtMost)),
        }
    }

    pub fn said(&self) -> String {
        let sign = match self.bound {
            Bound::Exact => "",
            Bound::AtLeast => "≥\u{202f}",
            Bound::AtMost => "≤\u{202f}",
        };
        format!("{sign}{}", super::say::number(self.value))
    }
}

/// Words of the record, as people say them.
pub fn outcome_words(word: &str) -> &str {
    match word {
        "build_failed" => "did not build",
        "boot_failed" => "did not boot",
        "benchmark_failed" => "benchmark failed",
        "lost" => "lost by the lab",
        "override" => "set aside by hand",
        other => other,
    }
}
