//! The kernel's configuration, made afresh for every tree in a folder of its own: base, fragment, `olddefconfig`.
//!
//! `olddefconfig` costs as much as a third of an incremental build (Kconfig asks the compiler hundreds of questions),
//! yet its result is a function of a few inputs. It is therefore remembered under the digest of all of them: every file
//! of the tree that is not plainly program text or documentation, everything below `scripts/`, the tools Kconfig asks,
//! and the recipe. A tree that differs in any of these is configured for real.

use super::Limit;
use super::kbuild::{Made, Make};
use crate::probe::which;
use crate::root::{Root, write_atomically};
use crate::trees;
use crate::trouble::{Because, Trouble};
use protocol::Kbuild;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// Raised when this module makes another configuration from the same inputs.
const EDITION: &str = "2";

/// Changes of such files cannot reach Kconfig, unless they lie below `scripts/`.
const BLIND: [&str; 11] = [
    "c", "h", "S", "rst", "txt", "dts", "dtsi", "yaml", "json", "svg", "lds",
];

/// Asked by `$(shell …)` in Kconfig files.
const ASKED: [&str; 8] = ["ld", "as", "objcopy", "nm", "pahole", "rustc", "bindgen", "make"];

/// More changes than this tell nothing new.
const CHANGES_LIMIT: usize = 200;

#[derive(Serialize, Deserialize)]
pub struct Config {
    pub text: String,
    /// `CONFIG_X: wanted y, is not set`.
    pub changes: Vec<String>,
}

pub enum Configured {
    Done { config: Config, remembered: bool },
    Failed(Made),
}

pub fn configure(
    root: &Root,
    tree: &str,
    recipe: &Kbuild,
    compiler_digest: &str,
    make: &Make<'_>,
    limit: &Limit,
) -> Result<Configured, Trouble> {
    let memory = root.dir.join("configs");
    fs::create_dir_all(&memory).because(|| format!("cannot create {}", memory.display()))?;
    let key = memory.join(key(root, tree, recipe, compiler_digest)?);
    if let Some(config) = fs::read(&key).ok().and_then(|t| serde_json::from_slice(&t).ok()) {
        return Ok(Configured::Done {
            config,
            remembered: true,
        });
    }
    let out = make.slot.join("config");
    fs::create_dir_all(&out).because(|| format!("cannot create {}", out.display()))?;
    let file = out.join(".config");
    match &recipe.base_config {
        Some(text) => fs::write(&file, text).because(|| format!("cannot write {}", file.display()))?,
        None => {
            let _ = fs::remove_file(&file);
            let made = make.run(&out, &[&recipe.base_target], limit)?;
            if !made.succeeded() {
                return Ok(Configured::Failed(made));
            }
        }
    }
    let fragment = out.join("fragment");
    fs::write(&fragment, &recipe.fragment).because(|| format!("cannot write {}", fragment.display()))?;
    let made = make.merge(&out, &fragment, limit)?;
    if !made.succeeded() {
        return Ok(Configured::Failed(made));
    }
    let read = || fs::read_to_string(&file).because(|| format!("cannot read {}", file.display()));
    let made = make.run(&out, &["olddefconfig"], limit)?;
    if !made.succeeded() {
        return Ok(Configured::Failed(made));
    }
    let text = read()?;
    // What was asked for by name; a base that is a make target asks for nothing in particular.
    let wanted = format!(
        "{}\n{}",
        recipe.base_config.as_deref().unwrap_or_default(),
        recipe.fragment
    );
    let config = Config {
        changes: changes(&wanted, &text),
        text,
    };
    let remembered = serde_json::to_vec(&config).because(|| "cannot write the configuration".into())?;
    write_atomically(&key, &remembered)?;
    Ok(Configured::Done {
        config,
        remembered: false,
    })
}

fn key(root: &Root, tree: &str, recipe: &Kbuild, compiler_digest: &str) -> Result<String, Trouble> {
    let mut hash = Sha256::new();
    for line in trees::list(root, tree)?.lines() {
        let path = line.split_once('\t').map_or(line, |(_, path)| path);
        let suffix = path.rsplit_once('.').map_or("", |(_, suffix)| suffix);
        if path.starts_with("scripts/") || !BLIND.contains(&suffix) {
            hash.update(line.as_bytes());
            hash.update(b"\n");
        }
    }
    for tool in ASKED {
        let found = which(tool);
        let facts = found.as_ref().and_then(|p| fs::metadata(p).ok());
        let identity = facts.map(|m| (m.ino(), m.len(), m.mtime(), m.mtime_nsec()));
        hash.update(format!("{tool} {found:?} {identity:?}\n").as_bytes());
    }
    let Kbuild {
        arch,
        base_target,
        base_config,
        fragment,
        cc,
        ..
    } = recipe;
    let recipe = serde_json::to_vec(&(
        EDITION,
        arch,
        base_target,
        base_config,
        fragment,
        cc,
        compiler_digest,
    ))
    .because(|| "cannot write the recipe".into())?;
    hash.update(&recipe);
    Ok(crate::sha::hex(&hash.finalize()))
}

/// Option to value; one that is not set is absent.
pub fn options(config: &str) -> BTreeMap<&str, &str> {
    let lines = config.lines().map(str::trim).filter(|l| l.starts_with("CONFIG_"));
    lines
        .filter_map(|l| l.split_once('='))
        .filter(|(_, value)| *value != "n")
        .collect()
}

/// Options that a text mentions, set or not.
fn mentioned(config: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    config.lines().map(str::trim).filter_map(|line| {
        if let Some(name) = line
            .strip_prefix("# ")
            .and_then(|l| l.strip_suffix(" is not set"))
        {
            return Some((name, None));
        }
        let (name, value) = line.split_once('=')?;
        name.starts_with("CONFIG_")
            .then_some((name, (value != "n").then_some(value)))
    })
}

fn shown(value: Option<&str>) -> &str {
    value.unwrap_or("not set")
}

/// What of `wanted` is otherwise in `config`.
pub fn changes(wanted: &str, config: &str) -> Vec<String> {
    let is = options(config);
    // The last line about an option counts, as for Kconfig.
    let wanted: BTreeMap<&str, Option<&str>> = mentioned(wanted).collect();
    wanted
        .into_iter()
        .filter(|(name, value)| is.get(name).copied() != *value)
        .map(|(name, value)| {
            format!(
                "{name}: wanted {}, is {}",
                shown(value),
                shown(is.get(name).copied())
            )
        })
        .take(CHANGES_LIMIT)
        .collect()
}
