//! A benchmark: set-up, command, parser, metrics.

use super::is_name;
use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A benchmark with set-up, command, parser and metrics.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    pub name: String,
    #[serde(default)]
    pub description: String,
    /// Parameter to its choices, the first one the default; `{name}` in the commands stands for the choice.
    #[serde(default)]
    pub parameters: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    pub setup: Vec<Vec<String>>,
    /// Made for the benchmark alone, and clean before each run.
    #[serde(default)]
    pub file_systems: Vec<FileSystemDef>,
    /// Run before each run, in its file systems; not timed.
    #[serde(default)]
    pub prepare: Vec<Vec<String>>,
    /// Settings that belong to the benchmark (dirty limits, an I/O scheduler), name to value.
    #[serde(default)]
    pub held: BTreeMap<String, String>,
    #[serde(default)]
    pub drop_caches: bool,
    pub command: Vec<String>,
    #[serde(default)]
    pub teardown: Vec<Vec<String>>,
    /// Local files put beside the command, by name.
    #[serde(default)]
    pub files: BTreeMap<String, PathBuf>,
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    pub parser: ParserChoice,
    pub metrics: Vec<MetricDef>,
    #[serde(default)]
    pub warmup_runs: u32,
    #[serde(default = "default_run_limit_s")]
    pub run_limit_s: u32,
    /// A run cut off at the limit says 'at least this slow' for this metric (a time to complete), else nothing.
    pub timeout_means: Option<String>,
}

fn default_run_limit_s() -> u32 {
    600
}

/// A file system below the working directory. `{name}` stands for a parameter's choice in each of its words.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FileSystemDef {
    pub at: String,
    /// A scratch device of the machine's file; unused where `kind` is `tmpfs`.
    pub device: Option<String>,
    /// `ext4`, `xfs`, …: `mkfs.ext4` has to be there.
    pub kind: String,
    #[serde(default)]
    pub mkfs_options: Vec<String>,
    #[serde(default)]
    pub mount_options: String,
    /// Made anew before each `run`, or once a `boot` and mounted again before each run.
    #[serde(default = "default_anew")]
    pub anew: protocol::Anew,
    #[serde(default)]
    pub trim: bool,
}

fn default_anew() -> protocol::Anew {
    protocol::Anew::Run
}

/// Which of `parsers` reads the output, with what it needs to know.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(tag = "name", rename_all = "snake_case", deny_unknown_fields)]
pub enum ParserChoice {
    Fio,
    Tiotest,
    Tiobench,
    Dbench,
    Hackbench,
    PerfBench,
    PerfStat,
    StressNg,
    Bonnie,
    Dd,
    /// Metric name to a regular expression whose first group is the number.
    Regex {
        patterns: BTreeMap<String, String>,
    },
    /// Metric name to a JSON path such as `$.jobs[0].read.iops`.
    JsonPath {
        paths: BTreeMap<String, String>,
    },
}

impl ParserChoice {
    pub fn parser(&self) -> Result<parsers::Parser, parsers::BadParser> {
        Ok(match self {
            ParserChoice::Fio => parsers::Parser::Fio,
            ParserChoice::Tiotest => parsers::Parser::Tiotest,
            ParserChoice::Tiobench => parsers::Parser::Tiobench,
            ParserChoice::Dbench => parsers::Parser::Dbench,
            ParserChoice::Hackbench => parsers::Parser::Hackbench,
            ParserChoice::PerfBench => parsers::Parser::PerfBench,
            ParserChoice::PerfStat => parsers::Parser::PerfStat,
            ParserChoice::StressNg => parsers::Parser::StressNg,
            ParserChoice::Bonnie => parsers::Parser::Bonnie,
            ParserChoice::Dd => parsers::Parser::Dd,
            ParserChoice::Regex { patterns } => parsers::Parser::regex(patterns)?,
            ParserChoice::JsonPath { paths } => parsers::Parser::json_path(paths)?,
        })
    }
}

#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct MetricDef {
    pub name: String,
    pub unit: String,
    pub higher_is_better: bool,
    #[serde(default)]
    pub may_be_zero: bool,
}

impl MetricDef {
    pub fn wanted(&self) -> parsers::Wanted {
        let MetricDef {
            name,
            unit,
            higher_is_better: _,
            may_be_zero,
        } = self;
        parsers::Wanted {
            name: name.clone(),
            unit: unit.clone(),
            may_be_zero: *may_be_zero,
        }
    }
}

pub(super) fn check_workload(workload: &Workload) -> anyhow::Result<()> {
    ensure!(
        is_name(&workload.name),
        "name = \"{}\": letters, digits, `-`, `_` and `.`",
        workload.name
    );
    ensure!(!workload.command.is_empty(), "command is empty");
    ensure!(
        !workload.metrics.is_empty(),
        "no [[metrics]]: say at least which number is judged"
    );
    ensure!(workload.run_limit_s > 0, "run_limit_s is 0");
    for file_system in &workload.file_systems {
        let inside = std::path::Path::new(&file_system.at)
            .components()
            .all(|c| matches!(c, std::path::Component::Normal(_)));
        ensure!(
            inside && !file_system.at.is_empty(),
            "file_systems.at = \"{}\" is no path below the working directory",
            file_system.at
        );
        ensure!(
            file_system.device.is_some() || file_system.kind == "tmpfs",
            "file_systems at {}: {} needs a device",
            file_system.at,
            file_system.kind
        );
    }
    for (name, choices) in &workload.parameters {
        ensure!(!choices.is_empty(), "parameters.{name} has no choice");
    }
    for (name, path) in &workload.files {
        ensure!(path.is_file(), "files.{name}: {} is no file", path.display());
    }
    workload.parser.parser().context("parser")?;
    if let Some(metric) = &workload.timeout_means {
        let known = workload.metrics.iter().any(|m| &m.name == metric);
        ensure!(known, "timeout_means = \"{metric}\" is none of the metrics");
    }
    Ok(())
}
