//! What is known: append-only facts, and the state of the lab at this moment.

use crate::{CommitId, History, Job, Kernel, MachineId, Policy};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// One run's number. A run cut off at a limit is 'at least this slow', not missing.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value {
    Exact(f64),
    AtLeast(f64),
    AtMost(f64),
}

#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// The runs of one boot, in order; `others` holds the other metrics of the same runs.
    Measured {
        values: Vec<Value>,
        others: BTreeMap<String, Vec<Value>>,
    },
    BuildFailed,
    BootFailed,
    BenchmarkFailed,
    /// The lab's attempts are used up: says nothing about the kernel.
    Lost,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Observation {
    pub kernel: Kernel,
    pub machine: MachineId,
    pub replicate: u32,
    /// Seconds since the bisection began at which the boot's first run started (negative for reused boots).
    pub at_s: f64,
    pub outcome: Outcome,
}

/// A kernel that was built; equal digests mean the same binary.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Image {
    pub kernel: Kernel,
    pub digest: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Machine {
    pub id: MachineId,
    pub busy: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OverrideVerdict {
    Good,
    Bad,
    Skip,
}

/// The user's word on a commit, a fact like the others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Override {
    pub commit: CommitId,
    pub verdict: OverrideVerdict,
}

/// All that `plan` may know besides the history.
#[derive(Clone, PartialEq, Debug)]
pub struct Record {
    pub policy: Policy,
    pub machines: Vec<Machine>,
    /// Builders free to build ahead.
    pub builders: u32,
    /// Seconds since the bisection began.
    pub now_s: f64,
    pub images: Vec<Image>,
    pub observations: Vec<Observation>,
    /// Jobs asked for and not finished.
    pub pending: Vec<Job>,
    pub overrides: Vec<Override>,
}

/// A record that contradicts the history or itself; `at` names the place in the door's notation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RecordError {
    InvalidField { at: String, message: String },
    UnknownCommit { at: String, commit: CommitId },
    Duplicate { at: String, message: String },
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::InvalidField { message, .. } | RecordError::Duplicate { message, .. } => {
                f.write_str(message)
            }
            RecordError::UnknownCommit { commit, .. } => write!(f, "commit {commit} is not in the history"),
        }
    }
}

impl std::error::Error for RecordError {}

impl Record {
    /// What makes a record unusable as it came. `plan` is total without it; a door refuses what fails here.
    pub fn check(&self, history: &History) -> Result<(), RecordError> {
        self.check_values()?;
        self.check_commits(history)?;
        self.check_identities()
    }

    fn check_values(&self) -> Result<(), RecordError> {
        let invalid = |at: String, message: &str| RecordError::InvalidField {
            at,
            message: message.to_owned(),
        };
        if !self.now_s.is_finite() {
            return Err(invalid("now_s".into(), "must be finite"));
        }
        for (i, o) in self.observations.iter().enumerate() {
            let at = format!("observations[{i}]");
            if !o.at_s.is_finite() {
                return Err(invalid(format!("{at}.at_s"), "must be finite"));
            }
            let Outcome::Measured { values, others } = &o.outcome else {
                continue;
            };
            let zero = self.policy.metric.may_be_zero;
            check_runs(values, zero, &format!("{at}.outcome.measured.values"))?;
            for (name, values) in others {
                let metric = self.policy.other_metrics.iter().find(|m| m.name == *name);
                let zero = metric.is_none_or(|m| m.may_be_zero);
                check_runs(values, zero, &format!("{at}.outcome.measured.others.{name}"))?;
            }
        }
        Ok(())
    }

    fn check_commits(&self, history: &History) -> Result<(), RecordError> {
        let known = |at: String, commit: &CommitId| match history.place(commit) {
            Some(_) => Ok(()),
            None => Err(RecordError::UnknownCommit {
                at,
                commit: commit.clone(),
            }),
        };
        let kernel = |at: String, kernel: &Kernel| {
            known(format!("{at}.commit"), &kernel.commit)?;
            kernel
                .revert
                .iter()
                .enumerate()
                .try_for_each(|(i, c)| known(format!("{at}.revert[{i}]"), c))
        };
        for (i, image) in self.images.iter().enumerate() {
            kernel(format!("images[{i}].kernel"), &image.kernel)?;
        }
        for (i, o) in self.observations.iter().enumerate() {
            kernel(format!("observations[{i}].kernel"), &o.kernel)?;
        }
        for (i, job) in self.pending.iter().enumerate() {
            kernel(format!("pending[{i}].kernel"), &job.kernel)?;
        }
        for (i, o) in self.overrides.iter().enumerate() {
            known(format!("overrides[{i}].commit"), &o.commit)?;
        }
        for commit in self.policy.costs.build_s_of.keys() {
            known(format!("policy.costs.build_s_of.{commit}"), commit)?;
        }
        Ok(())
    }

    fn check_identities(&self) -> Result<(), RecordError> {
        let twice = |at: String, what: &str| RecordError::Duplicate {
            at,
            message: format!("{what} is there twice"),
        };
        let mut machines = BTreeSet::new();
        for (i, machine) in self.machines.iter().enumerate() {
            if !machines.insert(&machine.id) {
                return Err(twice(format!("machines[{i}].id"), "this machine"));
            }
        }
        let mut jobs = BTreeSet::new();
        for (i, o) in self.observations.iter().enumerate() {
            if !jobs.insert((&o.kernel, &o.machine, o.replicate)) {
                return Err(twice(
                    format!("observations[{i}]"),
                    "an observation of this kernel, machine and replicate",
                ));
            }
        }
        for (i, job) in self.pending.iter().enumerate() {
            if !jobs.insert((&job.kernel, &job.machine, job.replicate)) {
                return Err(twice(
                    format!("pending[{i}]"),
                    "a job of this kernel, machine and replicate",
                ));
            }
        }
        let mut images = BTreeSet::new();
        for (i, image) in self.images.iter().enumerate() {
            if !images.insert(&image.kernel) {
                return Err(twice(format!("images[{i}]"), "an image of this kernel"));
            }
        }
        let mut overrides = BTreeSet::new();
        for (i, o) in self.overrides.iter().enumerate() {
            if !overrides.insert(&o.commit) {
                return Err(twice(format!("overrides[{i}]"), "a verdict on this commit"));
            }
        }
        Ok(())
    }
}

fn check_runs(values: &[Value], may_be_zero: bool, at: &str) -> Result<(), RecordError> {
    for (i, value) in values.iter().enumerate() {
        let (Value::Exact(x) | Value::AtLeast(x) | Value::AtMost(x)) = value;
        let message = if !x.is_finite() {
            "must be finite"
        } else if *x <= 0.0 && !may_be_zero {
            "must be more than 0: zero and negative values need a metric with may_be_zero"
        } else {
            continue;
        };
        return Err(RecordError::InvalidField {
            at: format!("{at}[{i}]"),
            message: message.to_owned(),
        });
    }
    Ok(())
}
