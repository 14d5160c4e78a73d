//! What is known: append-only facts, and the state of the lab at this moment.

use crate::{CommitId, Job, Kernel, MachineId, Policy};
use std::collections::BTreeMap;

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
    Measured { values: Vec<Value>, others: BTreeMap<String, Vec<Value>> },
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
