//! What a search depends on, frozen at submission: the case, the recipe, how a kernel is named.
//!
//! Each is a value with a canonical JSON form; its SHA-256 is its name in the store. A file edited later is
//! another value, for later searches.

use crate::config::{BuildRecipe, FileSystemDef, MetricDef, ParserChoice, Workload};
use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A workload with one choice of its parameters, ready to run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Case {
    pub workload: String,
    pub parameters: BTreeMap<String, String>,
    pub setup: Vec<Vec<String>>,
    pub command: Vec<String>,
    pub teardown: Vec<Vec<String>>,
    /// Name to the SHA-256 of the file.
    pub files: BTreeMap<String, String>,
    pub environment: BTreeMap<String, String>,
    pub parser: ParserChoice,
    pub metrics: Vec<MetricDef>,
    pub warmup_runs: u32,
    pub run_limit_s: u32,
    pub timeout_means: Option<String>,
    // Cases from before there were these have the digest that they had.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub file_systems: Vec<FileSystemDef>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prepare: Vec<Vec<String>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub held: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drop_caches: bool,
}

impl Case {
    /// Fixes the parameters of `workload`: those not `chosen` take their first choice. Also returns the local
    /// files to be stored under their SHA-256.
    pub fn new(
        workload: &Workload,
        chosen: &BTreeMap<String, String>,
    ) -> anyhow::Result<(Case, Vec<(String, PathBuf)>)> {
        if let Some(unknown) = chosen
            .keys()
            .find(|name| !workload.parameters.contains_key(*name))
        {
            let known: Vec<&str> = workload.parameters.keys().map(String::as_str).collect();
            bail!(
                "workload `{}` has no parameter `{unknown}`; it has: {}",
                workload.name,
                known.join(", ")
            );
        }
        let mut parameters = BTreeMap::new();
        for (name, choices) in &workload.parameters {
            let value = match chosen.get(name) {
                Some(value) if choices.contains(value) => value,
                Some(value) => bail!(
                    "parameter `{name}` cannot be `{value}`; choices: {}",
                    choices.join(", ")
                ),
                None => choices.first().context("a parameter without choices")?,
            };
            parameters.insert(name.clone(), value.clone());
        }
        let one = |word: &String| {
            parameters.iter().fold(word.clone(), |w, (name, value)| {
                w.replace(&format!("{{{name}}}"), value)
            })
        };
        let fill = |argv: &Vec<String>| -> Vec<String> { argv.iter().map(one).collect() };
        let file_system = |f: &FileSystemDef| FileSystemDef {
            at: one(&f.at),
            device: f.device.as_ref().map(one),
            kind: one(&f.kind),
            mkfs_options: fill(&f.mkfs_options),
            mount_options: one(&f.mount_options),
            anew: f.anew,
            trim: f.trim,
        };
        let mut files = BTreeMap::new();
        let mut contents = Vec::new();
        for (name, path) in &workload.files {
            let bytes = std::fs::read(path).with_context(|| format!("files.{name}: {}", path.display()))?;
            let sha256 = sha256_hex(&bytes);
            files.insert(name.clone(), sha256.clone());
            contents.push((sha256, path.clone()));
        }
        let case = Case {
            workload: workload.name.clone(),
            setup: workload.setup.iter().map(fill).collect(),
            command: fill(&workload.command),
            teardown: workload.teardown.iter().map(fill).collect(),
            environment: workload.environment.clone(),
            parser: workload.parser.clone(),
            metrics: workload.metrics.clone(),
            warmup_runs: workload.warmup_runs,
            run_limit_s: workload.run_limit_s,
            timeout_means: workload.timeout_means.clone(),
            file_systems: workload.file_systems.iter().map(file_system).collect(),
            prepare: workload.prepare.iter().map(fill).collect(),
            held: workload.held.iter().map(|(k, v)| (k.clone(), one(v))).collect(),
            drop_caches: workload.drop_caches,
            parameters,
            files,
        };
        Ok((case, contents))
    }

