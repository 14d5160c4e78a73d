//! The scenario file, as it is written: a history, a measuring machine and the right outcome.

use super::draw::{GRAPH, fold};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Deserialize)]
pub struct File {
    #[serde(default)]
    pub test_vectors: Vec<TestVector>,
    pub scenarios: Vec<Scenario>,
}

#[derive(Deserialize)]
pub struct TestVector {
    pub expr: String,
    pub hex: Option<String>,
    pub value: Option<String>,
}

#[derive(Deserialize, Clone)]
pub struct Scenario {
    pub name: String,
    pub seed: u64,
    pub history: History,
    pub range: Range,
    pub metric: Metric,
    pub culprits: Vec<String>,
    pub measurement: Measurement,
    #[serde(default)]
    pub commit_behaviour: Vec<Behaviour>,
    #[serde(default)]
    pub machines: Vec<Machine>,
    #[serde(default)]
    pub config: Value,
    #[serde(default)]
    pub faults: Vec<Value>,
    pub expected: Expected,
}

#[derive(Deserialize, Clone)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum History {
    Linear {
        n: usize,
        prefix: String,
    },
    Explicit {
        commits: Vec<Commit>,
    },
    MergeTrain {
        seed: u64,
        merges: u64,
        max_len: u64,
        lookback: u64,
    },
}

#[derive(Deserialize, Clone, Debug)]
pub struct Commit {
    pub id: String,
    pub parents: Vec<String>,
}

#[derive(Deserialize, Clone)]
pub struct Range {
    pub good: String,
    pub bad: String,
}

#[derive(Deserialize, Clone)]
pub struct Metric {
    pub name: String,
    pub unit: String,
    pub higher_is_better: bool,
    pub min_effect_pct: f64,
}

#[derive(Deserialize, Clone)]
pub struct Measurement {
    pub base: Base,
    #[serde(default)]
    pub effects: Vec<Effect>,
    #[serde(default)]
    pub cv_effects: Vec<Effect>,
    #[serde(default)]
    pub modifiers: Vec<Modifier>,
    #[serde(default)]
    pub raw: BTreeMap<String, Vec<f64>>,
}

#[derive(Deserialize, Clone)]
pub struct Base {
    pub mean: f64,
    pub cv_pct: f64,
}

#[derive(Deserialize, Clone)]
#[serde(untagged)]
pub enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    pub fn all(&self) -> Vec<&str> {
        match self {
            OneOrMany::One(id) => vec![id],
            OneOrMany::Many(ids) => ids.iter().map(String::as_str).collect(),
        }
    }
}

#[derive(Deserialize, Clone)]
pub struct Effect {
    pub from: OneOrMany,
    pub factor: f64,
    #[serde(default)]
    pub until: Vec<String>,
    pub machines: Option<Vec<String>>,
    pub vanishes_with: Option<String>,
}

#[derive(Deserialize, Clone)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Modifier {
    BootBimodal {
        p: f64,
        factor: f64,
    },
    FirstRuns {
        factors: Vec<f64>,
    },
    Drift {
        pct_per_hour: f64,
        max_pct: f64,
    },
    Window {
        from_min: f64,
        to_min: f64,
        factor: f64,
    },
    Periodic {
        period_min: f64,
        length_min: f64,
        factor: f64,
    },
    Outlier {
        p: f64,
        factor: f64,
    },
    Ageing {
        pct_per_run: f64,
    },
}

#[derive(Deserialize, Clone)]
#[serde(untagged)]
pub enum Which {
    Ids(Vec<String>),
    Between { from: String, to: String },
    Text(String),
}

#[derive(Deserialize, Clone)]
pub struct Behaviour {
    pub commits: Which,
    pub build: Option<String>,
    pub boot: Option<String>,
    pub bench: Option<String>,
    pub identical_to: Option<String>,
    #[serde(default)]
    pub transient: bool,
    #[serde(default)]
    pub probability: f64,
}

#[derive(Deserialize, Clone)]
pub struct Machine {
    pub id: String,
    pub factor: f64,
}

#[derive(Deserialize, Clone)]
pub struct Expected {
    pub status: String,
    #[serde(default)]
    pub accept_status: Vec<String>,
    #[serde(default)]
    pub first_bad: Vec<String>,
    #[serde(default)]
    pub also_improved: Vec<String>,
    #[serde(default)]
    pub suspects: Vec<String>,
    #[serde(default)]
    pub must_not_blame: Vec<String>,
    pub reason: Option<String>,
    pub max_commits_tested: Option<usize>,
}

/// Commits that a scenario may have.
const MOST_COMMITS: usize = 200_000;

impl Scenario {
    /// What can't be played, if anything: names the field.
    pub fn check(&self) -> Result<(), String> {
        let commits = match &self.history {
            History::Linear { n, .. } => *n as u64,
            History::Explicit { commits } => commits.len() as u64,
            History::MergeTrain { max_len: 0, .. } => return Err("history.max_len is 0".into()),
            History::MergeTrain { lookback: 0, .. } => return Err("history.lookback is 0".into()),
            History::MergeTrain { merges, max_len, .. } => merges.saturating_mul(max_len.saturating_add(1)),
        };
        if commits > MOST_COMMITS as u64 {
            return Err(format!(
                "history: up to {commits} commits, at most {MOST_COMMITS} can be played"
            ));
        }
        if let Some((id, _)) = self.measurement.raw.iter().find(|(_, values)| values.is_empty()) {
            return Err(format!("measurement.raw.{id} is empty"));
        }
        let base = &self.measurement.base;
        if !(base.mean > 0.0 && base.mean.is_finite() && base.cv_pct >= 0.0 && base.cv_pct.is_finite()) {
            return Err("measurement.base: the mean is above 0, the noise not below".into());
        }
        if !(self.metric.min_effect_pct > 0.0 && self.metric.min_effect_pct.is_finite()) {
            return Err("metric.min_effect_pct is not above 0".into());
        }
        Ok(())
    }

    /// Commits, parents first; the position is the commit's index.
    pub fn commits(&self) -> Vec<Commit> {
        match &self.history {
            History::Explicit { commits } => commits.clone(),
            History::Linear { n, prefix } => (0..*n)
                .map(|i| Commit {
                    id: format!("{prefix}{i}"),
                    parents: i
                        .checked_sub(1)
                        .map(|p| format!("{prefix}{p}"))
                        .into_iter()
                        .collect(),
                })
                .collect(),
            History::MergeTrain {
                seed,
                merges,
                max_len,
                lookback,
            } => merge_train(*seed, *merges, *max_len, *lookback),
        }
    }
}

fn merge_train(seed: u64, merges: u64, max_len: u64, lookback: u64) -> Vec<Commit> {
    let mut all = vec![Commit {
        id: "m0".into(),
        parents: Vec::new(),
    }];
    for i in 1..=merges {
        let length = 1 + fold(seed, &[GRAPH, i, 0]) % max_len;
        let fork = i - 1 - fold(seed, &[GRAPH, i, 1]) % i.min(lookback);
        let mut parent = format!("m{fork}");
        for j in 1..=length {
            let id = format!("b{i}_{j}");
            all.push(Commit {
                id: id.clone(),
                parents: vec![parent],
            });
            parent = id;
        }
        all.push(Commit {
            id: format!("m{i}"),
            parents: vec![format!("m{}", i - 1), parent],
        });
    }
    all
}
