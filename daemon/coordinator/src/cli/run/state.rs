//! What a run knows, in a file: settings first, then a fact a line, appended and synced before the next step.
//!
//! The file is all that `--continue` needs. A line cut off by a crash is dropped: what it told happens again.

use crate::plan_json::{
    conclusion_from_json, kernel_from_json, kernel_to_json, outcome_from_json, outcome_to_json,
    policy_from_json,
};
use anyhow::{Context, bail};
use bisect::{
    CommitId, Conclusion, Costs, History, Image, Kernel, Machine, MachineId, Observation, Outcome, Override,
    OverrideVerdict, Policy, Record,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};

/// The only machine there is.
pub const HERE: &str = "here";

/// What was asked for, resolved: nothing in here is looked up again.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    pub version: u32,
    pub began_unix_s: f64,
    /// Left out: a good end is looked for among the tags that fit this pattern.
    pub good: Option<String>,
    pub find_good: Option<String>,
    pub bad: String,
    pub first_parent: bool,
    pub paths: Vec<String>,
    pub terms: (String, String),
    pub policy: Value,
    pub measure: super::measure::Measure,
    pub worktrees: PathBuf,
    pub worktrees_most: usize,
}

pub const VERSION: u32 = 1;

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    Settings(Box<Settings>),
    /// A good end was found.
    Good {
        commit: String,
        name: String,
    },
    Built {
        commit: String,
        digest: String,
        took_s: f64,
    },
    Observed {
        kernel: Value,
        replicate: u32,
        at_s: f64,
        took_s: f64,
        outcome: Value,
    },
    /// The user's word, or the command's (exit code 125).
    Word {
        commit: String,
        verdict: String,
        why: String,
    },
    Concluded(Value),
}

pub struct State {
    pub path: PathBuf,
    file: File,
    pub settings: Settings,
    pub policy: Policy,
    pub good: Option<CommitId>,
    pub observations: Vec<Observation>,
    pub images: Vec<Image>,
    pub words: Vec<Override>,
    pub concluded: Option<Conclusion>,
    build_s: Vec<f64>,
    /// Seconds of each measured value.
    run_s: Vec<f64>,
}

