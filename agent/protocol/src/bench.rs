//! A benchmark and its runs.

use crate::{Disturbance, FileSystem};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Bench {
    pub setup: Vec<Vec<String>>,
    /// argv; a first word of `{agent}` is the agent's own path (its built-in micro benchmarks).
    pub command: Vec<String>,
    pub teardown: Vec<Vec<String>>,
    /// Run and thrown away before the runs that count.
    pub warmup_runs: u32,
    pub runs: u32,
    pub run_limit_s: u32,
    /// Files put beside the command (in the guest: into its initramfs), by path; executable.
    pub files: BTreeMap<String, String>,
    pub environment: BTreeMap<String, String>,
    /// Settings of the system that the benchmark runs in, name to value; see the agent's `held`.
    #[serde(default)]
    pub held: BTreeMap<String, String>,
    /// Made and mounted before the set-up; unmounted and mounted again, or made anew, before each run.
    #[serde(default)]
    pub file_systems: Vec<FileSystem>,
    /// Run before each run, with the file systems in place; no part of its time.
    #[serde(default)]
    pub prepare: Vec<Vec<String>>,
    /// Before each run, after all else: written back, and the page cache emptied.
    #[serde(default)]
    pub drop_caches: bool,
}

/// One execution of the benchmark, raw: the daemon's parsers read it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Run {
    pub number: u32,
    pub warmup: bool,
    /// Seconds since the order began.
    pub start_s: f64,
    pub wall_s: f64,
    pub exit: Exit,
    /// Up to [`OUTPUT_LIMIT_BYTES`] each; lossy UTF-8.
    pub stdout: String,
    pub stderr: String,
    /// What went on beside it where it ran.
    #[serde(default)]
    pub disturbance: Option<Disturbance>,
}

/// More output than this of one run is cut, and the cut is said in the text.
pub const OUTPUT_LIMIT_BYTES: usize = 4 << 20;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    Status(i32),
    Signal(i32),
    /// Ended by the run's time limit: 'at least this slow'.
    TimedOut,
}