    /// What people call it, the same for ever: the workload and every choice, in the order of the parameters' names.
    pub fn name(&self) -> String {
        let choices = self
            .parameters
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        let choices = choices.collect::<Vec<_>>().join(",");
        match choices.is_empty() {
            true => self.workload.clone(),
            false => format!("{}:{choices}", self.workload),
        }
    }

    pub fn metric(&self, name: &str) -> Option<&MetricDef> {
        self.metrics.iter().find(|m| m.name == name)
    }

    /// What reads this case's output. An error is a mistake in the workload's file.
    pub fn parser(&self) -> Result<parsers::Parser, parsers::BadParser> {
        self.parser.parser()
    }

    /// The numbers that its metrics ask for, as `parsers::judge` wants them.
    pub fn wanted(&self) -> Vec<parsers::Wanted> {
        self.metrics.iter().map(MetricDef::wanted).collect()
    }
}

/// How a tree's commits are built, with the contents of the files that the configuration names.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RecipeDef {
    Kbuild {
        arch: String,
        base_target: String,
        base_config: Option<String>,
        fragment: String,
        forced: Vec<String>,
        cc: String,
        targets: Vec<String>,
        image: String,
        jobs: u32,
        limit_s: u32,
    },
    Command {
        command: Vec<String>,
        artefacts: Vec<String>,
        arch: String,
        limit_s: u32,
    },
}

impl RecipeDef {
    pub fn new(tree: &crate::config::Tree) -> anyhow::Result<RecipeDef> {
        let read = |path: &PathBuf| {
            std::fs::read_to_string(path).with_context(|| format!("{}: cannot be read", path.display()))
        };
        let limit_s = tree.build_limit_s;
        Ok(match &tree.build {
            BuildRecipe::Kbuild {
                arch,
                base_target,
                base_config,
                fragment,
                forced,
                cc,
                targets,
                image,
                jobs,
            } => RecipeDef::Kbuild {
                arch: arch.clone(),
                base_target: base_target.clone(),
                base_config: base_config.as_ref().map(read).transpose()?,
                fragment: fragment.as_ref().map(read).transpose()?.unwrap_or_default(),
                forced: forced.clone(),
                cc: cc.clone(),
                targets: targets.clone(),
                image: image.clone(),
                jobs: *jobs,
                limit_s,
            },
            BuildRecipe::Command {
                command,
                artefacts,
                arch,
            } => RecipeDef::Command {
                command: command.clone(),
                artefacts: artefacts.clone(),
                arch: arch.clone(),
                limit_s,
            },
        })
    }
}

/// A value with its name: the SHA-256 of its canonical JSON (serde_json keeps struct order and sorts maps).
#[derive(Clone, PartialEq, Debug)]
pub struct Definition {
    pub kind: &'static str,
    pub digest: String,
    pub body: serde_json::Value,
}

impl Definition {
    /// `kind` is one of `case`, `recipe`, `boot`, `policy`.
    pub fn of(kind: &'static str, value: &impl Serialize) -> Definition {
        let body = serde_json::to_value(value).expect("our own types are representable as JSON");
        let digest = sha256_hex(body.to_string().as_bytes());
        Definition { kind, digest, body }
    }
}

/// The canonical name of a kernel: its commit, then its variants.
pub fn kernel_key(kernel: &bisect::Kernel) -> String {
    let mut key = kernel.commit.as_str().to_string();
    kernel
        .revert
        .iter()
        .for_each(|c| key.push_str(&format!("+revert={c}")));
    kernel
        .patches
        .iter()
        .for_each(|p| key.push_str(&format!("+patch={p}")));
    if kernel.layout > 0 {
        key.push_str(&format!("+layout={}", kernel.layout));
    }
    key
}

/// `LOCALVERSION` of a kernel: unique to kernel and recipe, and always of the same length, so that two images
/// of equal code differ in nothing that is loaded but these characters.
pub fn localversion(kernel: &bisect::Kernel, recipe_digest: &str) -> String {
    let name = sha256_hex(format!("{}\n{recipe_digest}", kernel_key(kernel)).as_bytes());
    format!("-pb{}", &name[..12])
}

pub fn sha256_hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}