impl State {
    /// Begins a new file; an older one that is finished makes way.
    pub fn begin(path: &Path, settings: Settings) -> anyhow::Result<State> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let file = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(path);
        let file = file.with_context(|| format!("{} cannot be written", path.display()))?;
        lock(&file, path)?;
        file.set_len(0)?;
        let mut state = State::empty(path, file, settings.clone())?;
        state.append(&Line::Settings(Box::new(settings)))?;
        Ok(state)
    }

    /// Reads an earlier run's file, to go on or to tell about.
    pub fn open(path: &Path, to_go_on: bool) -> anyhow::Result<State> {
        let file = File::options().read(true).write(to_go_on).open(path);
        let mut file =
            file.with_context(|| format!("no run was begun here: {} is not there", path.display()))?;
        if to_go_on {
            lock(&file, path)?;
        }
        let text = std::fs::read(path)?;
        let whole = text.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
        let text = String::from_utf8_lossy(&text[..whole]).into_owned();
        let mut lines = text.lines().enumerate().map(|(number, line)| {
            serde_json::from_str::<Line>(line)
                .with_context(|| format!("{}, line {}: cannot be read", path.display(), number + 1))
        });
        let Some(Line::Settings(settings)) = lines.next().transpose()? else {
            bail!("{}: holds no settings: begin anew", path.display());
        };
        if settings.version != VERSION {
            bail!("{}: written by another version: begin anew", path.display());
        }
        if to_go_on {
            file.set_len(whole as u64)?;
            file.seek(std::io::SeekFrom::End(0))?;
        }
        let mut state = State::empty(path, file, *settings)?;
        for line in lines {
            state
                .take(&line?)
                .map_err(|why| anyhow::anyhow!("{}: {why}", path.display()))?;
        }
        Ok(state)
    }

    fn empty(path: &Path, file: File, settings: Settings) -> anyhow::Result<State> {
        Ok(State {
            path: path.to_owned(),
            file,
            policy: policy_from_json(&settings.policy, "policy")?,
            good: settings.good.as_ref().map(CommitId::new),
            settings,
            observations: Vec::new(),
            images: Vec::new(),
            words: Vec::new(),
            concluded: None,
            build_s: Vec::new(),
            run_s: Vec::new(),
        })
    }

    /// Keeps a fact: on disk first, then here.
    pub fn add(&mut self, line: &Line) -> anyhow::Result<()> {
        self.append(line)?;
        self.take(line).map_err(|why| anyhow::anyhow!(why))
    }

    fn append(&mut self, line: &Line) -> anyhow::Result<()> {
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        let kept = self
            .file
            .write_all(text.as_bytes())
            .and_then(|()| self.file.sync_data());
        kept.with_context(|| format!("{} cannot be written", self.path.display()))
    }

    fn take(&mut self, line: &Line) -> Result<(), String> {
        let text = |error: crate::plan_json::Malformed| error.to_string();
        match line {
            Line::Settings(_) => return Err("settings are there twice".into()),
            Line::Good { commit, .. } => self.good = Some(CommitId::new(commit)),
            Line::Built {
                commit,
                digest,
                took_s,
            } => {
                let kernel = Kernel::plain(CommitId::new(commit));
                self.build_s.push(*took_s);
                // A worktree may have gone over to another commit in between: the kernel is built again, and known.
                if !self.images.iter().any(|i| i.kernel == kernel) {
                    let digest = digest.clone();
                    self.images.push(Image { kernel, digest });
                }
            }
            Line::Observed {
                kernel,
                replicate,
                at_s,
                took_s,
                outcome,
            } => {
                let outcome = outcome_from_json(outcome, "outcome").map_err(text)?;
                if let Outcome::Measured { values, .. } = &outcome {
                    self.run_s.push(took_s / values.len().max(1) as f64);
                }
                self.observations.push(Observation {
                    kernel: kernel_from_json(kernel, "kernel").map_err(text)?,
                    machine: MachineId::new(HERE),
                    replicate: *replicate,
                    at_s: *at_s,
                    outcome,
                });
            }
            Line::Word { commit, verdict, .. } => {
                let verdict = match verdict.as_str() {
                    "good" => OverrideVerdict::Good,
                    "bad" => OverrideVerdict::Bad,
                    "skip" => OverrideVerdict::Skip,
                    other => return Err(format!("unknown verdict `{other}`")),
                };
                let commit = CommitId::new(commit);
                self.words.retain(|w| w.commit != commit);
                self.words.push(Override { commit, verdict });
            }
            Line::Concluded(conclusion) => {
                self.concluded = Some(conclusion_from_json(conclusion).map_err(text)?);
            }
        }
        Ok(())
    }

    /// What the mind may know: facts about commits of this history.
    pub fn record(&self, history: &History, now_s: f64) -> Record {
        let known = |commit: &CommitId| history.place(commit).is_some();
        let mut policy = self.policy.clone();
        policy.costs = self.costs();
        Record {
            policy,
            machines: vec![Machine {
                id: MachineId::new(HERE),
                busy: false,
            }],
            builders: 0,
            now_s,
            images: self
                .images
                .iter()
                .filter(|i| known(&i.kernel.commit))
                .cloned()
                .collect(),
            observations: self
                .observations
                .iter()
                .filter(|o| known(&o.kernel.commit))
                .cloned()
                .collect(),
            pending: Vec::new(),
            overrides: self.words.iter().filter(|w| known(&w.commit)).cloned().collect(),
        }
    }

    /// What things took so far. A fresh process costs nothing beside what it does.
    fn costs(&self) -> Costs {
        let mean = |of: &[f64]| match of.len() {
            0 => 1.0,
            n => of.iter().sum::<f64>() / n as f64,
        };
        Costs {
            build_s: mean(&self.build_s),
            boot_s: 0.0,
            run_s: mean(&self.run_s).max(1e-3),
            build_s_of: BTreeMap::new(),
        }
    }

    /// Seconds that commands ran, builds and measurements together.
    pub fn spent_s(&self) -> f64 {
        self.build_s.iter().sum::<f64>() + self.run_s.iter().sum::<f64>()
    }

    pub fn any_measured(&self) -> bool {
        self.observations.iter().any(measured)
    }

    pub fn is_measured(&self, commit: &CommitId) -> bool {
        self.observations
            .iter()
            .any(|o| measured(o) && o.kernel.commit == *commit)
    }

    pub fn kernels(&self) -> usize {
        let commits = self.observations.iter().map(|o| &o.kernel.commit);
        commits.collect::<std::collections::BTreeSet<_>>().len()
    }
}

fn measured(o: &Observation) -> bool {
    matches!(o.outcome, Outcome::Measured { .. })
}

pub fn observed(kernel: &Kernel, replicate: u32, at_s: f64, took_s: f64, outcome: &Outcome) -> Line {
    Line::Observed {
        kernel: kernel_to_json(kernel),
        replicate,
        at_s,
        took_s,
        outcome: outcome_to_json(outcome),
    }
}

/// Two runs at once would disturb each other's measurements.
fn lock(file: &File, path: &Path) -> anyhow::Result<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(std::fs::TryLockError::WouldBlock) => {
            bail!("{}: another run is under way in this repository", path.display())
        }
        Err(std::fs::TryLockError::Error(error)) => Err(error.into()),
    }
}
